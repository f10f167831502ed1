"""Differences between two documents: changed fields only, by path, without secrets.

Values under names that sound like secrets, and of environment variables whatever their names, are
replaced by a mark; whether they changed is still seen. Long texts, as the files of a job, are told
by their length and digest.
"""

import hashlib
import re
from functools import lru_cache
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

Fields = dict[str, Any]


def differences(before: bytes | str | None, after: bytes | str | None) -> tuple[Fields, Fields]:
    """The changed fields of two JSON documents as they were and are; ``None``: there was none."""
    old, new = _flat(before), _flat(after)
    if before is None:
        return {}, _shown({key: value for key, value in new.items() if value})
    if after is None:
        return _shown({key: value for key, value in old.items() if value}), {}
    changed = [key for key in {**old, **new} if old.get(key, ...) != new.get(key, ...)]
    return (
        _shown({key: old[key] for key in changed if key in old}),
        _shown({key: new[key] for key in changed if key in new}),
    )


def shown(fields: Fields) -> Fields:
    """Fields that another part compared, without secrets and long texts."""
    return _shown(_flat(msgspec.json.encode(fields)))


def _flat(document: bytes | str | None) -> Fields:
    found: Fields = {}
    if document is not None:
        content = msgspec.json.decode(document)
        _add_leaves(found, "", content if isinstance(content, dict) else {"": content})
    return found


def _add_leaves(found: Fields, prefix: str, content: dict[str, Any]) -> None:
    for key, value in content.items():
        if value and isinstance(value, dict):
            _add_leaves(found, f"{prefix}{key}.", value)
        else:
            found[prefix + key] = value


def _shown(fields: Fields) -> Fields:
    shown = {key: _value(key, fields[key]) for key in sorted(fields)[:MOST_FIELDS]}
    if len(fields) > MOST_FIELDS:
        shown["…"] = f"{len(fields) - MOST_FIELDS} more fields"
    return shown


@lru_cache(4096)
def _hidden(path: str) -> bool:
    """Whether values under this path are not shown."""
    parts = path.split(".")
    return not _VALUES_HIDDEN.isdisjoint(parts) or any(map(_SECRET.search, parts))


def _value(path: str, value: Any) -> Any:
    if not value:
        return value
    if _hidden(path):
        return HIDDEN
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(_safe(value)).decode()
    if len(text) > LONGEST:
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f"({len(text)} characters, sha256 {digest})"
    return value if isinstance(value, str) else _safe(value)


def _safe(value: Any) -> Any:
    """A list without the secrets in it."""
    if isinstance(value, list):
        return [_safe(one) for one in value]
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if inner and (_SECRET.search(key) or key in _VALUES_HIDDEN)
            else _safe(inner)
            for key, inner in value.items()
        }
    return value
