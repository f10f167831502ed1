"""Provisioning: the waiting work for which nodes are requested, and when; over the core's state.

Work asks for nodes that fits no node as the nodes are, at once where none could ever hold it, else
after ``delay_s`` of waiting for room; within the deserved quotas and limits of its queues, with
all open requests counted. There is one request for each workload, and at most so many at a time.
One that failed stays until the next attempt, so that a new scheduler knows how many there were; all
others go as soon as their work holds places or waits no more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.queues.headroom import Headroom
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.resources import NONE
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.engines.external import NO_NODE_EVER, NodeRequestNote
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.provisioning import standing, wording
from carrel_scheduler.engines.kubernetes.provisioning.messages import (
    EndRequest,
    RequestEvent,
    RequestGone,
    RequestNodes,
    RequestOrder,
    RequestRefused,
    RequestSeen,
    RequestsKnown,
)
from carrel_scheduler.engines.kubernetes.provisioning.templates import NoNewNodes, pod_sets
from carrel_scheduler.engines.kubernetes.provisioning.types import (
    ProvisioningRequest,
    ProvisioningSettings,
    attempt_of,
    request_name,
)
from carrel_schema.names import WORKLOAD_UID, namespace_of

SHORT_OF_ROOM: Final = frozenset(
    {Token.WAITS_FOR_ROOM, Token.NO_NODE_FITS, Token.NO_VICTIMS_FOUND, Token.NODES_CLOSED}
)
"""Reasons that the end of others would help, and more nodes too."""
LOOK_SECONDS: Final = 1.0
PodsOf = Callable[[str, Sequence[int]], tuple[str, list[Pod]] | None]
"""Namespace and pods of other people's work, by uid and tasks; ``None``: it is our own."""


@dataclass(slots=True)
class _WaitingWorkload:
    """A workload that waits since a time; ``never``: no node could ever hold it."""

    since: float
    never: bool


@dataclass(frozen=True, slots=True)
class _RefusedRequest:
    name: str
    text: str
    at: float

    @property
    def pause(self) -> float:
        """Seconds until the next try."""
        return standing.pause_after(attempt_of(self.name))


class NodeRequests:
    """See the module.

    Args:
        settings: class, and bounds.
        state: of the core.
        groups: of nodes.
        pods_of: the pods of other people's work.
    """

    def __init__(
        self, settings: ProvisioningSettings, state: State, groups: NodeGroups, pods_of: PodsOf
    ) -> None:
        self._settings, self._state = settings, state
        self._groups, self._pods_of = groups, pods_of
        self._known = False
        self._candidates: dict[str, _WaitingWorkload] = {}
        self._requests: dict[str, dict[str, ProvisioningRequest]] = {}
        self._sent: dict[str, str] = {}
        self._ensured: set[str] = set()
        self._withdrawn: set[str] = set()
        self._refusals: dict[str, _RefusedRequest] = {}
        self._notes: dict[str, NodeRequestNote] = {}
        self._told: dict[str, NodeRequestNote] = {}
        self._changed: list[str] = []
        self._headroom: Headroom | None = None
        self._looked = (-1, 0.0)
        self._dirty = True
        self._timer: float | None = None

    # Events

    def see(self, event: RequestEvent, now: float) -> None:
        """A request changed, or was not made."""
        self._dirty = True
        match event:
            case RequestsKnown():
                self._known = True
            case RequestRefused(uid, name, text):
                if self._sent.get(uid) == name:
                    del self._sent[uid]
                self._ensured.discard(name)
                self._refusals[uid] = _RefusedRequest(name, text, now)
            case RequestSeen(request):
                if uid := _whose(request):
                    self._requests.setdefault(uid, {})[request.metadata.uid] = request
                    self._sent.pop(uid, None)
                    self._refusals.pop(uid, None)
            case RequestGone(request):
                self._withdrawn.discard(request.metadata.uid)
                uid = _whose(request)
                left = self._requests.get(uid, {})
                left.pop(request.metadata.uid, None)
                if not left:
                    self._requests.pop(uid, None)
                self._ensured.discard(request.metadata.name)

    def consider(self, uid: str, reason: Reason, now: float) -> NodeRequestNote | None:
        """Take in why a workload waits; what is to be said about nodes, ``None`` for nothing."""
        never = reason.cls is ReasonClass.NEVER and reason.token in NO_NODE_EVER
        short = reason.token in SHORT_OF_ROOM and not reason.workload_uid
        never = never or (short and not self._state.nodes.slots)  # nobody is there to wait for
        known = self._candidates.get(uid)
        if not never and not short:
            if known is not None:
                del self._candidates[uid]
                self._dirty = True
        elif known is None:
            self._candidates[uid] = _WaitingWorkload(now, never)
            self._dirty = True
        elif known.never != never:
            known.never = never
            self._dirty = True
        if uid not in self._notes and never and (job := self._waiting(uid)) is not None:
            self._notes[uid] = self._first_note(job) if self._known else wording.unreadable()
        note = self._notes.get(uid)
        if note is None:
            self._told.pop(uid, None)
        else:
            self._told[uid] = note
        return note

    def _first_note(self, job: JobInfo) -> NodeRequestNote:
        """The note on work that no node could hold, before its first planning."""
        if self._headroom is None or not self._headroom.is_of(self._state.queues):
            self._headroom = Headroom(self._state.queues)
        found = self._headroom.violation(*_amounts(job))
        return wording.beyond(found) if found else wording.waits("they are about to be asked for")

    # Decisions

    def due_at(self, now: float) -> float | None:
        """The next time to check, now if something changed; ``None`` while nothing changes."""
        return now if self._changed else self._look_at(now)

    def _look_at(self, now: float) -> float | None:
        if not self._known:
            return None
        changed = self._looked[0] != self._state.version and (
            self._requests or self._sent or self._candidates
        )
        if self._dirty or changed:
            return max(now, self._looked[1] + LOOK_SECONDS)
        return self._timer

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._looked = (self._looked[0], self._looked[1] - seconds)
        self._dirty = True
        for one in self._candidates.values():
            one.since -= seconds

    def look(self, now: float) -> list[RequestOrder]:
        """The orders that follow, if it is time to look; at most once a second."""
        due = self._look_at(now)
        if due is None or due > now:
            return []
        self._looked, self._dirty, self._timer = (self._state.version, now), False, None
        self._notes = {}
        orders: list[RequestOrder] = list(self._outdated())
        self._headroom = headroom = Headroom(self._state.queues)
        free = self._settings.most
        for job in self._in_order(now):
            if (found := headroom.violation(*_amounts(job))) is not None:
                self._note(job.uid, wording.beyond(found))
                orders += self._withdraw_all(job.uid)
                continue
            if self._rests(job.uid, now):
                continue
            if free <= 0:
                self._note(job.uid, wording.full(self._settings.most))
                continue
            try:
                orders += self._ask(job)
            except NoNewNodes as error:
                self._note(job.uid, wording.not_asked(str(error)))
                continue
            free -= 1
            headroom.add(*_amounts(job))
        both = {**self._told, **self._notes}
        self._changed += [uid for uid in both if self._told.get(uid) != self._notes.get(uid)]
        self._told = dict(self._notes)
        return orders

    def _note(self, uid: str, note: NodeRequestNote) -> None:
        """Say why no nodes are asked for, where the end of others would not help either."""
        candidate = self._candidates.get(uid)
        if candidate is not None and candidate.never:
            self._notes[uid] = note

    def take_changed(self) -> list[str]:
        """Workloads whose message about requests has changed since the last call."""
        found, self._changed = self._changed, []
        return found

    def _waiting(self, uid: str) -> JobInfo | None:
        job = self._state.jobs.by_uid.get(uid)
        return job if job is not None and job.fresh and job.shape.first_step else None

    def _namespace(self, job: JobInfo) -> str:
        found = self._pods_of(job.uid, job.shape.first_step)
        return namespace_of(job.spec.project) if found is None else found[0]

    def _outdated(self) -> Iterator[RequestOrder]:
        """Requests whose work no longer waits, and all except the newest of each workload."""
        for uid in [uid for uid in self._candidates if self._waiting(uid) is None]:
            del self._candidates[uid]
        for uid in [uid for uid in self._sent if self._waiting(uid) is None]:
            del self._sent[uid]
        for uid in [uid for uid in self._refusals if self._waiting(uid) is None]:
            del self._refusals[uid]
        for uid in list(self._requests):
            job = self._waiting(uid)
            newest = self._newest(uid) if job is not None else None
            for request in list(self._requests[uid].values()):
                if request is not newest:
                    yield from self._withdraw(request)

    def _newest(self, uid: str) -> ProvisioningRequest | None:
        """The latest attempt where it belongs; what stands elsewhere is none of this work."""
        job = self._waiting(uid)
        if job is None:
            return None
        namespace = self._namespace(job)
        there = [
            one
            for one in self._requests.get(uid, {}).values()
            if one.metadata.namespace == namespace and one.metadata.uid not in self._withdrawn
        ]
        return max(there, key=lambda one: attempt_of(one.metadata.name), default=None)

    def _withdraw_all(self, uid: str) -> Iterator[RequestOrder]:
        for request in list(self._requests.get(uid, {}).values()):
            yield from self._withdraw(request)

    def _withdraw(self, request: ProvisioningRequest) -> Iterator[RequestOrder]:
        meta = request.metadata
        if meta.uid not in self._withdrawn and meta.deletion_timestamp is None:
            self._withdrawn.add(meta.uid)
            yield EndRequest(meta.namespace, meta.name, meta.uid)

    def _in_order(self, now: float) -> list[JobInfo]:
        """Work that nodes are asked for already, then what may come, in the order of the queue."""
        open_ones = {uid for uid in self._requests if self._newest(uid) is not None}
        open_ones |= self._sent.keys()
        found = [job for uid in open_ones if (job := self._waiting(uid)) is not None]
        fresh: list[JobInfo] = []
        for uid, one in self._candidates.items():
            ripe = now if one.never else one.since + self._settings.delay_s
            job = self._waiting(uid)
            if uid in open_ones or job is None:
                continue
            if ripe > now:
                self._wake(ripe)
            else:
                fresh.append(job)
        return [*sorted(found, key=_order), *sorted(fresh, key=_order)]

    def _rests(self, uid: str, now: float) -> bool:
        """Whether the last request failed recently; writes that into the status."""
        refusal = self._refusals.get(uid)
        if refusal is not None and now < refusal.at + refusal.pause:
            self._wake(refusal.at + refusal.pause)
            self._notes[uid] = wording.refused(refusal.text, standing.in_words(refusal.pause))
            return True
        request = self._newest(uid)
        ended = None if request is None else standing.given_up(request, now)
        if request is None or ended is None or now >= ended.until:
            return False
        self._wake(ended.until)
        self._notes[uid] = wording.failed(
            request.metadata.name, ended.condition, standing.in_words(ended.pause)
        )
        return True

    def _ask(self, job: JobInfo) -> Iterator[RequestOrder]:
        """The request that is open for a workload, or a new one. Raises ``NoNewNodes``."""
        uid, request = job.uid, self._newest(job.uid)
        now = self._looked[1]
        attempt = self._next_attempt(uid)
        if request is not None:
            if standing.given_up(request, now) is None:
                self._notes[uid] = wording.answered(request)
                if (when := standing.next_look(request, now)) is not None:
                    self._wake(when)
                if request.metadata.name in self._ensured:
                    return
                attempt = attempt_of(request.metadata.name)
            else:
                yield from self._withdraw(request)
        elif uid in self._sent:
            self._notes[uid] = wording.sent(self._sent[uid])
            return
        found = self._pods_of(uid, job.shape.first_step)
        sets = pod_sets(job, None if found is None else found[1], self._groups)
        name = request_name(uid, attempt)
        if request is None or request.metadata.name != name:
            self._sent[uid] = name
            self._notes[uid] = wording.sent(name)
        self._ensured.add(name)
        yield RequestNodes(self._namespace(job), name, uid, job.spec.name, sets)

    def _next_attempt(self, uid: str) -> int:
        names = [one.metadata.name for one in self._requests.get(uid, {}).values()]
        if (refusal := self._refusals.get(uid)) is not None:
            names.append(refusal.name)
        return max(map(attempt_of, names), default=0) + 1

    def _wake(self, when: float) -> None:
        self._timer = when if self._timer is None else min(self._timer, when)


def _whose(request: ProvisioningRequest) -> str:
    """The workload of a request; empty where name and annotation do not belong together."""
    uid, name = request.metadata.annotations.get(WORKLOAD_UID, ""), request.metadata.name
    return uid if uid and name == request_name(uid, attempt_of(name)) else ""


def _order(job: JobInfo) -> tuple[int, float, str]:
    return job.order


def _amounts(job: JobInfo) -> tuple[int, tuple[int, int, int], tuple[int, int, int]]:
    """The slot of its queue, what it starts with, and what of that is not preemptible."""
    first = job.shape.first
    return job.queue, first, NONE if job.spec.preemptible is Preemptibility.YES else first
