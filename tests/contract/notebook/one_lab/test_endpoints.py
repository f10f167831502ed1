"""The server's own endpoints: what they do, and who may not."""

import json
import time
import urllib.error
import urllib.request
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from carrel.testing import FakeScheduler
from contract.notebook.lab import Lab


@pytest.fixture
def job(scheduler: FakeScheduler) -> str:
    name = f"job-{uuid.uuid4().hex[:8]}"
    scheduler.submit("vision", name)
    scheduler.run("vision", name)
    return name


def refusal(lab: Lab, path: str, method: str = "POST") -> tuple[int, dict[str, Any]]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        lab.ask(path, method)
    with refused.value as answer:
        return answer.code, json.loads(answer.read())


def test_limits_and_quota(lab: Lab) -> None:
    view = lab.ask("carrel/limits")
    assert (view["name"], view["project"]["name"], view["trouble"]) == ("desk", "vision", "")
    assert view["project"]["use"]["gpus_waiting"] == 2.0


def test_extension(lab: Lab, scheduler: FakeScheduler) -> None:
    limits = {"stops_at": 5e9, "stops_because": "Idle", "warn_at": 4e9, "may_extend": True}
    scheduler.status("vision", "desk", limits=limits)
    assert lab.ask("carrel/extend", "POST")["limits"]["stops_at"] == 5e9 + 3600


def test_refused_extension_says_why(lab: Lab, scheduler: FakeScheduler) -> None:
    scheduler.status("vision", "desk", limits={"may_extend": False})
    status, body = refusal(lab, "carrel/extend")
    assert status == 409
    assert body == {"message": "This project allows no extension.", "code": "no_extension"}


def test_jobs(lab: Lab, job: str) -> None:
    names = [item["name"] for item in lab.ask("carrel/jobs")["items"]]
    assert job in names
    assert "desk" not in names


def test_suspend_resume_delete(lab: Lab, scheduler: FakeScheduler, job: str) -> None:
    for verb, request in (
        ("suspend", ("POST", f"/workloads/vision/{job}/suspend")),
        ("resume", ("POST", f"/workloads/vision/{job}/resume")),
        ("delete", ("DELETE", f"/workloads/vision/{job}")),
    ):
        lab.ask(f"carrel/jobs/vision/{job}/{verb}", "POST")
        assert request in scheduler.requests
    status, body = refusal(lab, f"carrel/jobs/vision/{job}/delete")
    assert (status, body["code"]) == (404, "not_found")


def test_work_and_what_is_new_of_it(lab: Lab, scheduler: FakeScheduler, job: str) -> None:
    first = lab.ask("carrel/work")
    assert job in [one["name"] for one in first["jobs"]]
    assert first["news"] == []
    scheduler.finish("vision", job)
    deadline = time.monotonic() + 30
    seen = first["seen"]
    told: list[dict[str, Any]] = []
    while not told and time.monotonic() < deadline:
        found = lab.ask(f"carrel/work?seen={quote(seen)}")
        seen, told = found["seen"], found.get("news", [])
    assert [one["text"].partition(" after")[0] for one in told] == [f"{job} succeeded"]


def test_forms_are_asked_filled_and_sent(lab: Lab, scheduler: FakeScheduler) -> None:
    form = lab.ask("carrel/forms/training")
    assert form["project"] == "vision"
    assert {"command", "gpus"} <= {field["flag"] for field in form["fields"]}
    name = f"form-{uuid.uuid4().hex[:8]}"
    given = {"given": {"command": "true", "name": name, "gpus": "x"}, "folder": ""}
    assert set(lab.ask("carrel/forms/training", "POST", given)["errors"]) == {"gpus"}
    given["given"] = {"command": "true", "name": name}
    assert lab.ask("carrel/forms/training?dry_run=true", "POST", given)["forecast"]
    assert lab.ask("carrel/forms/training", "POST", given)["workload"]["name"] == name
    assert scheduler.workload("vision", name)["spec"]["working_dir"] == str(lab.folder)


@pytest.mark.parametrize("body", [{"given": []}, {"folder": 7}])
def test_what_is_no_form_is_refused(lab: Lab, body: dict[str, Any]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        lab.ask("carrel/forms/training", "POST", body)
    with refused.value as answer:
        assert answer.code == 422


def test_unknown_form_is_refused(lab: Lab) -> None:
    status, body = refusal(lab, "carrel/forms/trial", "GET")
    assert (status, body["code"]) == (422, "unknown_kind")


def test_tensorboard_is_started_once(lab: Lab, scheduler: FakeScheduler, job: str) -> None:
    path = f"carrel/jobs/vision/{job}/tensorboard"
    assert lab.ask(path, "POST")["url"] == lab.ask(path, "POST")["url"] == ""
    boards = [one for one in scheduler.workloads() if one["spec"]["kind"] == "tensorboard"]
    (board,) = [one for one in boards if one["spec"]["tensorboard"]["jobs"] == [job]]
    scheduler.run("vision", board["name"])
    assert lab.ask(path)["url"] == f"/services/gateway/vision/{board['name']}/"


def test_a_request_of_ones_own_goes_to_the_gateway(lab: Lab) -> None:
    """There is none behind the fake scheduler: the answer is the one of whoever is there."""
    asked = {"method": "GET", "path": "/health", "body": None}
    assert lab.ask("carrel/endpoints/vision/model/try", "POST", asked)["status"] == 404
    with pytest.raises(urllib.error.HTTPError) as refused:
        lab.ask("carrel/endpoints/vision/model/try", "POST", {"method": "TRACE"})
    with refused.value as answer:
        assert answer.code == 422


@pytest.mark.parametrize("verb", ["format", "claim", "suspend/../delete"])
def test_other_verbs_are_not_there(lab: Lab, job: str, verb: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        lab.ask(f"carrel/jobs/vision/{job}/{verb}", "POST")
    with refused.value as answer:
        assert answer.code in (403, 404)


@pytest.mark.parametrize(
    "path", ["carrel/limits", "carrel/jobs", "carrel/work", "carrel/forms/training"]
)
def test_strangers_see_nothing(lab: Lab, path: str) -> None:
    request = urllib.request.Request(lab.url + path, headers={"Accept": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    with refused.value as answer:
        assert answer.code == 403


def test_cookie_without_its_secret_may_not_act(lab: Lab, job: str) -> None:
    """A page elsewhere can make a browser send its cookie, and nothing more."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    opener.open(lab.page("api/status"), timeout=60).close()
    path = f"{lab.url}carrel/jobs/vision/{job}/delete"
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(urllib.request.Request(path, method="POST"), timeout=60)
    with refused.value as answer:
        assert answer.code == 403
    assert lab.ask("carrel/jobs")["items"]


def test_asking_is_no_activity_of_the_server(lab: Lab) -> None:
    before = lab.ask("api/status?no_track_activity=1")["last_activity"]
    for _ in range(3):
        lab.ask("carrel/limits")
    assert lab.ask("api/status?no_track_activity=1")["last_activity"] == before
