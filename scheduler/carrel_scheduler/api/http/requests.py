"""Reading a request: path, query and body into validated models."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, get_origin

import msgspec
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.models.forms import DNS_LABEL_WORDS, FORMS
from carrel_scheduler.api.models.validators import StructT
from carrel_scheduler.api.problems import Code
from carrel_schema import constraints

MOST_BODY_BYTES: Final = 4 * 2**20
# A larger body is not even read to its end to answer politely: the connection is closed.
MOST_DRAINED_BYTES: Final = 64 * 2**20
JSON_TYPES: Final = frozenset({"application/json", "application/merge-patch+json"})
_NAMES: Final = frozenset({"project", "name"})


def check_path(path: Mapping[str, str]) -> None:
    """Names in the path that nothing can have are not found, and never reach the database."""
    for part, value in path.items():
        try:
            if part in _NAMES:
                FORMS["name"].check(value)
        except PydanticCustomError as error:
            raise problems.Missing(
                Code.NOT_FOUND,
                f"There is no {part} of that name; names are {DNS_LABEL_WORDS}",
            ) from error
        if "\x00" in value or len(value) > 255:
            raise problems.Missing(Code.NOT_FOUND, f"There is no {part} of that name")


def read_query(model: type[StructT], arguments: Mapping[str, Sequence[bytes]]) -> StructT:
    """Validate query parameters; only lists may be repeated."""
    given: dict[str, Any] = {}
    for name, values in arguments.items():
        try:
            texts = [value.decode() for value in values]
        except UnicodeDecodeError as error:
            raise problems.BadRequest(
                Code.MALFORMED_REQUEST, "A query parameter is not UTF-8"
            ) from error
        field = constraints.fields(model).get(name)
        many = field is not None and get_origin(constraints.bare(field.hint)) is list
        if not many and len(texts) > 1:
            raise problems.invalid_field(name, Code.WRONG_TYPE, len(texts), "one value")
        given[name] = texts if many else texts[0]
    try:
        return validators.read_text(model, given)
    except ValidationError as error:
        raise refusals.from_validation(error, given) from error


def projects_of(model: msgspec.Struct | None) -> Iterable[tuple[str, str]]:
    """Projects that a query or a body names, each with the kind of work, empty for none.

    ``project`` is one, ``projects`` are those of a batch.
    """
    many: Iterable[tuple[str, str]] | None = getattr(model, "projects", None)
    if many is not None:
        return many
    one: str | None = getattr(model, "project", None)
    return () if one is None else ((one, str(getattr(model, "kind", ""))),)


def check_media_type(content_type: str, right: Collection[str] = JSON_TYPES) -> None:
    """Refuse a body that does not say it is JSON, or what else would be right."""
    if content_type.partition(";")[0].strip().lower() not in right:
        wanted = min(right)
        raise problems.WrongMediaType(
            Code.WRONG_MEDIA_TYPE,
            f"Send the body as `Content-Type: {wanted}`",
            headers={"Accept": wanted},
        )


def read_body(model: type[StructT], body: bytes) -> StructT:
    """Validate a JSON body."""
    with _refusing(body):
        return validators.read(model, body)


def read_changes(model: type[msgspec.Struct], body: bytes) -> dict[str, Any]:
    """Validate a merge patch; the result's keys are the fields to change."""
    with _refusing(body):
        return validators.read_changes(model, body)


@contextmanager
def _refusing(body: bytes) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        if refusals.is_malformed(error):
            raise problems.BadRequest(
                Code.MALFORMED_JSON, f"The body is not JSON: {error.errors()[0]['msg']}"
            ) from error
        raise refusals.from_validation(error, _parsed(body)) from error


def _parsed(body: bytes) -> Any:
    """The body again, only to quote refused values from it (NaN is not JSON for everybody)."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
