"""Suspend, resume, delete: written into the specification for the reconciler."""

from collections.abc import Callable
from functools import partial
from typing import Final

from carrel_scheduler.api import problems
from carrel_scheduler.api.principals.jobs import live_descendants
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.store import ObjectStore, VersionConflict
from carrel_scheduler.workloads.state.phases import FINAL
from carrel_schema.objects import Workload

ATTEMPTS: Final = 8


class Control:
    """Changes specifications; after a conflict with another write it reads again."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def suspend(self, workload: Workload, asked_by: str) -> Workload:
        """Request a stop that keeps the definition; no effect if it was requested before."""
        return await self._change(workload, partial(_suspend, asked_by))

    async def resume(self, workload: Workload) -> Workload:
        """Request that the workload is queued again."""
        return await self._change(workload, _resume)

    async def delete(
        self, workload: Workload, asked_by: str, *, children: bool = False
    ) -> Workload:
        """Request the deletion; no effect if it was requested before.

        With ``children`` also for that of all live work that it submitted, and that those did.
        It goes first, so that it submits nothing more meanwhile.
        """
        deleted = await self._change(workload, partial(_delete, asked_by))
        meta = workload.meta
        if children:
            for one in await live_descendants(
                self._store, meta.uid, meta.project, workload.spec.user
            ):
                await self._change(one, partial(_delete, asked_by))
        return deleted

    async def change(self, workload: Workload, change: Callable[[Workload], bool]) -> Workload:
        """Write what ``change`` does to the newest one, unless it says that nothing was left."""
        return await self._change(workload, change)

    async def _change(self, workload: Workload, change: Callable[[Workload], bool]) -> Workload:
        """Write the result of ``change``, unless it reports that nothing had to change."""
        for attempt in range(ATTEMPTS):
            if attempt:
                workload = await self._store.get_by_uid(Workload, workload.meta.uid)
            if not change(workload):
                return workload
            try:
                return await self._store.update(workload)
            except VersionConflict:
                continue
        raise problems.Conflicting(Code.CONFLICT, "It changes too quickly at the moment; try again")


def _suspend(asked_by: str, workload: Workload) -> bool:
    _refuse_when_deleting(workload)
    if workload.status.phase in FINAL:
        raise problems.Conflicting(
            Code.NOT_RUNNING, f"It has ended ({workload.status.phase}); there is nothing to stop"
        )
    if workload.spec.suspend:
        return False
    if workload.status.phase == "stopped" and workload.spec.resumes <= (
        workload.status.observed_resumes
    ):
        raise problems.Conflicting(Code.ALREADY_STOPPED, "It is stopped already")
    workload.spec.suspend = True
    workload.spec.asked_by = asked_by
    return True


def _resume(workload: Workload) -> bool:
    _refuse_when_deleting(workload)
    if workload.status.phase != "stopped":
        raise problems.Conflicting(
            Code.NOT_STOPPED, f"It is {workload.status.phase}; only what is stopped can be resumed"
        )
    if not workload.spec.suspend and workload.spec.resumes > workload.status.observed_resumes:
        return False
    workload.spec.suspend = False
    workload.spec.asked_by = ""
    workload.spec.resumes += 1
    return True


def _delete(asked_by: str, workload: Workload) -> bool:
    if workload.spec.delete:
        return False
    workload.spec.delete = True
    workload.spec.asked_by = asked_by
    return True


def _refuse_when_deleting(workload: Workload) -> None:
    if workload.spec.delete:
        raise problems.Conflicting(Code.BEING_DELETED, "It is being deleted")
