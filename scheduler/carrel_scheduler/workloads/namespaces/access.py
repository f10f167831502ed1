"""Access rules as role bindings, one in each namespace of a rule's scope.

Each role of ours is a cluster role of the installation, made from the same permissions
(``manifests.rights``). What objects of the whole cluster are, departments and projects among them,
is out of reach of a binding in a namespace, and stays with the cluster's administrators.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from typing_extensions import Unpack, override

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.resources import ROLE_BINDINGS
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.policy.access_records import read_rules
from carrel_scheduler.workloads.namespaces.manifests import RBAC, Manifest, labels
from carrel_scheduler.workloads.namespaces.synced_objects import (
    Projects,
    SyncedObjects,
    SyncTiming,
    Wanted,
)
from carrel_schema import names
from carrel_schema.governance.roles import AccessRuleFields
from carrel_schema.objects import Project
from carrel_schema.scopes import Scope

PREFIX: Final = "carrel-access-"
_KINDS: Final[Mapping[str, str]] = {"user": "User", "group": "Group"}
_OF_KUBERNETES: Final = "system:"
"""Users and groups of Kubernetes itself, everybody among them: no rule is about those."""


def cluster_role(role: str) -> str:
    """The cluster role of a role."""
    return f"carrel-{role}"


def bindings(
    rules: Mapping[str, AccessRuleFields], projects: Iterable[Project]
) -> dict[tuple[str, str], Manifest]:
    """Role bindings by namespace and name.

    Args:
        rules: all, by id.
        projects: those that have a namespace.
    """
    all_projects: list[str] = []
    of_department = defaultdict[str, list[str]](list)
    for project in projects:
        all_projects.append(project.meta.name)
        of_department[project.spec.department].append(project.meta.name)
    known, found = frozenset(all_projects), dict[tuple[str, str], Manifest]()
    for rule_id, rule in rules.items():
        subjects = subjects_of(rule)
        scope = Scope.parse(rule.scope)
        if scope.level == "platform":
            within = all_projects
        elif scope.level == "department":
            within = of_department[scope.name]
        else:
            within = [scope.name] if scope.name in known else []
        for name in within if subjects else ():
            made = _binding(name, rule_id, cluster_role(rule.role), subjects)
            found[names.namespace_of(name), made["metadata"]["name"]] = made
    return found


def subjects_of(rule: AccessRuleFields) -> list[Manifest]:
    """The subjects of a rule, as Kubernetes names them; none for one that Kubernetes lacks."""
    kind = _KINDS.get(rule.subject_kind)
    if kind is None or rule.subject.startswith(_OF_KUBERNETES):
        return []
    return [{"apiGroup": RBAC, "kind": kind, "name": rule.subject}]


def _binding(project: str, rule_id: str, role: str, subjects: list[Manifest]) -> Manifest:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": f"{PREFIX}{rule_id}",
            "labels": {**labels(project), names.ACCESS_RULE: rule_id},
        },
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


class AccessBindings(SyncedObjects):
    """Keeps role bindings equal to the access rules; see ``SyncedObjects``."""

    resource = ROLE_BINDINGS
    selector = names.ACCESS_RULE

    def __init__(
        self, ledger: Ledger, client: KubeClient, projects: Projects, **timing: Unpack[SyncTiming]
    ) -> None:
        super().__init__(client, projects, **timing)
        self._ledger = ledger

    @override
    async def wanted(self, projects: Iterable[Project]) -> Wanted:
        return bindings(await read_rules(self._ledger), projects)

    @override
    def differs(self, found: Manifest, wanted: Manifest) -> bool:
        given = (found["roleRef"], found.get("subjects", []))
        return given != (wanted["roleRef"], wanted["subjects"])

    @override
    def changeable(self, found: Manifest, wanted: Manifest) -> bool:
        same: bool = found["roleRef"] == wanted["roleRef"]
        return same
