"""The format of a segment: entries of earlier versions of one output, newest first.

An entry is a header and a delta: the version's text in zstd, with the text of the next newer
version as the dictionary. The text leaves out the end of an item, which the header and the value
determine: the hash of the value, and the suffix with the dates and the approval. The last version
of a deleted output has no newer version, so it is compressed without a dictionary.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from gleanery.storage import items
from gleanery.storage.files.references import decode_item
from gleanery.values import json_text, timestamps

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_HEADER = struct.Struct(">QQQIBII")
_APPROVED, _DELETED, _HASH_IN_TEXT = 1, 2, 4
_HASH_MEMBER = b',"value_hash":"'
_HASH_LENGTH = len(_HASH_MEMBER) + 64 + 1
_SMALL_BYTES = 4096
_MIN_DICTIONARY = 8  # bytes; zstd accepts no shorter dictionary
_MAX_WINDOW_LOG = 27
_MAX_HASH_LOG = 17
_LONG_BYTES = 1 << _MAX_HASH_LOG
# Small tables: a delta of a kilobyte takes 6 µs instead of 7.
_SMALL_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 1,
    zstd.CompressionParameter.hash_log: 10,
    zstd.CompressionParameter.window_log: 13,
    zstd.CompressionParameter.content_size_flag: 0,
}
_DECOMPRESSION_OPTIONS: dict[int, int] = {
    zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG
}


class CorruptHistory(Exception):
    """A version cannot be restored exactly."""


class Version(NamedTuple):
    """The header of an entry: one earlier version of an output."""

    seq: int
    """Position in the change order at which the version began."""
    last_seq: int
    """Position of its last change, which can be an approval."""
    replaced_seq: int
    """Position at which a newer version replaced it, or at which the output was deleted."""
    last_scraped_at: int
    approved: bool
    is_deleted: bool = False
    """True if the output was deleted, so that this was its last version."""


class Entry(NamedTuple):
    """A version and its delta."""

    version: Version
    has_hash_in_text: bool
    checksum: int
    delta: bytes

    def restore(self, newer: bytes | None) -> bytes:
        """Returns the text of the version. ``newer`` is the text of the next newer version.

        Raises CorruptHistory unless the text is exactly the stored one.
        """
        try:
            text = zstd.decompress(self.delta, _dictionary(newer), _DECOMPRESSION_OPTIONS)
        except zstd.ZstdError as error:
            raise CorruptHistory from error
        if zlib.crc32(text) != self.checksum:
            raise CorruptHistory
        return text

    def render(self, text: bytes) -> bytes:
        """Returns the item, as it was directly before it was replaced."""
        version = self.version
        suffix = items.mutable_suffix(version.last_seq, version.last_scraped_at, version.approved)
        if self.has_hash_in_text:
            return text + suffix
        data = decode_item(text + b"}")["data"]
        value_hash = json_text.canonical_hash(data).hex().encode()
        return b'%b%b%b"%b' % (text, _HASH_MEMBER, value_hash, suffix)


def text_of(item: bytes, approved: bool) -> bytes:
    """Returns the part of an item that the delta covers."""
    text, _ = split(item, approved)
    return text


def create(version: Version, item: bytes, newer_item: bytes | None, newer_approved: bool) -> Entry:
    """Returns the entry for a version with this item. ``newer_item`` replaces it."""
    text, has_hash_in_text = split(item, version.approved)
    newer = None if newer_item is None else text_of(newer_item, newer_approved)
    size = len(text) + len(newer or b"")
    options = _SMALL_OPTIONS if size <= _SMALL_BYTES else _options(size)
    delta = zstd.compress(text, options=options, zstd_dict=_dictionary(newer))
    return Entry(version, has_hash_in_text, zlib.crc32(text), delta)


def decode(segment: bytes) -> Iterator[Entry]:
    """Yields the entries of a segment, newest first. Raises CorruptHistory at a damaged one."""
    at = 0
    while at < len(segment):
        if len(segment) - at < _HEADER.size:
            raise CorruptHistory
        seq, last_seq, replaced_seq, second, flags, checksum, length = _HEADER.unpack_from(
            segment, at
        )
        at += _HEADER.size
        if len(segment) - at < length:
            raise CorruptHistory
        version = Version(
            seq,
            last_seq,
            replaced_seq,
            second * timestamps.SECOND,
            bool(flags & _APPROVED),
            bool(flags & _DELETED),
        )
        yield Entry(version, bool(flags & _HASH_IN_TEXT), checksum, segment[at : at + length])
        at += length


def encode(entry: Entry) -> bytes:
    """Returns the bytes of an entry in a segment."""
    version = entry.version
    flags = version.approved * _APPROVED | version.is_deleted * _DELETED
    header = _HEADER.pack(
        version.seq,
        version.last_seq,
        version.replaced_seq,
        version.last_scraped_at // timestamps.SECOND,
        flags | entry.has_hash_in_text * _HASH_IN_TEXT,
        entry.checksum,
        len(entry.delta),
    )
    return header + entry.delta


def split(item: bytes, approved: bool) -> tuple[bytes, bool]:
    """Returns the text, and True if it contains the hash, as in items of earlier programs."""
    end = len(item) - items.suffix_length(approved)
    if item.startswith(_HASH_MEMBER, end - _HASH_LENGTH):
        return item[: end - _HASH_LENGTH], False
    return item[:end], True


def _dictionary(newer: bytes | None) -> tuple[zstd.ZstdDict, int] | None:
    if newer is None or len(newer) < _MIN_DICTIONARY:
        return None
    return zstd.ZstdDict(newer, is_raw=True).as_prefix


def _options(size: int) -> dict[int, int]:
    """Returns options with a window and tables that cover both texts."""
    window_log = min(size.bit_length(), _MAX_WINDOW_LOG)
    return {
        zstd.CompressionParameter.compression_level: 1,
        zstd.CompressionParameter.hash_log: min(window_log, _MAX_HASH_LOG),
        zstd.CompressionParameter.window_log: window_log,
        zstd.CompressionParameter.content_size_flag: 0,
        zstd.CompressionParameter.enable_long_distance_matching: size > _LONG_BYTES,
    }
