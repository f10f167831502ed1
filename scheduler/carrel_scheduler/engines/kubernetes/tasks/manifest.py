"""Pods of tasks: pure. A pod fits the ``restricted`` standard of Kubernetes.

Nothing of the platform is reachable from inside: no service account, no capability, no way to gain
any; a task uses its own token at the scheduler's API.
"""

import math
from typing import Any, Final

from carrel_scheduler.core.mig.models import EXPECTED, is_profile
from carrel_scheduler.engines.contract import EngineError, TaskRefused, TaskSpec
from carrel_scheduler.engines.kubernetes.tasks import environment, program, task_pods
from carrel_scheduler.engines.kubernetes.tasks import settings as at
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.engines.kubernetes.tasks.volumes import Storage, storage
from carrel_schema import shared_gpus
from carrel_schema.governance.people import LEAST_ID
from carrel_schema.names import SCHEDULER_NAME, mig_resource, namespace_of

GPU: Final = "nvidia.com/gpu"
WHOLE: Final = 1000
LONGEST_HOSTNAME: Final = 63
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def grace_seconds(seconds: float) -> int:
    """A grace period in the form of Kubernetes: whole seconds, at least one."""
    return max(1, math.ceil(seconds))


def check(task: TaskSpec) -> None:
    """Raise ``EngineError`` for a task that cannot be a pod."""
    if not task.command or not task.command[0]:
        expected = "a program and its arguments are right"
        raise TaskRefused("command_required", "command", list(task.command), expected)
    if any("\0" in part for part in task.command):
        expected = "an argument with a NUL character cannot be passed on"
        raise TaskRefused("wrong_form", "command", list(task.command), expected)
    if task.gpu_milli > WHOLE and task.gpu_milli % WHOLE:
        expected = "whole GPUs, or a share of one GPU, are right"
        raise TaskRefused("bad_gpu_share", "gpus", task.gpu_milli / WHOLE, expected)
    _check_instance(task)
    if len(task.hostname) > LONGEST_HOSTNAME:
        expected = f"as a worker's name, at most {LONGEST_HOSTNAME} characters are right"
        raise TaskRefused("too_long", "name", task.hostname, expected)
    if task.device_uuids and len(task.device_uuids) != len(task.devices):
        raise EngineError(
            f"device_uuids={list(task.device_uuids)!r}: one for each of devices"
            f" {list(task.devices)!r}, or none, is right"
        )


def check_runnable(task: TaskSpec, settings: PodSettings) -> None:
    """Raise ``TaskRefused`` for a task that the engine can never start."""
    pod(task, settings)
    environment.payload_secret(task, "")


def _check_instance(task: TaskSpec) -> None:
    if not task.mig_profile:
        return
    if not is_profile(task.mig_profile):
        raise TaskRefused(
            "bad_mig_profile", "mig_profile", task.mig_profile, f"{EXPECTED} is right"
        )
    if task.gpu_milli:
        expected = "left out where GPUs are asked for: one or the other is right"
        raise TaskRefused("mig_and_gpus", "mig_profile", task.mig_profile, expected)


def pod(task: TaskSpec, settings: PodSettings, owner: dict[str, Any] | None = None) -> Any:
    """The manifest.

    Args:
        task: what to run.
        settings: of the cluster.
        owner: reference to the object that the task is a part of; the pod goes with it.

    Raises:
        EngineError: naming the field that cannot be.
    """
    check(task)
    kept = storage(task, settings)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": task_pods.pod_name(task.id),
            "namespace": namespace_of(task.project),
            "labels": task_pods.labels(task),
            "finalizers": [at.FINALIZER],
            **({"ownerReferences": [owner]} if owner else {}),
        },
        "spec": _spec(task, settings, kept),
    }


def _spec(task: TaskSpec, settings: PodSettings, kept: Storage) -> dict[str, Any]:
    return {
        "schedulerName": SCHEDULER_NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds(task.grace_seconds),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            **_identity(task, settings),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": settings.lost_after_seconds,
            }
            for key in _TAINTS
        ],
        "imagePullSecrets": [
            {"name": name}
            for name in (*settings.pull_secrets, environment.pull_secret_name(task))
            if name
        ],
        "volumes": kept.volumes,
        **_preparing(task, settings),
        "containers": [_container(task, settings, kept)],
        **_name_in_gang(task, settings),
    }


def _preparing(task: TaskSpec, settings: PodSettings) -> dict[str, Any]:
    """The init container of a task with a share of a GPU: it prepares the memory's limiter."""
    if not (task_pods.has_share(task) and settings.limits_gpu_memory):
        return {}
    image = settings.gpu_image or settings.image
    return {"initContainers": [shared_gpus.limiter(image, settings.pull_policy)]}


def _identity(task: TaskSpec, settings: PodSettings) -> dict[str, Any]:
    """The numeric user and groups of the programs: the user's of the directory, or the default."""
    own = task.posix
    if own is None:
        return {
            "runAsUser": settings.user,
            "runAsGroup": settings.group,
            "fsGroup": settings.group,
        }
    if own.uid < LEAST_ID or own.gid < LEAST_ID or own.uid == settings.user:
        raise EngineError(
            f"uid={own.uid}, gid={own.gid} of {task.user}: numbers of the directory from "
            f"{LEAST_ID}, other than {settings.user}, under which others' work runs, are right"
        )
    return {
        "runAsUser": own.uid,
        "runAsGroup": own.gid,
        "supplementalGroups": list(own.gids),
        "fsGroup": own.gid,
    }


def _container(task: TaskSpec, settings: PodSettings, kept: Storage) -> dict[str, Any]:
    command = [environment.literal(part) for part in task.command]
    policy = {"imagePullPolicy": settings.pull_policy} if settings.pull_policy else {}
    return {
        "name": at.CONTAINER,
        "image": task.image or settings.image,
        **policy,
        "command": [environment.literal(part) for part in program.first(())] + command,
        "workingDir": task.working_dir or at.WORK,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": environment.variables(task, task_pods.pod_name(task.id)),
        "resources": _resources(task),
        "volumeMounts": kept.mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _resources(task: TaskSpec) -> dict[str, dict[str, str]]:
    requests, limits = {"cpu": f"{task.cpu_milli}m"}, {}
    if task.cpu_limit_milli:
        limits["cpu"] = f"{task.cpu_limit_milli}m"
    if task.memory_mib:
        requests["memory"] = limits["memory"] = f"{task.memory_mib}Mi"
    if task.devices and not task_pods.shares_gpus(task):
        requests[GPU] = limits[GPU] = str(len(task.devices))
    if task_pods.has_share(task):
        requests |= shared_gpus.AMOUNT
        limits |= shared_gpus.AMOUNT
    if task.mig_profile and not task_pods.has_instance(task):
        instance = mig_resource(task.mig_profile)
        requests[instance] = limits[instance] = "1"
    return {"requests": requests, "limits": limits}


def _name_in_gang(task: TaskSpec, settings: PodSettings) -> dict[str, Any]:
    """The host name of a gang's member, and the same search domain as the others'."""
    if not task.subdomain:
        return {}
    whole = f"{task.subdomain}.{namespace_of(task.project)}.svc.{settings.cluster_domain}"
    return {
        "hostname": task.hostname,
        "subdomain": task.subdomain,
        "dnsConfig": {"searches": [whole]},
    }
