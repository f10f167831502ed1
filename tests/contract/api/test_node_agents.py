"""What agents on nodes report: about their own node, and only what a node can have."""

from typing import Any

import pytest

from carrel_scheduler.node.contract import DeviceUse, MigResult, OwnerUse
from contract.api.service import ApiHarness

DEVICE = {"index": 0, "uuid": "GPU-0", "name": "H200", "memory_mib": 143_771, "simulated": False}
USE = {
    "index": 0,
    "utilization": 0.5,
    "memory_used_mib": 100,
    "owners": [{"owner": "pod-uid", "utilization": None, "memory_used_mib": 100}],
}
REPORT = {"driver": "580", "devices": [DEVICE], "use": [USE]}


async def test_an_agent_tells_of_its_own_node(harness: ApiHarness) -> None:
    path = "/nodes/node-1/report"
    reply = await harness.ask("POST", path, "agent-node-1", json=REPORT)
    part = {"pod": "pod-uid", "device": "GPU-0", "memory_mib": 4096}
    assert (reply.status, reply.body) == (200, {"limits": [part]})
    [(node, report)] = harness.agents.reports
    assert (node, report.driver, report.devices[0].uuid) == ("node-1", "580", "GPU-0")
    own = OwnerUse(owner="pod-uid", utilization=None, memory_used_mib=100)
    assert report.use == (DeviceUse(index=0, utilization=0.5, memory_used_mib=100, owners=(own,)),)
    refused = await harness.ask("POST", path, "agent-node-2", json=REPORT)
    assert (refused.status, refused.body["code"]) == (403, "wrong_node_token")
    assert len(harness.agents.reports) == 1


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
    harness: ApiHarness, change: dict[str, Any], field: str
) -> None:
    reply = await harness.ask("POST", "/nodes/node-1/report", "agent-node-1", json=REPORT | change)
    assert reply.status == 422
    assert reply.body["errors"][0]["field"].startswith(field)
    assert not harness.agents.reports


async def test_an_agent_hears_which_instances_its_own_node_is_to_have(harness: ApiHarness) -> None:
    path = "/nodes/node-1/mig"
    asked = await harness.ask("POST", path, "agent-node-1", json={})
    [order] = asked.body["orders"]
    assert (order["device"], order["profile"], order["slots"]) == ("GPU-0", "1g.10gb", 1)
    done = {"results": [{"id": order["id"], "uuid": "MIG-1"}]}
    assert (await harness.ask("POST", path, "agent-node-1", json=done)).body == {"orders": []}
    assert harness.agents.exchanges[1][1].results == (MigResult(id="o1", uuid="MIG-1"),)
    for token in ("agent-node-2", "ada", "root"):
        assert (await harness.ask("POST", path, token, json=done)).status == 403
    assert len(harness.agents.exchanges) == 2


@pytest.mark.parametrize("uuid", ["GPU-0", "MIG-1,GPU-0", "all", "MIG-1 2", "MIG-" + "x" * 121])
async def test_what_names_no_instance_is_refused(harness: ApiHarness, uuid: str) -> None:
    body = {"results": [{"id": "o1", "uuid": uuid}]}
    reply = await harness.ask("POST", "/nodes/node-1/mig", "agent-node-1", json=body)
    assert (reply.status, reply.body["errors"][0]["field"]) == (422, "results.0.uuid")
    assert not harness.agents.exchanges
