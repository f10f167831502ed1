"""External pods: queued, bound and evicted together with the tasks of workloads."""
