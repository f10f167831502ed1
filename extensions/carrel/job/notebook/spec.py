"""The specification of a notebook job, which the scheduler puts into the task's folder."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from carrel.job.notebook.reporting import NotebookProblem

FILE: Final = Path(".carrel/notebook.json")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The specification of a run.

    Attributes:
        path: of the notebook, as it was found for.
        output: where the executed one goes; empty: beside it.
        cell_timeout: seconds for each cell.
        grace_seconds: how long the job has to end after SIGTERM.
        job: its name; ``uid`` tells apart jobs that had the same one.
        attempt: which start this is, from 0.
        task_dir: where files that came along lie.
        home: of the user.
        kept: where what outlasts an attempt is kept.
        date: the day on which this attempt began.
    """

    path: str
    output: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kernel: str = ""
    cell_timeout: float | None = None
    grace_seconds: float = 30.0
    job: str = "notebook"
    project: str = ""
    uid: str = ""
    attempt: int = 0
    task_dir: Path = Path()
    home: Path = Path()
    kept: Path = Path("checkpoints/notebook")
    date: str = ""

    @property
    def alone(self) -> bool:
        """Whether its own folder is its home: a container, of which nothing stays."""
        return self.home == self.task_dir

    @property
    def sent_along(self) -> Path:
        """The path of a notebook that came with the request."""
        return self.task_dir / self.path


def read(environ: Mapping[str, str] | None = None) -> RunSpec:
    """The specification of this task. Raises ``NotebookProblem`` when there is none."""
    env = os.environ if environ is None else environ
    task_dir = Path(env.get("CARREL_TASK_DIR") or ".")
    file = task_dir / FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        path = str(found["path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookProblem(
            "order_missing",
            f"{file} does not say which notebook to run; submit one with `carrel run-notebook`.",
        ) from error
    return RunSpec(
        path=path,
        output=str(found.get("output") or ""),
        parameters=dict(found.get("parameters") or {}),
        kernel=str(found.get("kernel") or ""),
        cell_timeout=found.get("cell_timeout_seconds"),
        grace_seconds=float(found.get("grace_seconds", 30.0)),
        job=env.get("CARREL_WORKLOAD") or "notebook",
        project=env.get("CARREL_PROJECT", ""),
        uid=env.get("CARREL_WORKLOAD_UID", ""),
        attempt=int(env.get("CARREL_ATTEMPT") or 0),
        task_dir=task_dir.absolute(),
        home=Path(env.get("HOME") or ".").absolute(),
        kept=Path(env.get("CARREL_CHECKPOINT_DIR") or "checkpoints").absolute() / "notebook",
        date=time.strftime("%Y-%m-%d"),
    )
