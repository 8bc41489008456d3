"""Every pair of formats: a conversion keeps a state, or lists the difference in its losses."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from gleanery import sessions
from gleanery.sessions import Cookie, Loss, SessionState
from gleanery.sessions.cookiejar import from_cookiejar, to_cookiejar
from gleanery.sessions.document import Format
from gleanery.sessions.formats import FORMATS
from tests.support.session_strategies import URLS, number_of, states

EXAMPLES = int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "20"))
FEW = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
FIELDS = tuple(Cookie.__dataclass_fields__)


class Converted(NamedTuple):
    """The state after it was written and read, and all losses on this way."""

    state: SessionState
    losses: Sequence[Loss]


def convert(chosen: Format, state: SessionState, url: str) -> Converted:
    """Writes and reads the state in one format, in each form that a caller may use."""
    page = url if chosen.needs_url else None
    written = sessions.write(state, chosen.name, page)
    if isinstance(written.content, str) and not written.content.strip():
        return Converted(SessionState(), written.losses)  # there is nothing to read
    found = sessions.read(written.text, chosen.name, page)
    for same in (written.content, written.text.encode(), f"\ufeff{written.text}".encode("utf-16")):
        assert sessions.read(same, chosen.name, page) == found
    if found.state != SessionState():
        assert sessions.read(written.text, url=page) == found
    if not isinstance(written.content, str):
        assert json.loads(written.text) == written.content
    return Converted(found.state, (*written.losses, *found.losses))


def convert_in_jar(state: SessionState, url: str) -> Converted:
    """Puts the cookies into a jar of http.cookiejar, and takes them out again."""
    written = to_cookiejar(state)
    found = from_cookiejar(written.content)
    return Converted(found.state, (*written.losses, *found.losses))


CONVERSIONS: dict[str, Callable[[SessionState, str], Converted]] = {
    "cookiejar": convert_in_jar,
    **{name: partial(convert, chosen) for name, chosen in FORMATS.items()},
}


def assert_explained(before: SessionState, converted: Converted) -> None:
    """Asserts that the losses are exactly the differences.

    A cookie that is left out may also be counted under the fields that it would have lost.
    """
    counts = Counter[str]()
    for loss in converted.losses:
        counts[loss.subject] += loss.records
    pairs = matched_cookies(before.cookies, converted.state.cookies)
    left_out = len(before.cookies) - len(pairs)
    assert counts.pop("cookie", 0) == left_out
    for name in FIELDS:
        changed = sum(getattr(one, name) != getattr(other, name) for one, other in pairs)
        assert changed <= counts.pop(name, 0) <= changed + left_out, name
    kept = set(before.local_storage) & set(converted.state.local_storage)
    assert counts.pop("local_storage", 0) == len(before.local_storage) - len(kept)
    assert len(kept) == len(converted.state.local_storage)
    assert not counts


def matched_cookies(
    before: Iterable[Cookie], after: Sequence[Cookie]
) -> list[tuple[Cookie, Cookie]]:
    """Returns the cookies that have the same mark."""
    numbered = {number_of(cookie.name, cookie.value): cookie for cookie in after}
    assert len(numbered) == len(after)
    found = [(one, numbered.get(number_of(one.name, one.value))) for one in before]
    pairs = [(one, other) for one, other in found if other is not None]
    assert len(pairs) == len(after)
    return pairs


@settings(FEW, max_examples=max(1, EXAMPLES // 6))
@given(states(), st.sampled_from(URLS))
def test_a_format_keeps_a_state_or_lists_the_difference(state: SessionState, url: str) -> None:
    for name, conversion in CONVERSIONS.items():
        note(name)
        assert_explained(state, conversion(state, url))


@pytest.mark.thorough
@pytest.mark.parametrize("first", CONVERSIONS)
@FEW
@given(states(), st.sampled_from(URLS))
def test_each_pair_of_formats_keeps_a_state_or_lists_the_difference(
    first: str, state: SessionState, url: str
) -> None:
    between = CONVERSIONS[first](state, url)
    assert_explained(state, between)
    assert CONVERSIONS[first](between.state, url) == Converted(between.state, ())
    for second, conversion in CONVERSIONS.items():
        note(second)
        assert_explained(between.state, conversion(between.state, url))
