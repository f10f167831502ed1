"""Kinds of work that come with a program of ours: its command, and its files.

The program runs with the platform's own Python, as the user; what it has to do lies in a file of
the task's folder, so that parameters may be as long as they need to be. For another Python, give a
command that begins with it.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import WorkloadSpec
from carrel_schema.sections import Retries, Route, TensorBoardSpec

MODULES: Final[Mapping[WorkloadKind, str]] = {
    "notebook": "carrel.job.notebook",
    "tensorboard": "carrel.job.tensorboard",
}
ORDERS: Final = ".carrel"
FETCH: Final = f"{ORDERS}/code.py"
FETCH_PROGRAM: Final = Path(__file__).with_name("code_client.py")
CPU_MILLI: Final[Mapping[WorkloadKind, int]] = {"tensorboard": 500}
BACKOFF_LIMIT: Final[Mapping[WorkloadKind, int]] = {"notebook": 0}
"""A cell that fails does so again; what was lost or evicted is run again all the same."""
SEALED: Final = frozenset({"tensorboard"})
"""Kinds whose tasks run a program of ours and nothing of their user's."""
_FIELDS_OF_A_PROGRAM: Final = (
    *("command", "environment", "secret_environment", "files"),
    *("image", "routes", "volumes", "working_dir", "code"),
)


def foreign_fields(kind: str, asked: object) -> list[str]:
    """Fields of a request or a specification that work of this kind does not accept."""
    if kind not in SEALED:
        return []
    return [name for name in _FIELDS_OF_A_PROGRAM if getattr(asked, name, None)]


def expected(kind: str, field: str) -> str:
    """The expectation of an error about a field that work of this kind does not accept."""
    return f"no `{field}`: a {kind} is a program of its own"


def sealed(spec: WorkloadSpec) -> WorkloadSpec:
    """The specification to launch of a sealed kind, which always runs Carrel's own program.

    An object of a cluster can be changed after it was admitted.
    """
    return msgspec.structs.replace(
        spec,
        command=command_for(spec.kind),
        environment={},
        files={},
        image="",
        volumes=[],
        read_only=[],
        working_dir="",
        code=None,
    )


def retries(asked: Retries | None, backoff_limit: int) -> Retries | None:
    """Retries by class; a backoff limit that was asked for holds for the program's errors, too."""
    if not backoff_limit or (asked is not None and asked.application is not None):
        return asked
    return msgspec.structs.replace(asked or Retries(), application=backoff_limit)


def command_for(kind: WorkloadKind) -> list[str]:
    """The command of a kind of work that has a program of its own; empty for others."""
    module = MODULES.get(kind)
    if module is None:
        return []
    # Nothing is imported from folders that its user can write.
    alone = ["-I"] if kind in SEALED else []
    return [sys.executable, *alone, "-m", module]


def routes_for(kind: WorkloadKind, board: TensorBoardSpec | None = None) -> list[Route]:
    """The ports by which work of this kind is reached, unless its owner names others."""
    if kind == "inference":
        return [Route()]
    if kind != "tensorboard":
        return []
    idle = (board or TensorBoardSpec()).idle_seconds
    return [Route(access="project", keep_prefix=True, idle_seconds=idle)]


def files_of(spec: WorkloadSpec) -> Mapping[str, str]:
    """The files of our programs: the one that fetches code, and what each has to do."""
    found: dict[str, str] = {}
    if spec.code is not None or spec.repositories:
        found[FETCH] = FETCH_PROGRAM.read_text(encoding="utf-8")
        found[f"{ORDERS}/code.json"] = msgspec.json.encode(_sources_of(spec)).decode()
    if spec.kind in MODULES:
        section = spec.notebook if spec.kind == "notebook" else spec.tensorboard
        order = {**msgspec.to_builtins(section), "grace_seconds": spec.grace_seconds}
        found[f"{ORDERS}/{spec.kind}.json"] = msgspec.json.encode(order).decode()
    return found


def _sources_of(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """The repositories to fetch; ``number`` is that of the variables with the credentials."""
    code = [] if spec.code is None else [{**msgspec.to_builtins(spec.code), "number": 0}]
    return code + [
        {**msgspec.to_builtins(one), "number": number}
        for number, one in enumerate(spec.repositories, 1)
    ]


def fetching(command: Sequence[str], python: str) -> tuple[str, ...]:
    """The command, preceded by the download of the code; see ``code_client``."""
    return (python, FETCH, *command)
