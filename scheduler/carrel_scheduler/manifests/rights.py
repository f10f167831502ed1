"""Roles as cluster roles: what the permissions of a role let somebody do with ``kubectl``.

Permissions about what lies in the ledger alone (templates, secrets, budgets and so on), and about
objects of the whole cluster, give nothing here. ``manage`` is a verb that admission policies ask
for: without it, work of others is not changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.workloads.namespaces.access import cluster_role
from carrel_scheduler.workloads.namespaces.manifests import RBAC
from carrel_schema.governance.roles import ROLES
from carrel_schema.kinds import KINDS
from carrel_schema.names import GROUP

_READ: Final = ("get", "list", "watch")
_CHANGE: Final = ("update", "patch", "delete")
_MADE_BY_PEOPLE: Final = (
    *(
        named.resource.plural
        for kind, named in kinds.WORK.items()
        if kind != "workspace" and not KINDS[kind].part
    ),
    kinds.POD_GROUP.resource.plural,
)
_OTHERS: Final = tuple(
    named.resource.plural
    for named in kinds.WORK.values()
    if named.resource.plural not in _MADE_BY_PEOPLE
)
_ENDPOINTS: Final = (kinds.WORK["inference"].resource.plural,)
_REPLICAS: Final = (kinds.WORK["replica"].resource.plural,)

Grant = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Group of the API, resources, verbs."""
GRANTS: Final[Mapping[str, tuple[Grant, ...]]] = {
    "workloads:read": (
        (GROUP, (*_MADE_BY_PEOPLE, *_OTHERS), _READ),
        ("", ("pods", "persistentvolumeclaims", "events"), _READ),
        ("events.k8s.io", ("events",), _READ),
    ),
    "inference:read": ((GROUP, (*_ENDPOINTS, *_REPLICAS), _READ),),
    "policies:read": ((GROUP, (kinds.WORKLOAD_POLICY.resource.plural,), _READ),),
    "workloads:create": ((GROUP, _MADE_BY_PEOPLE, ("create",)),),
    "workloads:update": ((GROUP, _MADE_BY_PEOPLE, _CHANGE),),
    "workloads:manage": (
        (GROUP, (*_MADE_BY_PEOPLE, *_OTHERS), _CHANGE),
        (GROUP, ("workloads",), ("manage",)),
        ("", ("pods/log",), ("get",)),
    ),
    "inference:create": ((GROUP, _ENDPOINTS, ("create",)),),
    "inference:update": ((GROUP, _ENDPOINTS, _CHANGE),),
}


def cluster_roles() -> list[dict[str, Any]]:
    """The cluster roles, one for each role of the API."""
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": cluster_role(name)},
            "rules": rules(role.permissions),
        }
        for name, role in ROLES.items()
    ]


def rules(permissions: Iterable[str]) -> list[dict[str, Any]]:
    """The RBAC rules for permissions; resources with the same verbs share one."""
    verbs: dict[tuple[str, str], set[str]] = {}
    wanted = frozenset(permissions)
    for permission, grants in GRANTS.items():
        for group, resources, given in grants if permission in wanted else ():
            for resource in resources:
                verbs.setdefault((group, resource), set()).update(given)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), given_verbs in verbs.items():
        ordered = tuple(sorted(given_verbs, key=_VERBS.index))
        together.setdefault((group, ordered), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(given)}
        for (group, given), resources in together.items()
    ]


_VERBS: Final = (*_READ, "create", *_CHANGE, "manage")
