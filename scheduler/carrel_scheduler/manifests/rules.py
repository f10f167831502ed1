"""Rules that bind several fields, in CEL, with sentences that say what would be right.

They are those of the REST API's models; each is kept cheap by the bounds of what it runs over.
"""

from collections.abc import Mapping
from typing import Any, Final

from carrel_scheduler.core.mig.models import EXPECTED, FORM
from carrel_scheduler.ledger.resources import quantities, wire
from carrel_scheduler.ledger.resources.kinds import PROJECT, NamedKind
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_schema import names, objects, sections
from carrel_schema.kinds import KINDS, WorkloadKind

Rule = dict[str, Any]


def rule(what: str, message: str, *, path: str = "") -> Rule:
    """A validation rule; ``path`` is the field that it reports."""
    blamed = {"fieldPath": path} if path else {}
    return {"rule": what, "message": message, **blamed}


def of_name(named: NamedKind) -> list[Rule]:
    """The rules for names of objects."""
    if named is PROJECT:
        return [
            rule(
                f"self.metadata.name.matches('{names.PROJECT_PATTERN}')",
                f"a name of {names.PROJECT_WORDS}",
            ),
            rule(
                f"!self.metadata.name.matches('{names.RESERVED_PROJECTS}')",
                names.RESERVED_PROJECT_WORDS,
            ),
        ]
    return [
        rule(
            "size(self.metadata.name) <= 63"
            " && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "a name of 1 to 63 lower-case letters, digits and hyphens, beginning and ending"
            " with a letter or digit",
        )
    ]


_GPUS: Final = rule(
    "self == double(int(self)) || (self < 1.0 && self * 100.0 - double(int(self * 100.0 + 0.5))"
    " < 0.000001 && self * 100.0 - double(int(self * 100.0 + 0.5)) > -0.000001)",
    "a share of one GPU in hundredths (0.01 to 0.99), or a whole number (0, 1, 2, …)",
)
_IMMUTABLE: Final = rule("self == oldSelf", "stays what it was; make a new object instead")


def _quantity(example: str) -> Rule:
    return rule(
        f"type(self) == string ? self.matches('{quantities.PATTERN}') : self >= 0",
        f"an amount such as {example}",
    )


_CPU: Final = {"x-kubernetes-validations": [_quantity("2, 0.5 or 500m")], "maxLength": 32}
_MEMORY: Final = {"x-kubernetes-validations": [_quantity("8Gi or 512Mi")], "maxLength": 32}
_GPU: Final = {"minimum": 0, "maximum": 65_536, "x-kubernetes-validations": [_GPUS]}
_MIG: Final = {
    "maxLength": 32,
    "x-kubernetes-validations": [rule(f"self == '' || self.matches('^{FORM}$')", EXPECTED)],
}
_AMOUNTS: Final = {"gpus": _GPU, "cpu": _CPU, "cpu_limit": _CPU, "memory": _MEMORY}
# Not `multipleOf`: the API server takes a factor below 1 as 0 where the value is a whole number.
_HUNDREDTHS: Final = "double(int(self * 100.0 + 0.5)) - self * 100.0"
_QUOTA_GPUS: Final = rule(
    f"{_HUNDREDTHS} < 0.000001 && {_HUNDREDTHS} > -0.000001", "at most two decimals, as 2.5"
)
_QUOTA: Final = _AMOUNTS | {
    "gpus": {"minimum": 0, "maximum": 65_536, "x-kubernetes-validations": [_QUOTA_GPUS]}
}
_FIELDS: Final[Mapping[type, Mapping[str, Mapping[str, Any]]]] = {
    wire.Needs: {**_AMOUNTS, "gpu_memory": _MEMORY, "mig_profile": _MIG},
    wire.ResourceAmounts: _QUOTA,
    wire.ResourceLimits: _QUOTA,
    objects.WorkloadSpec: {
        "user": {"minLength": 1, "x-kubernetes-validations": [_IMMUTABLE]},
        "owner": {"maxLength": 64, "x-kubernetes-validations": [_IMMUTABLE]},
        "part": {"minimum": 0, "x-kubernetes-validations": [_IMMUTABLE]},
    },
    sections.ScheduleSpec: {
        "cron": {
            "maxLength": 128,
            "x-kubernetes-validations": [
                rule(
                    r"self.trim().matches('^[^ ]+( +[^ ]+){4}$')",
                    "five fields: minute, hour, day of month, month, day of week",
                )
            ],
        }
    },
}


_FIELDS_BY_NAME: Final = {struct.__name__: rules for struct, rules in _FIELDS.items()}
"""Structures of manifests are made anew with the names of those of the ledger."""


def of_field(struct: str, field: str) -> dict[str, Any]:
    """The additions to the schema of a field."""
    return dict(_FIELDS_BY_NAME.get(struct, {}).get(field, {}))


def _not_above(low: str, high: str, least: str, most: str) -> Rule:
    """``low`` not above ``high``; ``least`` and ``most`` are what they are when left out."""
    return rule(
        f"(has(self.{low}) ? self.{low} : {least}) <= (has(self.{high}) ? self.{high} : {most})",
        f"`{low}` not above `{high}`",
    )


_PARAMETER: Final = [
    rule(
        # Choices may be of any type, and what has none is nothing for CEL to look at.
        "self.type != 'categorical' || (!has(self.low) && !has(self.high))",
        "`choices`, and neither `low` nor `high`, for a categorical parameter",
    ),
    rule(
        "self.type == 'categorical' || (has(self.low) && has(self.high) && self.low <= self.high)",
        "`low` and `high` with low <= high for a number",
    ),
    rule(
        "!(has(self.log) && self.log) || (has(self.low) && self.low > 0.0 && !has(self.step))",
        "`low` above 0 and no `step` on a logarithmic scale",
    ),
]
_GROUP_QUOTAS: Final = rule(
    "!has(self.nodeGroupQuotas) || !has(self.quota) || !has(self.quota.gpus)"
    " || self.nodeGroupQuotas.map(group, self.nodeGroupQuotas[group]).sum()"
    " <= self.quota.gpus + 0.000001",
    "`nodeGroupQuotas` of at most `quota.gpus` in all",
)
_STRUCTS: Final[Mapping[type, list[Rule]]] = {
    wire.Needs: [
        rule(
            "!has(self.gpuDevices) || self.gpuDevices == 1 || has(self.gpuMemory)"
            " || (has(self.gpus) && self.gpus > 0.0 && self.gpus < 1.0)",
            "`gpuDevices` with `gpus` between 0 and 1, or with `gpuMemory`",
        )
    ],
    sections.InferenceSpec: [_not_above("minReplicas", "maxReplicas", "1", "1")],
    sections.Parameter: _PARAMETER,
    sections.ExperimentSpec: [
        rule(
            "!has(self.sampler) || self.sampler != 'grid' || has(self.parameters)",
            "`parameters`: a grid needs them declared",
        )
    ],
    objects.ProjectSpec: [
        rule(
            "!has(self.limit) || !has(self.limit.gpus) || !has(self.quota)"
            " || !has(self.quota.gpus) || self.quota.gpus <= self.limit.gpus",
            "`limit.gpus` of at least `quota.gpus`",
        ),
        _GROUP_QUOTAS,
    ],
    objects.DepartmentSpec: [_GROUP_QUOTAS],
}


_STRUCTS_BY_NAME: Final = {struct.__name__: rules for struct, rules in _STRUCTS.items()}


def of_struct(struct: str) -> dict[str, Any]:
    """The additions to the schema of a structure."""
    found = _STRUCTS_BY_NAME.get(struct)
    return {"x-kubernetes-validations": found} if found else {}


_ELASTIC: Final = [
    rule(
        "!has(self.elastic) || !has(self.elastic.minTasks)"
        " || self.elastic.minTasks <= (has(self.tasks) ? self.tasks : 1)",
        "`elastic.minTasks` not above `tasks`",
    ),
    rule(
        "!has(self.elastic) || !has(self.elastic.gpusOfTask) || !self.elastic.gpusOfTask"
        " || ((!has(self.tasks) || self.tasks == 1)"
        " && (!has(self.elastic.minTasks) || self.elastic.minTasks == 0))",
        "either `elastic.gpusOfTask` for one task, or `elastic.minTasks` for several",
    ),
]
_ROUTES: Final = rule(
    "!has(self.routes) || self.routes.all(one, self.routes.exists_one(other,"
    " (has(one.name) ? one.name : '') == (has(other.name) ? other.name : '')))",
    "a `name` of its own for each of several `routes`",
)


# The scheduler itself writes the command of a program of ours, and its one route.
_SEALED: Final = [
    *(
        rule(
            f"!has(self.{field}) || size(self.{field}) == 0",
            f"no `{field}`: it is a program of its own",
            path=f".{field}",
        )
        for field in ("environment", "files", "image", "volumes", "workingDir")
    ),
    rule(
        "!has(self.command) || size(self.command) == 0 || (size(self.command) == 4"
        " && self.command[1] == '-I' && self.command[2] == '-m'"
        " && self.command[3] == 'carrel.job.tensorboard')",
        "no `command`: it is a program of its own",
        path=".command",
    ),
    rule(
        "!has(self.routes) || size(self.routes) == 0 || (size(self.routes) == 1"
        " && (!has(self.routes[0].port) || self.routes[0].port == 0)"
        " && (!has(self.routes[0].name) || self.routes[0].name == ''))",
        "no `routes`: it is a program of its own",
        path=".routes",
    ),
]


_NO_STALLS: Final = rule(
    "!has(self.restartWhenStalled) && !has(self.stallAfterSeconds)",
    "no `restartWhenStalled` or `stallAfterSeconds`: they are for trainings",
)
_STALLS: Final = rule(
    "!has(self.restartWhenStalled) || !self.restartWhenStalled"
    " || !has(self.restartPolicy) || self.restartPolicy != 'never'",
    "`restartPolicy` other than `never` with `restartWhenStalled`",
    path=".restartWhenStalled",
)
_COMMAND: Final = rule(
    "(has(self.command) && size(self.command) > 0)"
    " || (has(self.holdForClaim) && self.holdForClaim)"
    " || (has(self.external) && self.external)",
    "a `command` with at least the program to run",
)
_PORTS: Final = rule(
    "!has(self.routes) || self.routes.all(one, !has(one.port) || one.port == 0)",
    "`port` 0: each replica has a port of its own, which it finds as PORT",
)
_RUNS: Final = rule(
    "(has(self.notebook)) == (!has(self.schedule.runs) || self.schedule.runs == 'notebook')",
    "`notebook` for a schedule whose runs are notebooks, and for no other",
)


def of_work(kind: WorkloadKind, sections: frozenset[str], *, command: bool) -> list[Rule]:
    """Rules over the whole specification of a kind of work.

    Args:
        kind: of work.
        sections: that it may have.
        command: whether it says nothing without one.
    """
    found = [_ROUTES]
    if kind in builtin_programs.SEALED:
        found += _SEALED
    if "elastic" in sections:
        found += _ELASTIC
    if KINDS[kind].gang:
        found.append(_STALLS)
    else:
        message = f"`tasks` 1: a {kind} is one task"
        found += [rule("!has(self.tasks) || self.tasks == 1", message), _NO_STALLS]
    if command:
        found.append(_COMMAND)
    external = (
        "!has(self.external) || !self.external || !has(self.command) || size(self.command) == 0"
        if kind == "workspace"
        else "!has(self.external) || !self.external"
    )
    found.append(rule(external, "no `external` but for a workspace without a `command`"))
    if kind == "inference":
        found.append(_PORTS)
    if kind == "schedule":
        found.append(_RUNS)
    return found
