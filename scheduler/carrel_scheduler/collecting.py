"""Intervals of the garbage collector in a process that keeps millions of live objects."""

import gc

COLLECT_AFTER = (5_000, 200, 100)


def collect_rarely() -> None:
    """Have the cyclic garbage collector look less often, and never again at what is there now.

    Tens of thousands of live workloads are millions of objects, and none of them is garbage: at its
    usual pace the collector takes a fifth of the process's time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
