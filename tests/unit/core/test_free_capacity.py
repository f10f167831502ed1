"""The views of a cycle's room after moves of many tasks at once, on few nodes and on nearly all."""

import numpy as np
import pytest

from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from unit.core.clusters import cluster, node

NODES = 24


@pytest.mark.parametrize("touched", [1, NODES - 1])
def test_views_are_derived_alike_for_few_nodes_and_for_many(touched: int) -> None:
    world = cluster(*[node(f"n{number:02}", 2) for number in range(NODES)])
    for number in range(NODES):
        world.take(f"n{number:02}", (0, 1), 400, cpu=3_000)
    room = FreeCapacity(world.nodes)
    idle, soon, nodes = room.idle, room.soon, np.arange(touched)
    share, host = np.full(touched, 400), np.full((2, touched), 1_000)
    first, second = (np.full(touched, bits, np.uint64) for bits in (1, 2))
    room.evict_many(nodes, first, share, host, np.zeros(touched, np.int64))
    room.reserve_many(nodes, second, share // 2, host * 2)

    assert room.idle is idle
    assert room.soon is soon
    assert room.log == [*nodes.tolist(), *nodes.tolist()]
    assert idle.changes is room.log
    assert soon.devices[:, 0].tolist() == [1000, 400]
    assert idle.devices[:, 0].tolist() == [600, 400]
    assert soon.host[0, 0] == idle.host[0, 0] == 64_000 - 3_000 - 1_000
    assert soon.devices[:, touched:NODES].tolist() == [[600] * (NODES - touched)] * 2
    room.reserve_many(nodes, second, -share // 2, -host * 2)
    room.evict_many(nodes, first, -share, -host, np.zeros(touched, np.int64))
    fresh = FreeCapacity(world.nodes)
    for mine, other in ((idle, fresh.idle), (soon, fresh.soon)):
        assert mine.devices.tolist() == other.devices.tolist()
        assert mine.host.tolist() == other.host.tolist()
