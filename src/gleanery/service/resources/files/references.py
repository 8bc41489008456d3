"""References from outputs to files: their counts, and the files in the stored text of an output.

A stored text contains no links, because a link depends on the service's address and expires. It
contains markers instead: bytes that no JSON text contains. A ``blob_url`` is BLOB_URL_MARKER, the
file's id and SIGNATURE_MARKER; a ``file_url`` is FILE_URL_MARKER and the file's id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.foundation.values.json_text import hash_parts
from gleanery.service.resources.files.models import FileIn, FileOut
from gleanery.service.resources.files.records import COLUMNS, ID_BYTES, File, url_etag_hash
from gleanery.service.storage.group_lock import LockedGroup

SIGNATURE_MARKER, BLOB_URL_MARKER, FILE_URL_MARKER = b"\x01", b"\x02", b"\x03"
ID_HEX_DIGITS = 2 * ID_BYTES

_CHANGE_REFERENCE_COUNT = """
UPDATE files SET reference_count = reference_count + $3, used_at = $4
WHERE organization_id = $1 AND id = $2
RETURNING id
"""
# A LEFT JOIN, so that PostgreSQL can run it for many files at once.
_SELECT = f"""
SELECT {", ".join(f"files.{column}" for column in COLUMNS.split(", "))}, blobs.key
FROM files LEFT JOIN blobs
    ON blobs.organization_id = files.organization_id AND blobs.checksum = files.checksum
WHERE files.organization_id = $1 AND files.id = $2
"""
_BLOB_KEY_AND_URL = re.compile(
    rb'"blob_key":"([^"]*)","blob_url":"%b[0-9a-f]{32}%b"' % (BLOB_URL_MARKER, SIGNATURE_MARKER)
)
_RESERVED_METADATA = ("size", "filename")


async def change_reference_counts(
    locked: LockedGroup, changes: Counter[bytes]
) -> dict[bytes, File]:
    """Add to the reference counts of files; return the files that exist, by id."""
    changed = await locked.transaction.fetch_many(
        _CHANGE_REFERENCE_COUNT,
        [(locked.organization_id, id_, changes[id_], locked.now) for id_ in sorted(changes)],
    )
    rows = await locked.transaction.fetch_many(
        _SELECT, [(locked.organization_id, id_) for [id_] in changed]
    )
    return {row[0]: File(*row) for row in rows}


def split_ids(file_ids: bytes) -> list[bytes]:
    """Split the concatenated ids of an output's files."""
    return [file_ids[n : n + ID_BYTES] for n in range(0, len(file_ids), ID_BYTES)]


def split_at_blob_urls(text: bytes) -> tuple[list[str], list[bytes]]:
    """Return the blob keys in the text of outputs, and the pieces of text around each blob_url."""
    pieces = _BLOB_KEY_AND_URL.split(text)
    keys = pieces[1::2]
    starts = [b'"blob_key":"%b","blob_url":"' % key for key in keys]
    around = [pieces[0], *[b'"' + piece for piece in pieces[2::2]]]
    texts = [piece + start for piece, start in zip(around, (*starts, b""), strict=True)]
    return [key.decode() for key in keys], texts


def decode_item(text: bytes) -> dict[str, Any]:
    """Parse the stored text of an output. A marker becomes a character of its link."""
    item: dict[str, Any] = json_text.decode(escape_markers(text))
    return item


def escape_markers(text: bytes) -> bytes:
    """Return the stored text of outputs as valid JSON."""
    for marker in (SIGNATURE_MARKER, BLOB_URL_MARKER, FILE_URL_MARKER):
        text = text.replace(marker, b"\\u00%02x" % marker[0])
    return text


def with_markers(files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the files of a parsed output, so that they are encoded with markers again."""
    return [_with_markers(file) if file["blob_url"] else file for file in files]


def _with_markers(file: dict[str, Any]) -> dict[str, Any]:
    id_ = file["id"].encode()
    blob_url = b'"%b%b%b"' % (BLOB_URL_MARKER, id_, SIGNATURE_MARKER)
    file_url = b'"%b%b"' % (FILE_URL_MARKER, id_)
    links = {"blob_url": blob_url, "file_url": file_url}
    return file | {name: json_text.as_fragment(link) for name, link in links.items()}


# --- the text of an output's files --------------------------------------------------------------


class FileReference(NamedTuple):
    """A reference of an output to a file, encoded as far as possible without the database."""

    id: bytes | None
    """None for an external file, which is not stored here."""
    field: bytes
    """The path inside ``data``, as JSON text."""
    metadata: bytes
    """The client's members of ``file_metadata`` as JSON text, without the braces."""
    external: tuple[bytes, bytes] | None
    """The text of an external file, before and after the date of the reference."""


def encode_reference(file: FileIn) -> FileReference:
    if file.id is None:
        return FileReference(None, b"", b"", _encode_external(file))
    given = file.file_metadata or {}
    metadata = {name: value for name, value in given.items() if name not in _RESERVED_METADATA}
    encoded = json_text.encode(metadata)[1:-1]
    return FileReference(bytes.fromhex(file.id), json_text.encode(file.field), encoded, None)


class FileRenderer:
    """Renders the files of a batch of outputs; encodes the fixed parts of each file once."""

    def __init__(self, files: dict[bytes, File], now: int) -> None:
        self._files = files
        self._date = b'"create_date":"%b"' % timestamps.render_microseconds(now).encode()
        self._encoded: dict[bytes, tuple[bytes, bytes]] = {}

    def render(self, references: Sequence[FileReference]) -> tuple[bytes, bytes]:
        """Return the JSON text of an output's files, with markers, and their concatenated ids.

        External files have no id there.
        """
        text = b",".join([self._render_one(reference) for reference in references])
        return text, b"".join([one.id for one in references if one.id is not None])

    def _render_one(self, reference: FileReference) -> bytes:
        if reference.id is None:
            assert reference.external is not None
            return self._date.join(reference.external)
        if reference.id not in self._encoded:
            self._encoded[reference.id] = _encode_file(self._files[reference.id])
        start, end = self._encoded[reference.id]
        metadata = b"," + reference.metadata if reference.metadata else b""
        return b"".join((start, reference.field, end, metadata, b"}}"))


def _encode_file(file: File) -> tuple[bytes, bytes]:
    """Return the text before the client's field, and from there to the client's metadata."""
    id_ = file.id.hex()
    start = b'{"id":"%b","field":' % id_.encode()
    end = (
        f',"url_etag_hash":"{file.url_etag_hash.hex()}","blob_key":"{file.key}",'
        f'"blob_url":"\x02{id_}\x01","source_url":'
    ).encode()
    end += json_text.encode(file.source_url)
    created = timestamps.render_microseconds(file.created_at)
    end += (
        f',"create_date":"{created}","file_url":"\x03{id_}",'
        f'"file_type":"{file.file_type}","file_checksum":"{file.checksum.hex()}",'
        f'"file_metadata":{{"size":{file.size},"filename":'
    ).encode()
    return start, end + json_text.encode(file.filename)


def _encode_external(file: FileIn) -> tuple[bytes, bytes]:
    """Encode an external file, which is not stored here, up to its date and after it."""
    source_url, file_url = file.source_url or "", file.file_url or file.source_url or ""
    text = json_text.encode(
        FileOut(
            id=hash_parts(file.field, source_url, file_url)[:ID_BYTES].hex(),
            field=file.field,
            url_etag_hash=url_etag_hash(source_url, "").hex(),
            blob_key="",
            blob_url="",
            source_url=source_url,
            create_date="",
            file_url=file_url,
            file_type=file.file_type or "",
            file_checksum=file.file_checksum or "",
            file_metadata=file.file_metadata or {},
        )
    )
    before, _, after = text.partition(b'"create_date":""')  # no string contains quotation marks
    return before, after
