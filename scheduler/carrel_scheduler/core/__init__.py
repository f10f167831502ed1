"""Decisions: events in, a plan out. Pure: no I/O, no clock, no threads, no randomness.

``State.apply(event)`` changes the arrays in place; ``decide(state, now)`` reads them and returns a
``Plan``. The same state and the same ``now`` give the same plan, byte for byte. Deciding changes
nothing: whoever carries the plan out applies the events that follow from it.
"""

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.state import State

__all__ = ["State", "decide"]
