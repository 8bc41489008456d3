"""The fields of the outputs of a job: their counts, and some outputs as examples of each.

Each kind of a field has a slot, a small number. The column ``outputs.fields`` is a bitmap of slots:
the fields with which an output is counted. So an output that is replaced or deleted is subtracted
exactly, and it is not parsed. A slot can get another meaning when no output has it any more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, count
from typing import NamedTuple

import msgspec

from gleanery.service.resources.fields.shapes import UNLISTED, Field, Names

MAX_NAMES = {0: 1, 1: 512, 2: 1024}
"""Fields of a job: the members of its values, and the members of objects in them."""
_MAX_EXAMPLES = 4
_OBJECT = "object"
_NOTHING: Mapping[Names, int] = {}
_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


class SlotCounts(NamedTuple):
    """A number of outputs, and how many of them have each slot."""

    outputs: int
    by_slot: Mapping[int, int]

    @classmethod
    def of(cls, bitmaps: Mapping[bytes, int]) -> SlotCounts:
        """Count numbers of outputs by bitmap. Equal bytes are counted first: bits are many."""
        once = [bitmap for bitmap, outputs in bitmaps.items() if outputs == 1]
        by_byte = Counter(chain.from_iterable(map(enumerate, once)))
        for bitmap, outputs in bitmaps.items():
            if outputs != 1:
                for place in enumerate(bitmap):
                    by_byte[place] += outputs
        by_slot = dict[int, int]()
        for (index, byte), outputs in by_byte.items():
            for bit in _BITS[byte]:
                slot = 8 * index + bit
                by_slot[slot] = by_slot.get(slot, 0) + outputs
        return cls(sum(bitmaps.values()), by_slot)


class CountedKind(msgspec.Struct, array_like=True, gc=False):
    """A kind of a field: its slot, the number of outputs that have it, and some of them."""

    slot: int
    output_count: int = 0
    examples: list[int] = []
    """Indexes of ``JobFields.identities``."""


class CountedField(msgspec.Struct, array_like=True):
    """A field of a job's outputs, and outputs that lack it although they could have it."""

    names: Names
    kinds: dict[str, CountedKind] = {}
    missing: list[int] = []

    @property
    def output_count(self) -> int:
        return sum(kind.output_count for kind in self.kinds.values())

    def is_used(self, slots: Collection[int]) -> bool:
        """Return True if an output has it, or if one of its kinds has one of these slots."""
        return any(kind.output_count or kind.slot in slots for kind in self.kinds.values())

    @property
    def object_count(self) -> int:
        """The number of outputs in which the field is an object with members."""
        return self.kinds[_OBJECT].output_count if _OBJECT in self.kinds else 0

    @property
    def slots(self) -> int:
        """A bitmap of the slots of all kinds."""
        return sum(1 << kind.slot for kind in self.kinds.values())


class _Room:
    """Where a job has few examples: an output finds these places without a walk over all fields."""

    def __init__(self, listed: Sequence[CountedField]) -> None:
        kinds = [kind for field in listed for kind in field.kinds.values()]
        self.slots = _bitmap(kind.slot for kind in kinds if len(kind.examples) < _MAX_EXAMPLES)
        """The kinds with few examples, as a bitmap of slots."""
        self.missing: dict[Names, dict[Names, int]] = {}
        """The fields that few examples lack, by the object that they are in. Each has its slots."""
        self.missing_slots = 0
        """The slots of all these fields."""
        self.objects = _bitmap(
            field.kinds[_OBJECT].slot
            for field in listed
            if len(field.names) == 1 and _OBJECT in field.kinds
        )
        """The kinds that are objects with members, as a bitmap of slots."""
        self.refused: set[bytes] = set()
        """Bitmaps of outputs that find no place."""
        for field in listed:
            if len(field.missing) < _MAX_EXAMPLES:
                self.open(field)

    def add_kind(self, field: CountedField, name: str) -> None:
        """Add a kind of a field, which may be new."""
        slot = field.kinds[name].slot
        if name == _OBJECT and len(field.names) == 1:
            self.objects |= 1 << slot
        self.open_kind(slot)
        if len(field.missing) < _MAX_EXAMPLES:
            self.open(field)

    def has_no_place_for(self, bits: int) -> bool:
        """Return True if an output certainly adds no example. If False, a search must decide."""
        return not bits & self.slots and bits & self.missing_slots == self.missing_slots

    def open_kind(self, slot: int) -> None:
        self.slots |= 1 << slot
        self.refused.clear()

    def open(self, field: CountedField) -> None:
        if field.names:
            slots = field.slots
            self.missing.setdefault(field.names[:-1], {})[field.names] = slots
            self.missing_slots |= slots
            self.refused.clear()

    def close(self, field: CountedField) -> None:
        self.missing_slots &= ~self.missing[field.names[:-1]].pop(field.names)


class JobFields(msgspec.Struct, array_like=True, dict=True):
    """The column ``field_counts``: the fields of the outputs of a job.

    Examples are the first outputs that came to have the field, as far as they still have it. The
    same holds for the outputs that lack it. Each output is added in its turn, so the examples do
    not depend on the batches. The work for an output depends on its own fields and on the members
    of its objects, not on all fields of the job.
    """

    counted: int = 0
    """Outputs that are counted."""
    listed: list[CountedField] = []
    examples: list[int] = []
    """Indexes of some outputs, whatever their fields are."""
    identities: list[str] = []

    @cached_property
    def by_names(self) -> dict[Names, CountedField]:
        return {field.names: field for field in self.listed}

    @cached_property
    def _kinds(self) -> dict[int, CountedKind]:
        return {kind.slot: kind for field in self.listed for kind in field.kinds.values()}

    @cached_property
    def _fields(self) -> dict[int, CountedField]:
        return {kind.slot: field for field in self.listed for kind in field.kinds.values()}

    @cached_property
    def _members(self) -> dict[Names, list[CountedField]]:
        """The members of each object."""
        members = defaultdict[Names, list[CountedField]](list)
        for field in self.listed:
            members[field.names[:-1]].append(field)
        return members

    @cached_property
    def _room(self) -> _Room:
        return _Room(self.listed)

    @cached_property
    def _name_counts(self) -> Counter[int]:
        return Counter(len(field.names) for field in self.listed)

    @cached_property
    def _indexes(self) -> dict[str, int]:
        return {identity: index for index, identity in enumerate(self.identities)}

    @cached_property
    def _removed(self) -> set[int]:
        """Indexes that are removed from examples. Their identities may not be needed any more."""
        return set()

    @cached_property
    def _free_slots(self) -> Iterator[int]:
        return (slot for slot in count() if slot not in self._kinds)

    @property
    def unlisted_count(self) -> int:
        """The number of outputs with fields that are not listed."""
        found = self.by_names.get(UNLISTED.names)
        return 0 if found is None else found.output_count

    def find_slot(self, field: Field) -> int | None:
        """Return the slot of a field, which is added if it fits."""
        found = self._find_field(field.names)
        if found is None:
            return None
        kind = found.kinds.get(field.kind)
        if kind is None:
            kind = found.kinds[field.kind] = CountedKind(next(self._free_slots))
            self._kinds[kind.slot], self._fields[kind.slot] = kind, found
            self._room.add_kind(found, field.kind)
        return kind.slot

    def _find_field(self, names: Names) -> CountedField | None:
        """Return a field, which is added if it and the object that it is in fit."""
        found = self.by_names.get(names)
        if found is None:
            depth = len(names)
            if self._name_counts[depth] == MAX_NAMES[depth]:
                return None
            if depth > 1 and self._find_field(names[:1]) is None:
                return None
            found = CountedField(names, {}, [*self._examples_without(names)])
            self._members[names[:-1]].append(found)
            self.listed.append(found)
            self.by_names[names] = found
            self._name_counts[depth] += 1
        return found

    def _examples_without(self, names: Names) -> Sequence[int]:
        """Return outputs that could have a new field: those that were stored before it."""
        if len(names) <= 1:
            return self.examples
        outer = self.by_names.get(names[:1])
        objects = None if outer is None else outer.kinds.get(_OBJECT)
        return () if objects is None else objects.examples

    def change_counts(self, changes: SlotCounts) -> None:
        """Add numbers of outputs; negative ones are subtracted."""
        self.counted += changes.outputs
        for slot, change in changes.by_slot.items():
            if slot in self._kinds:
                self._kinds[slot].output_count += change

    def change_example(self, identity: bytes, old: bytes | None, new: bytes) -> None:
        """Add an output with a new bitmap where examples are few; remove it where it was lost.

        ``old`` is the bitmap that is replaced; None if the output is added.
        """
        room = self._room
        if old is None and new in room.refused:
            return
        new_bits = int.from_bytes(new, "little")
        if old is None and room.has_no_place_for(new_bits) and self.examples[_MAX_EXAMPLES - 1 :]:
            return
        if old is None:
            lacked = self._lacked(new_bits)
        else:
            old_bits = int.from_bytes(old, "little")
            index = self._indexes.get(identity.hex())
            if index is not None:
                self._remove_example(index, old_bits, new_bits)
            lacked = self._newly_lacked(old_bits, new_bits)
        self._add_example(identity, new_bits, lacked)
        if old is None and not self._lacked(new_bits) and not new_bits & room.slots:
            room.refused.add(new)

    def _add_example(self, identity: bytes, bits: int, lacked: Sequence[CountedField]) -> None:
        room = self._room
        if len(self.examples) < _MAX_EXAMPLES:
            self._append(self.examples, identity)
        for slot in _slots_of(bits & room.slots):
            if self._append(self._kinds[slot].examples, identity):
                room.slots ^= 1 << slot
        for field in lacked:
            if self._append(field.missing, identity):
                room.close(field)

    def _lacked(self, bits: int) -> list[CountedField]:
        """Return the fields that an output could have and lacks, and that have room for it.

        The fields with room that it does not lack are its own fields.
        """
        missing = self._room.missing
        members = [missing.get((), _NOTHING)]
        members += [
            missing[self._fields[slot].names]
            for slot in _slots_of(bits & self._room.objects)
            if self._fields[slot].names in missing
        ]
        by_names = self.by_names
        return [
            by_names[names]
            for of_object in members
            for names, slots in of_object.items()
            if not bits & slots
        ]

    def _newly_lacked(self, old: int, new: int) -> list[CountedField]:
        """Return those of the fields that the output did not lack, or could not have before."""
        room = self._room
        found = {}
        for slot in _slots_of(old & ~new & room.missing_slots):
            field = self._fields[slot]
            objects = self.objects_of(field.names)
            if not new & field.slots and new & objects == objects:
                found[field.names] = field
        for slot in _slots_of(new & ~old & room.objects):
            for names, slots in room.missing.get(self._fields[slot].names, _NOTHING).items():
                if not new & slots:
                    found[names] = self.by_names[names]
        return [*found.values()]

    def _remove_example(self, index: int, old: int, new: int) -> None:
        """Remove an output from the examples of what the new bitmap does not have any more."""
        room = self._room
        for slot in _slots_of(old & ~new):
            kind = self._kinds.get(slot)
            if kind is not None and index in kind.examples:
                kind.examples.remove(index)
                self._removed.add(index)
                room.open_kind(slot)
            if room.objects >> slot & 1:
                for member in self._members[self._fields[slot].names]:
                    self._remove_missing(index, member)
        for slot in _slots_of(new & ~old):
            self._remove_missing(index, self._fields[slot])

    def _remove_missing(self, index: int, field: CountedField) -> None:
        if index in field.missing:
            field.missing.remove(index)
            self._removed.add(index)
            self._room.open(field)

    def objects_of(self, names: Names) -> int:
        """Return a bitmap that an output has if it could have a field: the slot of its object."""
        kinds = self.by_names[names[:1]].kinds
        return 1 << kinds[_OBJECT].slot if len(names) > 1 and _OBJECT in kinds else 0

    def _append(self, examples: list[int], identity: bytes) -> bool:
        """Add an output to examples that have room. Return True if these are full now."""
        text = identity.hex()
        index = self._indexes.setdefault(text, len(self.identities))
        if index == len(self.identities):
            self.identities.append(text)
        if index not in examples:
            examples.append(index)
        return len(examples) == _MAX_EXAMPLES

    def remove_examples(self, identities: Iterable[bytes]) -> None:
        """Remove outputs from all examples."""
        texts = (identity.hex() for identity in identities)
        removed = {self._indexes.pop(text) for text in texts if text in self._indexes}
        self._removed.update(removed)
        if removed:
            for examples in self._all_examples():
                if not removed.isdisjoint(examples):
                    examples[:] = [index for index in examples if index not in removed]
            self.__dict__.pop("_room", None)

    def _all_examples(self) -> Iterator[list[int]]:
        yield self.examples
        for field in self.listed:
            yield field.missing
            for kind in field.kinds.values():
                yield kind.examples

    def encode(self) -> str:
        self._compact()
        return msgspec.json.encode(self).decode()

    def _compact(self) -> None:
        """Remove the identities that no example refers to."""
        if not self._removed:
            return
        self._removed.clear()
        used = sorted({index for examples in self._all_examples() for index in examples})
        if len(used) == len(self.identities):
            return
        moved = {index: new for new, index in enumerate(used)}
        for examples in self._all_examples():
            examples[:] = [moved[index] for index in examples]
        self.identities = [self.identities[index] for index in used]
        self.__dict__.pop("_indexes", None)

    def forget_unused(self, seen: Collection[int], *, is_full: bool) -> list[CountedField]:
        """Remove the fields and kinds that no output has and no running run has seen.

        If the job is full, remove even fields that a run has seen. Return the removed fields.
        """
        kept_slots = () if is_full else seen
        unused = [field for field in self.listed if not field.is_used(kept_slots)]
        self.listed = [field for field in self.listed if field.is_used(kept_slots)]
        self._removed.update(range(len(self.identities)))
        for field in self.listed:
            field.kinds = {
                name: kind
                for name, kind in field.kinds.items()
                if kind.output_count or kind.slot in seen
            }
        for cached in (
            "by_names",
            "_kinds",
            "_fields",
            "_members",
            "_room",
            "_name_counts",
            "_free_slots",
        ):
            self.__dict__.pop(cached, None)
        return unused


def _bitmap(slots: Iterable[int]) -> int:
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return bits


def _slots_of(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
