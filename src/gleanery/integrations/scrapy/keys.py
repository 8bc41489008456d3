"""Keys of outputs: how ``GLEANERY_KEY_FIELDS`` and the key fields of the group agree."""

from __future__ import annotations

import json

from gleanery.client import Client, ClientError, Forbidden, NotFound
from gleanery.integrations.scrapy.settings import GleanerySettings

_FORBIDDEN = (
    "To compare GLEANERY_KEY_FIELDS with the key fields of the group, the token needs the scope "
    "outputs:read. Or remove GLEANERY_KEY_FIELDS, if the group has the right key fields"
)


class KeyConflict(ClientError):
    """The group has other key fields than the settings name, or they cannot be compared."""


def uses_group_key(client: Client, settings: GleanerySettings) -> bool:
    """Return True if the service makes the keys of outputs, of the group's key fields.

    One key field is sent as the key of each output, if the group does not have this key field
    itself. Several key fields are those of the group: a new group gets them.
    """
    if not settings.key_fields:
        return True
    group, names = settings.require_group(), list(settings.key_fields)
    is_single = len(names) == 1
    try:
        found = client.group(group).key_fields
    except NotFound:
        if not is_single:
            client.set_group(group, key_fields=names)
        return not is_single
    except Forbidden as error:  # the token can only write
        raise KeyConflict(_FORBIDDEN) from error
    if found == names:
        return True
    if is_single and found is None:
        return False
    raise KeyConflict(_explain(group, found, names))


def _explain(group: str, found: list[str] | None, names: list[str]) -> str:
    if found is None:
        problem = f"The group {group} has no key fields"
    else:
        problem = f"The key fields of the group {group} are {', '.join(found)}"
    return (
        f"{problem}, and GLEANERY_KEY_FIELDS names {', '.join(names)}: use the same ones, because "
        "another key makes another output of each item"
    )


def without_key(line: bytes) -> bytes:
    """Return an output without its key. A damaged line remains: the service says what is wrong."""
    try:
        output = json.loads(line)
        output.pop("key", None)
    except (ValueError, AttributeError):
        return line
    return json.dumps(output, ensure_ascii=False, separators=(",", ":")).encode()
