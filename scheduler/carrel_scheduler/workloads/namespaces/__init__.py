"""Projects as namespaces of a cluster, and what people make there with ``kubectl``."""
