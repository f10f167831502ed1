"""A namespace for each project, made or adopted, with the rights of those who work there.

A namespace that was there before is adopted only if an admin allows it in an annotation of it: it
gets our label and what we put into it, and nothing in it is changed or ever deleted. Of what we
made, a namespace goes with its project unless a volume is left in it besides ours: then an admin
decides. What the scheduler may do to namespaces is bounded by a policy of the installation.

Each project is seen to on its own; one that fails is tried again, later each time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from carrel_scheduler.backoff import Backoff, Jitter
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from carrel_scheduler.kube.resources import (
    NAMESPACES,
    NETWORK_POLICIES,
    PERSISTENT_VOLUME_CLAIMS,
    ROLE_BINDINGS,
    Resource,
)
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.store import (
    ChangeType,
    Expired,
    ObjectNotFound,
    ObjectStore,
    VersionConflict,
)
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces import manifests
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints, Manifest
from carrel_schema import names
from carrel_schema.objects import Project

log = logging.getLogger(__name__)
MANAGER: Final = "carrel"
LONGEST_PAUSE_SECONDS: Final = 60.0


class NamespaceTaken(Exception):  # noqa: N818 - an outcome that an admin mends
    """The project's namespace belongs to somebody else, or is being deleted."""


class Namespaces:
    """See the module.

    Args:
        store: of the projects.
        client: of the cluster.
        system: the namespace of scheduler and Hub.
        checkpoints: the volume that each project gets.
        chance: jitter of pauses, in [0, 1).
        closed: networks that pods of projects do not reach, beside metadata services.
        pause: waits so many seconds.

    Attributes:
        quarantine: names the projects whose namespace is not as it should be.
    """

    def __init__(
        self,
        store: ObjectStore,
        client: KubeClient,
        *,
        system: str,
        checkpoints: Checkpoints,
        chance: Jitter,
        closed: Sequence[str] = (),
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._client, self._system = store, client, system
        self._checkpoints, self._chance, self._pause = checkpoints, chance, pause
        self._closed = closed
        self.quarantine = Quarantine(lambda: 0.0)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Reconcile every project until cancelled."""
        try:
            while True:
                page = await self._store.list(Project)
                for project in page.items:
                    self._begin(project, gone=False)
                await self._follow(page.version)
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _follow(self, version: int) -> None:
        try:
            async for change in self._store.watch(Project, version, statuses=False):
                self._begin(change.object, gone=change.type is ChangeType.DELETED)
        except Expired:
            log.info("Projects are listed again: their changes were not kept so long")

    def _begin(self, project: Project, *, gone: bool) -> None:
        """The latest word about a project counts; what an earlier one had begun is given up."""
        name = project.meta.name
        if name in self._tasks:
            self._tasks[name].cancel()
        self._tasks[name] = asyncio.create_task(self._until_done(project, gone=gone))

    async def _until_done(self, project: Project, *, gone: bool) -> None:
        backoff = Backoff(self._chance, longest=LONGEST_PAUSE_SECONDS)
        while True:
            with self.quarantine.guard("namespace", project.meta.name) as guard:
                try:
                    await (self.retire(project.meta.name) if gone else self.ensure(project))
                except (KubeError, NamespaceTaken, LedgerUnavailable) as error:
                    log.warning("The namespace of project %s: %s", project.meta.name, error)
                    raise
            if not guard.failed:
                return
            await self._pause(backoff.next())

    async def ensure(self, project: Project) -> None:
        """Create or update all objects of a project. Raises ``NamespaceTaken``, ``KubeError``."""
        name = project.meta.name
        namespace = names.namespace_of(name)
        await self._namespace(name)
        for binding in manifests.role_bindings(project, self._system):
            await self._apply(ROLE_BINDINGS, binding, namespace)
        network = manifests.network(name, self._system, self._closed)
        await self._apply(NETWORK_POLICIES, network, namespace)
        if self._checkpoints.size:
            await self._claim(manifests.claim(name, self._checkpoints), namespace)
        await self._seen(project)

    async def _namespace(self, project: str) -> None:
        if expected := names.expected_project_name(project):
            raise NamespaceTaken(f"the project's name should be {expected}")
        name = names.namespace_of(project)
        if name == self._system:
            raise NamespaceTaken(f"{name} is the namespace of the installation")
        try:
            found = await self._client.get(NAMESPACES, name)
        except NotFound:
            found = await self._client.create(NAMESPACES, manifests.namespace(project))
        if found["metadata"].get("deletionTimestamp"):
            raise NamespaceTaken(f"{name} is being deleted")
        marks = found["metadata"].get("labels", {})
        owner = marks.get(names.PROJECT, "")
        if owner not in ("", project):
            raise NamespaceTaken(f"{name} belongs to the project {owner}")
        given = found["metadata"].get("annotations", {}).get(names.ADOPT, "") == project
        if not (owner or given or marks.get(names.MADE_BY) == names.MADE_BY_US):
            raise NamespaceTaken(
                f"{name} was there before and is not taken over; an admin may let the project have "
                f"it with the annotation {names.ADOPT}={project}"
            )
        wanted = {names.PROJECT: project, **manifests.security()}
        if missing := {key: text for key, text in wanted.items() if key not in marks}:
            await self._client.patch(NAMESPACES, name, {"metadata": {"labels": missing}})

    async def _apply(self, resource: Resource, manifest: Manifest, namespace: str) -> None:
        await self._client.patch(
            resource,
            manifest["metadata"]["name"],
            manifest,
            namespace,
            how=PatchKind.APPLY,
            field_manager=MANAGER,
            force=True,
        )

    async def _claim(self, manifest: Manifest, namespace: str) -> None:
        """Create a volume claim; an existing one stays as it is, because few fields can change."""
        name = manifest["metadata"]["name"]
        try:
            await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        except NotFound:
            try:
                await self._client.create(PERSISTENT_VOLUME_CLAIMS, manifest, namespace)
            except AlreadyExists:
                log.info("the claim %s/%s was created by somebody else", namespace, name)

    async def _seen(self, project: Project) -> None:
        """Record in the status that the specification is carried out."""
        try:
            fresh = await self._store.get(Project, project.meta.name)
            if fresh.status.observed_generation != project.meta.generation:
                fresh.status.observed_generation = project.meta.generation
                await self._store.update_status(fresh)
        except (VersionConflict, ObjectNotFound):
            log.info("project %s changed meanwhile and is reconciled again", project.meta.name)

    async def retire(self, project: str) -> None:
        """Remove the objects of a deleted project. Raises ``KubeError``."""
        name = names.namespace_of(project)
        try:
            found = await self._client.get(NAMESPACES, name)
        except NotFound:
            return
        marks = found["metadata"].get("labels", {})
        if marks.get(names.PROJECT) != project:
            return
        if marks.get(names.MADE_BY) == names.MADE_BY_US and not await self._volumes(name):
            await self._delete(NAMESPACES, found, "")
            return
        # Rights come last: they are what the rest is taken back with.
        for resource in (NETWORK_POLICIES, ROLE_BINDINGS):
            for one in (await self._ours(resource, name)).values():
                await self._delete(resource, one, name)
        await self._client.patch(NAMESPACES, name, {"metadata": {"labels": {names.PROJECT: None}}})

    async def _volumes(self, namespace: str) -> bool:
        """Whether the namespace has a volume claim that Carrel did not create."""
        there = (await self._client.list(PERSISTENT_VOLUME_CLAIMS, namespace=namespace)).items
        ours = await self._ours(PERSISTENT_VOLUME_CLAIMS, namespace)
        return any(one["metadata"]["uid"] not in ours for one in there)

    async def _ours(self, resource: Resource, namespace: str) -> dict[str, dict[str, Any]]:
        selector = f"{names.MADE_BY}={names.MADE_BY_US}"
        found = await self._client.list(resource, namespace=namespace, label_selector=selector)
        return {one["metadata"]["uid"]: one for one in found.items}

    async def _delete(self, resource: Resource, found: dict[str, Any], namespace: str) -> None:
        meta = found["metadata"]
        try:
            await self._client.delete(resource, meta["name"], namespace, uid=meta["uid"])
        except (NotFound, Conflict):
            log.info("%s %s is gone already", resource.kind, meta["name"])
