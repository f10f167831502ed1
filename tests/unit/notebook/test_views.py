"""Live views without a page: what they send, when they stop, what is left without JavaScript."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from carrel.client import Client
from carrel.client.transport import JitteredBackoff
from carrel.notebook.job import Job
from carrel.testing import FakeScheduler
from carrel.widgets.job import JobView
from carrel.widgets.tables import JobsView, QuotaView
from unit.notebook.views import page_says, until


@pytest.fixture
def view(scheduler: FakeScheduler, client: Client) -> Iterator[JobView]:
    scheduler.submit("vision", "x", gpus=1)
    made = JobView(client, client.get_workload("vision", "x"))
    made.pause = 0.02
    yield made
    made.close()


def test_follows_a_training_to_its_end(view: JobView, scheduler: FakeScheduler) -> None:
    page_says(view, "shown")
    scheduler.wait("vision", "x", "Waiting for 1 GPU.")
    until(lambda: view.job["reason"] == "Waiting for 1 GPU.")
    scheduler.run("vision", "x", devices=[1])
    scheduler.log("vision", "x", "hello")
    scheduler.report("vision", "x", step=5, total=10, metrics={"loss": 0.5})
    until(lambda: view.job["word"] == "Running" and view.lines == ["hello"])
    until(lambda: view.curves == {"loss": [[5.0, 0.5]]})
    assert view.job["progress"]["done"] == 5
    scheduler.finish("vision", "x")
    until(lambda: not view.live)
    assert (view.job["word"], view.settled, view.trouble) == ("Succeeded", True, "")


def test_sends_nothing_while_nothing_changes(
    view: JobView, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(view, "_send", lambda message, **_: sent.append(message["state"]))
    scheduler.run("vision", "x")
    page_says(view, "shown")
    until(lambda: any(one.get("job", {}).get("word") == "Running" for one in sent))
    sent.clear()
    status = scheduler.workload("vision", "x")["status"]
    for _ in range(5):
        scheduler.status("vision", "x", metrics=status.get("metrics", {}))
    scheduler.log("vision", "x", "now")
    until(lambda: sent)
    assert [set(one) for one in sent] == [{"lines"}]


def test_bursts_are_few_messages(
    view: JobView, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.pause = 0.5
    scheduler.run("vision", "x")
    page_says(view, "shown")
    until(lambda: view.job["word"] == "Running")
    sent: list[Any] = []
    monkeypatch.setattr(view, "_send", lambda message, **_: sent.append(set(message["state"])))
    began = time.monotonic()
    for step in range(50):
        scheduler.report("vision", "x", step=step, metrics={"loss": 1.0})
    until(lambda: len(view.curves.get("loss", [])) == 50)
    assert len(sent) <= 3 + (time.monotonic() - began) / view.pause


def test_stops_when_nobody_looks_and_goes_on_when_somebody_does(
    view: JobView, scheduler: FakeScheduler
) -> None:
    page_says(view, "shown")
    page_says(view, "shown")
    page_says(view, "hidden")
    live = [view.live]
    page_says(view, "hidden")
    assert [*live, view.live] == [True, False]
    scheduler.run("vision", "x")
    page_says(view, "shown")
    until(lambda: view.job["word"] == "Running")


def test_what_comes_into_sight_is_brought_up_to_date_at_once(
    view: JobView, scheduler: FakeScheduler
) -> None:
    page_says(view, "shown")
    until(lambda: view.live)
    scheduler.run("vision", "x")
    until(lambda: view.job["word"] == "Running")
    view.pause = 600.0
    page_says(view, "unseen")
    scheduler.finish("vision", "x")
    view.pause = 0.02
    page_says(view, "seen")
    until(lambda: view.job["word"] == "Succeeded")


def test_output_is_followed_only_while_it_is_seen(view: JobView, scheduler: FakeScheduler) -> None:
    scheduler.run("vision", "x")
    page_says(view, "shown")
    scheduler.log("vision", "x", "one")
    until(lambda: view.lines == ["one"])
    page_says(view, "unseen")
    until(lambda: view._reading is not None and view._reading.done())
    scheduler.log("vision", "x", "two")
    scheduler.report("vision", "x", step=1, metrics={"loss": 1.0})
    until(lambda: view.curves)
    assert view.lines == ["one"]
    page_says(view, "seen")
    until(lambda: view.lines == ["one", "two"])


def test_finished_training_still_shows_its_curves_and_last_lines(
    view: JobView, scheduler: FakeScheduler
) -> None:
    scheduler.run("vision", "x")
    scheduler.log("vision", "x", "bye")
    scheduler.report("vision", "x", step=1, metrics={"loss": 1.0})
    scheduler.finish("vision", "x")
    page_says(view, "shown")
    until(lambda: not view.live)
    assert view.settled
    assert (view.lines, view.curves) == (["bye"], {"loss": [[1.0, 1.0]]})


def test_removed_training_says_so(view: JobView, client: Client) -> None:
    page_says(view, "shown")
    until(lambda: view.live)
    client.delete_workload("vision", "x")
    until(lambda: view.job["word"] == "Cancelled")
    until(lambda: not view.live)


def test_buttons_work_through_the_kernel_where_there_is_no_server(
    view: JobView, scheduler: FakeScheduler
) -> None:
    scheduler.run("vision", "x")
    page_says(view, "act", verb="suspend")
    until(lambda: ("POST", "/workloads/vision/x/suspend") in scheduler.requests)
    page_says(view, "act", verb="format-the-disk")
    assert view.trouble == ""


def test_losing_the_right_to_look_is_said(view: JobView, scheduler: FakeScheduler) -> None:
    scheduler.fail_next(401, 401, 401)
    page_says(view, "shown")
    until(lambda: view.trouble)
    assert view.trouble.startswith("This view does not move any more: ")


def test_a_silent_scheduler_is_said_until_it_is_heard_again(scheduler: FakeScheduler) -> None:
    back = threading.Event()

    async def sleep(_: float) -> None:
        await asyncio.to_thread(back.wait)

    scheduler.submit("vision", "x", gpus=1)
    with Client(scheduler.url, scheduler.token("ada"), pauses=JitteredBackoff(sleep)) as client:
        view = JobView(client, client.get_workload("vision", "x"))
        page_says(view, "shown")
        scheduler.run("vision", "x")
        until(lambda: view.job["word"] == "Running")
        scheduler.end_streams()
        until(lambda: view.silent_since > 0.0)
        back.set()
        until(lambda: view.silent_since == 0.0)
        view.close()


def test_static_fallbacks(view: JobView, scheduler: FakeScheduler, client: Client) -> None:
    data, _ = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith("vision/x: pending")
    assert "Pending</span> <b>x</b>" in data["text/html"]
    assert data["application/vnd.carrel.job+json"]["job"]["name"] == "x"


def test_fallback_escapes_what_jobs_print(view: JobView, scheduler: FakeScheduler) -> None:
    view._story.take_text("<script>alert(1)</script>\n")
    assert "<script>" not in view.fallback()["text/html"]


def test_shown_job_keeps_its_last_state_in_the_notebook(
    scheduler: FakeScheduler, client: Client, ipython: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.submit("vision", "y")
    job = Job(client, client.get_workload("vision", "y"))
    published: list[Any] = []
    monkeypatch.setattr(
        ipython.display_pub, "publish", lambda data, *_, **more: published.append((data, more))
    )
    ipython.display_formatter.format(job)
    assert job.view() is job.view()
    shown, told = published[0]
    model = job.view().model_id
    assert shown["application/vnd.jupyter.widget-view+json"]["model_id"] == model
    assert told == {"transient": {"display_id": model}, "update": False}
    scheduler.run("vision", "y")
    scheduler.finish("vision", "y")
    until(lambda: len(published) == 2)
    final, told = published[1]
    assert "Succeeded</span> <b>y</b>" in final["text/html"]
    assert told == {"transient": {"display_id": model}, "update": True}
    job.view().close()


def test_jobs_table_follows(scheduler: FakeScheduler, client: Client) -> None:
    table = JobsView(client, [], "ada")
    table.pause = 0.02
    page_says(table, "shown")
    assert table.fallback()["text/plain"].startswith("No jobs yet")
    scheduler.submit("vision", "old")
    scheduler.submit("vision", "not-mine", user="bob")
    until(lambda: [job["name"] for job in table.jobs] == ["old"])
    scheduler.finish("vision", "old")
    scheduler.submit("vision", "new")
    until(lambda: [job["name"] for job in table.jobs] == ["new", "old"])
    client.delete_workload("vision", "new")
    until(lambda: [job["name"] for job in table.jobs] == ["old"])
    assert "old" in table.fallback()["text/html"]
    table.close()
    assert not table.live


def test_quota_follows(scheduler: FakeScheduler, client: Client) -> None:
    quota = QuotaView(client, client.list_projects())
    quota.pause = 0.02
    page_says(quota, "shown")
    until(lambda: ("GET", "/events") in scheduler.requests)
    scheduler.project("vision", use={"gpus_allocated": 1.0, "gpus_borrowed": 0, "gpus_waiting": 0})
    until(lambda: scheduler.submit("vision", f"n{time.monotonic_ns()}") and moved(quota))
    assert quota.projects[0]["words"] == "1 of 4 guaranteed"
    quota.close()


def moved(quota: QuotaView) -> bool:
    return bool(quota.projects[0]["words"] != "4 of 4 guaranteed · 1 borrowed · 2 pending")
