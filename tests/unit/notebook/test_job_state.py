"""What a job's view knows, without a page and without a scheduler."""

from typing import Any

import msgspec
import pytest

from carrel.models import Event, MetricPoint, Report, Workload
from carrel.widgets.job_state import LINES, POINTS, JobState
from carrel_schema.reading import read


def workload(**status: Any) -> Workload:
    base = {"name": "x", "project": "vision", "uid": "u", "spec": {"gpus": 2, "tasks": 1}}
    return read(msgspec.json.encode(base | {"status": status}), Workload)


def report(step: int, **metrics: float) -> Event:
    return Event(
        type="report", workload=workload(phase="running"), report=Report(step=step, metrics=metrics)
    )


def test_equal_while_nothing_changed() -> None:
    story = JobState(workload(phase="running", started_at=1.0))
    assert story.traits() == story.traits()


def test_reports_become_curves() -> None:
    story = JobState(workload(phase="running"))
    story.take_curves({"loss": [MetricPoint(at=0.0, step=1, value=2.0)]})
    story.take(report(2, loss=1.0, accuracy=0.5))
    assert story.traits()["curves"] == {"loss": [[1.0, 2.0], [2.0, 1.0]], "accuracy": [[2.0, 0.5]]}


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    story = JobState(workload(phase="running"))
    for step in range(3000):
        story.take(report(step, loss=float(step)))
    points = story.curves["loss"]
    assert len(points) <= POINTS
    assert (points[0][0], points[-1][0]) == (0.0, 2999.0)
    assert points == sorted(points)


def test_output_cut_anywhere_becomes_lines() -> None:
    story = JobState(workload(phase="running"))
    for piece in ("one\ntw", "o\n", "thr", "ee"):
        story.take_text(piece)
    assert story.traits()["lines"] == ["one", "two", "three"]


def test_only_the_last_lines_are_kept() -> None:
    story = JobState(workload(phase="running"))
    story.take_text("".join(f"{number}\n" for number in range(100)))
    assert story.traits()["lines"] == [str(number) for number in range(100 - LINES, 100)]


def test_progress_bar_shows_its_last_state() -> None:
    story = JobState(workload(phase="running"))
    story.take_text(" 10%|#\r 20%|##\r 30%|###\n")
    assert story.traits()["lines"] == [" 30%|###"]


def test_progress_bar_in_pieces_stays_one_line() -> None:
    story = JobState(workload(phase="running"))
    for piece in ("start\r\n", " 10%|#\r", " 20%|##\r", " 30%|###"):
        story.take_text(piece)
    assert story.traits()["lines"] == ["start", " 30%|###"]


def test_new_run_prints_from_its_beginning() -> None:
    story = JobState(workload(phase="running"))
    story.take_text("old")
    story.begin_output()
    story.take_text("new\n")
    assert story.traits()["lines"] == ["new"]


def test_events_of_an_older_namesake_are_passed_over() -> None:
    story = JobState(workload(phase="running"))
    other = msgspec.structs.replace(workload(phase="failed"), uid="older")
    story.take(Event(type="workload", workload=other))
    assert story.phase == "running"


def test_removal() -> None:
    story = JobState(workload(phase="running"))
    story.take(Event(type="deleted", workload=workload(phase="running")))
    assert (story.phase, story.over, story.traits()["job"]["word"]) == (
        "deleted",
        True,
        "Cancelled",
    )


@pytest.mark.parametrize(
    ("rule", "lost", "step", "why", "loss"),
    [
        (
            "reclaim",
            100.0,
            1200,
            "it was on borrowed GPUs",
            "1 min 40 s of work was lost; it goes on from the checkpoint at step 1,200",
        ),
        (
            "preempt",
            0.0,
            None,
            "a more urgent job of its project needed its GPUs",
            "no work was lost",
        ),
    ],
)
def test_facts_of_a_preemption(
    rule: str, lost: float, step: int | None, why: str, loss: str
) -> None:
    facts = {"at": 5.0, "rule": rule, "for_project": "speech", "lost_seconds": lost}
    story = JobState(workload(phase="running", last_preemption=facts | {"checkpoint_step": step}))
    assert story.traits()["job"]["preemption"] == {
        "at": 5.0,
        "text": f"preempted for `speech` ({why}); {loss}.",
    }


def test_waiting_tells_place_and_reason() -> None:
    reason = {"token": "WaitsForRoom", "sentence": "Waiting for 2 GPUs.", "help": "Soon."}
    job = JobState(workload(phase="pending", queue_position=3, reason=reason)).traits()["job"]
    assert (job["place"], job["reason"], job["help"]) == (3, "Waiting for 2 GPUs.", "Soon.")
    assert (job["word"], job["gpus"], job["over"]) == ("Pending", "2 GPUs", False)


def test_borrowed_gpus_are_said() -> None:
    task = {"index": 0, "node": "node-1", "devices": [0, 3]}
    job = JobState(workload(phase="running", borrowed=True, tasks=[task])).traits()["job"]
    assert job["where"] == "node-1, GPU 0 and 3"
    assert "gives them back" in job["reason"]
