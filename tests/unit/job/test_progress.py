"""The bar that reports: normal output, at most one report a second, the outermost bar only."""

import io
from typing import Any

import pytest
from typing_extensions import override

from carrel.job import progress
from carrel.job import report as reporting


class Kept(reporting.Reporter):
    """Keeps every report."""

    def __init__(self) -> None:
        super().__init__(None)
        self.bodies: list[dict[str, Any]] = []

    @override
    def put(self, body: dict[str, Any]) -> None:
        self.bodies.append(body)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept = Kept()
    monkeypatch.setattr(reporting._ProcessReporter, "reporter", kept)
    return kept


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("carrel.job.progress.time.monotonic", lambda: now[0])
    return now


def test_it_shows_what_tqdm_shows_and_reports_the_end(kept: Kept, clock: list[float]) -> None:
    out = io.StringIO()
    assert list(progress.tqdm(range(4), file=out, unit="epoch")) == [0, 1, 2, 3]
    assert "4/4" in out.getvalue()
    last = kept.bodies[-1]
    assert (last["done"], last["total"], last["unit"]) == (4.0, 4.0, "epoch")
    assert last["rate"] > 0


def test_at_most_one_report_a_second(kept: Kept, clock: list[float]) -> None:
    with progress.tqdm(total=100, file=io.StringIO()) as bar:
        for _ in range(10):
            bar.update(1)
        assert [body["done"] for body in kept.bodies] == [1.0]
        clock[0] += 1.1
        bar.update(1)
        assert [body["done"] for body in kept.bodies] == [1.0, 11.0]
    assert len(kept.bodies) == 3


def test_a_bar_inside_another_is_not_the_jobs_progress(kept: Kept, clock: list[float]) -> None:
    for _ in progress.trange(2, file=io.StringIO()):
        for _ in progress.tqdm(range(50), file=io.StringIO()):
            clock[0] += 2
    assert {body["total"] for body in kept.bodies} == {2.0}


def test_an_unknown_end_is_left_out(kept: Kept, clock: list[float]) -> None:
    assert len(list(progress.tqdm(iter("abc"), file=io.StringIO()))) == 3
    assert "total" not in kept.bodies[-1]


def test_a_disabled_bar_still_counts_nothing_and_breaks_nothing(kept: Kept) -> None:
    assert list(progress.tqdm(range(3), disable=True)) == [0, 1, 2]
