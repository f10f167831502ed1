"""Where a pod's files are: its own folders, the project's storage, claims that were asked for.

The project's storage is one claim of its namespace. A task is shown only its own part of it: the
checkpoints of its workload and of the one it goes on from, its event files, and those it may read.

A volume's source is a claim of the project, ``CLAIM`` or ``CLAIM/FOLDER``; its destination is a
path in the container, within the task's folder unless it begins with a slash.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from carrel_scheduler.engines.contract import TaskRefused, TaskSpec
from carrel_scheduler.engines.kubernetes.tasks import payload
from carrel_scheduler.engines.kubernetes.tasks import settings as at
from carrel_scheduler.engines.kubernetes.tasks.names import pod_name
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings

_CLAIM: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_STORAGE: Final = "storage"
_CODE: Final = "bad_path"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the path in the container
SMALL_MEMORY_MIB: Final = 64


@dataclass(frozen=True, slots=True)
class Storage:
    """``volumes`` of the pod, ``mounts`` of its container, the ``claims`` that have to be there."""

    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]
    claims: list[str]


def storage(task: TaskSpec, settings: PodSettings) -> Storage:
    """Everything that a task finds. Raises ``EngineError``."""
    found = Storage([], [], [])
    _own_folders(found, task)
    _kept(found, task, settings)
    for number, (source, destination) in enumerate(task.volumes):
        if source.partition("/")[0] == settings.storage_claim:
            expected = "the storage of everybody's checkpoints is shown to nobody as a whole"
            raise TaskRefused(_CODE, f"volumes.{number}.source", source, expected)
        asked = _Asked(f"volumes.{number}", source, destination, source in task.read_only)
        _add(found, asked)
    return found


def _own_folders(found: Storage, task: TaskSpec) -> None:
    _mount(found, {"name": "work", "emptyDir": {}}, at.WORK)
    _mount(found, {"name": "tmp", "emptyDir": {}}, "/tmp")  # noqa: S108 - the container's own
    notes = {"medium": "Memory", "sizeLimit": "1Mi"}
    _mount(found, {"name": "run", "emptyDir": notes}, at.RUN)
    if task.large_shm:
        limit = {"sizeLimit": f"{task.memory_mib}Mi"} if task.memory_mib else {}
        memory = {"name": "shm", "emptyDir": {"medium": "Memory", **limit}}
        _mount(found, memory, SHARED_MEMORY)
    items = payload.volume_items(task)
    if items:
        name = pod_name(task.id)
        given = {"name": "given", "secret": {"secretName": name, "items": items}}
        _mount(found, given, at.GIVEN, readOnly=True)


def _kept(found: Storage, task: TaskSpec, settings: PodSettings) -> None:
    claim = settings.storage_claim
    if claim:
        found.claims.append(claim)
        found.volumes.append(_of_claim(_STORAGE, claim))
    else:
        found.volumes.append({"name": _STORAGE, "emptyDir": {}})
    parts = [(at.CHECKPOINTS, f"checkpoints/{task.id.workload_uid}", False)]
    if task.continues:
        parts.append((at.BEFORE, f"checkpoints/{task.continues}", True))
    if task.events:
        parts.append((f"{at.EVENTS}/{task.events}", f"events/{task.events}", False))
    others = [one for one in task.reads_events if one != task.events]
    parts += [(f"{at.EVENTS}/{one}", f"events/{one}", True) for one in others]
    for path, part, read_only in parts:
        mount = {"name": _STORAGE, "mountPath": path, "subPath": part}
        found.mounts.append({**mount, "readOnly": True} if read_only else mount)


def _add(found: Storage, asked: "_Asked") -> None:
    claim, path = asked.claim, str(asked.path)
    if any(mount["mountPath"] == path for mount in found.mounts):
        expected = f"a path of its own; {path} is taken"
        raise TaskRefused(_CODE, f"{asked.field}.destination", asked.destination, expected)
    if claim not in found.claims:
        found.claims.append(claim)
    name = f"claim-{found.claims.index(claim)}"
    if not any(volume["name"] == name for volume in found.volumes):
        found.volumes.append(_of_claim(name, claim))
    mount: dict[str, Any] = {"name": name, "mountPath": path}
    below = {"subPath": asked.folder} if asked.folder else {}
    found.mounts.append(mount | below | ({"readOnly": True} if asked.read_only else {}))


@dataclass(frozen=True, slots=True)
class _Asked:
    """One of a task's volumes."""

    field: str
    source: str
    destination: str
    read_only: bool

    @property
    def claim(self) -> str:
        """The claim's name."""
        claim = self.source.partition("/")[0]
        if not _CLAIM.fullmatch(claim):
            expected = "a volume claim of the project, or CLAIM/FOLDER, is right on a cluster"
            raise TaskRefused(_CODE, f"{self.field}.source", self.source, expected)
        return claim

    @property
    def folder(self) -> str:
        """The folder in it; empty: all of it."""
        folder = self.source.partition("/")[2]
        return str(self._inside("source", self.source, folder)) if folder else ""

    @property
    def path(self) -> PurePosixPath:
        """Where the task sees it."""
        where = self.destination or self.claim
        return PurePosixPath(at.WORK) / self._inside("destination", where, where)

    def _inside(self, part: str, value: str, text: str) -> PurePosixPath:
        path = PurePosixPath(text)
        if ".." in path.parts or "\0" in text or ":" in text:
            expected = "a path without '..' and ':' is right"
            raise TaskRefused(_CODE, f"{self.field}.{part}", value, expected)
        return path


def _of_claim(name: str, claim: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def _mount(found: Storage, volume: dict[str, Any], path: str, **more: Any) -> None:
    found.volumes.append(volume)
    found.mounts.append({"name": volume["name"], "mountPath": path, **more})
