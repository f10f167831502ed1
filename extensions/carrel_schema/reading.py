"""Reading answers of a server of another version.

Unknown fields are ignored by msgspec itself. Where it refuses an answer, the content is read a
second time, field by field: a word that is not known here (a phase, a kind) stays a plain text, and
what is missing in a part of a status is empty.
"""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from carrel_schema.objects import StatusPart

_EMPTY: Final[dict[Any, Any]] = {str: "", int: 0, float: 0.0}
T = TypeVar("T")


def read(content: bytes | str, kind: type[T]) -> T:
    """The typed content of an answer. Raises ``msgspec.MsgspecError``."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError:
        return cast("T", _convert(msgspec.json.decode(content), kind))


def _convert(value: Any, hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        return _struct(value, hint)
    if origin is Literal and isinstance(value, str):
        return value
    if origin in (Union, UnionType) and value is not None:
        rest = [one for one in arguments if one is not type(None)]
        if len(rest) == 1:
            return _convert(value, rest[0])
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {name: _convert(one, arguments[1]) for name, one in value.items()}
    if origin in (list, Sequence) and isinstance(value, list):
        return [_convert(one, arguments[0]) for one in value]
    if origin is tuple and isinstance(value, list) and arguments[1:] == (...,):
        return tuple(_convert(one, arguments[0]) for one in value)
    return msgspec.convert(value, hint)


def _struct(value: dict[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in value:
            found[field.name] = _convert(value[field.encode_name], field.type)
        elif field.required and issubclass(kind, StatusPart) and field.type in _EMPTY:
            found[field.name] = _EMPTY[field.type]
        elif field.required:
            raise msgspec.ValidationError(f"{kind.__name__} without `{field.encode_name}`")
    return kind(**found)
