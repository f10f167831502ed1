"""History of guests: the rows from which use is added up, the same as of our own work."""

from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.kubernetes.external_pods.room import devices_wanted
from carrel_scheduler.engines.kubernetes.external_pods.teams import Slot, Team
from carrel_scheduler.engines.mig_resources import held_milli
from carrel_scheduler.ledger.records import Transition

HOLDS = "running"


def row(team: Team, slot: Slot, phase: str, *, now: float, epoch: int) -> Transition:
    """What a slot holds after a change; each slot of a gang has a history of its own."""
    place = slot.place if phase == HOLDS else None
    asked = slot.request
    count, share = devices_wanted(asked)
    return Transition(
        at=now,
        epoch=epoch,
        workload_uid=team.uid if team.loose else f"{team.uid}-{slot.index}",
        workload=team.name,
        project=team.grouping.project,
        user=team.grouping.user,
        kind=team.grouping.kind,
        attempt=0,
        from_phase="pending" if phase == HOLDS else HOLDS,
        to_phase=phase,
        gpu_milli=min(share, MILLI) * count + held_milli(asked.extended) if place else 0,
        cpu_milli=asked.cpu_milli if place else 0,
        memory_bytes=asked.memory_mib * MIB if place else 0,
        borrowed=team.borrowed and place is not None,
        node=place.node if place else "",
        devices=place.devices if place else (),
    )
