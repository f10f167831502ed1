"""Experiments seen from close by: their trials, and what to make of the best."""

from typing import Any

import msgspec


class TrialRow(msgspec.Struct, frozen=True, kw_only=True):
    """One trial.

    Attributes:
        state: ``waiting``, ``running``, ``completed``, ``pruned``, ``failed`` or ``stopped``.
        steps: reported values of the metric as pairs of step and value.
        workload: its name; empty when it was removed. ``seconds``: how long it has run.
        error: why it failed, with the last lines of its log.
    """

    number: int
    state: str = ""
    parameters: dict[str, Any] = {}
    value: float | None = None
    steps: tuple[tuple[int, float], ...] = ()
    workload: str = ""
    phase: str = ""
    attempt: int = 0
    seconds: float | None = None
    error: str = ""


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of an experiment, and the number of the best."""

    metric: str = "objective"
    direction: str = "minimize"
    best: int | None = None
    items: tuple[TrialRow, ...] = ()


class StudyLog(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a study's log; ``next`` follows the last of them."""

    entries: list[dict[str, Any]] = []
    next: int = 0


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with the best trial's parameters, to be submitted.

    ``secrets`` are names of secret variables that the experiment has and the draft has not.
    """

    trial: int
    workload: dict[str, Any] = {}
    secrets: tuple[str, ...] = ()
