"""What changed between two documents: changed fields only, by path, and no secrets.

Values under names that sound like secrets, and of environment variables whatever their names, are
replaced by a mark; whether they changed is still seen. Long texts, as the files of a job, are told
by their length and digest.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

HIDDEN: Final = "(hidden)"
LONGEST: Final = 500
MOST_FIELDS: Final = 200
_SECRET: Final = re.compile(
    r"secret|password|passwd|passphrase|token|credential|encrypted|api_?key|access_?key|"
    r"private_?key|authorization|bearer|connection_?string|^key$",
    re.IGNORECASE,
)
_VALUES_HIDDEN: Final = frozenset({"environment", "env", "secrets", "data", "string_data"})
_EMPTY: Final[tuple[Any, ...]] = (None, "", 0, False, [], {})

Fields = dict[str, Any]


def differences(before: bytes | str | None, after: bytes | str | None) -> tuple[Fields, Fields]:
    """The changed fields of two JSON documents as they were and are; ``None``: there was none."""
    old, new = _flat(before), _flat(after)
    if before is None:
        return {}, _shown({key: value for key, value in new.items() if value not in _EMPTY})
    if after is None:
        return _shown({key: value for key, value in old.items() if value not in _EMPTY}), {}
    changed = [key for key in {**old, **new} if old.get(key, ...) != new.get(key, ...)]
    return (
        _shown({key: old[key] for key in changed if key in old}),
        _shown({key: new[key] for key in changed if key in new}),
    )


def _flat(document: bytes | str | None) -> Fields:
    if document is None:
        return {}
    content = msgspec.json.decode(document)
    return dict(_leaves(content, ())) if isinstance(content, dict) else {"": content}


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    else:
        yield ".".join(path), value


def _shown(fields: Fields) -> Fields:
    shown = {key: _value(key, value) for key, value in sorted(fields.items())[:MOST_FIELDS]}
    if len(fields) > MOST_FIELDS:
        shown["…"] = f"{len(fields) - MOST_FIELDS} more fields"
    return shown


def _value(path: str, value: Any) -> Any:
    if value in _EMPTY:
        return value
    parts = path.split(".")
    if any(_SECRET.search(part) for part in parts) or _VALUES_HIDDEN.intersection(parts):
        return HIDDEN
    if isinstance(value, list):
        value = _safe(value)
    size = len(value) if isinstance(value, str) else len(msgspec.json.encode(value))
    if size <= LONGEST:
        return value
    text = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    return f"({size} characters, sha256 {hashlib.sha256(text).hexdigest()})"


def _safe(value: Any) -> Any:
    """A list without the secrets in it."""
    if isinstance(value, list):
        return [_safe(one) for one in value]
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if inner not in _EMPTY and (_SECRET.search(key) or key in _VALUES_HIDDEN)
            else _safe(inner)
            for key, inner in value.items()
        }
    return value
