"""Volumes of a task's pod, and the claims that must exist before it starts.

The project's storage is one claim of its namespace. A task is shown only its own part of it: the
artifacts and checkpoints of its workload, the checkpoints that it continues from, the model that it
serves, its event files, and those it may read. A volume's source is a claim of the project,
``CLAIM`` or ``CLAIM/FOLDER``; its destination is a path in the container, within the task's folder
unless it begins with a slash.

A user's home, which the Hub claims, is shown to that user's tasks only. A volume that a single
node may use serves tasks of one node at a time. Tasks that were placed in the same moment do not
see each other: the first of them decides the node, and the others are placed again.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from carrel_scheduler.engines.contract import (
    EngineError,
    NotOnThisNode,
    TaskId,
    TaskRefused,
    TaskSpec,
)
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import SELECTED_NODE, is_of_one_node
from carrel_scheduler.engines.kubernetes.pods.storage_types import PersistentVolumeClaim
from carrel_scheduler.engines.kubernetes.tasks import environment, task_pods
from carrel_scheduler.engines.kubernetes.tasks import settings as at
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.engines.kubernetes.tasks.task_pods import pod_name
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, NotFound
from carrel_scheduler.kube.resources import PERSISTENT_VOLUME_CLAIMS
from carrel_schema import shared_gpus

_CLAIM: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_STORAGE: Final = "storage"
_CODE: Final = "bad_path"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the path in the container


@dataclass(frozen=True, slots=True)
class Storage:
    """``volumes`` of the pod, ``mounts`` of its container, the ``claims`` that have to be there."""

    volumes: list[dict[str, Any]]
    mounts: list[dict[str, Any]]
    claims: list[str]


def storage(task: TaskSpec, settings: PodSettings) -> Storage:
    """The volumes of a task's pod. Raises ``EngineError``."""
    found = Storage([], [], [])
    _own_folders(found, task, settings)
    _kept(found, task, settings)
    for number, (source, destination) in enumerate(task.volumes):
        if source.partition("/")[0] == settings.storage_claim:
            expected = "the storage of everybody's checkpoints is shown to nobody as a whole"
            raise TaskRefused(_CODE, f"volumes.{number}.source", source, expected)
        asked = _Asked(f"volumes.{number}", source, destination, source in task.read_only)
        _add(found, asked)
    return found


def _own_folders(found: Storage, task: TaskSpec, settings: PodSettings) -> None:
    _mount(found, {"name": "work", "emptyDir": {}}, at.WORK)
    _mount(found, {"name": "tmp", "emptyDir": {}}, "/tmp")  # noqa: S108 - the container's own
    notes = {"medium": "Memory", "sizeLimit": "1Mi"}
    _mount(found, {"name": "run", "emptyDir": notes}, at.RUN)
    if task.large_shm:
        limit = {"sizeLimit": f"{task.memory_mib}Mi"} if task.memory_mib else {}
        memory = {"name": "shm", "emptyDir": {"medium": "Memory", **limit}}
        _mount(found, memory, SHARED_MEMORY)
    if task_pods.has_share(task) and settings.limits_gpu_memory:
        found.volumes.append(shared_gpus.volume())
        found.mounts.extend(shared_gpus.mounts())
    items = environment.volume_items(task)
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
    if task.artifacts:
        parts.append((at.ARTIFACTS, f"artifacts/{task.id.workload_uid}", False))
    if task.continues:
        before = task.continues if "/" in task.continues else f"checkpoints/{task.continues}"
        parts.append((at.BEFORE, before, True))
    if task.model:
        parts.append((at.MODEL, f"copies/{task.model}", True))
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
    """A volume that a task asks for."""

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
        """The folder within the volume; empty for the whole volume."""
        folder = self.source.partition("/")[2]
        return str(self._inside("source", self.source, folder)) if folder else ""

    @property
    def path(self) -> PurePosixPath:
        """The path in the container."""
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


TRIES: Final = 10
PAUSE_SECONDS: Final = 0.5
OWNER: Final = "hub.jupyter.org/username"
"""Annotation of claims that the Hub makes for one user."""


class Claims:
    """Reads volume claims; bound ones are read only once.

    Args:
        client: of the API server.
        is_there: whether a task is being started or has not ended.
    """

    def __init__(self, client: KubeClient, is_there: Callable[[TaskId], bool]) -> None:
        self._client, self._is_there = client, is_there
        self._bound: dict[tuple[str, str], PersistentVolumeClaim] = {}
        self._users: dict[tuple[str, str], dict[TaskId, str]] = {}
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def require(self, namespace: str, names: Iterable[str], task: TaskSpec) -> None:
        """Check that a task can use its claims on its node.

        Raises:
            NotOnThisNode: a volume that a single node may use is on another one.
            EngineError: a claim is not there, or is another user's.
        """
        for name in names:
            async with self._turns[namespace, name]:
                await self._require(namespace, name, task)

    async def _require(self, namespace: str, name: str, task: TaskSpec) -> None:
        key = namespace, name
        while True:
            claim = self._bound.get(key) or await self._get(namespace, name)
            owner = claim.metadata.annotations.get(OWNER, "")
            if owner not in ("", task.user):
                raise EngineError(
                    f"volume claim {name!r} holds the files of {owner}; a claim of "
                    f"{task.user}'s own, or one of the whole project, is right"
                )
            try:
                await self._have_made(claim, task.node)
            except Conflict:
                continue  # written by others meanwhile: another node may be selected
            break
        if _is_bound(claim):
            self._bound[key] = claim
        if is_of_one_node(claim):
            self._use(key, task)

    async def _have_made(self, claim: PersistentVolumeClaim, node: str) -> None:
        """A claim without a volume gets its node: its binding may wait for that."""
        meta = claim.metadata
        selected = meta.annotations.get(SELECTED_NODE, "")
        if _is_bound(claim) or selected == node:
            return
        if selected and is_of_one_node(claim):
            raise NotOnThisNode(f"the volume of claim {meta.name!r} is made on node {selected}")
        if not selected:
            metadata = {
                "annotations": {SELECTED_NODE: node},
                "resourceVersion": meta.resource_version,
            }
            body = {"metadata": metadata}
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, meta.name, body, meta.namespace)

    def _use(self, key: tuple[str, str], task: TaskSpec) -> None:
        """Record that the task uses a volume of one node, unless others use it on another one."""
        users = self._users.get(key, {})
        there = {one: node for one, node in users.items() if self._is_there(one)}
        for node in there.values():
            if node != task.node:
                raise NotOnThisNode(f"volume claim {key[1]!r} is in use on node {node}")
        self._users[key] = there | {task.id: task.node}

    async def _get(self, namespace: str, name: str) -> PersistentVolumeClaim:
        """A claim; waits for one that is about to be created with a new project."""
        for tries in range(TRIES, -1, -1):
            try:
                return await self._client.get(
                    PERSISTENT_VOLUME_CLAIMS, name, namespace, PersistentVolumeClaim
                )
            except NotFound:
                if tries:
                    await asyncio.sleep(PAUSE_SECONDS)
        raise EngineError(
            f"volume claim {name!r}: there is none of this name in namespace {namespace!r}"
        )


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is bound to a volume."""
    return claim.status.phase == "Bound"
