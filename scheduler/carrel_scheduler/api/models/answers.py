"""Answers of the API, as msgspec structures; the scheduler's own types where they exist.

GPUs on the wire are counted as numbers (``gpus: 1.0``), times are epoch seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carrel_schema.answers import (
    DepartmentOut,
    NodeView,
    ProjectOut,
    QueueEntryOut,
    QuotaFinding,
)
from carrel_schema.history import GpuUsePoint, Report, Usage
from carrel_schema.wire import ALWAYS_SAID, WorkloadOut, WorkloadSpecOut

_SAID: Any = msgspec.defstruct(
    "WorkloadSpecSaid",
    [(field.name, field.type) for field in msgspec.structs.fields(WorkloadSpecOut)
     if field.name in ALWAYS_SAID],
    bases=(WorkloadSpecOut,),
    kw_only=True,
    omit_defaults=True,
)  # fmt: skip


def said(**fields: Any) -> WorkloadSpecOut:
    """Convert a specification to the answer's form, without fields that its kind does not have."""
    found: WorkloadSpecOut = _SAID(**fields)
    return found


class WorkloadEvent(WorkloadOut, frozen=True, kw_only=True):
    """A workload in the event stream; ``report`` with events of that type."""

    report: Report | None = None


class ProjectList(msgspec.Struct, frozen=True, kw_only=True):
    """Projects by name."""

    items: Sequence[ProjectOut]


class QuotaFindings(msgspec.Struct, frozen=True, kw_only=True):
    """Findings about quotas and limits that do not fit together."""

    items: Sequence[QuotaFinding]


class DepartmentList(msgspec.Struct, frozen=True, kw_only=True):
    """Departments by name."""

    items: Sequence[DepartmentOut]


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """The list of all nodes."""

    items: Sequence[NodeView]


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The pending workloads in the order in which they are considered."""

    items: Sequence[QueueEntryOut]


class GpuUseList(msgspec.Struct, frozen=True, kw_only=True):
    """GPU use by the uid of the workload; workloads that the caller may not see are left out."""

    items: Mapping[str, Sequence[GpuUsePoint]]


class UsageList(msgspec.Struct, frozen=True, kw_only=True):
    """Use in a span of time; ``currency`` is that of its costs, empty without prices."""

    items: Sequence[Usage]
    currency: str = ""
    since: float
    until: float
