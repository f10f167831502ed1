"""What a user may choose for a workspace, and the check of every choice.

The same check serves the start form, the Hub's API (which bypasses the form) and the queue, so
that nothing unchecked reaches the scheduler. Whether the sizes can ever be met is the scheduler's
answer. Sizes may also come in the units of the scheduler's API, as its call on our turn has them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

GROUP_PREFIX: Final = "project-"
FIELDS: Final = ("project", "gpus", "cpu", "memory_gib", "claim")
API_FIELDS: Final = ("cpu_millicores", "memory_bytes")
BYTES_PER_GIB: Final = 1024**3


class BadOption(ValueError):  # noqa: N818 - reads as the fact it states
    """A choice that cannot be used: names the field, the value and what would be right."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field} is {value!r}; it should be {expected}.")
        self.field, self.value, self.expected = field, value, expected


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amounts taken when nothing is chosen: GPUs, processor cores, memory in GiB."""

    gpus: int = 0
    cpu: float = 0.5
    memory_gib: float = 2.0


@dataclass(frozen=True, slots=True)
class Choice:
    """A checked choice. ``claim`` names a workload of the queue that has got its turn."""

    project: str
    gpus: int
    cpu: float
    memory_gib: float
    claim: str = ""

    @property
    def cpu_millicores(self) -> int:
        """Processor share in thousandths of a core."""
        return round(self.cpu * 1000)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return round(self.memory_gib * BYTES_PER_GIB)

    def options(self) -> dict[str, Any]:
        """As the Hub stores it for the next start; a claim is good for one start only."""
        return {
            "project": self.project,
            "gpus": self.gpus,
            "cpu": self.cpu,
            "memory_gib": self.memory_gib,
        }


def projects_of(groups: Collection[str]) -> list[str]:
    """The projects that these Hub groups make one a member of, in alphabetical order."""
    return sorted(
        group.removeprefix(GROUP_PREFIX)
        for group in groups
        if group.startswith(GROUP_PREFIX) and group != GROUP_PREFIX
    )


def from_form(fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Form fields as options; fields that are not ours (``_xsrf``, ``action``) are left out."""
    return {
        name: values[-1].strip()
        for name, values in fields.items()
        if name in FIELDS and values and values[-1].strip()
    }


def check(options: Mapping[str, Any], projects: Sequence[str], defaults: Sizes) -> Choice:
    """Check options against what the user may choose. Raises ``BadOption``."""
    for name in options:
        if name not in FIELDS + API_FIELDS:
            raise BadOption(name, options[name], f"left out (known are {', '.join(FIELDS)})")
    claim = options.get("claim", "")
    if not isinstance(claim, str):
        raise BadOption("claim", claim, "the name of a queued workspace")
    options = _in_our_units(options)
    return Choice(
        project=_project(options.get("project", ""), projects),
        gpus=int(_number("gpus", options.get("gpus", defaults.gpus), 0, 1024, whole=True)),
        cpu=_number("cpu", options.get("cpu", defaults.cpu), 0.1, 1024),
        memory_gib=_number(
            "memory_gib", options.get("memory_gib", defaults.memory_gib), 0.25, 65536
        ),
        claim=claim,
    )


def _in_our_units(options: Mapping[str, Any]) -> dict[str, Any]:
    """Millicores and bytes as cores and GiB."""
    ours = dict(options)
    for theirs, field, unit in (
        ("cpu_millicores", "cpu", 1000),
        ("memory_bytes", "memory_gib", BYTES_PER_GIB),
    ):
        if theirs in ours:
            ours[field] = _number(theirs, ours.pop(theirs), 0, 1024**6) / unit
    return ours


def _project(value: object, projects: Sequence[str]) -> str:
    if not projects:
        raise BadOption("project", value, "one of yours, but you are not in any: ask an admin")
    if value in ("", None):
        return projects[0]
    if not isinstance(value, str) or value not in projects:
        raise BadOption("project", value, f"one of your projects ({', '.join(projects)})")
    return value


def _number(field: str, value: object, least: float, most: float, *, whole: bool = False) -> float:
    kind = "a whole number" if whole else "a number"
    expected = f"{kind} from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadOption(field, value, expected)
    try:
        number = float(value)
    except ValueError:
        raise BadOption(field, value, expected) from None
    if not least <= number <= most or (whole and number != int(number)):
        raise BadOption(field, value, expected)
    return number
