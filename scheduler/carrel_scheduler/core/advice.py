"""What would help, or when it goes on: one sentence for each kind of reason."""

from collections.abc import Callable
from typing import Final

from carrel_scheduler.core.amounts import amount
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token


def _waits_for_room(reason: Reason, project: str) -> str:
    if reason.workload_uid:
        others = {holder.project for holder in reason.holders} - {project}
        if reason.holders and not others:
            return "Its own project's work of lower priority saves its state and stops first."
        return "Whoever gives way saves its work first; this starts by itself then."
    if reason.kept:
        return "It starts when work that holds it ends; asking for less of it may help."
    return "It starts by itself as soon as enough is free."


def _quota_used(_reason: Reason, project: str) -> str:
    return f"It starts when work of `{project}` ends or somebody leaves enough idle."


def _over_limit(reason: Reason, project: str) -> str:
    if reason.cls is ReasonClass.NEVER:
        return f"Ask for less, or ask an admin to raise the limit of `{project}`."
    return f"It starts when work of `{project}` ends, or when an admin raises the limit."


def _beyond_quota(reason: Reason, project: str) -> str:
    if reason.cls is ReasonClass.NEVER:
        return "Ask for less, make it preemptible so that it may borrow, or ask for more quota."
    return f"Make it preemptible so that it may borrow, or stop such work of `{project}`."


def _over_quota_off(reason: Reason, project: str) -> str:
    if reason.cls is ReasonClass.NEVER:
        return f"Ask for less, or ask an admin to let `{project}` borrow."
    return f"It starts when work of `{project}` ends, or when an admin lets the project borrow."


def _no_node_fits(reason: Reason, _project: str) -> str:
    if reason.bound and reason.requested > reason.bound:
        return f"Asking for {amount(reason.resource, reason.bound)} or less on a node would fit."
    return "It starts when running work ends and leaves enough in one piece."


def _never_fits(reason: Reason, _project: str) -> str:
    if not reason.bound:
        return "Ask for something that the nodes have."
    return f"Ask for {amount(reason.resource, reason.bound)} or less."


def _held_for(_reason: Reason, _project: str) -> str:
    return "It starts when other room becomes free."


def _queued_behind(_reason: Reason, _project: str) -> str:
    return "It is tried again as soon as anything changes."


def _starting(_reason: Reason, _project: str) -> str:
    return "Nothing is in the way."


def _evicted(_reason: Reason, _project: str) -> str:
    return "It goes on from its last checkpoint as soon as there is room again."


HELP: Final[dict[Token, Callable[[Reason, str], str]]] = {
    Token.WAITS_FOR_ROOM: _waits_for_room,
    Token.QUOTA_USED: _quota_used,
    Token.OVER_LIMIT: _over_limit,
    Token.NON_PREEMPTIBLE_BEYOND_QUOTA: _beyond_quota,
    Token.OVER_QUOTA_OFF: _over_quota_off,
    Token.NO_NODE_FITS: _no_node_fits,
    Token.NEVER_FITS: _never_fits,
    Token.HELD_FOR: _held_for,
    Token.QUEUED_BEHIND: _queued_behind,
    Token.STARTING: _starting,
    Token.RECLAIMED: _evicted,
    Token.PREEMPTED: _evicted,
}
