"""What the status of a group says: of pods that start together, and of nodes. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.external_pods import words
from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.external_pods.teams import Team
from carrel_scheduler.engines.kubernetes.notifications import timestamp
from carrel_scheduler.engines.kubernetes.pods.nodes import gpu_count, in_order
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup, PodGroup

Status = dict[str, Any]
SCHEDULED: Final = "Scheduled"
COMPLETE: Final = "Complete"
HAS_NODES: Final = "HasNodes"


def of_pods(
    group: PodGroup, teams: Sequence[Team], homeless: Iterable[Member], now: float
) -> Status:
    """The status of a group of pods.

    Args:
        group: with the status that it has.
        teams: of its pods, as the loop knows them.
        homeless: those of its pods whose project is not known.
        now: epoch seconds.
    """
    slots = [slot for team in teams for slot in team.slots]
    lost = list(homeless)
    pods = sum(slot.member is not None for slot in slots) + len(lost)
    placed = sum(slot.place is not None for slot in slots)
    was = str(group.status.get("phase", "pending"))
    phase = "placed" if placed else "ended" if not pods and was != "pending" else "pending"
    token, reason = {"placed": ("Placed", ""), "ended": ("Ended", "Its pods have ended.")}.get(
        phase
    ) or _waits(group, teams, lost, pods)
    told = {SCHEDULED: (phase == "placed", token, reason)}
    if phase == "ended":
        told[COMPLETE] = (True, token, reason)
    return {
        "phase": phase,
        "pods": pods,
        "placed": placed,
        "reason": reason if phase == "pending" else "",
        **_observed(group, told, now),
    }


def _waits(
    group: PodGroup, teams: Sequence[Team], lost: Sequence[Member], pods: int
) -> tuple[str, str]:
    """Why its pods are not placed: token and sentence."""
    if lost:
        return words.NO_PROJECT, words.no_project(lost[0].grouping.project)
    for team in teams:
        for slot in team.slots:
            if slot.waits:
                return words.CAN_NOT_BE_PLACED, slot.waits
    least = group.spec.min_member
    if pods < least:
        there = "none of its pods is there" if not pods else f"only {pods:,} of them there"
        return words.PODS_MISSING, f"It starts with {least:,} pods at once, and {there}."
    return next((team.why for team in teams if team.why[0]), (words.QUEUED, "It is in the queue."))


def of_nodes(group: NodeGroup, nodes: Sequence[Node], now: float) -> Status:
    """The status of a group of nodes.

    Args:
        group: with the status that it has.
        nodes: those that are in it.
        now: epoch seconds.
    """
    available = sum(in_order(node) for node in nodes)
    if nodes:
        count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
        told = (True, "NodesFound", f"{count}, of which {available:,} may be given new work.")
    else:
        text = "No node is in it. A node is in the first group, by name, whose labels it has."
        told = (False, "NoNodes", text)
    return {
        "nodes": len(nodes),
        "available": available,
        "gpus": sum(gpu_count(node) for node in nodes),
        **_observed(group, {HAS_NODES: told}, now),
    }


def _observed(
    group: PodGroup | NodeGroup, told: dict[str, tuple[bool, str, str]], now: float
) -> Status:
    """The generation that a status is of, and its conditions; each since it is as it is."""
    generation = group.metadata.generation
    before = {one["type"]: one for one in group.status.get("conditions", ())}
    conditions = []
    for kind, (holds, reason, message) in told.items():
        known, status = before.get(kind, {}), "True" if holds else "False"
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since or timestamp(now),
                "observedGeneration": generation,
            }
        )
    return {"observedGeneration": generation, "conditions": conditions}
