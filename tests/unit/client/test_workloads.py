"""Workloads through the client, against the fake scheduler."""

import pytest

import carrel
from carrel.client import Client
from carrel.client.resources.workloads import split_batches
from carrel.errors import ApiError, BadSetting, NotSignedIn, Unreachable
from carrel.testing import FakeScheduler
from unit.client.conftest import Waits

BODY = {"project": "vision", "name": "x", "command": ["true"], "gpus": 1}


def test_submit_read_steer_delete(client: Client, fake: FakeScheduler) -> None:
    assert client.create_workload(BODY).status.phase == "pending"
    fake.run("vision", "x", node="node-1", devices=[0, 1])
    running = client.get_workload("vision", "x")
    assert running.holds_resources
    assert running.status.tasks[0].devices == (0, 1)
    assert client.suspend("vision", "x").status.phase == "stopped"
    assert client.resume("vision", "x").status.phase == "pending"
    removed = client.delete_workload("vision", "x")
    assert removed is not None
    assert removed.name == "x"
    with pytest.raises(ApiError) as refused:
        client.delete_workload("vision", "x")
    assert (refused.value.status, refused.value.code) == (404, "not_found")


def test_a_lost_answer_never_submits_twice(
    client: Client, fake: FakeScheduler, waits: Waits
) -> None:
    fake.fail_next(0, 503)
    client.create_workload({**BODY, "name": "", "name_prefix": "run"})
    assert [job.name for job in client.list_workloads("vision")] == ["run-1"]
    assert fake.requests.count(("POST", "/workloads")) == 3
    assert waits.seconds == [0.2, 0.4]


def test_the_same_key_gives_the_same_job(client: Client) -> None:
    body = {"project": "vision", "name_prefix": "run", "command": ["true"]}
    first = client.create_workload(body, idempotency_key="k")
    assert client.create_workload(body, idempotency_key="k").name == first.name
    assert client.create_workload(body).name != first.name


def test_a_dry_run_writes_nothing(client: Client) -> None:
    assert client.create_workload(BODY, dry_run=True).forecast.token == "Starting"
    assert client.list_workloads() == []


def test_what_must_not_be_repeated_is_not(client: Client, fake: FakeScheduler) -> None:
    fake.submit("vision", "w", kind="workspace")
    fake.status("vision", "w", limits={"stops_at": 10.0, "may_extend": True})
    fake.fail_next(502)
    with pytest.raises(Unreachable):
        client.extend("vision", "w")
    assert fake.requests.count(("POST", "/workloads/vision/w/extend")) == 1
    assert client.extend("vision", "w").stops_at == 3610.0


def test_reads_are_tried_four_times(client: Client, fake: FakeScheduler, waits: Waits) -> None:
    fake.fail_next(502, 503, 504)
    assert client.list_workloads() == []
    assert waits.seconds == [0.2, 0.4, 0.8]
    fake.fail_next(502, 502, 502, 502)
    with pytest.raises(Unreachable, match="status 502"):
        client.list_workloads()


def test_lists_go_through_all_pages_and_filters(
    client: Client, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carrel.client.resources.workloads.PAGE", 2)
    for number in range(5):
        fake.submit("vision", f"j{number}", labels={"run": str(number % 2)})
    fake.submit("vision", "w", kind="workspace")
    fake.submit("vision", "of-eve", user="eve")
    fake.run("vision", "j3")
    assert len(client.list_workloads()) == 7
    assert [job.name for job in client.list_workloads(phases=["running"])] == ["j3"]
    assert [job.name for job in client.list_workloads(kind="workspace")] == ["w"]
    assert [job.name for job in client.list_workloads(user="eve")] == ["of-eve"]
    assert [job.name for job in client.list_workloads(labels={"run": "1"})] == ["j1", "j3"]


def test_logs_come_decoded_even_when_cut_inside_a_letter(
    client: Client, fake: FakeScheduler
) -> None:
    fake.submit("vision", "x")
    fake.log("vision", "x", "größer", "ö" * 100_000, "end")
    text = "".join(client.logs("vision", "x"))
    assert text == "größer\n" + "ö" * 100_000 + "\nend\n"
    assert "".join(client.logs("vision", "x", tail=1)) == "end\n"


def test_followed_logs_end_with_the_job(client: Client, fake: FakeScheduler) -> None:
    fake.submit("vision", "x")
    fake.run("vision", "x")
    fake.log("vision", "x", "one")
    pieces = client.logs("vision", "x", follow=True)
    assert next(pieces) == "one\n"
    fake.log("vision", "x", "two")
    fake.finish("vision", "x")
    assert "".join(pieces) == "two\n"


def test_history_and_curves(client: Client, fake: FakeScheduler) -> None:
    fake.submit("vision", "x")
    fake.run("vision", "x")
    fake.preempt("vision", "x", for_project="speech", lost=12.0)
    fake.report("vision", "x", step=3, metrics={"loss": 0.5, "accuracy": 0.9})
    phases = [row.to_phase for row in client.history("vision", "x").transitions]
    assert phases == ["pending", "running", "pending"]
    curves = client.metrics("vision", "x", names=["loss"])
    assert [(p.step, p.value) for p in curves["loss"]] == [(3, 0.5)]
    assert list(curves) == ["loss"]
    facts = client.get_workload("vision", "x").status.last_preemption
    assert facts is not None
    assert (facts.for_project, facts.lost_seconds) == ("speech", 12.0)


def test_remedies_are_asked_for_once(client: Client, fake: FakeScheduler) -> None:
    fake.submit("vision", "x")
    fake.remedies("vision", "x", {"change": "may-borrow", "project": "vision", "sentence": "So."})
    (told,) = client.remedies("vision", "x")
    assert (told.change, told.project, told.sentence) == ("may-borrow", "vision", "So.")
    fake.remedies("vision", "x", refused=True)
    path = "/workloads/vision/x/remedies"
    before = fake.requests.count(("GET", path))
    with pytest.raises(ApiError) as refused:
        client.remedies("vision", "x")
    assert refused.value.status == 429
    assert fake.requests.count(("GET", path)) == before + 1
    fake.run("vision", "x")
    with pytest.raises(ApiError) as running:
        client.remedies("vision", "x")
    assert running.value.code == "not_pending"


def test_report_and_claim(client: Client, fake: FakeScheduler) -> None:
    fake.submit("vision", "w", kind="workspace", hold_for_claim=True)
    claimed = client.claim(
        "vision", "w", command=["lab"], secret_environment={"TOKEN": "s"}, port=8888
    )
    assert (claimed.spec.command, claimed.spec.port) == (["lab"], 8888)
    client.report("vision", "w", {"step": 1})
    assert fake.reports == [("vision", "w", {"step": 1})]


def test_other_projects_do_not_exist(client: Client, fake: FakeScheduler) -> None:
    fake.submit("speech", "theirs", user="bob")
    assert client.list_workloads() == []
    with pytest.raises(ApiError) as hidden:
        client.get_workload("speech", "theirs")
    assert hidden.value.status == 404
    with pytest.raises(ApiError) as refused:
        client.create_workload({**BODY, "project": "speech"})
    assert refused.value.status == 403


def test_names_are_quoted_in_paths(client: Client, fake: FakeScheduler) -> None:
    with pytest.raises(ApiError):
        client.get_workload("vision", "../../projects/vision?x=1")
    assert fake.requests[-1][1].startswith("/workloads/vision/")


def test_a_wrong_token_is_not_signed_in(fake: FakeScheduler) -> None:
    with Client(fake.url, "wrong-token") as client, pytest.raises(NotSignedIn) as refused:
        client.whoami()
    assert "wrong-token" not in str(refused.value)


def test_submit_in_one_call(
    client: Client, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert carrel.submit(["true"], client=client).name == "job-1"
    monkeypatch.setenv("CARREL_URL", fake.url)
    monkeypatch.setenv("CARREL_TOKEN", fake.token("ada"))
    job = carrel.submit(["true"], name="y", gpus=2, environment={"A": "b"})
    spec = job.workload.spec
    assert (job.project, spec.gpus, spec.environment) == ("vision", 2, {"A": "b"})
    line = carrel.submit("python 'my train.py' --lr 1", name="z")
    assert line.workload.spec.command == ["python", "my train.py", "--lr", "1"]
    assert repr(line).startswith("<Job vision/z: ")
    with pytest.raises(BadSetting, match="No closing quotation"):
        carrel.submit("python 'train.py")
    before = line.workload.uid
    assert carrel.submit("true", name="z", replace=True).workload.uid != before


def test_submit_asks_which_project_when_there_are_several(client: Client) -> None:
    with FakeScheduler({"eve": ["a", "b"], "new": []}) as fake:
        with (
            Client(fake.url, fake.token("eve")) as several,
            pytest.raises(BadSetting, match="a, b"),
        ):
            carrel.submit(["true"], client=several)
        with (
            Client(fake.url, fake.token("new")) as none,
            pytest.raises(BadSetting, match="no proj"),
        ):
            carrel.submit(["true"], client=none)


def test_many_at_once_each_for_itself(client: Client, fake: FakeScheduler) -> None:
    client.create_workload(BODY)
    answers = client.submit_many([{**BODY, "name": "y"}, BODY])
    assert [(one.name, one.created, one.accepted) for one in answers] == [
        ("y", True, True),
        ("x", False, False),
    ]
    assert answers[1].problem is not None
    assert answers[1].problem.code == "already_exists"
    with pytest.raises(ApiError) as refused:
        client.submit_many([{**BODY, "project": "nowhere"}])
    assert refused.value.code == "not_a_member"
    assert client.submit_many([]) == []


def test_many_are_sent_in_as_few_requests_as_may_carry_them() -> None:
    small: list[dict[str, object]] = [{**BODY, "name": f"n{number}"} for number in range(2500)]
    assert [len(batch) for batch in split_batches(small)] == [1000, 1000, 500]
    large = [{**BODY, "files": {"a": "x" * 2**20}} for _ in range(7)]
    assert [len(batch) for batch in split_batches(large)] == [3, 3, 1]
