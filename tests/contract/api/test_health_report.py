"""The health of the platform over REST."""

from carrel_scheduler.alerts.conditions import Facts
from carrel_schema.answers import NodeView
from contract.api.service import Desk


async def test_administrators_read_what_is_well_and_what_is_not(desk: Desk) -> None:
    desk.facts = Facts(now=desk.clock.now, nodes=[NodeView(name="n1", status="lost")])
    assert (await desk.ask("GET", "/health", "ada")).status == 403
    found = (await desk.ask("GET", "/health", "root")).body
    assert (found["state"], found["at"]) == ("failed", desk.clock.now)
    states = {one["name"]: one["state"] for one in found["checks"]}
    assert states.pop("nodes") == "failed"
    assert set(states.values()) == {"ok"}
    ledger = next(one for one in found["checks"] if one["name"] == "ledger")
    assert "The ledger has 0." in ledger["summary"]
    assert "MiB" in ledger["summary"]
    off = {"enabled": False}
    assert (await desk.ask("PUT", "/alert-rules/node-lost", "root", json=off)).status == 200
    assert (await desk.ask("GET", "/health", "root")).body["state"] == "ok"


async def test_the_liveness_endpoint_stays_open_and_plain(desk: Desk) -> None:
    alive = await desk.ask("GET", "/health", None, base="/services/carrel")
    assert (alive.status, alive.body) == (200, {})
    assert (await desk.ask("GET", "/health", None)).status == 401


async def test_the_hub_tells_how_its_directory_answers(desk: Desk) -> None:
    now = desk.clock.now

    async def directory() -> dict[str, str]:
        desk.facts = Facts(now=desk.clock.now)
        checks = (await desk.ask("GET", "/health", "root")).body["checks"]
        found: dict[str, str] = next(one for one in checks if one["name"] == "directory")
        return found

    assert "do not come from a directory" in (await directory())["summary"]
    told = {"reported_at": 0, "succeeded_at": now + 1e6}
    assert (await desk.ask("PUT", "/directory-sync", "ada", json=told)).status == 403
    assert (await desk.ask("PUT", "/directory-sync", "spawner", json=told)).status == 204
    assert (await directory())["summary"] == "Rights were compared with it 0 s ago."
    desk.clock.now += 3600
    failed = {"reported_at": now, "succeeded_at": 0, "error": "ldap: refused"}
    assert (await desk.ask("PUT", "/directory-sync", "spawner", json=failed)).status == 204
    found = await directory()
    assert found["state"] == "warning"
    assert "for 60 min: ldap: refused." in found["summary"]
    assert "the Hub reaches the directory" in found["action"]
