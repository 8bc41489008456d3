"""The form that sends a request of an operation; the page's script shows it and sends it."""

from __future__ import annotations

from html import escape

from gleanery.service.api.reference import snippets
from gleanery.service.api.reference.sections import Content, Parameter, Section

_EFFECTS = {"POST": "store data", "PUT": "replace data", "DELETE": "delete data"}
_TEXT = 'autocomplete="off" autocapitalize="off" spellcheck="false"'


def form(s: Section) -> str:
    """Render the form. It stays hidden without the script."""
    fields = "".join(_field(s, parameter) for parameter in s.parameters)
    label = "Send request" if s.method == "GET" else f"Send {s.method}"
    return f"""<details class="try" hidden><summary>Try it</summary>
<form data-method="{s.method}" data-path="{escape(s.path)}">
{_token(s)}{fields}{_body(s)}{_consent(s)}
<p><button class="{s.method.lower()}">{label}</button>
<button type="button" class="cancel" hidden>Cancel</button></p>
</form>
<p role="status"></p>
<div class="result"></div>
</details>"""


def _token(s: Section) -> str:
    if not s.needs_token:
        return ""
    return _labelled(
        f"{s.id}-token", "Token", "stays in this page", f'<input class="token" required {_TEXT}'
    )


def _field(s: Section, parameter: Parameter) -> str:
    field_id = f"{s.id}-{parameter.name}"
    note = f"{parameter.location}" + (", required" if parameter.is_required else "")
    name = escape(parameter.name)
    attributes = f'name="{name}" data-in="{parameter.location}"'
    if parameter.is_required:
        attributes += " required"
    if parameter.choices:
        return _labelled(field_id, name, note, f"<select {attributes}", _options(parameter))
    if parameter.example is not None:
        attributes += f' placeholder="{escape(parameter.example)}"'
    return _labelled(field_id, name, note, f"<input {attributes} {_TEXT}")


def _options(parameter: Parameter) -> str:
    choices = "".join(f"<option>{escape(choice)}</option>" for choice in parameter.choices)
    return f'<option value="">not sent</option>{choices}</select>'


def _labelled(field_id: str, label: str, note: str, start: str, rest: str = "") -> str:
    return (
        f'<div class="field"><label for="{field_id}">{label} <small>{note}</small></label>'
        f'{start} id="{field_id}">{rest}</div>\n'
    )


def _body(s: Section) -> str:
    if not s.bodies:
        return ""
    if s.bodies[0].media_type in ("*/*", "application/octet-stream"):
        return _labelled(f"{s.id}-body", "Body", "file", '<input type="file" data-in="file"')
    return _media(s) + _labelled(
        f"{s.id}-body",
        "Body",
        s.bodies[0].media_type if len(s.bodies) == 1 else "",
        f'<textarea data-in="body" data-media="{s.bodies[0].media_type}" rows="10" {_TEXT}',
        f"\n{escape(_example(s.bodies[0]), quote=False)}</textarea>",
    )


def _media(s: Section) -> str:
    """Render the choice of a media type, each with its example for the body."""
    if len(s.bodies) == 1:
        return ""
    options = "".join(
        f'<option data-example="{escape(_example(body))}">{body.media_type}</option>'
        for body in s.bodies
    )
    start = '<select data-in="media"'
    return _labelled(f"{s.id}-media", "Content-Type", "", start, f"{options}</select>")


def _example(body: Content) -> str:
    return "" if body.example is None else snippets.json_text(body.example)


def _consent(s: Section) -> str:
    """Render the box that must be ticked before each request that changes data."""
    if s.method == "GET":
        return ""
    return (
        f'<p class="consent {s.method.lower()}"><label><input type="checkbox" required>'
        f" Allow one request to {_EFFECTS[s.method]}</label></p>"
    )
