"""Views as people ask for them."""

from typing import Any

import pytest

from carrel import views
from carrel.client import Client
from carrel.testing import FakeScheduler
from carrel.widgets.experiment import ExperimentView
from unit.notebook.views import page_says, until


def test_views_by_name(scheduler: FakeScheduler, client: Client) -> None:
    scheduler.submit("vision", "sweep", kind="experiment", experiment={"metric": "loss"})
    scheduler.submit("vision", "desk", kind="workspace")
    shown = [views.job("sweep", client=client), views.gpus(client=client),
             views.quota(client=client), views.jobs(client=client)]  # fmt: skip
    assert isinstance(shown[0], ExperimentView)
    assert [job["name"] for job in views.jobs(client=client).jobs] == ["sweep"]
    for view in shown:
        assert view.fallback()["text/plain"]
        view.close()


def test_form_without_a_server_asks_the_kernel(
    scheduler: FakeScheduler, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = views.form("training", client=client, gpus=1, checkpoint_every="5m")
    assert form.preset == {"project": "vision", "gpus": "1", "checkpoint-every": "5m"}
    answers: list[dict[str, Any]] = []
    monkeypatch.setattr(form, "send", answers.append)
    given = {"command": "true", "name": "x"}
    page_says(form, "ask", number=1, given=given, dry_run=True)
    until(lambda: answers)
    assert (answers[0]["number"], answers[0]["forecast"]) == (1, "It would start now.")
    page_says(form, "ask", number=2, given=given, dry_run=False)
    until(lambda: len(answers) == 2)
    form.submitted = answers[1]["workload"]
    job = form.job
    assert job is not None
    assert job.name == "x"
    page_says(form, "ask", number=3, given={"gpus": "many", "command": "true"})
    until(lambda: len(answers) == 3)
    assert "gpus" in answers[2]["errors"]
