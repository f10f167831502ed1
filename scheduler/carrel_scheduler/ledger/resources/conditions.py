"""Conditions of an object, and what tables show of it: both follow from its status alone.

Conditions answer the questions that programs ask (``kubectl wait --for=condition=Complete``);
``shown`` holds the words and counts that ``carrel list jobs`` has for the same workload.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_schema.objects import Object, Phase, ReasonInfo, Workload

HOLDING: Final[frozenset[Phase]] = frozenset({"starting", "running", "preempting", "stopping"})
_MILLI: Final = 1000
_AT_WORK: Final = frozenset({"running", "preempting", "stopping"})
_OF_NODES: Final = frozenset({"NodeCordoned", "NodeDraining", "NodeSilent", "NodeGone"})
"""Reasons of running work: its node is about to end it, or may have."""
_ENDS: Final = {"succeeded": "Complete", "failed": "Failed", "stopped": "Suspended"}
_GAVE_WAY: Final = frozenset({"Reclaimed", "Preempted"})
_BY_A_LIMIT: Final = frozenset({"TimedOut", "Idle"})


def of(obj: Object) -> dict[str, Any]:
    """The additions to a status: conditions, the generation they are of, columns of tables."""
    generation = obj.status.observed_generation or obj.meta.generation
    if not isinstance(obj, Workload):
        return {"conditions": [_one("Accepted", "Accepted", "", obj.meta.created_at, generation)]}
    return {
        "phase": obj.status.phase,
        "conditions": list(_of_work(obj, generation)),
        "shown": shown(obj),
    }


def _of_work(workload: Workload, generation: int) -> Iterator[dict[str, Any]]:
    status = workload.status
    phase, reason = status.phase, status.reason or ReasonInfo(token=status.phase.capitalize())
    made = workload.meta.created_at
    began = status.started_at or status.first_started_at or status.queued_at or made
    since = {"pending": status.queued_at or made, **dict.fromkeys(_ENDS, status.ended_at or began)}
    at = since.get(phase, began)
    yield _one("Accepted", "Accepted", "", made, generation)
    in_trouble = phase == "running" and reason.token in _OF_NODES
    why = "Placed" if phase in HOLDING else reason.token
    said = "" if in_trouble else reason.sentence
    yield _one("Scheduled", why, said, at, generation, holds=phase in HOLDING)
    at_work = phase in _AT_WORK
    yield _one("Running", phase.capitalize(), said, at, generation, holds=at_work)
    if in_trouble or phase == "preempting":
        gave_way = status.last_preemption.at if status.last_preemption else at
        when = gave_way if phase == "preempting" else reason.data.get("at", at)
        yield _one("DisruptionTarget", reason.token, reason.sentence, when, generation)
    if phase in _ENDS:
        yield _one(_ENDS[phase], reason.token, reason.sentence, at, generation)


def _one(
    kind: str, reason: str, message: str, at: float, generation: int, *, holds: bool = True
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(at),
        "observedGeneration": generation,
    }


def refused(sentence: str, reason: str, at: float, generation: int) -> dict[str, Any]:
    """The condition of an object that Carrel rejects."""
    return _one("Accepted", reason, sentence, at, generation, holds=False)


def timestamp(at: float) -> str:
    """Epoch seconds in the format of Kubernetes."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(workload: Workload) -> dict[str, str]:
    """The texts and counts for printer columns."""
    status, spec = workload.status, workload.spec
    held = [task for task in status.tasks if task.place in ("held", "leaving")]
    present = held if status.phase in HOLDING else []
    asked = spec.resources
    each = counted_gpu_milli(asked)
    gpus = len(present) * each / _MILLI
    running = sum(task.started_at is not None and task.ended_at is None for task in present)
    nodes = sorted({task.node for task in present})
    return {
        "status": _word(workload),
        "node": nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else "",
        "gpus": f"{gpus:g} ({each * spec.tasks / _MILLI:g})",
        "pods": f"{running} ({spec.tasks - running if status.phase not in _ENDS else 0})",
    }


def _word(workload: Workload) -> str:
    """The state in one word, as the command line shows it."""
    status = workload.status
    token = status.reason.token if status.reason else ""
    if status.phase == "stopped" and token in _GAVE_WAY:
        return "Preempted"
    if status.phase == "stopped":
        return token if token in _BY_A_LIMIT else "Suspended"
    if status.phase == "pending" and status.reason and status.reason.cls == "evicted":
        return "Preempted"
    return status.phase.capitalize()
