"""Turns errors of other layers into problems: pydantic's, the ledger's, the scheduler's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from carrel_scheduler.api import problems
from carrel_scheduler.api.problems import Code, Problem
from carrel_scheduler.ledger.errors import (
    InvalidArgument,
    LedgerClosed,
    LedgerUnavailable,
    StorageFull,
)
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, StoreError, VersionConflict
from carrel_scheduler.workloads.admission import NotAdmitted
from carrel_scheduler.workloads.contract import NotAccepted
from carrel_scheduler.workloads.reconcile.recording import TooManyMetrics
from carrel_schema.constraints import MOST_METRICS
from carrel_schema.problems import FieldError

MOST_ERRORS: Final = 20
# Values below these fields are never repeated in an answer.
SECRET_FIELDS: Final = frozenset({"secret_environment", "data"})
_OWN_CODES: Final = frozenset(code.value for code in Code)
_BY_KIND: Final[Mapping[str, tuple[Code, str]]] = {
    "missing": (Code.MISSING_FIELD, "this field"),
    "extra_forbidden": (Code.UNKNOWN_FIELD, "no such field"),
    "finite_number": (Code.NOT_FINITE, "a finite number"),
    "greater_than_equal": (Code.TOO_SMALL, "at least {ge}"),
    "less_than_equal": (Code.TOO_BIG, "at most {le}"),
    "string_too_short": (Code.TOO_SHORT, "at least {min_length} character(s)"),
    "string_too_long": (Code.TOO_LONG, "at most {max_length} characters"),
    "too_short": (Code.TOO_SHORT, "at least {min_length} item(s)"),
    "too_long": (Code.TOO_LONG, "at most {max_length} items"),
    "string_pattern_mismatch": (Code.WRONG_FORM, "text without NUL that matches {pattern}"),
    "literal_error": (Code.UNKNOWN_VALUE, "{expected}"),
    "int_parsing_size": (Code.TOO_BIG, "a smaller number"),
}


def from_validation(error: ValidationError, given: object = None) -> problems.InvalidRequest:
    """Pydantic's errors as one problem; ``given`` is where refused values are read from."""
    errors = [
        _field_error(detail, given)
        for detail in error.errors(include_url=False, include_input=False)[:MOST_ERRORS]
    ]
    codes = {one.code for one in errors}
    code = codes.pop() if len(codes) == 1 else Code.INVALID.value
    said = "; ".join(f"{one.field}: expected {one.expected}" for one in errors[:3])
    return problems.InvalidRequest(code, said, errors=errors)


def is_malformed(error: ValidationError) -> bool:
    """Whether the body was not JSON at all."""
    return any(detail["type"] == "json_invalid" for detail in error.errors(include_input=False))


def _field_error(detail: Mapping[str, Any], given: object) -> FieldError:
    kind, context = str(detail["type"]), dict(detail.get("ctx") or {})
    code, expected = _code_and_words(kind, context, str(detail["msg"]))
    location = [part for part in detail["loc"] if part != "[key]"]
    secret = not SECRET_FIELDS.isdisjoint(location)
    return FieldError(
        field=".".join(map(str, location)) or "body",
        code=code,
        expected=expected,
        value=None if secret else _value_at(given, location),
    )


def _code_and_words(kind: str, context: Mapping[str, Any], message: str) -> tuple[str, str]:
    if kind in _BY_KIND:
        code, words = _BY_KIND[kind]
        return code.value, words.format_map(context)
    if kind in _OWN_CODES:
        return kind, message
    if "_type" in kind or "parsing" in kind or kind == "int_from_float":
        words = message.removeprefix("Input should be ").removeprefix("a valid ")
        return Code.WRONG_TYPE.value, words
    return Code.INVALID.value, message


def _value_at(given: object, location: Sequence[Any]) -> Any:
    if not location:
        return None
    value = given
    for part in location:
        if isinstance(value, BaseModel):
            value = getattr(value, str(part), None)
        elif isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            # Inside a union pydantic adds the name of the alternative it tried.
            continue
    return problems.shown(value) if not isinstance(value, dict | list) else None


def expected(error: Problem | NotAdmitted) -> Problem:
    """An expected error as a problem."""
    if isinstance(error, Problem):
        return error
    field = FieldError(
        field=error.field,
        code=error.code,
        value=problems.shown(error.value),
        expected=error.expected,
    )
    return problems.InvalidRequest(error.code, error.detail, errors=[field])


def from_exception(error: BaseException) -> Problem | None:
    """An error of another layer as a problem; ``None`` for an unexpected one."""
    if isinstance(error, Problem | NotAdmitted):
        return expected(error)
    if isinstance(error, NotAccepted):
        return problems.Conflicting(error.code, error.detail)
    if isinstance(error, TooManyMetrics):
        right = f"at most {MOST_METRICS} names of {error.field} in a job; this is one more"
        return problems.invalid_field(error.field, Code.TOO_LONG, error.name, right)
    if isinstance(error, StoreError):
        return _from_store(error)
    return None


def _from_store(error: StoreError) -> Problem | None:
    if isinstance(error, ObjectNotFound):
        return problems.Missing(Code.NOT_FOUND, "It is not there (any more)")
    if isinstance(error, ObjectExists):
        return problems.Conflicting(Code.ALREADY_EXISTS, "An object of this name exists")
    if isinstance(error, VersionConflict):
        return problems.Conflicting(
            Code.CONFLICT, "It was changed at the same time: read it again, then decide again"
        )
    if isinstance(error, InvalidArgument):
        field = FieldError(
            field=error.field,
            code=Code.INVALID,
            value=problems.shown(error.value),
            expected=error.expected,
        )
        return problems.InvalidRequest(
            Code.INVALID, f"{error.field}: {error.expected}", errors=[field]
        )
    if isinstance(error, StorageFull):
        return problems.ServiceUnavailable(
            Code.STORAGE_FULL,
            "The disk of the scheduler's database is full: nothing was changed. An administrator"
            " has to make room",
            headers={"Retry-After": "5"},
        )
    if isinstance(error, LedgerUnavailable | LedgerClosed):
        return problems.ServiceUnavailable(
            Code.LEDGER_UNAVAILABLE,
            "The database does not answer; nothing is certain about this request",
            headers={"Retry-After": "5"},
        )
    return None
