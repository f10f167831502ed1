"""From the scheduler's event stream into the table; comes back after every break.

Each connection begins with all that is there, closed by an event ``told``: what was not among it
has gone. Until then, and while the scheduler is away, the table stays as it was, so endpoints
serve on.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from carrel.client.stream import QUIET_SECONDS, Message, Parser
from carrel.client.transport import Transport
from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_hub.gateway.table import Table, place_of

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0
TOLD: Final = "told"


class Feed:
    """Keeps a table true.

    ``changed`` is called with the uid of each place that changes, ``told`` when a connection has
    told of all there are.
    """

    def __init__(
        self,
        transport: Transport,
        table: Table,
        node_host: str,
        *,
        changed: Callable[[str], None],
        told: Callable[[], None],
    ) -> None:
        self._transport, self._table, self._node_host = transport, table, node_host
        self._changed, self._told = changed, told
        self._seen: set[str] = set()
        self.ready = False

    async def run(self) -> None:
        """Listen for ever."""
        retry = 0
        while True:
            try:
                await self._listen()
                retry = 0
            except CarrelError as error:
                log.warning("no events from the scheduler: %s", error)
            await self._transport.pauses.before(retry, LONGEST_PAUSE_SECONDS)
            retry += 1

    async def _listen(self) -> None:
        self._seen = set()
        told, parser = False, Parser()
        async with self._transport.stream(
            "/events",
            parameters={"routed": True},
            headers={"Accept": "text/event-stream"},
            quiet_seconds=QUIET_SECONDS,
        ) as response:
            async for piece in response.content.iter_any():
                for message in parser.feed(piece):
                    if message.event != TOLD:
                        self.take(message)
                    elif not told:
                        told = self.ready = True
                        self._table.keep_only(self._seen)
                        self._told()

    def take(self, message: Message) -> None:
        """One event. One that cannot be read is left out: another one follows every change."""
        try:
            workload = msgspec.json.decode(message.data, type=Workload)
        except msgspec.MsgspecError as error:
            log.warning("an event %r was not understood: %s", message.event, error)
            return
        if message.event == "report":
            return
        place = place_of(workload, self._node_host)
        if message.event == "deleted" or place is None:
            self._table.remove(workload.project, workload.name, workload.uid)
            self._seen.discard(workload.uid)
        else:
            self._seen.add(place.uid)
            self._table.put(place)
        self._changed(workload.uid)
