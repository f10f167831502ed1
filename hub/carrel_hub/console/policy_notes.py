"""Policies in a submission form: notes, defaults and locked fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from carrel.options import Option, Surface
from carrel.options.table import rows
from carrel_hub.console.forms import Form
from carrel_schema.governance.policies import Bound, EffectivePolicy, EffectiveRule

_SAID: Final = {"max": "at most {}", "min": "at least {}", "allowed": "one of {}"}


@dataclass(frozen=True, slots=True)
class PolicyNote:
    """The policies' rule for one field of a form.

    Attributes:
        text: the rules and who made them.
        locked: it cannot be changed.
        first: what the field shows at first, as it would be typed; empty: nothing.
        scope: of the policy that says ``first``.
    """

    text: str
    locked: bool = False
    first: str = ""
    scope: str = ""


def notes_of(kind: str, policy: EffectivePolicy) -> dict[str, PolicyNote]:
    """Notes by the name of the form's field; of fields that it shows."""
    found: dict[str, PolicyNote] = {}
    for row in rows(Surface.FORM, [kind]):
        if len(row.fields) == 1 and row.fields[0] in policy.rules:
            found[row.flag] = _note(row, policy.rules[row.fields[0]])
    return found


def fill(form: Form, notes: Mapping[str, PolicyNote]) -> None:
    """Fill a new form with the policies' defaults."""
    form.values |= {flag: note.first for flag, note in notes.items() if note.first}


def refill(form: Form, before: Mapping[str, PolicyNote], notes: Mapping[str, PolicyNote]) -> None:
    """Fill in another project's defaults where nobody changed those of the project before."""
    for flag in before.keys() | notes.keys():
        old, first = before.get(flag, PolicyNote("")), notes.get(flag, PolicyNote("")).first
        if (
            old.locked
            or form.value(flag) == old.first
            or (old.first == "yes" and form.checked(flag))
        ):
            form.values[flag] = first


def fill_locked(form: Form, notes: Mapping[str, PolicyNote]) -> None:
    """Fill locked fields, which browsers do not send, and which no template changes."""
    form.values |= {flag: note.first for flag, note in notes.items() if note.locked}


def locked_scopes(notes: Mapping[str, PolicyNote]) -> dict[str, str]:
    """The scopes of the policies that lock a field, by the name of the field."""
    return {flag: note.scope for flag, note in notes.items() if note.locked}


def _note(row: Option, rule: EffectiveRule) -> PolicyNote:
    first = rule.locked or rule.default
    parts: list[str] = []
    if rule.locked is not None:
        parts.append(_sentence(f"fixed at {_spelt(row, rule.locked.value)}", rule.locked))
    else:
        if rule.default is not None:
            parts.append(_said(f"filled in with {_spelt(row, rule.default.value)}", rule.default))
        for name, words in _SAID.items():
            bound: Bound | None = getattr(rule, name)
            if bound is not None:
                parts.append(_sentence(words.format(_spelt(row, bound.value)), bound))
        if rule.required is not None:
            parts.append(_sentence("has to be given", rule.required))
    return PolicyNote(
        text=" ".join(parts),
        locked=rule.locked is not None,
        first=_typed(row, first.value) if first is not None else "",
        scope=first.scope if first is not None else "",
    )


def _sentence(words: str, bound: Bound) -> str:
    """A rule, with what its author tells to whom it refuses."""
    told = bound.message.rstrip(".")
    message = f" {told[:1].upper()}{told[1:]}." if told else ""
    return f"{_said(words, bound)}{message}"


def _said(words: str, bound: Bound) -> str:
    return f"{words[:1].upper()}{words[1:]}, says {bound.said_by}."


def _typed(row: Option, value: Any) -> str:
    """A value as it stands in the field: of a list, each item on a line."""
    if row.many == "list" and isinstance(value, list):
        return "\n".join(_spelt(row, one) for one in value)
    return _spelt(row, value)


def _spelt(row: Option, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_spelt(row, one) for one in value)
    if row.value is None or isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return row.value.spell(value) if isinstance(value, str | int | float) else str(value)
