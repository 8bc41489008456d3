"""One element of a batch: an output, or a bare item that becomes the data of an output."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeGuard

import msgspec
from pydantic import ValidationError

from gleanery.service.foundation.field_types import check_name
from gleanery.service.foundation.models import custom_error
from gleanery.service.foundation.values.json_text import length_prefixed
from gleanery.service.resources.outputs.models import IngestQuery, Output, OutputIn

_KNOWN_MEMBERS = frozenset(Output._fields)
_EXPECTED_URL = "expected a string that is not empty: url_field names this member as the URL"
_EXPECTED_KEY = (
    "expected an integer, or a string that is not empty: key_field names this member as the key"
)


_NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class IdentityFields(msgspec.Struct, gc=False):
    """The members that identify an output, if the group's rules do not use its data."""

    job_id: str
    source_url: _NonEmpty
    key: _NonEmpty | None = None


decode_identity = msgspec.json.Decoder(IdentityFields).decode
_split_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ItemMapping(NamedTuple):
    """The job of bare items, and the members that are their URL and their key."""

    job_id: str
    url_field: str
    key_field: str | None

    @classmethod
    def from_query(cls, query: IngestQuery) -> ItemMapping | None:
        """Return the mapping; None if the elements are outputs."""
        if query.job_id is None or query.url_field is None:
            return None
        return cls(query.job_id, query.url_field, query.key_field)

    @property
    def hash_prefix(self) -> bytes:
        """Distinguishes the same bytes under another mapping, or as an output.

        No JSON text begins like this.
        """
        return b"\0" + b"".join(map(length_prefixed, (*self[:2], self.key_field or "")))

    def identify(self, text: bytes | msgspec.Raw) -> IdentityFields:
        """Decode only the members that identify the output."""
        members = _split_object(text)
        item = {
            name: msgspec.json.decode(members[name])
            for name in (self.url_field, self.key_field)
            if name in members
        }
        return IdentityFields(self.job_id, self._url(item), self._key(item))

    def to_output(self, item: Any) -> Output:
        """Return the output with this data. Raise ValidationError."""
        if not isinstance(item, dict):
            raise _invalid("dict_type", "expected an object")
        return Output(self.job_id, self._url(item), item, self._key(item))

    def _url(self, item: dict[str, Any]) -> str:
        url = _member(item, self.url_field)
        if not _is_text(url) or not url:
            raise _invalid("item_url", _EXPECTED_URL, self.url_field)
        return url

    def _key(self, item: dict[str, Any]) -> str | None:
        """Return the key. An integer has the same key as the string of its digits.

        A missing key is an error: the URL in its place would silently be another identity.
        """
        if self.key_field is None:
            return None
        key = _member(item, self.key_field)
        if isinstance(key, int) and not isinstance(key, bool):
            return str(key)
        if not _is_text(key) or not key:
            raise _invalid("item_key", _EXPECTED_KEY, self.key_field)
        return key


def _member(item: dict[str, Any], name: str) -> Any:
    if name not in item:
        raise _invalid("missing", "is missing", name)
    return item[name]


def _invalid(type_: str, msg: str, *loc: str) -> ValidationError:
    return ValidationError.from_exception_data("item", [custom_error(type_, msg, loc)])


def to_output(record: Any) -> Output:
    """Validate an output; the model, which takes twice as long, only sees uncommon ones."""
    if isinstance(record, dict):
        job_id, source_url, data, key, tags, files = map(record.get, Output._fields)
        if (
            isinstance(job_id, str)
            and _is_name(job_id)
            and _is_text(source_url)
            and source_url
            and isinstance(data, dict)
            and (key is None or (_is_text(key) and key))
            and (tags is None or isinstance(tags, dict))
            and files is None
            and record.keys() <= _KNOWN_MEMBERS
        ):
            return Output(job_id, source_url, data, key, tags)
    return OutputIn.model_validate(record).checked()


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and "\0" not in value


def _is_name(text: str) -> bool:
    try:
        return bool(_check_name(text))
    except ValueError:
        return False


_check_name = lru_cache(maxsize=1024)(check_name)  # an invalid name raises, so it is not cached
