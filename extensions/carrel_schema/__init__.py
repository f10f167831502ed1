"""The schema of workloads: for the scheduler's API and ledger, custom resources and clients.

- ``kinds``: the kinds of work and what depends on the kind alone;
- ``constraints``: bounds, lengths, patterns and forms of fields, and what a structure says of them;
- ``sections``: what only some kinds have, in specification and status;
- ``objects``: workloads, projects and departments as the ledger stores them;
- ``wire``: workloads as they are asked for and answered over REST;
- ``answers``: what the REST API answers about projects, nodes, the queue and trials;
- ``groups``: groups of pods and of nodes on a cluster;
- ``history``: what happened to work, what it used, what jobs report;
- ``names``: names that are written into a Kubernetes cluster, and names of projects;
- ``reading``: reading the answers of a server of another version.

The lowest layer: it imports msgspec and the standard library only.
"""
