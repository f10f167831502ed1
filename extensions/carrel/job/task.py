"""The task that this process runs, from its environment, and how the process is going to exit.

Nothing inside a process tells its exit code, so ``ProcessExit`` watches what decides it: an
exception that nobody caught, and ``sys.exit``.
"""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

PREEMPTED: Final = 128 + signal.SIGTERM
"""Exit code of preempted work that wants to go on later."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task of this process; ``workload`` is empty outside a job.

    ``index`` is that of the task within its workload, ``checkpoint_every`` in seconds;
    ``continue_from`` has the checkpoints of another job from which this one goes on;
    ``continue_at`` is the name or the step of the one that is meant, if one was named.
    """

    url: str = ""
    token: str = field(default="", repr=False)
    project: str = ""
    workload: str = ""
    attempt: int = 0
    index: int = 0
    checkpoint_dir: Path = Path("checkpoints")
    checkpoint_every: float | None = None
    continue_from: Path | None = None
    continue_at: str = ""

    @property
    def reports_url(self) -> str:
        """The URL for reports, empty outside a job."""
        if not (self.url and self.token and self.project and self.workload):
            return ""
        return f"{self.url}/api/v1/workloads/{self.project}/{self.workload}/reports"


def present(environ: Mapping[str, str] | None = None) -> Task:
    """Read the environment. Tasks after the first have a checkpoint folder of their own."""
    env = os.environ if environ is None else environ
    index = int(env.get("POD_INDEX") or 0)
    folder = Path(env.get("CARREL_CHECKPOINT_DIR") or "checkpoints")
    every = env.get("CARREL_CHECKPOINT_EVERY")
    before = Path(env["CARREL_CONTINUE_FROM"]) if env.get("CARREL_CONTINUE_FROM") else None
    return Task(
        url=env.get("CARREL_URL", "").rstrip("/"),
        token=env.get("CARREL_TASK_TOKEN", ""),
        project=env.get("CARREL_PROJECT", ""),
        workload=env.get("CARREL_WORKLOAD", ""),
        attempt=int(env.get("CARREL_ATTEMPT") or 0),
        index=index,
        checkpoint_dir=folder / f"task-{index}" if index else folder,
        checkpoint_every=float(every) if every else None,
        continue_from=before / f"task-{index}" if before and index else before,
        continue_at=env.get("CARREL_CONTINUE_AT", ""),
    )


def warn(text: str) -> None:
    """Write a line to the job's log."""
    print(f"carrel: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the log of the job


class ProcessExit:
    """The exit of this process, as far as it is known."""

    def __init__(self) -> None:
        self._watching = self._preempted = False
        self._code = 0

    def watch(self) -> None:
        """Hook ``sys.excepthook`` and ``sys.exit``; hooks that were there are called, too."""
        if self._watching:
            return
        self._watching = True
        hook, leave = sys.excepthook, sys.exit

        def uncaught(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            self._code = 1
            hook(kind, error, trace)

        def leaving(status: object = None, /) -> NoReturn:
            self._code = _code_of(status)
            leave(status)  # type: ignore[arg-type]  # as wide as what it stands for

        sys.excepthook, sys.exit = uncaught, leaving

    def preempted(self) -> None:
        """The process received SIGTERM because of a preemption."""
        self._preempted = True

    def succeeded(self) -> bool | None:
        """Whether the work succeeded; ``None``: it is preempted and goes on later."""
        if self._code == PREEMPTED or (self._preempted and self._code):
            return None
        return self._code == 0


def _code_of(status: object) -> int:
    """The exit code of ``sys.exit(status)``."""
    if status is None:
        return 0
    return status if isinstance(status, int) else 1


process_exit: Final = ProcessExit()
