"""The health of the platform over REST."""

from carrel_scheduler.alerts.conditions import Facts
from carrel_schema.answers import NodeView
from contract.api.service import ApiHarness


async def test_administrators_read_what_is_well_and_what_is_not(harness: ApiHarness) -> None:
    harness.facts = Facts(now=harness.clock.now, nodes=[NodeView(name="n1", status="lost")])
    assert (await harness.ask("GET", "/health", "ada")).status == 403
    found = (await harness.ask("GET", "/health", "root")).body
    assert (found["state"], found["at"]) == ("failed", harness.clock.now)
    states = {one["name"]: one["state"] for one in found["checks"]}
    assert states.pop("nodes") == "failed"
    assert set(states.values()) == {"ok"}
    ledger = next(one for one in found["checks"] if one["name"] == "ledger")
    assert "The ledger has 0." in ledger["summary"]
    assert "MiB" in ledger["summary"]
    off = {"enabled": False}
    assert (await harness.ask("PUT", "/alert-rules/node-lost", "root", json=off)).status == 200
    assert (await harness.ask("GET", "/health", "root")).body["state"] == "ok"


async def test_the_liveness_endpoint_stays_open_and_plain(harness: ApiHarness) -> None:
    alive = await harness.ask("GET", "/health", None, base="/services/carrel")
    assert (alive.status, alive.body) == (200, {})
    assert (await harness.ask("GET", "/health", None)).status == 401


async def test_the_hub_tells_how_its_directory_answers(harness: ApiHarness) -> None:
    now = harness.clock.now

    async def directory() -> dict[str, str]:
        harness.facts = Facts(now=harness.clock.now)
        checks = (await harness.ask("GET", "/health", "root")).body["checks"]
        found: dict[str, str] = next(one for one in checks if one["name"] == "directory")
        return found

    assert "do not come from a directory" in (await directory())["summary"]
    told = {"reported_at": 0, "succeeded_at": now + 1e6}
    assert (await harness.ask("PUT", "/directory-sync", "ada", json=told)).status == 403
    assert (await harness.ask("PUT", "/directory-sync", "spawner", json=told)).status == 204
    assert (await directory())["summary"] == "Rights were compared with it 0 s ago."
    harness.clock.now += 3600
    failed = {"reported_at": now, "succeeded_at": 0, "error": "ldap: refused"}
    assert (await harness.ask("PUT", "/directory-sync", "spawner", json=failed)).status == 204
    found = await directory()
    assert found["state"] == "warning"
    assert "for 60 min: ldap: refused." in found["summary"]
    assert "the Hub reaches the directory" in found["action"]
