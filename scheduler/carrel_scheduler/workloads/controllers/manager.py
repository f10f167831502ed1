"""The manager of controllers: one worker for each kind, woken when a workload or part changed.

The reconciler passes on every change of a composite workload and of a part. A worker handles
one composite workload at a time: parts are created, changed and deleted like a user's own work,
the status is recorded with its row in one transaction, fenced like every write of a scheduler. What
was done twice changes nothing: a part has a uid that follows from its owner and number, so a
scheduler that was killed in between goes on where it left off.
"""

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import NAMESPACE_OID, uuid5

import msgspec

from carrel_scheduler.ledger.records import Fenced, Ledger, Transition
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.controllers.contract import (
    OWNER_LABEL,
    Controller,
    DesiredState,
    NewPart,
    is_part_of,
    moved,
)
from carrel_scheduler.workloads.state import reasons
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.kinds import COMPOSITES, WorkloadKind
from carrel_schema.objects import Meta, ReasonInfo, Workload, WorkloadStatus

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 5.0
CONFLICT_SECONDS: Final = 0.05
Publish = Callable[[str, Workload], None]


@dataclass(slots=True)
class KnownComposite:
    """A composite workload and its parts by number, as last read."""

    owner: Workload
    parts: dict[int, Workload] = field(default_factory=dict)


class Manager:
    """See the module.

    ``publish`` writes to the event stream; ``clock`` gives epoch seconds; ``quarantine`` takes the
    composite workloads whose handling fails, which are tried again.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Callable[[], float],
        publish: Publish,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine or Quarantine(clock)
        self._ledger = ledger
        self._clock = clock
        self._publish = publish
        self._controllers: dict[WorkloadKind, Controller] = {}
        self._known: dict[str, KnownComposite] = {}
        self._orphans: dict[str, dict[int, Workload]] = {}
        self._queues: dict[WorkloadKind, _WorkQueue] = {}
        self.epoch = 0

    def add(self, controller: Controller) -> None:
        """Take in a controller; before ``run``."""
        self._controllers[controller.kind] = controller
        self._queues[controller.kind] = _WorkQueue()

    def changed(self, workload: Workload, *, deleted: bool = False) -> None:
        """Handle a change of a composite workload or a part; other workloads are ignored."""
        if workload.spec.owner:
            self._part_changed(workload, deleted=deleted)
        elif workload.spec.kind in COMPOSITES and not deleted:
            self._owner_changed(workload)

    def _owner_changed(self, owner: Workload) -> None:
        known = self._known.get(owner.meta.uid)
        if known is None:
            found = self._orphans.pop(owner.meta.uid, {})
            parts = {number: part for number, part in found.items() if _made_for(owner, part)}
            self._known[owner.meta.uid] = KnownComposite(owner, parts)
            self._publish("workload", owner)
        elif owner.meta.resource_version > known.owner.meta.resource_version:
            opened = known.owner.spec.routes != owner.spec.routes
            known.owner = owner
            if opened:
                self._publish("workload", owner)
        self._wake(owner)

    def _part_changed(self, part: Workload, *, deleted: bool) -> None:
        known = self._known.get(part.spec.owner)
        if known is not None and not _made_for(known.owner, part):
            log.warning("%s/%s names an owner that did not make it: %s", *_of(part))
            return
        parts = known.parts if known else self._orphans.setdefault(part.spec.owner, {})
        if deleted:
            parts.pop(part.spec.part, None)
        else:
            status = msgspec.structs.replace(part.status)
            parts[part.spec.part] = msgspec.structs.replace(part, status=status)
        if known is not None:
            self._wake(known.owner)

    def parts(self, uid: str) -> list[Workload]:
        """The parts of a composite workload, by number."""
        known = self._known.get(uid)
        return [] if known is None else [known.parts[number] for number in sorted(known.parts)]

    def owner(self, uid: str) -> Workload | None:
        """The composite workload of that uid, as it was last seen."""
        known = self._known.get(uid)
        return None if known is None else known.owner

    def wake(self, uid: str) -> None:
        """Reconcile a composite workload soon: something its controller depends on has changed."""
        known = self._known.get(uid)
        if known is not None:
            self._wake(known.owner)

    def _wake(self, owner: Workload) -> None:
        queue = self._queues.get(owner.spec.kind)
        if queue is not None:
            queue.put(owner.meta.uid)

    async def run(self) -> None:
        """Run until cancelled; raises ``Fenced`` when another scheduler took over."""
        async with asyncio.TaskGroup() as group:
            for kind, controller in self._controllers.items():
                group.create_task(self._serve(self._queues[kind], controller))

    async def _serve(self, queue: "_WorkQueue", controller: Controller) -> None:
        while True:
            uid = await queue.next(self._clock)
            with self._quarantine.guard("composite", uid, fatal=(Fenced,)) as guard:
                again = await self._reconcile_or_report(uid, controller)
            if guard.failed:
                queue.put_at(uid, self._clock() + AGAIN_SECONDS)
            elif again is not None:
                queue.put_at(uid, again)

    async def _reconcile_or_report(self, uid: str, controller: Controller) -> float | None:
        """Reconcile, and return when to do it again; at once after a conflict."""
        try:
            try:
                return await self._reconcile(uid, controller)
            except NameTaken as error:
                await self._report_name_taken(uid, error)
                return self._clock() + AGAIN_SECONDS
        except VersionConflict:
            return self._clock() + CONFLICT_SECONDS

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much: what is to come after a while still does."""
        for queue in self._queues.values():
            queue.clock_set_back(seconds)

    async def _reconcile(self, uid: str, controller: Controller) -> float | None:
        known = self._known.get(uid)
        if known is None or not await self._refresh(known):
            return None
        owner = known.owner
        if owner.spec.delete:
            await self._remove(known, controller)
            return None
        if owner.status.phase in FINAL:
            return None
        if owner.spec.blocked_by:
            await self._write(known, _blocked(owner, self._clock()))
            return None
        if owner.status.reason is not None and owner.status.reason.token == reasons.WAITS_FOR:
            status = msgspec.structs.replace(owner.status, reason=None)
            owner = msgspec.structs.replace(owner, status=status)
        wanted = await controller.look(owner, self.parts(uid), self._clock())
        await self._carry_out(known, wanted)
        return wanted.look_again_at

    async def _refresh(self, known: KnownComposite) -> bool:
        """Read the composite workload again: its specification may just have been written."""
        uid = known.owner.meta.uid
        try:
            known.owner = await self._ledger.get_by_uid(Workload, uid)
        except ObjectNotFound:
            self._known.pop(uid, None)
            return False
        return True

    async def _carry_out(self, known: KnownComposite, wanted: DesiredState) -> None:
        for part in wanted.changed:
            await self._change(part)
        for uid in wanted.deleted:
            await self._delete_part(known, uid)
        if wanted.created:
            secrets = await self._ledger.secrets(known.owner.meta.uid)
            for new in wanted.created:
                await self._create(known, new, secrets)
        await self._write(known, wanted.status)

    async def _change(self, part: Workload) -> None:
        try:
            stored = await self._ledger.get_by_uid(Workload, part.meta.uid)
        except ObjectNotFound:
            return
        if stored.spec != part.spec and not stored.spec.delete:
            stored.spec = part.spec
            await self._ledger.update(stored)

    async def _delete_part(self, known: KnownComposite, uid: str) -> None:
        try:
            stored = await self._ledger.get_by_uid(Workload, uid)
        except ObjectNotFound:
            for number, part in tuple(known.parts.items()):
                if part.meta.uid == uid:
                    del known.parts[number]
            return
        if not stored.spec.delete:
            stored.spec.delete = True
            await self._ledger.update(stored)

    async def _create(
        self, known: KnownComposite, new: NewPart, secrets: Mapping[str, str]
    ) -> None:
        if new.number in known.parts:
            return
        owner, now = known.owner, self._clock()
        part = Workload(
            meta=Meta(
                name=new.name,
                project=owner.meta.project,
                uid=part_uid(owner.meta.uid, new.number),
                created_at=now,
                created_by=owner.meta.created_by,
                labels={**new.labels, OWNER_LABEL: owner.meta.name},
            ),
            spec=msgspec.structs.replace(
                new.spec, owner=owner.meta.uid, part=new.number, user=owner.spec.user
            ),
            status=WorkloadStatus(queued_at=now),
        )
        row = Transition.first(part)
        try:
            made = await self._ledger.create_workload(part, secrets=secrets, transition=row)
        except ObjectExists:
            made = await self._found_there(part)
        # The watch has delivered a newer version meanwhile.
        known.parts.setdefault(new.number, made)

    async def _found_there(self, part: Workload) -> Workload:
        """The stored part of the same uid. Raises ``NameTaken`` for another object of that name."""
        meta = part.meta
        stored = await self._ledger.get(Workload, meta.name, meta.project)
        if stored.meta.uid != meta.uid:
            raise NameTaken(meta.project, meta.name)
        return stored

    async def _write(self, known: KnownComposite, status: WorkloadStatus) -> None:
        owner = known.owner
        if status == owner.status:
            return
        before = owner.status.phase
        changed = Workload(meta=owner.meta, spec=owner.spec, status=status)
        rows: Sequence[Transition] = ()
        if status.phase != before:
            rows = [
                Transition(
                    at=self._clock(),
                    epoch=self.epoch,
                    workload_uid=owner.meta.uid,
                    workload=owner.meta.name,
                    project=owner.meta.project,
                    user=owner.spec.user,
                    kind=owner.spec.kind,
                    attempt=status.attempt,
                    from_phase=before,
                    to_phase=status.phase,
                    reason=status.reason,
                )
            ]
        [meta] = await self._ledger.record(epoch=self.epoch, statuses=[changed], transitions=rows)
        changed.meta = meta
        known.owner = changed
        self._publish("workload", changed)

    async def _report_name_taken(self, uid: str, error: "NameTaken") -> None:
        """Tell people why it does not go on; the next look that succeeds takes it back."""
        known = self._known.get(uid)
        if known is None:
            return
        reason = ReasonInfo(
            token="NameTaken",  # noqa: S106 - a reason's name
            cls="held-back",
            sentence=f"Waits for a name: {error}.",
            help="Delete or rename that job; this one goes on by itself.",
        )
        await self._write(known, msgspec.structs.replace(known.owner.status, reason=reason))

    async def _remove(self, known: KnownComposite, controller: Controller) -> None:
        """Delete the parts of a deleted composite workload, then the workload itself."""
        if known.parts:
            for part in tuple(known.parts.values()):
                await self._delete_part(known, part.meta.uid)
        if known.parts:
            return
        await self._ledger.record(epoch=self.epoch, removed=[known.owner])
        del self._known[known.owner.meta.uid]
        await controller.removed(known.owner)
        self._publish("deleted", known.owner)


class NameTaken(Exception):  # noqa: N818 - an outcome that its owner can mend
    """A part's name belongs to other work."""

    def __init__(self, project: str, name: str) -> None:
        super().__init__(f"`{project}/{name}` exists already; delete it, or wait until it is gone")


def part_uid(owner_uid: str, number: int) -> str:
    """The uid of a part: always the same for the same owner and number."""
    return uuid5(NAMESPACE_OID, f"{owner_uid}/{number}").hex


def _made_for(owner: Workload, part: Workload) -> bool:
    """Whether a controller made a part for this owner: nobody else can give it that uid."""
    return part.meta.uid == part_uid(owner.meta.uid, part.spec.part) and is_part_of(part, owner)


def _blocked(owner: Workload, now: float) -> WorkloadStatus:
    """The status of a composite workload that waits for its dependencies."""
    if owner.spec.suspend:
        return moved(owner, "stopped", now, reasons.suspended(owner.spec))
    reason = reasons.waits_for(owner)
    never = reason.token == reasons.NEVER_SATISFIED
    status = moved(owner, "failed" if never else "pending", now, reason)
    status.observed_resumes = owner.spec.resumes
    return status


def _of(part: Workload) -> tuple[str, str, str]:
    return part.meta.project, part.meta.name, part.spec.owner


class _WorkQueue:
    """Uids to reconcile, without duplicates, some of them at a later time."""

    def __init__(self) -> None:
        self._ready: dict[str, None] = {}
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._woken = asyncio.Event()

    def put(self, uid: str) -> None:
        self._ready[uid] = None
        self._woken.set()

    def put_at(self, uid: str, when: float) -> None:
        if when < self._due.get(uid, math.inf):
            self._due[uid] = when
            heapq.heappush(self._later, (when, uid))

    def clock_set_back(self, seconds: float) -> None:
        self._later = [(when - seconds, uid) for when, uid in self._later]
        self._due = {uid: when - seconds for uid, when in self._due.items()}
        self._woken.set()

    async def next(self, clock: Callable[[], float]) -> str:
        while True:
            while self._later and self._later[0][0] <= clock():
                uid = heapq.heappop(self._later)[1]
                self._due.pop(uid, None)
                self._ready[uid] = None
            if self._ready:
                uid = next(iter(self._ready))
                del self._ready[uid]
                return uid
            self._woken.clear()
            pause = self._later[0][0] - clock() if self._later else None
            try:
                # Not wait_for: it forgets a cancellation that comes together with a wake.
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                continue
