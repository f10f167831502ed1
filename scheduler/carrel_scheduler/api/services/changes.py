"""Changes of work after its submission: what may change when, and the new specification.

Labels may change at any time, limits of its own and what is done when it stands still until it has
ended, and what its place in the queue
depends on while it holds none: the reconciler queues it anew. All that is refused is named, with
the reason.

What an endpoint's replicas run changes while it serves: it has a revision, counted up by every
change, which the controller rolls out; how many there are and when another one is needed has none.
Who comes in by a route is heard of by the gateway, and nothing restarts.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from carrel_scheduler.api import convert, problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models import checks, validators
from carrel_scheduler.api.principals.jobs import PARENT_LABEL
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.refusals import from_validation
from carrel_scheduler.api.services.control import Control
from carrel_scheduler.api.services.governance.policies import Policies
from carrel_scheduler.workloads import admission
from carrel_scheduler.workloads.contract import Live
from carrel_scheduler.workloads.state.phases import FINAL, HOLDING
from carrel_schema.kinds import COMPOSITES, KINDS, PARTS
from carrel_schema.objects import Workload, WorkloadSpec
from carrel_schema.problems import FieldError
from carrel_schema.sections import Access, Elastic, InferenceSpec

IN_QUEUE: Final = ("priority", "preemptible", "tasks", "elastic")
WHILE_LIVE: Final = (
    "time_limit_seconds",
    "idle_timeout_seconds",
    "restart_when_stalled",
    "stall_after_seconds",
)
MOST_LABELS: Final = 64
PLAIN: Final = ("command", "environment", "files", "working_dir")
AMOUNTS: Final = {
    "cpu_millicores": "cpu_milli",
    "memory_bytes": "memory_bytes",
    "gpu_devices": "gpu_devices",
}
ENDPOINT_FIELDS: Final = (*PLAIN, "gpus", *AMOUNTS, "inference")
# Fields that change which replicas are ready, not what these run.
OF_READINESS: Final = ("readiness_path",)


class WorkloadService:
    """Changes workloads."""

    def __init__(self, deps: ApiDependencies, control: Control, policies: Policies) -> None:
        self._deps, self._control, self._policies = deps, control, policies

    async def change(self, workload: Workload, patch: Mapping[str, Any]) -> Workload:
        """Apply a merge patch. Raises problems and ``NotAdmitted``; then nothing is changed."""
        draft = copy.deepcopy(workload)
        try:
            _apply(draft, patch, self._deps.live)
        except PydanticCustomError as error:  # fields that do not go together
            right = error.message()
            named = [name for name in patch if f"`{name}" in right] or list(patch)
            code = Code(error.type)
            raise problems.invalid_field(named[0], code, patch[named[0]], right) from error
        await self._policies.check_changed(workload, draft)
        if draft.spec != workload.spec:
            admission.admit(draft, self._deps.live)

        def write(stored: Workload) -> bool:
            before = copy.deepcopy(stored)
            _apply(stored, patch, self._deps.live)
            return stored.spec != before.spec or stored.meta.labels != before.meta.labels

        return await self._control.change(workload, write)

    async def share(self, workload: Workload, route: str, access: Access) -> Workload:
        """Share a route with others, or stop sharing it. Raises problems."""

        def write(stored: Workload) -> bool:
            if stored.spec.delete:
                raise problems.Conflicting(Code.BEING_DELETED, "It is being deleted")
            routes = [
                msgspec.structs.replace(one, access=access) if one.name == route else one
                for one in stored.spec.routes
            ]
            if all(one.name != route for one in routes):
                names = ", ".join(one.name or "(the first, without a name)" for one in routes)
                raise problems.Conflicting(
                    Code.NO_SUCH_ROUTE,
                    f"It has no route {route!r}; it has {names or 'none: submit it with --port'}",
                )
            if routes == stored.spec.routes:
                return False
            stored.spec.routes = routes
            return True

        return await self._control.change(workload, write)


def _apply(workload: Workload, patch: Mapping[str, Any], live: Live) -> None:
    """Apply all changes of a patch to a workload, or none."""
    spec = workload.spec
    if spec.delete:
        raise problems.Conflicting(Code.BEING_DELETED, "It is being deleted")
    _refuse(_refused(workload, patch), patch)
    if "labels" in patch:
        workload.meta.labels = _labels(workload.meta.labels, patch["labels"])
    if any(name in patch for name in ENDPOINT_FIELDS):
        spec = workload.spec = changed(spec, patch, live)
    for name in ("priority", "tasks", *WHILE_LIVE):
        if name in patch:
            setattr(spec, name, patch[name])
    if spec.priority in ("", None):
        spec.priority = KINDS[spec.kind].priority
    if "preemptible" in patch:
        chosen = patch["preemptible"]
        spec.preemptible = KINDS[spec.kind].preemptible if chosen is None else chosen
    if "elastic" in patch:
        spec.elastic = _elastic(spec.elastic, patch["elastic"])
    checks.fits_together(spec)


def _refused(workload: Workload, patch: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The fields that cannot change now, each with the reason."""
    spec, status = workload.spec, workload.status
    for name in patch:
        if name in ENDPOINT_FIELDS and spec.kind != "inference":
            yield name, f"only an endpoint changes it; for a {spec.kind} run it again, changed"
        elif name in (*IN_QUEUE, *WHILE_LIVE) and status.phase in FINAL:
            yield name, f"it has ended ({status.phase}); run it again, changed"
        elif name in (*IN_QUEUE, *WHILE_LIVE) and spec.kind in PARTS:
            yield name, "it is a part of other work, whose specification it has"
        elif name in IN_QUEUE and (status.phase in HOLDING or spec.kind in COMPOSITES):
            yield name, _only_in_queue(workload)
        elif name == "preemptible" and not KINDS[spec.kind].may_choose:
            yield name, f"for a {spec.kind} it is fixed"
        elif name in ("tasks", "elastic") and any(one.place == "done" for one in status.tasks):
            yield name, "some of its tasks are done"


def _only_in_queue(workload: Workload) -> str:
    if workload.spec.kind in COMPOSITES:
        return f"what a {workload.spec.kind} starts has it already; submit it again"
    return (
        f"it is {workload.status.phase}, and this changes only while it waits or is suspended: "
        "suspend it, change it, resume it"
    )


def _refuse(found: Iterable[tuple[str, str]], patch: Mapping[str, Any]) -> None:
    refused = list(found)
    if refused:
        raise problems.Conflicting(
            Code.CANNOT_CHANGE,
            "; ".join(f"{name} cannot change: {why}" for name, why in refused),
            errors=[
                FieldError(field=name, code=Code.CANNOT_CHANGE, value=patch[name], expected=why)
                for name, why in refused
            ],
        )


def _labels(before: Mapping[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    """Labels after a merge patch; ``None`` removes one."""
    merged = {**before, **patch, PARENT_LABEL: before.get(PARENT_LABEL)}
    labels = {name: value for name, value in merged.items() if value is not None}
    if len(labels) > MOST_LABELS:
        raise problems.invalid_field(
            "labels", Code.TOO_LONG, len(labels), f"at most {MOST_LABELS} in all"
        )
    return labels


def _elastic(before: Elastic | None, patch: Mapping[str, Any] | None) -> Elastic | None:
    return None if patch is None else msgspec.structs.replace(before or Elastic(), **patch)


def changed(spec: WorkloadSpec, patch: Mapping[str, Any], live: Live) -> WorkloadSpec:
    """The specification with a patch applied; raises ``InvalidRequest`` and ``NotAdmitted``.

    A share of a GPU becomes what it is at submission: a MIG instance where GPUs are divided.
    """
    given = {name: patch[name] for name in PLAIN if name in patch}
    amounts = {inside: patch[name] for name, inside in AMOUNTS.items() if name in patch}
    if "gpus" in patch:
        share = {"gpu_milli": convert.gpu_milli(patch["gpus"]), "gpu_memory_mib": 0}
        amounts = {"gpu_devices": 1, "mig_profile": "", "mig_milli": 0, **share, **amounts}
    resources = msgspec.structs.replace(spec.resources, **amounts)
    before = spec.inference or InferenceSpec()
    try:
        checks.files_fit(given.get("files", {}))
        after = _served(before, patch.get("inference", {}))
    except ValidationError as error:
        raise from_validation(error) from error
    fresh = msgspec.structs.replace(spec, **given, resources=resources, inference=after)
    admission.find_share(fresh, live)
    runs_else = any(getattr(fresh, name) != getattr(spec, name) for name in (*PLAIN, "resources"))
    asked_else = any(getattr(after, name) != getattr(before, name) for name in OF_READINESS)
    if runs_else or asked_else:
        fresh.inference = msgspec.structs.replace(after, revision=before.revision + 1)
    return fresh


def _served(before: InferenceSpec, patch: Mapping[str, Any]) -> InferenceSpec:
    fields = msgspec.structs.asdict(before)
    revision = fields.pop("revision")
    checked = validators.read(InferenceSpec, fields | dict(patch))
    return msgspec.structs.replace(checked, revision=revision)
