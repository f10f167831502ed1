"""What the scheduler told this process about itself, from its environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Task:
    """The job this process belongs to; ``workload`` is empty outside one.

    ``index`` is that of the task within its workload, ``checkpoint_every`` in seconds;
    ``continue_from`` has the checkpoints of other work that it was told to go on from.
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

    @property
    def reports_to(self) -> str:
        """The URL for reports, empty when there is nobody to report to."""
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
    )


def warn(text: str) -> None:
    """Tell the person who reads the job's log."""
    print(f"carrel: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the log of the job
