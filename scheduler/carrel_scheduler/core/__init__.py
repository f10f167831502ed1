"""The decision core: who gets which GPU, CPU and memory, when, and who is evicted.

Pure: no I/O, no clock, no threads, no randomness. Facts go in as events, a plan comes out, and the
same state and time give the same plan, byte for byte. ``docs/core.md`` is the way in.
"""

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.state import State

__all__ = ["State", "decide"]
