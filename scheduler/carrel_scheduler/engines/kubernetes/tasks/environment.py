"""The environment and files of a task's container, and the secret that holds the hidden part.

The secret belongs to the pod and is deleted with it. Kubernetes keeps at most 1 MiB in one object.
"""

import base64
import json
import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from carrel_scheduler.engines.contract import TaskRefused, TaskSpec
from carrel_scheduler.engines.kubernetes.tasks import settings as at
from carrel_scheduler.engines.kubernetes.tasks import task_pods
from carrel_scheduler.engines.kubernetes.tasks.task_pods import check_user, labels, pod_name
from carrel_schema import shared_gpus

TASK_DIR: Final = "$(CARREL_TASK_DIR)"


def public(task: TaskSpec) -> dict[str, str]:
    """The variables that are readable in the pod. Raises ``EngineError``."""
    return _checked(_defaults(task) | asked(task.environment) | _own(task))


def secret_variables(task: TaskSpec) -> dict[str, str]:
    """The variables kept in a secret; none replaces one of the engine's own."""
    own = {*_own(task), *(one["name"] for one in _bound(task))}
    given = {name: text for name, text in task.secret_environment.items() if name not in own}
    return _checked(asked(given))


def asked(given: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, with the task's folder filled in.

    Which GPUs are seen is never the user's to say: a variable of the container is stronger than
    that of the device plugin.
    """
    return {
        name: text.replace(TASK_DIR, at.WORK)
        for name, text in given.items()
        if name != shared_gpus.VISIBLE
    }


def literal(text: str) -> str:
    """A text in which Kubernetes finds nothing to fill in."""
    return text.replace("$", "$$")


def variables(task: TaskSpec, payload: str) -> list[dict[str, Any]]:
    """``env`` of the container; ``payload`` is the name of the secret that holds the rest."""
    hidden = secret_variables(task)
    bound = _bound(task)
    shown = [
        {"name": name, "value": literal(text)}
        for name, text in sorted(public(task).items())
        if name not in hidden and name not in {one["name"] for one in bound}
    ]
    return [*shown, *bound] + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": payload, "key": key}}}
        for key, name in secret_keys(hidden).items()
    ]


def _bound(task: TaskSpec) -> list[dict[str, Any]]:
    """The variables that its binding says, of a task with a part of a GPU."""
    if task_pods.has_instance(task):
        return shared_gpus.visible()
    return shared_gpus.variables() if task_pods.has_share(task) else []


def secret_keys(hidden: Mapping[str, str]) -> dict[str, str]:
    """The names of secret variables, by the keys of their values."""
    return {f"variable-{number}": name for number, name in enumerate(sorted(hidden))}


def _checked(given: dict[str, str]) -> dict[str, str]:
    for name, text in given.items():
        if not name or not name.isascii() or not name.isprintable() or "=" in name:
            expected = "a printable name without '=' is right"
            raise TaskRefused("bad_environment_name", "environment", name, expected)
        if "\0" in text:
            expected = "a value without a NUL character is right"
            raise TaskRefused("wrong_form", f"environment.{name}", name, expected)
    return given


def _defaults(task: TaskSpec) -> dict[str, str]:
    found = {"HOME": at.WORK, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "SHELL": "/bin/sh"}
    if task.cpu_limit_milli > 0:
        # One thread per core of the machine, squeezed into a quota of few, is slower than few.
        found["OMP_NUM_THREADS"] = str(math.ceil(task.cpu_limit_milli / 1000))
    return found


def _own(task: TaskSpec) -> dict[str, str]:
    user = check_user(task.user)
    own = {
        "USER": user,
        "LOGNAME": user,
        "CARREL_NODE": task.node,
        "CARREL_DEVICES": ",".join(map(str, task.devices)),
        "CARREL_CHECKPOINT_DIR": at.CHECKPOINTS,
        "CARREL_TASK_DIR": at.WORK,
        "CARREL_TASK_ID": str(task.id),
        "CARREL_HOST": "0.0.0.0",  # noqa: S104 - within the pod: its servers are for others
        "JOB_NAME": task.name,
        "JOB_UUID": task.id.workload_uid,
        "POD_INDEX": str(task.id.index),
    }
    if task.artifacts:
        own["CARREL_ARTIFACTS"] = at.ARTIFACTS
    if task.model:
        own["CARREL_MODEL"] = at.MODEL
    if task.continues:
        own["CARREL_CONTINUE_FROM"] = at.BEFORE
    if task.events:
        own["CARREL_EVENTS_DIR"] = f"{at.EVENTS}/{task.events}"
    return own | _devices(task)


def _devices(task: TaskSpec) -> dict[str, str]:
    """The variables that hide GPUs from a task without any.

    One that has some sees those that the node's device plugin gives it, under its own numbers; one
    that shares some is told which by its binding.
    """
    if task_pods.has_share(task):
        return {shared_gpus.SHARE: f"{task.gpu_milli / task_pods.WHOLE:g}"}
    if task.mig_profile:
        return {}
    if not task.devices:
        return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    if not task.device_uuids:
        return {}
    seen = ",".join(task.device_uuids)
    return {"CUDA_VISIBLE_DEVICES": seen, "NVIDIA_VISIBLE_DEVICES": seen}


MOST_BYTES: Final = 900 * 1024
_DOCKER_HUB: Final = "https://index.docker.io/v1/"
"""The name of Docker Hub in files of registry credentials."""


def payload_secret(task: TaskSpec, pod_uid: str) -> dict[str, Any] | None:
    """The secret of a task whose pod has that uid; ``None`` where there is nothing to keep.

    Raises ``EngineError``.
    """
    data = _data(task)
    return _secret(task, pod_uid, pod_name(task.id), "Opaque", data) if data else None


def pull_secret_name(task: TaskSpec) -> str:
    """Name of the secret that the task's own image is pulled with; empty: there is none."""
    return f"{pod_name(task.id)}-registry" if task.registry_logins and task.image else ""


def pull_secret(task: TaskSpec, pod_uid: str) -> dict[str, Any] | None:
    """The secret of registry credentials of a task whose pod has that uid, if it has some."""
    name = pull_secret_name(task)
    if not name:
        return None
    auths = {
        _DOCKER_HUB if one.server == "docker.io" else one.server: {
            "username": one.username,
            "password": one.password,
        }
        for one in task.registry_logins
    }
    text = json.dumps({"auths": auths}).encode()
    data = {".dockerconfigjson": base64.b64encode(text).decode("ascii")}
    return _secret(task, pod_uid, name, "kubernetes.io/dockerconfigjson", data)


def _secret(
    task: TaskSpec, pod_uid: str, name: str, kind: str, data: Mapping[str, str]
) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name(task.id), "uid": pod_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels(task), "ownerReferences": [owner]},
        "immutable": True,
        "type": kind,
        "data": dict(data),
    }


def _data(task: TaskSpec) -> dict[str, str]:
    hidden = secret_variables(task)
    plain = {key: hidden[name].encode() for key, name in secret_keys(hidden).items()}
    plain |= {key: task.files[path].encode() for key, path in _file_keys(task).items()}
    size = sum(map(len, plain.values()))
    if size > MOST_BYTES:
        expected = (
            f"at most {MOST_BYTES} bytes can be sent along to a cluster; "
            "put larger files on a volume of the project"
        )
        raise TaskRefused("files_too_large", "files", f"{size} bytes", expected)
    return {key: base64.b64encode(value).decode("ascii") for key, value in plain.items()}


def volume_items(task: TaskSpec) -> list[dict[str, str]]:
    """Keys of the secret and their files. Raises ``EngineError`` for a path that leaves."""
    return [{"key": key, "path": f"files/{_path(path)}"} for key, path in _file_keys(task).items()]


def _file_keys(task: TaskSpec) -> dict[str, str]:
    return {f"file-{number}": path for number, path in enumerate(sorted(task.files))}


def _path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise TaskRefused("path_escapes", "files", text, "a relative path without '..' is right")
    return str(path)
