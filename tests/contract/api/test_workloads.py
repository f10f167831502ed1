"""Submit, list, read, steer."""

import asyncio
from typing import Any

import pytest

from carrel_scheduler.ledger.store import ObjectNotFound, VersionConflict
from carrel_schema.objects import ReasonInfo, Workload
from contract.api.service import ApiHarness

BODY: dict[str, Any] = {
    "name": "train-7",
    "project": "vision",
    "command": ["python", "train.py"],
    "gpus": 1,
    "files": {"train.py": "print(1)"},
    "secret_environment": {"API_KEY": "very-secret"},
    "volumes": [{"source": "/data", "destination": "data"}],
    "labels": {"team": "a"},
}


async def test_what_is_created_is_answered_stored_and_found_again(harness: ApiHarness) -> None:
    reply = await harness.ask("POST", "/workloads", json=BODY)
    assert reply.status == 201, reply.body
    assert reply.headers["Location"] == "/services/carrel/api/v1/workloads/vision/train-7"
    assert reply.body["created_by"] == reply.body["spec"]["user"] == "ada"
    assert reply.body["spec"]["gpus"] == 1.0
    assert reply.body["spec"]["files"] == {"train.py": 8}
    assert (reply.body["spec"]["priority"], reply.body["spec"]["preemptible"]) == ("train", True)
    assert reply.body["status"]["phase"] == "pending"
    assert b"very-secret" not in reply.raw
    stored = await harness.workload("vision", "train-7")
    assert stored.spec.resources.gpu_milli == 1000
    assert stored.spec.volumes == [("/data", "data")]
    assert await harness.ledger.secrets(stored.meta.uid) == {"API_KEY": "very-secret"}
    rows = await harness.ledger.transitions(workload_uid=stored.meta.uid)
    assert [(row.from_phase, row.to_phase, row.user) for row in rows] == [("", "pending", "ada")]
    again = await harness.ask("GET", "/workloads/vision/train-7", "bea")
    assert again.body == reply.body


async def test_a_taken_name_is_refused_and_nothing_changes(harness: ApiHarness) -> None:
    await harness.ask("POST", "/workloads", json=BODY)
    before = await harness.workload("vision", "train-7")
    reply = await harness.ask("POST", "/workloads", json=BODY | {"gpus": 2})
    assert (reply.status, reply.code, reply.fields) == (
        409,
        "already_exists",
        {"name": "already_exists"},
    )
    assert await harness.workload("vision", "train-7") == before
    # The name is free in another project.
    assert (
        await harness.ask("POST", "/workloads", "carl", json=BODY | {"project": "speech"})
    ).status == 201


async def test_a_dry_run_tells_what_would_happen_and_writes_nothing(harness: ApiHarness) -> None:
    reply = await harness.ask("POST", "/workloads?dry_run=true", json=BODY)
    assert reply.status == 200
    assert reply.body["workload"]["name"] == "train-7"
    assert reply.body["forecast"]["token"] == "WaitsForRoom"
    assert b"secret-job" not in reply.raw
    assert b"secret-user" not in reply.raw
    with pytest.raises(ObjectNotFound):
        await harness.workload("vision", "train-7")
    taken = await harness.ask("POST", "/workloads?dry_run=true", json=BODY | {"name": "train-1"})
    assert (taken.status, taken.code) == (409, "already_exists")


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"name": "Train_7"}, "bad_name", "name"),
        ({"name": "a" * 64}, "bad_name", "name"),
        ({"name": "train\n"}, "bad_name", "name"),
        ({"colour": "red"}, "unknown_field", "colour"),
        ({"gpus": "1"}, "wrong_type", "gpus"),
        ({"gpus": True}, "wrong_type", "gpus"),
        ({"gpus": 1.5}, "bad_gpu_share", "gpus"),
        ({"gpus": 0.005}, "bad_gpu_share", "gpus"),
        ({"kind": "distributed", "elastic": {"min_tasks": 3}, "tasks": 2}, "bad_range", "body"),
        ({"elastic": {"gpus_of_task": True}, "gpus": 0.5}, "bad_elastic", "body"),
        ({"elastic": {"gpus_of_task": True}, "gpus": 1, "tasks": 2}, "bad_elastic", "body"),
        ({"gpus": -1}, "too_small", "gpus"),
        ({"gpus": 1e9}, "too_big", "gpus"),
        ({"cpu_millicores": 0}, "too_small", "cpu_millicores"),
        ({"memory_bytes": 2**60}, "too_big", "memory_bytes"),
        ({"tasks": 2.5}, "wrong_type", "tasks"),
        ({"command": []}, "command_required", "body"),
        ({"command": ["a\x00b"]}, "wrong_form", "command.0"),
        ({"environment": {"1X": "a"}}, "bad_environment_name", "environment.1X"),
        ({"files": {"../x": "a"}}, "path_escapes", "files.../x"),
        ({"files": {"/etc/x": "a"}}, "path_escapes", "files./etc/x"),
        ({"files": {"a": "x" * 600_000, "b": "y" * 600_000}}, "files_too_large", "body"),
        ({"volumes": [{"source": "data"}]}, "bad_path", "volumes.0.source"),
        ({"priority": "urgent"}, "unknown_priority", "priority"),
        ({"project": "nowhere"}, "not_a_member", ""),
        ({"kind": "dreaming"}, "unknown_value", "kind"),
        ({"kind": "replica"}, "unknown_value", "kind"),
        ({"kind": "inference"}, "section_required", "body"),
        (
            {"kind": "inference", "inference": {"min_replicas": 2}},
            "bad_range",
            "inference",
        ),
        ({"kind": "inference", "inference": {}, "routes": [{"port": 80}]}, "fixed_port", "body"),
        ({"routes": [{}, {}]}, "route_twice", "body"),
        ({"kind": "workspace", "tasks": 2}, "workspace_single_task", "body"),
        ({"name_prefix": "x"}, "name_and_prefix", "body"),
        ({"name": None}, "name_required", "body"),
        ({"labels": {"-": "x"}}, "bad_label", "labels.-"),
        ({"user": "bea"}, "spawner_only", ""),
        ({"hold_for_claim": True}, "spawner_only", ""),
    ],
)
async def test_each_wrong_field_has_its_own_code_and_leaves_nothing(
    harness: ApiHarness, change: dict[str, Any], code: str, field: str
) -> None:
    reply = await harness.ask("POST", "/workloads", json=BODY | change)
    assert reply.status == (403 if not field else 422)
    assert reply.code == code, reply.body
    assert reply.headers["Content-Type"] == "application/problem+json"
    if field:
        assert reply.fields == {field: code}
        assert all(error["expected"] for error in reply.body["errors"])
    page = await harness.ask("GET", "/workloads?project=vision")
    assert {item["name"] for item in page.body["items"]} == {"train-1", "desk"}


async def test_several_wrong_fields_are_all_named_and_secrets_never_quoted(
    harness: ApiHarness,
) -> None:
    wrong = BODY | {"gpus": -1, "tasks": "x", "secret_environment": {"A": 5, "B": ["top-secret"]}}
    reply = await harness.ask("POST", "/workloads", json=wrong)
    assert (reply.status, reply.code) == (422, "invalid")
    assert {"gpus": "too_small", "tasks": "wrong_type"}.items() <= reply.fields.items()
    assert b"top-secret" not in reply.raw
    values = {error["field"]: error["value"] for error in reply.body["errors"]}
    assert (values["gpus"], values["secret_environment.A"]) == (-1, None)


async def test_nan_and_unreadable_bodies(harness: ApiHarness) -> None:
    json = {"Content-Type": "application/json"}
    nan = b'{"name": "a", "project": "vision", "command": ["x"], "gpus": NaN}'
    reply = await harness.ask("POST", "/workloads", data=nan, headers=json)
    assert (reply.status, reply.fields) == (422, {"gpus": "not_finite"})
    reply = await harness.ask("POST", "/workloads", data=b"{", headers=json)
    assert (reply.status, reply.code) == (400, "malformed_json")
    text = {"Content-Type": "text/plain"}
    reply = await harness.ask("POST", "/workloads", data=b"{}", headers=text)
    assert (reply.status, reply.code) == (415, "wrong_media_type")
    for size in (5 * 2**20, 20 * 2**20):
        reply = await harness.ask("POST", "/workloads", data=b"x" * size, headers=json)
        assert (reply.status, reply.code) == (413, "body_too_large")


async def test_what_can_never_run_is_refused_with_the_binding_fact(harness: ApiHarness) -> None:
    harness.live.never_reason = ReasonInfo(
        token="OverLimit",
        cls="never",
        sentence="Asks for 3 GPUs; `vision` may hold 2 at most.",
        help="at most 2 GPUs",
        data={"resource": "gpu"},
    )
    reply = await harness.ask("POST", "/workloads", json=BODY | {"gpus": 3, "preemptible": False})
    assert (reply.status, reply.code, reply.fields) == (
        422,
        "limit_never_met",
        {"gpus": "limit_never_met"},
    )
    assert reply.body["errors"][0]["value"] == 3.0
    with pytest.raises(ObjectNotFound):
        await harness.workload("vision", "train-7")


async def test_a_repeated_key_returns_the_first_workload(harness: ApiHarness) -> None:
    key = {"Idempotency-Key": "abc"}
    first, second = await asyncio.gather(
        harness.ask("POST", "/workloads", json=BODY, headers=key),
        harness.ask("POST", "/workloads", json=BODY, headers=key),
    )
    assert first.status == second.status == 201
    assert first.body["uid"] == second.body["uid"]
    other = await harness.ask("POST", "/workloads", json=BODY | {"gpus": 2}, headers=key)
    assert (other.status, other.code) == (409, "idempotency_key_reused")
    # Somebody else's key of the same text is another key.
    foreign = await harness.ask("POST", "/workloads", "bea", json=BODY | {"name": "b"}, headers=key)
    assert foreign.status == 201
    await harness.ledger.delete(Workload, "train-7", "vision")
    gone = await harness.ask("POST", "/workloads", json=BODY, headers=key)
    assert (gone.status, gone.code) == (409, "already_removed")
    bad = await harness.ask("POST", "/workloads", json=BODY, headers={"Idempotency-Key": "x" * 201})
    assert (bad.status, bad.fields) == (422, {"Idempotency-Key": "wrong_form"})


async def test_a_refused_request_leaves_its_key_free(harness: ApiHarness) -> None:
    key = {"Idempotency-Key": "abc"}
    refused = await harness.ask(
        "POST", "/workloads", json=BODY | {"priority": "urgent"}, headers=key
    )
    assert refused.status == 422
    assert (await harness.ask("POST", "/workloads", json=BODY, headers=key)).status == 201


async def test_numbers_behind_a_prefix_are_the_first_free_and_never_shared(
    harness: ApiHarness,
) -> None:
    await harness.add("vision", "sweep-2", "ada")
    body = {key: value for key, value in BODY.items() if key != "name"} | {"name_prefix": "sweep"}
    replies = await asyncio.gather(
        *(harness.ask("POST", "/workloads", json=body) for _ in range(20))
    )
    assert {reply.status for reply in replies} == {201}
    names = {reply.body["name"] for reply in replies}
    assert names == {f"sweep-{number}" for number in (1, *range(3, 22))}
    await harness.ledger.delete(Workload, "sweep-4", "vision")
    harness.clock.now += 61
    assert (await harness.ask("POST", "/workloads", json=body)).body["name"] == "sweep-4"


async def test_a_number_that_appears_meanwhile_is_passed_over(harness: ApiHarness) -> None:
    body = {key: value for key, value in BODY.items() if key != "name"} | {"name_prefix": "s"}
    assert (await harness.ask("POST", "/workloads", json=body)).body["name"] == "s-1"
    await harness.add("vision", "s-2", "ada")
    assert (await harness.ask("POST", "/workloads", json=body)).body["name"] == "s-3"


async def test_lists_filter_and_page_in_the_order_of_creation(harness: ApiHarness) -> None:
    for number in range(5):
        await harness.ask("POST", "/workloads", json=BODY | {"name": f"j-{number}"})
    page = await harness.ask("GET", "/workloads?kind=training&phase=pending&limit=2&label=team=a")
    assert [item["name"] for item in page.body["items"]] == ["j-0", "j-1"]
    rest = await harness.ask("GET", f"/workloads?phase=pending&limit=500&after={page.body['next']}")
    assert [item["name"] for item in rest.body["items"]] == ["j-2", "j-3", "j-4"]
    assert rest.body["next"] is None
    found = await harness.ask("GET", "/workloads?search=j-&order=newest&limit=3")
    assert [item["name"] for item in found.body["items"]] == ["j-4", "j-3", "j-2"]
    assert (await harness.ask("GET", "/workloads?order=oldest")).status == 422
    two = await harness.ask("GET", "/workloads?phase=running&phase=pending&user=ada")
    assert len(two.body["items"]) == 7
    assert (await harness.ask("GET", "/workloads", "nobody")).body == {"items": [], "next": None}
    everything = await harness.ask("GET", "/workloads", "root")
    assert {item["project"] for item in everything.body["items"]} == {"vision", "speech"}


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ("limit=0", "limit", "too_small"),
        ("limit=501", "limit", "too_big"),
        ("limit=x", "limit", "wrong_type"),
        ("phase=flying", "phase.0", "unknown_value"),
        ("label=team", "label.0", "bad_label"),
        ("colour=red", "colour", "unknown_field"),
        ("limit=1&limit=2", "limit", "wrong_type"),
        ("after=zzz", "after", "invalid"),
    ],
)
async def test_wrong_parameters_are_named(
    harness: ApiHarness, query: str, field: str, code: str
) -> None:
    reply = await harness.ask("GET", f"/workloads?{query}")
    assert (reply.status, reply.fields) == (422, {field: code})


async def test_suspend_and_resume_are_wishes_in_the_specification(harness: ApiHarness) -> None:
    path = "/workloads/vision/train-1"
    for _ in range(2):
        reply = await harness.ask("POST", f"{path}/suspend")
        assert (reply.status, reply.body["spec"]["suspend"]) == (202, True)
    early = await harness.ask("POST", f"{path}/resume")
    assert (early.status, early.code) == (409, "not_stopped")
    await harness.set_status("vision", "train-1", phase="stopped")
    for _ in range(2):
        reply = await harness.ask("POST", f"{path}/resume")
        assert (reply.status, reply.body["spec"]["suspend"]) == (202, False)
    assert (await harness.workload("vision", "train-1")).spec.resumes == 1


async def test_what_has_ended_or_is_stopped_cannot_be_suspended(harness: ApiHarness) -> None:
    path = "/workloads/vision/train-1/suspend"
    await harness.set_status("vision", "train-1", phase="stopped")
    reply = await harness.ask("POST", path)
    assert (reply.status, reply.code) == (409, "already_stopped")
    await harness.set_status("vision", "train-1", phase="succeeded")
    reply = await harness.ask("POST", path)
    assert (reply.status, reply.code) == (409, "not_running")


async def test_delete_is_a_wish_too_and_asking_again_is_fine(harness: ApiHarness) -> None:
    path = "/workloads/vision/train-1"
    for _ in range(2):
        reply = await harness.ask("DELETE", path)
        assert (reply.status, reply.body["spec"]["delete"]) == (202, True)
    late = await harness.ask("POST", f"{path}/suspend")
    assert (late.status, late.code) == (409, "being_deleted")
    await harness.ledger.delete(Workload, "train-1", "vision")
    reply = await harness.ask("DELETE", path)
    assert (reply.status, reply.code) == (404, "not_found")


async def test_a_place_in_the_queue_is_the_present_one(harness: ApiHarness) -> None:
    await harness.set_status("vision", "train-1", phase="pending", queue_position=9)
    await harness.set_status("vision", "desk", phase="running")
    for name in ("train-1", "desk"):
        harness.live.places[(await harness.workload("vision", name)).meta.uid] = 4
    one = await harness.ask("GET", "/workloads/vision/train-1")
    assert one.body["status"]["queue_position"] == 4
    found = (await harness.ask("GET", "/workloads")).body["items"]
    places = {each["name"]: each["status"].get("queue_position") for each in found}
    assert places == {"train-1": 4, "desk": None}
    harness.live.places.clear()
    one = await harness.ask("GET", "/workloads/vision/train-1")
    assert one.body["status"]["queue_position"] == 9


async def test_a_status_written_at_the_same_time_is_waited_out(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, attempts = harness.ledger.update, 0

    async def contested(workload: Workload) -> Workload:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            await harness.set_status("vision", "train-1", queue_position=attempts)
        return await real(workload)

    monkeypatch.setattr(harness.ledger, "update", contested)
    reply = await harness.ask("DELETE", "/workloads/vision/train-1")
    assert (reply.status, attempts) == (202, 3)
    stored = await harness.workload("vision", "train-1")
    assert (stored.spec.delete, stored.status.queue_position) == (True, 2)

    async def always(workload: Workload) -> Workload:
        raise VersionConflict("changed")

    monkeypatch.setattr(harness.ledger, "update", always)
    reply = await harness.ask("POST", "/workloads/vision/desk/suspend")
    assert (reply.status, reply.code) == (409, "conflict")


async def test_work_goes_on_from_checkpoints_of_its_owners_work_only(harness: ApiHarness) -> None:
    body = BODY | {"name": "further", "continue_from": "train-1"}
    reply = await harness.ask("POST", "/workloads", json=body)
    assert (reply.status, reply.body["spec"]["continue_from"]) == (201, "train-1")
    stored = await harness.workload("vision", "further")
    assert stored.spec.continues == "uid-vision-train-1"
    for who, name in (("ada", "train-7"), ("bea", "train-1")):
        reply = await harness.ask("POST", "/workloads", who, json=body | {"continue_from": name})
        assert (reply.status, reply.fields) == (422, {"continue_from": "unknown_job"}), reply.body


@pytest.mark.parametrize(
    ("asked", "counted"),
    [
        ({"gpus": 0.25, "gpu_devices": 2}, 0.5),
        ({"gpus": 0, "gpu_memory_bytes": 2**33, "gpu_devices": 3}, None),
    ],
)
async def test_a_share_of_several_gpus(
    harness: ApiHarness, asked: dict[str, Any], counted: float | None
) -> None:
    reply = await harness.ask("POST", "/workloads", json=BODY | asked)
    assert reply.status == 201, reply.body
    spec = reply.body["spec"]
    assert spec["gpu_devices"] == asked["gpu_devices"]
    assert counted in (None, spec["gpus"] * spec["gpu_devices"])
    stored = (await harness.workload("vision", BODY["name"])).spec.resources
    assert stored.gpu_devices == asked["gpu_devices"]


@pytest.mark.parametrize(
    ("asked", "field", "code"),
    [
        ({"gpus": 1, "gpu_devices": 2}, "", "bad_gpu_devices"),
        ({"gpus": 0, "gpu_devices": 2}, "", "bad_gpu_devices"),
        ({"gpus": 0.5, "gpu_devices": 0}, "gpu_devices", "too_small"),
        ({"gpus": 0.5, "gpu_devices": 65}, "gpu_devices", "too_big"),
    ],
)
async def test_several_gpus_go_with_a_share_only(
    harness: ApiHarness, asked: dict[str, Any], field: str, code: str
) -> None:
    reply = await harness.ask("POST", "/workloads", json=BODY | asked)
    assert reply.status == 422
    assert list(reply.fields.values()) == [code], reply.body
    assert not field or list(reply.fields) == [field]
