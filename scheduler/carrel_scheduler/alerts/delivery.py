"""Delivery: every channel has a short queue and its own pauses, so that none holds up another.

What a channel does not take is tried again with growing pauses for an hour; what does not fit in
its queue is dropped, the oldest first, and counted. Nothing here can stop the scheduler.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from carrel_scheduler.alerts.messages import NotDelivered
from carrel_scheduler.backoff import Backoff
from carrel_schema.governance.alerts import AlertOut, ChannelFields

log = logging.getLogger(__name__)
MOST_WAITING: Final = 200
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 300.0
AT_ONCE_SECONDS: Final = 10.0
"""Seconds for which a channel is sent messages before the others have their next turn."""
GIVEN_UP_SECONDS: Final = 3600.0
Send = Callable[[str, ChannelFields, AlertOut], Awaitable[None]]


@dataclass(slots=True)
class ChannelState:
    """The state of deliveries to one channel.

    Attributes:
        waiting: (when it came, alert) of what was not taken yet.
        sent_at: when something was taken last; 0: never.
        error: why the last try failed; empty: it did not.
        dropped: how many were given up.
    """

    waiting: deque[tuple[float, AlertOut]] = field(default_factory=deque)
    sent_at: float = 0.0
    error: str = ""
    dropped: int = 0
    next_try: float = 0.0
    pauses: Backoff = field(
        default_factory=lambda: Backoff(random.random, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    )


class Delivery:
    """Sends to channels.

    Args:
        send: one alert to one channel, by its name; raises ``NotDelivered``.
        clock: epoch seconds.
    """

    def __init__(self, send: Send, clock: Callable[[], float]) -> None:
        self._send, self._clock = send, clock
        self._states: dict[str, ChannelState] = {}

    def state(self, name: str) -> ChannelState:
        """The state of deliveries to a channel."""
        return self._states.setdefault(name, ChannelState())

    @property
    def errors(self) -> Mapping[str, str]:
        """The last error of each channel; empty after a success."""
        return {name: state.error for name, state in self._states.items()}

    def put(self, channels: Mapping[str, ChannelFields], alert: AlertOut) -> None:
        """Queue an alert for each channel that receives it."""
        for name, channel in channels.items():
            if channel.severities and alert.severity not in channel.severities:
                continue
            if alert.state == "resolved" and not channel.send_resolved:
                continue
            if channel.kind == "mail" and not channel.to:
                continue  # it is for people's own mail
            if alert.subject == f"channel/{name}":
                continue  # that it does not take anything is for others
            state = self.state(name)
            if len(state.waiting) >= MOST_WAITING:
                state.waiting.popleft()
                state.dropped += 1
            state.waiting.append((self._clock(), alert))

    async def flush(self, channels: Mapping[str, ChannelFields]) -> None:
        """Send what waits and may be tried now, to all channels side by side."""
        for name in self._states.keys() - channels.keys():
            del self._states[name]
        now = self._clock()
        due = [
            (name, channel)
            for name, channel in channels.items()
            if self.state(name).waiting and self.state(name).next_try <= now
        ]
        await asyncio.gather(*(self._drain(name, channel) for name, channel in due))

    async def _drain(self, name: str, channel: ChannelFields) -> None:
        state, began = self.state(name), self._clock()
        while state.waiting and self._clock() - began <= AT_ONCE_SECONDS:
            came, alert = state.waiting[0]
            try:
                await self._send(name, channel, alert)
            except NotDelivered as error:
                if not state.error:
                    log.warning("alerts could not be sent to channel %s: %s", name, error)
                state.error = str(error)
                if self._clock() - came > GIVEN_UP_SECONDS:
                    state.waiting.popleft()
                    state.dropped += 1
                state.next_try = self._clock() + state.pauses.next()
                return
            state.waiting.popleft()
            state.sent_at, state.error, state.pauses.failures = self._clock(), "", 0
