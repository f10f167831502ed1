"""Batches: many submissions in one request and one transaction, each created or refused for itself.

A batch is as safe to repeat as its names are: whoever asks again for what they created just so
before hears that it is there. Only the secrets of a workload are not compared.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from carrel_scheduler.api import convert, problems, refusals
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.principals.jobs import ChildLimits, JobTree
from carrel_scheduler.api.problems import Code, Problem
from carrel_scheduler.api.services import sources
from carrel_scheduler.api.services.governance.policies import Policies
from carrel_scheduler.api.services.projects import Projects
from carrel_scheduler.api.services.submission import check_own_work, taken
from carrel_scheduler.ledger.records import Creation, NewWorkload, Transition
from carrel_scheduler.workloads.admission import Admission, NotAdmitted
from carrel_schema.objects import Workload
from carrel_schema.problems import BatchItem
from carrel_schema.wire import WorkloadCreate

# Others are answered after every so many items.
PAUSE_EVERY: Final = 100


class Batches:
    """Creates many workloads."""

    def __init__(
        self,
        deps: ApiDependencies,
        projects: Projects,
        children: ChildLimits,
        policies: Policies,
    ) -> None:
        self._deps, self._projects, self._children = deps, projects, children
        self._policies = policies

    async def create(
        self, items: Sequence[WorkloadCreate], principal: Principal
    ) -> Sequence[BatchItem]:
        """Store the valid items; one result for each item, in order."""
        if principal.spawner:
            raise problems.PermissionDenied(
                Code.USER_EXPECTED, "A batch is a user's own work; use a token of that user"
            )
        async with (
            self._projects.all_in_use({item.project for item in items}),
            self._children.room_for(principal, len(items)) as tree,
        ):
            news = await self._drafts(items, principal, tree)
            wanted = [new for new in news if isinstance(new, NewWorkload)]
            creations = iter(await self._deps.ledger.create_workloads(wanted))
        return [
            _refused(item, new) if isinstance(new, Problem) else _answer(new, next(creations))
            for item, new in zip(items, news, strict=True)
        ]

    async def _drafts(
        self, items: Sequence[WorkloadCreate], principal: Principal, tree: JobTree
    ) -> list[NewWorkload | Problem]:
        drafts: list[NewWorkload | Problem] = []
        admission = Admission(self._deps.live)
        for number, item in enumerate(items, start=1):
            try:
                drafts.append(await self._draft(item, principal, admission, tree))
            except (Problem, NotAdmitted) as refusal:
                drafts.append(refusals.expected(refusal))
            if number % PAUSE_EVERY == 0:
                await asyncio.sleep(0)
        return drafts

    async def _draft(
        self, item: WorkloadCreate, principal: Principal, admission: Admission, tree: JobTree
    ) -> NewWorkload:
        check_own_work(item, principal)
        deps = self._deps
        item = await self._policies.admit(item, item.user or principal.name)
        workload = convert.to_workload(
            item, principal, name=item.name or "", uid=deps.ids(), now=deps.clock()
        )
        tree.note(workload)
        await sources.find(deps.ledger, workload)
        admission.admit(workload)
        return NewWorkload(
            workload=workload,
            secrets=item.secret_environment,
            transition=Transition.first(workload),
        )


def _answer(new: NewWorkload, creation: Creation) -> BatchItem:
    meta = creation.meta
    if creation.found is not None and not _same(creation.found, new.workload):
        return _refusal(meta.project, meta.name, taken(meta.project, meta.name))
    return BatchItem(
        project=meta.project,
        name=meta.name,
        status=201 if creation.found is None else 200,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def _same(found: Workload, wanted: Workload) -> bool:
    """Whether the same caller asked for the same; pausing and resuming it changes nothing."""
    asked = msgspec.structs.replace(
        found.spec, suspend=wanted.spec.suspend, resumes=wanted.spec.resumes
    )
    same_caller = found.meta.created_by == wanted.meta.created_by
    return same_caller and asked == wanted.spec and found.meta.labels == wanted.meta.labels


def _refused(item: WorkloadCreate, problem: Problem) -> BatchItem:
    return _refusal(item.project, item.name or "", problem)


def _refusal(project: str, name: str, problem: Problem) -> BatchItem:
    return BatchItem(project=project, name=name, status=problem.status, problem=problem.body())
