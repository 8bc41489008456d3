"""Messages for a chat: their shape is what Slack, Discord and Teams accept, whatever names say."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from gleanery.service.resources.webhooks.messages import Mail, convert, write_mail

ADDRESS = "https://data.example.com/base"
FORMATS = ("slack", "discord", "teams")

# https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
SLACK = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 40_000},
        "unfurl_links": {"type": "boolean"},
        "unfurl_media": {"type": "boolean"},
        "mrkdwn": {"type": "boolean"},
    },
}
# https://docs.discord.com/developers/resources/webhook#execute-webhook
DISCORD = {
    "type": "object",
    "required": ["content", "allowed_mentions"],
    "additionalProperties": False,
    "properties": {
        "content": {"type": "string", "minLength": 1, "maxLength": 2000},
        "flags": {"type": "integer"},
        "allowed_mentions": {
            "type": "object",
            "required": ["parse"],
            "additionalProperties": False,
            "properties": {"parse": {"type": "array", "maxItems": 0}},
        },
    },
}
# https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
# and http://adaptivecards.io/schemas/adaptive-card.json, version 1.4: what a message may use of it.
_TEXT_BLOCK = {
    "type": "object",
    "required": ["type", "text"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "TextBlock"},
        "text": {"type": "string", "minLength": 1},
        "wrap": {"type": "boolean"},
        "size": {"enum": ["default", "small", "medium", "large", "extraLarge"]},
        "weight": {"enum": ["default", "lighter", "bolder"]},
    },
}
_OPEN_URL = {
    "type": "object",
    "required": ["type", "url"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "Action.OpenUrl"},
        "title": {"type": "string"},
        "url": {"type": "string", "pattern": "^https?://[^ ]+$"},
    },
}
_CARD = {
    "type": "object",
    "required": ["type", "version", "body"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "AdaptiveCard"},
        "$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"},
        "version": {"const": "1.4"},
        "body": {"type": "array", "minItems": 1, "items": _TEXT_BLOCK},
        "actions": {"type": "array", "items": _OPEN_URL},
    },
}
TEAMS = {
    "type": "object",
    "required": ["type", "attachments"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "message"},
        "attachments": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["contentType", "content"],
                "additionalProperties": False,
                "properties": {
                    "contentType": {"const": "application/vnd.microsoft.card.adaptive"},
                    "contentUrl": {"type": ["string", "null"]},
                    "content": _CARD,
                },
            },
        },
    },
}
SCHEMAS = {"slack": SLACK, "discord": DISCORD, "teams": TEAMS}

COUNTS = {"created": 1200, "updated": 0, "unchanged": 3}
COUNTS |= {"rejected": 0, "missing": 2, "removed": 0}


def events(name: str, text: str) -> dict[str, dict[str, Any]]:
    """The data of each type of event, with this name and this text in it."""
    run: dict[str, Any] = {"group_id": name, "job_id": name, "run_id": "0" * 32}
    run |= {"status": "complete"}
    run |= {"message": text, "counts": COUNTS, "removal": "held", "removable": 2}
    review = {"group_id": name, "job_id": name, "status": "approved", "comment": text}
    webhook = {"webhook_id": "1" * 32, "description": text}
    alert = {"job_id": name, "kind": "few_outputs", "message": text}
    alerts: dict[str, Any] = {"group_id": name, "job_id": name, "run_id": "2" * 32}
    alerts |= {"alerts": [alert] * 20, "alert_count": 30}
    return {
        "outputs.changed": {"group_id": name, "cursor": 1},
        "run.finished": run,
        "review.created": review,
        "alert.opened": alerts,
        "alert.closed": alerts | {"alerts": [alert], "alert_count": 1, "run_id": None},
        "delivery.failed": webhook | {"event": "test", "delivery_id": "msg_2", "error": text},
        "webhook.disabled": webhook | {"reason": text},
        "test": webhook,
        "session.invalid": {"group_id": name},
    }


def message(format_: str, type_: str, data: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"type": type_, "timestamp": "2026-01-01T00:00:00Z", "data": data})
    content = convert(format_, body, ADDRESS)
    assert len(content) < 20_000
    made: dict[str, Any] = json.loads(content)
    return made


def text_of(format_: str, made: dict[str, Any]) -> str:
    """What people read, without the link."""
    if format_ == "teams":
        return "\n".join(one["text"] for one in made["attachments"][0]["content"]["body"])
    text = made["text" if format_ == "slack" else "content"]
    return re.sub(r" (<[^<]*\|Open in the console>|\[Open in the console\]\(<[^<]*>\))$", "", text)


def link_of(format_: str, made: dict[str, Any]) -> str:
    if format_ == "teams":
        [action] = made["attachments"][0]["content"]["actions"]
        return str(action["url"])
    pattern = r"<([^<>|]*)\|Open in the console>$"
    if format_ == "discord":
        pattern = r"\[Open in the console\]\(<([^<>]*)>\)$"
    found = re.search(pattern, made["text" if format_ == "slack" else "content"])
    assert found is not None, made
    return found[1]


HOSTILE = [
    "<!channel> <!here> <@U123> <#C123|x> <https://evil.example|your bank>",
    "@everyone @here <@123> <@&456> <#789> <:a:1> [click](https://evil.example) ||x|| # H",
    "<at>Everyone</at> {{DATE(2026-01-01, SHORT)}} ${data} [x](javascript:alert(1)) ![i](http://e)",
    "> quote\n# heading\n- list\n1. one\n```code``` *bold* _it_ ~~s~~ `c` -# small\n>>> all",
    "&lt;!channel&gt; &amp; \\ \\* \\< a\\",
    "\u202e\u200b\ufeff\x00\x1b[31m\r\n\t",
    "*" * 2000,
    "\\" * 1499 + "*",
    "<" * 2000,
    "\U0001f600" * 2000,
    "a" * 1499 + "<@1>",
]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("type_", events("g", "t"))
def test_messages_have_the_published_shape(format_: str, type_: str) -> None:
    made = message(format_, type_, events("shop-prices", "all pages")[type_])
    jsonschema_rs.validate(SCHEMAS[format_], made)
    assert len(text_of(format_, made)) > 10
    assert link_of(format_, made).startswith(f"{ADDRESS}/console#/")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_names_and_texts_have_no_meaning_in_a_message(format_: str, hostile: str) -> None:
    for type_, data in events(hostile[:200], hostile).items():
        made = message(format_, type_, data)
        jsonschema_rs.validate(SCHEMAS[format_], made)
        link = link_of(format_, made)  # it is whole, however long the text is
        assert re.fullmatch(re.escape(f"{ADDRESS}/console#/") + r"[A-Za-z0-9%/_.~-]*", link)
        text = text_of(format_, made)
        if format_ == "slack":
            assert not re.search("[<>]|&(?!(amp|lt|gt);)", text)
        else:
            assert made.get("allowed_mentions", {"parse": []}) == {"parse": []}
            bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)  # without escaped characters
            assert not re.search(r"[\\`*_{}\[\]()<>#|~@]", bare)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_is_described_in_one_sentence(format_: str) -> None:
    data = events("shop", "all pages")["run.finished"]
    text = text_of(format_, message(format_, "run.finished", data)).replace("\\", "")
    assert text == (
        "A run of shop in shop has ended as complete: 1,200 created, 0 updated, 3 unchanged, "
        "2 missing. The removal of 2 outputs waits for a decision. all pages"
    )
    assert link_of(format_, message(format_, "run.finished", data)).endswith(
        f"#/groups/shop/runs/{'0' * 32}"
    )


def test_the_standard_format_is_the_event_itself() -> None:
    assert convert("standard", '{"type":"é"}', ADDRESS) == '{"type":"é"}'.encode()


# --- alerts -------------------------------------------------------------------------------------

LINK = f"{ADDRESS}/console#/groups/shop/monitors"


def alert_data(*sentences: str, count: int = 0, jobs: tuple[str, ...] = ("s4",)) -> dict[str, Any]:
    """The data of an event about these alerts, of jobs in turn."""
    alerts = [
        {"job_id": jobs[number % len(jobs)], "kind": "few_outputs", "message": sentence}
        for number, sentence in enumerate(sentences)
    ]
    data: dict[str, Any] = {"group_id": "shop", "job_id": jobs[0], "run_id": "3" * 32}
    return data | {"alerts": alerts, "alert_count": count or len(alerts)}


FEW = "s4 stored 100 outputs; 200 is usual."
FILL = "s4: price is filled in 60 % of the outputs; 100 % is usual."
SENTENCES = [f"s{number} is overdue: last run 3 days ago, daily before." for number in range(20)]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("type_", "data", "text"),
    [
        ("alert.opened", alert_data(FEW), f"Alert in shop: {FEW}"),
        ("alert.closed", alert_data(FEW), f"Over in shop: {FEW}"),
        ("alert.opened", alert_data(FEW, FILL), f"2 alerts in shop:\n• {FEW}\n• {FILL}"),
        ("alert.closed", alert_data(FEW, FILL), f"2 alerts over in shop:\n• {FEW}\n• {FILL}"),
        (
            "alert.opened",
            alert_data(*SENTENCES, count=1234),
            "1,234 alerts in shop:\n"
            + "\n".join(f"• {one}" for one in SENTENCES[:5])
            + "\nand 1,229 more.",
        ),
    ],
)
def test_alerts_are_one_message(format_: str, type_: str, data: dict[str, Any], text: str) -> None:
    made = message(format_, type_, data)
    jsonschema_rs.validate(SCHEMAS[format_], made)
    assert re.sub(r"\\([!-~])", r"\1", text_of(format_, made)) == text
    assert link_of(format_, made) == LINK


@pytest.mark.parametrize("format_", FORMATS)
def test_a_long_sentence_hides_no_other(format_: str) -> None:
    data = alert_data("a" * 3000, FILL, "b\n• c", "d", "e", "f")
    text = text_of(format_, message(format_, "alert.opened", data)).replace("\\", "")
    first, long, second, third, *_, last = text.split("\n")
    assert (first, second, third) == ("6 alerts in shop:", f"• {FILL}", "• b • c")
    assert long == f"• {'a' * 240}…"
    assert last == "and 1 more."


def test_an_event_for_programs_can_become_a_message() -> None:
    """The format of a webhook can change while an event waits."""
    alert = {"group_id": "shop", "job_id": "s4", "run_id": None, "message": FEW}
    text = text_of("slack", message("slack", "alert.opened", alert))
    assert text == f"Alert in shop: {FEW}"


# --- e-mail -------------------------------------------------------------------------------------


def mail(type_: str, data: dict[str, Any]) -> Mail:
    body = json.dumps({"type": type_, "timestamp": "2026-01-01T00:00:00Z", "data": data})
    return write_mail(body, ADDRESS, "9" * 32)


def test_the_alerts_of_a_run_are_one_email() -> None:
    made = mail("alert.opened", alert_data(FEW, FILL))
    assert made == (
        "alert.opened",
        "[Gleanery] 2 alerts: s4 in shop",
        f"2 alerts in shop:\n\n• {FEW}\n• {FILL}\n\nConsole: {LINK}\n"
        f"Run: {ADDRESS}/console#/groups/shop/runs/{'3' * 32}\n\n"
        "-- \nEvent alert.opened of 2026-01-01T00:00:00Z\n"
        f"This webhook sends the e-mail: {ADDRESS}/console#/webhooks/{'9' * 32}\n",
    )


@pytest.mark.parametrize(
    ("type_", "data", "subject"),
    [
        ("alert.opened", alert_data(FEW), "Alert: s4 in shop"),
        ("alert.closed", alert_data(FEW), "Over: s4 in shop"),
        ("alert.closed", alert_data(FEW, FILL), "2 alerts over: s4 in shop"),
        ("alert.opened", alert_data(FEW, FILL, jobs=("s4", "s5")), "2 alerts: shop"),
        ("outputs.changed", events("shop", "x")["outputs.changed"], None),
        ("run.finished", events("shop", "x")["run.finished"], "Run complete: shop in shop"),
        ("review.created", events("shop", "x")["review.created"], "Review approved: shop in shop"),
        ("delivery.failed", events("shop", "x")["delivery.failed"], "Not delivered: test"),
        ("webhook.disabled", events("shop", "x")["webhook.disabled"], "A webhook was disabled: x"),
    ],
)
def test_subjects_are_short(type_: str, data: dict[str, Any], subject: str | None) -> None:
    made = mail(type_, data)
    assert made.subject == f"[Gleanery] {subject or 'The outputs of shop have changed'}"
    assert made.text.endswith(f"/console#/webhooks/{'9' * 32}\n")


def test_an_email_has_up_to_20_alerts() -> None:
    text = mail("alert.opened", alert_data(*SENTENCES, count=50)).text
    assert text.count("•") == 20
    assert "\nand 30 more.\n" in text


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_an_email_has_no_characters_that_nobody_can_read(hostile: str) -> None:
    for type_, data in events(hostile[:200], hostile).items():
        made = mail(type_, data)
        assert made.subject.startswith("[Gleanery] ")
        assert len(made.subject) <= 170
        unreadable = "[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\u202e\ufeff]"
        assert not re.search(unreadable, made.subject)
        assert not re.search(unreadable, made.text.replace("\n", ""))
        assert max(map(len, made.text.splitlines())) < 3000
