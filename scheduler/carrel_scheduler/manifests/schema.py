"""Structural schemas of custom resources: the shape of the ledger's structures, with constraints.

What may be anything (parameters, data of a reason) is kept as it is; what may be null says so;
references, and objects with both known fields and others, are not made: the API server refuses
them.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from carrel_scheduler.api.models.forms import FORMS
from carrel_scheduler.ledger.resources import wire
from carrel_scheduler.ledger.resources.quantities import Quantity
from carrel_scheduler.manifests import rules
from carrel_schema.constraints import Constraint, bare, documentation, summary

Schema = dict[str, Any]
_MOST_TEXT: Final = 65_536
_MOST_ITEMS: Final = 1024
_MOST_WHOLE: Final = 2.0**63
_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
}
_ANYTHING: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}
_LENGTHS: Final = {"string": "Length", "array": "Items", "object": "Properties"}


def of_struct(
    struct: type[msgspec.Struct],
    *,
    constrained: bool = True,
    leave_out: Collection[str] = (),
    required: Collection[str] = (),
) -> Schema:
    """The schema of a structure in the form of manifests.

    Args:
        struct: of the ledger.
        constrained: whether constraints hold; of a status, which only we write, they do not.
        leave_out: fields that are not there.
        required: fields that have to be, beside those without a default.
    """
    twin = wire.twin(struct)
    hints, told = get_type_hints(twin, include_extras=constrained), documentation(struct)
    properties: dict[str, Schema] = {}
    needed: list[str] = []
    for field in msgspec.structs.fields(twin):
        name = "volumes" if field.name == "mounts" else field.name
        if name in leave_out:
            continue
        one = of_type(hints[field.name], constrained=constrained)
        one |= rules.of_field(twin.__name__, name)
        if name in told:
            one = {"description": _said(told[name], field), **one}
        properties[field.encode_name] = one
        if field.required or name in required:
            needed.append(field.encode_name)
    schema: Schema = {"type": "object", "properties": properties}
    described = summary(struct)
    if described:
        schema = {"description": described, **schema}
    if needed:
        schema["required"] = needed
    return schema | rules.of_struct(twin.__name__)


def _said(text: str, field: msgspec.structs.FieldInfo) -> str:
    default = wire.default_of(field)
    if isinstance(default, str | int | float) and default not in ("", False):
        return f"{text} Default: {default}."
    return text


def of_type(hint: Any, *, constrained: bool = True) -> Schema:
    """The schema of a value."""
    if hint == Quantity:
        return {"x-kubernetes-int-or-string": True}
    if hint is Any:
        return dict(_ANYTHING)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return of_struct(hint, constrained=constrained)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _constrained(of_type(arguments[0]), arguments[1:])
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if type(None) in arguments:
        return {**_without_none(arguments, constrained=constrained), "nullable": True}
    if origin in (list, tuple):
        items = of_type(arguments[0], constrained=constrained)
        return {"type": "array", "maxItems": _MOST_ITEMS, "items": items}
    if origin is dict:
        return _mapping(arguments[1], constrained=constrained)
    if arguments:
        return _either(arguments)
    return {"maxLength": _MOST_TEXT, **_PLAIN[hint]} if hint is str else dict(_PLAIN[hint])


def _constrained(schema: Schema, marks: tuple[Any, ...]) -> Schema:
    found = dict(schema)
    length = _LENGTHS.get(schema.get("type", ""), "")
    for mark in marks:
        if isinstance(mark, Constraint):
            form = FORMS[mark.form].schema if mark.form else {}
            said = {
                "minimum": mark.gt if mark.ge is None else mark.ge,
                # A number in the newer of the two drafts of JSON Schema, a flag in this older one.
                "exclusiveMinimum": None if mark.gt is None else True,
                "maximum": mark.le,
                f"min{length}": mark.min_length,
                f"max{length}": mark.max_length,
                "pattern": form.get("pattern", mark.pattern),
            }
            found |= {key: one for key, one in said.items() if one is not None and not _beyond(one)}
    return found


def _beyond(bound: Any) -> bool:
    """Whether a bound is beyond what the API server can compare whole numbers with."""
    return isinstance(bound, int | float) and abs(bound) >= _MOST_WHOLE


def _without_none(arguments: tuple[Any, ...], *, constrained: bool) -> Schema:
    rest = [one for one in arguments if one is not type(None)]
    if len(rest) == 1:
        return of_type(rest[0], constrained=constrained)
    if set(rest) == {str, int, float}:
        return {"x-kubernetes-int-or-string": True}
    return dict(_ANYTHING)


def _either(arguments: tuple[Any, ...]) -> Schema:
    if {bare(one) for one in arguments} == {str, int}:
        return {"x-kubernetes-int-or-string": True}
    return dict(_ANYTHING)


def _mapping(value: Any, *, constrained: bool) -> Schema:
    if value is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "type": "object",
        "maxProperties": _MOST_ITEMS,
        "additionalProperties": of_type(value, constrained=constrained),
    }
