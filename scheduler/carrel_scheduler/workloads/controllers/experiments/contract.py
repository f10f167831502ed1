"""The interface of a study, independent of the library that stores it.

A study has trials by number, from 0; a trial is *open* until its end is recorded in the study.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec

from carrel_schema.sections import Parameter

MOST_STEPS: Final = 2000
TrialState = Literal["open", "completed", "pruned", "failed", "stopped"]


class StudyTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial: its configuration and its outcome.

    Attributes:
        value: the objective; of an open trial ``None``.
        steps: reported values of the metric, in the order of their steps.
        error: why it failed: a sentence, and the last lines of its log.
        run: how it ran in a worker; ``None``: it has a workload of its own, or will have.
    """

    number: int
    state: TrialState
    parameters: dict[str, Any] = {}
    value: float | None = None
    steps: tuple[tuple[int, float], ...] = ()
    error: str = ""
    run: "WorkerRun | None" = None


class WorkerRun(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's run in a worker.

    Attributes:
        worker: number of the worker that has it or had it last; -1: it waits to be run again.
        attempt: of that worker.
        losses: how often its worker was lost with it.
        seconds: how long it ran; ``None`` until it has ended.
        log: the end of what it printed.
        metrics: what it reported last, by name.
    """

    worker: int = -1
    attempt: int = 0
    losses: int = 0
    seconds: float | None = None
    log: str = ""
    metrics: dict[str, float] = {}


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """An open trial's work is over.

    ``completed`` takes the value that was reported; without one the trial has failed. ``stopped``
    is a trial that was not let finish, which is no failure of it.

    Attributes:
        latest: the last value that its workload's status has; counts where more values were
            reported than the study keeps.
        run: of a trial that ran in a worker; so are ``values``, reported at its end with their
            steps, and ``result``, the value that counts whatever was reported.
    """

    number: int
    state: Literal["completed", "failed", "stopped"]
    error: str = ""
    latest: float | None = None
    run: WorkerRun | None = None
    values: tuple[tuple[int | None, float], ...] = ()
    result: float | None = None


@dataclass(frozen=True, slots=True)
class StudyState:
    """The counts and open trials of a study.

    Attributes:
        open: parameters of the open trials by number.
        pruned: numbers of the trials that were stopped early.
        leaving: pruned trials that were told so because they asked, and until when (epoch seconds)
            they may end by themselves.
        made: how many trials there are.
        exhausted: no configuration is left that was not tried.
        best: the completed trial with the best value.
        last_error: of the trial that failed last.
        in_workers: open trials that workers run, or did before they were lost.
    """

    open: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    pruned: frozenset[int] = frozenset()
    leaving: Mapping[int, float] = field(default_factory=dict)
    made: int = 0
    completed: int = 0
    failed: int = 0
    exhausted: bool = False
    best: StudyTrial | None = None
    last_error: str = ""
    in_workers: Mapping[int, WorkerRun] = field(default_factory=dict)


class Study(Protocol):
    """The study of an experiment. Not for the event loop's thread; see ``studies``."""

    def standing(self) -> StudyState:
        """The study's counts and open trials."""
        ...

    def ask(self) -> bool:
        """Make the next trial; false when the space is exhausted."""
        ...

    def tell(self, ended: Ended) -> None:
        """End an open trial; no effect on one that has ended."""
        ...

    def assign(self, number: int, run: WorkerRun | None) -> StudyTrial:
        """Note which worker has an open trial, ``None`` for none, and return the trial."""
        ...

    def trial(self, number: int) -> StudyTrial | None:
        """A trial; ``None`` if it does not exist yet."""
        ...

    def report(self, number: int, values: Sequence[tuple[int | None, float]]) -> None:
        """Take values of the metric at steps (``None``: the next step), judging each of them.

        The trial is pruned by the first that the pruner does not like. A value at a step that has
        one replaces it: a trial that was preempted may go back. Only the first ``MOST_STEPS`` are
        kept and judged.
        """
        ...

    def result(self, number: int, value: float) -> None:
        """Set a trial's objective value, which takes precedence over reported values."""
        ...

    def pruned(self, number: int) -> bool:
        """Whether the trial was stopped early."""
        ...

    def leave(self, number: int, until: float, *, asks: bool) -> bool:
        """Whether the trial is pruned.

        Where trials ask for that, a pruned one has time until then to end by itself: from its
        report on, which may be stored before its question comes.
        """
        ...

    def suggest(self, number: int, name: str, parameter: Parameter) -> Any:
        """A parameter that the trial defines as it runs; always the same for the same name.

        Raises ``BadSuggestion`` where it does not go with what was suggested before.
        """
        ...

    def trials(self) -> list[StudyTrial]:
        """All trials in the order of their numbers."""
        ...


class BadSuggestion(Exception):  # noqa: N818 - an outcome to handle
    """A parameter that does not go with what the study knows of it; the message says why."""


class StoredStudy(Study, Protocol):
    """A study with the entries of its log that are not stored yet."""

    def take_pending(self) -> Sequence[str]:
        """Remove and return the entries that are to be stored."""
        ...
