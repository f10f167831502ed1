"""The timeline and the curves of metrics."""

import math

import pytest

from carrel.models import MetricPoint, Reason, Transition
from carrel_hub.console.chart import line_chart
from carrel_hub.console.timeline import spans_of, timeline
from unit.console import svgtree

HOSTILE = "\"><script>alert('x')</script>&"
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


def points(*values: float) -> list[MetricPoint]:
    return [
        MetricPoint(at=float(step), step=step, value=value) for step, value in enumerate(values)
    ]


def test_a_curve_has_axes_ticks_and_a_sentence() -> None:
    root = svgtree.parse(line_chart("loss", points(2.0, 1.0, 0.5)))
    assert len(svgtree.with_class(root, "curve")) == 1
    assert len(svgtree.with_class(root, "grid")) >= 2
    assert "loss: 0.5 at step 2, between 0.5 and 2" in svgtree.words(root)


def test_values_that_are_no_numbers_leave_gaps() -> None:
    root = svgtree.parse(line_chart("loss", points(2.0, 1.0, math.nan, 0.5, 0.4)))
    assert len(svgtree.with_class(root, "curve")) == 2
    assert line_chart("loss", points(math.nan)) == ""


def test_a_resumed_attempt_does_not_draw_back() -> None:
    again = [*points(3.0, 2.0, 1.0), MetricPoint(at=9.0, step=1, value=1.9)]
    (curve,) = svgtree.with_class(svgtree.parse(line_chart("loss", again)), "curve")
    assert curve.get("d", "").count("M") == 2


@pytest.mark.parametrize(
    "values", [(1.0,), (0.0, 0.0), (5.0, 5.0, 5.0), (1e-12, 2e-12), (1e300, -1e300)]
)
def test_flat_single_and_extreme_curves_are_drawn(values: tuple[float, ...]) -> None:
    assert "nan" not in line_chart("x", points(*values))


def test_a_hostile_metric_name_stays_text() -> None:
    root = svgtree.parse(line_chart(HOSTILE, points(1.0, 2.0)))
    assert HOSTILE in svgtree.words(root)
