"""Items as outputs: the JSON text of each, its key, and how a batch of them is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from itemadapter import ItemAdapter
from scrapy.utils.serialize import ScrapyJSONEncoder

from gleanery.client import Client, Forbidden, NotFound, PushFailed
from gleanery.client.queue.sender import PermanentFailure, Pushed, push_lines
from gleanery.client.runs import concerns_run
from gleanery.integrations.scrapy.runs import CrawlRun
from gleanery.integrations.scrapy.settings import GleanerySettings

_FORBIDDEN = (
    "To compare GLEANERY_KEY_FIELDS with the key fields of the group, the token needs the scope "
    "outputs:read. Or remove GLEANERY_KEY_FIELDS, if the group has the right key fields"
)


class InvalidItem(ValueError):
    """The item cannot be stored; the message says why."""


class ItemEncoder:
    """Makes an output of an item, as one line of JSON."""

    def __init__(self, settings: GleanerySettings) -> None:
        self._job = settings.job
        self._url_field = settings.url_field
        self._key_fields = settings.key_fields
        self._file_fields = settings.file_fields
        self._to_json = _Encoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def encode(self, item: Any) -> bytes:
        """Return the output. Raise InvalidItem if the item has no URL, no key or no JSON text."""
        data = _to_dict(item)
        output: dict[str, Any] = {"job_id": self._job, "source_url": self._url(data), "data": data}
        if self._key_fields:
            self._check_key(data)
            if len(self._key_fields) == 1:
                output["key"] = _to_key(self._key_fields[0], data[self._key_fields[0]])
        if self._file_fields and (files := list(self._files(data))):
            output["files"] = files
        return self._encode(output)

    def _encode(self, output: dict[str, Any]) -> bytes:
        try:
            return self._to_json(output).encode()
        except (ValueError, TypeError, RecursionError) as error:
            reason = _explain_json(error)
            for name, value in output["data"].items():
                if not self._has_json(value):
                    raise InvalidItem(f"The field {name!r}: {reason}") from None
            raise InvalidItem(reason) from None

    def _has_json(self, value: Any) -> bool:
        try:
            self._to_json(value).encode()
        except (ValueError, TypeError, RecursionError):
            return False
        return True

    def _url(self, data: dict[str, Any]) -> str:
        url = data.get(self._url_field)
        if not isinstance(url, str) or not url:
            raise InvalidItem(
                f"{self._url_field} is missing or no text: it must hold the URL of the item. "
                "GLEANERY_URL_FIELD names another field"
            )
        return url

    def _check_key(self, data: dict[str, Any]) -> None:
        """Require all key fields: with a missing one, the service would use the URL instead."""
        for name in self._key_fields:
            if data.get(name) is None:
                raise InvalidItem(f"{name} is missing, which GLEANERY_KEY_FIELDS names")

    def _files(self, data: dict[str, Any]) -> Iterator[dict[str, str]]:
        for name in self._file_fields:
            value = data.get(name)
            if isinstance(value, str):
                yield {"field": name, "id": value}
            elif isinstance(value, list | tuple):
                for index, entry in enumerate(value):
                    id_ = entry.get("id") if isinstance(entry, dict) else entry
                    if id_ is not None:
                        yield {"field": f"{name}[{index}]", "id": id_}


class _Encoder(ScrapyJSONEncoder):
    """Scrapy's encoder, with sets in one order, so that the same set is always the same value."""

    def default(self, o: Any) -> Any:
        if isinstance(o, set | frozenset):
            try:
                return sorted(o)
            except TypeError:  # values without an order
                return sorted(o, key=repr)
        return super().default(o)


def _explain_json(error: Exception) -> str:
    """Return the reason why a value has no JSON text."""
    match error:
        case UnicodeEncodeError():
            return "a lone surrogate, which UTF-8 cannot encode"
        case RecursionError():
            return "nested too deep"
        case ValueError():
            return "NaN, Infinity, or a reference to itself: JSON has none of them"
    return str(error)  # names the type that has no JSON form


def _to_dict(item: Any) -> dict[str, Any]:
    """Return the fields of an item, each as its serializer returns it."""
    if isinstance(item, dict):  # has no serializers, and is the fastest
        return item
    try:
        adapter = ItemAdapter(item)
    except TypeError:
        raise InvalidItem(f"{type(item).__name__} is no type of an item") from None
    return {name: _serialize(adapter, name, value) for name, value in adapter.items()}


def _serialize(adapter: ItemAdapter, name: str, value: Any) -> Any:
    """Return a value as Scrapy's exporters do: as the serializer of its field returns it."""
    serializer = adapter.get_field_meta(name).get("serializer")
    return value if serializer is None else serializer(value)


def _to_key(name: str, value: Any) -> str:
    """Return a key as the service does for ``key_field``: an integer becomes its digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise InvalidItem(f"{name} must be an integer or a text, because it is the key")
    return value


# --- storing ------------------------------------------------------------------------------------


class KeyConflict(PermanentFailure):
    """The group has other key fields than the settings name, or they cannot be compared."""


class OutputPusher:
    """Stores outputs in the group of the settings, as those of a run."""

    def __init__(self, settings: GleanerySettings, run: CrawlRun) -> None:
        self._settings = settings
        self._run = run
        self._uses_group_key: bool | None = None  # unknown until the service has said it

    def begin(self, client: Client) -> None:
        """Begin the run. It creates a new group, so the key fields of the group come first."""
        self._check_keys(client)
        self._run.begin(client)

    def store(self, client: Client, lines: Sequence[bytes], *, is_earlier: bool = False) -> Pushed:
        """Store lines. Raise KeyConflict if their keys would be other ones than the group has.

        Lines of an earlier crawl do not belong to the run of this one.
        """
        if self._check_keys(client) and len(self._settings.key_fields) == 1:
            lines = [_without_key(line) for line in lines]
        if is_earlier:
            return push_lines(client, self._settings.require_group(), lines)
        pushed = self._store_in_run(client, lines)
        report = pushed.report
        stored = report.created + report.updated + report.unchanged
        self._run.note_stored(stored, len(pushed.rejected))
        return pushed

    def _store_in_run(self, client: Client, lines: Sequence[bytes]) -> Pushed:
        group, run_id = self._settings.require_group(), self._run.run_id
        try:
            return push_lines(client, group, lines, run_id)
        except PushFailed as error:
            if run_id is None or not concerns_run(error.cause):
                raise
            self._run.note_end(error.cause)
        return push_lines(client, group, lines)

    def _check_keys(self, client: Client) -> bool:
        if self._uses_group_key is None:
            self._uses_group_key = _uses_group_key(client, self._settings)
        return self._uses_group_key


def _uses_group_key(client: Client, settings: GleanerySettings) -> bool:
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
    raise KeyConflict(_explain_conflict(group, found, names))


def _explain_conflict(group: str, found: list[str] | None, names: list[str]) -> str:
    if found is None:
        problem = f"The group {group} has no key fields"
    else:
        problem = f"The key fields of the group {group} are {', '.join(found)}"
    return (
        f"{problem}, and GLEANERY_KEY_FIELDS names {', '.join(names)}: use the same ones, because "
        "another key makes another output of each item"
    )


def _without_key(line: bytes) -> bytes:
    """Return an output without its key. A damaged line remains: the service says what is wrong."""
    try:
        output = json.loads(line)
        output.pop("key", None)
    except (ValueError, AttributeError):
        return line
    return json.dumps(output, ensure_ascii=False, separators=(",", ":")).encode()
