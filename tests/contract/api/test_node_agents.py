"""What agents on nodes report: about their own node, and only what a node can have."""

from typing import Any

import pytest

from carrel_scheduler.node.contract import DeviceUse, OwnerUse
from contract.api.service import Desk

DEVICE = {"index": 0, "uuid": "GPU-0", "name": "H200", "memory_mib": 143_771, "simulated": False}
USE = {
    "index": 0,
    "utilization": 0.5,
    "memory_used_mib": 100,
    "owners": [{"owner": "pod-uid", "utilization": None, "memory_used_mib": 100}],
}
REPORT = {"driver": "580", "devices": [DEVICE], "use": [USE]}


async def test_an_agent_tells_of_its_own_node(desk: Desk) -> None:
    path = "/nodes/node-1/report"
    assert (await desk.ask("POST", path, "agent-node-1", json=REPORT)).status == 204
    [(node, report)] = desk.agents.reports
    assert (node, report.driver, report.devices[0].uuid) == ("node-1", "580", "GPU-0")
    own = OwnerUse(owner="pod-uid", utilization=None, memory_used_mib=100)
    assert report.use == (DeviceUse(index=0, utilization=0.5, memory_used_mib=100, owners=(own,)),)
    refused = await desk.ask("POST", path, "agent-node-2", json=REPORT)
    assert (refused.status, refused.body["code"]) == (403, "wrong_node_token")
    assert len(desk.agents.reports) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"devices": [DEVICE, DEVICE]}, "devices"),
        ({"devices": [DEVICE | {"index": 64}]}, "devices"),
        ({"devices": [DEVICE] * 65}, "devices"),
        ({"use": [USE | {"index": 1}]}, "use"),
        ({"use": [USE | {"utilization": 1.5}]}, "use"),
        ({"use": [USE, USE]}, "use"),
        ({"links": [{"first": 0, "second": 1, "hops": 0}]}, "links"),
        ({"devices": [DEVICE | {"name": "x" * 257}]}, "devices"),
    ],
)
async def test_what_no_node_can_have_is_refused(
    desk: Desk, change: dict[str, Any], field: str
) -> None:
    reply = await desk.ask("POST", "/nodes/node-1/report", "agent-node-1", json=REPORT | change)
    assert reply.status == 422
    assert reply.body["errors"][0]["field"].startswith(field)
    assert not desk.agents.reports
