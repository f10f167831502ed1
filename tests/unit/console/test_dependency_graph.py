"""The graph of work that waits for other work."""

from carrel_hub.console.pictures.dependency_graph import Box, columns, dependency_graph
from unit.console import svgtree

PREP = Box("p", "prep", "succeeded", "/jobs/vision/prep")
TRAIN = Box("t", "train", "running", "/jobs/vision/train", {"p": "ok"})
WATCH = Box("w", "watch", "pending", "/jobs/vision/watch", {"p": "any", "gone": "ok"})
REPORT = Box("r", "report-<b>of-everything</b>", "pending", "/r", {"t": "ok", "p": "ok"})
ALL = [PREP, TRAIN, WATCH, REPORT]


def test_a_column_is_the_longest_way() -> None:
    assert columns(ALL) == [[PREP], [TRAIN, WATCH], [REPORT]]
    assert columns([]) == []


def test_boxes_are_links_and_lines_say_what_is_waited_for() -> None:
    root = svgtree.parse(dependency_graph(ALL, "t"))
    assert len(svgtree.with_class(root, "graph-line")) == 4
    assert len(svgtree.with_class(root, "any")) == 1
    links = [one.get("href") for one in root.iter() if one.tag == "a"]
    assert links == ["/jobs/vision/prep", "/jobs/vision/watch", "/r"]
    assert "prep succeeded train running" in " ".join(one.text or "" for one in root.iter("text"))
    assert "report-<b>of-everything</b>: pending" in svgtree.words(root)
    assert "report-<b>of-everyth…" not in svgtree.words(root)
    assert svgtree.with_class(root, "current")


def test_boxes_do_not_overlap() -> None:
    root = svgtree.parse(dependency_graph(ALL, "t"))
    places = [(one.get("x"), one.get("y")) for one in svgtree.with_class(root, "graph-box")]
    assert len(set(places)) == len(ALL)


def test_work_of_its_own_is_not_drawn() -> None:
    assert dependency_graph([PREP], "p") == ""


def test_a_stored_circle_is_drawn_and_not_followed_for_ever() -> None:
    ring = [Box("a", "a", "pending", "", {"b": "ok"}), Box("b", "b", "pending", "", {"a": "ok"})]
    assert sum(len(column) for column in columns(ring)) == 2
