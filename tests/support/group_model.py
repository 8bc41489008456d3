"""Model of a group: outputs with their versions, the approved view, both feeds and the limits.

The model decides what a request changes. The service decides the positions and the time of a
scrape: the model takes those from the feed and the pages, and requires them to be consistent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

View = Literal["full", "approved"]
Item = dict[str, Any]
SECOND = 1_000_000
DAY = 86_400 * SECOND
DEFAULT_KEEP_VERSIONS, DEFAULT_KEEP_DAYS = 20, 90


def _long_text(step: int) -> str:
    """Returns a text that does not compress well, so that a few versions fill a segment."""
    return "".join(chr(97 + (n * n * step + n // 7) % 26) for n in range(3000))


VALUES: list[Item] = [
    {"price": 1, "offer": {"n": 1, "m": None}, "images": ["a"]},
    {"price": 2.5, "offer": {"n": 1}, "images": ["b"]},
    {"price": "2", "offer": {"n": {"x": 1}}, "images": ["a", "b"], "a.b": True},
    {"price": 1, "text": _long_text(3)},
    {"price": 1, "text": _long_text(5), "größe": "é"},
]
TAGS: list[Item] = [{}, {"country": "Germany"}]


class Sent(NamedTuple):
    """An output of a batch: its job, its key, and indexes of ``VALUES`` and ``TAGS``."""

    job: str
    key: str
    value: int
    tags: int = 0

    def members(self) -> Item:
        """Returns the members that a batch and an item have in common."""
        return {
            "source_url": f"https://shop.example/{self.key}",
            "data": VALUES[self.value],
            "tags": TAGS[self.tags],
        }

    def body(self) -> Item:
        return {"job_id": self.job, **self.members()}


class Change(NamedTuple):
    """An element of a feed."""

    kind: str
    cursor: int
    output_id: str
    output: str
    """JSON text, with the members in the order of the response."""


@dataclass(eq=False)
class Version:
    """One content of an output."""

    content: Sent
    created_seq: int
    seq: int
    last_seq: int
    approved: bool
    previous: Version | None
    item: Item = field(default_factory=dict)
    """As a page showed it last."""
    replaced_seq: int | None = None
    is_deleted: bool = False
    was_beyond_limits: bool = False
    """True if the service may have removed it."""


@dataclass(eq=False)
class Output:
    """An identity: its present version, earlier versions, and its place in the view."""

    output_id: str
    job: str
    id: int
    earlier: list[Version] = field(default_factory=list)
    """Newest first."""
    current: Version | None = None
    approved_version: Version | None = None
    view_position: int = 0
    view_seq: int = 0
    scraped_at: int = 0
    was_scraped: bool = False
    """True if the present step has sent it."""

    def versions(self) -> list[Version]:
        """Returns all versions, newest first."""
        return [*([self.current] if self.current else []), *self.earlier]

    def last_seq(self) -> int:
        """Returns the position of the last change; 0 if the output is forgotten."""
        if self.current is not None:
            return self.current.last_seq
        return max((version.replaced_seq or 0 for version in self.earlier), default=0)

    def append(self, version: Version) -> None:
        if self.current is not None:
            self._replace(version.seq)
        self.current = version

    def delete(self, seq: int) -> None:
        assert self.current is not None
        self.current.is_deleted = True
        self._replace(seq)
        self.current = None

    def _replace(self, seq: int) -> None:
        assert self.current is not None
        self.current.replaced_seq = seq
        self.earlier.insert(0, self.current)


class Tombstone(NamedTuple):
    id: int
    output_id: str
    job: str

    def item(self) -> Item:
        return {"id": self.id, "output_id": self.output_id, "root_job_id": self.job}


@dataclass
class Settings:
    keep_versions: int | None = None
    keep_days: int | None = None
    retain_days: int | None = None


class Model:
    """The expected state of a group."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.settings = Settings()
        self.last_seq = 0
        self.tombstones: dict[View, dict[int, Tombstone]] = {"full": {}, "approved": {}}
        self.purged: dict[View, int] = {"full": 0, "approved": 0}
        self._key_hashes: dict[str, str] = {}
        self._value_hashes: dict[int, str] = {}

    # --- steps ----------------------------------------------------------------------------------

    def store(
        self, batch: Sequence[Sent], results: Sequence[Item], numbers: dict[str, int], now: int
    ) -> None:
        """Stores a batch. ``results`` are those of the response."""
        changed: dict[str, tuple[Sent, bool]] = {}
        for sent, result in zip(batch, results, strict=True):
            output = self._output(result["output_id"], sent.job, result["id"])
            output.was_scraped, output.scraped_at = True, now
            present = changed.get(output.output_id) or _state(output.current)
            if present is None:
                expected, state = "created", (sent, False)
            elif present[0] == sent:
                expected, state = "unchanged", present
            else:
                expected = "updated"
                state = (sent, present[1] and present[0].value == sent.value)
            assert result["change"] == expected
            if expected != "unchanged":
                changed.pop(output.output_id, None)
                changed[output.output_id] = state
        seqs = [numbers.pop(output_id) for output_id in changed]
        assert seqs == sorted(set(seqs))
        for (output_id, (sent, approved)), seq in zip(changed.items(), seqs, strict=True):
            self._set(self.outputs[output_id], sent, approved, seq)

    def review(
        self,
        outputs: Iterable[Output],
        approved: bool | None,
        numbers: dict[str, int],
        removals: dict[str, int],
        as_of: int | None,
    ) -> list[str]:
        """Approves outputs, or takes the approval back. Returns the ids of those newer than as_of.

        If ``approved`` is None, the status of the review changes no approval.

        ``removals`` are the numbers of removals from the view of outputs that are not approved.
        """
        skipped = []
        for output in outputs:
            assert output.current is not None
            if as_of is not None and output.current.seq > as_of:
                skipped.append(output.output_id)
                seen = output.approved_version
                if approved is False and seen is not None and seen.seq <= as_of:
                    self._hide(output, removals.pop(output.output_id))
            elif approved is None:
                continue
            elif output.current.approved != approved:
                output.current.approved = approved
                output.current.last_seq = numbers.pop(output.output_id)
                if approved:
                    self._show(output, output.current)
                else:
                    self._hide(output, output.current.last_seq)
            elif not approved and output.approved_version is not None:
                self._hide(output, removals.pop(output.output_id))
        return skipped

    def delete(self, outputs: Iterable[Output], numbers: dict[str, int]) -> None:
        for output in outputs:
            seq = numbers.pop(output.output_id)
            self.tombstones["full"][seq] = Tombstone(output.id, output.output_id, output.job)
            if output.approved_version is not None:
                self._hide(output, seq)
            output.delete(seq)

    def delete_history(self) -> None:
        for output in self.outputs.values():
            output.earlier.clear()

    def purge(self, before: int) -> None:
        """Forgets the tombstones from before this time, and the versions of their outputs."""
        for view, tombstones in self.tombstones.items():
            for seq in [seq for seq in tombstones if seq <= before]:
                tombstone = tombstones.pop(seq)
                self.purged[view] = max(self.purged[view], seq)
                if view == "full":
                    output = self.outputs[tombstone.output_id]
                    output.earlier = [v for v in output.earlier if _replaced(v) > seq]

    def expired(self, now: int) -> list[Output]:
        """Returns the outputs that no scraper has sent within the days of the setting."""
        days = self.settings.retain_days
        if days is None:
            return []
        return [o for o in self.in_order() if o.scraped_at <= now - days * DAY]

    def apply_limits(self, now: int) -> None:
        """Marks the earlier versions that the limits exclude at this time."""
        for output in self.outputs.values():
            for index, version in enumerate(output.earlier):
                if not self._is_within_limits(index, version, now):
                    version.was_beyond_limits = True

    def _output(self, output_id: str, job: str, id_: int) -> Output:
        output = self.outputs.setdefault(output_id, Output(output_id, job, id_))
        if output.current is None:
            output.id = id_
        assert (output.job, output.id) == (job, id_)
        return output

    def _set(self, output: Output, sent: Sent, approved: bool, seq: int) -> None:
        previous = output.current
        created_seq = seq if previous is None else previous.created_seq
        version = Version(sent, created_seq, seq, seq, approved, previous)
        output.append(version)
        if approved:
            self._show(output, version)

    def _show(self, output: Output, version: Version) -> None:
        if output.approved_version is None:
            output.view_seq = version.last_seq
        output.approved_version, output.view_position = version, version.last_seq

    def _hide(self, output: Output, seq: int) -> None:
        output.approved_version, output.view_seq = None, 0
        self.tombstones["approved"][seq] = Tombstone(output.id, output.output_id, output.job)

    # --- items ----------------------------------------------------------------------------------

    def learn(self, items: Sequence[Item]) -> None:
        """Compares the items of all pages with the outputs, in order, and remembers them."""
        outputs = self.in_order()
        assert [item["output_id"] for item in items] == [output.output_id for output in outputs]
        for output, item in zip(outputs, items, strict=True):
            assert output.current is not None
            self._check_item(output, output.current, item)
            output.current.item = item
            output.was_scraped = False

    def _check_item(self, output: Output, version: Version, item: Item) -> None:
        known = version.item
        if known and not output.was_scraped:
            assert item["last_scraped_date"] == known["last_scraped_date"]
        content = version.content
        assert item == {
            **content.members(),
            "id": output.id,
            "output_id": output.output_id,
            "root_job_id": output.job,
            "create_date": date_of(version.created_seq),
            "update_date": date_of(version.last_seq),
            "last_scraped_date": item["last_scraped_date"],
            "key_hash": self._key_hashes.setdefault(content.key, item["key_hash"]),
            "value_hash": self._value_hashes.setdefault(content.value, item["value_hash"]),
            "is_approved": version.approved,
            "files": [],
        }

    def in_order(self, job: str | None = None) -> list[Output]:
        """Returns the outputs that exist, in the change order."""
        found = [
            (output.current.last_seq, output)
            for output in self.outputs.values()
            if output.current is not None and job in (None, output.job)
        ]
        return [output for _, output in sorted(found, key=lambda pair: pair[0])]

    def find(self, job: str, key: str) -> Output | None:
        """Returns the output with this key that exists."""
        for output in self.in_order(job):
            assert output.current is not None
            if output.current.content.key == key:
                return output
        return None

    def page(self, view: View, **filters: Any) -> list[str]:
        """Returns the items of all pages of the view as JSON texts."""
        items = [item for _, item in self._present(view)]
        return [text_of(item) for item in items if all(_matches(item, *f) for f in filters.items())]

    def _present(self, view: View) -> Iterator[tuple[int, Item]]:
        found = []
        for output in self.outputs.values():
            if view == "full" and output.current is not None:
                found.append((output.current.last_seq, output.current.item))
            if view == "approved" and output.approved_version is not None:
                found.append((output.view_position, output.approved_version.item))
        yield from sorted(found, key=lambda pair: pair[0])

    # --- feeds ----------------------------------------------------------------------------------

    def is_expired(self, view: View, cursor: int) -> bool:
        return 0 < cursor < self.purged[view]

    def feed(self, view: View, cursor: int) -> list[Change]:
        """Returns the changes after the cursor. The last one has the cursor of the whole feed."""
        created = {
            (o.view_seq if view == "approved" else o.current.created_seq if o.current else 0)
            for o in self.outputs.values()
        }
        changes = [
            Change("create" if seq in created else "update", seq, item["output_id"], text_of(item))
            for seq, item in self._present(view)
            if seq > cursor
        ]
        for seq, tombstone in self.tombstones[view].items():
            if seq > cursor:
                text = text_of(tombstone.item())
                changes.append(Change("delete", seq, tombstone.output_id, text))
        changes.sort(key=lambda change: change.cursor)
        if changes:
            changes[-1] = changes[-1]._replace(cursor=self.last_seq)
        return changes

    def fields_since(self, output: Output, cursor: int) -> tuple[Version, list[Item]]:
        """Returns the fields that an update after the cursor changes, and the older version.

        An output that was created after the cursor is compared with its previous version.
        """
        current = output.current
        assert current is not None
        if current.created_seq <= cursor:
            older, _ = self.item_at(output, cursor)
            assert older is not None
            before = _item_at(older, cursor)
        elif current.previous is not None:
            older, before = current.previous, current.previous.item
        else:
            older, before = current, _item_at(current, current.seq)
        fields = changed_fields(before, current.item)
        approvals = (before["is_approved"], current.approved)
        return older, [*_differences("$.is_approved", *approvals), *fields]

    # --- history --------------------------------------------------------------------------------

    def certain_and_possible(self, output: Output, now: int) -> tuple[int, int]:
        """Returns how many earlier versions are kept for certain, and how many at most."""
        certain = possible = 0
        for index, version in enumerate(output.earlier):
            if not self._is_within_limits(index, version, now):
                break
            possible += 1
            if not version.was_beyond_limits and certain == index:
                certain += 1
        return certain, possible

    def _is_within_limits(self, index: int, version: Version, now: int) -> bool:
        keep_versions, keep_days = self.settings.keep_versions, self.settings.keep_days
        limit = DEFAULT_KEEP_VERSIONS if keep_versions is None else keep_versions
        days = keep_days or DEFAULT_KEEP_DAYS
        return index < limit and _replaced(version) > now - days * DAY

    def history(self, output: Output, earlier_count: int) -> list[Item]:
        """Returns the elements of the history, newest first, with this many earlier versions."""
        shown = output.versions()[: earlier_count + (output.current is not None)]
        elements = []
        for version in shown:
            if version.is_deleted:
                seq = _replaced(version)
                deletion = {"change": "delete", "cursor": seq, "version_date": date_of(seq)}
                elements.append(deletion)
            elements.append(_element(version, version.previous in shown))
        if self.is_beyond_history(output, earlier_count):
            assert output.approved_version is not None
            # The service does not know when the version was replaced.
            elements.append(_element(output.approved_version, False) | {"replaced_date": None})
        return elements

    def is_beyond_history(self, output: Output, earlier_count: int) -> bool:
        """Returns True if the last approved version is older than this many earlier versions."""
        return output.approved_version in output.earlier[earlier_count:]

    def without_guess(self, output: Output, element: Item) -> Item:
        """Returns an element of the history without a guess of the service.

        If the older versions of a deleted output are gone, the service takes a version from the
        second of the creation for the first one.
        """
        for version in output.earlier:
            if version.seq == element["cursor"] and version.previous is not None:
                is_guess = date_of(version.created_seq) == date_of(version.seq)
                if is_guess and element["change"] == "create" and self._is_gone(output, version):
                    return element | {"change": "update", "fields": None}
        return element

    def _is_gone(self, output: Output, version: Version) -> bool:
        """Returns True if the output was deleted after this version."""
        return output.current is None or output.current.created_seq > version.created_seq

    def item_at(self, output: Output, position: int) -> tuple[Version | None, str]:
        """Returns the version at a position, and its item as JSON text as it was then."""
        for version in output.versions():
            end = version.replaced_seq
            if version.seq <= position and (end is None or position < end):
                return version, text_of(_item_at(version, position))
        return None, ""


def _element(version: Version, has_previous: bool) -> Item:
    previous, replaced = version.previous, version.replaced_seq
    fields: list[Item] | None = [] if previous is None else None
    if previous is not None and has_previous:
        fields = changed_fields(previous.item, version.item)
    return {
        "change": "create" if previous is None else "update",
        "cursor": version.seq,
        "version_date": date_of(version.seq),
        "replaced_date": None if replaced is None else date_of(replaced),
        "key_hash": version.item["key_hash"],
        "value_hash": version.item["value_hash"],
        "is_approved": version.approved,
        "fields": fields,
    }


def _item_at(version: Version, position: int) -> Item:
    """Returns the item. Before the last change of its approval, the approval was the opposite."""
    if position >= version.last_seq:
        return version.item
    state = {"is_approved": not version.approved, "update_date": date_of(version.seq)}
    return version.item | state


def changed_fields(before: Item, after: Item) -> list[Item]:
    """Returns the differences of two items of the test in the order of the paths."""
    found = [*_differences("", before["data"], after["data"])]
    found += _differences("$.tags", before["tags"], after["tags"])
    return sorted(found, key=lambda change: str(change["path"]))


def _differences(path: str, before: Any, after: Any) -> Iterator[Item]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            inner = f'["{name}"]' if "." in name else f".{name}" if path else name
            if name not in before:
                yield _field(path + inner, "added", None, after[name])
            elif name not in after:
                yield _field(path + inner, "removed", before[name], None)
            else:
                yield from _differences(path + inner, before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{path}[{index}]", *pair)
    elif (type(before), before) != (type(after), after):
        yield _field(path, "changed", before, after)


def _field(path: str, kind: str, before: Any, after: Any) -> Item:
    return {"path": path, "kind": kind, "before": before, "after": after}


def _state(version: Version | None) -> tuple[Sent, bool] | None:
    return None if version is None else (version.content, version.approved)


def _replaced(version: Version) -> int:
    assert version.replaced_seq is not None
    return version.replaced_seq


def _matches(item: Item, name: str, value: Any) -> bool:
    if name == "country":
        return bool(item["tags"].get("country") == value)
    return bool(item[{"job_id": "root_job_id", "url": "source_url"}.get(name, name)] == value)


def text_of(item: Item) -> str:
    """Returns JSON text in which the order of the members counts."""
    return json.dumps(item)


def date_of(seq: int) -> str:
    return datetime.fromtimestamp(seq // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def date_time_of(seq: int) -> str:
    """Returns the position as a date-time with all its digits."""
    return f"{date_of(seq)[:-1]}.{seq % SECOND:06}Z"
