"""Copies of a group that the service stored: the rows that it would have stored in other groups."""

from __future__ import annotations

import json
import random
import re
from binascii import hexlify
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench.growth import dataset
from bench.growth.engines import Engine, Rows
from bench.measurement import print_progress
from gleanery.service.resources.outputs.elements import IdentityHasher

_PASS_OUTPUTS = 1000
"""Outputs that a group gets before the next group gets some, as from batches of many scrapers."""
_GROUP_COLUMNS = ("id", "organization_id", "group_id", "job_id", "identity", "item")
_COUNT_TABLES = ("country_counts", "job_statistics", "job_shapes")
_IDENTITIES = re.compile("[0-9a-f]{32}(?=[0-9a-f]{8}\\b|\\b)")


class _TemplateOutput(NamedTuple):
    """An output of the template. Its item is cut where the id and the output_id are."""

    job_id: int
    job: str
    key_hash: bytes
    before_id: bytes
    after_id: bytes
    other_columns: tuple[Any, ...]


class _Group(NamedTuple):
    """A group that gets copies."""

    organization_id: int
    id: int
    job_ids: dict[int, int]
    """The job of each job of the template."""
    identities: IdentityHasher


class GroupCopier:
    """Writes the outputs of the first group into all others.

    The rows are those that the service would store if every scraper sent the same outputs at the
    same times. Ids and identities differ. The times are in the items, so they need no change.
    """

    def __init__(self, engine: Engine, organization_ids: Sequence[int]) -> None:
        self._engine, self._organization_ids = engine, organization_ids
        [self._template] = engine.fetch(
            "SELECT * FROM groups WHERE organization_id = $1 AND name = $2",
            organization_ids[0],
            dataset.group_name(0),
        )
        self._first_identities = self._identities(0)
        self._jobs = self._rows("jobs", "id")
        names = {job["id"]: job["name"] for job in self._jobs}
        rows = self._rows("outputs", "seq")
        self._other_columns = [name for name in rows[0] if name not in _GROUP_COLUMNS]
        self._outputs = [self._cut(row, names) for row in rows]
        self._by_identity = {
            row["identity"].hex(): output for row, output in zip(rows, self._outputs, strict=True)
        }
        self._counts = {table: self._rows(table, "group_id") for table in _COUNT_TABLES}
        self._last_id: int = engine.fetch("SELECT max(id) AS id FROM outputs")[0]["id"]

    def _rows(self, table: str, order: str) -> Rows:
        sql = f"SELECT * FROM {table} WHERE group_id = $1 ORDER BY {order}"
        return self._engine.fetch(sql, self._template["id"])

    def _cut(self, row: dict[str, Any], job_names: dict[int, str]) -> _TemplateOutput:
        item, job = row["item"], job_names[row["job_id"]]
        before, after = item.split(_id_members(row["id"], row["identity"]))
        output = _TemplateOutput(
            row["job_id"],
            job,
            bytes.fromhex(json.loads(item)["key_hash"]),
            before,
            after,
            tuple(row[name] for name in self._other_columns),
        )
        assert self._first_identities.identity(job, output.key_hash) == row["identity"]
        return output

    def _identities(self, group: int) -> IdentityHasher:
        organization_id = self._organization_ids[dataset.organization_of(group)]
        identity_format = self._template["identity_format"]
        return IdentityHasher(organization_id, dataset.group_name(group), None, identity_format)

    def run(self) -> None:
        """Copy in passes over all groups: each pass visits them in another order."""
        groups = [self._create_group(number) for number in range(1, dataset.GROUPS)]
        generator = random.Random(1)
        columns = (*_GROUP_COLUMNS, *self._other_columns)
        for start in range(0, len(self._outputs), _PASS_OUTPUTS):
            print_progress(f"  copying outputs {start:,} and following into {len(groups):,} groups")
            some = self._outputs[start : start + _PASS_OUTPUTS]
            for group in generator.sample(groups, len(groups)):
                self._engine.insert("outputs", columns, [*self._copies(group, some)])
        self._engine.set_last_output_id(self._last_id)

    def _copies(
        self, group: _Group, outputs: Sequence[_TemplateOutput]
    ) -> Iterator[tuple[Any, ...]]:
        for id_, output in enumerate(outputs, self._last_id + 1):
            identity = group.identities.identity(output.job, output.key_hash)
            item = output.before_id + _id_members(id_, identity) + output.after_id
            job_id = group.job_ids[output.job_id]
            yield (
                *(id_, group.organization_id, group.id, job_id, identity, item),
                *output.other_columns,
            )
        self._last_id += len(outputs)

    # --- the group's other rows -----------------------------------------------------------------

    def _create_group(self, number: int) -> _Group:
        organization_id = self._organization_ids[dataset.organization_of(number)]
        identities = self._identities(number)
        name = dataset.group_name(number)
        group_id = self._insert_one("groups", self._template, organization_id, name=name)
        job_ids = {
            job["id"]: self._insert_one("jobs", job, organization_id, group_id=group_id)
            for job in self._jobs
        }
        group = _Group(organization_id, group_id, job_ids, identities)
        for table, template_rows in self._counts.items():
            rows = [self._translate(group, row) for row in template_rows]
            self._engine.insert(table, list(rows[0]), [tuple(row.values()) for row in rows])
        return group

    def _insert_one(
        self, table: str, row: dict[str, Any], organization_id: int, **columns: Any
    ) -> int:
        """Insert a copy of the row with a new id, and return the id."""
        row = {**row, "organization_id": organization_id, **columns}
        del row["id"]
        places = ",".join(f"${number}" for number in range(1, len(row) + 1))
        sql = f"INSERT INTO {table} ({','.join(row)}) VALUES ({places}) RETURNING id"
        return int(self._engine.fetch(sql, *row.values())[0]["id"])

    def _translate(self, group: _Group, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row for another group. Statistics name outputs by their identities."""
        row = {**row, "organization_id": group.organization_id, "group_id": group.id}
        if "job_id" in row:
            row["job_id"] = group.job_ids[row["job_id"]]
        for name in ("shape_counts", "ranges"):
            if name in row:
                row[name] = _IDENTITIES.sub(
                    lambda found: self._identity_in(group, found[0]), row[name]
                )
        return row

    def _identity_in(self, group: _Group, identity_hex: str) -> str:
        output = self._by_identity[identity_hex]
        return group.identities.identity(output.job, output.key_hash).hex()


def _id_members(id_: int, identity: bytes) -> bytes:
    return b'"id":%d,"output_id":"%b"' % (id_, hexlify(identity))
