"""Waiting for many workloads at once: ``wait``, ``as_completed``, and results.

One event stream per project brings changes. Whenever a stream is (re)connected, the phases are
requested, so nothing that happened in between is missed; nothing polls.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Final, Protocol

import msgspec

from carrel import results
from carrel.client.resources.workloads import WorkloadMethods, workload_path
from carrel.errors import ApiError
from carrel.models import Event, Workload

FEW: Final = 20
GONE: Final[str] = "deleted"
Key = tuple[str, str]


class NamedWorkload(Protocol):
    """Anything with a project and a name: a workload, or a notebook's handle of one."""

    @property
    def project(self) -> str:
        """The project of the workload."""

    @property
    def name(self) -> str:
        """The name within the project."""


Ref = NamedWorkload | Key
Item = Event | BaseException | str


class WaitMethods(WorkloadMethods):
    """Wait for workloads, and read their results."""

    async def wait(self, jobs: Iterable[Ref], *, timeout: float | None = None) -> list[Workload]:  # noqa: ASYNC109 - as in ``asyncio.wait``
        """Wait until all have ended or are suspended, at most ``timeout`` seconds.

        Returns them as they are then, in the order given; look at ``at_rest`` of each. One that is
        not there any more has the phase ``deleted``. Raises ``CarrelError``.
        """
        keys = [key_of(job) for job in jobs]
        ended: dict[Key, Workload] = {}
        try:
            async with aclosing(self.as_completed(keys, timeout=timeout)) as found:
                async for workload in found:
                    ended[key_of(workload)] = workload
        except TimeoutError:
            states = await self._states(set(keys) - ended.keys())
            ended |= {key: states.get(key) or gone(key) for key in set(keys) - ended.keys()}
        return [ended[key] for key in keys]

    async def as_completed(
        self,
        jobs: Iterable[Ref],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in ``asyncio.as_completed``
    ) -> AsyncGenerator[Workload, None]:
        """Yield each workload when it has ended or is suspended, in that order.

        Raises ``TimeoutError`` when some have not after ``timeout`` seconds; ``CarrelError``.
        """
        left = {key_of(job) for job in jobs}
        items: asyncio.Queue[Item] = asyncio.Queue()
        readers = [
            asyncio.create_task(self._read_events(project, items))
            for project in {key[0] for key in left}
        ]
        ends = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            while left:
                async with asyncio.timeout_at(ends):
                    ended = await self._ended(await items.get(), left)
                for key, workload in ended.items():
                    left.discard(key)
                    yield workload
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def result(self, project: str, name: str) -> Any:
        """The result of a job; an exception of the job is raised here.

        Only what the caller's own jobs made is unpickled: see ``carrel.results``. Raises
        ``carrel.results.NoResult`` when there is none (yet).
        """
        try:
            content = await self._transport.send("GET", workload_path(project, name, "result"))
        except ApiError as error:
            if error.code != "no_result":
                raise
            raise results.NoResult(f"`{name}` has handed no result back.") from error
        return results.decode(content)

    async def _read_events(self, project: str, items: asyncio.Queue[Item]) -> None:
        try:
            events = self.events(project, opened=lambda: items.put_nowait(project))
            async with aclosing(events) as found:
                async for event in found:
                    items.put_nowait(event)
        except Exception as error:  # noqa: BLE001 - raised again by whoever reads the queue
            items.put_nowait(error)

    async def _ended(self, item: Item, left: set[Key]) -> dict[Key, Workload]:
        """The workloads that have ended, according to an item of the queue."""
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, Event):
            key = key_of(item.workload)
            if key not in left:
                return {}
            if item.type == GONE:
                return {key: gone(key, item.workload)}
            return {key: item.workload} if item.workload.at_rest else {}
        asked = {key for key in left if key[0] == item}
        states = await self._states(asked)
        found = {key: states.get(key) or gone(key) for key in asked}
        return {key: one for key, one in found.items() if one.at_rest or _is_gone(one)}

    async def _states(self, keys: set[Key]) -> dict[Key, Workload]:
        """The present workloads by key; removed ones are left out."""
        found: list[Workload] = []
        if len(keys) > FEW:
            for project in {key[0] for key in keys}:
                found += await self.list_workloads(project, parts=True)
            return {key: one for one in found if (key := key_of(one)) in keys}
        for project, name in keys:
            try:
                found.append(await self.get_workload(project, name))
            except ApiError as error:
                if error.status != 404:
                    raise
        return {key_of(one): one for one in found}


def key_of(job: Ref) -> Key:
    """Project and name."""
    return job if isinstance(job, tuple) else (job.project, job.name)


def gone(key: Key, last: Workload | None = None) -> Workload:
    """The workload with the phase ``deleted``."""
    known = last or Workload(project=key[0], name=key[1])
    status = msgspec.structs.replace(known.status, phase=GONE)
    return msgspec.structs.replace(known, status=status)


def _is_gone(workload: Workload) -> bool:
    return workload.status.phase == GONE
