"""Structural schemas of custom resources: the shape of the ledger's structures, the API's bounds.

What may be anything (parameters, data of a reason) is kept as it is; what may be null says so;
references, and objects with both known fields and others, are not made: the API server refuses
them.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from carrel_scheduler.ledger.resources import wire
from carrel_scheduler.ledger.resources.quantities import Quantity
from carrel_scheduler.manifests import documentation, rules
from carrel_scheduler.manifests.constraints import Bounds

Schema = dict[str, Any]
NOTHING: Final = Bounds({}, {})
_MOST_TEXT: Final = 65_536
_MOST_ITEMS: Final = 1024
_PLAIN: Final[Mapping[Any, Schema]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
}
_ANYTHING: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True, "nullable": True}


def of_struct(
    struct: type[msgspec.Struct],
    bounds: Bounds = NOTHING,
    *,
    leave_out: Collection[str] = (),
    required: Collection[str] = (),
) -> Schema:
    """The schema of a structure as it stands in a manifest."""
    twin = wire.twin(struct)
    hints, told = get_type_hints(twin), documentation.fields(twin)
    properties: dict[str, Schema] = {}
    needed: list[str] = []
    for field in msgspec.structs.fields(twin):
        name = "volumes" if field.name == "mounts" else field.name
        if name in leave_out:
            continue
        one = of_type(hints[field.name], bounds.field(name))
        one |= rules.of_field(twin.__name__, name)
        if name in told:
            one = {"description": _said(told[name], field), **one}
        properties[field.encode_name] = one
        if field.required or name in required:
            needed.append(field.encode_name)
    schema: Schema = {"type": "object", "properties": properties}
    described = documentation.whole(twin)
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


def of_type(hint: Any, bounds: Bounds = NOTHING) -> Schema:
    """The schema of a value."""
    if hint == Quantity:
        return {"x-kubernetes-int-or-string": True}
    if hint is Any:
        return dict(_ANYTHING)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return of_struct(hint, bounds)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if type(None) in arguments:
        return {**_without_none(arguments, bounds), "nullable": True}
    if origin in (list, tuple):
        return _list(arguments, bounds)
    if origin is dict:
        return _mapping(arguments[1], bounds)
    if arguments:
        return _either(arguments)
    plain = dict(_PLAIN[hint]) | bounds.all()
    return plain if hint is not str else {"maxLength": _MOST_TEXT, **plain}


def _without_none(arguments: tuple[Any, ...], bounds: Bounds) -> Schema:
    rest = [one for one in arguments if one is not type(None)]
    if len(rest) == 1:
        return of_type(rest[0], bounds)
    if set(rest) == {str, int, float}:
        return {"x-kubernetes-int-or-string": True}
    return dict(_ANYTHING)


def _either(arguments: tuple[Any, ...]) -> Schema:
    if set(arguments) == {str, int}:
        return {"x-kubernetes-int-or-string": True}
    return dict(_ANYTHING)


def _list(arguments: tuple[Any, ...], bounds: Bounds) -> Schema:
    items = of_type(arguments[0], bounds.items())
    return {"type": "array", "maxItems": _MOST_ITEMS, **bounds.all(), "items": items}


def _mapping(value: Any, bounds: Bounds) -> Schema:
    if value is Any:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    values = of_type(value, bounds.values())
    return {
        "type": "object",
        "maxProperties": _MOST_ITEMS,
        **bounds.all(),
        "additionalProperties": values,
    }
