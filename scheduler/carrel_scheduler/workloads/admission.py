"""Refusals at submission of work that could never run.

A request that can never be met would stay in the queue, so it is refused at once with the
binding fact. Everything that time can solve is admitted and waits with a reason.
"""

from typing import Any, Final

import msgspec

from carrel_scheduler.core import mig
from carrel_scheduler.core.devices.shares import MEMORY_STEP, share_of_memory
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.core.settings import NAMED
from carrel_scheduler.workloads.contract import Live, UnsupportedField
from carrel_scheduler.workloads.launch.fitting import ONE_INSTANCE
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.reasons import OVER_USER_LIMIT
from carrel_schema.names import MIG_PREFIX
from carrel_schema.objects import ReasonInfo, Workload, WorkloadSpec

_CODES: Final[dict[str, str]] = {
    Token.OVER_LIMIT: "limit_never_met",
    Token.OVER_GROUP_LIMIT: "limit_never_met",
    OVER_USER_LIMIT: "limit_never_met",
}
_WAITS: Final = frozenset(
    {Token.QUOTA_USED, Token.OVER_QUOTA_OFF, Token.NON_PREEMPTIBLE_BEYOND_QUOTA}
)
"""A guarantee too small for it is for an admin to raise: it waits and says so."""
_FIELDS: Final[dict[str, str]] = {
    "gpu": "gpus",
    "cpu": "cpu_millicores",
    "memory": "memory_bytes",
}


class NotAdmitted(Exception):  # noqa: N818 - an outcome to handle
    """A refusal at submission: ``field`` with ``value`` is wrong, ``expected`` would be right."""

    def __init__(self, code: str, field: str, value: Any, expected: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.field, self.value = code, field, value
        self.expected, self.detail = expected, detail


def admit(workload: Workload, live: Live) -> None:
    """Raise ``NotAdmitted`` for work that can never run."""
    Admission(live).admit(workload)


class Admission:
    """Admits many workloads at one moment: equal requests of a project are checked once."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._known: dict[tuple[Any, ...], ReasonInfo | None] = {}

    def admit(self, workload: Workload) -> None:
        """Raise ``NotAdmitted`` for work that can never run."""
        spec = workload.spec
        check_priority(spec.priority)
        find_share(spec, self._live)
        unsupported = self._live.unsupported_field(workload)
        if unsupported is not None:
            raise _misplaced(unsupported)
        request = (
            workload.meta.project,
            spec.kind,
            spec.resources,
            spec.tasks,
            spec.priority,
            spec.preemptible,
            spec.elastic,
            spec.node_group,
            tuple(spec.gpu_types),
            spec.topology_required,
        )
        if request not in self._known:
            self._known[request] = self._live.never(workload)
        reason = self._known[request]
        if reason is not None and _becomes_instance(spec, reason):
            self.admit(workload)
        elif reason is not None and reason.token not in _WAITS:
            several = spec.resources.gpu_milli > MILLI or shape.resizes(spec)
            if several and self._live.only_instances():
                raise _more_than_an_instance(workload)
            raise _never(workload, reason)


def find_share(spec: WorkloadSpec, live: Live) -> None:
    """Set the share of the smallest GPU that has the memory which is asked for.

    Where GPUs are divided, a share becomes the smallest MIG instance of that size, and an instance
    is told what part of these GPUs it is. Where nodes give out instances only, a whole GPU becomes
    the largest one.

    Raises:
        NotAdmitted: no GPU has that memory.
    """
    asked, milli = spec.resources.gpu_memory_mib, spec.resources.gpu_milli
    divided = live.mig_model()
    found = _instance_for(spec, mig.model_of(divided), live) if divided else None
    if found is not None:
        spec.resources = msgspec.structs.replace(
            spec.resources,
            gpu_milli=0,
            gpu_memory_mib=0,
            mig_profile=found.name,
            mig_milli=mig.unnamed_milli(found),
        )
        return
    if not asked or milli:
        return
    there = {device.memory_mib for node in live.nodes() for device in node.devices}
    shares = {share_of_memory(asked, memory) for memory in there} - {0}
    if not shares:
        largest = max(there, default=0) // MEMORY_STEP * MEMORY_STEP
        right = f"at most {largest} MiB" if largest else "`gpus` with a number of GPUs"
        raise NotAdmitted(
            "never_fits",
            "gpu_memory_bytes",
            asked * MIB,
            right,
            f"No GPU here has {asked} MiB of memory to share; {right} is right",
        )
    spec.resources = msgspec.structs.replace(spec.resources, gpu_milli=max(shares))


def _instance_for(spec: WorkloadSpec, model: mig.Model, live: Live) -> mig.Profile | None:
    """The MIG instance that a share, or a GPU, is on divided GPUs, or that is asked for by name."""
    resources = spec.resources
    if resources.gpu_milli == MILLI and not shape.resizes(spec) and live.only_instances():
        return mig.whole_device(model)
    if resources.gpu_memory_mib:
        return mig.smallest_profile(model, resources.gpu_memory_mib)
    if 0 < resources.gpu_milli < MILLI:
        return mig.profile_of_share(model, resources.gpu_milli)
    return model.profiles.get(resources.mig_profile)


def _becomes_instance(spec: WorkloadSpec, reason: ReasonInfo) -> bool:
    """Set the smallest instance that nodes offer for a share which none of them gives."""
    profile, asked = reason.data.get("instead", ""), spec.resources
    if not 0 < asked.gpu_milli < MILLI or not profile:
        return False
    if mig.milli_of_profile(profile) < asked.gpu_milli:
        return False
    spec.resources = msgspec.structs.replace(
        asked, gpu_milli=0, gpu_memory_mib=0, mig_profile=profile, mig_milli=0
    )
    return True


def check_priority(priority: str | int) -> None:
    """Refuse a named priority that does not exist; integers and the empty name are fine."""
    if isinstance(priority, int) or priority == "" or priority in NAMED:
        return
    known = ", ".join(f"`{name}`" for name in NAMED)
    raise NotAdmitted(
        "unknown_priority",
        "priority",
        priority,
        f"a number or one of {known}",
        f"There is no priority `{priority[:64]}`; use a number or one of {known}",
    )


def _misplaced(unsupported: UnsupportedField) -> NotAdmitted:
    detail = f"{unsupported.field} is {unsupported.value!r}: {unsupported.expected}"
    return NotAdmitted(
        unsupported.code, unsupported.field, unsupported.value, unsupported.expected, detail
    )


def _more_than_an_instance(workload: Workload) -> NotAdmitted:
    gpus = workload.spec.resources.gpu_milli / MILLI
    return _misplaced(UnsupportedField("no_mig", "gpus", gpus, ONE_INSTANCE))


def _never(workload: Workload, reason: ReasonInfo) -> NotAdmitted:
    if reason.token == Token.NO_ELIGIBLE_NODE:
        group, project = workload.spec.node_group, workload.meta.project
        found: tuple[str, Any] = ("node_group", group) if group else ("project", project)
        if reason.data.get("divided"):
            found = ("gpus", workload.spec.resources.gpu_milli / MILLI)
        elif workload.spec.gpu_types:
            found = ("gpu_types", workload.spec.gpu_types)
        return NotAdmitted("never_fits", *found, reason.help, reason.sentence)
    resource, resources = str(reason.data.get("resource", "")), workload.spec.resources
    field = "mig_profile" if resource.startswith(MIG_PREFIX) else _FIELDS.get(resource, "gpus")
    value = {
        "gpus": resources.gpu_milli / 1000,
        "cpu_millicores": resources.cpu_milli,
        "memory_bytes": resources.memory_bytes,
        "mig_profile": resources.mig_profile,
    }[field]
    code = _CODES.get(reason.token, "never_fits")
    return NotAdmitted(code, field, value, reason.help or reason.sentence, reason.sentence)
