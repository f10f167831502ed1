"""A scheduler in small over the stand-in server: it counts GPUs as the core does.

Every step is checked: no GPU is used by a pod that was given all of it and by another one, nor by
shares that are more than all of it together.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, bind
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    ReservationSettings,
    binding_annotations,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations
from carrel_scheduler.kube.errors import KubeError, NotFound
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import PODS
from carrel_schema.names import DEVICES, RESERVATIONS_NAMESPACE
from unit.shared_gpus.pod_server import GPU, PodServer, Raw

WHOLE = 1000
SIZES = (100, 250, 500, 700, WHOLE)
MILLI = "share"
PROJECT = "carrel-vision"
MOST_DOUBLED = 8.0
"""Seconds: the grace period of work, and what watches and lost answers take."""


class Scheduler:
    """A scheduler process: its reservations, and what it counts on. ``epoch`` is its tenure."""

    def __init__(self, server: PodServer, epoch: int, devices: int) -> None:
        self.server, self.epoch, self.devices = server, epoch, devices
        client: Any = server
        self.feed = Feed(client, PODS, Pod)
        settings = ReservationSettings("holder", seconds=30.0)
        self.gpus = GpuReservations(
            client, self.feed, settings, epoch=lambda: self.epoch, now=lambda: 0.0
        )
        self.client = client
        self.used: dict[str, tuple[str, tuple[int, ...], int]] = {}
        self.starts: set[asyncio.Task[bool]] = set()

    async def open(self) -> None:
        """Take up what is there, as an engine does: pods without a node are made again."""
        await self.gpus.open()
        for pod in list(self.server.pods.values()):
            meta, spec = pod["metadata"], pod["spec"]
            if meta["namespace"] != PROJECT:
                continue
            if "nodeName" not in spec:
                self.server.remove(pod)
            elif pod["status"]["phase"] != "Succeeded":
                places = tuple(int(one) for one in meta["annotations"][DEVICES].split(","))
                milli = int(meta["labels"][MILLI])
                self.used[meta["name"]] = spec["nodeName"], places, milli

    async def close(self) -> None:
        """Killed: nothing of it goes on."""
        for task in self.starts:
            task.cancel()
        await asyncio.gather(*self.starts, return_exceptions=True)
        await self.gpus.close()
        await self.feed.close()

    def free(self, node: str) -> list[int]:
        """Thousandths of each place of a node."""
        left = [WHOLE] * self.devices
        for at, places, milli in self.used.values():
            if at == node:
                for place in places:
                    left[place] -= milli
        return left

    def place(self, node: str, milli: int, count: int) -> tuple[int, ...] | None:
        """The tightest places, as the core has them."""
        fitting = sorted((left, i) for i, left in enumerate(self.free(node)) if left >= milli)
        return tuple(i for _, i in fitting[:count]) if len(fitting) >= count else None

    def start(self, name: str, node: str, places: Sequence[int], milli: int) -> None:
        """Start a pod at its place."""
        self.used[name] = node, tuple(places), milli
        task = asyncio.create_task(self._start(name, node, tuple(places), milli))
        self.starts.add(task)
        task.add_done_callback(self.starts.discard)

    async def _start(self, name: str, node: str, places: tuple[int, ...], milli: int) -> bool:
        try:
            made = await self.client.create(PODS, _body(name, len(places), milli), PROJECT, Pod)
        except KubeError:
            self.used.pop(name, None)
            await self._take_back(name)
            return False
        meta = made.metadata
        try:
            if milli == WHOLE:
                await self.gpus.make_room(node)
                target = BindTarget(PROJECT, name, meta.uid, node, places)
                await bind(self.client, target, self.epoch)
                return True
            async with self.gpus.hold(node, places) as hold:
                mine = binding_annotations(hold.gpus, 500, 1)
                target = BindTarget(PROJECT, name, meta.uid, node, places, gpus=mine)
                await bind(self.client, target, self.epoch)
                hold.pod = meta
        except (EngineError, NotBound):
            self.used.pop(name, None)
            await self._take_back(name)
            return False
        return True

    async def _take_back(self, name: str) -> None:
        while True:
            try:
                await self.client.delete(PODS, name, PROJECT, grace_seconds=0)
            except NotFound:
                return
            except KubeError:
                continue

    def ended(self, pod: Raw) -> None:
        """The end of a pod: its places are free."""
        self.used.pop(pod["metadata"]["name"], None)


def _body(name: str, count: int, milli: int) -> Raw:
    limits = {GPU: str(count)} if milli == WHOLE else {}
    return {
        "metadata": {"name": name, "labels": {MILLI: str(milli)}},
        "spec": {
            "schedulerName": "carrel",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }


class Story:
    """Work comes and goes, and what can fail does; see the module."""

    def __init__(self, seed: int, *, forced: bool) -> None:
        self.dice, self.forced = Random(seed), forced
        self.nodes = {name: [f"GPU-{name}-{i}" for i in range(3)] for name in ("n1", "n2")}
        self.server = PodServer(self.nodes, self.dice, lost=0.05)
        self.server.took, self.server.ended = self._took, self._ended
        self.leader = Scheduler(self.server, 1, 3)
        self.former: list[Scheduler] = []
        self.refused: list[str] = []
        self.ran = 0
        self.number = 0
        self._since: dict[str, float] = {}

    async def play(self, steps: int) -> None:
        """Make so many events, and then wait until nothing is left."""
        await self.leader.open()
        for _ in range(steps):
            await self._step()
            self.check()
        await self._finish()
        for one in (self.leader, *self.former):
            await one.close()
        self.server.close()

    async def _step(self) -> None:
        await asyncio.sleep(self.dice.choice([0.0, 0.01, 0.2, 3.0]))
        match self.dice.random():
            case chance if chance < 0.6:
                self._submit()
            case chance if chance < 0.72:
                self._lose_reservation()
            case chance if chance < 0.78:
                await self._next_leader(zombie=self.dice.random() < 0.5)
            case chance if chance < 0.85:
                self._delete_work()
            case _:
                await asyncio.sleep(self.dice.uniform(0.0, 8.0))

    def _submit(self) -> None:
        self.number += 1
        milli, node = self.dice.choice(SIZES), self.dice.choice(list(self.nodes))
        places = self.leader.place(node, milli, self.dice.choice([1, 1, 1, 2]))
        if places is not None:
            self.leader.start(f"work-{self.number}", node, places, milli)

    def _lose_reservation(self) -> None:
        held = [pod for pod in self.server.pods.values() if _is_reservation(pod)]
        if held:
            force = self.forced and self.dice.random() < 0.5
            self.server.end(self.dice.choice(held), 0 if force else None)

    def _delete_work(self) -> None:
        there = [one for one in self.server.pods.values() if not _is_reservation(one)]
        bound = [one for one in there if "nodeName" in one["spec"]]
        if bound:
            self.server.end(self.dice.choice(bound))

    async def _next_leader(self, *, zombie: bool) -> None:
        """The next process leads; the former one is killed, or does not know it yet."""
        before = self.leader
        self.server.epoch += 1
        if zombie:
            self.former.append(before)
            before.used = {}
        else:
            await before.close()
        self.leader = Scheduler(self.server, self.server.epoch, 3)
        await asyncio.sleep(2.5)  # as a leader waits for bindings that are on their way
        await self.leader.open()
        while len(self.former) > 1:
            await self.former.pop(0).close()

    async def _finish(self) -> None:
        for _ in range(200):
            await asyncio.sleep(10.0)
            self.check()
            if not self.server.pods:
                break
        assert not self.server.pods, list(self.server.pods)
        assert not self.server.given

    def _took(self, pod: Raw) -> None:
        self.check()
        if not _is_reservation(pod):
            self.ran += 1
            seconds = self.dice.uniform(0.0, 20.0)
            self.server._in(seconds, lambda: self._done(pod))

    def _done(self, pod: Raw) -> None:
        if self.dice.random() < 0.5:
            self.server.succeed(pod)
            self.server._in(1.0, lambda: self.server.remove(pod))
        else:
            self.server.remove(pod)

    def _ended(self, pod: Raw) -> None:
        if _is_reservation(pod):
            return
        if pod["status"].get("reason"):
            self.refused.append(pod["metadata"]["name"])
            self.server._in(1.0, lambda: self.server.remove(pod))
        self.leader.ended(pod)
        self.leader.gpus.ended(pod["metadata"]["uid"])

    def check(self) -> None:
        """Fail if a GPU is given twice; after a forced deletion only if for too long."""
        doubled, now = self._doubled(), asyncio.get_running_loop().time()
        if doubled and not self.forced:
            raise AssertionError(f"given twice: {doubled}")
        self._since = {one: self._since.get(one, now) for one in doubled}
        for one, since in self._since.items():
            assert now - since <= MOST_DOUBLED, (one, now - since)

    def _doubled(self) -> set[str]:
        """The GPUs that are used twice."""
        whole: dict[str, str] = {}
        shared: dict[str, int] = {}
        for pod in self.server.pods.values():
            name, phase = pod["metadata"]["name"], pod["status"]["phase"]
            if phase in ("Succeeded", "Failed") or _is_reservation(pod):
                continue
            milli = int(pod["metadata"]["labels"][MILLI])
            for uuid in self.server.uses(pod):
                if milli == WHOLE:
                    assert uuid not in whole, (uuid, name, whole[uuid])
                    whole[uuid] = name
                else:
                    shared[uuid] = shared.get(uuid, 0) + milli
        over = {uuid for uuid, used in shared.items() if used > WHOLE}
        return over | (whole.keys() & shared.keys())


def _is_reservation(pod: Raw) -> bool:
    return bool(pod["metadata"]["namespace"] == RESERVATIONS_NAMESPACE)
