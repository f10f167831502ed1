"""Messages about requests for nodes, next to the reason for waiting."""

from carrel_scheduler.core.messages.amounts import amount
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES, LimitViolation
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.engines.external import NodeRequestNote
from carrel_scheduler.engines.kubernetes.provisioning.types import (
    ProvisioningRequest,
    RequestCondition,
)

LONGEST = 300
"""The most characters of others' messages that are passed on."""


def waits(what: str) -> NodeRequestNote:
    """The message where nodes are requested, or will be."""
    return NodeRequestNote(f"Waiting for nodes: {what.rstrip('.')}.", waits=True)


def not_asked(why: str) -> NodeRequestNote:
    """The message where no nodes are requested."""
    return NodeRequestNote(f"No nodes are asked for: {why.rstrip('.')}.", waits=False)


def beyond(found: LimitViolation) -> NodeRequestNote:
    """The work exceeds a quota or limit, together with what is held and nodes requested already."""
    resource = RESOURCE_NAMES[found.resource]
    rule = "limit" if found.token is Token.OVER_LIMIT else "quota"
    queue = found.queue.removeprefix("department/")
    comes_to = amount(resource, found.held + found.asked)
    return not_asked(
        f"with it `{queue}` would come to {comes_to}, beyond its {rule} of "
        f"{amount(resource, found.bound)}"
    )


def full(most: int) -> NodeRequestNote:
    """The note that as many requests are open as are allowed."""
    requests = "a request is open" if most == 1 else f"{most} requests are open"
    return waits(f"{requests}, as many as may be at a time; its own follows")


def unreadable() -> NodeRequestNote:
    """The message where the kind is missing or may not be read."""
    return waits("requests for nodes cannot be read on this cluster yet; an administrator can help")


def refused(text: str, pause: str) -> NodeRequestNote:
    """The API server did not take the request."""
    return waits(f"the request for them was refused ({passed_on(text)}); tried again {pause} later")


def sent(name: str) -> NodeRequestNote:
    """A request is on its way, or there, and nobody has said anything about it."""
    return waits(f"they are asked for (`{name}`); the cluster's autoscaler has not answered yet")


def answered(request: ProvisioningRequest) -> NodeRequestNote:
    """The autoscaler's message about an open request."""
    name = request.metadata.name
    if (found := request.holds("Provisioned")) is not None:
        return waits(f"they are on their way (`{name}`{_said(found)})")
    if (found := request.condition("Provisioned")) is not None and found.message:
        return waits(f"the cluster's autoscaler has none for it now (`{name}`{_said(found)})")
    if (found := request.holds("Accepted")) is not None:
        return waits(f"the cluster's autoscaler looks for them (`{name}`{_said(found)})")
    return sent(name)


def failed(name: str, found: RequestCondition, pause: str) -> NodeRequestNote:
    """The autoscaler gave a request up."""
    what = {
        "BookingExpired": "the nodes that were made ready for it did not take it in time",
        "CapacityRevoked": "the nodes that were made ready for it were taken away",
        "Provisioned": "nodes were added, and it did not fit there",
    }.get(found.type, "the cluster's autoscaler could not add them")
    return waits(f"{what} (`{name}`{_said(found)}); tried again {pause} later")


def _said(found: RequestCondition) -> str:
    return f": {passed_on(found.message)}" if found.message else ""


def passed_on(text: str) -> str:
    """A message of others on one line, bounded."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    return line.rstrip(".")
