"""Projects as namespaces of a cluster, and the workloads that users create with ``kubectl``."""
