"""Fair sharing between the users of a queue: who holds least goes first.

Of waiting work of one queue, equal priority and equal stage, the work of the user is served first
who holds the fewest GPUs in the queue, then the least CPU; then the older. What users hold is asked
for anew at every turn, so work that was served counts for the next one.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Held = tuple[int, int]
"""GPU thousandths and millicores."""
Key = tuple[int, int, float, str]
"""Priority, negated; stage; submission; uid."""
Place = tuple[int, int, int, int, float, str]


def place_of(key: Key, held: Held) -> Place:
    """The place of work in its queue; smaller is served first.

    Args:
        key: of the work.
        held: by its user in the queue.
    """
    above, stage, since, uid = key
    return (above, stage, *held, since, uid)


class UserOrder(Generic[T]):
    """The waiting work of one queue, in the order of service.

    Args:
        held: what a user holds in the queue now.
    """

    def __init__(self, held: Callable[[str], Held]) -> None:
        self._held = held
        self._heaps: dict[str, list[tuple[Key, T]]] = {}

    def push(self, user: str, key: Key, item: T) -> None:
        """Enter work of a user."""
        heapq.heappush(self._heaps.setdefault(user, []), (key, item))

    def first(self) -> T | None:
        """The entry whose turn it is, or ``None`` where nothing waits."""
        user = self._next()
        return None if user is None else self._heaps[user][0][1]

    def pop(self) -> T | None:
        """The same; it is no longer in the order."""
        user = self._next()
        if user is None:
            return None
        heap = self._heaps[user]
        item = heapq.heappop(heap)[1]
        if not heap:
            del self._heaps[user]
        return item

    def _next(self) -> str | None:
        heaps, held = self._heaps, self._held
        return min(heaps, key=lambda user: place_of(heaps[user][0][0], held(user)), default=None)
