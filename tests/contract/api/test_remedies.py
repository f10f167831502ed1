"""What would unblock waiting work: who is told which names, how often, and of which work."""

import pytest

from carrel_scheduler.api.services.remedies import FRESH_SECONDS, PER_PERSON
from carrel_schema.objects import WorkloadStatus
from carrel_schema.wire import Remedy
from contract.api.service import ApiHarness

PATH = "/workloads/vision/waits/remedies"
QUOTA = Remedy(
    change="more-quota",
    project="vision",
    resource="gpu",
    amount=6000,
    sentence="An admin could raise the quota of project `vision` to 6 GPUs.",
)


def ends(project: str, name: str) -> Remedy:
    return Remedy(
        change="ends",
        project=project,
        workload=name,
        workload_uid=f"uid-{name}",
        sentence=f"It starts when `{name}` of project `{project}` ends.",
    )


async def waits(harness: ApiHarness, name: str = "waits", *found: Remedy) -> str:
    stored = await harness.add("vision", name, "ada", status=WorkloadStatus(phase="pending"))
    harness.live.remedies_of = {**harness.live.remedies_of, stored.meta.uid: found}
    return stored.meta.uid


async def test_members_are_told_what_would_help(harness: ApiHarness) -> None:
    await waits(harness, "waits", QUOTA, ends("vision", "train-1"))
    told = await harness.ask("GET", PATH)
    assert told.status == 200
    assert told.body["items"][0] == {
        "change": "more-quota",
        "sentence": "An admin could raise the quota of project `vision` to 6 GPUs.",
        "project": "vision",
        "department": "",
        "resource": "gpu",
        "amount": 6000,
        "node_group": "",
        "workload": "",
        "workload_uid": "",
    }
    assert told.body["items"][1]["workload"] == "train-1"
    assert (await harness.ask("GET", PATH, "carl")).status == 404


async def test_work_of_foreign_projects_has_no_name(harness: ApiHarness) -> None:
    found = [ends("speech", "speech-secret-job"), ends("speech", "speech-secret-other")]
    await waits(harness, "waits", *found)
    told = await harness.ask("GET", PATH)
    assert b"speech-secret" not in told.raw
    (item,) = told.body["items"]
    assert item["sentence"] == "It starts when work of a member of `speech` ends."
    assert (item["project"], item["workload"], item["workload_uid"]) == ("speech", "", "")
    shown = (await harness.ask("GET", PATH, "root")).body["items"]
    assert [one["workload"] for one in shown] == ["speech-secret-job", "speech-secret-other"]


@pytest.mark.parametrize("name", ["train-1", "sweep"])
async def test_work_that_does_not_wait_itself_is_refused(harness: ApiHarness, name: str) -> None:
    pending = WorkloadStatus(phase="pending")
    await harness.add("vision", "sweep", "ada", kind="experiment", status=pending)
    told = await harness.ask("GET", f"/workloads/vision/{name}/remedies")
    assert (told.status, told.code) == (409, "not_pending")
    assert harness.live.asked_remedies == []


async def test_what_a_policy_forbids_is_not_proposed(harness: ApiHarness) -> None:
    sentence = "If you submit it as preemptible, it starts."
    preemptible = Remedy(change="preemptible", sentence=sentence)
    await waits(harness, "waits", preemptible, QUOTA)
    told = (await harness.ask("GET", PATH)).body["items"]
    assert [one["change"] for one in told] == ["preemptible", "more-quota"]
    rules = {"rules": {"preemptible": {"default": False, "locked": True}}}
    made = await harness.ask("PUT", "/policies/firm?scope=project/vision", "root", json=rules)
    assert made.status == 200, made.body
    told = (await harness.ask("GET", PATH)).body["items"]
    assert [one["change"] for one in told] == ["more-quota"]


async def test_an_answer_is_fresh_for_ten_seconds(harness: ApiHarness) -> None:
    uid = await waits(harness, "waits", QUOTA)
    for person in ("ada", "root", "ada"):
        assert (await harness.ask("GET", PATH, person)).body["items"]
    assert harness.live.asked_remedies == [uid]
    harness.clock.now += FRESH_SECONDS
    await harness.ask("GET", PATH)
    assert harness.live.asked_remedies == [uid, uid]


async def test_a_person_gets_so_many_new_answers_a_minute(harness: ApiHarness) -> None:
    for number in range(PER_PERSON + 1):
        await waits(harness, f"waits-{number}")
    paths = [f"/workloads/vision/waits-{number}/remedies" for number in range(PER_PERSON + 1)]
    harness.clock.now += 40.0
    assert {(await harness.ask("GET", path)).status for path in paths[:-1]} == {200}
    harness.clock.now += 20.0
    refused = await harness.ask("GET", paths[-1])
    assert (refused.status, refused.code) == (429, "too_many_requests")
    assert refused.headers["Retry-After"] == "40"
    known = await harness.ask("GET", paths[0])
    assert known.status == 200, "an answer of some seconds ago is better than none"
    assert (await harness.ask("GET", paths[-1], "root")).status == 200
    harness.clock.now += 40.0
    assert (await harness.ask("GET", paths[-1])).status == 200
