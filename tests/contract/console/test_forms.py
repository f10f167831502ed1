"""What forms do: submitting, steering, deleting, and the rules of projects."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from carrel import Client
from contract.console.site import Site, Visitor

TRAINING = {
    "name": "train-9",
    "project": "vision",
    "command": "python train.py --lr 0.1",
    "gpus": "2",
    "cpu": "4",
    "memory": "8G",
}


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "ada") as visitor:
        yield visitor


@pytest.fixture
async def root(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "root") as visitor:
        yield visitor


async def test_a_training_is_submitted(site: Site, ada: Visitor) -> None:
    page = await ada.post("submit", TRAINING)
    assert (page.status, page.address) == (200, site.url("jobs/vision/train-9"))
    spec = site.scheduler.workload("vision", "train-9")["spec"]
    assert spec["command"] == ["python", "train.py", "--lr", "0.1"]
    assert (spec["gpus"], spec["cpu_millicores"], spec["memory_bytes"]) == (2, 4000, 8 * 1024**3)
    assert spec["user"] == "ada"


async def test_what_is_wrong_is_shown_at_its_field_and_nothing_is_lost(ada: Visitor) -> None:
    page = await ada.post("submit", TRAINING | {"gpus": "two", "command": "echo 'open"})
    assert page.status == 422
    assert 'aria-describedby="gpus-note"' in page.text
    assert "is no number of GPUs; write 0, 1 or 0.5." in page.words
    assert "has no partner" in page.text
    assert 'value="train-9"' in page.text
    assert "echo &#39;open" in page.text


async def test_the_apis_objection_is_shown_at_its_field(site: Site, ada: Visitor) -> None:
    page = await ada.post("submit", TRAINING | {"name": "train-7"})
    assert page.status == 422
    assert 'id="name-note">This should be' in page.text or "already a job" in page.words
    refused = await ada.post("submit", TRAINING | {"project": "speech"})
    assert refused.status == 422
    assert "You are not a member of" in refused.words


async def test_suspend_resume_and_keep(site: Site, ada: Visitor) -> None:
    at = "jobs/vision/train-8"
    page = await ada.post(f"{at}/suspend", form_at=at)
    assert page.address == site.url(at)
    assert ("POST", "/workloads/vision/train-8/suspend") in site.scheduler.requests
    await ada.post(f"{at}/resume", form_at=at)
    assert ("POST", "/workloads/vision/train-8/resume") in site.scheduler.requests
    desk = "jobs/vision/desk"
    await ada.post(f"{desk}/extend", form_at=desk)
    assert ("POST", "/workloads/vision/desk/extend") in site.scheduler.requests


async def test_a_deletion_asks_first_and_names_its_object(site: Site, ada: Visitor) -> None:
    at = "jobs/vision/train-8/delete"
    question = await ada.get(at)
    assert "Delete train-8?" in question.words
    assert ">Delete train-8</button>" in question.text
    assert ("DELETE", "/workloads/vision/train-8") not in site.scheduler.requests
    page = await ada.post(at)
    assert page.address == site.url("jobs")
    assert ("DELETE", "/workloads/vision/train-8") in site.scheduler.requests


async def rules(visitor: Visitor, **changed: str) -> dict[str, str]:
    """The form of a project as a browser would send it, with some fields changed."""
    found = {
        "description": "Segmentation of microscope images",
        "quota_gpus": "4",
        "limit_gpus": "8",
        "over_quota": "on",
        "time_limit": "12 h",
        "idle_timeout": "1 h",
        "busy_cap": "1 d",
        "warning": "10 min",
        "extension": "1 h",
        "max_extensions": "1",
    }
    return found | changed


async def test_a_preview_changes_nothing(site: Site, root: Visitor) -> None:
    data = await rules(root, quota_gpus="2", action="preview")
    page = await root.post("projects/vision", data)
    assert page.status == 200
    assert "Saved now, this would at once" in page.words
    assert "neither start nor stop anything" in page.words
    assert 'name="quota_gpus" type="text" value="2"' in page.text
    assert site.scheduler.project("vision")["quota"]["gpus"] == 4


async def test_saving_sends_only_what_was_changed(site: Site, root: Visitor) -> None:
    before = site.scheduler.project("vision")
    data = await rules(
        root, quota_gpus="2", limit_gpus="", weight="5", time_limit="8 h", action="save"
    )
    data["user_gpus"] = "1.5"
    data["user_order"] = "fair-share"
    del data["over_quota"]
    page = await root.post("projects/vision", data)
    assert page.address == site.url("projects/vision?note=saved")
    assert "Saved." in page.words
    after = site.scheduler.project("vision")
    assert after["quota"]["gpus"] == 2
    assert after["limit"]["gpus"] is None
    assert after["weight"] == 5
    assert after["max_gpus_per_user"] == 1.5
    assert after["user_order"] == "fair-share"
    page = await root.get("projects/vision")
    assert 'value="fair-share" selected' in page.text
    assert "Each user at most 1.5 GPUs Users share it equally" in page.words
    assert after["over_quota"] is False
    assert after["interactive"] == before["interactive"] | {"time_limit_seconds": 28_800.0}


@pytest.mark.parametrize("kind", ["limits", "quotas"])
async def test_amounts_in_node_groups_are_saved_shown_and_taken_away(
    site: Site, root: Visitor, kind: str
) -> None:
    field, api = f"group_{kind}", f"node_group_{kind}"
    data = await rules(root, action="save") | {field: "a100=4, h100=2"}
    await root.post("projects/vision", data)
    assert site.scheduler.project("vision")[api] == {"a100": 4, "h100": 2}
    page = await root.get("projects/vision")
    assert f'name="{field}" type="text" value="a100=4, h100=2"' in page.text
    shown = {"limits": "Limit", "quotas": "Guarantee"}[kind]
    assert f"{shown} in node groups a100=4, h100=2" in page.words
    data = await rules(root, action="save") | {field: "h100=2"}
    await root.post("projects/vision", data)
    assert site.scheduler.project("vision")[api] == {"h100": 2}
    refused = await root.post("projects/vision", data | {field: "h100"})
    assert refused.status == 422
    assert "should be the name of a node group and GPUs" in refused.words


async def test_limits_of_trainings_are_saved_and_shown(site: Site, root: Visitor) -> None:
    data = await rules(root, training_idle="2 h", trainings_at_once="on", action="save")
    data["workspaces_at_once"] = "on"
    page = await root.post("projects/vision", data)
    assert "A training whose GPUs do nothing is stopped after 2 h." in page.words
    assert 'name="training_idle" type="text" value="2 h"' in page.text
    assert 'name="trainings_at_once" checked' in page.text
    assert 'name="workspaces_at_once" checked' in page.text
    after = site.scheduler.project("vision")
    assert after["training"] == {
        "idle_gpu_seconds": 7200.0,
        "time_limit_seconds": None,
        "apply_to_running": True,
    }
    assert after["interactive"]["apply_to_running"] is True
    wrong = await root.post("projects/vision", data | {"training_time_limit": "long"})
    assert wrong.status == 422
    assert 'id="training_time_limit-note">This should be a duration' in wrong.text


async def test_projects_stand_under_their_departments(
    site: Site, root: Visitor, ada: Visitor
) -> None:
    with Client(site.scheduler.url, site.scheduler.token("root")) as client:
        await asyncio.to_thread(client.put_department, "science", {"quota": {"gpus": 16}})
    changed = await rules(root, department="science", action="save")
    assert (await root.post("projects/vision", changed)).status == 200
    words = (await root.get("projects")).words
    assert words.index("science department") < words.index("vision")
    assert words.index("In no department") < words.index("speech")
    assert "of 16 guaranteed" in words
    seen = (await ada.get("projects")).words
    assert "science department" in seen
    assert "of 16 guaranteed" not in seen


async def test_nothing_changed_is_not_sent(site: Site, root: Visitor) -> None:
    page = await root.post("projects/vision", await rules(root, action="save"))
    assert "Nothing was different" in page.words
    assert "PATCH" not in {method for method, _ in site.scheduler.requests}


async def test_wrong_rules_come_back_marked(site: Site, root: Visitor) -> None:
    data = await rules(root, time_limit="for ever", action="save")
    page = await root.post("projects/vision", data)
    assert page.status == 422
    assert 'id="time_limit-note">This should be a duration' in page.text
    live = await root.post("projects/vision", data, HX_Request="true")
    assert live.status == 200
    assert site.scheduler.project("vision")["interactive"]["time_limit_seconds"] == 43_200


async def test_a_project_is_created(site: Site, root: Visitor) -> None:
    page = await root.post("new-project", await rules(root, name="physics", quota_gpus="1"))
    assert page.address == site.url("projects/physics?note=created")
    made = site.scheduler.project("physics")
    assert made["quota"]["gpus"] == 1
    again = await root.post("new-project", await rules(root, name="physics"))
    assert again.status == 422
    assert "already a project" in again.words


async def test_members_come_and_go(site: Site, root: Visitor) -> None:
    at = "projects/vision"
    await root.post(f"{at}/members/add", {"user": "eve@example.org"}, form_at=at)
    assert "eve@example.org" in (await root.get(at)).words
    await root.post(f"{at}/members/remove", {"user": "eve@example.org"}, form_at=at)
    assert "eve@example.org" not in (await root.get(at)).words


@pytest.mark.parametrize("user", ["..", ".", "", "a/b", "a b", "a%2fb", "a?b", "a#b"])
async def test_names_that_could_be_other_paths_are_refused(
    site: Site, root: Visitor, user: str
) -> None:
    page = await root.post(
        "projects/vision/members/remove", {"user": user}, form_at="projects/vision"
    )
    assert page.status == 400
    assert "DELETE" not in {method for method, _ in site.scheduler.requests}


async def test_a_project_with_work_is_not_deleted(site: Site, root: Visitor) -> None:
    question = await root.get("projects/vision/delete")
    assert "cannot be deleted while it has work: 3 running, 2 pending" in question.words
    assert "<form" not in question.text
    site.scheduler.project("empty")
    page = await root.post("projects/empty/delete")
    assert page.address == site.url("projects")
    assert ("DELETE", "/projects/empty") in site.scheduler.requests
