"""Names in a Kubernetes cluster: groups, labels, annotations, namespaces, and names of projects.

People select by them, so each stays what it is once it is published. A project's namespace is
``carrel-<project>``, and names of namespaces have at most 63 characters. Reserved are names of
projects whose namespace would be the installation's own, or read as a part of Kubernetes.
"""

import hashlib
import re
from typing import Final

GROUP: Final = "carrel.dev"
VERSION: Final = "v1alpha1"
SCHEDULER_NAME: Final = "carrel"
"""``schedulerName`` of the pods that Carrel places."""
NAMESPACE_PREFIX: Final = "carrel-"

PROJECT: Final = f"{GROUP}/project"
WORKLOAD: Final = f"{GROUP}/workload"
WORKLOAD_UID: Final = f"{GROUP}/workload-uid"
TASK: Final = f"{GROUP}/task"
"""``<workload uid>-<index>-<attempt>`` of the task that a pod is."""
TASK_INDEX: Final = f"{GROUP}/task-index"
ATTEMPT: Final = f"{GROUP}/attempt"
USER: Final = f"{GROUP}/user"
KIND: Final = f"{GROUP}/kind"

DEVICES: Final = f"{GROUP}/devices"
"""Annotation: the GPUs of its node that a pod was given, comma separated indices."""
COUNTED: Final = f"{GROUP}/counted-as"
"""Annotation of a binding: project, user and priority that the pod counts for, as JSON."""
GPU_UUIDS: Final = f"{GROUP}/gpu-uuids"
"""Annotation of a binding: the GPUs that a pod shares, comma separated UUIDs of the driver."""
GPU_MEMORY_MIB: Final = f"{GROUP}/gpu-memory-mib"
"""Annotation of a binding: how much of each of these GPUs' memory is the pod's own."""
GPU_RESERVATIONS: Final = f"{GROUP}/gpu-reservations"
"""Annotation of a binding: uids of the pods that hold these GPUs, comma separated."""
GPU_INDEX: Final = f"{GROUP}/gpu-index"
"""Label of a pod that holds a GPU which is shared: at which place of its node it is counted."""
MIG_MODEL: Final = f"{GROUP}/mig-model"
"""Label of a node whose GPUs the scheduler divides into MIG instances: their model."""
MIG_PROFILE: Final = f"{GROUP}/mig-profile"
"""Annotation of a pod: the profile of the MIG instance that it asks for."""
MIG_PREFIX: Final = "nvidia.com/mig-"
"""The prefix of resources that are MIG instances of a node."""
MIG_SLOTS: Final = f"{GROUP}/mig-slots"
"""Annotation of a binding: the memory slots of the pod's MIG instance, as bits of a number."""
EPOCH: Final = f"{GROUP}/epoch"
"""Annotation of a binding: which scheduler's turn it was decided in."""
NODE_GROUP: Final = f"{GROUP}/node-group"
"""Label: the group that a node is in, or that a pod asks for."""
LEASE: Final = "carrel-scheduler"

UID: Final = f"{GROUP}/uid"
"""Label of our objects: the uid by which the ledger knows them. Only the scheduler sets it."""
CREATED_AT: Final = f"{GROUP}/created-at"
CREATED_BY: Final = f"{GROUP}/created-by"
QUEUED_AT: Final = f"{GROUP}/queued-at"
LABELS: Final = f"{GROUP}/labels"
"""Annotation: labels of the ledger that are none for Kubernetes, as JSON."""
GONE: Final = f"{GROUP}/gone"
"""Annotation: let go by the ledger; whoever finds it deletes it."""
FINALIZER: Final = f"{GROUP}/tasks"
"""Keeps a workload until its tasks have ended and the rows about it are written, and a project
until none of its work runs."""
MADE_BY: Final = f"{GROUP}/made-by"
"""Label of what Carrel made beside its own kinds, with ``MADE_BY_US`` as value."""
MADE_BY_US: Final = "carrel"
ACCESS_RULE: Final = f"{GROUP}/access-rule"
"""Label of a role binding: the id of the access rule that it follows from."""
ADOPT: Final = f"{GROUP}/adopt"
"""Annotation of a namespace that was there before: the project that an admin lets have it."""
SYSTEM_NAMESPACE: Final = "carrel-system"
"""The namespace of scheduler and hub, unless they are installed elsewhere."""
RESERVATIONS_NAMESPACE: Final = "gpu-reservations-carrel"
"""The namespace of the pods that hold shared GPUs; no name of a project leads here."""
CHECKPOINTS_CLAIM: Final = "carrel-checkpoints"
"""The volume claim of a project's namespace that its tasks save their work on."""


def namespace_of(project: str) -> str:
    """The namespace of a project's work."""
    return f"{NAMESPACE_PREFIX}{project}"


def mig_resource(profile: str) -> str:
    """The name of the resource of a MIG profile (``1g.10gb+me``: ``...1g.10gb.me``)."""
    return MIG_PREFIX + profile.replace("+", ".")


LONGEST_LABEL: Final = 63
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def label(text: str) -> str:
    """A text as a label's value: itself if it can be one, else what is left of it and a digest."""
    if len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    left = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[: LONGEST_LABEL - 9].rstrip("-")
    return f"{left}-{digest}" if left else digest


PROJECT_PATTERN: Final = "^[a-z0-9]([-a-z0-9]{0,54}[a-z0-9])?$"
RESERVED_PROJECTS: Final = "^(system|default|carrel|(kube|openshift)(-.*)?)$"
"""Regular expressions for Python and for CEL alike."""
PROJECT_WORDS: Final = (
    "1 to 56 lower-case letters, digits and hyphens, beginning and ending with a letter or digit"
)
RESERVED_PROJECT_WORDS: Final = (
    "a name other than `system`, `default`, `carrel` and what begins with `kube-` or `openshift-`"
)


def is_project_name(name: str) -> bool:
    """Whether a name has the characters and the length of a project's name."""
    return re.fullmatch(PROJECT_PATTERN.removesuffix("$"), name) is not None


def is_reserved_project(name: str) -> bool:
    """Whether a name is not given to projects."""
    return re.fullmatch(RESERVED_PROJECTS.removesuffix("$"), name) is not None


def expected_project_name(name: str) -> str:
    """The form that a name should have; empty for a name that has it."""
    if not is_project_name(name):
        return PROJECT_WORDS
    return RESERVED_PROJECT_WORDS if is_reserved_project(name) else ""
