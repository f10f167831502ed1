"""What guests' news mean: pods and nodes come, change and go, projects appear.

Only the book follows at once; the core is told when the turn has heard everything.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from carrel_scheduler.core.events import Outcome, TaskStuck
from carrel_scheduler.engines.kubernetes.external_pods import settling, words
from carrel_scheduler.engines.kubernetes.external_pods.confining import confine_waiting
from carrel_scheduler.engines.kubernetes.external_pods.counting import ERROR, SCHEDULED
from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    BindingFailed,
    EvictionRefused,
    GroupLeft,
    GroupSeen,
    GuestNews,
    MemberSeen,
    NodeLeft,
    NodeSeen,
    OwnSeen,
    PodGone,
    Ready,
    StrangerSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.orders import Note
from carrel_scheduler.engines.kubernetes.external_pods.teams import Slot, Team
from carrel_scheduler.engines.kubernetes.external_pods.turning import Turning
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup
from carrel_scheduler.quarantine import Source

log = logging.getLogger(__name__)

MOST_FAILURES: Final = 5
AGAIN_SECONDS: Final = 0.25
REFUSED_SECONDS: Final = 30.0
"""So long a pod rests whose binding was refused for good."""


class Hearing(Turning):
    """See the module."""

    def handle(self, events: Iterable[Any], now: float) -> None:
        """Take in what is new; the core follows in ``reconcile``."""
        self.now = now
        for one in events:
            with self.quarantine.guard(*_about(one)):
                self._hear(one)

    def _hear(self, news: GuestNews) -> None:
        match news:
            case MemberSeen(member):
                self._member(member)
            case PodGone(uid):
                self._gone(uid)
            case StrangerSeen(pod):
                self.nodes.stranger(pod)
                self.places.put_pod(pod)
            case OwnSeen(pod):
                self.places.put_pod(pod)
                self.own.see(pod)
            case NodeSeen(node):
                self._node(node)
            case NodeLeft(name):
                self.nodes.leave(name)
                self.places.drop_node(name)
                self._lose_pods(name, ending_only=False)
            case GroupSeen(group):
                self._group(group)
            case GroupLeft(name):
                self.places.groups.drop(name)
                self._regroup()
            case BindingFailed():
                self._binding_failed(news)
            case EvictionRefused():
                self._eviction_refused(news)
            case Ready():
                self._begin()

    def _begin(self) -> None:
        """All that was there at the start has been told."""
        self.nodes.leave_unknown(self.state)
        confine_waiting(self.state, self.places.groups, self.book.teams)
        self.ready = True

    def _member(self, member: Member) -> None:
        uid = member.ref.uid
        if uid in self.book.buried:
            return
        if member.node:
            self.places.put_pod(member.pod)
        if (home := self.book.home(uid)) is not None:
            before = home[1].member
            if home[1].sent and member.node and before is not None and not before.node:
                self.tried[SCHEDULED] += 1
            self.asking.read(*self.book.see(member))
            if member.ending and self.nodes.is_lost(member.node):
                self._bury(uid)
            return
        if member.outcome is not None:
            self._no_longer_homeless(uid)
            self.nodes.stranger_gone(uid)
            return
        if member.ending and not member.node:
            return
        if not self._has_project(member.grouping.project):
            self._homeless(member)
            return
        self._no_longer_homeless(uid)
        self.nodes.stranger_gone(uid)
        self._arrive(member)

    def _arrive(self, member: Member) -> None:
        team, slot = self.book.arrive(member)
        self.asking.read(team, slot)
        self._say_what_is_missing(slot)

    def _gone(self, uid: str) -> None:
        self.book.buried.discard(uid)
        self._no_longer_homeless(uid)
        self.nodes.stranger_gone(uid)
        self.places.drop_pod(uid)
        self.told.pop(uid, None)
        self.own.gone(uid)
        self.book.lose(uid)

    def _node(self, node: Node) -> None:
        name, groups = node.metadata.name, self.places.groups.version
        self.places.set_node(node)
        if groups != self.places.groups.version:
            confine_waiting(self.state, self.places.groups, self.book.teams)
        if self.nodes.see(node):
            self._touch_pods(name)
        elif self.nodes.is_lost(name):
            self._lose_pods(name, ending_only=True)

    def _group(self, group: NodeGroup) -> None:
        if self.places.groups.set(group.metadata.name, group.spec):
            self._regroup()

    def _regroup(self) -> None:
        for node in self.nodes.regroup():
            self.places.set_node(node)
        confine_waiting(self.state, self.places.groups, self.book.teams)

    def _touch_pods(self, node: str) -> None:
        for team in self.book.teams.values():
            if any(slot.member is not None and slot.member.node == node for slot in team.slots):
                self.book.touch(team)

    def _lose_pods(self, node: str, *, ending_only: bool) -> None:
        """Pods on a node that is gone will not be heard of again: their room is free now."""
        for team in list(self.book.teams.values()):
            for slot in team:
                one = slot.member
                if one is None or one.node != node or (ending_only and not one.ending):
                    continue
                self.orders.notes.append(Note(one.ref, words.NODE_LOST, words.node_lost(node)))
                self._bury(one.ref.uid)

    def _bury(self, uid: str) -> None:
        self.book.buried.add(uid)
        self.book.lose(uid)

    # Projects

    def project_changed(self, name: str) -> None:
        """A project may be known now, so that its pods have a queue."""
        if not self._has_project(name):
            return
        for member in list(self.book.homeless.pop(name, {}).values()):
            self.nodes.stranger_gone(member.ref.uid)
            self._arrive(member)

    def project_deleted(self, name: str, now: float) -> None:
        """A project was deleted: its waiting pods wait outside, bound ones count as strangers'."""
        self.now = now
        for team in [one for one in self.book.teams.values() if one.grouping.project == name]:
            for slot in team:
                one = slot.member
                settling.release(self, team, slot, Outcome.GONE)
                self.book.close(team, slot)
                if one is not None:
                    self._homeless(one)
            settling.settle(self, team)

    def _has_project(self, name: str) -> bool:
        slot = self.state.queues.slots.get(name)
        there = slot is not None and self.state.queues.is_leaf(slot)
        return there and name not in self.draining

    def _homeless(self, member: Member) -> None:
        self.book.homeless.setdefault(member.grouping.project, {})[member.ref.uid] = member
        if member.node:
            self.nodes.stranger(member.pod)
        else:
            self.say(member, words.NO_PROJECT, words.no_project(member.grouping.project))

    def _no_longer_homeless(self, uid: str) -> None:
        for members in self.book.homeless.values():
            if members.pop(uid, None) is not None:
                return

    # What came of orders

    def _binding_failed(self, news: BindingFailed) -> None:
        home = self.book.home(news.pod.uid)
        if home is None:
            return
        team, slot = home
        if slot.member is None or slot.member.node or not slot.sent:
            return
        log.warning("pod %s/%s was not bound: %s", news.pod.namespace, news.pod.name, news.text)
        settling.release(self, team, slot, Outcome.AGAIN)
        self.tried[ERROR] += 1
        slot.failures += 1
        if news.final or slot.failures >= MOST_FAILURES:
            self.say(slot.member, words.REFUSED, news.text)
            self._withdraw(team)
            self._rest(team, REFUSED_SECONDS)
        elif team.loose:
            self._rest(team, AGAIN_SECONDS * 2.0**slot.failures)
        self.book.touch(team)

    def _rest(self, team: Team, seconds: float) -> None:
        """The team does not ask for room for a while."""
        team.not_before = self.now + seconds
        team.reshaped = True
        self.wake(team.not_before, team)

    def _withdraw(self, team: Team) -> None:
        """One of a gang can not start: the others give their room back rather than wait in vain."""
        for slot in team:
            if slot.place is not None:
                self.give_way(team, slot, words.INCOMPLETE, words.incomplete(team.name))

    def _eviction_refused(self, news: EvictionRefused) -> None:
        """It is tried again; until then nobody counts on its room, and its owner is told."""
        log.warning("pod %s/%s does not give way: %s", news.pod.namespace, news.pod.name, news.text)
        home = self.book.home(news.pod.uid)
        if home is None:
            return
        team, slot = home
        if slot.place is not None and slot.leaving and slot.member is not None:
            self.state.apply(TaskStuck(team.uid, slot.index))
            told = words.does_not_give_way(news.text)
            self.orders.notes.append(Note(slot.member.ref, words.PROTECTED, told))

    def _say_what_is_missing(self, slot: Slot) -> None:
        one = slot.member
        if slot.waits and slot.place is None and one is not None and not one.node:
            self.say(one, words.CAN_NOT_BE_PLACED, slot.waits)


def _about(news: GuestNews) -> tuple[Source, str]:
    """Source and key of news, for what cannot be processed."""
    match news:
        case MemberSeen(member):
            return "pod", member.ref.uid
        case PodGone(uid):
            return "pod", uid
        case StrangerSeen(pod) | OwnSeen(pod):
            return "pod", pod.metadata.uid
        case BindingFailed() | EvictionRefused():
            return "pod", news.pod.uid
        case NodeSeen(node):
            return "node", node.metadata.name
        case NodeLeft(name):
            return "node", name
        case GroupSeen(group):
            return "node", f"group {group.metadata.name}"
        case GroupLeft(name):
            return "node", f"group {name}"
        case _:
            return "message", "Ready"
