"""The handle of a training."""

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from carrel import results
from carrel.client import Client
from carrel.notebook.job import Job
from carrel.results import NoResult
from carrel.testing import FakeScheduler

TIMERS: list[threading.Timer] = []


@pytest.fixture
def job(scheduler: FakeScheduler, client: Client) -> Iterator[Job]:
    scheduler.submit("vision", "x", gpus=1, command=["python"])
    yield Job(client, client.get_workload("vision", "x"))
    while TIMERS:  # what was waited for may be seen before the scheduler is done with it
        TIMERS.pop().join()


def soon(act: Callable[[], Any], seconds: float = 0.1) -> None:
    TIMERS.append(threading.Timer(seconds, act))
    TIMERS[-1].start()


def test_tells_what_is_asked_now(job: Job, scheduler: FakeScheduler) -> None:
    assert job.status == "pending"
    scheduler.wait("vision", "x", "Waiting for 1 GPU.")
    assert job.reason == "Waiting for 1 GPU."
    scheduler.run("vision", "x")
    assert (job.status, job.reason) == ("running", "")
    assert re.match(r"<Job vision/x: running, for \d+ s", repr(job))


def test_tells_what_would_help_while_it_waits(job: Job, scheduler: FakeScheduler) -> None:
    told = "An admin could let project `vision` borrow what others leave idle."
    scheduler.remedies("vision", "x", {"change": "may-borrow", "sentence": told})
    assert job.remedies() == [told]
    scheduler.run("vision", "x")
    assert job.remedies() == []


def test_wait_ends_with_the_job(job: Job, scheduler: FakeScheduler) -> None:
    scheduler.run("vision", "x")
    soon(lambda: scheduler.finish("vision", "x"))
    assert job.wait() == "succeeded"


def test_wait_ends_with_its_removal(job: Job) -> None:
    soon(job.cancel)
    assert job.wait() == "deleted"


def test_wait_of_what_is_over_returns_at_once(job: Job, scheduler: FakeScheduler) -> None:
    scheduler.run("vision", "x")
    scheduler.finish("vision", "x", exit_code=3)
    assert job.wait() == "failed"
    assert job.reason == "Ended with exit code 3."


def test_a_training_is_ready_once_it_runs(job: Job, scheduler: FakeScheduler) -> None:
    soon(lambda: scheduler.run("vision", "x"))
    assert job.wait_ready() == "running"


def test_wait_has_an_end(job: Job) -> None:
    assert job.wait(timeout=0.2) == "pending"


def test_wait_outlives_a_restart_of_the_scheduler(job: Job, scheduler: FakeScheduler) -> None:
    scheduler.run("vision", "x")
    soon(scheduler.end_streams)
    soon(lambda: scheduler.finish("vision", "x"), 0.4)
    assert job.wait(timeout=60) == "succeeded"


def test_stop_button_leaves_it_running(
    job: Job,
    client: Client,
    scheduler: FakeScheduler,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scheduler.run("vision", "x")

    def interrupted(coroutine: Any) -> Any:
        monkeypatch.undo()
        coroutine.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(client.loop, "run", interrupted)
    assert job.wait() == "running"
    assert "`x` goes on; only the waiting stopped." in capsys.readouterr().out


def test_steers(job: Job, scheduler: FakeScheduler) -> None:
    scheduler.run("vision", "x")
    job.suspend()
    assert job.status in ("stopping", "stopped")
    job.resume()
    assert job.status == "pending"
    job.cancel()
    assert job.status == "deleted"
    assert "vision/x" in repr(job)


def test_logs_and_metrics(job: Job, scheduler: FakeScheduler) -> None:
    scheduler.run("vision", "x")
    scheduler.log("vision", "x", "one", "two")
    scheduler.report("vision", "x", step=3, metrics={"loss": 0.5})
    assert job.logs(tail=1) == "two\n"
    assert [(p.step, p.value) for p in job.metrics()["loss"]] == [(3, 0.5)]
    scheduler.finish("vision", "x")
    assert "".join(job.follow()) == "one\ntwo\n"


def test_result_is_what_the_cell_handed_back(client: Client, scheduler: FakeScheduler) -> None:
    scheduler.submit("vision", "x")
    job = Job(client, client.get_workload("vision", "x"))
    with pytest.raises(TimeoutError, match="`x` has not ended yet: it is pending"):
        job.result(timeout=0.05)
    scheduler.run("vision", "x")
    scheduler.finish("vision", "x", exit_code=1)
    with pytest.raises(NoResult, match=r"`x` failed without a result: Ended with exit code 1\."):
        job.result()
    scheduler.hand_back("vision", "x", results.encode_error(ZeroDivisionError("by zero")))
    with pytest.raises(ZeroDivisionError):
        job.result()
    scheduler.hand_back("vision", "x", results.encode_value([1, 2]))
    assert job.result() == [1, 2]


def test_endpoint_is_where_requests_go(job: Job) -> None:
    assert job.endpoint.url.endswith("/services/gateway/vision/x/")
