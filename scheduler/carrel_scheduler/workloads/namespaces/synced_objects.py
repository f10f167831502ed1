"""Keeps objects of projects' namespaces equal to records of the ledger, whatever others do to them.

Every two seconds it is asked what there should be; the cluster is asked when that changed, once a
minute, and after growing pauses while something is not as it should be. Nothing is written into a
namespace that is not its project's. What the scheduler's account may write there is bounded by
policies of the installation besides.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ClassVar, Final, NotRequired, TypedDict

from carrel_scheduler.backoff import Backoff, Jitter
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import Conflict, KubeError, NotFound
from carrel_scheduler.kube.resources import NAMESPACES, Resource
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces.manifests import Manifest
from carrel_schema import names
from carrel_schema.objects import Project

log = logging.getLogger(__name__)
MANAGER: Final = "carrel"
LOOK_SECONDS: Final = 2.0
COMPARE_SECONDS: Final = 60.0
AT_ONCE: Final = 8
Place = tuple[str, str]
"""Namespace and name."""
Wanted = Mapping[Place, Manifest]


Projects = Callable[[], Iterable[Project]]


class SyncTiming(TypedDict):
    """The clock and fault handling that ``SyncedObjects`` needs."""

    clock: Callable[[], float]
    chance: Jitter
    quarantine: Quarantine
    pause: NotRequired[Callable[[float], Awaitable[None]]]


class SyncedObjects(ABC):
    """See the module. A subclass names the kind of the objects, and computes the wanted ones.

    Args:
        client: of the cluster.
        projects: all there are.
        clock: in seconds; need not be the wall's.
        chance: jitter of pauses, in [0, 1).
        quarantine: names what cannot be written.
        pause: waits so many seconds.

    Attributes:
        resource: their kind; ``selector``: the labels of those that are kept.
    """

    resource: ClassVar[Resource]
    selector: ClassVar[str]

    def __init__(
        self,
        client: KubeClient,
        projects: Projects,
        *,
        clock: Callable[[], float],
        chance: Jitter,
        quarantine: Quarantine,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._projects, self._clock = client, projects, clock
        self._quarantine, self._pause = quarantine, pause
        self._backoff = Backoff(chance, first=LOOK_SECONDS, longest=COMPARE_SECONDS)
        self._tried: Wanted | None = None
        self._compare_at = 0.0

    @abstractmethod
    async def wanted(self, projects: Iterable[Project]) -> Wanted:
        """The wanted objects. Raises ``LedgerUnavailable``.

        Args:
            projects: those that have a namespace.
        """

    @abstractmethod
    def differs(self, found: Manifest, wanted: Manifest) -> bool:
        """Whether an existing object differs from the wanted one."""

    def changeable(self, found: Manifest, wanted: Manifest) -> bool:
        """Whether the object can be updated to the wanted one; otherwise it is recreated."""
        del found, wanted
        return True

    async def run(self) -> None:
        """Keep the objects equal to the wanted ones until cancelled."""
        while True:
            with self._quarantine.guard("namespace", self.resource.plural):
                try:
                    await self.look()
                except (KubeError, LedgerUnavailable) as error:
                    log.warning("%s of projects: %s", self.resource.kind, error)
                    raise
            await self._pause(LOOK_SECONDS)

    async def look(self) -> None:
        """Compare with the cluster if it is due. Raises ``KubeError``, ``LedgerUnavailable``."""
        wanted = await self.wanted(
            project
            for project in self._projects()
            if not project.meta.deleting and not names.expected_project_name(project.meta.name)
        )
        if wanted == self._tried and self._clock() < self._compare_at:
            return
        if wanted != self._tried:
            self._backoff.reset()
        self._tried, self._compare_at = wanted, self._clock() + self._backoff.next()
        if await self._make_equal(wanted):
            self._backoff.reset()
            self._compare_at = self._clock() + COMPARE_SECONDS

    async def _make_equal(self, wanted: Wanted) -> bool:
        """Write the differences; returns whether all objects are as wanted now."""
        found = await self._client.list(self.resource, label_selector=self.selector)
        there = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one for one in found.items
        }
        ours = await self._namespaces()
        limit = asyncio.Semaphore(AT_ONCE)

        async def done(place: Place) -> bool:
            async with limit:
                with self._quarantine.guard("namespace", "/".join(place)):
                    return await self._write(place, there.get(place), wanted.get(place))
                return False  # the guard has kept what was raised

        # Changes that take rights away come first.
        gone = await asyncio.gather(*(done(place) for place in there if place not in wanted))
        differing = [
            place
            for place, manifest in wanted.items()
            if place not in there or self.differs(there[place], manifest)
        ]
        made = await asyncio.gather(*(done(place) for place in differing if place[0] in ours))
        return all(gone) and all(made) and len(made) == len(differing)

    async def _namespaces(self) -> set[str]:
        """Names of the namespaces that belong to projects and have the label."""
        listed = await self._client.list(NAMESPACES, label_selector=names.PROJECT)
        return {
            one["metadata"]["name"]
            for one in listed.items
            if names.namespace_of(one["metadata"]["labels"][names.PROJECT])
            == one["metadata"]["name"]
        }

    async def _write(self, place: Place, found: Manifest | None, wanted: Manifest | None) -> bool:
        """Write one object; ``False`` if it was changed meanwhile."""
        namespace, name = place
        try:
            if found is not None and (wanted is None or not self.changeable(found, wanted)):
                uid = found["metadata"]["uid"]
                await self._client.delete(self.resource, name, namespace, uid=uid)
            if wanted is not None:
                await self._client.patch(
                    self.resource,
                    name,
                    wanted,
                    namespace,
                    how=PatchKind.APPLY,
                    field_manager=MANAGER,
                    force=True,
                )
        except (Conflict, NotFound) as error:
            log.info("%s %s/%s: %s", self.resource.kind, namespace, name, error)
            return False
        return True
