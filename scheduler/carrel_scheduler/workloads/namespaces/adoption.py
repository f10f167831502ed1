"""Objects that people make with ``kubectl`` become workloads, or get a condition with the reason.

The API fills in what a request leaves open, checks what no schema can, and writes the first row. An
object that comes without our mark gets the same here, and then the mark; until then nobody else
looks at it. A refusal is a condition of it; a change of its specification is checked anew, and
all that was not taken on now and then: nodes, quotas and jobs that it names may have come since.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, KubeError, NotFound
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.errors import InvalidArgument, LedgerUnavailable
from carrel_scheduler.ledger.resources import codec, conditions, kinds
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.policy import cron
from carrel_scheduler.policy.assets import AssetRecords, AssetRefused
from carrel_scheduler.policy.manifest_defaults import Given, fill_assets, fill_defaults, unsaid
from carrel_scheduler.policy.policy_records import PolicyRecords, kinds_of
from carrel_scheduler.policy.rights import MayCreate, RightsUnknown, permission_for
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads import admission
from carrel_scheduler.workloads.contract import Live
from carrel_scheduler.workloads.launch import builtin_programs, references
from carrel_scheduler.workloads.namespaces.manifests import group_of
from carrel_schema import names
from carrel_schema.kinds import KINDS
from carrel_schema.objects import Department, Object, ObjectT, Project, Workload
from carrel_schema.scopes import Scope, scopes_over

log = logging.getLogger(__name__)
UNMARKED: Final = f"!{names.UID}"
TRIES: Final = 60
AGAIN_SECONDS: Final = 1.0
REFUSED_AGAIN_SECONDS: Final = 20.0
OURS: Final = (names.CREATED_AT, names.CREATED_BY, names.QUEUED_AT, names.LABELS)
"""Annotations that nobody else is believed."""


class Refused(Exception):  # noqa: N818 - an outcome to tell
    """An object is not adopted; ``reason`` is a token, the text a sentence for people."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class ObjectAdoption:
    """See the module.

    Args:
        ledger: of the cluster.
        client: of the same.
        live: the running scheduler, which knows what can never run.
        clock: epoch seconds.
        again_seconds: between two checks of what was refused.
        quarantine: where objects go that cannot be checked.
        may_create: the access rules; ``None``: what the API server let in is taken on.
    """

    def __init__(
        self,
        ledger: KubernetesLedger,
        client: KubeClient,
        live: Live,
        clock: Callable[[], float],
        again_seconds: float = REFUSED_AGAIN_SECONDS,
        quarantine: Quarantine | None = None,
        may_create: MayCreate | None = None,
    ) -> None:
        self.quarantine = quarantine or Quarantine(clock)
        self._may_create = may_create
        self._ledger, self._client, self._live, self._clock = ledger, client, live, clock
        self._again_seconds = again_seconds
        self._policies, self._assets = PolicyRecords(ledger, clock), AssetRecords(ledger, clock)
        self._feeds: list[tuple[Feed[StoredResource], Callable[[StoredResource], None]]] = []
        self._under_way: dict[str, StoredResource | None] = {}

    async def run(self) -> None:
        """Adopt objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._projects())
            group.create_task(self._follow(group, Department, kinds.DEPARTMENT.resource))
            group.create_task(self._follow(group, Project, kinds.PROJECT.resource))
            for resource in kinds.resources_of(Workload):
                group.create_task(self._follow(group, Workload, resource))
            while True:
                await asyncio.sleep(self._again_seconds)
                self._again()

    async def _projects(self) -> None:
        """Check the objects again that were created before their project."""
        resource = kinds.PROJECT.resource
        async with Feed(self._client, resource, StoredResource, label_selector=names.UID) as feed:
            async for change in feed.subscribe():
                if change.kind is ChangeKind.ADDED:
                    self._again(names.namespace_of(change.object.metadata.name))

    def _again(self, namespace: str = "") -> None:
        """Check rejected objects again, of one namespace or of all."""
        for feed, look in self._feeds:
            for stored in tuple(feed.objects.values()):
                if namespace in ("", stored.metadata.namespace):
                    look(stored)

    async def _follow(
        self, group: asyncio.TaskGroup, kind: type[ObjectT], resource: Resource
    ) -> None:
        def look(stored: StoredResource) -> None:
            self.begin(group, kind, resource, stored)

        async with Feed(self._client, resource, StoredResource, label_selector=UNMARKED) as feed:
            self._feeds.append((feed, look))
            async for change in feed.subscribe():
                if change.kind in (ChangeKind.ADDED, ChangeKind.MODIFIED):
                    look(change.object)

    def begin(
        self,
        group: asyncio.TaskGroup,
        kind: type[ObjectT],
        resource: Resource,
        stored: StoredResource,
    ) -> None:
        """Take one on in a task of ``group``: what has to be tried for long holds up no other.

        Events of an object that is being checked are handled after that.
        """
        uid = stored.metadata.uid
        if uid in self._under_way:
            self._under_way[uid] = stored
            return
        self._under_way[uid] = None
        group.create_task(self._until_done(kind, resource, stored))

    async def _until_done(
        self, kind: type[ObjectT], resource: Resource, stored: StoredResource
    ) -> None:
        uid, now = stored.metadata.uid, stored
        try:
            while True:
                with self.quarantine.guard("namespace", uid):
                    await self.take(kind, resource, now)
                newer, self._under_way[uid] = self._under_way[uid], None
                if newer is None:
                    return
                now = newer
        finally:
            del self._under_way[uid]

    async def take(self, kind: type[ObjectT], resource: Resource, stored: StoredResource) -> None:
        """Adopt one object, or write its refusal into the status; retries temporary failures."""
        stored.kind = resource.kind
        meta = stored.metadata
        if names.GONE in meta.annotations:
            await self._ledger.finish_deletion(resource, stored)
            return
        if meta.deletion_timestamp is not None:
            return
        now: StoredResource | None = stored
        for _ in range(TRIES):
            if now is None:
                return
            try:
                await self._take_or_refuse(kind, resource, now)
            except (NotFound, ObjectNotFound):
                return
            except (Conflict, VersionConflict) as error:
                # It may be another one by now, but a server also answers so when nothing changed.
                log.info("%s %s is not adopted yet: %s", now.kind, meta.name, error)
            except (KubeError, LedgerUnavailable, RightsUnknown) as error:
                log.warning("%s %s is not adopted yet: %s", now.kind, meta.name, error)
            else:
                return
            await asyncio.sleep(AGAIN_SECONDS)
            now = await self._as_it_is(resource, now)

    async def _as_it_is(self, resource: Resource, stored: StoredResource) -> StoredResource | None:
        """The object as it is now; ``None`` when it is gone or was adopted meanwhile."""
        meta = stored.metadata
        try:
            found = await self._client.get(resource, meta.name, meta.namespace, StoredResource)
        except NotFound:
            return None
        except KubeError:
            return stored  # tried as it was, and refused if that fails
        if found.metadata.uid != meta.uid or names.UID in found.metadata.labels:
            return None
        found.kind = resource.kind
        return found

    async def _take_or_refuse(
        self, kind: type[ObjectT], resource: Resource, stored: StoredResource
    ) -> None:
        try:
            await self._take(kind, stored)
        except Refused as refused:
            await self._refuse(resource, stored, refused)

    async def _take(self, kind: type[ObjectT], stored: StoredResource) -> None:
        for name in OURS:
            stored.metadata.annotations.pop(name, None)
        try:
            obj, given = codec.read(kind, stored), codec.given_fields(stored)
            if isinstance(obj, Workload):
                await self._check_user(obj)
                given = await self._with_defaults(obj, given)
            obj = completed(obj, given)
            await self._check(obj)
            await self._ledger.adopt_object(obj, stored.metadata.annotations)
        except InvalidArgument as error:
            raise Refused("Invalid", str(error)) from error
        except ObjectExists:
            raise Refused(
                "NameTaken", f"Another workload of this project is called {stored.metadata.name}."
            ) from None

    async def _check_user(self, workload: Workload) -> None:
        """Refuse work of a user whom the access rules do not let make it.

        It may have come with rights that are the cluster's own, or are revoked by now. The API
        server lets nobody say another name but who may submit for others, and those alone none.
        """
        project, user, kind = workload.meta.project, workload.spec.user, workload.spec.kind
        if self._may_create is None or not user:
            return
        try:
            await self._ledger.get(Project, project)
        except ObjectNotFound:
            return  # refused soon, for that
        if not await self._may_create(project, user, kind):
            permission = permission_for("workloads:create", kind)
            raise Refused(
                "NotPermitted",
                f"spec.user is `{user}`, who may not make this in the project {project}: that may "
                f"its members, and whom an access rule gives `{permission}` there.",
            )

    async def _with_defaults(self, workload: Workload, given: Given) -> Given:
        """Fill in what its assets say and policies have defaults for.

        Raises ``Refused`` for what has to be said, and for an asset that is not there.
        """
        rules = await self._policies.rules_for(workload.meta.project, kinds_of(workload.spec))
        scopes = await self._scopes_over(workload)
        try:
            given = fill_assets(workload, given, await self._assets.all(), scopes, rules)
        except AssetRefused as error:
            raise Refused("UnknownAsset" if error.unknown else "Invalid", f"{error}.") from error
        filled = fill_defaults(workload, given, rules)
        if missing := unsaid(workload, filled, rules):
            raise Refused("Policy", "; ".join(one.sentence for one in missing) + ".")
        return filled

    async def _scopes_over(self, workload: Workload) -> tuple[Scope, ...]:
        """The scopes whose assets the workload may use: as over REST, its user's own, too."""
        project, user = workload.meta.project, workload.spec.user
        try:
            found = await self._ledger.get(Project, project)
        except ObjectNotFound:
            return scopes_over(user=user)
        return scopes_over(project=project, department=found.spec.department, user=user)

    async def _check(self, obj: Object) -> None:
        if isinstance(obj, Project) and (right := names.expected_project_name(obj.meta.name)):
            raise Refused("Invalid", f"metadata.name is `{obj.meta.name}`: {right} is right.")
        if not isinstance(obj, Workload):
            return
        if obj.spec.owner:
            raise Refused(
                "Invalid", f"owner is `{obj.spec.owner}`: left out is right, controllers say it."
            )
        try:
            project = await self._ledger.get(Project, obj.meta.project)
        except ObjectNotFound:
            raise Refused(
                "NoProject", f"There is no project {obj.meta.project or 'of this namespace'}."
            ) from None
        if project.meta.deleting:
            raise Refused("NoProject", f"The project {obj.meta.project} is being deleted.")
        try:
            await references.find(self._ledger, obj)
            if obj.spec.schedule is not None:
                cron.check(obj.spec.schedule.cron)
                cron.zone(obj.spec.schedule.time_zone)
            admission.admit(obj, self._live)
            broken = await self._policies.violations_of(obj)
        except admission.NotAdmitted as error:
            raise Refused("NeverFits", error.detail) from error
        except references.UnknownSource as error:
            raise Refused("UnknownJob", str(error)) from error
        except (cron.BadCron, cron.BadTimeZone) as error:
            raise Refused("Invalid", f"schedule: {error} is right.") from error
        if broken:
            raise Refused("Policy", "; ".join(one.sentence for one in broken) + ".")

    async def _refuse(self, resource: Resource, stored: StoredResource, refused: Refused) -> None:
        meta = stored.metadata
        if (meta.generation, refused.reason, str(refused)) in _told(stored):
            return
        condition = conditions.refused(str(refused), refused.reason, self._clock(), meta.generation)
        body = {
            "metadata": {"resourceVersion": meta.resource_version},
            "status": {"conditions": [condition], "shown": {"status": "Refused"}},
        }
        await self._client.patch(resource, meta.name, body, meta.namespace, "status")


def completed(obj: ObjectT, given: Mapping[str, Any]) -> ObjectT:
    """The object with the fields that Carrel fills in; ``given`` are those of its author."""
    if isinstance(obj, Project):
        obj.spec = msgspec.structs.replace(obj.spec, members_group=group_of(obj))
    if not isinstance(obj, Workload):
        return obj
    spec = obj.spec
    facts = KINDS[spec.kind]
    runs = spec.kind if spec.schedule is None else spec.schedule.runs
    chosen = spec.preemptible if facts.may_choose else None
    spec.preemptible = facts.preemptible if chosen is None else chosen
    if spec.priority == "":
        interactive = spec.kind == "workspace" and spec.preemptible
        spec.priority = "build-preemptible" if interactive else facts.priority
    foreign = builtin_programs.foreign_fields(spec.kind, spec)
    if foreign:
        field = f"spec.{foreign[0]}"
        right = builtin_programs.expected(spec.kind, foreign[0])
        raise Refused("OwnProgram", f"{field}: {right} is right.")
    spec.command = spec.command or builtin_programs.command_for(runs)
    spec.routes = spec.routes or builtin_programs.routes_for(runs, spec.tensorboard)
    if "backoffLimit" not in given and runs in builtin_programs.BACKOFF_LIMIT:
        spec.backoff_limit = builtin_programs.BACKOFF_LIMIT[runs]
    spec.retries = builtin_programs.retries(
        spec.retries, spec.backoff_limit if "backoffLimit" in given else 0
    )
    if "cpu" not in given.get("resources", {}) and runs in builtin_programs.CPU_MILLI:
        spec.resources = msgspec.structs.replace(
            spec.resources, cpu_milli=builtin_programs.CPU_MILLI[runs]
        )
    obj.meta.created_by = obj.meta.created_by or spec.user
    obj.status.queued_at = obj.meta.created_at
    return obj


def _told(stored: StoredResource) -> list[tuple[int, str, str]]:
    """The refusals recorded in the object's status: their generation and their message."""
    told = msgspec.json.decode(stored.status, type=dict[str, Any]).get("conditions", [])
    return [
        (one.get("observedGeneration", 0), one.get("reason", ""), one.get("message", ""))
        for one in told
    ]
