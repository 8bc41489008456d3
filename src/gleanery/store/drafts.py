"""Outputs before the database is asked: checked against nothing yet, but hashed and rendered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gleanery import jsontext, places
from gleanery.fingerprints import Beginning, fingerprint
from gleanery.records import FileIn, OutputIn
from gleanery.store import files
from gleanery.store.rules import Rules


class Draft(NamedTuple):
    """An output as it came in, with all that can be worked out before the database is asked."""

    job: str
    identity: bytes
    content: bytes
    """Half a hash of the value, half of the rest that a client could see change."""
    url: bytes
    country: str | None
    region: str | None
    before_id: bytes
    after_id: bytes
    files: Sequence[files.Named]
    place: int
    """Where it stands in what the client sent."""


def drafts_of(
    organization_id: int,
    group: str,
    batch: Sequence[OutputIn],
    rules: Rules,
    places: Sequence[int],
) -> list[Draft]:
    """Under the rules of their group; ``places`` is where each stands in what the client sent."""
    drafting = _Drafting(organization_id, group, rules)
    return [drafting.draft(output, place) for place, output in zip(places, batch, strict=True)]


def content_of(batch: Sequence[OutputIn]) -> bytes:
    """A hash of all that the client has said."""
    return fingerprint(
        *(jsontext.canonical(output.model_dump(exclude_none=True)) for output in batch)
    )


def url_key(url: str) -> bytes:
    return fingerprint(url)[:16]


class _Job(NamedTuple):
    """What the outputs of a job have in common."""

    beginning: Beginning
    """Of their identities."""
    text: bytes


class _Drafting:
    """Hashes and renders outputs under the rules of their group."""

    def __init__(self, organization_id: int, group: str, rules: Rules) -> None:
        self._of_group = (organization_id, group)
        self._rules = rules
        self._jobs: dict[str, _Job] = {}

    def draft(self, output: OutputIn, place: int) -> Draft:
        job = self._jobs.get(output.job_id) or self._job(output.job_id)
        key_hash = self._rules.key_hash(output).hex()
        value_hash = jsontext.canonical_hash(output.data)
        identity = job.beginning.with_end(key_hash)[:16]
        tags, named = output.tags or {}, output.files or ()
        tags_text = jsontext.encode(tags)
        rest = fingerprint(output.source_url, jsontext.canonical(tags), *map(_file_text, named))
        return Draft(
            output.job_id,
            identity,
            value_hash[:16] + rest[:16],
            url_key(output.source_url),
            _tag(tags, "country", places.country_key),
            _tag(tags, "region", places.region_key),
            b'{"source_url":%s,"data":%s,"id":'
            % (jsontext.encode(output.source_url), jsontext.encode(output.data)),
            b',"output_id":"%s","root_job_id":%s,"key_hash":"%s","value_hash":"%s","tags":%s'
            % (
                identity.hex().encode(),
                job.text,
                key_hash.encode(),
                value_hash.hex().encode(),
                tags_text,
            ),
            [files.named(file) for file in named],
            place,
        )

    def _job(self, name: str) -> _Job:
        job = _Job(Beginning(*self._of_group, name), jsontext.encode(name))
        self._jobs[name] = job
        return job


def _file_text(file: FileIn) -> bytes:
    return jsontext.canonical(file.model_dump(exclude_none=True))


def _tag(tags: dict[str, Any], name: str, key: Callable[[str], str | None]) -> str | None:
    value = tags.get(name)
    return key(value) if isinstance(value, str) else None
