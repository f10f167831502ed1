"""Intervals of the garbage collector in a process that keeps millions of live objects.

The collector finds cycles of garbage; what the scheduler makes is freed by reference counts, so
nearly all that a collection looks at is alive. One looks at the objects made since the last, so it
is as long as there are many: some milliseconds for 5,000, 30 and more for 50,000. Few of them are
left by the next, so frequent short collections take less time in all than rare long ones.
"""

import gc

COLLECT_AFTER = (5_000, 200, 100)


def collect_rarely() -> None:
    """Have the cyclic garbage collector look less often, and never again at what is there now.

    Tens of thousands of live workloads are millions of objects, and none of them is garbage: at its
    usual pace the collector takes a fifth of the process's time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
