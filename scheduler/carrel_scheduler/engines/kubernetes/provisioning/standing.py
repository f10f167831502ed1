"""State of a request for nodes: open, or given up for a while. Pure."""

from dataclasses import dataclass
from datetime import UTC
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.kubernetes.provisioning.types import (
    ProvisioningRequest,
    RequestCondition,
    attempt_of,
)

AGAIN: Final = Pauses(60.0, 1800.0)
"""The pause after a request that failed; doubled with each in a row."""
FITS_SECONDS: Final = 900.0
"""Seconds that work may take to start on nodes that were made ready for it."""
GIVEN_UP: Final = ("Failed", "CapacityRevoked", "BookingExpired")
PROVISIONED: Final = "Provisioned"


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A failed request: its cause, and when the next one may be made."""

    condition: RequestCondition
    pause: float
    until: float


def given_up(request: ProvisioningRequest, now: float) -> RequestFailure | None:
    """The failure of a request that was given up; ``None`` while it is open."""
    for kind in GIVEN_UP:
        if (found := request.holds(kind)) is not None:
            return _given_up(request, found, _since(found, now))
    ready = request.holds(PROVISIONED)
    if ready is not None and now >= _since(ready, now) + FITS_SECONDS:
        return _given_up(request, ready, _since(ready, now) + FITS_SECONDS)
    return None


def next_look(request: ProvisioningRequest, now: float) -> float | None:
    """The time at which an open request changes without an event; ``None`` if it does not."""
    ready = request.holds(PROVISIONED)
    return None if ready is None else _since(ready, now) + FITS_SECONDS


def _given_up(
    request: ProvisioningRequest, found: RequestCondition, since: float
) -> RequestFailure:
    pause = pause_after(attempt_of(request.metadata.name))
    return RequestFailure(found, pause, since + pause)


def pause_after(attempt: int) -> float:
    """Seconds between the end of an attempt and the next one."""
    return AGAIN.after(max(0, attempt - 1))


def _since(found: RequestCondition, now: float) -> float:
    """The time since which a condition holds; the clock of others may be ahead of ours."""
    at = found.last_transition_time
    if at is None:
        return now
    return min(now, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def in_words(seconds: float) -> str:
    """A pause in words."""
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"
