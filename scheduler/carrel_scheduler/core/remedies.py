"""What would unblock a waiting workload: changes that were tried, and only those that help.

Which ones are tried follows from its reason: the rule that bars it is opened, it becomes
preemptible, or somebody who holds what is short ends. Nothing is changed by trying.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Preemptibility, QueueSet
from carrel_scheduler.core.queues.standings import RESOURCE_NAMES
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.core.resources import UNLIMITED, Amounts
from carrel_scheduler.core.speculation import if_ended, preview, rules_for_now, what_if

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns

TRIED: Final = 3
"""Of so many holders it is tried what their end would do."""


class Change(StrEnum):
    """What would be changed."""

    QUOTA = "more-quota"
    LIMIT = "higher-limit"
    BORROW = "may-borrow"
    PREEMPTIBLE = "preemptible"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the workload would start, or have room made for it.

    Attributes:
        queue: whose rule is changed, or to whom the ending workload belongs.
        resource, amount: what the quota or limit would have to be, in the unit of the resource.
        uid, name: of the workload that ends.
    """

    change: Change
    queue: str = ""
    resource: str = ""
    amount: int = 0
    uid: str = ""
    name: str = ""


def remedies(state: "Columns", uid: str, now: float) -> tuple[Remedy, ...]:
    """What would unblock a waiting workload, the least effort first.

    Each candidate costs one decision; there are at most five. Empty for what starts anyway.

    Raises:
        UnknownWorkload: nobody of that uid.
        KeyError: it does not ask for room.
    """
    job = state.job(uid)
    found = preview(decide(state, now, asked=uid), uid)
    if found.served:
        return ()
    reason = found.reason
    return tuple(remedy for remedy, helps in _candidates(state, job.spec.uid, reason, now) if helps)


def _candidates(
    state: "Columns", uid: str, reason: Reason, now: float
) -> Iterator[tuple[Remedy, bool]]:
    spec = state.job(uid).spec
    if spec.preemptible is Preemptibility.NO and not spec.interactive:
        freely = replace(spec, preemptible=Preemptibility.YES)
        yield Remedy(Change.PREEMPTIBLE), what_if(state, freely, now).served
    for remedy, rules in _other_rules(state, reason):
        with rules_for_now(state, rules):
            helps = preview(decide(state, now, asked=uid), uid).served
        yield remedy, helps
    for holder in reason.holders[:TRIED]:
        remedy = Remedy(Change.ENDS, holder.project, uid=holder.uid, name=holder.name)
        yield remedy, if_ended(state, [holder.uid], uid, now).served


def _other_rules(state: "Columns", reason: Reason) -> list[tuple[Remedy, QueueSet]]:
    if reason.project not in state.queues.slots or reason.resource not in RESOURCE_NAMES:
        return []
    rule = state.queues.rule(state.queues.slots[reason.project])
    place, needed = RESOURCE_NAMES.index(reason.resource), reason.bound + reason.short
    if reason.token is Token.OVER_LIMIT:
        remedy = Remedy(Change.LIMIT, rule.name, reason.resource, needed)
        return [(remedy, replace(rule, limit=_with(rule.limit, place, needed)))]
    if reason.token is Token.OVER_QUOTA_OFF:
        return [(Remedy(Change.BORROW, rule.name), replace(rule, over_quota=True))]
    if reason.token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA:
        remedy = Remedy(Change.QUOTA, rule.name, reason.resource, needed)
        return [(remedy, replace(rule, quota=_with(rule.quota, place, needed)))]
    if reason.token is Token.QUOTA_USED:
        held = int(state.queues.used[state.queues.slots[rule.name], place])
        remedy = Remedy(Change.QUOTA, rule.name, reason.resource, held + reason.requested)
        quota = _with(rule.quota, place, held + reason.requested)
        return [(remedy, replace(rule, quota=quota))]
    return []


def _with(amounts: Amounts, place: int, value: int) -> Amounts:
    """The amounts with one at least so large."""
    gpu, cpu, memory = (
        amount if index != place or amount == UNLIMITED else max(amount, value)
        for index, amount in enumerate(amounts.as_tuple())
    )
    return Amounts(gpu, cpu, memory)
