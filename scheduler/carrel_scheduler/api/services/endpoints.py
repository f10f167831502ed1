"""Another specification for an endpoint that serves, other visitors for a route.

The controller rolls the first out; the gateway hears of the second and asks nobody to restart.

What replicas run has a revision, counted up by every change of it; how many there are and when
another one is needed has none.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from carrel_scheduler.api import convert, problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models import checks, validators
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.refusals import from_validation
from carrel_scheduler.api.services.control import Control
from carrel_scheduler.policy import admission
from carrel_schema.objects import Workload, WorkloadSpec
from carrel_schema.sections import Access, InferenceSpec

PLAIN: Final = ("command", "environment", "files", "working_dir")
AMOUNTS: Final = {"cpu_millicores": "cpu_milli", "memory_bytes": "memory_bytes"}
# They change which replicas are right, not what these run.
OF_READINESS: Final = ("readiness_path",)


class Endpoints:
    """Changes endpoints."""

    def __init__(self, deps: ApiDependencies, control: Control) -> None:
        self._deps, self._control = deps, control

    async def change(self, workload: Workload, patch: Mapping[str, Any]) -> Workload:
        """Write the new specification. Raises problems and ``NotAdmitted``."""
        if workload.spec.kind != "inference":
            raise problems.Conflicting(
                Code.NOT_AN_ENDPOINT,
                f"It is a {workload.spec.kind}; only endpoints (kind `inference`) change while "
                "they serve. Delete it and submit it anew",
            )
        draft = copy.deepcopy(workload)
        draft.spec = changed(draft.spec, patch)
        admission.admit(draft, self._deps.live)

        def write(stored: Workload) -> bool:
            if stored.spec.delete:
                raise problems.Conflicting(Code.BEING_DELETED, "It is being deleted")
            fresh = changed(stored.spec, patch)
            if fresh == stored.spec:
                return False
            stored.spec = fresh
            return True

        return await self._control.change(workload, write)

    async def share(self, workload: Workload, route: str, access: Access) -> Workload:
        """Open a route to others, or close it. Raises problems."""

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


def changed(spec: WorkloadSpec, patch: Mapping[str, Any]) -> WorkloadSpec:
    """The specification with a patch applied; raises ``Invalid``."""
    given = {name: patch[name] for name in PLAIN if name in patch}
    amounts = {inside: patch[name] for name, inside in AMOUNTS.items() if name in patch}
    if "gpus" in patch:
        amounts |= {"gpu_milli": convert.gpu_milli(patch["gpus"]), "gpu_memory_mib": 0}
    resources = msgspec.structs.replace(spec.resources, **amounts)
    before = spec.inference or InferenceSpec()
    try:
        checks.files_fit(given.get("files", {}))
        after = _served(before, patch.get("inference", {}))
    except ValidationError as error:
        raise from_validation(error) from error
    fresh = msgspec.structs.replace(spec, **given, resources=resources, inference=after)
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
