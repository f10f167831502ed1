"""Controllers of composite work: from what was asked for to the parts that are scheduled.

Each kind has one controller. It reads one composite workload and its parts and answers what there
should be (``contract``); the ``manager`` makes that true, records it, and asks again when something
changed. Parts are workloads like any other: the reconciler alone runs them.
"""
