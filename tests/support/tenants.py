"""Organizations with one of everything, and the names of their things."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.exports import export_link
from tests.support.service import Client

Names = dict[str, Any]


def unused_names() -> Names:
    """Names for which no organization has anything."""
    tag = secrets.token_hex(8)
    return {
        "group": f"group-{tag}",
        "job": f"job-{tag}",
        "output": secrets.token_hex(16),
        "list of outputs": [secrets.token_hex(16)],
        "file": secrets.token_hex(16),
        "url": f"https://{tag}.example/2",
        "domain": f"{tag}.example",
        "cookie number": 10**9,
        "entry number": 10**9,
        "cookie": f"cookie-{tag}",
        "entry": f"entry-{tag}",
        "lease": secrets.token_hex(16),
        "review": secrets.token_hex(16),
        "run": secrets.token_hex(16),
        "webhook": secrets.token_hex(16),
        "delivery": f"msg_{secrets.token_hex(16)}",
        "alert": secrets.token_hex(16),
        "group number": 10**9,
        "review number": 10**9,
        "run number": 10**9,
        "delivery number": 10**9,
        "alert number": 10**9,
        "job number": 10**9,
        "place": 2**51,
        "source": f"https://{tag}.example/file",
        "etag": f"etag-{tag}",
        "organization": 10**9,
        "signature": secrets.token_hex(16),
        "token number": 10**9,
        "export signature": secrets.token_hex(32),
        "key": f"key-{tag}",
        "request": f"request-{tag}",
        "content": f"content {tag}".encode(),
        "profile": f"profile-{tag}",
        "session document": storage_state(f"{tag}.example", f"cookie-{tag}", f"entry-{tag}"),
    }


def storage_state(domain: str, cookie: str, entry: str) -> bytes:
    """A storage state of Playwright with a cookie and a local-storage entry."""
    cookies = [{"domain": domain, "name": cookie, "value": "a value", "path": "/"}]
    entries = [{"name": entry, "value": "a value"}]
    origins = [{"origin": f"https://{domain}", "localStorage": entries}]
    return json.dumps({"cookies": cookies, "origins": origins}).encode()


def create_one_of_everything(client: Client) -> Names:
    """Creates one thing of each kind in the organization, and returns their names."""
    names = unused_names()
    group, job, domain = names["group"], names["job"], names["domain"]
    source = {"source_url": names["source"], "etag": names["etag"]}
    sent = client.post("/v1/files", params=source, content=names["content"])
    names["file"] = sent.json()["id"]
    files = [{"field": "a field", "id": names["file"]}]
    first = {"job_id": job, "source_url": "https://first.example", "data": {}, "files": files}
    second = first | {"source_url": names["url"], "key": names["key"]}
    stored = client.post(
        f"/v1/outputs/{group}",
        json=[first | {"tags": {"country": "Germany"}}, second],
        headers={"Idempotency-Key": names["request"]},
    )
    names["output"] = stored.json()["results"][1]["output_id"]
    names["list of outputs"] = [names["output"]]
    page = client.get(f"/v1/outputs/{group}", params={"limit": 1}).json()
    names["place"] = page["metadata"]["next_cursor"]
    link = parse_qs(urlsplit(page["items"][0]["files"][0]["blob_url"]).query)
    for part in ("organization", "expires", "signature"):
        names[part] = link[part][0]
    filters = {"job_id": job, "url": names["url"]}
    link = parse_qs(urlsplit(export_link(client, group, **filters)).query)
    names["token number"] = link["token"][0]
    names |= {f"export {part}": link[part][0] for part in ("expires", "signature")}
    for status in ("pending", "approved"):
        review = client.post(f"/v1/reviews/{group}", json={"job_id": job, "status": status})
        names["review"] = review.json()["review_id"]
    asked = {"history": "true", "limit": 1}
    history = client.get(f"/v1/reviews/{group}", params=asked).headers["link"]
    names["review number"] = re.findall(r"cursor=(\d+)", history)[0]
    names["group number"] = client.get(f"/v1/groups/{group}").json()["id"]
    client.put(f"/v1/groups/{group}-2", json={})  # a second group for the list
    cookie = {"domain": domain, "name": names["cookie"], "value": "a value"}
    client.post("/v1/cookies", json=[cookie, cookie | {"name": "a second cookie"}])
    first_page = client.get("/v1/cookies", params={"limit": 1}).headers["link"]
    names["cookie number"] = re.findall(r"cursor=(\d+)", first_page)[0]
    entry = {"domain": domain, "key": names["entry"], "group_id": names["group number"]}
    entries = [entry, entry | {"key": "a second entry"}]
    client.post("/v1/local-storage", json=[one | {"value": "a value"} for one in entries])
    client.post(
        "/v1/sessions/import",
        params={"profile": names["profile"], "group_id": group},
        content=names["session document"],
    )
    names["entry number"] = client.get("/v1/local-storage").json()[0]["id"]
    wanted = {"domain": f"leased-{domain}", "seconds": 3600}
    names["lease"] = client.post("/v1/sessions/leases", json=wanted).json()["id"]
    changed = first | {"data": {"version": 2}}  # the approved view keeps the first version
    other = first | {"job_id": "a second job"}
    client.post(f"/v1/outputs/{group}", json=[changed, other])
    for status in ("approved", "rejected"):  # the approved view keeps a tombstone
        client.post(f"/v1/reviews/{group}", json={"job_id": "a second job", "status": status})
    _create_alerts(client, names)
    started = client.post(f"/v1/runs/{group}", json={"job_id": job, "labels": {"a": "label"}})
    names["run"] = started.json()["run_id"]
    client.post(f"/v1/outputs/{group}", params={"run_id": names["run"]}, json=[changed])
    client.post(f"/v1/outputs/{group}", json=[changed])  # the run keeps what it has sent
    newest = client.get(f"/v1/runs/{group}", params={"limit": 1}).json()
    names["run number"] = newest["metadata"]["next_cursor"]
    _create_webhook(client, names)
    first_job = client.get(f"/v1/groups/{group}", params={"limit": 1}).json()
    names["job number"] = first_job["metadata"]["next_cursor"]
    return names


def _create_alerts(client: Client, names: Names) -> None:
    """Creates two alerts of a job: one run fails, and the next one sends nothing."""
    group = names["group"]
    wanted = [{"kind": "failed_run"}, {"kind": "few_outputs", "minimum": 1}]
    client.put(f"/v1/monitors/{group}", json=wanted)
    for status in ("failed", "partial"):
        run = client.post(f"/v1/runs/{group}", json={"job_id": names["job"]}).json()
        path = f"/v1/runs/{group}/{run['run_id']}/finish"
        client.post(path, json={"status": status})
    newest = client.get("/v1/alerts", params={"limit": 1}).json()
    [alert] = newest["alerts"]
    names["alert"], names["alert number"] = alert["alert_id"], newest["metadata"]["next_cursor"]


def _create_webhook(client: Client, names: Names) -> None:
    """Creates a webhook whose address does not exist, with two deliveries."""
    headers = {"X-Api-Key": "value"}
    settings = {"url": "https://receiver.invalid/", "events": ["test"], "headers": headers}
    names["webhook"] = client.post("/v1/webhooks", json=settings).json()["id"]
    path = f"/v1/webhooks/{names['webhook']}"
    for _ in range(2):
        names["delivery"] = client.post(f"{path}/test").json()["delivery_id"]
    newest = client.get(f"{path}/deliveries", params={"limit": 1}).json()
    names["delivery number"] = newest["metadata"]["next_cursor"]
