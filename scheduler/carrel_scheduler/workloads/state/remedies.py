"""Changes that would unblock waiting work, as people are told of them: what to do, and who can.

The core says what it tried (``core.speculation.remedies``); this names the project or department,
and makes the sentence.
"""

from typing import Final

import msgspec

from carrel_scheduler.core import speculation
from carrel_scheduler.core.messages.amounts import amount
from carrel_scheduler.core.messages.sentences import member
from carrel_scheduler.core.speculation import RemedyKind
from carrel_scheduler.workloads.state.cache import department_of
from carrel_schema.wire import Remedy

PREEMPTIBLE: Final = RemedyKind.PREEMPTIBLE.value
"""The change of work itself, which a policy may forbid."""


def from_core(found: speculation.Remedy) -> Remedy:
    """A change that the core tried, with its sentence."""
    department = department_of(found.queue)
    told = Remedy(
        change=found.change.value,
        project="" if department else found.queue,
        department=department,
        resource=found.resource,
        amount=found.amount,
        node_group=found.group,
        workload=found.name,
        workload_uid=found.uid,
    )
    return msgspec.structs.replace(told, sentence=_sentence(found.change, told))


def without_names(told: Remedy) -> Remedy:
    """The same for whoever may not see the names of the project whose work would end."""
    sentence = f"It starts when work of {member(told.project)} ends."
    return msgspec.structs.replace(told, workload="", workload_uid="", sentence=sentence)


def _sentence(change: RemedyKind, told: Remedy) -> str:
    whose = f"department `{told.department}`" if told.department else f"project `{told.project}`"
    if change is RemedyKind.ENDS:
        return f"It starts when `{told.workload}` of project `{told.project}` ends."
    if change is RemedyKind.PREEMPTIBLE:
        return "If you submit it as preemptible, it starts."
    if change is RemedyKind.BORROW:
        return f"An admin could let {whose} borrow what others leave idle."
    what = "limit" if change in (RemedyKind.LIMIT, RemedyKind.GROUP_LIMIT) else "quota"
    where = f" in node group `{told.node_group}`" if told.node_group else ""
    most = amount(told.resource, told.amount)
    return f"An admin could raise the {what} of {whose}{where} to {most}."
