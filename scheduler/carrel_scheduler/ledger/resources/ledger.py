"""``Ledger`` on a cluster: objects are custom resources, rows of the past lie in a database.

The two have no transaction in common, so each write has an order and a way back:

* a creation writes the entry and the first row, then the object; if the object is refused, the
  entry goes again;
* a turn writes statuses, each for exactly the version that was decided on and many at once, then
  the rows in one transaction. A conflict leaves some statuses written: who meets it reads again and
  writes again, and what is there already is written to no effect;
* what a crash leaves between the two is mended by whoever takes over, see ``repair``.

A scheduler that lost its epoch is told so before it writes anything, and again with the rows; what
it might write in between carries versions that the next one's first write makes old.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from typing_extensions import override

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.writes import Writer
from carrel_scheduler.ledger.audit.actor import ACTOR, Actor, acting
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.records import Creation, Decision, Fenced, NewWorkload, Transition
from carrel_scheduler.ledger.resources import repair
from carrel_scheduler.ledger.resources.rows import RowLedger, Rows, entry_of
from carrel_scheduler.ledger.resources.store import KubernetesStore
from carrel_scheduler.ledger.rows.objects import scope_of
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound
from carrel_scheduler.quarantine import Quarantine
from carrel_schema.objects import Meta, Object, ObjectT, Workload

R = TypeVar("R")
IN_FLIGHT: Final = 64
ARRIVAL_TRIES: Final = 100
ARRIVAL_PAUSE_SECONDS: Final = 0.1


class KubernetesLedger(KubernetesStore, RowLedger):
    """See the module. Closes ``rows`` with itself.

    Args:
        client: of the cluster.
        rows: see ``rows``.
        clock: epoch seconds.
        ids: new unique ids.
        quarantine: where objects go that cannot be read.
    """

    def __init__(
        self,
        client: KubeClient,
        rows: Rows,
        *,
        clock: Callable[[], float],
        ids: Callable[[], str],
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(client, clock=clock, ids=ids, quarantine=quarantine)
        self.rows = rows
        self._now = clock
        self._writer = Writer(IN_FLIGHT)
        self._under_way: set[asyncio.Task[Any]] = set()

    async def begin_epoch(self) -> int:
        """See ``Ledger``; what was left half done is mended first.

        Epochs are the database's own count: who may begin one is for the lease to say.
        """
        epoch = await self.rows.begin_epoch()
        with suppress(Fenced):  # a newer one mends, then
            await self._mend(epoch)
        return epoch

    async def _mend(self, epoch: int) -> None:
        # Entries before objects: what is made in between has both.
        entries = {one.meta.uid: one for one in (await self.rows.list(Workload)).items}
        objects = (await self.list(Workload)).items
        known = await self.rows.last_of([*entries, *(one.meta.uid for one in objects)])
        what = repair.found(objects, entries, known, epoch=epoch, now=self._now())
        for obj, row in what.unentered:
            if obj.meta.uid in known:
                await self.rows.create(entry_of(obj))
            else:
                await self.rows.create_workload(entry_of(obj), secrets={}, transition=row)
        for uid in what.withdrawn:
            await self.rows.withdraw(uid)
        await self.rows.write(epoch, what.rows, (), what.gone)

    async def record(
        self,
        *,
        epoch: int,
        statuses: Sequence[Workload] = (),
        transitions: Sequence[Transition] = (),
        decisions: Sequence[Decision] = (),
        removed: Sequence[Workload] = (),
    ) -> Sequence[Meta]:
        """See ``Ledger`` and the module: a refusal may leave some statuses written."""
        self._check_open()
        if await self.rows.epoch() != epoch:
            raise Fenced(f"epoch {epoch} is over")
        stored = await self._all(statuses, self.update_status)
        newest = {one.meta.uid: one for one in stored}
        await self._all([newest.get(one.meta.uid, one) for one in removed], self._let_go)
        gone = [one.meta.uid for one in removed]
        if transitions or decisions or gone:
            await self.rows.write(epoch, transitions, decisions, gone)
        return [one.meta for one in stored]

    async def _let_go(self, workload: Workload) -> Workload:
        """Remove a workload; no error if somebody removed its object by force."""
        with suppress(ObjectNotFound):
            return await self.remove(workload)
        return workload

    async def _all(
        self, objects: Sequence[Workload], write: Callable[[Workload], Awaitable[Workload]]
    ) -> list[Workload]:
        """Write many at once; raises the first refusal once all have been answered."""
        calls = [self._writer.submit(partial(write, obj)) for obj in objects]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Workload)]

    @override
    async def create(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``; a workload's name is taken in all kinds of work at once."""
        self._check_open()
        if not isinstance(obj, Workload):
            made = await super().create(obj)
            await self._tell("create", made, after=made)
            return made
        new = self.named(obj)
        await self._to_the_end(self._enter_and_make(new, self.rows.create(entry_of(new))))
        return await self.get_by_uid(type(obj), new.meta.uid)

    async def create_workload(
        self, workload: Workload, *, secrets: Mapping[str, str], transition: Transition
    ) -> Workload:
        """See ``Ledger``."""
        self._check_open()
        new = self.named(workload)
        entering = self.rows.create_workload(
            entry_of(new), secrets=dict(secrets), transition=transition
        )
        return await self._to_the_end(self._enter_and_make(new, entering))

    async def _enter_and_make(
        self, new: Workload, entering: Coroutine[Any, Any, Workload]
    ) -> Workload:
        await entering
        return await self._make(new)

    async def _make(self, new: Workload) -> Workload:
        try:
            made = await self._writer.submit(partial(KubernetesStore.create, self, new))
        except Exception:
            await self.rows.withdraw(new.meta.uid)
            raise
        await self._tell("create", made, after=made)
        return made

    async def create_workloads(self, items: Sequence[NewWorkload]) -> Sequence[Creation]:
        """See ``Ledger``; if one object is refused, the others of this call are made all the same.

        Its error is raised then, and the same call can be made again.
        """
        self._check_open()
        return await self._to_the_end(self._create_many(items))

    async def _create_many(self, items: Sequence[NewWorkload]) -> Sequence[Creation]:
        news = {one.meta.uid: one for one in (self.named(item.workload) for item in items)}
        entries = [
            msgspec.structs.replace(item, workload=entry_of(new))
            for item, new in zip(items, news.values(), strict=True)
        ]
        creations = await self.rows.create_workloads(entries)
        made_uids = [one.meta.uid for one in creations if one.found is None]
        made = await self._all_made([news[uid] for uid in made_uids])
        return [await self._outcome(one, made) for one in creations]

    async def _all_made(self, news: Sequence[Workload]) -> Mapping[str, Workload]:
        outcomes = await asyncio.gather(*(self._make(new) for new in news), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return {one.meta.uid: one for one in outcomes if isinstance(one, Workload)}

    async def _outcome(self, entered: Creation, made: Mapping[str, Workload]) -> Creation:
        uid = entered.meta.uid
        obj = made.get(uid) or await self._arrived(uid)
        return Creation(meta=obj.meta, found=None if entered.found is None else obj)

    async def _arrived(self, uid: str) -> Workload:
        """The workload with an entry: another client may be just about to make its object.

        Raises ``LedgerUnavailable`` when it does not: the same call can be made again.
        """
        for _ in range(ARRIVAL_TRIES):
            with suppress(ObjectNotFound):
                return await self.get_by_uid(Workload, uid)
            await self._pause(ARRIVAL_PAUSE_SECONDS)
        raise LedgerUnavailable(f"the workload with uid {uid!r} is entered, but not made yet")

    async def adopt_object(self, obj: ObjectT, annotations: Mapping[str, str]) -> ObjectT:
        """Make one of ours of what somebody else made, complete as the API would have made it.

        ``annotations`` are those that it has.

        Raises ``ObjectExists`` when its name belongs to work of another kind, ``VersionConflict``
        when it changed since it was read.
        """
        if isinstance(obj, Workload):
            await self._enter_once(obj)
        made = await self.mark(obj, annotations)
        # Work is made under one's own name, see the cluster's rules; of others nobody is known.
        with acting(
            Actor(at=made.meta.created_at, user=made.meta.created_by, channel="kubernetes")
        ):
            await self._tell("create", made, after=made)
        return made

    async def _enter_once(self, obj: Workload) -> None:
        """Write the entry, unless an interrupted attempt has already done so."""
        try:
            await self.rows.create_workload(
                entry_of(obj), secrets={}, transition=Transition.first(obj)
            )
        except ObjectExists:
            try:
                await self.rows.get_by_uid(Workload, obj.meta.uid)
            except ObjectNotFound:
                raise ObjectExists(f"{obj.meta.project}/{obj.meta.name} exists") from None

    @override
    async def update(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        if ACTOR.get() is None:
            return await super().update(obj)
        old = await self.get_by_uid(type(obj), obj.meta.uid)
        made = await super().update(obj)
        await self._tell("update", made, before=old, after=made)
        return made

    async def _tell(
        self, verb: str, obj: Object, *, before: Object | None = None, after: Object | None = None
    ) -> None:
        """Tell the audit log, once it is done: the two have no transaction in common."""
        actor = ACTOR.get()
        if actor is None:
            return
        entry = actor.entry_of_change(
            verb,
            type(obj).__name__,
            scope=scope_of(type(obj), obj.meta),
            name=obj.meta.name,
            uid=obj.meta.uid,
            owner=obj.spec.user if isinstance(obj, Workload) else "",
            before=None if before is None else msgspec.json.encode(before.spec),
            after=None if after is None else msgspec.json.encode(after.spec),
        )
        await self.rows.audit.add([entry])

    @override
    async def delete(
        self,
        kind: type[ObjectT],
        name: str,
        project: str = "",
        *,
        resource_version: int | None = None,
    ) -> ObjectT:
        """See ``ObjectStore``."""
        gone = await super().delete(kind, name, project, resource_version=resource_version)
        if kind is Workload:
            await self.rows.drop(gone.meta.uid)
        await self._tell("delete", gone, before=gone)
        return gone

    async def _to_the_end(self, work: Coroutine[Any, Any, R]) -> R:
        """Have it finish also when its caller is gone: half of it would be left."""
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    @override
    async def close(self) -> None:
        """Finish the calls that wait, end the watches, close the database of rows."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._writer.close()
        await super().close()
        await self.rows.close()
