"""The volume claims of tasks: whether they are there, whose, and on which node they are needed.

A user's home, which the Hub claims, is shown to that user's tasks only. A volume that a single
node may use is there for tasks of one node at a time. Tasks that were placed in the same moment do
not see each other: the first of them decides where it is, and the others get another place.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskId, TaskSpec
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, NotFound
from carrel_scheduler.kube.metadata import Metadata
from carrel_scheduler.kube.resources import PERSISTENT_VOLUME_CLAIMS

TRIES: Final = 10
PAUSE_SECONDS: Final = 0.5
OWNER: Final = "hub.jupyter.org/username"
"""Annotation of claims that the Hub makes for one user."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What was asked for."""

    access_modes: tuple[str, ...] = ()


class ClaimStatus(msgspec.Struct, frozen=True):
    """``Bound`` once it has a volume."""

    phase: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A claim of a volume."""

    metadata: Metadata
    status: ClaimStatus = ClaimStatus()
    spec: ClaimSpec = ClaimSpec()

    @property
    def owner(self) -> str:
        """Whose home it is; empty: the project's."""
        return self.metadata.annotations.get(OWNER, "")

    @property
    def is_bound(self) -> bool:
        """Whether it has its volume."""
        return self.status.phase == "Bound"

    @property
    def is_of_one_node(self) -> bool:
        """Whether tasks of several nodes cannot use it at once."""
        return _MANY_NODES.isdisjoint(self.spec.access_modes)


class Claims:
    """Looks claims up; those that have their volume are looked up once.

    Args:
        client: of the API server.
        is_there: whether a task is being started or has not ended.
    """

    def __init__(self, client: KubeClient, is_there: Callable[[TaskId], bool]) -> None:
        self._client, self._is_there = client, is_there
        self._bound: dict[tuple[str, str], Claim] = {}
        self._users: dict[tuple[str, str], dict[TaskId, str]] = {}
        self._turns: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def require(self, namespace: str, names: Iterable[str], task: TaskSpec) -> None:
        """See to it that a task finds its claims on its node.

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
            if claim.owner not in ("", task.user):
                raise EngineError(
                    f"volume claim {name!r} holds the files of {claim.owner}; a claim of "
                    f"{task.user}'s own, or one of the whole project, is right"
                )
            try:
                await self._have_made(claim, task.node)
            except Conflict:
                continue  # written by others meanwhile: another node may have been told
            break
        if claim.is_bound:
            self._bound[key] = claim
        if claim.is_of_one_node:
            self._use(key, task)

    async def _have_made(self, claim: Claim, node: str) -> None:
        """A claim without a volume is told where: it may wait for a scheduler to say so."""
        meta = claim.metadata
        selected = meta.annotations.get(SELECTED_NODE, "")
        if claim.is_bound or selected == node:
            return
        if selected and claim.is_of_one_node:
            raise NotOnThisNode(f"the volume of claim {meta.name!r} is made on node {selected}")
        if not selected:
            told = {
                "annotations": {SELECTED_NODE: node},
                "resourceVersion": meta.resource_version,
            }
            body = {"metadata": told}
            await self._client.patch(PERSISTENT_VOLUME_CLAIMS, meta.name, body, meta.namespace)

    def _use(self, key: tuple[str, str], task: TaskSpec) -> None:
        """From now on the task uses a volume of one node, unless others do on another one."""
        users = self._users.get(key, {})
        there = {one: node for one, node in users.items() if self._is_there(one)}
        for node in there.values():
            if node != task.node:
                raise NotOnThisNode(f"volume claim {key[1]!r} is in use on node {node}")
        self._users[key] = there | {task.id: task.node}

    async def _get(self, namespace: str, name: str) -> Claim:
        """A claim; that of a new project may be about to be made."""
        for tries in range(TRIES, -1, -1):
            try:
                return await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace, Claim)
            except NotFound:
                if tries:
                    await asyncio.sleep(PAUSE_SECONDS)
        raise EngineError(
            f"volume claim {name!r}: there is none of this name in namespace {namespace!r}"
        )
