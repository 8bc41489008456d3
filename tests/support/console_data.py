"""Sample data for all screens of the console, and the routes of the screens."""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import quote

from gleanery.service.console import assets
from tests.support.console_alerts import change, empty_field, few_outputs
from tests.support.console_runs import send_run
from tests.support.console_webhooks import store_webhooks
from tests.support.service import Client

_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_PATTERN = re.compile(r'\bpattern: "([^"]*)"')


def screen_patterns() -> list[str]:
    """Patterns of all screens, from the file that lists them."""
    found = _PATTERN.findall(dict(assets.read_sources())["screens.js"].decode())
    assert found
    return found


def route_of(pattern: str, names: dict[str, str]) -> str:
    """Fills the parameters of a pattern: ``groups/:group`` needs the name ``group``."""

    def value(parameter: re.Match[str]) -> str:
        name = parameter[1]
        assert name in names, f"give the parameter {name} of {pattern} a value in console_data.py"
        return quote(names[name], safe="")

    return re.sub(r":(\w+)", value, pattern)


def store_sample(client: Client) -> dict[str, str]:
    """Stores data for every screen. Returns the parameters of the routes."""
    file = client.post("/v1/files", params={"filename": "mug.png"}, content=_PIXEL).json()["id"]
    for job in ("daily", "weekly"):
        client.store("shop", *(_product(job, number, file) for number in range(60)))
        review = {"job_id": job, "status": "approved", "comment": "Checked a sample."}
        _post(client, "/v1/reviews/shop", review)
    changed = [_product("daily", number, file, price=number + 0.5) for number in range(0, 60, 3)]
    stored = client.store("shop", *changed)
    output_id = stored["results"][0]["output_id"]
    findings = [{"output_id": output_id, "path": "price", "note": "Twice the price of before."}]
    sent_back = {"job_id": "daily", "status": "changes_requested", "findings": findings}
    _post(client, "/v1/reviews/shop", sent_back)
    client.store("news", *({**_product("hourly", n, file), "key": str(n)} for n in range(5)))
    run_id = _store_runs(client, file)
    _store_alerts(client)
    _store_sessions(client)
    client.store("shop", _product("daily", 1, file, price=1.25))  # so that the job waits again
    names = {"group": "shop", "job": "daily", "output": output_id, "run": run_id}
    webhook_id = store_webhooks(client, description="Warehouse", groups=["shop"])
    return names | {"domain": "shop.example", "webhook": webhook_id}


def _store_runs(client: Client, file: str) -> str:
    """Stores runs of every kind. Returns the id of one whose removal is held."""
    settings = {"missing": {"after_runs": 1, "max_share": 0.2}}
    assert client.put("/v1/groups/shop", json=settings).status_code == 200
    products = [_product("outlet", number, file) for number in range(20)]
    labels = {"country": "PT"}
    for _ in range(3):
        send_run(client, "shop", "outlet", products, labels=labels)
    send_run(client, "shop", "outlet", products[:3], "failed", message="HTTP 403", labels=labels)
    send_run(client, "shop", "outlet", [*products[:9], {}], "partial")
    held = send_run(client, "shop", "outlet", products[:9], labels=labels)
    assert held["removal"] == "held"
    send_run(client, "shop", "empty", [])
    client.post("/v1/runs/shop", json={"job_id": "outlet"})
    return str(held["run_id"])


def _store_alerts(client: Client) -> None:
    """Opens an alert of each state: new, acknowledged, muted and closed."""
    empty_field(client, "shop", "mugs")
    change(client, few_outputs(client, "shop", "plates"), acknowledged=True)
    change(client, few_outputs(client, "shop", "bowls"), muted_until="2999-01-01T00:00:00Z")
    change(client, few_outputs(client, "shop", "cups"), normal=True)


def _product(job: str, number: int, file: str, price: float = 9.9) -> dict[str, Any]:
    data: dict[str, Any] = {"title": f"Blue mug {number}", "price": price, "stock": number % 7}
    if number % 4 == 0:
        data |= {"tags": ["new", "blue"], "maker": {"name": "Mug & Co", "country": "PT"}}
    return {
        "job_id": job,
        "source_url": f"https://shop.example/mugs/{job}/{number}",
        "data": data,
        "tags": {"country": "Portugal"},
        "files": [{"field": "image", "id": file}] if number == 0 else [],
    }


def _store_sessions(client: Client) -> None:
    cookie = {"domain": "shop.example", "name": "sid", "value": "a value", "secure": True}
    _post(client, "/v1/cookies", [cookie, {**cookie, "name": "theme", "domain": ".shop.example"}])
    entry = {"domain": "shop.example", "key": "cart", "value": "a value"}
    _post(client, "/v1/local-storage", [entry])
    _post(client, "/v1/sessions/leases", {"domain": "shop.example", "seconds": 3600})


def _post(client: Client, path: str, body: Any) -> None:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
