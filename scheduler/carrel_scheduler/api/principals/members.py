"""Membership of projects, cached for some seconds so that a rush of starts asks the Hub once.

Only a yes is ever taken from memory. A change that goes through the scheduler is forgotten at once;
one made in the Hub itself counts after ``REMEMBER_SECONDS`` at the latest, and the Hub's spawner,
the only caller that this answers, looks at the Hub's own groups besides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

REMEMBER_SECONDS: Final = 5.0


class MemberService:
    """Answers for one Hub.

    Args:
        ask: the members of a project, from the Hub.
        clock: in seconds; need not be the wall's.
    """

    def __init__(
        self, ask: Callable[[str], Awaitable[Sequence[str]]], clock: Callable[[], float]
    ) -> None:
        self._ask, self._clock = ask, clock
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        self._asking: dict[str, asyncio.Task[frozenset[str]]] = {}

    async def include(self, project: str, user: str) -> bool:
        """Whether the user is a member. Raises errors of ``ask``."""
        until, users = self._known.get(project, (0.0, frozenset()))
        if user in users and self._clock() < until:
            return True
        if user in await self._joined(project):
            return True
        # The question that was joined may be older than the membership.
        return user in await self._ask(project)

    def forget(self, project: str) -> None:
        """Drop cached memberships, those of running requests included: the members change now."""
        self._known.pop(project, None)
        self._asking.pop(project, None)

    async def _joined(self, project: str) -> frozenset[str]:
        task = self._asking.get(project)
        if task is None:
            task = self._asking[project] = asyncio.create_task(self._learn(project))
        return await asyncio.shield(task)

    async def _learn(self, project: str) -> frozenset[str]:
        asked_at = self._clock()
        ours = asyncio.current_task()
        try:
            users = frozenset(await self._ask(project))
            if self._asking.get(project) is ours:
                self._known[project] = (asked_at + REMEMBER_SECONDS, users)
            return users
        finally:
            if self._asking.get(project) is ours:
                del self._asking[project]
