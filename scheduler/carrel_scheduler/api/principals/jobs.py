"""Jobs as callers: the token of a running job stands for its user, in its project, for work only.

It lets the job submit, watch and end work of the same user in the same project; operations say
themselves whether jobs may call them (``Operation.for_jobs``), and none does by default. The token
is good while a task of the job is at work and its user is in the project. It never shows workspaces
and work of others, whatever its user may see.

What a job submits is its child. The uids of all its ancestors are noted on it, by which the depth
of the tree and the number of live descendants of its root are bounded: a job that submits itself
comes to an end.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol, get_args

from carrel_scheduler.api import problems
from carrel_scheduler.api.principals.identity import (
    USE,
    Identity,
    Principal,
    group_of,
)
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.store import ObjectNotFound, ObjectStore
from carrel_scheduler.workloads.launch.task_specs import TaskTokens
from carrel_scheduler.workloads.state.phases import AT_REST, HOLDING
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Phase, Workload

NOT_AT_REST: Final = tuple(phase for phase in get_args(Phase) if phase not in AT_REST)
PARENT_LABEL: Final = "carrel.dev/parent"
"""The name of the job that submitted it, to list its children by."""
KINDS_THAT_SUBMIT: Final[frozenset[WorkloadKind]] = frozenset(
    {"training", "distributed", "trial", "notebook"}
)
"""Replicas and TensorBoards answer visitors; a hole in them is not to be one in the project."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Limits of the jobs that a job may submit.

    Attributes:
        depth: generations below a job that a person submitted; 0: jobs submit nothing.
        descendants: live ones, of all generations, of one such job.
    """

    depth: int = 2
    descendants: int = 100


LetsSubmit = Callable[[str, str], Awaitable[bool]]
"""Whether a user may submit work to a project: project, user."""


class JobIdentity:
    """``Identity`` of the Hub's tokens and of jobs' tokens."""

    def __init__(
        self, hub: Identity, lets_submit: LetsSubmit, store: ObjectStore, tokens: TaskTokens
    ) -> None:
        self._hub, self._lets_submit = hub, lets_submit
        self._store, self._tokens = store, tokens

    async def user_for_token(self, token: str) -> Principal | None:
        """See ``Identity``; a job's token is nobody's before its task starts and after it ends."""
        uid = self._tokens.uid(token)
        if uid is None:
            return await self._hub.user_for_token(token)
        try:
            job = await self._store.get_by_uid(Workload, uid)
        except ObjectNotFound:
            return None
        spec, project = job.spec, job.meta.project
        if spec.kind not in KINDS_THAT_SUBMIT or job.status.phase not in HOLDING:
            return None
        if not await self._lets_submit(project, spec.user):
            return None
        return Principal(
            name=spec.user,
            kind="user",
            groups=frozenset({group_of(project)}),
            scopes=frozenset({USE}),
            job=uid,
        )

    def forget(self, user: str) -> None:
        """See ``Identity``."""
        self._hub.forget(user)


class JobTree(Protocol):
    """The place of new work below the job that submits it, if any."""

    def note(self, workload: Workload) -> None:
        """Write the parent and ancestors into new work."""


class _Nobodys:
    """The place of work without a parent."""

    def note(self, workload: Workload) -> None:
        """No effect: there is no parent."""


@dataclass(frozen=True, slots=True)
class _Below:
    parent: Workload

    def note(self, workload: Workload) -> None:
        """Write the parent's name, and the uids of all ancestors, into new work."""
        meta, spec = self.parent.meta, self.parent.spec
        workload.spec.parent = meta.name
        workload.spec.ancestors = [*spec.ancestors, meta.uid]
        workload.meta.labels = {**workload.meta.labels, PARENT_LABEL: meta.name}


class ChildLimits:
    """Lets jobs submit within the limits; one submission at a time for each tree of jobs."""

    def __init__(self, store: ObjectStore, limits: JobLimits) -> None:
        self._store, self._limits = store, limits
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def room_for(self, principal: Principal, count: int) -> AsyncIterator[JobTree]:
        """Count new workloads against the limits while they are being stored.

        Raises ``Conflicting`` where a job has none left, or is being ended itself.
        """
        if not principal.job:
            yield _Nobodys()
            return
        job = await self._store.get_by_uid(Workload, principal.job)
        self._check(job)
        root = (*job.spec.ancestors, job.meta.uid)[0]
        lock = self._locks.setdefault(root, asyncio.Lock())
        self._users[root] += 1
        try:
            async with lock:
                await self._check_count(job, root, count)
                yield _Below(job)
        finally:
            self._users[root] -= 1
            if not self._users[root]:
                del self._users[root], self._locks[root]

    def _check(self, job: Workload) -> None:
        if job.spec.delete or job.spec.suspend:
            raise problems.Conflicting(
                Code.BEING_DELETED, f"`{job.meta.name}` is being ended; it submits nothing more"
            )
        if len(job.spec.ancestors) >= self._limits.depth:
            depth = self._limits.depth
            raise problems.Conflicting(
                Code.TOO_DEEP,
                f"`{job.meta.name}` was submitted by a job itself, {depth} deep, and submits "
                "nothing: jobs of jobs go no deeper here (CARREL_JOB_DEPTH)"
                if depth
                else "Jobs submit nothing here (CARREL_JOB_DEPTH is 0)",
            )

    async def _check_count(self, job: Workload, root: str, count: int) -> None:
        most = self._limits.descendants
        live = await live_descendants(self._store, root, job.meta.project, job.spec.user)
        if len(live) + count > most:
            raise problems.Conflicting(
                Code.TOO_MANY_DESCENDANTS,
                f"{len(live)} jobs that were submitted by one job and its children are under way "
                f"and {most} are the most (CARREL_JOB_DESCENDANTS); wait until some have ended",
            )


async def live_descendants(store: ObjectStore, uid: str, project: str, user: str) -> list[Workload]:
    """The live work that a job and its children submitted; without parts of such work."""
    page = await store.list(Workload, projects=[project], user=user, phases=NOT_AT_REST)
    return [one for one in page.items if uid in one.spec.ancestors and not one.spec.owner]
