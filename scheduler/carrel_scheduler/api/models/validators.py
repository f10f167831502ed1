"""Validators of requests, made from the schema's structures: every wrong field is found at once.

A structure's validator is a pydantic model with the same fields, their constraints, the checks of
``checks`` and no field that only the scheduler writes. It is strict: no unknown fields, no
conversions, no NaN. What passes is handed on as the structure itself, so the rest of the service
has typed objects and pydantic is no further than here.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from carrel_scheduler.api.models import checks
from carrel_scheduler.api.models.forms import FORMS
from carrel_schema import constraints
from carrel_schema.constraints import Constraint, Mark

StructT = TypeVar("StructT", bound=msgspec.Struct)
_LIMITS: Final = ("ge", "gt", "le", "min_length", "max_length", "pattern")
_ENDINGS: Final = ("Spec", "Limits", "Fields", "Changes")


class Validator(BaseModel):
    """Base of all validators."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that the request had."""
        return frozenset(self.model_fields_set)


class TextValidator(Validator):
    """Base of the validators of query parameters, which arrive as text."""

    model_config = ConfigDict(strict=False)


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        field.pop("default", None)


class PatchValidator(Validator):
    """Base of the validators of changes, whose fields have no defaults."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


@cache
def validator_of(
    struct: type[msgspec.Struct], base: type[Validator] = Validator
) -> type[Validator]:
    """Make the validator of a structure as a request."""
    found: dict[str, Any] = {
        field.name: (hint(field.hint), _default(field)) for field in _asked(struct)
    }
    check = next((checks.TOGETHER[one] for one in struct.__mro__ if one in checks.TOGETHER), None)
    together: dict[str, Any] = {}
    if check is not None:
        together["together"] = model_validator(mode="after")(_after(check))
    return create_model(
        _name(struct),
        __base__=base,
        __doc__=constraints.summary(struct),
        __validators__=together,
        **found,
    )


@cache
def patch_of(struct: type[msgspec.Struct]) -> type[Validator]:
    """Make the validator of changes to a structure: fields left out stay, objects are merged."""
    found: dict[str, Any] = {
        field.name: (hint(field.hint, changes=True), None) for field in _asked(struct)
    }
    return create_model(
        f"{_stem(struct.__name__)}Patch",
        __base__=PatchValidator,
        __doc__=f"Changes. {constraints.summary(struct)}",
        **found,
    )


def _asked(struct: type[msgspec.Struct]) -> list[constraints.Field]:
    """List the fields of a request: its own first, then those of its bases."""
    order = {
        name: len(base.__mro__)
        for base in reversed(struct.__mro__)
        for name in inspect.get_annotations(base)
    }
    fields = [one for one in constraints.fields(struct).values() if Mark.INTERNAL not in one.marks]
    return sorted(fields, key=lambda one: -order[one.name])


def _after(check: Callable[[Any], None]) -> Callable[[Any], Any]:
    def checked(model: Any) -> Any:
        check(model)
        return model

    return checked


def read(struct: type[StructT], content: bytes | Mapping[str, Any]) -> StructT:
    """Read a structure from JSON, encoded or decoded; raises ``ValidationError``."""
    validator = validator_of(struct)
    if isinstance(content, bytes):
        model = validator.model_validate_json(content)
    else:
        model = validator.model_validate(content)
    return msgspec.convert(model, struct, from_attributes=True)


def read_text(struct: type[StructT], texts: Mapping[str, Any]) -> StructT:
    """Read a structure from query parameters; raises ``ValidationError``."""
    model = validator_of(struct, TextValidator).model_validate(texts)
    return msgspec.convert(model, struct, from_attributes=True)


def read_changes(struct: type[msgspec.Struct], content: bytes) -> dict[str, Any]:
    """Read changes by field; raises ``ValidationError``."""
    return patch_of(struct).model_validate_json(content).model_dump(exclude_unset=True)


def hint(asked: Any, *, changes: bool = False) -> Any:
    """Convert a type of the schema to pydantic's form."""
    origin, arguments = get_origin(asked), get_args(asked)
    if isinstance(asked, type) and issubclass(asked, msgspec.Struct):
        return patch_of(asked) if changes else validator_of(asked)
    if origin is Annotated:
        said = [part for one in arguments[1:] for part in _said(one)]
        return Annotated[(hint(arguments[0], changes=changes), *said)]
    if origin in (Union, UnionType):
        members = tuple(hint(one, changes=changes) for one in arguments)
        return Union[members]  # noqa: UP007 - the members are known at run time only
    if origin in (list, Sequence) or (origin is tuple and arguments[-1] is Ellipsis):
        return list[hint(arguments[0], changes=changes)]  # type: ignore[misc]
    if origin is tuple:
        return tuple[tuple(map(hint, arguments))]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[hint(arguments[0]), hint(arguments[1])]  # type: ignore[misc]
    return asked


def _said(mark: Any) -> list[Any]:
    if not isinstance(mark, Constraint):
        return []
    limits = {name: getattr(mark, name) for name in _LIMITS if getattr(mark, name) is not None}
    form = None if mark.form is None else FORMS[mark.form]
    schema = dict(form.schema) if form else {}
    description = schema.pop("description", None)
    field = Field(**limits, description=description, json_schema_extra=schema or None)
    return [field, AfterValidator(form.check)] if form else [field]


def _default(field: constraints.Field) -> Any:
    if field.required:
        return ...
    if isinstance(field.default, msgspec.Struct):
        return validator_of(type(field.default)).model_validate({})
    if isinstance(field.default, dict):
        return Field(default_factory=dict)
    if isinstance(field.default, list | tuple):
        return Field(default_factory=list)
    return field.default


def _stem(name: str) -> str:
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def _name(struct: type[msgspec.Struct]) -> str:
    """Whole requests keep their names; parts, which are parts of answers, too, are told apart."""
    name = struct.__name__
    of_schema = struct.__module__.startswith("carrel_schema.")
    return f"{_stem(name)}In" if of_schema and not name.endswith(("Create", "Fields")) else name
