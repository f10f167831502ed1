"""Why a workload waits or is evicted: one reason each, with the facts behind it."""
