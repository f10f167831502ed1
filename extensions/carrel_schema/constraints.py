"""Constraints of the values of fields: bounds, lengths, patterns and forms, beside their types.

A field says its type, its default and its constraints where it is declared; validation of requests,
OpenAPI, custom resources, forms and the command line all read them there. Stored objects are read
without them: what was accepted once stays readable.

Upper bounds are far above any real machine; they keep absurd numbers out of arithmetic and the
database. Text never holds NUL, which neither a process environment nor PostgreSQL can take.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

Form = Literal[
    "name",
    "project_name",
    "name_prefix",
    "environment_name",
    "label_key",
    "label_pair",
    "relative_path",
    "absolute_path",
    "volume_source",
    "no_parent",
    "gpus",
    "quota_gpus",
    "mig_profile",
    "cron",
    "time_zone",
]
"""Forms that need more than a pattern; the REST API has a check and a sentence for each."""


class Mark(Enum):
    """A mark of how a field may be used."""

    INTERNAL = auto()
    """Written by the scheduler only: no part of a request."""
    REQUIRED = auto()
    """Has to be given in a request, though older objects may lack it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A constraint of a value; lengths are characters of texts, else numbers of items."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    form: Form | None = None


MOST_GPUS: Final = 65_536
MOST_CPU_MILLICORES: Final = 100_000_000
LEAST_MEMORY_BYTES: Final = 2**20
MOST_MEMORY_BYTES: Final = 2**50
MOST_SECONDS: Final = 10 * 366 * 86_400.0
MOST_EPOCH_SECONDS: Final = 1e11
MOST_FILES_BYTES: Final = 2**20
MOST_METRICS: Final = 200
NO_NUL: Final = r"^[^\x00]*$"

Text = Annotated[str, Constraint(max_length=65_536, pattern=NO_NUL)]
ShortText = Annotated[str, Constraint(max_length=512, pattern=NO_NUL)]
LongestText = Annotated[str, Constraint(max_length=4096, pattern=NO_NUL)]
PathText = Annotated[str, Constraint(min_length=1, max_length=4096, pattern=NO_NUL)]
FileText = Annotated[str, Constraint(max_length=MOST_FILES_BYTES, pattern=NO_NUL)]
MetricName = Annotated[
    str, Constraint(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
]
ParameterName = Annotated[str, Constraint(min_length=1, max_length=512, pattern=NO_NUL)]
Name = Annotated[str, Constraint(form="name")]
ProjectName = Annotated[str, Constraint(form="project_name")]
NamePrefix = Annotated[str, Constraint(form="name_prefix")]
EnvironmentName = Annotated[str, Constraint(max_length=256, form="environment_name")]
LabelKey = Annotated[str, Constraint(form="label_key")]
LabelValue = Annotated[str, Constraint(max_length=256, pattern=NO_NUL)]
RelativePath = Annotated[
    str, Constraint(min_length=1, max_length=4096, pattern=NO_NUL, form="relative_path")
]
VolumeSource = Annotated[
    str, Constraint(min_length=1, max_length=4096, pattern=NO_NUL, form="volume_source")
]
WorkingDir = Annotated[str, Constraint(max_length=4096, pattern=NO_NUL, form="absolute_path")]
DestinationPath = Annotated[str, Constraint(max_length=4096, pattern=NO_NUL, form="no_parent")]

Gpus = Annotated[float, Constraint(ge=0, le=MOST_GPUS, form="gpus")]
SharedGpus = Annotated[int, Constraint(ge=1, le=64)]
QuotaGpus = Annotated[float, Constraint(ge=0, le=MOST_GPUS, form="quota_gpus")]
GpuType = Annotated[
    str, Constraint(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][-A-Za-z0-9 _./]*$")
]
LevelName = Annotated[str, Constraint(max_length=317, pattern=NO_NUL)]
MigProfile = Annotated[str, Constraint(max_length=32, form="mig_profile")]
CpuMillicores = Annotated[int, Constraint(ge=0, le=MOST_CPU_MILLICORES)]
MemoryBytes = Annotated[int, Constraint(ge=0, le=MOST_MEMORY_BYTES)]
Seconds = Annotated[float, Constraint(ge=0, le=MOST_SECONDS)]
PositiveSeconds = Annotated[float, Constraint(ge=1, le=MOST_SECONDS)]
StallSeconds = Annotated[float, Constraint(ge=60, le=7 * 86_400)]
Number = Annotated[float, Constraint(ge=-1e308, le=1e308)]
Port = Annotated[int, Constraint(ge=1, le=65_535)]
Command = Annotated[list[Text], Constraint(max_length=1024)]
Environment = Annotated[dict[EnvironmentName, Text], Constraint(max_length=1024)]
Files = Annotated[dict[RelativePath, FileText], Constraint(max_length=1000)]
Labels = Annotated[dict[LabelKey, LabelValue], Constraint(max_length=64)]
Parameters = Annotated[dict[ParameterName, Any], Constraint(max_length=1000)]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structure.

    Attributes:
        name: in Python, on the wire and in the ledger.
        hint: its type, with the constraints inside of it.
        default: when nothing is said; ``NODEFAULT`` where something must be.
        marks: what may be done with it.
        text: what it means, from the structure's documentation; empty: nothing is said.
    """

    name: str
    hint: Any
    default: Any
    marks: frozenset[Mark]
    text: str

    @property
    def required(self) -> bool:
        """Whether a request has to say it."""
        return self.default is msgspec.NODEFAULT or Mark.REQUIRED in self.marks


@cache
def fields(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    """List the fields of a structure by name, in their order."""
    hints, told = get_type_hints(struct, include_extras=True), documentation(struct)
    found = {}
    for one in msgspec.structs.fields(struct):
        hint, marks = hints[one.name], frozenset[Mark]()
        if get_origin(hint) is Annotated:
            base, *said = get_args(hint)
            marks = frozenset(mark for mark in said if isinstance(mark, Mark))
            rest = tuple(mark for mark in said if not isinstance(mark, Mark))
            hint = Annotated[(base, *rest)] if rest else base
        factory = one.default_factory
        default = one.default if factory is msgspec.NODEFAULT else factory()
        found[one.name] = Field(one.name, hint, default, marks, told.get(one.name, ""))
    return found


def constraints(hint: Any) -> Iterator[Constraint]:
    """Find the constraints of a value itself, not of its items; "or null" is skipped."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from constraints(arguments[0])
        yield from (one for one in arguments[1:] if isinstance(one, Constraint))
    elif type(None) in arguments and len(arguments) == 2:
        yield from constraints(arguments[0] if arguments[1] is type(None) else arguments[1])


def bare(hint: Any) -> Any:
    """Strip annotations and "or null" from a type."""
    if get_origin(hint) is Annotated:
        return bare(get_args(hint)[0])
    rest = [one for one in get_args(hint) if one is not type(None)]
    return bare(rest[0]) if type(None) in get_args(hint) and len(rest) == 1 else hint


_ENTRY: Final = re.compile(r"^([a-z_][a-z0-9_, ]*): (.*)$")


@cache
def documentation(struct: type) -> dict[str, str]:
    """Read the documentation of fields, by name, from a structure and its bases."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        names: list[str] = []
        for line in _parts(base)[1].splitlines():
            entry = _ENTRY.match(line)
            if entry is not None:
                names = [name.strip() for name in entry[1].split(",")]
                found |= dict.fromkeys(names, entry[2])
            elif names:
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return {name: _clean(text) for name, text in found.items()}


def summary(struct: type) -> str:
    """Read the description of a structure from its docstring."""
    return _clean(_parts(struct)[0])


def _parts(struct: type) -> tuple[str, str]:
    text, _, attributes = inspect.cleandoc(struct.__doc__ or "").partition("Attributes:\n")
    return text.strip(), inspect.cleandoc(attributes)


def _clean(text: str) -> str:
    plain = " ".join(text.replace("``", "`").split())
    return plain[:1].upper() + plain[1:]
