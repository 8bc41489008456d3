"""Outputs before the database is asked: checked against nothing yet, but hashed and rendered."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from gleanery.models.batches import Batch, Head
from gleanery.models.requests import FileIn, Output
from gleanery.storage import files
from gleanery.storage.outputs.rules import Rules
from gleanery.values import countries, json_text
from gleanery.values.hashing import fingerprint, length_prefixed

_AT_ONCE = 32  # outputs read before they are drafted: what they say is still in the cache then
_NO_KEY = bytes(64)  # as long as the text of a key's hash


class OutputKeyHash(NamedTuple):
    """Which output it is, and in which bytes it was sent: enough, if those are stored already."""

    identity: bytes
    mark: bytes
    key_hash: bytes


class PreparedOutput(NamedTuple):
    """An output as it came in, with all that can be worked out before the database is asked."""

    identity: bytes
    sent: bytes
    """What it is known by when it is sent again in the same bytes."""
    content: bytes
    """Half a hash of the value, half of the rest that a client could see change."""
    url: bytes
    country: str | None
    region: str | None
    job: str
    before_id: bytes
    after_id: bytes
    files: Sequence[files.Named]
    place: int
    """Where it stands in what the client sent."""


def content_of(outputs: Sequence[Output]) -> bytes:
    """A hash of all that the client has said."""
    return fingerprint(*map(_said, outputs))


def _said(output: Output) -> bytes:
    said = {name: value for name, value in output._asdict().items() if value is not None}
    if output.files is not None:
        said["files"] = [file.model_dump(exclude_none=True) for file in output.files]
    return json_text.canonical(said)


def sent_hash_of(mark: bytes, content: bytes) -> bytes:
    """What an output is known by that was sent in the bytes of this mark.

    It stands for its content, too: whoever changes that and knows of no marks, such as a node of an
    older version, leaves none that stands for something else.
    """
    return sha256(mark + content).digest()[:16] if mark else b""


def url_key(url: str) -> bytes:
    return fingerprint(url)[:16]


class _Job(NamedTuple):
    """What the outputs of a job have in common."""

    beginning: bytes
    """Of what their identities are hashed from: all but the text of the key's hash."""
    text: bytes


class BatchPreparer:
    """Hashes and renders the outputs of a batch under the rules of their group."""

    def __init__(self, organization_id: int, group: str, batch: Batch, rules: Rules) -> None:
        self.rules = rules
        self.drafts: list[OutputKeyHash | PreparedOutput] = []
        self._of_group = length_prefixed(organization_id) + length_prefixed(group)
        self._batch = batch
        self._jobs: dict[str, _Job] = {}

    def first(self) -> OutputKeyHash:
        return self._sketch(self._batch.heads[0], self._batch.marks[0])

    def begin(self, must_be_read: bool) -> None:
        """Sketches what need not be read if it is stored already.

        Of one that is there twice, who comes second finds what the first has made of it.
        """
        heads_and_marks = zip(self._batch.heads, self._batch.marks, strict=True)
        self.drafts = [self._sketch(head, mark) for head, mark in heads_and_marks]
        if must_be_read or len({draft.identity for draft in self.drafts}) < len(self.drafts):
            self.read(range(len(self.drafts)))

    def read(self, numbers: Sequence[int]) -> None:
        """Drafts the outputs of these numbers. Raises InvalidRequest with every fault of the batch."""
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            for number, output in zip(some, self._batch.read(some), strict=True):
                sketch = self.drafts[number]
                assert isinstance(sketch, OutputKeyHash)
                self.drafts[number] = self._draft(sketch, output, self._batch.places[number])

    def _sketch(self, head: Head | Output, mark: bytes) -> OutputKeyHash:
        key_hash = self.rules.key_hash(head)
        job = self._jobs.get(head.job_id) or self._job(head.job_id)
        identity = sha256(job.beginning + hexlify(key_hash)).digest()[:16]
        return OutputKeyHash(identity, mark, key_hash)

    def _draft(self, sketch: OutputKeyHash, output: Output, place: int) -> PreparedOutput:
        identity, mark, key_hash = sketch
        job_id, source_url, data, _, tags, named = output
        tags, named = tags or {}, named or ()
        value_hash = json_text.canonical_hash(data)
        url = length_prefixed(source_url)
        rest = url + length_prefixed(json_text.canonical(tags))
        if named:
            rest += b"".join(map(_file_text, named))
        content = value_hash[:16] + sha256(rest).digest()[:16]
        return PreparedOutput(
            identity,
            sent_hash_of(mark, content),
            content,
            sha256(url).digest()[:16],
            _tag(tags, "country", countries.country_key),
            _tag(tags, "region", countries.region_key),
            job_id,
            b'{"source_url":%b,"data":%b,"id":'
            % (json_text.encode(source_url), json_text.encode(data)),
            b',"output_id":"%b","root_job_id":%b,"key_hash":"%b","value_hash":"%b","tags":%b'
            % (
                hexlify(identity),
                self._jobs[job_id].text,
                hexlify(key_hash),
                hexlify(value_hash),
                json_text.encode(tags),
            ),
            [files.named(file) for file in named] if named else (),
            place,
        )

    def _job(self, name: str) -> _Job:
        beginning = (
            self._of_group + length_prefixed(name) + length_prefixed(_NO_KEY)[: -len(_NO_KEY)]
        )
        job = self._jobs[name] = _Job(beginning, json_text.encode(name))
        return job


def _file_text(file: FileIn) -> bytes:
    return length_prefixed(json_text.canonical(file.model_dump(exclude_none=True)))


def _tag(tags: dict[str, Any], name: str, key: Callable[[str], str | None]) -> str | None:
    value = tags.get(name)
    return key(value) if isinstance(value, str) else None
