"""What a workload is, said once: for the scheduler's API and ledger, custom resources and clients.

- ``kinds``: the kinds of work and what depends on the kind alone;
- ``sections``: what only some kinds have, in specification and status;
- ``objects``: workloads, projects and departments as the ledger stores them;
- ``names``: names that are written into a Kubernetes cluster.

The lowest layer: it imports msgspec and the standard library only.
"""
