"""Submission: from a validated request to a stored workload, or a refusal that leaves nothing.

Checks come first, cheap before dear; then one durable transaction writes the workload, its secrets
and its first row. An idempotency key is claimed just before, so a refused request leaves no key.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from carrel_scheduler.api import convert, problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.authentication import asking_the_hub
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.principals.jobs import ChildLimits, JobTree
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services import sources
from carrel_scheduler.api.services.governance.policies import Policies
from carrel_scheduler.api.services.naming import Naming
from carrel_scheduler.api.services.projects import Projects
from carrel_scheduler.ledger.records import Transition
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound
from carrel_scheduler.workloads import admission
from carrel_schema.objects import ReasonInfo, Workload
from carrel_schema.problems import FieldError
from carrel_schema.wire import WorkloadCreate

NAME_ATTEMPTS: Final = 20
# Rows that the edge writes belong to no scheduler's term of office.


class Submission:
    """Creates workloads."""

    def __init__(
        self,
        deps: ApiDependencies,
        projects: Projects,
        children: ChildLimits,
        policies: Policies,
    ) -> None:
        self._deps, self._projects, self._children = deps, projects, children
        self._policies = policies
        self._naming = Naming(deps.ledger, deps.clock)
        self._keys = _KeyLocks()

    async def forecast(
        self, body: WorkloadCreate, principal: Principal
    ) -> tuple[Workload, ReasonInfo]:
        """The forecast for a request; nothing is written."""
        async with (
            self._projects.in_use(body.project),
            self._children.room_for(principal, 1) as tree,
        ):
            workload = await self._draft(body, principal, tree)
            if body.name is not None and await self._exists(body.project, body.name):
                raise taken(body.project, body.name)
            return workload, self._deps.live.forecast(workload)

    async def create(self, body: WorkloadCreate, principal: Principal, key: str) -> Workload:
        """Store it; with a key, a repeated request returns what the first one made."""
        async with (
            self._projects.in_use(body.project),
            self._children.room_for(principal, 1) as tree,
        ):
            workload = await self._draft(body, principal, tree)
            if not key:
                return await self._store(workload, body)
            scope = f"{principal.kind}:{principal.name}"
            async with self._keys.hold(scope, key):
                return await self._create_once(workload, body, scope, key)

    async def _draft(self, body: WorkloadCreate, principal: Principal, tree: JobTree) -> Workload:
        if principal.spawner:
            await self._check_spawned_user(body)
        else:
            check_own_work(body, principal)
        deps = self._deps
        body = await self._policies.admit(body, body.user or principal.name)
        name = body.name or f"{body.name_prefix}-1"
        workload = convert.to_workload(body, principal, name=name, uid=deps.ids(), now=deps.clock())
        tree.note(workload)
        await sources.find(deps.ledger, workload)
        await self._check_code(workload)
        admission.admit(workload, deps.live)
        return workload

    async def _check_code(self, workload: Workload) -> None:
        """Refuse code that was not uploaded; extends the retention of existing code."""
        source = workload.spec.code
        if source is None or not source.digest:
            return
        if not await self._deps.code.keep_folder(workload.meta.project, source.digest):
            raise problems.invalid_field(
                "code.digest",
                Code.UNKNOWN_CODE,
                source.digest,
                f"that of a folder uploaded to the project `{workload.meta.project}`",
            )

    async def _check_spawned_user(self, body: WorkloadCreate) -> None:
        if body.user is None:
            raise problems.invalid_field(
                "user", Code.MISSING_FIELD, None, "the user whose workspace it is"
            )
        with asking_the_hub():
            member = await self._deps.access_rules.lets_submit(body.project, body.user)
        if not member:
            raise problems.PermissionDenied(
                Code.NOT_A_MEMBER, f"{body.user} is not in the project `{body.project}`"
            )

    async def _create_once(
        self, workload: Workload, body: WorkloadCreate, scope: str, key: str
    ) -> Workload:
        ledger, digest = self._deps.ledger, _digest(body)
        first_digest, uid = await ledger.claim_idempotency_key(
            scope, key, digest, workload.meta.uid, self._deps.clock()
        )
        if first_digest != digest:
            raise problems.Conflicting(
                Code.IDEMPOTENCY_KEY_REUSED,
                "This Idempotency-Key was used with another body; use a new key",
            )
        if uid != workload.meta.uid:
            try:
                return await ledger.get_by_uid(Workload, uid)
            except ObjectNotFound:
                if await ledger.transitions(workload_uid=uid, limit=1):
                    raise problems.Conflicting(
                        Code.ALREADY_REMOVED,
                        "The workload of this Idempotency-Key was created and deleted since",
                    ) from None
            workload.meta.uid = uid
        return await self._store(workload, body)

    async def _store(self, workload: Workload, body: WorkloadCreate) -> Workload:
        if body.name_prefix is None:
            try:
                return await self._write(workload, body)
            except ObjectExists:
                raise taken(workload.meta.project, workload.meta.name) from None
        for _ in range(NAME_ATTEMPTS):
            workload.meta.name = await self._naming.next(workload.meta.project, body.name_prefix)
            try:
                return await self._write(workload, body)
            except ObjectExists:
                continue
        raise problems.Conflicting(
            Code.NO_FREE_NAME,
            f"No free number was found behind `{body.name_prefix}`; give a `name`",
        )

    async def _write(self, workload: Workload, body: WorkloadCreate) -> Workload:
        return await self._deps.ledger.create_workload(
            workload, secrets=body.secret_environment, transition=Transition.first(workload)
        )

    async def _exists(self, project: str, name: str) -> bool:
        try:
            await self._deps.ledger.get(Workload, name, project)
        except ObjectNotFound:
            return False
        return True


class _KeyLocks:
    """Locks that admit one request at a time for each idempotency key."""

    def __init__(self) -> None:
        self._locks: OrderedDict[tuple[str, str], asyncio.Lock] = OrderedDict()
        self._users: Counter[tuple[str, str]] = Counter()

    @asynccontextmanager
    async def hold(self, scope: str, key: str) -> AsyncIterator[None]:
        """Wait for earlier requests with this key."""
        pair = (scope, key)
        lock = self._locks.setdefault(pair, asyncio.Lock())
        self._users[pair] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[pair] -= 1
            if not self._users[pair]:
                del self._users[pair], self._locks[pair]


def check_own_work(body: WorkloadCreate, principal: Principal) -> None:
    """A user submits work of their own, without what only the spawner may say."""
    reserved = body.spawner_fields()
    if reserved:
        raise problems.PermissionDenied(
            Code.SPAWNER_ONLY,
            f"{', '.join(reserved)}: only the Hub's spawner sets this; leave it out",
        )
    if principal.job and body.kind == "workspace":
        raise problems.PermissionDenied(
            Code.NOT_FOR_JOBS, "A job submits no interactive work, which is for people at a desk"
        )
    if principal.kind == "service" or (principal.kind != "user" and body.kind == "workspace"):
        raise problems.PermissionDenied(
            Code.USER_EXPECTED, "Work belongs to a user; use a token of the user it is for"
        )


def taken(project: str, name: str) -> problems.Conflicting:
    """The name belongs to another workload."""
    return problems.Conflicting(
        Code.ALREADY_EXISTS,
        f"`{project}/{name}` exists; choose another name or delete it first",
        errors=[
            FieldError(
                field="name",
                code=Code.ALREADY_EXISTS,
                value=name,
                expected="a name that is free in its project",
            )
        ],
    )


def _digest(body: WorkloadCreate) -> str:
    asked = msgspec.structs.asdict(body) | {"given": sorted(body.given)}
    return hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()
