"""Property-based tests of dates, host names, cursors and JSON text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gleanery.service.foundation.values import json_text, timestamps
from gleanery.service.resources.outputs.positions import Position
from gleanery.service.storage.group_lock import FIRST_SEQ
from gleanery.sessions.model import is_address, normalize_domain
from tests.support.service import Client, Service

EXAMPLES = int(os.environ.get("GLEANERY_FUZZ_EXAMPLES", "10"))
FEW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
MANY = settings(FEW, max_examples=5 * EXAMPLES)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = count(1)


@pytest.fixture(scope="module")
def own(service: Service) -> Iterator[Client]:
    """A client for all examples of this file. Each example has its own group or host."""
    with service.client() as made:
        made.store("group", *({"job_id": "j", "source_url": str(n), "data": {}} for n in range(5)))
        yield made


@pytest.fixture(scope="module")
def other(service: Service) -> Iterator[Client]:
    """A client of another organization, without data."""
    with service.client() as made:
        yield made


# --- dates ----------------------------------------------------------------------------------------

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)


def spelled(moment: datetime, offset: int, colon: str, t: str, digits: int) -> str:
    """A UTC date in another time zone, with this number of fraction digits."""
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=offset)))
    fraction = f"{there.microsecond:06}".ljust(digits, "0")[:digits]
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    zone = f"{sign}{minutes // 60:02}{colon}{minutes % 60:02}"
    whole = there.strftime("%Y-%m-%d").rjust(10, "0") + t + there.strftime("%H:%M:%S")
    return whole + (f".{fraction}" if digits else "") + zone


@pytest.mark.thorough
@MANY
@given(MOMENTS, OFFSETS, st.sampled_from(["", ":"]), st.sampled_from("Tt"), st.integers(6, 18))
def test_all_notations_of_a_date_are_one_value(
    moment: datetime, offset: int, colon: str, t: str, digits: int
) -> None:
    epoch = datetime(1970, 1, 1)
    expected = (moment - epoch) // timedelta(microseconds=1)
    assert timestamps.parse(spelled(moment, offset, colon, t, digits)) == expected
    whole_seconds = timestamps.render_microseconds(expected)
    assert timestamps.render_microseconds(timestamps.parse(whole_seconds)) == whole_seconds


@FEW
@given(st.integers(0, timestamps.MAX_SECONDS), OFFSETS)
def test_an_expiry_date_is_returned_as_stored(own: Client, seconds: int, offset: int) -> None:
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    try:
        written = spelled(moment, offset, ":", "T", 0)
    except OverflowError:  # in that time zone the year has no four digits
        written = timestamps.render(seconds)
    domain = f"h{next(numbers)}.example"
    cookie = {"domain": domain, "name": "n", "value": "v", "expires": written}
    assert own.post("/v1/cookies", json=[cookie]).status_code == 200
    [listed] = own.get("/v1/cookies", params={"domain": domain}).json()
    assert listed["expires"] == seconds
    again = own.post("/v1/cookies", json=[listed])
    assert again.json() == {"created": 0, "updated": 0, "unchanged": 1}


# --- hosts ----------------------------------------------------------------------------------------

LABELS = st.sampled_from(["a", "b", "ab", "B", "x-y", "_c", "é", "1", "127"])
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
DOMAINS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "."]),
    NAMES | st.sampled_from(["127.0.0.1", "0.0.1", "[::1]"]),
    st.sampled_from(["", ".own"]),
).filter(lambda domain: "]." not in domain)


def is_seen(domain: str, host: str, is_host_only: bool) -> bool:
    """Domain matching of RFC 6265, section 5.1.3. A cookie is host-only if its client says so."""
    of, at = (
        normalize_domain(domain).removeprefix("."),
        normalize_domain(host).removeprefix("."),
    )
    is_below = at.endswith(f".{of}") and not is_address(at)
    return of == at or (is_below and not is_host_only)


@FEW
@given(
    st.dictionaries(DOMAINS.map(normalize_domain), st.booleans(), min_size=1, max_size=6),
    DOMAINS,
)
@example({"a.own": False, "b.a.own": True, "own": True}, "b.a.own")
def test_a_cookie_is_shown_to_its_hosts_and_to_no_other(
    own: Client, domains: dict[str, bool], host: str
) -> None:
    name = f"cookie {next(numbers)}"
    stated = {domain: states and not domain.startswith(".") for domain, states in domains.items()}
    cookies = [
        {"domain": domain, "name": name, "value": "v"} | ({"hostOnly": True} if states else {})
        for domain, states in stated.items()
    ]
    assert own.post("/v1/cookies", json=cookies).status_code == 200
    listed = own.get("/v1/cookies", params={"domain": host}).json()
    shown = {cookie["domain"] for cookie in listed if cookie["name"] == name}
    assert shown == {domain for domain, states in stated.items() if is_seen(domain, host, states)}


@FEW
@given(DOMAINS)
def test_all_notations_of_a_host_are_one_record(own: Client, domain: str) -> None:
    name = f"key {next(numbers)}"
    spellings = (domain, domain.upper(), domain.replace(".", "。"), normalize_domain(domain))
    for number, spelling in enumerate(spellings):
        entry = {"domain": spelling, "key": name, "value": "v"}
        answer = own.post("/v1/local-storage", json=[entry])
        assert answer.json()["unchanged"] == bool(number), spelling


# --- cursors --------------------------------------------------------------------------------------

PAGED = ("/v1/outputs/group", "/v1/changes/group", "/v1/groups", "/v1/audit")
CURSORS = (
    st.integers(-5, 2**64).map(str)
    | st.floats().map(str)
    | st.text(st.sampled_from("0123456789+-_.eE ٣"), max_size=20)
    | st.text(max_size=8).filter(lambda text: text.isprintable())
)


@FEW
@given(st.sampled_from(PAGED), CURSORS)
def test_a_cursor_is_a_decimal_number_or_rejected(own: Client, path: str, cursor: str) -> None:
    is_plain = cursor.isascii() and cursor.isdigit() and str(int(cursor)) == cursor
    is_number = is_plain and int(cursor) < 2**63
    answer = own.get(path, params={"cursor": cursor})
    assert answer.status_code in ((200, 410) if is_number else (422,)), answer.text
    if not is_number:
        assert [fault["loc"] for fault in answer.json()["detail"]] == [["query", "cursor"]]


@FEW
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_pages_of_any_size_add_up_to_the_group(own: Client, sizes: list[int]) -> None:
    found, cursor, size = [], 0, iter(sizes)
    while cursor is not None:
        query = {"limit": next(size, 2), "cursor": cursor}
        page = own.get("/v1/outputs/group", params=query).json()
        found += [item["id"] for item in page["items"]]
        cursor = page["metadata"]["next_cursor"]
    assert found == [item["id"] for item in own.items("group", limit=1000)]


@FEW
@given(st.integers(0, 2**53))
def test_a_cursor_shows_nothing_to_another_organization(
    own: Client, other: Client, cursor: int
) -> None:
    """The other organization uses it for its own group of the same name."""
    for path in ("/v1/outputs/group", "/v1/changes/group"):
        assert own.get(path, params={"cursor": cursor}).status_code in (200, 410)
        answer = other.get(path, params={"cursor": cursor})
        unknown = other.get(path.replace("group", "nowhere"), params={"cursor": cursor})
        assert (answer.status_code, answer.content) == (404, unknown.content)


@MANY
@given(st.integers(0, 2**41 * 1000 - 2000), st.integers(0, 40_000), st.integers(0, 715))
def test_a_position_survives_its_encoding_as_a_cursor(
    after_2020: int, started_day: int, days: int
) -> None:
    """Holds until 2089, for clients that pause for less than 716 days."""
    seq, started = FIRST_SEQ + after_2020, FIRST_SEQ + started_day * 86_400 * timestamps.SECOND
    client = Position(0, started)
    for position in (client, client.before(seq), client.at(seq)):
        read = Position.from_cursor(position.cursor, started + days * 86_400 * timestamps.SECOND)
        assert read in (position, Position(0, started))
        assert read.cursor == position.cursor < 2**53
    assert client.before(seq).seq <= seq <= client.at(seq).seq < seq + 1000
    assert client.cursor <= client.before(seq).cursor <= client.at(seq).cursor


# --- JSON -----------------------------------------------------------------------------------------

NUMBERS = (
    st.integers(-(10**25), 10**25)
    | st.integers(-(2**53) - 3, 2**53 + 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(0, 400).map(lambda power: 10**power)
    | st.integers(-40, 40).map(lambda power: float(f"1e{power}"))
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def meaning(value: Any) -> Any:
    """Normalizes a JSON value: the order of members does not matter, and 1 equals 1.0."""
    if isinstance(value, dict):
        return "object", frozenset((name, meaning(member)) for name, member in value.items())
    if isinstance(value, list):
        return "array", tuple(meaning(element) for element in value)
    if isinstance(value, bool) or value is None:
        return "word", str(value)
    if isinstance(value, str):
        return "string", value
    return "number", Decimal(repr(value)) + 0  # and -0.0 is 0


def documented(value: Any) -> str:
    """The canonical text as decision 0004 describes it."""
    match value:
        case dict():
            members = sorted(value.items())
            return f"{{{','.join(f'{documented(k)}:{documented(v)}' for k, v in members)}}}"
        case list():
            return f"[{','.join(map(documented, value))}]"
        case bool() | None | str():
            return json.dumps(value, ensure_ascii=False)
    number = Decimal(repr(value))
    if abs(number) < 2**53 and number == int(number):
        return str(int(number))
    if isinstance(value, int) and (abs(value) >= 10**309 or Decimal(repr(float(value))) != value):
        return str(value)
    if Decimal("0.00001") <= abs(number) < 10**16:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = number.normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(rest)
    fraction = f".{''.join(rest)}" if rest else ""
    return f"{'-' * sign}{first}{fraction}e{power:+d}"


@MANY
@given(VALUES)
@example(2**53)
@example(2**60)
@example([2**63, 2**64, 2**70, 10**16, 1152921504606847000])
@example([2**70, 1.5e-7, 0.00001, 1e16])
def test_the_canonical_text_is_the_documented_one(value: Any) -> None:
    assert json_text.canonical(value).decode() == documented(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            [2**53, 2**53 + 1, 2**60, 2**64 - 1, 10**16, 10**22, 1.5, 1e16, 1e-7, "é"],
            "4e8325846f6bec7aba6b0a81adaceb65e2ead1e8c7af7dad18881bf685840656",
        ),
        (
            [2**64, -(2**70), 1.5, 1e16],
            "0d0e543c86550f04757e17faa9a4d27204fe22ed6f61e735d74edb6fa55392f1",
        ),
    ],
)
def test_a_value_hash_has_not_changed(value: Any, expected: str) -> None:
    """Otherwise every output with such numbers would be an update after an upgrade."""
    assert json_text.canonical_hash(value).hex() == expected


@MANY
@given(st.decimals(allow_nan=False, allow_infinity=False), st.sampled_from("eE"))
def test_a_number_is_kept_or_rejected(number: Decimal, letter: str) -> None:
    """It never becomes zero or infinite."""
    text = str(number).replace("E", letter).lower() if letter == "e" else str(number)
    try:
        [found] = json_text.decode(f"[{text}]".encode())
    except json_text.InvalidJson:
        assert abs(number) > Decimal("1.7e308") or abs(number) < Decimal("3e-324")
    else:
        assert (found == 0) == (number == 0)
        assert abs(Decimal(found) - number) <= abs(number) / 2**52 + Decimal("5e-324")


@MANY
@given(VALUES, VALUES)
def test_values_have_equal_hashes_if_and_only_if_they_are_equal(one: Any, other: Any) -> None:
    are_same = meaning(one) == meaning(other)
    assert (json_text.canonical_hash(one) == json_text.canonical_hash(other)) == are_same
    padded = json.dumps({"z": one, "a": [one]}, indent=1)
    assert json_text.canonical(json_text.decode(padded.encode())) == json_text.canonical(
        {"a": [one], "z": one}
    )


@FEW
@given(st.dictionaries(TEXT, VALUES, max_size=3), st.dictionaries(TEXT, VALUES, max_size=3))
def test_data_is_returned_as_sent_and_only_another_value_is_an_update(
    own: Client, first: dict[str, Any], second: dict[str, Any]
) -> None:
    group = f"json {next(numbers)}"
    output = {"job_id": "j", "source_url": "u"}
    own.store(group, output | {"data": first})
    [item] = own.items(group)
    assert json.dumps(item["data"]) == json.dumps(first)
    change = own.store(group, output | {"data": second})["results"][0]["change"]
    assert change == ("unchanged" if meaning(first) == meaning(second) else "updated")
