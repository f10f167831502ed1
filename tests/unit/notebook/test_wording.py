"""Words and pictures in plain text."""

import msgspec
import pytest

from carrel import wording
from carrel.models import Project, Workload


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"), (45, "45 s"), (59.6, "59 s"), (720, "12 min"), (3600, "1 h"),
        (11100, "3 h 05 min"), (2 * 86400 + 4 * 3600, "2 d 4 h"), (86400, "1 d"), (-3, "0 s"),
    ],
)  # fmt: skip
def test_durations(seconds: float, told: str) -> None:
    assert wording.duration(seconds) == told


@pytest.mark.parametrize(
    ("count", "told"), [(0, "no GPU"), (0.5, "0.5 GPU"), (1, "1 GPU"), (2, "2 GPUs")]
)
def test_gpus(count: float, told: str) -> None:
    assert wording.gpus(count) == told


@pytest.mark.parametrize(
    ("quota", "use", "line", "bar"),
    [
        (4, (5, 2, 5), "3 of 4 guaranteed · 2 borrowed · 5 pending", "███░|▒▒"),
        (2, (0, 0, 0), "0 of 2 guaranteed", "░░|"),
        (0, (1, 1, 0), "0 of 0 guaranteed · 1 borrowed", "|▒"),
        (None, (3, 0, 0), "3 in use, no bound", "███|"),
        (100, (50, 0, 0), "50 of 100 guaranteed", "██████░░░░░░|"),
    ],
)
def test_quota_line(
    quota: float | None, use: tuple[float, float, float], line: str, bar: str
) -> None:
    names = ("gpus_allocated", "gpus_borrowed", "gpus_waiting")
    project = msgspec.convert(
        {"name": "vision", "quota": {"gpus": quota}, "use": dict(zip(names, use, strict=True))},
        Project,
    )
    assert (wording.quota_words(project), wording.quota_bar(project)) == (line, bar)


def test_phase_of_a_newer_server_is_its_own_word() -> None:
    assert (wording.phase_word("dreaming"), wording.phase_icon("dreaming")) == ("Dreaming", "•")


def test_summary() -> None:
    status = {
        "phase": "running", "started_at": 40.0, "borrowed": True,
        "progress": {"done": 31.0, "total": 100.0},
    }  # fmt: skip
    workload = msgspec.convert({"name": "x", "project": "vision", "status": status}, Workload)
    assert wording.summary(workload, 100.0) == (
        "vision/x: running, for 1 min, 31 %. "
        "On borrowed GPUs: it gives them back when their project needs them."
    )
