"""Ways to try an operation: programs that send its example request, and a form.

The programs are a curl command and a Python script. Both run as they are with the token in the
variable TOKEN. The Python script needs only the standard library. The page's script shows the form
and sends it.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from gleanery.service.api.reference.content import Content, Parameter, Section

_JSON = "application/json"
_NDJSON = "application/x-ndjson"
_BYTES = "application/octet-stream"
_INDENT = "    "
_EFFECTS = {"POST": "store data", "PUT": "replace data", "DELETE": "delete data"}
_TEXT = 'autocomplete="off" autocapitalize="off" spellcheck="false"'


# --- programs -----------------------------------------------------------------------------------


def curl(s: Section, base_url: str) -> str:
    """Return the example request as a curl command."""
    return " \\\n  ".join(_curl_parts(s, base_url))


def python(s: Section, base_url: str) -> str:
    """Return the example request as a Python script."""
    prints, modules = _printing(s)
    if s.needs_token:
        modules.append("import os")
    body = _python_body(s)
    if "json." in body:
        modules.append("import json")
    modules = [*sorted(set(modules)), "from urllib.request import Request, urlopen"]
    return "\n".join(
        [
            *modules,
            "",
            *(['token = os.environ["TOKEN"]'] if s.needs_token else []),
            *([f"body = {body}"] if body else []),
            "request = Request(",
            *(f"{_INDENT}{argument}," for argument in _python_arguments(s, base_url)),
            ")",
            "with urlopen(request) as response:",
            f"{_INDENT}{prints}",
        ]
    )


def json_text(value: Any) -> str:
    """Return an example as it is shown: JSON with an indent, other texts as they are."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False)


def _curl_parts(s: Section, base_url: str) -> Iterator[str]:
    yield f"curl {_curl_options(s)}{_shell_quoted(_url(s, base_url))}"
    if s.needs_token:
        yield '-H "Authorization: Bearer $TOKEN"'
    for name, value in _headers(s).items():
        yield f"-H {_shell_quoted(f'{name}: {value}')}"
    if s.bodies:
        yield _curl_body(s)


def _curl_options(s: Section) -> str:
    if s.method != _default_method(s):
        return f"-X {s.method} "
    return "-o file " if _is_bytes(s.responses[0]) else ""


def _default_method(s: Section) -> str:
    """Return the method that curl and urllib use if none is named."""
    return "POST" if s.bodies else "GET"


def _curl_body(s: Section) -> str:
    if _is_bytes(s.bodies[0]):
        return f"--data-binary {_shell_quoted(f'@{_file_name(s)}')}"
    return f"-d {_shell_quoted(json_text(s.bodies[0].example))}"


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", r"'\''") + "'"


def _python_arguments(s: Section, base_url: str) -> Iterator[str]:
    yield f'"{_url(s, base_url)}"'
    if s.method != _default_method(s):
        yield f'method="{s.method}"'
    if s.bodies:
        yield "data=body"
    headers = ['"Authorization": f"Bearer {token}"'] if s.needs_token else []
    headers += [f"{_literal(name)}: {_literal(value)}" for name, value in _headers(s).items()]
    if headers:
        inside = "".join(f"\n{_INDENT * 2}{header}," for header in headers)
        yield f"headers={{{inside}\n{_INDENT}}}"


def _python_body(s: Section) -> str:
    if not s.bodies:
        return ""
    if _is_bytes(s.bodies[0]):
        return f'open({_literal(_file_name(s))}, "rb").read()'
    example = s.bodies[0].example
    if isinstance(example, str):
        return f"{_literal(example)}.encode()"
    return f"json.dumps({_literal(example)}).encode()"


def _printing(s: Section) -> tuple[str, list[str]]:
    """Return the statement that uses the response, and its imports."""
    content = s.responses[0]
    if content.media_type == _JSON:
        return "print(json.load(response))", ["import json"]
    if content.media_type == _NDJSON:
        return f"for line in response:\n{_INDENT * 2}print(json.loads(line))", ["import json"]
    if _is_bytes(content):
        return 'open("file", "wb").write(response.read())', []
    return "print(response.read().decode())", []


def _literal(value: Any, depth: int = 0) -> str:
    """Return a JSON value as Python source, with objects and arrays over several lines."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and value:
        items = [f"{_literal(key)}: {_literal(one, depth + 1)}" for key, one in value.items()]
        return _lines("{", items, "}", depth)
    if isinstance(value, list) and value:
        return _lines("[", [_literal(one, depth + 1) for one in value], "]", depth)
    return repr(value)


def _lines(start: str, items: list[str], end: str, depth: int) -> str:
    inside = "".join(f"{_INDENT * (depth + 1)}{item},\n" for item in items)
    return f"{start}\n{inside}{_INDENT * depth}{end}"


def _url(s: Section, base_url: str) -> str:
    path, query = s.path, {}
    for parameter in s.parameters:
        if parameter.location == "path":
            value = quote(parameter.example or parameter.name, safe="")
            path = path.replace(f"{{{parameter.name}}}", value)
        elif parameter.location == "query" and parameter.example is not None:
            query[parameter.name] = parameter.example
    return f"{base_url}{path}" + (f"?{urlencode(query)}" if query else "")


def _headers(s: Section) -> dict[str, str]:
    headers = {
        parameter.name: parameter.example
        for parameter in s.parameters
        if parameter.location == "header" and parameter.example is not None
    }
    if s.bodies:
        headers["Content-Type"] = _content_type(s)
    return headers


def _content_type(s: Section) -> str:
    if _is_bytes(s.bodies[0]):
        return mimetypes.guess_type(_file_name(s))[0] or _BYTES
    return s.bodies[0].media_type


def _is_bytes(content: Content) -> bool:
    return content.media_type in ("*/*", _BYTES)


def _file_name(s: Section) -> str:
    names = [p.example for p in s.parameters if p.name == "filename" and p.example]
    return names[0] if names else "file"


# --- the form -----------------------------------------------------------------------------------


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
    return "" if body.example is None else json_text(body.example)


def _consent(s: Section) -> str:
    """Render the box that must be ticked before each request that changes data."""
    if s.method == "GET":
        return ""
    return (
        f'<p class="consent {s.method.lower()}"><label><input type="checkbox" required>'
        f" Allow one request to {_EFFECTS[s.method]}</label></p>"
    )
