"""The part of the page about one operation: texts, parameters, examples, status codes."""

from __future__ import annotations

from html import escape

from gleanery.service.api.operation import SERVICE_URL
from gleanery.service.api.reference import markup, snippets, try_it
from gleanery.service.api.reference.sections import Content, Section, Status


def article(s: Section, base_url: str, common: list[Status]) -> str:
    """Render one operation: the texts on one side, the examples on the other.

    The introduction explains the common status codes.
    """
    return f"""<article id="{s.id}" aria-labelledby="{s.id}-title">
<h3 id="{s.id}-title"><a href="#{s.id}">{escape(s.title)}</a></h3>
<p class="route">{markup.route(s.method, s.path)}</p>
<div class="text">
<div class="find">{markup.paragraphs(s.description)}
{_parameters(s)}{_contents("Body", s.bodies)}{_contents("Response", s.responses)}</div>
{_statuses(s, common)}
{try_it.form(s)}
</div>
<div class="examples">
{_programs(s, base_url)}
{_response(s, base_url)}
</div>
</article>
"""


def _parameters(s: Section) -> str:
    if not s.parameters:
        return ""
    return f"<h4>Parameters</h4>{markup.rows(p.row for p in s.parameters)}"


def _contents(title: str, contents: list[Content]) -> str:
    if not contents:
        return ""
    links = " or ".join(_content(content) for content in contents)
    return f"<h4>{title}</h4><p>{links}</p>"


def _content(content: Content) -> str:
    media_type = f"<code>{content.media_type}</code>"
    if content.type[0].isupper() or " " in content.type:
        limits = f"{content.limits}, " if content.limits else ""
        return f"{markup.type_link(content.type)} <small>{limits}as {media_type}</small>"
    return media_type


def _statuses(s: Section, common: list[Status]) -> str:
    listed = "".join(
        f"<div><dt><code>{status.code}</code></dt><dd>{markup.inline(status.meaning)}</dd></div>"
        for status in s.statuses
        if status not in common
    )
    codes = " ".join(status.code for status in s.statuses)
    return (
        f'<details class="statuses"><summary>Status codes <small>{codes}</small></summary>'
        f'<dl>{listed}<div><dt><a href="#statuses">Others</a></dt></div></dl></details>'
    )


def _programs(s: Section, base_url: str) -> str:
    """Render the example request in both languages. Radio buttons choose one without a script."""
    choices = "".join(
        f'<label><input type="radio" name="{s.id}-language" value="{language}"{checked}>'
        f"{title}</label>"
        for language, title, checked in (("curl", "curl", " checked"), ("python", "Python", ""))
    )
    curl = markup.code(snippets.curl(s, base_url))
    python = markup.code(snippets.python(s, base_url))
    return f"""<div class="code request">
<div class="bar" role="radiogroup" aria-label="Language of the example">{choices}</div>
<div class="curl">{curl}</div>
<div class="python">{python}</div>
</div>"""


def _response(s: Section, base_url: str) -> str:
    response = s.responses[0]
    example = snippets.json_text(response.example).replace(SERVICE_URL, base_url)
    return f"""<div class="code">
<div class="bar"><span>Response <b>{s.success}</b> <small>{response.media_type}</small></span></div>
{markup.code(example, "json")}
</div>"""
