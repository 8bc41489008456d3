"""The format of a segment: entries of earlier versions of one output, newest first.

An entry is a header and a delta: the version's text in zstd, with the text of the next newer
version as the dictionary. The text leaves out the end of an item, which the header and the value
determine: the hash of the value, and the suffix with the dates and the approval. The last version
of a deleted output has no newer version, so it is compressed without a dictionary.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.files.references import decode_item
from gleanery.service.storage import paging

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Most headers are short: they have the time since the version began, and since its last scrape.
_SHORT_HEADER = struct.Struct(">B7s6s3sB")
_LONG_HEADER = struct.Struct(">BQQQQI")
_LAST_CHANGE = struct.Struct(">Q")
_APPROVED, _DELETED, _HASH_IN_TEXT, _CHANGED, _LONG = 1, 2, 4, 8, 16
_MAGIC = b"\x28\xb5\x2f\xfd"  # begins each text in zstd; an entry leaves it out
_HASH_MEMBER = b',"value_hash":"'
_HASH_LENGTH = len(_HASH_MEMBER) + 64 + 1
_SMALL_BYTES = 4096
_MIN_DICTIONARY = 8  # bytes; zstd accepts no shorter dictionary
_MAX_WINDOW_LOG = 27
_MAX_HASH_LOG = 17
_LONG_BYTES = 1 << _MAX_HASH_LOG
# Small tables: a delta of a kilobyte takes 6 µs instead of 7.
_SMALL_OPTIONS: dict[int, int] = {
    int(zstd.CompressionParameter.compression_level): 1,
    int(zstd.CompressionParameter.hash_log): 10,
    int(zstd.CompressionParameter.window_log): 13,
    int(zstd.CompressionParameter.content_size_flag): 0,
    int(zstd.CompressionParameter.checksum_flag): 1,
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
    delta: bytes

    def restore(self, newer: bytes | None) -> bytes:
        """Return the text of the version. ``newer`` is the text of the next newer version.

        Raise CorruptHistory unless the text is exactly the stored one.
        """
        try:
            text = zstd.decompress(_MAGIC + self.delta, _dictionary(newer), _DECOMPRESSION_OPTIONS)
        except zstd.ZstdError as error:
            raise CorruptHistory from error
        return text

    def render(self, text: bytes) -> bytes:
        """Return the item, as it was directly before it was replaced."""
        version = self.version
        suffix = paging.mutable_suffix(version.last_seq, version.last_scraped_at, version.approved)
        if self.has_hash_in_text:
            return text + suffix
        data = decode_item(text + b"}")["data"]
        value_hash = json_text.canonical_hash(data).hex().encode()
        return b'%b%b%b"%b' % (text, _HASH_MEMBER, value_hash, suffix)


def create(version: Version, item: bytes, newer_item: bytes | None, newer_approved: bool) -> Entry:
    """Return the entry for a version with this item. ``newer_item`` replaces it."""
    text, has_hash_in_text = split(item, version.approved)
    size, dictionary = len(text), None
    if newer_item is not None:
        newer, _ = split(newer_item, newer_approved)
        size += len(newer)
        dictionary = _dictionary(newer)
    options = _SMALL_OPTIONS if size <= _SMALL_BYTES else _options(size)
    compressor = zstd.ZstdCompressor(options=options, zstd_dict=dictionary)
    delta = compressor.compress(text, compressor.FLUSH_FRAME)[len(_MAGIC) :]
    return Entry(version, has_hash_in_text, delta)


def decode(segment: bytes) -> Iterator[Entry]:
    """Yield the entries of a segment, newest first. Raise CorruptHistory at a damaged one."""
    at = 0
    while at < len(segment):
        is_long = segment[at] & _LONG  # the flags are the first byte
        try:
            entry, at, end = (_decode_long if is_long else _decode_short)(segment, at)
        except struct.error as error:
            raise CorruptHistory from error
        if end > len(segment):
            raise CorruptHistory
        yield entry._replace(delta=segment[at:end])
        at = end


def _decode_short(segment: bytes, at: int) -> tuple[Entry, int, int]:
    """Return an entry without its delta, and the place of the delta."""
    flags, *numbers, length = _SHORT_HEADER.unpack_from(segment, at)
    at += _SHORT_HEADER.size
    replaced_seq, age, seconds = (int.from_bytes(number, "big") for number in numbers)
    seq = last_seq = replaced_seq - age
    if flags & _CHANGED:
        [last_seq] = _LAST_CHANGE.unpack_from(segment, at)
        at += _LAST_CHANGE.size
    second = replaced_seq // timestamps.SECOND - seconds
    return _entry(flags, seq, last_seq, replaced_seq, second), at, at + length


def _decode_long(segment: bytes, at: int) -> tuple[Entry, int, int]:
    flags, seq, last_seq, replaced_seq, second, length = _LONG_HEADER.unpack_from(segment, at)
    at += _LONG_HEADER.size
    return _entry(flags, seq, last_seq, replaced_seq, second), at, at + length


def _entry(flags: int, seq: int, last_seq: int, replaced_seq: int, second: int) -> Entry:
    approved, is_deleted = bool(flags & _APPROVED), bool(flags & _DELETED)
    scraped_at = second * timestamps.SECOND
    version = Version(seq, last_seq, replaced_seq, scraped_at, approved, is_deleted)
    return Entry(version, bool(flags & _HASH_IN_TEXT), b"")


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry in a segment."""
    version, has_hash_in_text, delta = entry
    seq, last_seq, replaced_seq, last_scraped_at, approved, is_deleted = version
    flags = approved * _APPROVED | is_deleted * _DELETED | has_hash_in_text * _HASH_IN_TEXT
    second = last_scraped_at // timestamps.SECOND
    try:
        header = _SHORT_HEADER.pack(
            flags if seq == last_seq else flags | _CHANGED,
            replaced_seq.to_bytes(7, "big"),
            (replaced_seq - seq).to_bytes(6, "big"),
            (replaced_seq // timestamps.SECOND - second).to_bytes(3, "big"),
            len(delta),
        )
    except (OverflowError, struct.error):  # a number or the delta does not fit
        values = (seq, last_seq, replaced_seq, second, len(delta))
        return _LONG_HEADER.pack(flags | _LONG, *values) + delta
    return header + delta if seq == last_seq else header + _LAST_CHANGE.pack(last_seq) + delta


def split(item: bytes, approved: bool) -> tuple[bytes, bool]:
    """Return the text, and True if it contains the hash, as in items of earlier programs."""
    start = len(item) - paging.SUFFIX_LENGTHS[approved] - _HASH_LENGTH
    if item[start : start + len(_HASH_MEMBER)] == _HASH_MEMBER:
        return item[:start], False
    return item[: start + _HASH_LENGTH], True


def _dictionary(newer: bytes | None) -> tuple[zstd.ZstdDict, int] | None:
    if newer is None or len(newer) < _MIN_DICTIONARY:
        return None
    return zstd.ZstdDict(newer, is_raw=True).as_prefix


def _options(size: int) -> dict[int, int]:
    """Return options with a window and tables that cover both texts."""
    window_log = min(size.bit_length(), _MAX_WINDOW_LOG)
    return {
        zstd.CompressionParameter.compression_level: 1,
        zstd.CompressionParameter.hash_log: min(window_log, _MAX_HASH_LOG),
        zstd.CompressionParameter.window_log: window_log,
        zstd.CompressionParameter.content_size_flag: 0,
        zstd.CompressionParameter.checksum_flag: 1,
        zstd.CompressionParameter.enable_long_distance_matching: size > _LONG_BYTES,
    }
