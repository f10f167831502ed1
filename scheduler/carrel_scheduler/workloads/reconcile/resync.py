"""Decisions that time alone brings about.

Some rules of the core follow the clock: delays and minimum run times end, patience does, broken
gangs outlive their grace. Nothing happens when one falls due, so as long as somebody waits it is
decided again now and then, on a state that has not changed.
"""

from typing import Final

SECONDS: Final = 15.0


class SecondLooks:
    """When to decide again though nothing has happened.

    Attributes:
        due_at: epoch seconds; ``None`` while nobody waits.
    """

    def __init__(self) -> None:
        self.due_at: float | None = None

    def decided(self, now: float, *, waiting: bool) -> None:
        """There was a decision; ``waiting``: whether it left anybody without what it asks for."""
        self.due_at = now + SECONDS if waiting else None

    def due(self, now: float) -> bool:
        """Whether it is time."""
        return self.due_at is not None and self.due_at <= now

    def set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        if self.due_at is not None:
            self.due_at -= seconds
