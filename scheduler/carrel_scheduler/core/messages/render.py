"""Reasons in plain words, the same on every surface: sentence, help, and data for machines.

The help says what would help, or when it goes on. With ``names=False`` workloads and users of
other projects become "a member of `speech`".
"""

from collections.abc import Callable
from typing import Any, Final

from carrel_scheduler.core.messages.amounts import amount
from carrel_scheduler.core.messages.sentences import SENTENCES, Reader, divided_gpus, member
from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass, Token

MINUTES_A_DAY: Final = 24 * 60


def _waits_for_room(reason: Reason, project: str) -> str:
    if reason.workload_uid:
        others = {holder.project for holder in reason.holders} - {project}
        if reason.holders and not others:
            return "Its own project's work of lower priority saves its state and stops first."
        return "Preempted work saves a checkpoint first; this starts by itself then."
    if reason.kept:
        return "It starts when work that holds it ends; asking for less of it may help."
    return "It starts by itself as soon as enough is free."


def _quota_used(reason: Reason, project: str) -> str:
    project = reason.project or project
    if reason.detail:
        return (
            "It starts when somebody leaves enough idle there, or elsewhere if it may run on other "
            f"nodes too; an admin may guarantee `{project}` more there."
        )
    return f"It starts when work of `{project}` ends or somebody leaves enough idle."


def _over_limit(reason: Reason, project: str) -> str:
    project = reason.project or project
    if reason.cls is ReasonClass.NEVER:
        return f"Ask for less, or ask an admin to raise the limit of `{project}`."
    return f"It starts when work of `{project}` ends, or when an admin raises the limit."


def _over_group_limit(reason: Reason, project: str) -> str:
    project = reason.project or project
    if reason.cls is ReasonClass.NEVER:
        return (
            f"Ask for less, let it run on other nodes too, or ask an admin to raise the limit of "
            f"`{project}` in node group `{reason.detail}`."
        )
    return (
        f"It starts when work of `{project}` there ends, when an admin raises the limit, or "
        "elsewhere if it may run on other nodes too."
    )


def _beyond_quota(reason: Reason, project: str) -> str:
    project = reason.project or project
    if reason.detail:
        return "Make it preemptible, or let it run on other nodes too."
    if reason.cls is ReasonClass.NEVER:
        return "Ask for less, make it preemptible so that it may borrow, or ask for more quota."
    return f"Make it preemptible so that it may borrow, or stop such work of `{project}`."


def _over_quota_off(reason: Reason, project: str) -> str:
    project = reason.project or project
    if reason.cls is ReasonClass.NEVER:
        return f"Ask for less, or ask an admin to let `{project}` borrow."
    return f"It starts when work of `{project}` ends, or when an admin lets the project borrow."


def _no_node_fits(reason: Reason, _project: str) -> str:
    if reason.bound and reason.requested > reason.bound:
        return f"Asking for {amount(reason.resource, reason.bound)} or less on a node would fit."
    return "It starts when running work ends and leaves enough in one piece."


def _never_fits(reason: Reason, _project: str) -> str:
    if not reason.bound:
        like = f": {reason.detail}" if reason.detail else ""
        return f"Ask for something that the nodes have{like}."
    return f"Ask for {amount(reason.resource, reason.bound)} or less."


def _no_mig_instance(reason: Reason, _project: str) -> str:
    if reason.cls is ReasonClass.NEVER:
        return "Ask for a smaller profile, or for fewer at once."
    return "It starts when instances end and leave their slots free; a smaller one may fit now."


def _topology_too_small(reason: Reason, _project: str) -> str:
    if reason.cls is not ReasonClass.NEVER:
        return "It starts when enough comes free in one domain; a wider level may do now."
    if reason.bound:
        return f"Ask for {amount('tasks', reason.bound)} or fewer, or only prefer the level."
    return "Only prefer the level, or require a wider one."


def _preemption_delayed(reason: Reason, _project: str) -> str:
    ends = -int(-reason.until // 60)  # the next whole minute
    hour, minute = divmod(ends % MINUTES_A_DAY, 60)
    return (
        f"It starts when room comes free; others are preempted from {hour:02}:{minute:02} UTC on."
    )


HELP: Final[dict[Token, str | Callable[[Reason, str], str]]] = {
    Token.WAITS_FOR_ROOM: _waits_for_room,
    Token.NO_VICTIMS_FOUND: (
        "It is tried again whenever something changes; fewer or smaller tasks are found sooner."
    ),
    Token.QUOTA_USED: _quota_used,
    Token.OVER_LIMIT: _over_limit,
    Token.OVER_GROUP_LIMIT: _over_group_limit,
    Token.NON_PREEMPTIBLE_BEYOND_QUOTA: _beyond_quota,
    Token.OVER_QUOTA_OFF: _over_quota_off,
    Token.NO_NODE_FITS: _no_node_fits,
    Token.NEVER_FITS: _never_fits,
    Token.HELD_FOR: "It starts when other room becomes free.",
    Token.QUEUED_BEHIND: "It is tried again as soon as anything changes.",
    Token.STARTING: "Nothing is in the way.",
    Token.RECLAIMED: "It goes on from its last checkpoint as soon as there is room again.",
    Token.PREEMPTED: "It goes on from its last checkpoint as soon as there is room again.",
    Token.RESERVED: "Nobody else starts there; it starts elsewhere at once when there is room.",
    Token.CONSOLIDATED: "Its new place is held; it goes on there from its last checkpoint.",
    Token.GANG_INCOMPLETE: "It goes on from its last checkpoint as soon as there is room again.",
    Token.NODE_DRAINED: "It goes on from its last checkpoint as soon as there is room again.",
    Token.IMPROVED: "Its new place is held; it goes on there from its last checkpoint.",
    Token.NO_ELIGIBLE_NODE: "Ask less of the nodes, or ask an admin for a node like that.",
    Token.NODES_CLOSED: "It starts when they are back in service; asking less of nodes may help.",
    Token.NO_MIG_INSTANCE: _no_mig_instance,
    Token.TOPOLOGY_TOO_SMALL: _topology_too_small,
    Token.PREEMPTION_DELAYED: _preemption_delayed,
    Token.WAITS_FOR_GANG: "It starts when the missing tasks may start too.",
    Token.GATED: "It takes its place in the queue when whoever submitted it lets it go.",
    Token.GROWING: "Nothing has to be done: it runs already.",
}


def sentence(reason: Reason, project: str, *, names: bool = True) -> str:
    """The message of a reason, for the owner of the workload.

    Args:
        reason: why it waits, starts or was evicted.
        project: the project of that workload.
        names: whether names of other projects' workloads may be told.
    """
    text = SENTENCES[reason.token](reason, Reader(project, names))
    if reason.divided:
        text = f"{text} {divided_gpus(reason)}"
    return f"{text} {_passed(reason, project)}" if reason.passed_by else text


def _passed(reason: Reason, project: str) -> str:
    """The clause that later work of users who hold less goes first; without unstable numbers."""
    if not reason.user_gpus:
        return f"Later work of users who hold less of `{project}` goes first."
    held = amount("gpu", reason.user_gpus)
    return f"Its user holds {held} of `{project}`; later work of users who hold less goes first."


def help_text(reason: Reason, project: str, *, names: bool = True) -> str:
    """The change that would start the workload, or when it starts; no names of other projects."""
    del names  # one signature with ``sentence``: the help names projects at most
    found = HELP[reason.token]
    text = found if isinstance(found, str) else found(reason, project)
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
        "passed_by": reason.passed_by,
        "user_gpus": reason.user_gpus,
        "divided": list(reason.divided),
        "instead": reason.instead,
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
