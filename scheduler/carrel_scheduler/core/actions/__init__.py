"""What a cycle does, one file per action, in this order.

1. ``promises``: workloads whose held places have become free start there.
2. ``allocate``: waiting work takes free room, or room that is being released already.
3. ``reclaim``: work within its project's rights takes back what other projects borrowed.
4. ``preempt``: work takes the place of its own project's work of lower priority.
"""
