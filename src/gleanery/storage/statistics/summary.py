"""Sums over shapes: how often each field is filled, and with which kinds of values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

from gleanery.storage.statistics.shapes import MAX_PATHS, OTHER, UNFILLED_KINDS, Field, Names

# Data with ids as names of members can have millions of fields.
_MAX_NAMES = 10_000
ShapeFields = Mapping[int, list[Field] | None]


class FieldCounts(NamedTuple):
    """A field, and the number of outputs in which it has each kind."""

    names: Names
    kinds: Counter[str]

    @property
    def filled(self) -> int:
        return sum(count for kind, count in self.kinds.items() if kind not in UNFILLED_KINDS)


class Summary:
    """The fields of outputs, of one job or of several."""

    def __init__(self) -> None:
        self.outputs = 0
        """All outputs, also those whose shape is not known."""
        self.counted = 0
        """Outputs whose fields are known. The rates refer to them."""
        self.kinds = defaultdict[Names, Counter[str]](Counter)
        self.other_kinds = defaultdict[Names, set[str]](set)
        """Kinds that outputs of the shape ``OTHER`` may have; how many do is not known."""
        self.has_unknown_fields = False
        """True if there are outputs about whose fields nothing is known."""

    def add(self, counts: Mapping[int, int], fields: ShapeFields) -> None:
        """Adds outputs by shape, those of the most frequent shapes first."""
        for shape, count in sorted(counts.items(), key=lambda item: -item[1]):
            known = fields.get(shape)
            if count <= 0:
                continue
            self.outputs += count
            if shape == OTHER or known is None:
                self._add_other(known)
                continue
            self.counted += count
            for names, kind in known:
                if names in self.kinds or len(self.kinds) < _MAX_NAMES:
                    self.kinds[names][kind] += count

    def _add_other(self, known: list[Field] | None) -> None:
        if known is None:
            self.has_unknown_fields = True
        for names, kind in known or ():
            self.other_kinds[names].add(kind)

    def add_unknown(self, count: int) -> None:
        """Adds outputs whose shape is not known: they were stored before shapes were counted."""
        self.outputs += count
        self.has_unknown_fields = self.has_unknown_fields or count > 0

    def fields(self) -> list[FieldCounts]:
        """Returns the fields by name; if they are too many, those that most outputs have."""
        most = sorted(self.kinds.items(), key=lambda item: (-item[1].total(), item[0]))
        return [FieldCounts(*item) for item in sorted(most[:MAX_PATHS], key=itemgetter(0))]

    def rate(self, filled: int) -> float:
        return round(filled / self.counted, 4) if self.counted else 0.0

    def fill_rates(self) -> dict[Names, float]:
        return {field.names: self.rate(field.filled) for field in self.fields()}
