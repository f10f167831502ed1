"""Reading a request: path, query and body into validated models."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, get_origin

import msgspec
from pydantic import TypeAdapter, ValidationError

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Query, Request
from carrel_scheduler.api.problems import Code

MOST_BODY_BYTES: Final = 4 * 2**20
# A larger body is not even read to its end to answer politely: the connection is closed.
MOST_DRAINED_BYTES: Final = 64 * 2**20
JSON_TYPES: Final = frozenset({"application/json", "application/merge-patch+json"})
_PATH: Final[Mapping[str, TypeAdapter[str]]] = {
    "project": TypeAdapter(fields.Name),
    "name": TypeAdapter(fields.Name),
}


def check_path(path: Mapping[str, str]) -> None:
    """Names in the path that nothing can have are not found, and never reach the database."""
    for part, value in path.items():
        adapter = _PATH.get(part)
        try:
            if adapter is not None:
                adapter.validate_python(value)
        except ValidationError as error:
            raise problems.Missing(
                Code.NOT_FOUND,
                f"There is no {part} of that name; names are {fields.DNS_LABEL_WORDS}",
            ) from error
        if "\x00" in value or len(value) > 255:
            raise problems.Missing(Code.NOT_FOUND, f"There is no {part} of that name")


def read_query(model: type[Query], arguments: Mapping[str, Sequence[bytes]]) -> Query:
    """Validate query parameters; only lists may be repeated."""
    given: dict[str, Any] = {}
    for name, values in arguments.items():
        try:
            texts = [value.decode() for value in values]
        except UnicodeDecodeError as error:
            raise problems.BadRequest(
                Code.MALFORMED_REQUEST, "A query parameter is not UTF-8"
            ) from error
        field = model.model_fields.get(name)
        many = field is not None and get_origin(field.annotation) is list
        if not many and len(texts) > 1:
            raise problems.invalid_field(name, Code.WRONG_TYPE, len(texts), "one value")
        given[name] = texts if many else texts[0]
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise refusals.from_validation(error, given) from error


def projects_of(model: Query | Request | None) -> Iterable[str]:
    """The projects that a query or a body names: ``project``, or ``projects`` where many may be."""
    many: Iterable[str] | None = getattr(model, "projects", None)
    if many is not None:
        return many
    one: str | None = getattr(model, "project", None)
    return () if one is None else (one,)


def check_media_type(content_type: str, right: Collection[str] = JSON_TYPES) -> None:
    """Refuse a body that does not say it is JSON, or what else would be right."""
    if content_type.partition(";")[0].strip().lower() not in right:
        wanted = min(right)
        raise problems.WrongMediaType(
            Code.WRONG_MEDIA_TYPE,
            f"Send the body as `Content-Type: {wanted}`",
            headers={"Accept": wanted},
        )


def read_body(model: type[Request], body: bytes) -> Request:
    """Validate a JSON body."""
    try:
        return model.model_validate_json(body)
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
