"""The owners of pods, from the nearest to the topmost.

Thousands of pods share a few owners, and owners change now and then (a larger job, another
minimum), so what was found is believed for a minute.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.types import Owned, Owner, Pod

GetOwner = Callable[[Owner, str], Awaitable[Owned | None]]
"""Owner and namespace to the object; ``None`` where there is none, or it may not be read."""
MOST_LEVELS: Final = 10
MOST_KEPT: Final = 20_000
FRESH_SECONDS: Final = 60.0


class Owners:
    """Owners of pods. Equal questions at the same time are asked once.

    Args:
        get: looks one up.
        most: so many are remembered.
        now: seconds of any clock that never goes back.
    """

    def __init__(
        self,
        get: GetOwner,
        most: int = MOST_KEPT,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get = get
        self._most = most
        self._now = now
        self._found: OrderedDict[str, tuple[float, asyncio.Future[Owned | None]]] = OrderedDict()

    async def chain(self, pod: Pod) -> list[tuple[Owner, Owned | None]]:
        """The controllers above a pod with what is known of them, the nearest first."""
        chain: list[tuple[Owner, Owned | None]] = []
        above, seen = pod.metadata.controller, {pod.metadata.uid}
        while above is not None and above.uid not in seen and len(chain) < MOST_LEVELS:
            seen.add(above.uid)
            found = await self.look_up(above, pod.metadata.namespace)
            chain.append((above, found))
            above = None if found is None else found.metadata.controller
        return chain

    async def look_up(self, owner: Owner, namespace: str) -> Owned | None:
        """The object that a reference means; ``None`` where another one has its name by now."""
        key = owner.uid or f"{owner.api_version}/{owner.kind}/{namespace}/{owner.name}"
        at, known = self._found.get(key, (0.0, None))
        asked = known
        if asked is None or self._now() - at > FRESH_SECONDS:
            asked = asyncio.ensure_future(self._get(owner, namespace))
            self._found[key] = (self._now(), asked)
            if len(self._found) > self._most:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        try:
            found = await asyncio.shield(asked)
        except Exception:
            self._found.pop(key, None)
            if known is None or known is asked:
                raise
            # What was true a minute ago is better than nothing while the server does not answer.
            found = await known
        if found is None:
            self._found.pop(key, None)
        elif owner.uid and found.metadata.uid != owner.uid:
            return None
        return found

    def forget(self, uid: str) -> None:
        """Ask again for an owner that changed."""
        self._found.pop(uid, None)
