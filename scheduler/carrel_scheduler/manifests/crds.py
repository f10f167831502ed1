"""The custom resource definition of each kind."""

from collections.abc import Mapping
from typing import Any, Final

from carrel_scheduler.ledger.resources import kinds
from carrel_scheduler.manifests import rules
from carrel_scheduler.manifests.columns import (
    GROUP,
    LEVELS,
    NODES,
    POOL,
    RULES,
    WORK,
    PrinterColumn,
)
from carrel_scheduler.manifests.schema import Schema, of_struct
from carrel_schema.governance.policies import WorkloadPolicySpec, WorkloadPolicyStatus
from carrel_schema.groups import (
    NodeGroupSpec,
    NodeGroupStatus,
    PodGroupSpec,
    PodGroupStatus,
    TopologySpec,
    TopologyStatus,
)
from carrel_schema.kinds import KINDS, SECTIONS, WorkloadKind
from carrel_schema.names import VERSION
from carrel_schema.objects import (
    DepartmentSpec,
    DepartmentStatus,
    ProjectSpec,
    ProjectStatus,
    WorkloadSpec,
    WorkloadStatus,
)

_STATUS_SECTIONS: Final[Mapping[str, str]] = {
    "experiment": "experiment",
    "endpoint": "inference",
    "notebook": "notebook",
    "schedule": "schedule",
}
_CONDITIONS: Final[Schema] = {
    "type": "array",
    "description": "What holds, for programs: `kubectl wait --for=condition=Complete`.",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    },
}
_SHOWN: Final[Schema] = {
    "type": "object",
    "description": "What tables show.",
    "properties": {name: {"type": "string"} for name in ("status", "node", "gpus", "pods")},
}


def everything() -> dict[str, dict[str, Any]]:
    """The definitions by plural."""
    made = [_of_work(kind, named) for kind, named in kinds.WORK.items()]
    made += [
        _definition(kinds.PROJECT, of_struct(ProjectSpec), of_struct(ProjectStatus), POOL),
        _definition(kinds.DEPARTMENT, of_struct(DepartmentSpec), of_struct(DepartmentStatus), POOL),
        _definition(kinds.POD_GROUP, of_struct(PodGroupSpec), of_struct(PodGroupStatus), GROUP),
        _definition(kinds.NODE_GROUP, of_struct(NodeGroupSpec), of_struct(NodeGroupStatus), NODES),
        _definition(
            kinds.WORKLOAD_POLICY,
            of_struct(WorkloadPolicySpec),
            of_struct(WorkloadPolicyStatus),
            RULES,
        ),
        _definition(kinds.TOPOLOGY, of_struct(TopologySpec), of_struct(TopologyStatus), LEVELS),
    ]
    return {one["spec"]["names"]["plural"]: one for one in made}


def _of_work(kind: WorkloadKind, named: kinds.NamedKind) -> dict[str, Any]:
    facts = KINDS[kind]
    sections = facts.sections
    spec = of_struct(
        WorkloadSpec,
        leave_out={"kind"} | (SECTIONS - sections),
        required={"user", *facts.required},
    )
    command = facts.command and not facts.part
    spec["x-kubernetes-validations"] = rules.of_work(kind, sections, command=command)
    others = {name for name, section in _STATUS_SECTIONS.items() if section not in sections}
    status = of_struct(WorkloadStatus, constrained=False, leave_out=others)
    return _definition(named, spec, status, WORK)


def _definition(
    named: kinds.NamedKind, spec: Schema, status: Schema, columns: tuple[PrinterColumn, ...]
) -> dict[str, Any]:
    resource = named.resource
    status["properties"] |= {"conditions": _CONDITIONS, "shown": _SHOWN}
    schema = {
        "type": "object",
        "description": spec.get("description", ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": rules.of_name(named),
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.manifest() for column in columns],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": named.singular,
                "shortNames": list(named.short),
                "categories": [kinds.CATEGORY],
            },
            "versions": [version],
        },
    }
