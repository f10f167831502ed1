"""The table of groups that administrators edit: kept by the scheduler, asked for by the Hub.

What was read last counts while the scheduler does not answer. Before it was read once nothing that
it may have given is taken away: ``complete`` is false.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from carrel.errors import CarrelError
from carrel_hub.directory.group_rules import GroupRule
from carrel_schema.governance.people import DirectoryGroupOut

log = logging.getLogger(__name__)
ANSWER_SECONDS: Final = 3.0


class TableSource(Protocol):
    """The scheduler."""

    async def list_directory_groups(self, source: str | None = None) -> Sequence[DirectoryGroupOut]:
        """The rules; raises ``CarrelError``."""
        ...


class GroupTable:
    """The rules as last received from the scheduler.

    Args:
        scheduler: gives the scheduler's client, inside the event loop; ``None``: there is none.
    """

    def __init__(self, scheduler: Callable[[], TableSource | None]) -> None:
        self._scheduler = scheduler
        self.rules: tuple[GroupRule, ...] = ()
        self.complete = False
        self._warned = False

    async def refresh(self) -> None:
        """Read the rules again; after an error the known ones stay."""
        client = self._scheduler()
        if client is None:
            self.complete = True
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await client.list_directory_groups("table")
        except (CarrelError, TimeoutError) as error:
            if not self._warned:
                log.warning("The table of groups was not read, rights stay: %s", error)
            self._warned = True
            return
        self._warned = False
        self.rules = tuple(
            GroupRule(
                group=one.group,
                projects=list(one.projects),
                admin=one.admin,
                role=one.role,
                scope=one.scope,
            )
            for one in found
        )
        self.complete = True
