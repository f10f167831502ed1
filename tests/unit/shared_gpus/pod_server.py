"""An API server of pods, and kubelets that give GPUs as real ones do: any free one, by number.

What a watch shows comes late, as the dice say. An answer may be lost after the deed was done.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from carrel_scheduler.kube.client import Listing
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Unavailable,
)
from carrel_schema.names import EPOCH, GPU_RESERVATIONS, GPU_UUIDS

GPU = "nvidia.com/gpu"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
Raw = dict[str, Any]


class PodServer:
    """See the module.

    ``lost`` is how likely an answer is lost, ``epoch`` whose bindings count; ``silent`` nodes do
    not answer.
    """

    def __init__(
        self, nodes: dict[str, list[str]], dice: Random, lost: float = 0.0, *, silent: bool = False
    ) -> None:
        self.nodes, self.dice, self.lost, self.silent = nodes, dice, lost, silent
        self.epoch = 1
        self.pods: dict[tuple[str, str], Raw] = {}
        self.given: dict[str, tuple[str, list[str]]] = {}
        self.ended: Callable[[Raw], None] = lambda _: None
        self.took: Callable[[Raw], None] = lambda _: None
        self._version = 1
        self._uids = 0
        self._log: list[tuple[int, bytes]] = []
        self._watches: list[asyncio.Queue[bytes]] = []
        self._later: list[asyncio.TimerHandle] = []

    # What a client asks

    async def list(self, _: Any, type: Any, *__: Any) -> Listing[Any]:  # noqa: A002
        await self._pause()
        found = [msgspec.convert(pod, type, strict=False) for pod in self._copies()]
        return Listing(found, str(self._version))

    async def watch(self, _: Any, version: str, *__: Any) -> AsyncGenerator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for at, line in self._log:
            if at > int(version):
                queue.put_nowait(line)
        self._watches.append(queue)
        while True:
            line = await queue.get()
            await asyncio.sleep(self.dice.choice([0.0, 0.01, 0.3]))
            yield line

    async def get(self, _: Any, name: str, namespace: str = "", type: Any = dict) -> Any:  # noqa: A002
        await self._pause()
        return msgspec.convert(self._found(name, namespace), type, strict=False)

    async def create(self, _: Any, body: Raw, namespace: str, type: Any = dict) -> Any:  # noqa: A002
        await self._pause()
        key = namespace, body["metadata"]["name"]
        if key in self.pods:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        self._uids += 1
        made = copy.deepcopy(body)
        made["metadata"] |= {"namespace": namespace, "uid": f"u{self._uids}"}
        made.setdefault("status", {"phase": "Pending"})
        self.pods[key] = made
        self._tell("ADDED", made)
        await self._answer()
        return msgspec.convert(self._copy(made), type, strict=False)

    async def patch(
        self,
        _: Any,
        name: str,
        body: Raw,
        namespace: str = "",
        *,
        sub: str = "",
        how: Any = None,
        type: Any = dict,  # noqa: A002
    ) -> Any:
        await self._pause()
        pod = self._found(name, namespace)
        if body["metadata"].get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise Conflict(409, "Conflict", "another one")
        notes = pod["metadata"].setdefault("annotations", {})
        notes.update(body["metadata"].get("annotations", {}))
        self._tell("MODIFIED", pod)
        await self._answer()
        return msgspec.convert(self._copy(pod), type, strict=False)

    async def delete(
        self,
        _: Any,
        name: str,
        namespace: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        await self._pause()
        pod = self._found(name, namespace)
        meta = pod["metadata"]
        if uid not in ("", meta["uid"]) or resource_version not in ("", meta["resourceVersion"]):
            raise Conflict(409, "Conflict", "another one, or another version of it")
        self.end(pod, grace_seconds)
        await self._answer()

    async def post_sub(self, _: Any, name: str, sub: str, body: Any, namespace: str) -> bytes:
        await self._pause()
        pod = self._found(name, namespace)
        if sub == "eviction":
            self.end(pod, body["deleteOptions"]["gracePeriodSeconds"])
        else:
            self._bind(pod, msgspec.json.decode(body))
        await self._answer()
        return b""

    # What admins and programs do

    def end(self, pod: Raw, grace_seconds: int | None = None) -> None:
        """Delete a pod: at once where nothing runs, else when its node has ended it."""
        meta, spec = pod["metadata"], pod["spec"]
        grace = spec["terminationGracePeriodSeconds"] if grace_seconds is None else grace_seconds
        if "deletionTimestamp" in meta:
            grace = min(grace, meta["deletionGracePeriodSeconds"])
        if (
            grace == 0
            or "nodeName" not in spec
            or pod["status"]["phase"] in ("Failed", "Succeeded")
        ):
            self.remove(pod)
            return
        now = asyncio.get_running_loop().time()
        meta["deletionGracePeriodSeconds"] = grace
        meta["deletionTimestamp"] = (BEGAN + timedelta(seconds=now + grace)).isoformat()
        self._tell("MODIFIED", pod)
        listens = spec.get("schedulerName") == "carrel"
        self._in(self.dice.uniform(0.0, grace) if listens else grace, lambda: self.remove(pod))

    def remove(self, pod: Raw) -> None:
        """Remove the pod; its GPU may be given to the next one."""
        meta = pod["metadata"]
        if not self._is_there(pod):
            return
        del self.pods[meta["namespace"], meta["name"]]
        self.given.pop(meta["uid"], None)
        self._tell("DELETED", pod)
        self.ended(pod)

    def succeed(self, pod: Raw) -> None:
        """End the pod's program."""
        if self._is_there(pod):
            pod["status"]["phase"] = "Succeeded"
            self.given.pop(pod["metadata"]["uid"], None)
            self._tell("MODIFIED", pod)
            self.ended(pod)

    def close(self) -> None:
        """Cancel all that was to happen."""
        for handle in self._later:
            handle.cancel()

    # How it is done

    def _is_there(self, pod: Raw) -> bool:
        meta = pod["metadata"]
        return self.pods.get((meta["namespace"], meta["name"])) is pod

    def _bind(self, pod: Raw, body: Raw) -> None:
        meta = pod["metadata"]
        if body["metadata"]["uid"] != meta["uid"] or "nodeName" in pod["spec"]:
            raise Conflict(409, "Conflict", "it is bound, or another one")
        if body["metadata"]["annotations"][EPOCH] != str(self.epoch):
            raise Forbidden(403, "Forbidden", f"{EPOCH} is not that of the leader")
        pod["spec"]["nodeName"] = body["target"]["name"]
        meta["annotations"] = meta.get("annotations", {}) | body["metadata"]["annotations"]
        self._tell("MODIFIED", pod)
        self._in(self.dice.choice([0.0, 0.1, 2.0]), lambda: self._admit(pod))

    def _admit(self, pod: Raw) -> None:
        """The node takes it in, with free GPUs if it asks for some."""
        meta, status = pod["metadata"], pod["status"]
        if self.silent or not self._is_there(pod) or "deletionTimestamp" in meta:
            return
        wanted = int(pod["spec"]["containers"][0]["resources"]["limits"].get(GPU, "0"))
        node = pod["spec"]["nodeName"]
        taken = {uuid for at, uuids in self.given.values() if at == node for uuid in uuids}
        free = [uuid for uuid in self.nodes[node] if uuid not in taken]
        if wanted > len(free):
            status |= {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"}
            self._tell("MODIFIED", pod)
            self.ended(pod)
            return
        mine = self.dice.sample(free, wanted)
        self.given[meta["uid"]] = node, mine
        status["phase"] = "Running"
        if pod["spec"].get("initContainers"):
            found = {"exitCode": 0, "message": f"{mine[0].partition('::')[0]}, 16384"}
            begun = {"name": "find-gpu", "state": {"terminated": found}}
            status["initContainerStatuses"] = [begun]
        self._tell("MODIFIED", pod)
        self.took(pod)

    def uses(self, pod: Raw) -> Sequence[str]:
        """The GPUs that programs of a pod can touch."""
        if GPU_RESERVATIONS in pod["metadata"].get("annotations", {}):
            return str(pod["metadata"]["annotations"][GPU_UUIDS]).split(",")
        return self.given.get(pod["metadata"]["uid"], ("", []))[1]

    def _found(self, name: str, namespace: str) -> Raw:
        try:
            return self.pods[namespace, name]
        except KeyError:
            raise NotFound(404, "NotFound", f"pods {name!r} not found") from None

    def _tell(self, kind: str, pod: Raw) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        line = msgspec.json.encode({"type": kind, "object": pod}) + b"\n"
        self._log.append((self._version, line))
        for queue in self._watches:
            queue.put_nowait(line)

    def _copy(self, pod: Raw) -> Raw:
        return copy.deepcopy(pod)

    def _copies(self) -> Sequence[Raw]:
        return [self._copy(pod) for pod in self.pods.values()]

    def _in(self, seconds: float, work: Callable[[], None]) -> None:
        self._later.append(asyncio.get_running_loop().call_later(seconds, work))

    async def _pause(self) -> None:
        await asyncio.sleep(self.dice.choice([0.0, 0.001, 0.05]))

    async def _answer(self) -> None:
        if self.dice.random() < self.lost:
            error: KubeError = Unavailable(0, "Unreachable", "the answer was lost")
            error.retried = True
            raise error
