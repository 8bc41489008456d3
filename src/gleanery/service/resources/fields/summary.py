"""Sums over jobs: how often each field is filled, and with which kinds of values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from gleanery.service.resources.fields.documents import JobFields
from gleanery.service.resources.fields.scrapes import Scrape
from gleanery.service.resources.fields.shapes import UNFILLED_KINDS, UNLISTED, Names

_MAX_PATHS = 256  # fields that are shown
# Data with ids as names of members can have millions of fields.
_MAX_NAMES = 10_000


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
        """All outputs, including those that are not counted."""
        self.counted = 0
        """Outputs whose fields are known. The rates refer to them."""
        self.kinds = defaultdict[Names, Counter[str]](Counter)
        self.has_unknown_fields = False
        """True if there are outputs with fields about which nothing is known."""

    def add_job(self, fields: JobFields) -> None:
        """Add the outputs of a job."""
        counts = (
            (field.names, {name: kind.output_count for name, kind in field.kinds.items()})
            for field in fields.listed
        )
        self._add(fields.counted, counts)

    def add_scrape(self, scrape: Scrape) -> None:
        """Add the outputs that a scrape has seen."""
        self._add(scrape.counted, scrape.fields)
        self.add_unknown(scrape.outputs - scrape.counted)

    def _add(self, outputs: int, fields: Iterable[tuple[Names, Mapping[str, int]]]) -> None:
        """Add outputs by field, the most frequent fields first."""
        self.outputs += outputs
        self.counted += outputs
        for names, kinds in sorted(fields, key=lambda field: -sum(field[1].values())):
            filled = {kind: count for kind, count in kinds.items() if count > 0}
            if names == UNLISTED.names:
                self.has_unknown_fields = self.has_unknown_fields or bool(filled)
            elif filled and (names in self.kinds or len(self.kinds) < _MAX_NAMES):
                self.kinds[names].update(filled)

    def add_unknown(self, count: int) -> None:
        """Add outputs that are not counted: an older program has stored them."""
        self.outputs += count
        self.has_unknown_fields = self.has_unknown_fields or count > 0

    def fields(self) -> list[FieldCounts]:
        """Return the fields by name; if they are too many, those that most outputs have."""
        most = sorted(self.kinds.items(), key=lambda item: (-item[1].total(), item[0]))
        return [FieldCounts(*item) for item in sorted(most[:_MAX_PATHS], key=itemgetter(0))]

    def rate(self, filled: int) -> float:
        return round(filled / self.counted, 4) if self.counted else 0.0

    def fill_rates(self) -> dict[Names, float]:
        """Return the rate of every field, including those that are not shown."""
        fields = (FieldCounts(*item) for item in self.kinds.items())
        return {field.names: self.rate(field.filled) for field in fields}
