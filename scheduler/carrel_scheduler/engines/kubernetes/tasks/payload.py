"""What a task is given apart from its pod: one secret with its files and its secret variables.

It belongs to the pod and goes with it. Kubernetes keeps at most 1 MiB in one object.
"""

import base64
from pathlib import PurePosixPath
from typing import Any, Final

from carrel_scheduler.engines.contract import TaskRefused, TaskSpec
from carrel_scheduler.engines.kubernetes.tasks import environment
from carrel_scheduler.engines.kubernetes.tasks.names import labels, pod_name

MOST_BYTES: Final = 900 * 1024


def secret(task: TaskSpec, pod_uid: str) -> dict[str, Any] | None:
    """The secret of a task whose pod has that uid; ``None`` where there is nothing to keep.

    Raises ``EngineError``.
    """
    data = _data(task)
    if not data:
        return None
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name(task.id), "uid": pod_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": pod_name(task.id),
            "labels": labels(task),
            "ownerReferences": [owner],
        },
        "immutable": True,
        "type": "Opaque",
        "data": data,
    }


def _data(task: TaskSpec) -> dict[str, str]:
    hidden = environment.secret(task)
    plain = {key: hidden[name].encode() for key, name in environment.keys(hidden).items()}
    plain |= {key: task.files[path].encode() for key, path in _keys(task).items()}
    size = sum(map(len, plain.values()))
    if size > MOST_BYTES:
        expected = (
            f"at most {MOST_BYTES} bytes can be sent along to a cluster; "
            "put larger files on a volume of the project"
        )
        raise TaskRefused("files_too_large", "files", f"{size} bytes", expected)
    return {key: base64.b64encode(value).decode("ascii") for key, value in plain.items()}


def volume_items(task: TaskSpec) -> list[dict[str, str]]:
    """Which key of the secret is which file. Raises ``EngineError`` for a path that leaves."""
    return [{"key": key, "path": f"files/{_path(path)}"} for key, path in _keys(task).items()]


def _keys(task: TaskSpec) -> dict[str, str]:
    return {f"file-{number}": path for number, path in enumerate(sorted(task.files))}


def _path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise TaskRefused("path_escapes", "files", text, "a relative path without '..' is right")
    return str(path)
