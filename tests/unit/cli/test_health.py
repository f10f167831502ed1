"""``carrel health``."""

import json

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_health_is_shown_and_its_state_is_the_exit_code(run: Run, fake: FakeScheduler) -> None:
    check = {"name": "nodes", "state": "ok", "summary": "2 nodes are known.", "rules": []}
    fake.health.update({"state": "ok", "version": "1.2", "checks": [check]})
    well = run("health", user="root")
    assert (well.code, "nodes    ok     2 nodes are known." in well.out) == (0, True)
    broken = check | {"state": "failed", "summary": "Node n1 is lost.", "action": "Start it."}
    fake.health.update({"state": "failed", "checks": [broken]})
    shown = run("health", user="root")
    assert (shown.code, shown.err) == (1, "nodes: Start it.\n")
    plain = run("health", "--json", user="root")
    assert (plain.code, json.loads(plain.out)["checks"][0]["state"]) == (1, "failed")
    assert plain.err == ""
    fake.health.update({"state": "warning", "checks": [check | {"state": "warning"}]})
    assert run("health", user="root").code == 0
