"""Checks of values that a pattern cannot express, each with a sentence that says what is right.

``carrel_schema.constraints.Form`` names them; a form that has no check here cannot be used.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, NoReturn

from pydantic_core import PydanticCustomError

from carrel_scheduler.api.problems import Code
from carrel_scheduler.core.mig.models import EXPECTED, is_profile
from carrel_scheduler.policy import cron
from carrel_schema import constraints, names

GPU_SHARES: Final = tuple(hundredths / 100 for hundredths in range(1, 100))
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
DNS_LABEL_WORDS: Final = (
    "1 to 63 lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
)
NAME_PREFIX: Final = r"^[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?$"
ENVIRONMENT_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
LABEL_KEY: Final = r"^[A-Za-z0-9]([-_./A-Za-z0-9]{0,61}[A-Za-z0-9])?$"
CLAIM: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Checked:
    """A check that returns the value or refuses it, and its description in JSON Schema."""

    check: Callable[[Any], Any]
    schema: Mapping[str, Any] = field(default_factory=dict)


def refuse(code: Code, expected: str) -> NoReturn:
    """Refuse a value inside a validator."""
    raise PydanticCustomError(code.value, "{expected}", {"expected": expected})


def _matching(pattern: str, code: Code, expected: str) -> Callable[[str], str]:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def check(value: str) -> str:
        if compiled.match(value) is None:
            refuse(code, expected)
        return value

    return check


def _gpus(value: float) -> float:
    if value != int(value) and value not in GPU_SHARES:
        refuse(
            Code.BAD_GPU_SHARE,
            "a share of one GPU in hundredths (0.01 to 0.99), or a whole number (0, 1, 2, …)",
        )
    return value


def _quota_gpus(value: float) -> float:
    if round(value * 100) != round(value * 100, 6):
        refuse(Code.BAD_GPU_SHARE, "a number of GPUs in hundredths (2, 2.5 or 0.25)")
    return value


def _mig_profile(value: str) -> str:
    if value and not is_profile(value):
        refuse(Code.BAD_MIG_PROFILE, EXPECTED)
    return value


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
    if value and (not path.is_absolute() or ".." in path.parts):
        refuse(Code.BAD_PATH, "an absolute path without `..`")
    return value


def _volume_source(value: str) -> str:
    path = PurePosixPath(value)
    named = bool(path.parts) and CLAIM.fullmatch(path.parts[0]) is not None
    if ".." in path.parts or not (path.is_absolute() or named):
        refuse(Code.BAD_PATH, "an absolute path, or on a cluster CLAIM or CLAIM/FOLDER")
    return value


def _no_parent(value: str) -> str:
    if ".." in PurePosixPath(value).parts:
        refuse(Code.PATH_ESCAPES, "a path without `..`")
    return value


def _cron(value: str) -> str:
    try:
        cron.check(value)
    except cron.BadCron as error:
        refuse(Code.BAD_CRON, str(error))
    return value


def _time_zone(value: str) -> str:
    try:
        cron.zone(value)
    except cron.BadTimeZone as error:
        refuse(Code.BAD_TIME_ZONE, str(error))
    return value


def _label_pair(value: str) -> str:
    if not value.partition("=")[1]:
        refuse(Code.BAD_LABEL, "a label as `key=value`")
    return value


FORMS: Final[Mapping[constraints.Form, Checked]] = {
    "name": Checked(_matching(DNS_LABEL, Code.BAD_NAME, DNS_LABEL_WORDS), {"pattern": DNS_LABEL}),
    "project_name": Checked(
        _project_name, {"pattern": names.PROJECT_PATTERN, "description": names.PROJECT_WORDS}
    ),
    "name_prefix": Checked(
        _matching(
            NAME_PREFIX,
            Code.BAD_NAME,
            "1 to 54 lower-case letters, digits and hyphens, beginning and ending with a letter or "
            "digit, so that a number still fits behind it",
        ),
        {"pattern": NAME_PREFIX},
    ),
    "environment_name": Checked(
        _matching(
            ENVIRONMENT_NAME,
            Code.BAD_ENVIRONMENT_NAME,
            "letters, digits and underscores, not beginning with a digit",
        )
    ),
    "label_key": Checked(
        _matching(
            LABEL_KEY,
            Code.BAD_LABEL,
            "1 to 63 letters, digits, `-`, `_`, `.` and `/`, beginning and ending with a letter or "
            "digit",
        )
    ),
    "label_pair": Checked(_label_pair),
    "relative_path": Checked(_relative_path),
    "absolute_path": Checked(_absolute_path),
    "volume_source": Checked(_volume_source),
    "no_parent": Checked(_no_parent),
    # Not "anyOf": makers of clients take the values of one branch for all that there are.
    "gpus": Checked(
        _gpus,
        {
            "if": {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "then": {"enum": list(GPU_SHARES)},
            "else": {"multipleOf": 1},
        },
    ),
    "quota_gpus": Checked(_quota_gpus, {"multipleOf": 0.01}),
    "mig_profile": Checked(_mig_profile),
    "cron": Checked(_cron),
    "time_zone": Checked(_time_zone),
}
