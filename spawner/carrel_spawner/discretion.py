"""A reason as this user may read it: without names of people and workloads of other projects.

The spawner sees everything, its users do not; so whatever a reason says passes here first.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from carrel.models import Reason, Workload


def readable_by(workload: Workload, projects: Collection[str]) -> Workload:
    """The workload with a sentence that a member of ``projects`` may read."""
    reason = workload.status.reason
    if reason is None or not _names_others(reason, projects):
        return workload
    sentence = str(reason.data.get("sentence_without_names") or reason.sentence)
    told = msgspec.structs.replace(reason, sentence=sentence)
    status = msgspec.structs.replace(workload.status, reason=told)
    return msgspec.structs.replace(workload, status=status)


def holders(reason: Reason) -> list[Mapping[str, Any]]:
    """Who holds what is short, as the reason has it."""
    found = reason.data.get("holders") or ()
    return [one for one in found if isinstance(one, Mapping)]


def _names_others(reason: Reason, projects: Collection[str]) -> bool:
    told = [str(one.get("project", "")) for one in holders(reason)]
    told.append(str(reason.data.get("project") or ""))
    return any(project and project not in projects for project in told)
