"""The model catalogue: entries that come along and those of people; what nodes can hold."""

import re

import pytest

from carrel_scheduler.policy.catalogue import entries, included, why_not
from carrel_schema.answers import DeviceView, NodeView
from carrel_schema.governance.catalogue import CatalogueModel
from carrel_schema.governance.templates import NOT_IN_TEMPLATES, TemplateOut


def node(*memory_gib: float, simulated: bool = False, broken: bool = False) -> NodeView:
    devices = [
        DeviceView(
            index=index,
            memory_mib=int(gib * 1024 * 0.98),
            simulated=simulated,
            broken=broken,
        )
        for index, gib in enumerate(memory_gib)
    ]
    return NodeView(name="n", devices=devices)


@pytest.mark.parametrize(
    ("gpus", "memory", "nodes", "why"),
    [
        (0, 0, [], ""),
        (1, 24, [node(24)], ""),
        (2, 48, [node(48, 48), node(24)], ""),
        (0.5, 24, [node(24)], ""),
        (1, 24, [], "It needs 1 GPU with 24 GiB of memory on one node; here are none."),
        (1, 24, [node(80, simulated=True), node(80, broken=True)], "here are none"),
        (1, 48, [node(24, 24)], "the largest GPU here has 24 GiB"),
        (2, 48, [node(48, 24), node(48)], "It needs 2 GPUs .* no node has more than 1"),
        (4, 0, [node(24, 24)], "It needs 4 GPUs on one node; no node has more than 2"),
    ],
)
def test_what_nodes_can_hold(gpus: float, memory: float, nodes: list[NodeView], why: str) -> None:
    found = why_not({"gpus": gpus}, memory, nodes)
    if why:
        assert re.search(why, found)
    else:
        assert found == ""


def test_entries_that_come_along_name_models_and_are_requests_of_endpoints() -> None:
    for name, one in included().items():
        assert one.model is not None, name
        assert one.kinds == ["inference"]
        assert one.fields["kind"] == "inference"
        assert not NOT_IN_TEMPLATES & one.fields.keys()
    found = {one.name: one for one in entries([], [node(24)])}
    assert found["chat-example"].runs_here
    assert found["llama-2-7b-chat"].runs_here
    assert not found["mixtral-8x7b-instruct"].runs_here


def test_of_a_name_the_narrowest_template_counts() -> None:
    model = CatalogueModel(source="ours/model")
    wide = TemplateOut(name="chat-example", scope="platform", model=model, fields={"gpus": 1})
    narrow = TemplateOut(name="chat-example", scope="project/vision", fields={"gpus": 2})
    assert {one.name: one.source for one in entries([wide], [])}["chat-example"] == "ours/model"
    assert "chat-example" not in {one.name for one in entries([wide, narrow], [])}
