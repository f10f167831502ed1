"""Rules of policies for each project's work, as objects that the API server reads.

The object is the parameter of the admission policy ``carrel-work``; one that is not there yet
refuses nothing, and the scheduler checks what it takes on by the same records.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from typing_extensions import Unpack, override

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.manifest_rules import manifest_rules
from carrel_scheduler.policy.policy_records import KIND, policies_in
from carrel_scheduler.workloads.namespaces.manifests import Manifest, labels
from carrel_scheduler.workloads.namespaces.synced_objects import (
    Place,
    Projects,
    SyncedObjects,
    SyncTiming,
    Wanted,
)
from carrel_schema import names
from carrel_schema.governance.policies import WorkloadPolicySpec
from carrel_schema.objects import Project
from carrel_schema.scopes import Scope, scopes_over

NAME: Final = "carrel"
Versions = tuple[tuple[Scope, str, int, float], ...]
"""The policies, each as of its last change."""


def workload_policy(project: str, spec: WorkloadPolicySpec) -> Manifest:
    """The object of a project."""
    resource = kinds.WORKLOAD_POLICY.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": NAME, "labels": labels(project)},
        "spec": msgspec.to_builtins(spec),
    }


def _specification(records: Iterable[ScopedRecord]) -> WorkloadPolicySpec:
    return WorkloadPolicySpec(rules=manifest_rules(policies_in(records)))


class WorkPolicies(SyncedObjects):
    """Keeps the objects equal to the ledger's policies; see ``SyncedObjects``."""

    resource = kinds.WORKLOAD_POLICY.resource
    selector = f"{names.MADE_BY}={names.MADE_BY_US}"

    def __init__(
        self, ledger: Ledger, client: KubeClient, projects: Projects, **timing: Unpack[SyncTiming]
    ) -> None:
        super().__init__(client, projects, **timing)
        self._ledger = ledger
        self._made: dict[Versions, WorkloadPolicySpec] = {}

    @override
    async def wanted(self, projects: Iterable[Project]) -> Wanted:
        records = await self._ledger.scoped.list(KIND)
        found: dict[Place, Manifest] = {}
        made: dict[Versions, WorkloadPolicySpec] = {}
        for project in projects:
            name = project.meta.name
            scopes = scopes_over(project=name, department=project.spec.department)
            over = [one for one in records if one.scope in scopes]
            key = tuple((one.scope, one.name, one.version, one.changed_at) for one in over)
            spec = made[key] = made.get(key) or self._made.get(key) or _specification(over)
            if spec.rules:
                found[names.namespace_of(name), NAME] = workload_policy(name, spec)
        self._made = made
        return found

    @override
    def differs(self, found: Manifest, wanted: Manifest) -> bool:
        different: bool = found.get("spec") != wanted["spec"]
        return different
