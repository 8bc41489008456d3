"""Documents with session state, and calls that import and export them."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.support.service import Client

Document = dict[str, Any]


def cookie(name: str, domain: str = "shop.example", **members: Any) -> dict[str, Any]:
    """A cookie as Playwright writes it."""
    plain = {"name": name, "value": f"value-of-{name}", "domain": domain, "path": "/"}
    return plain | {"expires": -1, "httpOnly": False, "secure": False} | members


def origin(url: str, **entries: str) -> dict[str, Any]:
    """The local storage of one origin as Playwright writes it."""
    named = [{"name": name, "value": value} for name, value in entries.items()]
    return {"origin": url, "localStorage": named}


def document(*cookies: dict[str, Any], origins: tuple[dict[str, Any], ...] = ()) -> Document:
    """A storage state of Playwright."""
    return {"cookies": list(cookies), "origins": list(origins)}


def send(client: Client, content: Any, **query: Any) -> httpx2.Response:
    """Imports a text, bytes or a JSON value."""
    is_text = isinstance(content, str | bytes)
    body = content if is_text else json.dumps(content)
    return client.post("/v1/sessions/import", params=query, content=body)


def imported(client: Client, content: Any, **query: Any) -> dict[str, Any]:
    answer = send(client, content, **query)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def export(client: Client, **query: Any) -> httpx2.Response:
    answer = client.get("/v1/sessions/export", params=query)
    assert answer.status_code == 200, answer.text
    return answer


def exported(client: Client, **query: Any) -> Document:
    """The state as Playwright's storage state."""
    state: Document = export(client, **query).json()
    return state


def losses(answer: httpx2.Response) -> list[str]:
    found: list[str] = json.loads(answer.headers["gleanery-losses"])
    return found


def names(state: Document) -> list[str]:
    return [one["name"] for one in state["cookies"]]
