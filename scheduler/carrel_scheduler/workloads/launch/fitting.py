"""Work that this installation can never run: refused at submission, with the field to change.

One machine and a cluster differ in what a volume is, and a pod cannot be everything that a process
can. What a cluster refuses is what its engine would refuse at the start, asked beforehand.
"""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import PurePosixPath
from typing import Final

from carrel_scheduler.core.mig import Model
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.contract import TaskId, TaskRefused, TaskSpec
from carrel_scheduler.engines.external import ExternalPods
from carrel_scheduler.workloads.contract import UnsupportedField
from carrel_scheduler.workloads.state import shape
from carrel_schema.objects import Workload

_NO_COMMAND_YET: Final = ("true",)
_NO_MIG: Final = (
    "left out: this machine's GPUs are not divided; `gpus` below 1 is a share (an admin divides"
    " them with `carrel up --mig`)"
)
ONE_INSTANCE: Final = (
    "at most 1: GPUs are divided into MIG instances here, and a program can use one only"
)
_NO_IMAGE: Final = (
    "left out: on one machine images need Carrel to run as root; here work runs with the machine's"
    " own programs"
)


Fitting = Callable[[Workload], UnsupportedField | None]


def on_machine(workload: Workload, mig: Model | None = None) -> UnsupportedField | None:
    """Check for one machine: volumes are its folders.

    ``mig`` is what its GPUs are divided into as work asks; ``None``: they are not divided.
    """
    if (unsupported := _unsupported_instance(workload, mig)) is not None:
        return unsupported
    if (image := workload.spec.image) and os.geteuid():
        return UnsupportedField("no_image", "image", image, _NO_IMAGE)
    for number, (source, _) in enumerate(workload.spec.volumes):
        if not PurePosixPath(source).is_absolute():
            field = f"volumes.{number}.source"
            return UnsupportedField("bad_path", field, source, "an absolute path without `..`")
    return None


def _unsupported_instance(workload: Workload, mig: Model | None) -> UnsupportedField | None:
    """Check that tasks ask for one instance where GPUs are divided, and for none elsewhere."""
    resources = workload.spec.resources
    if mig is None:
        if profile := resources.mig_profile:
            return UnsupportedField("no_mig", "mig_profile", profile, _NO_MIG)
        return None
    if resources.mig_profile and resources.mig_profile not in mig.profiles:
        right = f"one of {', '.join(f'`{name}`' for name in mig.profiles)} ({mig.name})"
        return UnsupportedField("no_mig", "mig_profile", resources.mig_profile, right)
    if resources.gpu_devices > 1:
        return UnsupportedField("no_mig", "gpu_devices", resources.gpu_devices, ONE_INSTANCE)
    if resources.gpu_milli > MILLI or shape.resizes(workload.spec):
        return UnsupportedField("no_mig", "gpus", resources.gpu_milli / MILLI, ONE_INSTANCE)
    return None


def on_cluster(check: Callable[[TaskSpec], None]) -> Fitting:
    """Check for a cluster: work that cannot be a pod; for composite work, its parts.

    ``check`` raises ``TaskRefused`` for a task that the engine can never start.
    """

    def fitting(workload: Workload) -> UnsupportedField | None:
        resources = workload.spec.resources
        if resources.mig_profile and resources.gpu_devices > 1:
            return UnsupportedField("no_mig", "gpu_devices", resources.gpu_devices, ONE_INSTANCE)
        if workload.spec.external:  # somebody else makes its pod
            return None
        task = _draft(workload)
        try:
            check(task)
        except TaskRefused as no:
            return UnsupportedField(no.code, no.field, no.value, no.expected)
        return None

    return fitting


def _draft(workload: Workload) -> TaskSpec:
    """The specification of the last task, as far as it is known before placement."""
    meta, spec = workload.meta, workload.spec
    last = max(0, spec.tasks - 1)
    return TaskSpec(
        id=TaskId(meta.uid or "0", last, 0),
        name=meta.name,
        project=meta.project,
        user=spec.user,
        node="",
        kind=spec.kind,
        image=spec.image,
        gpu_milli=spec.resources.gpu_milli,
        mig_profile=spec.resources.mig_profile,
        command=tuple(spec.command) or _NO_COMMAND_YET,
        environment=spec.environment,
        files=spec.files,
        volumes=tuple(spec.volumes),
        working_dir=spec.working_dir,
        hostname=f"{meta.name}-{last}" if shape.is_gang(spec) else "",
        subdomain=meta.name if shape.is_gang(spec) else "",
        large_shm=spec.large_shm,
    )


FIELD = "node_group"
WITHIN_NODE: Final = ("nvlink", "numa")
"""The connections between GPUs of one node, which people may take for topology levels."""
_MOST = 8


def unsupported_field(
    external_pods: ExternalPods, models: Collection[str], workload: Workload
) -> UnsupportedField | None:
    """The error of the nodes that it asks for, by group, type of GPU or level; ``None`` for none.

    Args:
        external_pods: know the groups and levels.
        models: of the GPUs that nodes have.
        workload: that is submitted.
    """
    return (
        _unsupported_group(external_pods, workload)
        or _unsupported_type(models, workload.spec.gpu_types)
        or _unsupported_level(external_pods.topology_levels(), workload)
    )


def _unsupported_type(models: Collection[str], asked: Sequence[str]) -> UnsupportedField | None:
    """The error for a GPU type that no node has."""
    for number, one in enumerate(asked):
        if not gpu_models.matching(one, models):
            known = ", ".join(f"`{model}`" for model in sorted(models)[:_MOST])
            right = f"a model or a part of its name: {known}"
            if not models:
                right = "left out: no node tells of one model of its GPUs"
            return UnsupportedField("unknown_gpu_type", f"gpu_types.{number}", one, right)
    return None


def _unsupported_level(levels: Sequence[str], workload: Workload) -> UnsupportedField | None:
    """The error for a topology level that no node has."""
    spec = workload.spec
    for field, asked in (
        ("topology_required", spec.topology_required),
        ("topology_preferred", spec.topology_preferred),
    ):
        if not asked or asked in levels or asked in shape.NODE_LEVELS:
            continue
        right = f"one of {', '.join(f'`{level}`' for level in levels)}, or left out"
        if asked in WITHIN_NODE:
            right = f"{right}: a task with several GPUs gets those that are connected best anyway"
        return UnsupportedField("unknown_level", field, asked, right)
    return None


def _unsupported_group(external_pods: ExternalPods, workload: Workload) -> UnsupportedField | None:
    asked = workload.spec.node_group
    if not asked:
        return None
    interactive = workload.spec.kind == "workspace"
    open_to = external_pods.open_node_groups(workload.meta.project, interactive=interactive)
    known = external_pods.node_groups()
    usable = sorted(known if open_to is None else known & open_to)
    if asked in usable:
        return None
    right = f"one of {', '.join(f'`{name}`' for name in usable[:_MOST])}, or left out"
    if not usable:
        right = "left out: no group of nodes is open to it" if known else "left out: there are none"
    code = "node_group_not_open" if asked in known else "unknown_node_group"
    return UnsupportedField(code, FIELD, asked, right)
