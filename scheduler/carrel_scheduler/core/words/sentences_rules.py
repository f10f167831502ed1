"""Sentences about rules: quotas, limits, borrowing, and whose they are."""

from carrel_scheduler.core.reasons import Reason, ReasonClass
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.words.amounts import amount, is_one
from carrel_scheduler.core.words.sentence_parts import Reader


def quota_used(reason: Reason, reader: Reader) -> str:
    """More than is left of the guarantee, and too little is idle."""
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
    return f"Waiting for {asked}: {left}, and {idle}."


def over_limit(reason: Reason, reader: Reader) -> str:
    """A limit that it would pass."""
    limit, owner = amount(reason.resource, reason.bound), _ruler(reason, reader)
    if reason.cls is ReasonClass.NEVER:
        asked = amount(reason.resource, reason.requested)
        return f"It asks for {asked}, and the limit of {owner} is {limit}."
    return f"With it {owner} would hold {_total(reason)}, and its limit is {limit}."


def beyond_quota(reason: Reason, reader: Reader) -> str:
    """Non-preemptible work stays within the quota."""
    quota, owner = amount(reason.resource, reason.bound), _ruler(reason, reader)
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
    """Whose quota or limit it is: the reader's project, or a queue above it."""
    if reason.project in ("", reader.project):
        return f"`{reader.project}`"
    return f"`{reason.project}`, to which `{reader.project}` belongs,"


def _total(reason: Reason) -> str:
    """What would be held with it: the bound and what is short of it."""
    return amount(reason.resource, reason.bound + reason.short)


def _is(reason: Reason) -> str:
    return "is" if is_one(reason.resource, reason.bound) else "are"
