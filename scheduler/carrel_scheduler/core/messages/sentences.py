"""Sentences of reasons: what is short, who holds it, which rule forbids it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.core.messages.amounts import amount, count, is_one
from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass, Token
from carrel_scheduler.core.resources import UNLIMITED

MOST = 5
"""The most holders that a reason names."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a message: their project, and which names they may see.

    Attributes:
        project: the project of the workload that it is about.
        names: whether names of other projects' workloads may be told.
    """

    project: str
    names: bool


def member(project: str) -> str:
    """The phrase for a workload of another project whose name the reader may not see."""
    return f"a member of `{project}`"


def who(name: str, owner: str, reader: Reader) -> str:
    """The name of a workload as far as the reader may see it."""
    if owner == reader.project:
        return f"`{name}`"
    return f"`{name}` of `{owner}`" if reader.names else member(owner)


def join(parts: list[str]) -> str:
    """A list in words; not empty."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _waits_for_room(reason: Reason, reader: Reader) -> str:
    if reason.workload_uid:
        return _room_coming(reason, reader)
    asked = amount(reason.resource, reason.requested)
    kept = ", and too little of it can be taken back" if reason.kept else ""
    return f"Waiting for {asked}: {_in_use(reason)}{_holding(reason, reader)}{kept}."


def _no_victims_found(reason: Reason, reader: Reader) -> str:
    """The message where a search found no victims, though none is proved impossible."""
    asked = amount(reason.resource, reason.requested)
    return (
        f"Waiting for {asked}: {_in_use(reason)}{_holding(reason, reader)}; no set of work that "
        "can be preempted was found within the limits of the search."
    )


def _room_coming(reason: Reason, reader: Reader) -> str:
    """The message of a reservation: which work still has to end there."""
    if not reason.holders:
        return "Its place is held; it starts as soon as the room is free."
    freed = amount(reason.resource, sum(holder.amount for holder in reason.holders))
    borrowed = [holder for holder in reason.holders if holder.borrowed]
    if len(borrowed) == len(reason.holders):
        return f"Taking back {freed} that {_borrowers(borrowed, reader)}."
    parts = dict.fromkeys(who(h.name, h.project, reader) for h in reason.holders)
    verb = "gives" if len(parts) == 1 else "give"
    return f"Waiting for {freed} that {join(list(parts))} {verb} back."


def _borrowers(holders: list[Holder], reader: Reader) -> str:
    by_project: dict[str, list[str]] = {}
    for holder in holders:
        by_project.setdefault(holder.project, []).append(f"`{holder.name}`")
    if not reader.names:
        return f"{join([member(owner) for owner in by_project])} borrowed"
    parts = [f"`{owner}` borrowed for {join(jobs)}" for owner, jobs in by_project.items()]
    return join(parts)


def _in_use(reason: Reason) -> str:
    """The phrase about how much of the resource is free, out of ``bound``."""
    free = max(0, reason.requested - reason.short)
    if reason.bound <= 0:
        return "there is none to be had"
    if not free and is_one(reason.resource, reason.bound):
        return "the only one is in use" if reason.resource != "memory" else "all is in use"
    if not free:
        return f"all {count(reason.resource, reason.bound)} are in use"
    verb = "is" if is_one(reason.resource, free) else "are"
    bound = count(reason.resource, reason.bound)
    return f"{count(reason.resource, free)} of {bound} {verb} free"


def _holding(reason: Reason, reader: Reader) -> str:
    """The holders: projects over quota on GPUs, else the largest holder."""
    borrowed: dict[str, int] = {}
    for holder in reason.holders:
        if holder.borrowed and holder.project != reader.project and reason.resource == "gpu":
            borrowed[holder.project] = borrowed.get(holder.project, 0) + holder.amount
    if borrowed:
        return f"; {_beyond_their_quota(reason, borrowed)}"
    if not reason.holders:
        return ""
    largest = reason.holders[0]
    name = who(largest.name, largest.project, reader)
    return f"; {name} holds {count(reason.resource, largest.amount)}"


def _beyond_their_quota(reason: Reason, borrowed: dict[str, int]) -> str:
    """``borrowed``: amount by project; the list of holders may have been cut short."""
    if is_one(reason.resource, reason.bound):
        return f"{join([f'`{owner}`' for owner in borrowed])} borrowed it"
    least = "at least " if len(reason.holders) == MOST else ""
    parts = [
        f"`{owner}` holds {least}{count(reason.resource, held)}" for owner, held in borrowed.items()
    ]
    quotas = "its quota" if len(borrowed) == 1 else "their quotas"
    return f"{join(parts)} of them beyond {quotas}"


def _no_node_fits(reason: Reason, _reader: Reader) -> str:
    asked = amount(reason.resource, reason.requested)
    if reason.requested <= reason.bound:
        return "Free room is scattered: no set of nodes has enough for all its tasks at once."
    largest = amount(reason.resource, reason.bound)
    return f"No node has {asked} free at once; the most on one node is {largest}."


def _never_fits(reason: Reason, _reader: Reader) -> str:
    asked, most = amount(reason.resource, reason.requested), amount(reason.resource, reason.bound)
    return f"It asks for {asked}, and the nodes it may use could never give it more than {most}."


def _no_eligible_node(reason: Reason, _reader: Reader) -> str:
    return f"No node satisfies what it asks of nodes: {reason.detail}."


def _nodes_closed(reason: Reason, _reader: Reader) -> str:
    if not reason.nodes:
        return "The nodes it may use take no new work."
    are = "is the only one that could hold it and takes" if len(reason.nodes) == 1 else "take"
    return f"{join([f'`{node}`' for node in reason.nodes])} {are} no new work."


def _no_mig_instance(reason: Reason, _reader: Reader) -> str:
    if reason.cls is ReasonClass.NEVER:
        most = amount("mig", reason.bound)
        return f"It asks for {_instances(reason)}, and the nodes it may use hold {most} at most."
    free = max(0, reason.requested - reason.short)
    room = "no GPU has room for one" if not free else f"there is room for {free:,}"
    return f"Waiting for {_instances(reason)}: {room}."


def _instances(reason: Reason) -> str:
    return f"{amount('mig', reason.requested)} `{reason.detail}`"


def divided_gpus(reason: Reason) -> str:
    """The sentence about nodes whose GPUs are divided, and what to ask for instead."""
    where = join([f"`{node}`" for node in reason.divided])
    told = f"GPUs of {where} are divided into MIG instances"
    if not reason.instead:
        return f"{told}, of which a task has one only."
    return f"{told}: ask for the MIG profile `{reason.instead}` to get one."


def _topology_too_small(reason: Reason, _reader: Reader) -> str:
    asked = amount("tasks", reason.requested)
    together = f"It wants {asked} in one domain of `{reason.detail}`"
    if reason.cls is ReasonClass.NEVER:
        return f"{together}, and the largest could never hold more than {reason.bound:,}."
    if reason.requested <= reason.bound:
        return f"{together}, and no domain has enough for all of them at once."
    return f"{together}, and the most that one has room for now is {reason.bound:,}."


def _held_for(reason: Reason, reader: Reader) -> str:
    if not reason.workload:
        return "The free room is held for work that is served first."
    other = who(reason.workload, reason.project, reader)
    return f"The free room is held for {other}, served first."


def _queued_behind(reason: Reason, _reader: Reader) -> str:
    asked = amount(reason.resource, reason.requested)
    return f"Waiting for {asked}: the free room went to work that is served before it."


def _reserved(reason: Reason, reader: Reader) -> str:
    asked = amount(reason.resource, reason.requested)
    if not reason.holders:
        return f"Places for its {asked} are kept for it; it starts as soon as they are free."
    parts = dict.fromkeys(who(h.name, h.project, reader) for h in reason.holders)
    verb = "ends" if len(parts) == 1 else "end"
    return f"Places for its {asked} are kept for it until {join(list(parts))} {verb}."


def _preemption_delayed(reason: Reason, _reader: Reader) -> str:
    asked = amount(reason.resource, reason.requested)
    return f"Waiting for {asked}: others would be preempted for it, but not yet."


def _waits_for_gang(reason: Reason, _reader: Reader) -> str:
    least = amount("tasks", reason.requested)
    return f"It starts with {least} at once, and only {reason.there:,} of them may start now."


def _gated(reason: Reason, _reader: Reader) -> str:
    what = "its task is" if reason.tasks == 1 else "its tasks are"
    return f"It was submitted on hold: {what} not to start yet."


def _growing(reason: Reason, _reader: Reader) -> str:
    runs = f"Runs with {reason.there:,} of {amount('tasks', reason.tasks)}"
    if not reason.resource:
        return f"{runs}."
    more = amount(reason.resource, reason.requested)
    return f"{runs} and grows when there is room: the next step takes {more}."


def _starting(reason: Reason, _reader: Reader) -> str:
    where = f" on {join([f'`{node}`' for node in reason.nodes])}" if reason.nodes else ""
    return f"Starting{where}."


def reclaimed(reason: Reason, reader: Reader) -> str:
    """The message of work that another project reclaimed."""
    right = "guaranteed quota" if reason.bound else "fair share"
    if reason.detail:
        right = f"guaranteed quota in node group `{reason.detail}`"
    if not reader.names:
        return f"Preempted by {member(reason.project)}, which reclaimed its {right}."
    return f"Preempted by `{reason.project}`, which reclaimed its {right} for `{reason.workload}`."


def preempted(reason: Reason, reader: Reader) -> str:
    """The message of work evicted for higher priority in its own project."""
    return f"Preempted by `{reason.workload}`, which has a higher priority in `{reader.project}`."


def consolidated(reason: Reason, reader: Reader) -> str:
    """The message of work moved so that a larger workload fits."""
    return f"Moves to another place so that {_for_whom(reason, reader)} fits."


def _for_whom(reason: Reason, reader: Reader) -> str:
    if not reason.workload:
        return "larger work"
    return who(reason.workload, reason.project, reader)


def gang_incomplete(_reason: Reason, _reader: Reader) -> str:
    """The message of a stale gang that was evicted."""
    return "Fewer of its tasks were left than it can run with, and no others came in time."


def node_drained(reason: Reason, _reader: Reader) -> str:
    """The message of work evicted from a node that is being drained."""
    if not reason.nodes:
        return "Its node is being emptied."
    are = "is" if len(reason.nodes) == 1 else "are"
    return f"{join([f'`{node}`' for node in reason.nodes])} {are} being emptied."


def improved(_reason: Reason, _reader: Reader) -> str:
    """The message of work that moves to nodes that it prefers."""
    return "Moves to GPUs of a type that it prefers."


def quota_used(reason: Reason, reader: Reader) -> str:
    """The sentence where a request exceeds what is left of the quota and too little is idle."""
    asked = amount(reason.resource, reason.requested)
    free = max(0, reason.requested - reason.short)
    if free:
        verb = "is" if is_one(reason.resource, free) else "are"
        idle = f"only {amount(reason.resource, free)} {verb} idle to borrow"
    else:
        idle = "nothing is idle to borrow"
    guarantee = "its guarantee"
    if reason.bound != UNLIMITED:
        guarantee = f"its guaranteed {amount(reason.resource, reason.bound)}"
    left = f"that is more than {_ruler(reason, reader)} has left of {guarantee}"
    if reason.detail and not reason.bound:
        left = f"{_ruler(reason, reader)} is guaranteed none in node group `{reason.detail}`"
    elif reason.detail:
        left = f"{left} in node group `{reason.detail}`"
    return f"Waiting for {asked}: {left}, and {idle}."


def over_limit(reason: Reason, reader: Reader) -> str:
    """The message where a limit of a queue would be exceeded."""
    limit, owner = amount(reason.resource, reason.bound), _ruler(reason, reader)
    if reason.cls is ReasonClass.NEVER:
        asked = amount(reason.resource, reason.requested)
        return f"It asks for {asked}, and the limit of {owner} is {limit}."
    return f"With it {owner} would hold {_total(reason)}, and its limit is {limit}."


def over_group_limit(reason: Reason, reader: Reader) -> str:
    """The message where a limit in a node group would be exceeded."""
    limit, owner = amount(reason.resource, reason.bound), _ruler(reason, reader)
    group = f"node group `{reason.detail}`"
    if reason.cls is ReasonClass.NEVER:
        asked = amount(reason.resource, reason.requested)
        return f"It asks for {asked}, and the limit of {owner} in {group} is {limit}."
    return (
        f"With it {owner} would hold {_total(reason)} in {group}, and its limit there is {limit}."
    )


def beyond_quota(reason: Reason, reader: Reader) -> str:
    """Non-preemptible work stays within the quota, and takes nothing guaranteed to others."""
    quota, owner = amount(reason.resource, reason.bound), _ruler(reason, reader)
    if reason.detail:
        return (
            f"It may not be interrupted: with it such work of {owner} would hold {_total(reason)} "
            f"in node group `{reason.detail}`, and {quota} there {_is(reason)} left for it: the "
            "rest is guaranteed to others or held by such work."
        )
    if reason.cls is ReasonClass.NEVER:
        asked = amount(reason.resource, reason.requested)
        return (
            f"It may not be interrupted, so it cannot borrow: it asks for {asked}, "
            f"and {owner} is guaranteed {quota}."
        )
    return (
        f"It may not be interrupted, so it cannot borrow: with it such work of {owner} "
        f"would hold {_total(reason)}, and {quota} {_is(reason)} guaranteed."
    )


def over_quota_off(reason: Reason, reader: Reader) -> str:
    """Borrowing is switched off."""
    quota, owner = amount(reason.resource, reason.bound), _ruler(reason, reader)
    if reason.cls is ReasonClass.NEVER:
        asked = amount(reason.resource, reason.requested)
        return f"It asks for {asked}, and {owner} may not borrow beyond its {quota}."
    total = _total(reason)
    return f"With it {owner} would hold {total}, and may not borrow beyond its {quota}."


def _ruler(reason: Reason, reader: Reader) -> str:
    """The owner of the quota or limit: the reader's project, or a queue above it."""
    if reason.project in ("", reader.project):
        return f"`{reader.project}`"
    return f"`{reason.project}`, to which `{reader.project}` belongs,"


def _total(reason: Reason) -> str:
    """The amount that the queue would hold with the workload: the bound plus the shortage."""
    return amount(reason.resource, reason.bound + reason.short)


def _is(reason: Reason) -> str:
    return "is" if is_one(reason.resource, reason.bound) else "are"


SENTENCES: Final[dict[Token, Callable[[Reason, Reader], str]]] = {
    Token.WAITS_FOR_ROOM: _waits_for_room,
    Token.QUOTA_USED: quota_used,
    Token.OVER_LIMIT: over_limit,
    Token.OVER_GROUP_LIMIT: over_group_limit,
    Token.NON_PREEMPTIBLE_BEYOND_QUOTA: beyond_quota,
    Token.OVER_QUOTA_OFF: over_quota_off,
    Token.NO_NODE_FITS: _no_node_fits,
    Token.NEVER_FITS: _never_fits,
    Token.HELD_FOR: _held_for,
    Token.QUEUED_BEHIND: _queued_behind,
    Token.STARTING: _starting,
    Token.RECLAIMED: reclaimed,
    Token.PREEMPTED: preempted,
    Token.RESERVED: _reserved,
    Token.NO_VICTIMS_FOUND: _no_victims_found,
    Token.CONSOLIDATED: consolidated,
    Token.GANG_INCOMPLETE: gang_incomplete,
    Token.NODE_DRAINED: node_drained,
    Token.IMPROVED: improved,
    Token.NO_ELIGIBLE_NODE: _no_eligible_node,
    Token.NODES_CLOSED: _nodes_closed,
    Token.NO_MIG_INSTANCE: _no_mig_instance,
    Token.TOPOLOGY_TOO_SMALL: _topology_too_small,
    Token.PREEMPTION_DELAYED: _preemption_delayed,
    Token.WAITS_FOR_GANG: _waits_for_gang,
    Token.GATED: _gated,
    Token.GROWING: _growing,
}
