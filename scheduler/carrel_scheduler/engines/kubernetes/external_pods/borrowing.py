"""Which guests run beyond their project's quota: noted in history when it changes.

What others do may change it for work that just goes on, so all that run are looked at, at most once
a second.
"""

from typing import Final

from carrel_scheduler.engines.kubernetes.external_pods.settling import Turn

LOOK_SECONDS: Final = 1.0


class Borrowing:
    """Keeps ``Team.borrowed`` right, and writes rows where it changes."""

    def __init__(self) -> None:
        self._seen = -1
        self._next = 0.0

    def due_at(self, turn: Turn) -> float | None:
        """When to look again; ``None`` while nothing changes."""
        return None if self._seen == turn.state.queues.changes else self._next

    def mend(self, back: float) -> None:
        """The clock was set back by so many seconds."""
        self._next -= back

    def look(self, turn: Turn) -> None:
        """Look at all that run, if it is time to."""
        changes = turn.state.queues.changes
        if self._seen == changes or turn.now < self._next:
            return
        self._seen, self._next = changes, turn.now + LOOK_SECONDS
        for team in turn.book.teams.values():
            borrowed = team.holding and turn.state.is_borrowed(team.uid)
            if borrowed == team.borrowed:
                continue
            team.borrowed = borrowed
            for slot in team.slots:
                if slot.place is not None:
                    turn.row(team, slot, "running")
