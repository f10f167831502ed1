"""HTTP itself: identification, unknown paths and methods, failures, metrics."""

import logging

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from carrel_scheduler.ledger.records import Transition
from carrel_scheduler.quarantine import Skipped
from carrel_scheduler.workloads.contract import Faults
from contract.api.service import ApiHarness


@pytest.mark.parametrize(
    "header", [None, "", "token", "token ", "Basic YTpi", "Bearer", "ada-token"]
)
async def test_without_a_token_nobody_is_known(harness: ApiHarness, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    reply = await harness.ask("GET", "/whoami", None, headers=headers)
    assert (reply.status, reply.code) == (401, "unauthenticated")
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_token_in_the_address_or_a_cookie_is_none(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/whoami?token=ada-token", None)).status == 401
    headers = {"Cookie": "token=ada-token"}
    assert (await harness.ask("GET", "/whoami", None, headers=headers)).status == 401


@pytest.mark.parametrize("scheme", ["token", "Token", "Bearer", "bearer"])
async def test_both_schemes_serve(harness: ApiHarness, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} ada-token"}
    assert (await harness.ask("GET", "/whoami", None, headers=headers)).status == 200


async def test_whoever_watches_over_the_process_needs_no_token(harness: ApiHarness) -> None:
    harness.identity.down = True
    assert (await harness.ask("GET", "/health", None, base="/services/carrel")).status == 200
    assert (await harness.ask("GET", "/ready", None, base="/services/carrel")).status == 200


async def test_what_is_set_aside_is_told_while_work_goes_on(harness: ApiHarness) -> None:
    harness.live.told_faults = Faults(
        set_aside=[
            Skipped("node", f"gpu-{n}", "bad_quantity", 5.0, "no number", f"rack/gpu-{n}")
            for n in range(30)
        ],
        skipped={("node", "bad_quantity"): 31},
        violated=["limits_held"],
        violations={"limits_held": 2},
    )
    told = (await harness.ask("GET", "/ready", None, base="/services/carrel")).body
    assert told == {"ready": True, "set_aside_count": 30, "violated_invariants": ["limits_held"]}
    named = (await harness.ask("GET", "/faults", "root")).body
    assert named["set_aside"][-1] == {
        "source": "node",
        "key": "gpu-29",
        "name": "rack/gpu-29",
        "reason": "bad_quantity",
        "message": "no number",
        "since": 5.0,
    }
    assert (len(named["set_aside"]), named["violated_invariants"]) == (30, ["limits_held"])
    found = await samples(harness)
    assert found["carrel_skipped_inputs_total", "bad_quantity", "node"] == 31
    assert found["carrel_set_aside_inputs",] == 30
    assert found["carrel_invariant_violations_total", "limits_held"] == 2


async def test_a_hub_that_is_down_is_not_an_unknown_token(harness: ApiHarness) -> None:
    harness.identity.down = True
    reply = await harness.ask("GET", "/whoami")
    assert (reply.status, reply.code) == (503, "hub_unavailable")


async def test_a_token_without_the_scope_is_told_which(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", "/whoami", "narrow")
    assert (reply.status, reply.code) == (403, "missing_scope")
    assert "custom:carrel:use" in reply.body["detail"]


@pytest.mark.parametrize("path", ["/nothing", "/workloads/vision", "/workloads/vision/a/b/c", "/"])
async def test_unknown_paths_are_problems(harness: ApiHarness, path: str) -> None:
    for who in ("ada", None):
        reply = await harness.ask("GET", path, who)
        assert (reply.status, reply.code) == (404, "not_found")
        assert reply.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "PUT", "OPTIONS", "TRACE", "WAGGLE"])
async def test_wrong_methods_are_told_the_right_ones(harness: ApiHarness, method: str) -> None:
    reply = await harness.ask(method, "/workloads")
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.headers["Allow"] == "GET, POST"


async def test_a_head_request_has_no_body(harness: ApiHarness) -> None:
    reply = await harness.ask("HEAD", "/workloads")
    assert (reply.status, reply.raw) == (405, b"")


@pytest.mark.parametrize("name", ["Train", "a%00b", "a%2Fb", "%FF", "x" * 300, "..", "a b"])
async def test_names_that_nothing_has_are_not_found_without_asking_the_database(
    harness: ApiHarness, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.ledger, "get", None)
    reply = await harness.ask("GET", f"/workloads/vision/{name}")
    assert reply.status in (400, 404)
    assert reply.headers["Content-Type"] == "application/problem+json"


async def test_a_failure_tells_an_id_and_the_log_tells_the_rest(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("the inner secret")

    monkeypatch.setattr(harness.live, "queue", fail)
    with caplog.at_level(logging.ERROR):
        reply = await harness.ask("GET", "/queue")
    assert (reply.status, reply.code) == (500, "internal_error")
    assert b"secret" not in reply.raw
    assert b"Traceback" not in reply.raw
    (record,) = [record for record in caplog.records if "carrel" in record.name]
    assert str(record.args[0] if isinstance(record.args, tuple) else "") in reply.body["detail"]
    assert "the inner secret" in str(record.exc_info)


async def test_a_refused_connection_stays_usable(harness: ApiHarness) -> None:
    """Refusals read the body to its end, so that the answer arrives and the connection lives."""
    for _ in range(20):
        body = {"name": "x" * 100_000}
        assert (await harness.ask("POST", "/workloads", "stranger", json=body)).status == 401
    connector = harness.session.connector
    assert connector is not None
    assert sum(map(len, connector._conns.values())) == 1


async def test_the_document_is_served(harness: ApiHarness) -> None:
    reply = await harness.ask("GET", "/openapi.json")
    assert reply.body["openapi"] == "3.1.0"
    assert reply.body["servers"] == [{"url": "/services/carrel/api/v1"}]


def row(harness: ApiHarness, uid: str, old: str, new: str, at: float) -> Transition:
    return Transition(
        at=harness.clock.now + at,
        epoch=1,
        workload_uid=uid,
        workload=uid,
        project="vision",
        user="ada",
        kind="training",
        attempt=0,
        from_phase=old,
        to_phase=new,
    )


async def samples(harness: ApiHarness, who: str = "scraper") -> dict[tuple[str, ...], float]:
    reply = await harness.ask("GET", "/metrics", who, base="/services/carrel")
    assert reply.status == 200
    found = {}
    for family in text_string_to_metric_families(reply.raw.decode()):
        for sample in family.samples:
            labels = sample.labels
            found[(sample.name, *(labels[key] for key in sorted(labels)))] = sample.value
    return found


async def test_prometheus_reads_requests_gauges_and_rows(harness: ApiHarness) -> None:
    await harness.ask("GET", "/queue")
    found = await samples(harness)
    assert found["carrel_api_request_seconds_count", "200", "read_queue"] == 1
    assert found["carrel_project_guaranteed_gpus", "vision"] == 2
    assert found["carrel_allocated_gpu_count_per_project", "vision"] == 3
    assert found["carrel_project_fair_share_gpus", "vision"] == 2
    assert found["carrel_queue_length", "speech"] == 1
    assert found["scheduler_pending_pods", "active"] == 2
    assert found["scheduler_schedule_attempts_total", "scheduled"] == 7
    assert found["carrel_queue_oldest_seconds", "vision"] == harness.clock.now - 100
    assert found["carrel_gpu_utilization_per_gpu", "0", "node-1"] == 0.5
    work = ("node-1", "vision", "vision-secret-job")
    assert found["carrel_workload_gpu_utilization", *work] == 0.25
    assert found["carrel_workload_gpu_memory_used_bytes", *work] == 512 << 20
    assert found["carrel_gpu_health_condition", "NVLink 3 is down", "0", "node-1"] == 1
    epoch = await harness.ledger.begin_epoch()
    rows = [
        row(harness, "uid-vision-train-1", "pending", "starting", 7),
        row(harness, "b", "", "pending", 1),
        row(harness, "b", "pending", "starting", 4),
        row(harness, "b", "running", "preempting", 5),
        row(harness, "b", "preempting", "succeeded", 6),
    ]
    fresh = [msgspec.structs.replace(one, epoch=epoch) for one in rows]
    await harness.ledger.record(epoch=epoch, transitions=fresh[:2])
    found = await samples(harness, "root")
    assert found["carrel_evictions_total", "vision", "Reclaimed"] == 0
    assert found["carrel_workloads_ended_total", "training", "failed", "vision"] == 0
    await harness.ledger.record(epoch=epoch, transitions=fresh[2:])
    harness.clock.now += 10
    for _ in range(2):
        found = await samples(harness, "root")
        assert found["carrel_queue_seconds_count", "training", "vision"] == 2
        assert found["carrel_queue_seconds_sum", "training", "vision"] == pytest.approx(10)
        assert found["carrel_evictions_total", "vision", "unknown"] == 1
        assert found["carrel_workloads_ended_total", "training", "succeeded", "vision"] == 1


async def test_metrics_are_for_admins_and_scrapers(harness: ApiHarness) -> None:
    assert (await harness.ask("GET", "/metrics", "ada", base="/services/carrel")).status == 403
    assert (await harness.ask("GET", "/whoami", "scraper")).status == 403
