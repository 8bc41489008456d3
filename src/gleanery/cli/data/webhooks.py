"""``gleanery webhooks``: create, change, test and delete webhooks, and show their deliveries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from gleanery.cli.data.command import (
    AsJson,
    CommandFailed,
    UserError,
    data_command,
    epilog,
    print_json,
    print_json_array,
    print_members,
    print_rows,
    show_date,
    uncertain,
)
from gleanery.cli.data.connection import TokenFile, Url, open_client
from gleanery.cli.data.webhook_deliveries import (
    DELIVERY_COLUMNS,
    delivery_row,
    describe_failure,
    describe_result,
    wait_for_attempt,
)
from gleanery.cli.data.webhook_headers import merge_headers, parse_headers
from gleanery.cli.declaration import Argument, CommandGroup, Option
from gleanery.cli.terminal import printable

if TYPE_CHECKING:
    from gleanery.client import Client, Webhook, WebhookWithSecret

app = CommandGroup()
webhooks_app = CommandGroup(
    help="Create, list, change, test and delete webhooks, and show their deliveries.",
    epilog=epilog(
        (
            "gleanery webhooks create https://receiver.example/hook --event run.finished",
            "gleanery webhooks test WEBHOOK_ID",
        )
    ),
)
app.add_command(webhooks_app, "webhooks")

_COLUMNS = ("Webhook", "Status", "Format", "Events", "Groups", "URL", "Description")
_RESETTABLE = ("groups", "description", "format", "headers")
_STORE = "Store the secret now: it is not shown again. Receivers verify signatures with it."
_NOT_NEEDED = "A chat or a mailbox does not need the secret. It is not shown again."

FormatName = Literal["standard", "slack", "discord", "teams", "email"]
StatusName = Literal["waiting", "delivered", "failed"]

WebhookId = Annotated[
    str, Argument(metavar="WEBHOOK_ID", help="Webhook, as gleanery webhooks list shows.")
]
_EVENT_HELP = "Event that the address gets. Repeat it for more."
_GROUP_HELP = "Only events of this group. Repeat it for more. Default: of all groups."
_FORMAT_HELP = (
    "standard: the event as JSON. email: a message to the addresses of a URL with mailto:. "
    "The others are short messages for a chat."
)
_DESCRIPTION_HELP = "What the webhook is for, for people."
_HEADER_HELP = "Header that each request to the address has. Repeat it for more."
HeaderFile = Annotated[
    str | None,
    Option(
        "--header-file",
        metavar="FILE",
        help="File with headers, one per line, so that no value is in the history of the shell; - "
        "is standard input.",
    ),
]


# --- create and change --------------------------------------------------------------------------


@data_command(
    webhooks_app,
    "create",
    examples=(
        "gleanery webhooks create https://receiver.example/hook --event run.finished",
        "gleanery webhooks create https://chat.example/x --event run.finished --format slack",
        "gleanery webhooks create mailto:ops@example.com --event alert.opened --format email",
        "gleanery webhooks create https://b.example/ --event run.finished --header-file b.txt",
    ),
)
def create(
    target: Annotated[
        str,
        Argument(
            metavar="URL",
            help="Address that gets the events, with https; or mailto: with addresses of e-mail.",
        ),
    ],
    events: Annotated[list[str], Option("--event", metavar="EVENT", help=_EVENT_HELP)],
    groups: Annotated[
        list[str] | None, Option("--group", metavar="GROUP", help=_GROUP_HELP)
    ] = None,
    description: Annotated[
        str | None, Option("--description", metavar="TEXT", help=_DESCRIPTION_HELP)
    ] = None,
    format_: Annotated[FormatName, Option("--format", help=_FORMAT_HELP)] = "standard",
    headers: Annotated[
        list[str] | None, Option("--header", metavar="NAME:VALUE", help=_HEADER_HELP)
    ] = None,
    header_file: HeaderFile = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Let an address get events, and print the secret that verifies their signatures.

    The secret is printed once. Events: outputs.changed, run.finished, review.created,
    alert.opened, alert.closed, delivery.failed and webhook.disabled. The event session.invalid is
    reserved, and not sent yet. The values of headers are never shown. The token needs the scope
    webhooks:write.
    """
    parsed = parse_headers(headers, header_file, token_file)
    if empty := [name for name, value in parsed.items() if not value]:
        raise UserError(f"--header needs a value for {empty[0]}")
    advice = (
        "The webhook may have been created: gleanery webhooks list shows it. Nobody has seen its "
        "secret, so delete it."
    )
    with open_client(url, token_file) as client, uncertain(advice):
        created = client.create_webhook(
            target, events, groups or None, description, format_, parsed or None
        )
    if as_json:
        print_json(created)
        return
    click.echo(printable(f"Webhook: {created.id}"))
    _print_secret(created)
    click.echo(f"Next, test it: gleanery webhooks test {printable(created.id)}", err=True)


def _print_secret(webhook: WebhookWithSecret) -> None:
    click.echo(printable(f"Secret: {webhook.secret}"))
    is_signed = webhook.format == "standard"
    click.echo(_STORE if is_signed else _NOT_NEEDED, err=True)


@data_command(
    webhooks_app,
    "set",
    examples=(
        "gleanery webhooks set WEBHOOK_ID --url https://receiver.example/v2/hook",
        "gleanery webhooks set WEBHOOK_ID --event run.finished --event review.created",
        "gleanery webhooks set WEBHOOK_ID --reset groups",
        "gleanery webhooks set WEBHOOK_ID --header-file - < headers.txt",
    ),
)
def set_(
    webhook_id: WebhookId,
    target: Annotated[
        str | None,
        Option("--url", metavar="URL", help="Address that gets the events, with https."),
    ] = None,
    events: Annotated[
        list[str] | None,
        Option(
            "--event", metavar="EVENT", help=f"{_EVENT_HELP} It replaces all events of the webhook."
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        Option(
            "--group",
            metavar="GROUP",
            help="Only events of this group. Repeat it for more. It replaces all groups of the "
            "webhook.",
        ),
    ] = None,
    description: Annotated[
        str | None, Option("--description", metavar="TEXT", help=_DESCRIPTION_HELP)
    ] = None,
    format_: Annotated[FormatName | None, Option("--format", help=_FORMAT_HELP)] = None,
    headers: Annotated[
        list[str] | None,
        Option(
            "--header",
            metavar="NAME:VALUE",
            help=f"{_HEADER_HELP} Other headers stay. An empty value removes the header.",
        ),
    ] = None,
    header_file: HeaderFile = None,
    reset: Annotated[
        list[str] | None,
        Option(
            "--reset",
            metavar="SETTING",
            help="Setting that gets its default again: groups, description, format or headers. "
            "Repeat it for more.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Change settings of a webhook, and print it. The other settings and the secret stay.

    Events that wait are sent at once, to the new address. If it has another scheme, host or port,
    give the values of the headers again. The token needs the scopes webhooks:read and
    webhooks:write.
    """
    given: dict[str, Any] = {
        "url": target,
        "events": events or None,
        "groups": groups or None,
        "description": description,
        "format": format_,
        "headers": parse_headers(headers, header_file, token_file) or None,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    _check_changes(changes, reset or [])
    with open_client(url, token_file) as client:
        before = client.get_webhook(webhook_id)
        if "headers" in changes:
            changes["headers"] = merge_headers(before.headers, changes["headers"])
        settings = {name: getattr(before, name) for name in given} | changes
        for name in reset or ():
            settings.pop(name, None)
        changed = client.set_webhook(webhook_id, **settings)
    _print_webhook(changed, as_json)


def _check_changes(changes: dict[str, Any], reset: list[str]) -> None:
    """Raise UserError if nothing is to be changed, or the same setting in two ways."""
    if not changes and not reset:
        raise UserError("Give a setting to change, such as --event run.finished: see --help")
    for name in reset:
        if name not in _RESETTABLE:
            raise UserError(f"--reset must be {', '.join(_RESETTABLE[:-1])} or {_RESETTABLE[-1]}")
        if name in changes:
            raise UserError(f"--reset {name} contradicts another option: leave out one of them")


@data_command(
    webhooks_app,
    "rotate",
    examples=(
        "gleanery webhooks rotate WEBHOOK_ID",
        "gleanery webhooks rotate WEBHOOK_ID --json | jq -r .secret",
    ),
)
def rotate(
    webhook_id: WebhookId, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Create a new secret for a webhook, and print it once.

    For 24 hours, deliveries have a signature of each secret. So a receiver can change over without
    a gap. The token needs the scope webhooks:write.
    """
    advice = "The secret may have been rotated: run the command again to see a new one."
    with open_client(url, token_file) as client, uncertain(advice):
        webhook = client.rotate_webhook_secret(webhook_id)
    if as_json:
        print_json(webhook)
        return
    _print_secret(webhook)
    end = show_date(webhook.old_secret_expires)
    click.echo(f"The old secret signs as well until {end}.", err=True)


@data_command(webhooks_app, "enable", examples=("gleanery webhooks enable WEBHOOK_ID",))
def enable(
    webhook_id: WebhookId, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Enable a webhook that the service has disabled. Events that waited are sent.

    Events that happened while it was disabled are not sent, but a group that has changed sends
    outputs.changed. The token needs the scope webhooks:write.
    """
    with open_client(url, token_file) as client:
        webhook = client.enable_webhook(webhook_id)
    if as_json:
        print_json(webhook)
    else:
        click.echo("The webhook is enabled.")


@data_command(
    webhooks_app,
    "delete",
    examples=(
        "gleanery webhooks delete WEBHOOK_ID",
        "gleanery webhooks delete WEBHOOK_ID --yes",
    ),
)
def delete(
    webhook_id: WebhookId,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Delete a webhook with its secret and its deliveries. Events that wait are not sent.

    The token needs the scope webhooks:write, and without --yes also webhooks:read.
    """
    with open_client(url, token_file) as client:
        if not yes:
            _confirm(client, webhook_id)
        client.delete_webhook(webhook_id)
    click.echo("Deleted the webhook.")


def _confirm(client: Client, webhook_id: str) -> None:
    if not sys.stdin.isatty():
        raise UserError("There is no terminal to ask for confirmation: give --yes to delete")
    webhook = client.get_webhook(webhook_id)
    if not click.confirm(printable(f"Delete the webhook to {webhook.url}?"), err=True):
        raise CommandFailed("nothing is deleted")


# --- list and show ------------------------------------------------------------------------------


@data_command(
    webhooks_app,
    "list",
    examples=(
        "gleanery webhooks list",
        "gleanery webhooks list --json | jq -r '.[] | select(.failing_since) | .url'",
    ),
)
def list_webhooks(as_json: AsJson = False, url: Url = None, token_file: TokenFile = None) -> None:
    """List the webhooks, oldest first, without their secrets.

    The token needs the scope webhooks:read.
    """
    with open_client(url, token_file) as client:
        found = client.webhooks()
    if as_json:
        print_json(found)
        return
    empty = "There is no webhook: gleanery webhooks create adds one."
    print_rows(_COLUMNS, map(_row, found), empty, unbroken=("Webhook",))


def _row(webhook: Webhook) -> tuple[str, ...]:
    return (
        webhook.id,
        "failing" if webhook.failing_since and webhook.status == "enabled" else webhook.status,
        webhook.format,
        ", ".join(webhook.events),
        "all" if webhook.groups is None else ", ".join(webhook.groups),
        webhook.url,
        webhook.description,
    )


@data_command(
    webhooks_app,
    "show",
    examples=("gleanery webhooks show WEBHOOK_ID", "gleanery webhooks show WEBHOOK_ID --json"),
)
def show(
    webhook_id: WebhookId, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Show one webhook, without its secret. The token needs the scope webhooks:read."""
    with open_client(url, token_file) as client:
        webhook = client.get_webhook(webhook_id)
    _print_webhook(webhook, as_json)


def _print_webhook(webhook: Webhook, as_json: bool) -> None:
    if as_json:
        print_json(webhook)
        return
    reason = f": {webhook.disabled_reason}" if webhook.disabled_reason else ""
    members = {
        "Webhook": webhook.id,
        "URL": webhook.url,
        "Events": ", ".join(webhook.events),
        "Groups": "all" if webhook.groups is None else ", ".join(webhook.groups),
        "Format": webhook.format,
        "Headers": ", ".join(webhook.headers),
        "Description": webhook.description,
        "Status": f"{webhook.status}{reason}",
        "Disabled": show_date(webhook.disabled_date),
        "Failing since": show_date(webhook.failing_since),
        "Old secret until": show_date(webhook.old_secret_expires),
        "Created": show_date(webhook.create_date),
        "Changed": show_date(webhook.update_date),
    }
    print_members(members)


# --- deliveries ---------------------------------------------------------------------------------


@data_command(
    webhooks_app,
    "deliveries",
    examples=(
        "gleanery webhooks deliveries WEBHOOK_ID",
        "gleanery webhooks deliveries WEBHOOK_ID --status failed --event run.finished",
        "gleanery webhooks deliveries WEBHOOK_ID --limit 1 --json | jq '.[0].attempts'",
    ),
)
def deliveries(
    webhook_id: WebhookId,
    status: Annotated[
        StatusName | None, Option("--status", help="Only deliveries with this status.")
    ] = None,
    event: Annotated[
        str | None,
        Option("--event", metavar="EVENT", help="Only deliveries of this event."),
    ] = None,
    limit: Annotated[
        int, Option("--limit", "-n", metavar="N", min=1, help="At most N deliveries.")
    ] = 20,
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """List the events for a webhook, newest first, with the result of the last attempt.

    With --json, each delivery has all its attempts, and the start of the responses. The token needs
    the scope webhooks:read.
    """
    with open_client(url, token_file) as client:
        found = client.deliveries(webhook_id, status=status, event=event, limit=limit)
        if as_json:
            print_json_array(found.raw())
            return
        empty = "There is no such delivery: gleanery webhooks deliveries WEBHOOK_ID lists all."
        if status is None and event is None:
            empty = "There is no delivery: gleanery webhooks test WEBHOOK_ID sends an event."
        print_rows(DELIVERY_COLUMNS, map(delivery_row, found), empty, unbroken=("Delivery",))


@data_command(
    webhooks_app,
    "redeliver",
    examples=("gleanery webhooks redeliver WEBHOOK_ID DELIVERY_ID",),
)
def redeliver(
    webhook_id: WebhookId,
    delivery_id: Annotated[
        str,
        Argument(
            metavar="DELIVERY_ID",
            help="Delivery, as gleanery webhooks deliveries WEBHOOK_ID shows.",
        ),
    ],
    as_json: AsJson = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Send an event again, whether it was delivered or not, with the same id.

    The token needs the scope webhooks:write.
    """
    with open_client(url, token_file) as client:
        delivery = client.redeliver(webhook_id, delivery_id)
    if as_json:
        print_json(delivery)
    else:
        click.echo(f"The event {delivery.event} is sent again.")


# --- test ---------------------------------------------------------------------------------------


@data_command(
    webhooks_app,
    "test",
    examples=(
        "gleanery webhooks test WEBHOOK_ID",
        "gleanery webhooks test WEBHOOK_ID --json | jq '.attempts[-1]'",
    ),
)
def send_test(
    webhook_id: WebhookId, as_json: AsJson = False, url: Url = None, token_file: TokenFile = None
) -> None:
    """Send the event test, and print whether the receiver accepted it.

    The command waits for the first attempt, for at most 20 seconds. If the receiver did not accept
    the event, the exit status is 1. The token needs the scopes webhooks:read and webhooks:write.
    """
    with open_client(url, token_file) as client:
        client.get_webhook(webhook_id)  # before an event is sent whose result cannot be read
        sent = client.test_webhook(webhook_id)
        delivery = wait_for_attempt(client, webhook_id, sent)
    if as_json:
        print_json(delivery)
    if delivery.status != "delivered":
        raise CommandFailed(describe_failure(delivery, webhook_id))
    if not as_json:
        click.echo(printable(f"The receiver accepted the event: {describe_result(delivery)}."))
