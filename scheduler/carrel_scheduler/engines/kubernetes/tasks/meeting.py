"""Who of a gang has met: whose pod listens at the port where they meet, or is connected to it.

A pod has a network of its own, so what its kernel lists are its connections and nobody else's.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.kubernetes.tasks.records import Records
from carrel_scheduler.engines.kubernetes.tasks.seen import TaskPod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.execution import Channel, execute

_TABLES: Final = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED: Final = "01"
_LISTENS: Final = "0A"
_FIELDS: Final = 4
LOOK_SECONDS: Final = 10.0


async def met_at(
    client: KubeClient, records: Records, members: Sequence[TaskId], port: int
) -> frozenset[int]:
    """The indices of those members who have met others at a TCP port."""
    seen = await asyncio.gather(*(_has_met(client, records, one, port) for one in members))
    return frozenset(one.index for one, met in zip(members, seen, strict=True) if met)


async def _has_met(client: KubeClient, records: Records, member: TaskId, port: int) -> bool:
    record = records.get(member)
    if record is None or record.pod.state.running is None:
        return False
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return port in ports(await _tables(client, record.pod))
    except (KubeError, TimeoutError):
        return False  # it has ended, or its node does not answer: nobody knows


async def _tables(client: KubeClient, pod: TaskPod) -> str:
    meta, found = pod.metadata, b""
    reading = await execute(client, meta.namespace, meta.name, _TABLES, pod.container)
    try:
        while (piece := await reading.read()) is not None:
            found += piece.data if piece.channel is Channel.OUTPUT else b""
    finally:
        await reading.close()
    return found.decode("ascii", "replace")


def ports(tables: str) -> Iterator[int]:
    """Both ends' ports of connections and of what listens."""
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) < _FIELDS or fields[3] not in (_ESTABLISHED, _LISTENS):
            continue
        for address in fields[1:3]:
            yield int(address.rpartition(":")[2], 16)
