"""The life of one workload: phases, and what follows from its specification and its tasks."""
