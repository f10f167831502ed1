"""Reasons in plain words: made here once, the same on every surface.

A sentence says what is short and who holds it; the help says what would help or when. With
``names=False`` nothing tells who of another project works on what: foreign workloads and users
become "a member of `speech`".
"""

from typing import Any

from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass
from carrel_scheduler.core.words.advice import HELP
from carrel_scheduler.core.words.sentence_parts import Reader, member
from carrel_scheduler.core.words.sentences import SENTENCES


def sentence(reason: Reason, project: str, *, names: bool = True) -> str:
    """One plain sentence for the person whose workload this is.

    Args:
        reason: why it waits, starts or was evicted.
        project: the project of that workload.
        names: whether names of other projects' workloads may be told.
    """
    return SENTENCES[reason.token](reason, Reader(project, names))


def help_text(reason: Reason, project: str, *, names: bool = True) -> str:
    """What would help, or when it goes on; never names another project's workloads."""
    del names  # one signature with ``sentence``: the help names projects at most
    text = HELP[reason.token](reason, project)
    if reason.ahead and reason.cls is ReasonClass.NOT_NOW:
        workloads = "1 workload" if reason.ahead == 1 else f"{reason.ahead:,} workloads"
        is_are = "is" if reason.ahead == 1 else "are"
        text = f"{text} {workloads} of `{project}` {is_are} served before it."
    return text


def data(reason: Reason, project: str = "", *, names: bool = True) -> dict[str, Any]:
    """The facts for machines, in JSON types; amounts in the units of the core.

    Args:
        reason: the reason.
        project: whose workload it is; its own names are always told.
        names: whether names of other projects' workloads and users may be told.
    """
    shown = names or not reason.workload or reason.project == project
    return {
        "class": reason.cls.value,
        "token": reason.token.value,
        "resource": reason.resource,
        "requested": reason.requested,
        "short": reason.short,
        "bound": reason.bound,
        "project": reason.project,
        "workload": reason.workload if shown else member(reason.project),
        "workload_uid": reason.workload_uid if shown else "",
        "holders": [_holder(holder, project, names=names) for holder in reason.holders],
        "nodes": list(reason.nodes),
        "ahead": reason.ahead,
        "detail": reason.detail,
        "tasks": reason.tasks,
        "there": reason.there,
        "until": reason.until,
    }


def _holder(holder: Holder, project: str, *, names: bool) -> dict[str, Any]:
    shown = names or holder.project == project
    return {
        "project": holder.project,
        "uid": holder.uid if shown else "",
        "name": holder.name if shown else member(holder.project),
        "user": holder.user if shown else "",
        "amount": holder.amount,
        "borrowed": holder.borrowed,
        "since": holder.since,
    }
