"""Kinds of work that come with a program of ours: what it is, and what it is told.

The program runs with the platform's own Python, as the user; what it has to do lies in a file of
the task's folder, so that parameters may be as long as they need to be. For another Python, give a
command that begins with it.
"""

import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from carrel_scheduler.ledger.kinds import WorkloadKind
from carrel_scheduler.ledger.objects import WorkloadSpec
from carrel_scheduler.ledger.sections import Route

MODULES: Final[Mapping[WorkloadKind, str]] = {
    "notebook": "carrel.job.notebook",
    "tensorboard": "carrel.job.tensorboard",
}
ORDERS: Final = ".carrel"
CPU_MILLI: Final[Mapping[WorkloadKind, int]] = {"tensorboard": 500}
BACKOFF_LIMIT: Final[Mapping[WorkloadKind, int]] = {"notebook": 0}
"""A cell that fails does so again; what was lost or gave way is run again all the same."""
IDLE_SECONDS: Final = 1800.0


def command_for(kind: WorkloadKind) -> list[str]:
    """The program that work of this kind comes with; empty when it has none."""
    module = MODULES.get(kind)
    if module is None:
        return []
    # The pages of a TensorBoard run with the Hub's origin: nothing of its user's is imported.
    alone = ["-I"] if kind == "tensorboard" else []
    return [sys.executable, *alone, "-m", module]


def routes_for(kind: WorkloadKind) -> list[Route]:
    """The ports by which work of this kind is reached, unless its owner names others."""
    if kind == "inference":
        return [Route()]
    if kind != "tensorboard":
        return []
    return [Route(access="project", keep_prefix=True, idle_seconds=IDLE_SECONDS)]


def events_of(uid: str, spec: WorkloadSpec) -> str:
    """Where work writes its event files, see ``TaskSpec``: parts below what they are parts of.

    Nowhere in a workspace, whose notebooks report to nobody.
    """
    if spec.kind == "workspace":
        return ""
    return f"{spec.owner}/{spec.part}" if spec.owner else uid


def files_of(spec: WorkloadSpec) -> Mapping[str, str]:
    """The files that the task finds: those that came along, and what our program has to do."""
    if spec.kind not in MODULES:
        return spec.files
    section = spec.notebook if spec.kind == "notebook" else spec.tensorboard
    order = {**msgspec.to_builtins(section), "grace_seconds": spec.grace_seconds}
    text = msgspec.json.encode(order).decode()
    return {**spec.files, f"{ORDERS}/{spec.kind}.json": text}
