"""Redaction of objects and reasons for one caller.

Names of foreign projects are no secret (their use of the shared devices is shown to all); names of
their workloads and users are. Whoever sees all projects gets everything as it is.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from carrel_scheduler.api import convert
from carrel_scheduler.api.models import answers
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.core.messages import general
from carrel_scheduler.ledger.records import Decision, Transition
from carrel_scheduler.workloads.contract import LiveEvent, QueueEntry
from carrel_scheduler.workloads.state.remedies import without_names
from carrel_schema.answers import DeviceHolder, NodeView, QueueEntryOut
from carrel_schema.objects import Preemption, ReasonInfo, Workload
from carrel_schema.wire import Remedy, WorkloadOut

SENTENCE_WITHOUT_NAMES: Final = "sentence_without_names"
HELP_WITHOUT_NAMES: Final = "help_without_names"
NAMELESS_SENTENCE: Final = "The details belong to a project that you are not in."
NO_POSITIONS: Final[Mapping[str, int]] = MappingProxyType({})
# Texts in a reason's data that never name a foreign workload or user.
SAFE_TEXTS: Final = frozenset({"resource", "project", "nodes", "node", "rule", "class", "token"})


def workload(
    found: Workload, viewer: Principal, positions: Mapping[str, int] = NO_POSITIONS
) -> WorkloadOut:
    """A workload of a project that the caller may see.

    Args:
        found: as it is stored; its place in the queue may have changed since.
        viewer: the caller.
        positions: present places in the queue by uid.
    """
    return WorkloadOut(**_fields(found, viewer, positions))


def event(
    found: LiveEvent, viewer: Principal, positions: Mapping[str, int] = NO_POSITIONS
) -> answers.WorkloadEvent:
    """A message of the event stream; ``positions`` as for ``workload``."""
    fields = _fields(found.workload, viewer, positions)
    return answers.WorkloadEvent(**fields, report=found.report)


def _fields(found: Workload, viewer: Principal, positions: Mapping[str, int]) -> dict[str, Any]:
    status = found.status
    if status.reason is not None or status.last_preemption is not None:
        status = msgspec.structs.replace(
            status,
            reason=reason(status.reason, viewer),
            last_preemption=_preemption(status.last_preemption, viewer),
        )
    if status.phase == "pending" and (place := positions.get(found.meta.uid)):
        status = msgspec.structs.replace(status, queue_position=place)
    return convert.workload_fields(found, status)


def _preemption(fact: Preemption | None, viewer: Principal) -> Preemption | None:
    if fact is None or viewer.sees_names(fact.for_project):
        return fact
    return msgspec.structs.replace(fact, for_workload="", for_workload_uid="")


def reason(found: ReasonInfo | None, viewer: Principal) -> ReasonInfo | None:
    """A reason without the names that the caller may not see."""
    if found is None:
        return None
    data = {
        key: value
        for key, value in found.data.items()
        if key not in (SENTENCE_WITHOUT_NAMES, HELP_WITHOUT_NAMES)
    }
    hidden = _hidden_names(data, viewer)
    if not hidden:
        return msgspec.structs.replace(found, data=data)
    return msgspec.structs.replace(
        found,
        sentence=str(found.data.get(SENTENCE_WITHOUT_NAMES) or NAMELESS_SENTENCE),
        help=str(found.data.get(HELP_WITHOUT_NAMES) or _nameless(found.help, hidden)),
        data=_nameless_data(data, viewer),
    )


def _hidden_names(data: Mapping[str, Any], viewer: Principal) -> set[str]:
    names: set[str] = set()
    if not viewer.sees_names(str(data.get("project", ""))):
        names |= {str(data.get("workload") or ""), str(data.get("workload_uid") or "")}
    for holder in _holders(data):
        if not viewer.sees_names(str(holder.get("project", ""))):
            names |= {str(holder.get(key) or "") for key in ("name", "uid", "user")}
    return names - {""}


def _holders(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [holder for holder in data.get("holders") or () if isinstance(holder, Mapping)]


def _nameless(text: str, hidden: set[str]) -> str:
    names = "|".join(re.escape(name) for name in hidden)
    return "" if re.search(rf"(?<![\w-])(?:{names})(?![\w-])", text) else text


def _nameless_data(data: Mapping[str, Any], viewer: Principal) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in data.items()
        if value is None or isinstance(value, int | float) or key in SAFE_TEXTS
    }
    if "holders" in data:
        kept["holders"] = [_holder_data(holder, viewer) for holder in _holders(data)]
    if viewer.sees_names(str(data.get("project", ""))):
        kept |= {key: data[key] for key in ("workload", "workload_uid") if key in data}
    return kept


def _holder_data(holder: Mapping[str, Any], viewer: Principal) -> dict[str, Any]:
    if viewer.sees_names(str(holder.get("project", ""))):
        return dict(holder)
    names = ("name", "uid", "user")
    return {key: "" if key in names else value for key, value in holder.items()}


def remedies(found: Sequence[Remedy], viewer: Principal) -> list[Remedy]:
    """Changes that would unblock a workload; those that are the same without names, once."""
    shown = (
        one if not one.workload_uid or viewer.sees_names(one.project) else without_names(one)
        for one in found
    )
    return list(dict.fromkeys(shown))


def queue_entry(entry: QueueEntry, viewer: Principal) -> QueueEntryOut:
    """A queue entry; of a foreign one only project, request, place and kind of reason remain."""
    if viewer.sees_names(entry.project):
        shown = msgspec.structs.replace(entry, reason=reason(entry.reason, viewer))
    else:
        bare = None
        if entry.reason is not None:
            bare = ReasonInfo(
                token=entry.reason.token,
                cls=entry.reason.cls,
                sentence=general.sentence(entry.reason.token),
            )
        shown = msgspec.structs.replace(entry, uid="", name="", user="", reason=bare)
    return convert.queue_entry_out(shown)


def node(found: NodeView, viewer: Principal) -> NodeView:
    """A node; holders of foreign projects by project only, without what their work does."""
    devices = tuple(
        msgspec.structs.replace(
            device, holders=tuple(_device_holder(holder, viewer) for holder in device.holders)
        )
        for device in found.devices
    )
    return msgspec.structs.replace(found, devices=devices)


def _device_holder(holder: DeviceHolder, viewer: Principal) -> DeviceHolder:
    if viewer.sees_names(holder.project):
        return holder
    return msgspec.structs.replace(
        holder, uid="", name="", user="", kind="", utilization=None, memory_used_mib=None
    )


def transition(row: Transition, viewer: Principal) -> Transition:
    """A state change of a workload that the caller may see."""
    return msgspec.structs.replace(row, reason=reason(row.reason, viewer))


def decision(row: Decision, viewer: Principal) -> Decision:
    """A decision about a workload that the caller may see."""
    return msgspec.structs.replace(row, reason=reason(row.reason, viewer))
