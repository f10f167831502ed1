"""Field types of requests: each refuses with a code of its own and says what would be right.

Upper bounds are far above any real machine; they keep absurd numbers out of arithmetic and the
database. Text never holds NUL, which neither a process environment nor PostgreSQL can take.
"""

import re
from pathlib import PurePosixPath
from typing import Annotated, Final, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from carrel_scheduler.api.problems import Code
from carrel_scheduler.core.mig.models import EXPECTED, is_profile
from carrel_schema import names

MOST_GPUS: Final = 65_536
GPU_SHARES: Final = tuple(hundredths / 100 for hundredths in range(1, 100))
MOST_CPU_MILLICORES: Final = 100_000_000
MOST_MEMORY_BYTES: Final = 2**50
LEAST_MEMORY_BYTES: Final = 2**20
MOST_SECONDS: Final = 10 * 366 * 86_400.0
MOST_EPOCH_SECONDS: Final = 1e11
MOST_FILES_BYTES: Final = 2**20
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
DNS_LABEL_WORDS: Final = (
    "1 to 63 lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
)
ENVIRONMENT_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
CLAIM: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
LABEL_KEY: Final = r"^[A-Za-z0-9]([-_./A-Za-z0-9]{0,61}[A-Za-z0-9])?$"


class Request(BaseModel):
    """Base of every request: strict types, no unknown fields, no NaN."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )


class Query(BaseModel):
    """Base of query parameters, which arrive as text."""

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )


def refuse(code: Code, expected: str) -> NoReturn:
    """Refuse a value inside a pydantic validator."""
    raise PydanticCustomError(code.value, "{expected}", {"expected": expected})


def _gpus(value: float) -> float:
    if value != int(value) and value not in GPU_SHARES:
        refuse(
            Code.BAD_GPU_SHARE,
            "a share of one GPU in hundredths (0.01 to 0.99), or a whole number (0, 1, 2, …)",
        )
    return value


def _mig_profile(value: str) -> str:
    if value and not is_profile(value):
        refuse(Code.BAD_MIG_PROFILE, EXPECTED)
    return value


def _matching(pattern: str, code: Code, expected: str) -> AfterValidator:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def check(value: str) -> str:
        if compiled.match(value) is None:
            refuse(code, expected)
        return value

    return AfterValidator(check)


def _project_name(value: str) -> str:
    if not names.is_project_name(value):
        refuse(Code.BAD_NAME, names.PROJECT_WORDS)
    if names.is_reserved_project(value):
        refuse(Code.RESERVED_NAME, names.RESERVED_PROJECT_WORDS)
    return value


def _relative_path(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts or value.endswith("/"):
        refuse(
            Code.PATH_ESCAPES, "a relative path of a file inside the task's folder, without `..`"
        )
    return value


def _absolute_path(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or ".." in path.parts:
        refuse(Code.BAD_PATH, "an absolute path without `..`")
    return value


def _volume_source(value: str) -> str:
    path = PurePosixPath(value)
    named = bool(path.parts) and CLAIM.fullmatch(path.parts[0]) is not None
    if ".." in path.parts or not (path.is_absolute() or named):
        refuse(Code.BAD_PATH, "an absolute path, or on a cluster CLAIM or CLAIM/FOLDER")
    return value


def _absolute_path_or_empty(value: str) -> str:
    return _absolute_path(value) if value else value


def _no_parent(value: str) -> str:
    if ".." in PurePosixPath(value).parts:
        refuse(Code.PATH_ESCAPES, "a path without `..`")
    return value


NO_NUL: Final = r"^[^\x00]*$"
Text = Annotated[str, StringConstraints(max_length=65_536, pattern=NO_NUL)]
ShortText = Annotated[str, StringConstraints(max_length=512, pattern=NO_NUL)]
MetricName = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=NO_NUL)]
FileText = Annotated[str, StringConstraints(max_length=MOST_FILES_BYTES, pattern=NO_NUL)]

Name = Annotated[
    str,
    _matching(DNS_LABEL, Code.BAD_NAME, DNS_LABEL_WORDS),
    Field(json_schema_extra={"pattern": DNS_LABEL}),
]
ProjectName = Annotated[
    str,
    AfterValidator(_project_name),
    Field(json_schema_extra={"pattern": names.PROJECT_PATTERN}),
]
NamePrefix = Annotated[
    str,
    _matching(
        r"^[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?$",
        Code.BAD_NAME,
        "1 to 54 lower-case letters, digits and hyphens, beginning and ending with a letter or "
        "digit, so that a number still fits behind it",
    ),
    Field(json_schema_extra={"pattern": r"^[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?$"}),
]
EnvironmentName = Annotated[
    str,
    StringConstraints(max_length=256),
    _matching(
        ENVIRONMENT_NAME,
        Code.BAD_ENVIRONMENT_NAME,
        "letters, digits and underscores, not beginning with a digit",
    ),
]
LabelKey = Annotated[
    str,
    _matching(
        LABEL_KEY,
        Code.BAD_LABEL,
        "1 to 63 letters, digits, `-`, `_`, `.` and `/`, beginning and ending with a letter or "
        "digit",
    ),
]
LabelValue = Annotated[str, StringConstraints(max_length=256, pattern=NO_NUL)]
RelativePath = Annotated[PathText, AfterValidator(_relative_path)]
VolumeSource = Annotated[PathText, AfterValidator(_volume_source)]
WorkingDir = Annotated[
    str, StringConstraints(max_length=4096, pattern=NO_NUL), AfterValidator(_absolute_path_or_empty)
]
DestinationPath = Annotated[
    str, StringConstraints(max_length=4096, pattern=NO_NUL), AfterValidator(_no_parent)
]

Gpus = Annotated[
    float,
    Field(
        ge=0,
        le=MOST_GPUS,
        json_schema_extra={"anyOf": [{"multipleOf": 1}, {"enum": list(GPU_SHARES)}]},
    ),
    AfterValidator(_gpus),
]
MigProfile = Annotated[str, StringConstraints(max_length=32), AfterValidator(_mig_profile)]
CpuMillicores = Annotated[int, Field(ge=0, le=MOST_CPU_MILLICORES)]
MemoryBytes = Annotated[int, Field(ge=0, le=MOST_MEMORY_BYTES)]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
PositiveSeconds = Annotated[float, Field(ge=1, le=MOST_SECONDS)]
EpochSeconds = Annotated[float, Field(ge=0, le=MOST_EPOCH_SECONDS)]
Step = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(ge=-1e308, le=1e308)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Command = Annotated[list[Text], Field(max_length=1024)]
Environment = Annotated[dict[EnvironmentName, Text], Field(max_length=1024)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]
