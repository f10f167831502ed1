"""Fixtures: each test of the job side begins as a fresh process outside any job."""

from collections.abc import Iterator

import pytest

from carrel.job import checkpoint, report


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (
        "URL", "TASK_TOKEN", "PROJECT", "WORKLOAD", "CHECKPOINT_DIR", "CHECKPOINT_EVERY",
        "CONTINUE_FROM",
    ):  # fmt: skip
        monkeypatch.delenv(f"CARREL_{name}", raising=False)
    monkeypatch.setattr(report._ProcessReporter, "reporter", None)
    monkeypatch.setattr(checkpoint._Pace, "last", None)
    monkeypatch.setattr(checkpoint._Pace, "preempted", False)
    yield
    checkpoint.uninstall()
