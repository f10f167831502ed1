"""Why a workload waits or gives way: one reason each, with the facts behind it."""
