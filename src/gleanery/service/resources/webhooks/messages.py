"""Short messages for a chat, in the formats of Slack, Discord and Microsoft Teams.

A message says in one sentence what happened, and has a link to the console. Names and comments in
it were written by people or by scraped sites. So characters with a meaning in the format are
escaped, and a message can mention nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from gleanery.service.foundation.values.json_text import encode

_MAX_LENGTH = 1500
_MAX_DISCORD = 2000  # characters that Discord accepts
_MAX_DISCORD_LINK = 1000
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~@:])")


class _Message(NamedTuple):
    """What a message says, and the page of the console with more about it."""

    text: str
    page: tuple[str, ...] = ()


def convert(format_: str, body: str, address: str) -> bytes:
    """Return the body of a request in this format. ``address`` is that of the service."""
    if format_ == "standard":
        return body.encode()
    event = json.loads(body)
    message = _describe(event["type"], event["data"])
    text = message.text if len(message.text) <= _MAX_LENGTH else f"{message.text[:_MAX_LENGTH]}…"
    page = "/".join(quote(segment, safe="") for segment in message.page)
    return encode(_FORMATS[format_](text, f"{address}/console#/{page}"))


def _describe(event: str, data: Mapping[str, Any]) -> _Message:
    group = data.get("group_id", "")
    match event:
        case "outputs.changed":
            return _Message(f"The outputs of {group} have changed.", ("groups", group, "outputs"))
        case "run.finished":
            return _Message(_describe_run(data), ("groups", group, "runs", data["run_id"]))
        case "review.created":
            return _Message(
                f"The review of {data['job_id']} in {group} is now: {data['status']}."
                + (f" {data['comment']}" if data["comment"] else ""),
                ("groups", group),
            )
        case "delivery.failed":
            name = data["description"] or data["webhook_id"]
            text = f"An event ({data['event']}) could not be delivered to the webhook {name}: "
            return _Message(f"{text}{data['error']}.", ("webhooks", data["webhook_id"]))
        case "webhook.disabled":
            name = data["description"] or data["webhook_id"]
            text = f"The webhook {name} was disabled: {data['reason']}."
            return _Message(text, ("webhooks", data["webhook_id"]))
        case "test":
            text = "This is a test of a webhook of Gleanery."
            return _Message(text, ("webhooks", data["webhook_id"]))
        case _:
            return _Message(f"Event: {event}.", ("groups", group) if group else ())


def _describe_run(run: Mapping[str, Any]) -> str:
    counts = ", ".join(
        f"{count:,} {name}"
        for name, count in run["counts"].items()
        if count or name in ("created", "updated", "unchanged")
    )
    held = ""
    if run["removal"] == "held":
        held = f" The removal of {run['removable']:,} outputs waits for a decision."
    message = f" {run['message']}" if run["message"] else ""
    job = f"{run['job_id']} in {run['group_id']}"
    return f"A run of {job} has ended as {run['status']}: {counts}.{held}{message}"


def _slack(text: str, link: str) -> dict[str, Any]:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{escaped} <{link}|Open in the console>", "unfurl_links": False}


def _discord(text: str, link: str) -> dict[str, Any]:
    if len(link) > _MAX_DISCORD_LINK:  # each character of a name can take twelve in a link
        link = f"{link.partition('#')[0]}#/"
    end = f" [Open in the console](<{link}>)"
    content = _shortened(_escape_markdown(text), _MAX_DISCORD - len(end)) + end
    return {"content": content, "allowed_mentions": {"parse": []}}


def _shortened(escaped: str, length: int) -> str:
    """Return the beginning of an escaped text. It does not end in the middle of an escape."""
    if len(escaped) <= length:
        return escaped
    kept = escaped[: length - 1]
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return f"{kept[:-1] if backslashes % 2 else kept}…"


def _teams(text: str, link: str) -> dict[str, Any]:
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": _escape_markdown(text), "wrap": True}],
        "actions": [{"type": "Action.OpenUrl", "title": "Open in the console", "url": link}],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


_FORMATS: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "slack": _slack,
    "discord": _discord,
    "teams": _teams,
}
