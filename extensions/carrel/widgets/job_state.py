"""The state behind a job's view: events and log text in, plain data for the page out. Pure."""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from carrel import wording
from carrel.models import Event, MetricPoint, Preemption, Task, Workload
from carrel.options.kinds import type_word
from carrel_schema.text.preemption_cost import preemption_cost

LINES: Final = 12
LINE_LENGTH: Final = 400
POINTS: Final = 240
CURVES: Final = 6
LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
ENDED: Final = ("succeeded", "failed", "stopped", "deleted")


@dataclass(slots=True)
class JobState:
    """A job, its metrics and its last lines of output.

    Attributes:
        curves: reported values by name as ``[step, value]``, oldest first, thinned out.
        lines: the last lines it printed.
    """

    workload: Workload
    gone: bool = False
    curves: dict[str, list[list[float]]] = field(default_factory=dict)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    _open: str = ""

    @property
    def phase(self) -> str:
        """The phase that people see; ``deleted`` once it is removed."""
        return "deleted" if self.gone else self.workload.status.phase

    @property
    def over(self) -> bool:
        """Whether the job has ended, is suspended or removed."""
        return self.gone or self.workload.at_rest

    def take(self, event: Event) -> None:
        """Apply an event of this workload."""
        if event.workload.uid != self.workload.uid and self.workload.uid:
            return
        self.workload = event.workload
        if event.type == "deleted":
            self.gone = True
        if event.report is not None:
            step = event.report.step
            for name, value in event.report.metrics.items():
                points = self.curves.setdefault(name, [])
                points.append([float(len(points) if step is None else step), value])
                self._thin(points)

    def take_curves(self, curves: dict[str, list[MetricPoint]]) -> None:
        """The curves up to now, as the scheduler keeps them."""
        for name, points in curves.items():
            self.curves[name] = [[float(point.step), point.value] for point in points]
            self._thin(self.curves[name])

    def take_text(self, text: str) -> None:
        """Append a piece of output, cut anywhere."""
        for piece in LINE.findall(text):
            whole = self._open + piece
            if self._open:
                self.lines.pop()
            self.lines.append(_seen(whole))
            self._open = "" if piece.endswith("\n") else whole[-LINE_LENGTH:]

    def begin_output(self) -> None:
        """Clear the lines for the output of a new attempt."""
        self.lines.clear()
        self._open = ""

    def traits(self) -> dict[str, Any]:
        """Plain data for the page; equal while nothing changed."""
        shown = dict(list(self.curves.items())[:CURVES])
        return {
            "job": describe(self.workload, self.phase),
            "curves": {name: [list(point) for point in points] for name, points in shown.items()},
            "lines": list(self.lines),
        }

    def _thin(self, points: list[list[float]]) -> None:
        while len(points) > POINTS:
            del points[1:-1:2]


def _seen(line: str) -> str:
    """The final text of a line: a progress bar overwrites itself."""
    return line.rstrip("\r\n").rpartition("\r")[2][:LINE_LENGTH]


def describe(workload: Workload, phase: str) -> dict[str, Any]:
    """A workload as plain data for the page. Times are epoch seconds; the page counts."""
    spec, status = workload.spec, workload.status
    progress, task = status.progress, status.tasks[0] if status.tasks else None
    return {
        "name": workload.name,
        "project": workload.project,
        "type": type_word(spec.kind),
        "phase": phase,
        "icon": wording.phase_icon(phase),
        "word": wording.state_word(workload)
        if phase == status.phase
        else wording.phase_word(phase),
        "reason": "" if phase == "deleted" else wording.why(workload),
        "help": status.reason.help if status.reason is not None else "",
        "place": status.queue_position if phase == "pending" else None,
        "gpus": wording.gpus_of(workload, max(spec.tasks, 1)),
        "where": where(workload) if phase in ("running", "preempting", "stopping") else "",
        "borrowed": status.borrowed,
        "queued_at": status.queued_at,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "exit": None if task is None else task.exit_code,
        "progress": None
        if progress is None
        else {
            "done": progress.done,
            "total": progress.total,
            "unit": progress.unit,
            "rate": progress.rate,
            "at": progress.at,
        },
        "checkpoint": None if status.checkpoint is None else status.checkpoint.step,
        "preemption": None
        if status.last_preemption is None
        else {
            "at": status.last_preemption.at,
            "text": preemption_text(status.last_preemption, status.phase),
        },
        "preemptions": status.preemptions,
        "members": members(workload),
        "over": phase in ENDED,
    }


def where(workload: Workload) -> str:
    """``node-1, GPU 0 and 3``; of a gang its nodes."""
    tasks = workload.status.tasks
    nodes = list(dict.fromkeys(task.node for task in tasks))
    if len(nodes) > 2:
        return f"{len(nodes)} nodes"
    return " and ".join(nodes) if len(tasks) != 1 else place(tasks[0])


def place(task: Task) -> str:
    """``node-1, GPU 0 and 3``."""
    if not task.devices:
        return task.node
    return f"{task.node}, GPU {' and '.join(str(device) for device in task.devices)}"


def members(workload: Workload) -> list[dict[str, Any]]:
    """The members of a gang; empty for work of a single task."""
    tasks = workload.status.tasks
    if max(workload.spec.tasks, len(tasks)) < 2:
        return []
    return [
        {
            "index": task.index,
            "where": place(task),
            "text": _ending(task),
            "running": task.started_at is not None and task.ended_at is None,
        }
        for task in sorted(tasks, key=lambda task: task.index)
    ]


def _ending(task: Task) -> str:
    """The end of a worker's run in words; empty while it runs."""
    if task.ended_at is None:
        return ""
    ended = f"ended by signal {task.signal}" if task.signal else f"exit code {task.exit_code}"
    return f"{ended}: {task.message}" if task.message else ended


def preemption_text(preemption: Preemption, phase: str) -> str:
    """The words about a preemption: for whom, by which rule, and what was lost once it has ended.

    Args:
        preemption: the last one.
        phase: the workload's; nothing is said of the loss while it is ``preempting``.
    """
    whom = f" for `{preemption.for_project}`" if preemption.for_project else ""
    rule = wording.preemption_rule(preemption.rule)
    cost = "" if phase == "preempting" else f"; {preemption_cost(preemption)}"
    return f"preempted{whom} ({rule}){cost}."
