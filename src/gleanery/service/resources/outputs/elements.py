"""One element of a batch: from the text that a client sends to the text that is stored.

An element is an output, or a bare item that becomes the data of an output. Its identity is a hash
of group, job and key. Other hashes find the output by its URL and detect changes.

The identities of a group begin with the same bytes. Bytes that the outputs of a job share follow.
The hash of a URL begins with bytes that the URLs of a site share. So what a scraper stores together
are neighbours in the indexes, and it changes few of their pages even in a large group. A group
keeps the format of its first hashes, because clients know its identities.

See ``docs/explanation/identity-and-values.md``.
"""

from __future__ import annotations

import json
import re
from binascii import hexlify
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, TypeGuard

import msgspec
from pydantic import ValidationError

from gleanery.service.foundation.field_types import check_name
from gleanery.service.foundation.models import custom_error
from gleanery.service.foundation.values import countries, json_text
from gleanery.service.foundation.values.json_text import hash_parts, length_prefixed
from gleanery.service.resources.fields.shapes import ValueFields
from gleanery.service.resources.files.models import FileIn
from gleanery.service.resources.files.references import FileReference, encode_reference
from gleanery.service.resources.outputs.models import IngestQuery, Output, OutputIn
from gleanery.service.storage.group_lock import IDENTITY_FORMAT

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


# --- identity and hashes ------------------------------------------------------------------------

HASH_BYTES = 16
_PREFIX_BYTES = ((0, 0), (4, 0), (4, 2))
"""Bytes of the group and of the job at the start of an identity, for each identity format.

The other bytes distinguish the outputs of a job.
"""
SITE_PREFIX = 2
"""The first identity format in which the hash of a URL begins with bytes of its site."""
_SITE_BYTES = 2
_OUTPUT_ID = re.compile(f"[0-9a-f]{{{2 * HASH_BYTES}}}")  # bytes.fromhex accepts more
_KEY_HASH_LENGTH = length_prefixed(bytes(64))[:-64]  # the prefix of a key hash in hexadecimal


def sent_hash(raw_hash: bytes, content_hash: bytes) -> bytes:
    """Hashes the bytes of an output together with its content; empty if the bytes are unknown.

    It includes the content, so that it becomes invalid if only the stored content hash changes.
    """
    return sha256(raw_hash + content_hash).digest()[:HASH_BYTES] if raw_hash else b""


def has_same_bytes(raw_hash: bytes, stored_sent_hash: bytes, stored_content_hash: bytes) -> bool:
    """Return True if the stored output was last sent in the bytes with this hash."""
    return bool(raw_hash) and stored_sent_hash == sent_hash(raw_hash, stored_content_hash)


def url_hash(source_url: str, identity_format: int) -> bytes:
    """Hashes the URL of an output, in a group with this identity format."""
    hashed = sha256(length_prefixed(source_url)).digest()
    if identity_format < SITE_PREFIX:
        return hashed[:HASH_BYTES]
    site = "/".join(source_url.split("/", 3)[:3])  # https://shop.example
    return _site_bytes(site) + hashed[: HASH_BYTES - _SITE_BYTES]


@lru_cache(maxsize=4096)
def _site_bytes(site: str) -> bytes:
    return hash_parts(*site.split("/"))[:_SITE_BYTES]


def parse_output_id(text: str) -> bytes:
    """Return the identity; empty, which no output has, if the text is not an ``output_id``."""
    return bytes.fromhex(text) if _OUTPUT_ID.fullmatch(text) else b""


class Rules(NamedTuple):
    """The rules of a group: how its outputs are identified, and the schema of their data.

    The default is a new group.
    """

    key_fields: str | None = None
    schema: str | None = None
    identity_format: int = IDENTITY_FORMAT

    @property
    def use_data(self) -> bool:
        return self.key_fields is not None or self.schema is not None


class IdentityHasher:
    """Computes the identities of the outputs of a group, which are hashes of group, job and key."""

    def __init__(
        self, organization_id: int, group: str, key_fields: str | None, identity_format: int
    ) -> None:
        self._key_fields = None if key_fields is None else _decode_names(key_fields)
        self._group_prefix = length_prefixed(organization_id) + length_prefixed(group)
        group_bytes, self._job_bytes = _PREFIX_BYTES[identity_format]
        self._start = sha256(self._group_prefix).digest()[:group_bytes]
        self._rest_bytes = HASH_BYTES - group_bytes - self._job_bytes
        self._jobs: dict[str, tuple[bytes, bytes]] = {}

    def key_hash(self, output: IdentityFields | Output) -> bytes:
        """Hashes ``key``, else the key fields if ``data`` has all of them, else ``source_url``."""
        if output.key is not None:
            return json_text.canonical_hash(output.key)
        if self._key_fields is not None:
            assert isinstance(output, Output)
            values = [output.data.get(name) for name in self._key_fields]
            if not any(map(_is_null, values)):
                return json_text.canonical_hash(values)
        return json_text.canonical_hash(output.source_url)

    def identity(self, job: str, key_hash: bytes) -> bytes:
        start, hashed = self._jobs.get(job) or self._add_job(job)
        return start + sha256(hashed + hexlify(key_hash)).digest()[: self._rest_bytes]

    def _add_job(self, job: str) -> tuple[bytes, bytes]:
        """Encode what the outputs of a job share: the start of the identity, and hashed bytes."""
        hashed = self._group_prefix + length_prefixed(job)
        start = self._start + sha256(hashed).digest()[: self._job_bytes]
        self._jobs[job] = start, hashed + _KEY_HASH_LENGTH
        return self._jobs[job]


def _is_null(value: Any) -> bool:
    """Return True for null and for an array or object that contains nothing but null.

    Scrapers write null for a value that they did not find, so it identifies nothing.
    """
    if isinstance(value, dict):
        value = list(value.values())
    return value is None or (isinstance(value, list) and value != [] and all(map(_is_null, value)))


@lru_cache(maxsize=256)
def _decode_names(key_fields: str) -> tuple[str, ...]:
    return tuple(json.loads(key_fields))


# --- preparation --------------------------------------------------------------------------------


class UnparsedOutput(NamedTuple):
    """An output of which only the key and the hash of its bytes are known."""

    identity: bytes
    raw_hash: bytes
    key_hash: bytes


class PreparedOutput(NamedTuple):
    """An output with everything that does not depend on the database."""

    identity: bytes
    sent_hash: bytes
    """Recognises a byte-identical repetition of the output."""
    content_hash: bytes
    """Recognises a change that a client can see: half for the value, half for the rest."""
    url_hash: bytes
    country: str | None
    region: str | None
    job: str
    json_before_id: bytes
    json_after_id: bytes
    value_hash: bytes
    """The hash in hexadecimal."""
    files: Sequence[FileReference]
    position: int
    """The position in the request body, for error messages."""
    fields: ValueFields

    def has_same_value(self, content_hash: bytes) -> bool:
        """Return True if this content hash belongs to the same value."""
        return self.content_hash[:HASH_BYTES] == content_hash[:HASH_BYTES]


def prepare_output(
    unparsed: UnparsedOutput, output: Output, url: bytes, position: int, fields: ValueFields
) -> PreparedOutput:
    """Hash and render an output. The id and the files are inserted when its row is written."""
    identity, raw_hash, key_hash = unparsed
    job_id, source_url, data, _, tags, file_inputs = output
    tags, file_inputs = tags or {}, file_inputs or ()
    value_hash = json_text.canonical_hash(data)
    content_hash = value_hash[:HASH_BYTES] + _rest_hash(source_url, tags, file_inputs)
    return PreparedOutput(
        identity,
        sent_hash(raw_hash, content_hash),
        content_hash,
        url,
        _tag_key(tags, "country", countries.country_key),
        _tag_key(tags, "region", countries.region_key),
        job_id,
        b'{"source_url":%b,"data":%b,"id":'
        % (json_text.encode(source_url), json_text.encode(data)),
        b',"output_id":"%b","root_job_id":%b,"key_hash":"%b","tags":%b'
        % (
            hexlify(identity),
            json_text.encode(job_id),
            hexlify(key_hash),
            json_text.encode(tags),
        ),
        hexlify(value_hash),
        [encode_reference(file) for file in file_inputs] if file_inputs else (),
        position,
        fields,
    )


def canonical_output(output: Output) -> bytes:
    """Return the output as text that only depends on its values, for the hash of a request."""
    members = {name: value for name, value in output._asdict().items() if value is not None}
    if output.files is not None:
        members["files"] = [file.model_dump(exclude_none=True) for file in output.files]
    return json_text.canonical(members)


def _rest_hash(source_url: str, tags: dict[str, Any], file_inputs: Sequence[FileIn]) -> bytes:
    """Hashes everything but the value that a client can see change."""
    rest = length_prefixed(source_url) + length_prefixed(json_text.canonical(tags))
    if file_inputs:
        rest += b"".join(map(_canonical_file, file_inputs))
    return sha256(rest).digest()[:HASH_BYTES]


def _canonical_file(file: FileIn) -> bytes:
    return length_prefixed(json_text.canonical(file.model_dump(exclude_none=True)))


def _tag_key(tags: dict[str, Any], name: str, key: Callable[[str], str | None]) -> str | None:
    value = tags.get(name)
    return key(value) if isinstance(value, str) else None
