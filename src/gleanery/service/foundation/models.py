"""The base of all inputs, with strict types and no unknown names; and responses that many share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from gleanery.service.foundation.errors import MORE_PROBLEMS

DateTimeOut = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""Date-time in the one form that the API returns: ``YYYY-MM-DDTHH:MM:SSZ``."""
ReviewStatus = Literal["pending", "in_review", "approved", "changes_requested", "rejected"]
_JSON_TYPES = ("object", "array", "string", "number", "boolean", "null")
JsonValue = Annotated[
    Any, WithJsonSchema({"type": [*_JSON_TYPES], "additionalProperties": True, "items": {}})
]


class WriteCounts(TypedDict):
    """Result of a write: the number of records of each kind."""

    created: int
    updated: int
    unchanged: int


class PageMetadata(TypedDict):
    """Link to the next page. Both members are null on the last page, and only there."""

    next_url: str | None
    next_cursor: int | None


class Deleted(TypedDict):
    """Number of deleted records."""

    deleted: int


class ErrorDetailOut(TypedDict):
    """One problem of a request. It never contains the value."""

    loc: list[str]
    msg: str
    type: str


UNKNOWN_NAME = "unknown_name"
"""Type of the error of an unknown name. Its context has ``noun`` and the names in ``known``."""

_MAX_UNKNOWN_NAMES = 10  # of one object; a client fixes the first before it needs the hundredth
_MAX_NAME_LENGTH = 64


class Input(BaseModel):
    """Base of the objects in a body."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    noun: ClassVar[str] = "member"
    """What an error message calls a name of this input."""

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_names(cls, value: Any) -> Any:
        """Rejects unknown names here, because pydantic's own error cannot suggest a name."""
        if isinstance(value, dict) and not value.keys() <= known_names(cls):
            raise ValidationError.from_exception_data(cls.__name__, cls._problems(value))
        return value

    @classmethod
    def _problems(cls, value: dict[str, Any]) -> list[InitErrorDetails]:
        """List the unknown names, and then the errors of the known members."""
        problems = [*_unknown_names(cls, value)]
        try:
            cls.model_validate({name: value[name] for name in value.keys() & known_names(cls)})
        except ValidationError as error:
            problems += map(_without_value, error.errors(include_url=False, include_input=False))
        return problems


class Query(Input):
    """Base of the parameters in a query."""

    noun: ClassVar[str] = "parameter"


class NoQuery(Query):
    """Query of an operation without parameters."""


@cache
def known_names(model: type[BaseModel]) -> frozenset[str]:
    """Return the names that a client may use."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def condition(schema: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema: this holds for an object.

    Generators ignore ``then``. Otherwise they would make a type of every choice.
    """
    return {"if": {}, "then": schema}


def custom_error(type_: str, msg: str, loc: Iterable[str | int]) -> InitErrorDetails:
    """Describe an error for ``ValidationError.from_exception_data``, without the value."""
    error = PydanticCustomError(type_, "{reason}", {"reason": msg})
    return InitErrorDetails(type=error, loc=tuple(loc), input=None)


def _without_value(error: ErrorDetails) -> InitErrorDetails:
    """Describe an error again, with its context."""
    if error["type"] == UNKNOWN_NAME:
        return _unknown_name(error["loc"], error["ctx"])
    context = {**error.get("ctx", {}), "reason": error["msg"]}
    type_ = PydanticCustomError(error["type"], "{reason}", context)
    return InitErrorDetails(type=type_, loc=error["loc"], input=None)


def _unknown_names(model: type[Input], value: dict[str, Any]) -> Iterator[InitErrorDetails]:
    known = known_names(model)
    unknown = [name for name in value if name not in known]
    for name in unknown[:_MAX_UNKNOWN_NAMES]:
        yield _unknown_name((name[:_MAX_NAME_LENGTH],), {"noun": model.noun, "known": known})
    more = len(unknown) - _MAX_UNKNOWN_NAMES
    if more > 0:
        msg = f"has {more} more unknown {model.noun}{'' if more == 1 else 's'}"
        yield custom_error(MORE_PROBLEMS, msg, ())


def _unknown_name(loc: tuple[str | int, ...], context: dict[str, Any]) -> InitErrorDetails:
    error = PydanticCustomError(UNKNOWN_NAME, "unknown {noun}", context)
    return InitErrorDetails(type=error, loc=loc, input=None)
