"""Forms: what people typed, what is wrong with it, and what it means to the API.

A form keeps the text as typed, so that a refused form comes back as it was. Errors found here and
those in the API's problem documents end up at the same fields.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from carrel.errors import ApiError
from carrel_schema.text import group_amounts

SHOWN_BACK: Final = frozenset({400, 403, 404, 409, 422})
"""Refusals of the API, by status, that are shown at the form: something else typed may be right."""
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*[a-z]*\s*)+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_UNITS = {
    "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86_400, "day": 86_400, "days": 86_400, "": 60,
}  # fmt: skip


@dataclass(slots=True)
class Form:
    """Typed texts by field, and errors by field; ``general`` is about no field in particular."""

    values: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    general: str = ""

    @property
    def refused(self) -> bool:
        """Whether something is wrong."""
        return bool(self.errors or self.general)

    def value(self, name: str) -> str:
        """The text of a field without surrounding blanks."""
        return self.values.get(name, "").strip()

    def checked(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.value(name) in {"on", "yes", "true"}

    def required(self, name: str) -> str:
        """The text of a field that must not be empty."""
        text = self.value(name)
        if not text:
            self.errors[name] = "Please fill this in."
        return text

    def amount(self, name: str, *, empty: float | None = None) -> float | None:
        """A number of at least 0; ``empty`` for an empty field."""
        text = self.value(name).replace(",", "")
        if not text:
            return empty
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not math.isfinite(found) or found < 0:
            self.errors[name] = "This should be a number, 0 or larger, such as 2 or 0.5."
            return empty
        return found

    def whole(self, name: str, *, empty: int | None = None) -> int | None:
        """A whole number of at least 0."""
        found = self.amount(name)
        if found is None:
            return empty
        if found != int(found):
            self.errors[name] = "This should be a whole number."
            return empty
        return int(found)

    def names(self, name: str) -> list[str]:
        """Names with commas between."""
        return [one.strip() for one in self.value(name).split(",") if one.strip()]

    def group_amounts(self, name: str) -> dict[str, float]:
        """GPUs by name of a node group, as `a100=4, h100=2`; those with `none` are left out."""
        try:
            found = group_amounts.read(self.value(name))
        except ValueError as error:
            self.errors[name] = f"{error}."
            return {}
        return {group: gpus for group, gpus in found.items() if gpus is not None}

    def rank(self, name: str) -> int:
        """A whole number, also a negative one; an empty field is 0."""
        text = self.value(name)
        if not re.fullmatch(r"-?\d{0,4}", text) or text == "-":
            self.errors[name] = "This should be a whole number, such as 0, 10 or -10."
            return 0
        return int(text or 0)

    def seconds(self, name: str, *, empty: float | None = None) -> float | None:
        """A duration such as ``90 min``, ``8 h``, ``1 d 4 h``; a bare number is minutes."""
        text = self.value(name).lower()
        if not text:
            return empty
        found = parse_duration(text)
        if found is None:
            self.errors[name] = "This should be a duration such as 45 min, 8 h or 1 d."
            return empty
        return found

    def take(self, problem: ApiError, fields: Mapping[str, str]) -> None:
        """Assign the errors of the API to the fields of the form.

        Args:
            problem: what the API answered.
            fields: name in the API to name in this form.
        """
        for error in problem.errors:
            of = str(error.get("field", ""))
            name = fields.get(of) or fields.get(of.rpartition(".")[0])
            expected = str(error.get("expected") or problem.detail or problem.title)
            if name is None:
                self.general = str(problem)
            else:
                self.errors[name] = f"This should be {expected.rstrip('.')}."
        if not problem.errors:
            self.general = str(problem)


def parse_duration(text: str) -> float | None:
    """Seconds of ``1 d 4 h``, ``90 min``, ``15`` (minutes); ``None`` when it is none of these."""
    squeezed = text.strip().lower()
    if not _DURATION.fullmatch(squeezed):
        return None
    parts = _DURATION_PART.findall(squeezed)
    if any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in parts)


def spell_duration(seconds: float | None) -> str:
    """A duration as a form's field shows it, so that reading it back gives the same."""
    if seconds is None:
        return ""
    whole = int(seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= size and whole % size == 0:
            return f"{whole // size} {unit}"
    return f"{whole // 60} min" if whole % 60 == 0 and whole else f"{whole} s"
