"""The timeline."""

from carrel.models import Reason, Transition
from carrel_hub.console.pictures.timeline import spans_of, timeline
from unit.console import svgtree

NOW = 10_000.0


def change(at: float, phase: str, **more: object) -> Transition:
    return Transition(at=at, to_phase=phase, **more)  # type: ignore[arg-type]


def test_the_timeline_is_to_scale_and_hatches_borrowed_time() -> None:
    changes = [
        change(NOW - 100, "pending"),
        change(NOW - 80, "running", borrowed=True, node="node-1", devices=(0, 2)),
        change(NOW - 30, "pending", reason=Reason(token="", sentence="Gave way.")),
    ]
    spans = spans_of(changes)
    assert [span.where for span in spans] == ["", "node-1, GPUs 0, 2", ""]
    assert [span.seconds(NOW) for span in spans] == [20, 50, 30]
    root = svgtree.parse(timeline(spans, NOW))
    pieces = svgtree.with_class(root, "span")
    assert [one.get("width") for one in pieces] == ["20%", "50%", "30%"]
    (hatched,) = svgtree.with_class(root, "hatched")
    assert hatched.get("x") == "20%"
    assert "running 50 s, then pending 30 s" in svgtree.words(root)


def test_the_timeline_of_finished_work_ends_where_it_ended() -> None:
    spans = spans_of([change(0, "pending"), change(10, "running"), change(40, "succeeded")])
    pieces = svgtree.with_class(svgtree.parse(timeline(spans, NOW)), "span")
    assert [one.get("width") for one in pieces] == ["25%", "75%"]


def test_no_changes_no_picture() -> None:
    assert timeline([], NOW) == ""
