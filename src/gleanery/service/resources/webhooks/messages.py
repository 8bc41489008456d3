"""Short messages for people: in the formats of Slack, Discord and Microsoft Teams, and as e-mail.

A message says in one sentence what happened, or has a line for each alert, and has a link to the
console. Names and comments in it were written by people or by scraped sites. So characters with a
meaning in the format are escaped, and a message can mention nobody. In an e-mail, characters that
nobody can read are left out, and a text of others has no line breaks.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from gleanery.service.foundation.values.json_text import encode

_MAX_LENGTH = 1500
_MAX_DISCORD = 2000  # characters that Discord accepts
_MAX_DISCORD_LINK = 1000
_MAX_LINES, _MAX_LINE = 5, 240  # alerts in a message for a chat, and characters of each
_MAX_MAIL_LINE = 1000
_MAX_SUBJECT = 150
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~@:])")
_SEPARATORS = ("Cc", "Zl", "Zp")  # control characters, and those that begin a line
_INVISIBLE = ("Cf", "Cs")  # such as those that turn the direction of a text
Page = tuple[str, ...]
"""Segments of the path of a page in the console."""


class _Message(NamedTuple):
    """What a message says, and the page of the console with more about it."""

    text: str
    page: Page = ()
    subject: str = ""
    """Of an e-mail. By default, it is the text."""
    lines: Sequence[str] = ()
    """What follows the text, a line each."""
    line_count: int = 0
    """All lines, even those that the event does not have."""
    run: Page = ()
    """The page of a run that an e-mail has a link to."""


class Mail(NamedTuple):
    """The parts of an e-mail that say something."""

    event: str
    subject: str
    text: str


def convert(format_: str, body: str, address: str) -> bytes:
    """Return the body of a request in this format. ``address`` is that of the service."""
    if format_ == "standard":
        return body.encode()
    event = json.loads(body)
    message = _describe(event["type"], event["data"])
    lines = [_shortened_line(message.text, _MAX_LENGTH)]
    lines += _list(message, _MAX_LINES, _MAX_LINE)
    return encode(_FORMATS[format_](lines, _link(address, message.page)))


def write_mail(body: str, address: str, webhook_id: str) -> Mail:
    """Return an event as e-mail."""
    event = json.loads(body)
    message = _describe(event["type"], event["data"])
    text = _shortened_line(_one_line(message.text), _MAX_MAIL_LINE)
    paragraphs = [text, "\n".join(_list(message, len(message.lines), _MAX_MAIL_LINE))]
    links = [f"Console: {_link(address, message.page)}"]
    if message.run:
        links.append(f"Run: {_link(address, message.run)}")
    end = (
        f"-- \nEvent {event['type']} of {event['timestamp']}\n"
        f"This webhook sends the e-mail: {_link(address, ('webhooks', webhook_id))}\n"
    )
    paragraphs += ["\n".join(links), end]
    subject = _shortened_line(_one_line(message.subject or text.removesuffix(".")), _MAX_SUBJECT)
    return Mail(event["type"], f"[Gleanery] {subject}", "\n\n".join(filter(None, paragraphs)))


def _list(message: _Message, count: int, length: int) -> list[str]:
    """Return the first lines of a message, and how many there are besides."""
    lines = [f"• {_shortened_line(_one_line(line), length)}" for line in message.lines[:count]]
    others = message.line_count - len(lines)
    return [*lines, f"and {others:,} more."] if others > 0 else lines


def _link(address: str, page: Page) -> str:
    return f"{address}/console#/" + "/".join(quote(segment, safe="") for segment in page)


def _shortened_line(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _one_line(text: str) -> str:
    """Return the text without line breaks and without characters that nobody can read."""
    return "".join(map(_readable, text)).strip()


def _readable(character: str) -> str:
    category = unicodedata.category(character)
    if category in _SEPARATORS:
        return " "
    return "" if category in _INVISIBLE else character


def _describe(event: str, data: Mapping[str, Any]) -> _Message:
    group = data.get("group_id", "")
    page: Page
    match event:
        case "outputs.changed":
            return _Message(f"The outputs of {group} have changed.", ("groups", group, "outputs"))
        case "run.finished":
            subject = f"Run {data['status']}: {data['job_id']} in {group}"
            page = ("groups", group, "runs", data["run_id"])
            return _Message(_describe_run(data), page, subject)
        case "review.created":
            return _Message(
                f"The review of {data['job_id']} in {group} is now: {data['status']}."
                + (f" {data['comment']}" if data["comment"] else ""),
                ("groups", group),
                f"Review {data['status']}: {data['job_id']} in {group}",
            )
        case "alert.opened" | "alert.closed":
            return _describe_alerts(data, group, is_over=event == "alert.closed")
        case "delivery.failed":
            name = data["description"] or data["webhook_id"]
            text = f"An event ({data['event']}) could not be delivered to the webhook {name}: "
            page = ("webhooks", data["webhook_id"])
            return _Message(f"{text}{data['error']}.", page, f"Not delivered: {data['event']}")
        case "webhook.disabled":
            name = data["description"] or data["webhook_id"]
            text = f"The webhook {name} was disabled: {data['reason']}."
            page = ("webhooks", data["webhook_id"])
            return _Message(text, page, f"A webhook was disabled: {name}")
        case "test":
            text = "This is a test of a webhook of Gleanery."
            return _Message(text, ("webhooks", data["webhook_id"]))
        case _:
            return _Message(f"Event: {event}.", ("groups", group) if group else ())


def _describe_alerts(data: Mapping[str, Any], group: str, *, is_over: bool) -> _Message:
    """Describe the alerts of a run, or the only one of an event that was stored for a program."""
    alerts = data.get("alerts", [data])
    count = data.get("alert_count", 1)
    jobs = {alert["job_id"] for alert in alerts}
    where = f"{alerts[0]['job_id']} in {group}" if len(jobs) == 1 else group
    page = ("groups", group, "monitors")
    run = ("groups", group, "runs", data["run_id"]) if data["run_id"] and not is_over else ()
    if count == 1:
        start = "Over" if is_over else "Alert"
        text = _one_line(f"{start} in {group}: {alerts[0]['message']}")
        return _Message(text, page, f"{start}: {where}", run=run)
    start = f"{count:,} alerts{' over' if is_over else ''}"
    text = f"{start} in {group}:"
    lines = [alert["message"] for alert in alerts]
    return _Message(text, page, f"{start}: {where}", lines, count, run)


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


def _slack(lines: Sequence[str], link: str) -> dict[str, Any]:
    text = "\n".join(lines)
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{escaped} <{link}|Open in the console>", "unfurl_links": False}


def _discord(lines: Sequence[str], link: str) -> dict[str, Any]:
    if len(link) > _MAX_DISCORD_LINK:  # each character of a name can take twelve in a link
        link = f"{link.partition('#')[0]}#/"
    end = f" [Open in the console](<{link}>)"
    content = _shortened(_escape_markdown("\n".join(lines)), _MAX_DISCORD - len(end)) + end
    return {"content": content, "allowed_mentions": {"parse": []}}


def _shortened(escaped: str, length: int) -> str:
    """Return the beginning of an escaped text. It does not end in the middle of an escape."""
    if len(escaped) <= length:
        return escaped
    kept = escaped[: length - 1]
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return f"{kept[:-1] if backslashes % 2 else kept}…"


def _teams(lines: Sequence[str], link: str) -> dict[str, Any]:
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": [
            {"type": "TextBlock", "text": _escape_markdown(line), "wrap": True} for line in lines
        ],
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


_FORMATS: Mapping[str, Callable[[Sequence[str], str], dict[str, Any]]] = {
    "slack": _slack,
    "discord": _discord,
    "teams": _teams,
}
