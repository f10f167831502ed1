"""The workload policies of an installation, read from the ledger and remembered for a moment.

Every submission asks for them. What another process writes counts within ``KNOWN_SECONDS``; what
this one writes counts at once (``forget``). A policy that cannot be read is an error for whoever
submits in its scope: a rule that is not understood is not left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.workload_policy import ScopedPolicy, Violation, merge, violations
from carrel_schema.governance.policies import EffectiveRule, PolicyFields
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Project, Work, Workload
from carrel_schema.scopes import scopes_over
from carrel_schema.wire import Volume, WorkloadCreate

KIND: Final = "policy"
KNOWN_SECONDS: Final = 2.0


class PolicyRecords:
    """Reads policies.

    Args:
        ledger: where they are.
        clock: epoch seconds.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)

    async def all(self) -> Sequence[ScopedPolicy]:
        """All policies, from the widest scope to the narrowest."""
        policies, _ = await self._known.get()
        return policies

    def forget(self) -> None:
        """Drop the cached policies, because one was written."""
        self._known.invalidate()

    async def _read(self) -> tuple[Sequence[ScopedPolicy], Mapping[str, str]]:
        policies = policies_in(await self._ledger.scoped.list(KIND))
        projects = (await self._ledger.list(Project)).items if policies else ()
        return policies, {one.meta.name: one.spec.department for one in projects}

    async def over(self, project: str) -> Sequence[ScopedPolicy]:
        """The policies whose scope contains the work of a project."""
        policies, departments = await self._known.get()
        if not policies:
            return ()
        scopes = scopes_over(project=project, department=departments.get(project, ""))
        return [one for one in policies if one.scope in scopes]

    async def rules_for(
        self, project: str, kinds: Iterable[WorkloadKind]
    ) -> dict[str, EffectiveRule]:
        """The rules for work of these kinds in a project, by the path of a field."""
        return merge(await self.over(project), kinds)

    async def violations_of(self, workload: Workload) -> list[Violation]:
        """Violations by work that is stored, or was created without the API."""
        spec = workload.spec
        rules = await self.rules_for(workload.meta.project, kinds_of(spec))
        return violations(rules, as_request(workload), requested=False) if rules else []


def policies_in(records: Iterable[ScopedRecord]) -> list[ScopedPolicy]:
    """The policies in these records, in their order."""
    return [
        ScopedPolicy(one.name, one.scope, msgspec.json.decode(one.content, type=PolicyFields))
        for one in records
    ]


def kinds_of(work: Work) -> list[WorkloadKind]:
    """The kinds whose rules hold: its own, and for a schedule that of what it runs."""
    return [work.kind] if work.schedule is None else [work.kind, work.schedule.runs]


def as_request(workload: Workload) -> WorkloadCreate:
    """Stored work in the form of a request."""
    spec, resources = workload.spec, workload.spec.resources
    asked = {name: getattr(spec, name) for name in Work.__struct_fields__}
    return WorkloadCreate(
        **asked,
        name=workload.meta.name,
        project=workload.meta.project,
        labels=workload.meta.labels,
        volumes=[
            Volume(source=source, destination=where, read_only=source in spec.read_only)
            for source, where in spec.volumes
        ],
        gpus=resources.gpu_milli / MILLI,
        gpu_memory_bytes=resources.gpu_memory_mib * MIB,
        gpu_devices=resources.gpu_devices,
        mig_profile=resources.mig_profile,
        cpu_millicores=resources.cpu_milli,
        cpu_limit_millicores=resources.cpu_limit_milli or None,
        memory_bytes=resources.memory_bytes,
    )
