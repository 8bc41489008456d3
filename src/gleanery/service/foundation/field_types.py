"""Types of the values in requests: their validation and their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from gleanery.common import suggestions
from gleanery.service.foundation.values import countries, timestamps
from gleanery.sessions import FORMATS, browser_rules, formats
from gleanery.sessions.model import (
    DOMAIN_PATTERN,
    MAX_DOMAIN_LENGTH,
    ORIGIN_PATTERN,
    normalize_domain,
    normalize_origin,
)

MAX_INT64 = 2**63 - 1
MAX_NAME_LENGTH = 200
_NO_EXPIRY = -1
_EXPECTED_EXPIRY = (
    "expected a date-time such as 2030-01-01T00:00:00Z, or a number of seconds since 1970 such as "
    "1893456000; -1 is no expiry"
)
# The words of cookie files and of browser extensions.
_SAME_SITE = {
    "strict": "Strict",
    "lax": "Lax",
    "none": "None",
    "no_restriction": "None",
    "unspecified": "",
}
_SITE_MEMBERS = ("topLevelSite", "sourceOrigin")  # of browsers and of Puppeteer
_ANCESTOR_MEMBER = "hasCrossSiteAncestor"
_EXPECTED_PARTITION = (
    "expected a site such as https://shop.example, or an object with topLevelSite and "
    "hasCrossSiteAncestor"
)


def as_validation_error(type_: str, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a check, so that its ValueError becomes a validation error of this type."""

    def validate(value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise PydanticCustomError(type_, "{reason}", {"reason": str(error)}) from None

    return validate


def _pattern_check(pattern: str, reason: str) -> Callable[[str], str]:
    # Python's $ also matches before a final line feed; \Z does not.
    regex = re.compile(pattern.removesuffix("$") + r"\Z")

    def check(value: str) -> str:
        if not regex.match(value):
            raise ValueError(reason)
        return value

    return check


def _absence_check(characters: str, reason: str) -> Callable[[str], str]:
    """Reject text with one of these characters; much faster than a pattern for a long text."""

    def check(value: str) -> str:
        if any(character in value for character in characters):
            raise ValueError(reason)
        return value

    return check


def _parse_whole_number(value: str) -> int:
    """Parse ASCII digits. Python's int() also accepts underscores and other scripts.

    The bounds of the parameter reject negative and large numbers, because their messages name them.
    """
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,99}", value):
        raise ValueError("expected a whole number in digits")
    return int(value)


def float_to_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_expiry(value: Any) -> int | None:
    """Return seconds since 1970 from a date-time or a number; None for no expiry."""
    if value is None or value == _NO_EXPIRY:
        return None
    if isinstance(value, str) and timestamps.is_date_time(value):
        return timestamps.parse(value) // timestamps.SECOND
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= timestamps.MAX_SECONDS:
        raise ValueError(_EXPECTED_EXPIRY)
    return int(value)  # browsers write fractions of a second


def _parse_same_site(text: str) -> str:
    """Return the value as in a Set-Cookie header; empty if the browser has none."""
    try:
        return _SAME_SITE[text.lower()]
    except KeyError:
        names = ", ".join(_SAME_SITE)
        raise ValueError(f"expected one of {names}, in any case") from None


class GivenPartition(NamedTuple):
    """The partition of a cookie, as far as the client gives it."""

    site: str
    """Empty for a cookie without a partition."""
    has_cross_site_ancestor: bool | None


def _parse_partition_key(value: Any) -> GivenPartition | None:
    """Return the partition from a site or from the object of browsers and their tools."""
    if value is None:
        return None
    if isinstance(value, str):
        return GivenPartition(_parse_site(value), None)
    if not isinstance(value, dict) or not value.keys() <= {*_SITE_MEMBERS, _ANCESTOR_MEMBER}:
        raise ValueError(_EXPECTED_PARTITION)
    given = (value.get(name) for name in _SITE_MEMBERS)
    sites = {_parse_site(site) for site in given if site is not None}
    ancestor = value.get(_ANCESTOR_MEMBER)
    if len(sites) > 1 or not isinstance(ancestor, bool | None):
        raise ValueError(_EXPECTED_PARTITION)
    return GivenPartition(sites.pop() if sites else "", ancestor)


def _parse_site(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(_EXPECTED_PARTITION)
    try:
        return normalize_origin(value) if value else ""
    except ValueError:
        raise ValueError(_EXPECTED_PARTITION) from None


class GivenTime(NamedTuple):
    """A time in the past of an output: a cursor, or microseconds since 1970."""

    cursor: int | None
    microseconds: int


def _parse_version_time(text: str) -> GivenTime:
    """Parse a cursor or a date. A date-time without a fraction is the end of its second.

    The dates that the service returns have no fraction, too.
    """
    if text.isdecimal():
        cursor = _parse_whole_number(text)
        if cursor > MAX_INT64:
            raise ValueError("a cursor is at most 2^63-1")
        return GivenTime(cursor, 0)
    try:
        time = timestamps.parse(text)
    except ValueError as error:
        is_form = str(error).startswith("expected")
        raise ValueError(f"{error}, or a cursor" if is_form else str(error)) from None
    is_second = timestamps.is_date_time(text) and "." not in text
    return GivenTime(None, time + timestamps.SECOND - 1 if is_second else time)


_SESSION_CURSOR_PATTERN = r"[^\x00/]+/[^\x00/]+"  # neither a host nor a profile has a slash


class SessionPosition(NamedTuple):
    """A position in the list of sessions."""

    host: str
    profile: str


def _parse_session_cursor(value: Any) -> SessionPosition:
    """Return the position that a cursor of the list of sessions names."""
    if not isinstance(value, str) or not re.fullmatch(_SESSION_CURSOR_PATTERN, value):
        raise ValueError("expected a cursor from the Link header")
    return SessionPosition(*value.split("/"))


def _reject_opaque(value: Any) -> None:
    if value is not None and value is not False:
        raise ValueError("such a partition exists only in its browser: leave the cookie out")


def _any_case(words: Iterable[str]) -> str:
    """Return a pattern that matches these words in any case."""
    return "|".join(
        "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in word)
        for word in words
    )


def _type_check(reason: str, *types: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is None or (isinstance(value, types) and not isinstance(value, bool)):
            return value
        raise ValueError(reason)

    return check


def _normalize_region(code: str) -> str:
    key = countries.region_key(code)
    if key is None or len(key) != len(code):  # the pattern has no white space
        raise ValueError("expected an ISO 3166-2 code such as DE-BY")
    return key


def _parse_date_time(value: Any) -> int:
    """Return microseconds since 1970. A body can have a value of any type here."""
    if not isinstance(value, str):
        raise ValueError("expected a date-time such as 2030-01-01T00:00:00Z")
    return timestamps.parse(value)


def _check_date_time(text: str) -> str:
    if not timestamps.is_date_time(text):
        raise ValueError("expected a date-time such as 2030-01-01T00:00:00Z")
    timestamps.parse(text)
    return text


def _check_url(url: str) -> str:
    browser_rules.parse_url(url)
    return url


def _suggestion(name: str) -> str:
    """Return the end of the message: the format that the name most likely means."""
    similar = suggestions.closest(name, formats.NAMES)
    return "" if similar is None else f'; did you mean "{formats.NAMES[similar]}"?'


def _session_format(*names: str) -> Any:
    """Return the type of a format's name. The message lists the formats."""

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"expected one of {', '.join(names)}{_suggestion(name)}")
        return name

    return Annotated[
        str,
        AfterValidator(as_validation_error("session_format", check)),
        WithJsonSchema({"type": "string", "enum": list(names)}),
    ]


def _with_json_schema(**extra: Any) -> Any:
    return Field(json_schema_extra=extra)


def restrict_names(schema: dict[str, Any]) -> None:
    """Apply the pattern of an object's names to all of them, in its JSON schema.

    Pydantic writes ``patternProperties``, so a name that does not match could have any value.
    """
    [(pattern, value)] = schema.pop("patternProperties").items()
    schema["propertyNames"] = schema.get("propertyNames", {}) | {"pattern": pattern}
    schema["additionalProperties"] = value


# No NUL, which PostgreSQL cannot store in text.
_TEXT_PATTERN = r"^[^\x00]*$"
# No line break, which would end the header that contains the text.
_HEADER_TEXT_PATTERN = r"^[^\x00\r\n]*$"
# A name is also a path segment: no slash, no control character (Unicode category Cc), not "." or
# "..".
_NAME_PATTERN = r"^(?!\.{1,2}$)[^\x00-\x1f\x7f-\x9f/]{1,200}$"
# Names from before the control characters above U+007F were excluded are still found.
_STORED_NAME_PATTERN = r"^(?!\.{1,2}$)[^\x00-\x1f\x7f/]{1,200}$"
FILE_ID_PATTERN = r"^[0-9a-f]{32}$"
_EXPECTED_NAME = "expected 1 to 200 characters, without slashes and control characters, not . or .."
check_name = _pattern_check(_NAME_PATTERN, _EXPECTED_NAME)
check_stored_name = _pattern_check(_STORED_NAME_PATTERN, _EXPECTED_NAME)

Text = Annotated[
    str,
    AfterValidator(as_validation_error("text", _absence_check("\0", "must not contain NUL"))),
    _with_json_schema(pattern=_TEXT_PATTERN),
]
NonEmptyText = Annotated[Text, Field(min_length=1)]
HeaderText = Annotated[
    str,
    AfterValidator(
        as_validation_error("text", _absence_check("\0\r\n", "must not contain NUL, CR or LF"))
    ),
    _with_json_schema(pattern=_HEADER_TEXT_PATTERN),
]
Name = Annotated[
    str,
    AfterValidator(as_validation_error("name", check_name)),
    _with_json_schema(pattern=_NAME_PATTERN),
]
# The name of something that exists, or does not.
StoredName = Annotated[
    str,
    AfterValidator(as_validation_error("name", check_stored_name)),
    _with_json_schema(pattern=_STORED_NAME_PATTERN),
]
_check_hexadecimal_id = _pattern_check(
    FILE_ID_PATTERN, "expected 32 hexadecimal digits in lower case"
)
FileId = Annotated[
    str,
    AfterValidator(as_validation_error("file_id", _check_hexadecimal_id)),
    _with_json_schema(pattern=FILE_ID_PATTERN),
]
OutputId = Annotated[
    str,
    AfterValidator(as_validation_error("output_id", _check_hexadecimal_id)),
    _with_json_schema(pattern=FILE_ID_PATTERN),
]
Domain = Annotated[
    str,
    AfterValidator(as_validation_error("domain", normalize_domain)),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": MAX_DOMAIN_LENGTH,
            "if": {"pattern": DOMAIN_PATTERN},  # generators give anyOf no type
            "else": {"format": "idn-hostname"},
        }
    ),
]
Expiry = Annotated[
    int | None,
    BeforeValidator(as_validation_error("expires", _parse_expiry)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "integer", "const": _NO_EXPIRY},
                {"type": "number", "minimum": 0, "maximum": timestamps.MAX_SECONDS},
                {"type": "null"},
            ]
        }
    ),
]
SameSite = Annotated[
    str,
    AfterValidator(as_validation_error("same_site", _parse_same_site)),
    _with_json_schema(pattern=f"^({_any_case(_SAME_SITE)})$"),
]
CookieId = Annotated[
    Any,
    BeforeValidator(
        as_validation_error("id", _type_check("expected a number or a string", int, float, str))
    ),
    WithJsonSchema({"type": ["number", "string", "null"]}),
]
IgnoredNumber = Annotated[
    Any,
    BeforeValidator(as_validation_error("number", _type_check("expected a number", int, float))),
    WithJsonSchema({"type": ["number", "null"]}),
]
SessionCursor = Annotated[
    SessionPosition,
    BeforeValidator(as_validation_error("cursor", _parse_session_cursor)),
    WithJsonSchema({"type": "string", "pattern": f"^{_SESSION_CURSOR_PATTERN}$"}),
]
NotOpaque = Annotated[
    Any,
    BeforeValidator(as_validation_error("partition_key", _reject_opaque)),
    # An enumeration with false and null would remove the whole cookie from generated clients.
    WithJsonSchema({"type": ["boolean", "null"], "not": {"const": True}}),
]
_STRING_OR_NULL = ["string", "null"]
_SITE_SCHEMA = {"type": "string", "pattern": f"^$|{ORIGIN_PATTERN}"}
PartitionKey = Annotated[
    Any,
    BeforeValidator(as_validation_error("partition_key", _parse_partition_key)),
    WithJsonSchema(
        {
            "anyOf": [
                _SITE_SCHEMA,
                {
                    "type": "object",
                    "properties": {
                        **dict.fromkeys(_SITE_MEMBERS, _SITE_SCHEMA | {"type": _STRING_OR_NULL}),
                        _ANCESTOR_MEMBER: {"type": ["boolean", "null"]},
                    },
                    "additionalProperties": False,
                    "anyOf": [{"properties": {name: {"type": "null"}}} for name in _SITE_MEMBERS],
                },
                {"type": "null"},
            ]
        }
    ),
]
Origin = Annotated[
    str,
    AfterValidator(as_validation_error("origin", normalize_origin)),
    _with_json_schema(pattern=ORIGIN_PATTERN),
]
PageUrl = Annotated[
    str,
    AfterValidator(as_validation_error("url", _check_url)),
    _with_json_schema(pattern="^[Hh][Tt][Tt][Pp][Ss]?://"),
]
WrittenFormat = _session_format(*FORMATS)
ReadFormat = _session_format("auto", *FORMATS)
LIST_OF_FORMATS = "\n".join(f"- `{one.name}`: {one.description}" for one in FORMATS.values())
"""The formats in the description of a parameter, one per line."""
DateTime = Annotated[
    int,
    BeforeValidator(as_validation_error("date_time", _parse_date_time)),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}
    ),
]
VersionTime = Annotated[
    GivenTime,
    BeforeValidator(as_validation_error("version_time", _parse_version_time)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_INT64},
                {"type": "string", "format": "date"},
                {"type": "string", "format": "date-time"},
            ]
        }
    ),
]
# A date that the service has returned and that it does not store.
IgnoredDateTime = Annotated[
    str,
    AfterValidator(as_validation_error("date_time", _check_date_time)),
    _with_json_schema(format="date-time"),
]
# The ``id`` of a group, which is a number. In JSON, 7.0 is an integer like 7.
NumericGroupId = Annotated[int, Field(ge=0, le=MAX_INT64), BeforeValidator(float_to_integer)]
Cursor = Annotated[int, Field(ge=0, le=MAX_INT64), BeforeValidator(float_to_integer)]
Days = Annotated[int, Field(ge=1, le=36_500), BeforeValidator(float_to_integer)]
Minutes = Annotated[int, Field(ge=1, le=525_600), BeforeValidator(float_to_integer)]
RunCount = Annotated[int, Field(ge=1, le=100), BeforeValidator(float_to_integer)]
VersionCount = Annotated[int, Field(ge=0, le=1000), BeforeValidator(float_to_integer)]
QueryNumericGroupId = Annotated[
    int,
    Field(ge=0, le=MAX_INT64),
    BeforeValidator(as_validation_error("whole_number", _parse_whole_number)),
]
WholeNumber = Annotated[
    int, BeforeValidator(as_validation_error("whole_number", _parse_whole_number))
]
# The constraints come first, so that the JSON Schema of an optional value contains them.
ListLimit = Annotated[
    int,
    Field(ge=1, le=1000),
    BeforeValidator(as_validation_error("whole_number", _parse_whole_number)),
]
Region = Annotated[
    str,
    AfterValidator(as_validation_error("region", _normalize_region)),
    _with_json_schema(pattern=countries.REGION_PATTERN),
]
