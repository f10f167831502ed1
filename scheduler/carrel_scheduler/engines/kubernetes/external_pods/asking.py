"""What waiting pods ask of their place, read again when what it depends on has changed."""

import logging
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from carrel_scheduler.core.requests import ANYWHERE, Request
from carrel_scheduler.engines.kubernetes.external_pods.teams import Slot, Team
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import Ask, Places
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import needs_of, request_of
from carrel_scheduler.engines.kubernetes.pods.types import Pod

log = logging.getLogger(__name__)


def asks_for(pod: Pod, counted: Request) -> bool:
    """Whether a pod asks for the amounts of a request, wherever it may run."""
    try:
        asked = request_of(needs_of(pod), ANYWHERE)
    except PodRefused:
        return False
    return asked == replace(counted, where=ANYWHERE)


class Asking:
    """Reads pods into requests of the core."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._version = places.version
        self._manner = places.manner
        self._follow: dict[Slot, Team] = {}

    def read(self, team: Team, slot: Slot) -> None:
        """Note in a slot what its pod asks for as things are."""
        one = slot.member
        if one is None or slot.place is not None:
            return
        self._follow.pop(slot, None)
        if one.refusal:
            slot.waits = one.refusal
            return
        try:
            belongs = team.grouping
            groups = self._places.groups.open_to(belongs.project, interactive=belongs.interactive)
            ask = self._places.ask(one.pod, groups, together=not team.loose)
        except PodRefused as error:
            slot.waits = error.sentence
            if one.node:
                self._count_bound(slot, one.pod)
            return
        self._note(team, slot, ask)

    def _note(self, team: Team, slot: Slot, ask: Ask) -> None:
        waits = f"It waits: {ask.waits}." if ask.waits else ""
        if (slot.request, slot.waits) != (ask.request, waits):
            slot.request, slot.waits = ask.request, waits
            team.reshaped = True
        slot.checked = ask.checked
        if ask.follows and slot.member is not None and not slot.member.node:
            self._follow[slot] = team

    def _count_bound(self, slot: Slot, pod: Pod) -> None:
        """A pod that runs holds what its containers ask for, whatever else it says."""
        bare = msgspec.structs.replace(pod.metadata, annotations={})
        try:
            needs = needs_of(msgspec.structs.replace(pod, metadata=bare))
        except PodRefused as error:
            log.warning("what pod %s uses is not counted: %s", pod.metadata.name, error)
            return
        slot.request = request_of(needs, ANYWHERE)

    def again(self, teams: Iterable[Team]) -> list[Team]:
        """Teams whose pods may ask for something else by now; they were read again."""
        version, manner = self._places.version, self._places.manner
        if (version, manner) == (self._version, self._manner):
            return []
        if manner != self._manner:
            asked = [(slot, team) for team in teams for slot in team.slots]
        else:
            asked = list(self._follow.items())
        self._version, self._manner = version, manner
        touched: dict[Team, None] = {}
        for slot, team in asked:
            if slot.member is None or slot.member.node or slot.place is not None:
                self._follow.pop(slot, None)
                continue
            self.read(team, slot)
            touched[team] = None
        return list(touched)

    def fits(self, slot: Slot, node: str) -> bool:
        """Whether a node still serves a pod, now that others have been given their places."""
        one = slot.member
        if one is None or not (slot.checked or self._places.manner != self._manner):
            return True
        return self._places.still_fits(one.pod, node)
