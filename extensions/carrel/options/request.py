"""Requests to the API from typed options.

A surface hands in raw texts by flag. Their kinds of work are intersected: what all of them are for
is what was asked for. Then texts are read and put where the API wants them.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.errors import BadSetting
from carrel.options.completing import completed
from carrel.options.kinds import EVERY, KINDS
from carrel.options.option import Option, Surface
from carrel.options.table import by_flag, rows

Raw = Mapping[str, Any]
ALL_KINDS: Final = tuple(one.name for one in KINDS)


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The fields of a request.

    Attributes:
        kind: of work.
        fields: of the API's request, ``kind`` not among them.
        own: by flag, what the surface itself does, such as ``dry-run``.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)


def read(
    raw: Raw,
    surface: Surface,
    kinds: Sequence[str] = ALL_KINDS,
    *,
    written: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> RequestFields:
    """Read raw texts by flag; what was not given is ``None``, ``False``, empty, or not there.

    Raises ``BadSetting`` that names the flag, the text and what would be right.

    Args:
        raw: texts, lists of texts, and ``True`` or ``False`` of switches.
        surface: where they were given.
        kinds: the kinds of work that can be asked for there, the usual one first.
        written: fields that were asked for before, in a file; what is typed counts more.
        environ: where variables are taken along from.
    """
    known = by_flag(rows(surface))
    given = {flag: text for flag, text in raw.items() if _is_given(known[flag][0], text)}
    kind = kind_of({flag: known[flag] for flag in given}, kinds)
    found = {
        row: _value(row, given[row.flag], os.environ if environ is None else environ)
        for row in rows(surface, [kind])
        if row.flag in given
    }
    fields: dict[str, Any] = {}
    for row, value in found.items():
        for path in row.fields:
            put(fields, path, value)
    own = {row.flag: value for row, value in found.items() if not row.fields}
    by_name = {row.flag: value for row, value in found.items()}
    return RequestFields(kind, completed(kind, merged(written or {}, fields), by_name), own)


def kind_of(given: Mapping[str, Sequence[Option]], kinds: Sequence[str]) -> str:
    """The first kind that all given flags are for. Raises ``BadSetting`` naming two that clash."""
    possible = list(kinds)
    for flag, same_flag in given.items():
        theirs = frozenset[str]().union(*(row.kinds for row in same_flag))
        left = [kind for kind in possible if kind in theirs]
        if not left:
            raise _clash(flag, theirs, given, possible)
        possible = left
    return possible[0]


def _clash(
    flag: str,
    theirs: frozenset[str],
    given: Mapping[str, Sequence[Option]],
    possible: Iterable[str],
) -> BadSetting:
    kind = next(iter(possible))
    wanted = " or ".join(one.noun for one in KINDS if one.name in theirs)
    others = [one for one, found in given.items() if not any(theirs & row.kinds for row in found)]
    why = f"but --{others[0]} asks for {EVERY[kind].noun}" if others else f"not {EVERY[kind].noun}"
    way_out = "leave one of them out" if others else "leave it out"
    return BadSetting(f"--{flag} is for {wanted}, {why}: {way_out}.", code="option_of_another_kind")


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings, also nested ones; where both have a key, the new one counts."""
    found = dict(old)
    for key, value in new.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


def put(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set a path of a request; ``routes[].x`` sets x of every route, or adds routes."""
    head, dot, rest = path.partition(".")
    if not dot:
        fields[head] = value
    elif head.endswith("[]"):
        items: list[dict[str, Any]] = fields.setdefault(head.removesuffix("[]"), [])
        if isinstance(value, list):
            items.extend(item for item in value if item not in items)
            return
        if not items:
            items.append({})
        for item in items:
            item[rest] = value
    else:
        put(fields.setdefault(head, {}), rest, value)


def _is_given(row: Option, text: Any) -> bool:
    return text is not None and text != [] and (text is not False or bool(row.off))


def _value(row: Option, text: Any, environ: Mapping[str, str]) -> Any:
    if row.value is None:
        return row.sets if text is True else text
    try:
        if row.many is None:
            return row.value.read(text)
        found = [value for one in text for value in row.value.read_each(one)]
    except BadSetting as error:
        raise BadSetting(f"--{row.flag} {str(error).strip()}", code=error.code) from error
    if row.many == "list":
        return found
    return {name: _taken_along(row, name, value, environ) for name, value in found}


def _taken_along(row: Option, name: str, value: Any, environ: Mapping[str, str]) -> Any:
    """A variable's value; one that was only named has the present value."""
    if value is not None or "environment" not in row.fields[0]:
        return value
    if name not in environ:
        raise BadSetting(
            f"--{row.flag} {name}: there is no such variable here to take along.",
            code="unknown_variable",
        )
    return environ[name]
