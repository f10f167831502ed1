"""The GPU map: right shapes, right words, no injection."""

from xml.etree import ElementTree as ET

from carrel.models import Device, Holder, Node
from carrel_hub.console.pictures.gpu_map import device_sentence, gpu_map, node_facts
from unit.console import svgtree

HOSTILE = "\"><script>alert('x')</script>&"
NOW = 10_000.0


def link(project: str, name: str) -> str:
    return f"/jobs/{project}/{name}"


def node(*devices: Device) -> Node:
    return Node(
        name="node-1",
        status="ready",
        cpu_milli=8000,
        cpu_allocated_milli=2500,
        memory_bytes=64 * 1024**3,
        memory_allocated_bytes=16 * 1024**3,
        gpu_milli=1000 * len(devices),
        gpu_allocated_milli=sum(one.allocated_milli for one in devices),
        devices=list(devices),
    )


def held_by(state: str = "running", milli: int = 1000, **more: object) -> Device:
    facts: dict[str, object] = {"name": "train-7", "project": "vision", "color": 4} | more
    holder = Holder(state=state, gpu_milli=milli, **facts)  # type: ignore[arg-type]
    return Device(index=2, name="A10", memory_mib=24_576, allocated_milli=milli, holders=[holder])


def drawn(*devices: Device) -> ET.Element:
    return svgtree.parse(gpu_map([node(*devices)], link, NOW))


def test_a_share_fills_its_part_in_the_projects_colour() -> None:
    root = drawn(held_by(milli=250))
    (used,) = svgtree.with_class(root, "gpu-used")
    assert used.get("width") == "25%"
    assert "p4" in used.get("class", "")
    assert "train-7 0.25" in svgtree.words(root)
    assert "0.75 free" in svgtree.words(root)
    assert svgtree.with_class(root, "hatched") == []


def test_two_holders_lie_side_by_side() -> None:
    both = [Holder(project="vision", name=name, gpu_milli=500, state="running") for name in "ab"]
    root = drawn(Device(index=0, allocated_milli=1000, holders=both))
    assert [one.get("x") for one in svgtree.with_class(root, "gpu-used")] == ["0%", "50%"]


def test_borrowed_is_hatched_and_said() -> None:
    root = drawn(held_by(borrowed=True))
    (hatched,) = svgtree.with_class(root, "hatched")
    assert hatched.get("fill") == "url(#hatch)"
    assert "borrowed" in svgtree.words(root)


def test_held_is_dashed_and_not_filled() -> None:
    root = drawn(held_by(state="held"))
    assert svgtree.with_class(root, "gpu-used") == []
    assert len(svgtree.with_class(root, "gpu-held")) == 1
    assert "held for vision/train-7" in svgtree.words(root)


def test_giving_way_is_marked() -> None:
    root = drawn(held_by(state="releasing"))
    assert len(svgtree.with_class(root, "gpu-releasing")) == 1
    assert "preempting" in svgtree.words(root)


def test_broken_is_crossed_and_says_why() -> None:
    root = drawn(Device(index=1, broken=True, message="Xid 79"))
    assert len(svgtree.with_class(root, "gpu-cross")) == 2
    assert "broken: Xid 79" in svgtree.words(root)
    assert "free" not in svgtree.words(root)


def test_simulated_is_said_in_words() -> None:
    simulated = Device(index=0, name="A10", memory_mib=24_576, simulated=True)
    assert "simulated GPUs" in node_facts(node(simulated))
    assert "simulated" in device_sentence(simulated)
    assert "simulated" not in node_facts(node(Device(index=0)))


def test_each_cell_has_a_title_and_a_description() -> None:
    root = drawn(held_by(), Device(index=3))
    for cell in svgtree.with_class(root, "gpu-cell"):
        assert cell.get("role") == "img"
        assert [child.tag for child in cell][:2] == ["title", "desc"]


def test_foreign_work_shows_its_project_and_its_colour_only() -> None:
    foreign = (held_by(name="", project=name, color=color) for name, color in [("a", 7), ("b", 2)])
    root = drawn(*foreign)
    assert root.findall(".//a") == []
    classes = [one.get("class", "") for one in svgtree.with_class(root, "gpu-used")]
    assert ["p7" in classes[0], "p2" in classes[1]] == [True, True]
    assert "a member of a" in svgtree.words(root)


def test_a_project_that_is_gone_is_grey() -> None:
    root = drawn(held_by(color=None))
    assert "p-other" in svgtree.with_class(root, "gpu-used")[0].get("class", "")


def test_an_idle_device_says_for_how_long() -> None:
    idle = Device(index=0, idle_since=NOW - 720, holders=[Holder(project="vision", gpu_milli=1000)])
    assert "idle for 12 min" in svgtree.words(drawn(idle))
    taken = Holder(project="vision", gpu_milli=1000, since=NOW - 60)
    later = Device(index=0, idle_since=NOW - 720, holders=[taken])
    assert "idle for 1 min" in svgtree.words(drawn(later))


def test_memory_in_use_is_said_beside_how_busy_it_is() -> None:
    holder = Holder(project="vision", gpu_milli=1000)
    facts = {"memory_mib": 24_576, "memory_used_mib": 6_144, "utilization": 0.62}
    busy = Device(index=0, holders=[holder], **facts)  # type: ignore[arg-type]
    root = drawn(busy)
    (words,) = [one for one in root.iter("span") if one.get("class") == "quiet"]
    assert words.text == "62 % busy · 6 GiB of 24 GiB memory used"


def test_nothing_is_said_of_work_that_simulated_devices_cannot_do() -> None:
    taken = Holder(project="vision", gpu_milli=1000)
    simulated = Device(index=0, simulated=True, idle_since=NOW - 720, holders=[taken])
    assert "idle" not in svgtree.words(drawn(simulated)).replace("0 % busy", "")


def test_hostile_names_stay_text() -> None:
    made = gpu_map(
        [
            Node(
                name=HOSTILE,
                devices=[
                    Device(
                        index=0,
                        name=HOSTILE,
                        holders=[Holder(name=HOSTILE, project=HOSTILE, gpu_milli=1000)],
                    )
                ],
            )
        ],
        link,
        NOW,
    )
    assert "<script" not in made
    assert HOSTILE in svgtree.words(svgtree.parse(made))
