"""What is told of guests: how many wait, what was tried for them, which devices they hold."""

from collections import Counter
from collections.abc import Iterable

from carrel_scheduler.engines.external import DeviceHolder, PodCounts
from carrel_scheduler.engines.kubernetes.external_pods.teams import Team

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
EVICTED = "evicted"


def pod_counts(teams: Iterable[Team], tried: Counter[str]) -> PodCounts:
    """What is so now, and what was done since the start."""
    pending = Counter(active=0, gated=0, unschedulable=0)
    for team in teams:
        for slot in team.slots:
            one = slot.member
            if one is None or one.node or slot.place is not None:
                continue
            if one.gated:
                pending["gated"] += 1
            elif slot.waits or not team.queued:
                pending["unschedulable"] += 1
            else:
                pending["active"] += 1
    attempts = {result: tried[result] for result in (SCHEDULED, UNSCHEDULABLE, ERROR)}
    return PodCounts(pending=dict(pending), attempts=attempts, victims=tried[EVICTED])


def holder_of(team: Team, gpu_milli: int, *, releasing: bool, color: int | None) -> DeviceHolder:
    """A team as the holder of a device."""
    places = [slot for slot in team.slots if slot.place is not None]
    running = any(slot.member is not None and slot.member.node for slot in places)
    return DeviceHolder(
        uid=team.uid,
        name=team.name,
        project=team.grouping.project,
        user=team.grouping.user,
        kind=team.grouping.kind,
        gpu_milli=gpu_milli,
        borrowed=team.borrowed,
        state="releasing" if releasing else "running" if running else "held",
        since=min((slot.since for slot in places), default=team.grouping.created_at),
        color=color,
    )
