"""Parsers of dates, host names, JSON text and countries."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pycountry
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gleanery.service.foundation.values import countries, json_text, timestamps
from gleanery.sessions.model import normalize_domain

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)
# JSON texts without white space, in every notation of numbers and characters.
NUMBER_TEXTS = (
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
    | st.from_regex(r"-?[1-9](0{0,6}|\.[0-9])[eE][0-9]{1,2}", fullmatch=True)
    | st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:.17g}")
)
CHARACTER_TEXTS = (
    st.characters(exclude_categories=["Cs"], exclude_characters='"\\', min_codepoint=32)
    | st.integers(0, 0xD7FF).map(lambda code: f"\\u{code:04x}")
    | st.sampled_from(["\\/", "\\n", "\\b", '\\"', "\\\\", "\\ud83d\\ude00"])
)
STRING_TEXTS = st.lists(CHARACTER_TEXTS, max_size=8).map(lambda parts: f'"{"".join(parts)}"')
JSON_TEXTS = st.recursive(
    st.sampled_from(["null", "true", "false"]) | NUMBER_TEXTS | STRING_TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: f"[{','.join(parts)}]")
        | st.dictionaries(STRING_TEXTS, inner, max_size=4).map(
            lambda members: "{{{}}}".format(",".join(map(":".join, members.items())))
        )
    ),
    max_leaves=20,
)
ZONES = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59)).map(
    lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
)


# --- timestamps ---------------------------------------------------------------------------------


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES))
def test_every_iso_date_time_is_read_as_datetime_reads_it(moment: datetime) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert timestamps.parse(moment.isoformat()) == (moment - epoch) // timedelta(microseconds=1)


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_a_rendered_date_is_parsed_back(seconds: int) -> None:
    text = timestamps.render(seconds)
    assert len(text) == 20
    assert timestamps.parse(text) == seconds * timestamps.SECOND


@given(st.text())
def test_any_other_text_is_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        timestamps.parse(text)


# --- JSON ---------------------------------------------------------------------------------------


@given(JSON_VALUES)
def test_an_encoded_value_is_decoded_back(value: Any) -> None:
    assert json_text.decode(json_text.encode(value)) == value


@given(JSON_VALUES)
def test_the_canonical_form_does_not_depend_on_the_notation(value: Any) -> None:
    def turned(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {name: turned(inner[name]) for name in reversed(inner)}
        return [turned(element) for element in inner] if isinstance(inner, list) else inner

    respelled = json.dumps(turned(value), indent=2, ensure_ascii=True).encode()
    canonical = json_text.canonical(value)
    assert json_text.canonical(json_text.decode(respelled)) == canonical
    assert json_text.canonical(json_text.decode(canonical)) == canonical


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_rejected(text: bytes) -> None:
    with contextlib.suppress(json_text.InvalidJson):
        json_text.encode(json_text.decode(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9007199254740993.0", 9007199254740993),
        ("9007199254740993e0", 9007199254740993),
        ("123456789012345678901234567890.0", 123456789012345678901234567890),
        ("1e300", 1e300),
        ("1.5", 1.5),
        ("-0.0", 0.0),
        ("0.1000000000000000055511151231257827", 0.1),
    ],
)
def test_numbers_keep_their_value(text: str, value: float) -> None:
    assert json_text.decode(text.encode()) == value


@pytest.mark.thorough
@given(JSON_TEXTS)
@example('{"a":[1e15,25e10]}')
@example("123456789012345671e200")
def test_a_stored_text_has_at_most_twice_the_bytes_that_were_sent(text: str) -> None:
    sent = text.encode()
    with contextlib.suppress(json_text.InvalidJson):
        value = json_text.decode(sent)
        stored = json_text.encode(value)
        assert len(stored) <= 2 * len(sent)
        assert repr(json_text.decode(stored)) == repr(value)


@given(NUMBER_TEXTS)
def test_an_integer_is_never_stored_as_another_integer(text: str) -> None:
    with contextlib.suppress(json_text.InvalidJson):
        stored = json_text.encode(json_text.decode(text.encode())).decode()
        exact, double = Decimal(text), float(text)
        is_a_double = Decimal(stored) == Decimal(repr(double))
        is_integral = abs(exact) >= 2**53 and exact == exact.to_integral_value()
        assert Decimal(stored) == exact or is_a_double
        if is_integral and Decimal(stored) != exact:
            assert exact == Decimal(f"{double:.16e}")  # the 17 digits that identify a double


@pytest.mark.parametrize(
    "text", ["123456789012345671e290", "-123456789012345671E+290", "1.00000000000000000001e300"]
)
def test_an_exponent_hides_no_digits_that_would_be_lost(text: str) -> None:
    with pytest.raises(json_text.InvalidJson, match="exponent"):
        json_text.decode(text.encode())


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1e15", "1e15"),
        ("1000000.0", "1e6"),
        ("-1.5e15", "-15e14"),
        ("1e4", "1e4"),
        ("1e3", "1000.0"),
        ("1e16", "1e+16"),
        ("1.0000000000000001e+300", "1e+300"),
        ('["0000.0",1e5,123456789012345678901]', '["0000.0",1e5,123456789012345678901]'),
    ],
)
def test_a_float_is_stored_in_a_short_form(text: str, stored: str) -> None:
    assert json_text.encode(json_text.decode(text.encode())).decode() == stored


def count_values(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + sum(map(count_values, value.values() if isinstance(value, dict) else value))
    return 1


@pytest.mark.thorough
@given(JSON_VALUES, st.sampled_from([None, 1]), st.integers(1, 40))
def test_values_are_counted_exactly(value: Any, indent: int | None, step: int) -> None:
    text, count = json.dumps(value, indent=indent).encode(), count_values(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_COUNTED_BYTES", step)
        assert json_text.has_more_values(text, count - 1) or len(text) < count
        assert not json_text.has_more_values(text, count)


def test_depth_is_bounded() -> None:
    deepest = b"[" * json_text.MAX_DEPTH + b"]" * json_text.MAX_DEPTH
    json_text.decode(deepest)
    with pytest.raises(json_text.InvalidJson):
        json_text.decode(b"[" + deepest + b"]")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_a_hash_depends_on_where_each_part_ends(parts: list[str]) -> None:
    joined = json_text.hash_parts("".join(parts), *[""] * (len(parts) - 1)) if parts else b""
    assert (json_text.hash_parts(*parts) == joined) == ("".join(parts[1:]) == "" and bool(parts))


# --- host names ---------------------------------------------------------------------------------


@given(st.text(max_size=80))
def test_any_host_is_rejected_or_normalized_once(text: str) -> None:
    try:
        once = normalize_domain(text)
    except ValueError:
        return
    assert once.isascii()
    assert normalize_domain(once) == once


# --- countries ----------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "names",
    [
        ("US", "USA", "usa", "U.S.A.", "United States", "United States of America"),
        ("GB", "UK", "United Kingdom", "Great Britain", "u.k."),
        ("RU", "Russia", "Russian Federation"),
        ("TR", "Turkey", "Türkiye", "turkiye"),
        ("KR", "South Korea", "Korea, Republic of"),
        ("CZ", "Czechia", "Czech Republic"),
        ("NL", "Netherlands", "The Netherlands", "Holland"),
        ("VN", "Vietnam", "Viet Nam"),
        ("BO", "Bolivia", "Bolivia, Plurinational State of"),
        ("CI", "Ivory Coast", "Côte d'Ivoire", "Cote d’Ivoire"),
        ("TW", "Taiwan", "Republic of China", "Chinese Taipei"),
        ("IR", "Iran", "Iran, Islamic Republic of"),
        ("VA", "Vatican", "Vatican City State", "Holy See", "The Holy See"),
        ("XK", "Kosovo", "XKX", "Republic of Kosovo"),
        ("CN", "China", "PRC", "P.R.C.", "People's Republic of China", "Mainland China"),
        ("IE", "Ireland", "Republic of Ireland", "Éire"),
        ("CD", "DR Congo", "Congo-Kinshasa", "Congo (DRC)"),
        ("CG", "Congo", "Republic of the Congo", "Congo, Republic of the"),
        ("GM", "Gambia", "The Gambia"),
        ("HK", "Hong Kong", "Hong Kong SAR China"),
        ("MM", "Myanmar", "Myanmar (Burma)"),
        ("PS", "Palestinian Territories", "State of Palestine"),
        ("VI", "U.S. Virgin Islands", "United States Virgin Islands"),
        ("CV", "Cabo Verde", "Cape Verde"),
    ],
    ids=lambda names: names[0],
)
def test_all_names_of_a_country_have_one_key(names: tuple[str, ...]) -> None:
    assert {countries.country_key(name) for name in names} == {names[0]}


@pytest.mark.parametrize("code", ["DE-BY", " DE-BY", "de-by\t", "\u00a0DE-BY\n"])
def test_white_space_around_a_region_does_not_count(code: str) -> None:
    assert countries.region_key(code) == "DE-BY"


def test_every_name_of_the_standard_belongs_to_one_country() -> None:
    for country in pycountry.countries:
        names = [country.alpha_2, country.alpha_3, country.name]
        names += [getattr(country, kind, country.name) for kind in ("common_name", "official_name")]
        assert {countries.country_key(name) for name in names} == {country.alpha_2}


def test_every_alias_belongs_to_one_country() -> None:
    spellings = [alias for aliases in countries._ALIASES.values() for alias in aliases]
    assert len(spellings) == len(set(spellings))
    for code, aliases in countries._ALIASES.items():
        assert {countries.country_key(alias) for alias in aliases} == {code}


@given(st.text(max_size=120))
def test_any_country_has_a_stable_key(name: str) -> None:
    key = countries.country_key(name)
    if key is not None:
        assert countries.country_key(name.swapcase().swapcase()) is not None
        assert "\0" not in key
