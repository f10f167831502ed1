"""``carrel nodegroup``."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_a_group_is_defined_changed_shown_and_deleted(run: Run, fake: FakeScheduler) -> None:
    made = run("nodegroup", "create", "a100", "--label", "gpu=a100", "--role", "training")
    assert made.out == "Node group a100 created: 0 nodes, 0 GPUs.\n"
    changed = run("nodegroup", "update", "a100", "--project", "vision", "--node", "n1")
    assert changed.code == 0
    kept = fake.node_groups["a100"]
    assert (kept["match_labels"], kept["role"]) == ({"gpu": "a100"}, "training")
    assert (kept["projects"], kept["node_names"]) == (["vision"], ["n1"])
    assert run("nodegroup", "update", "a100", "--project", "none", "--role", "all").code == 0
    kept = fake.node_groups["a100"]
    assert (kept["projects"], kept["role"], kept["node_names"]) == ([], "", ["n1"])
    assert "a100" in run("nodegroup", "list").out
    assert "gpu=a100, n1" in run("nodegroup", "describe", "a100").out
    assert run("nodegroup", "delete", "a100").code == 0
    assert fake.node_groups == {}


def test_what_is_wrong_is_told(run: Run, fake: FakeScheduler) -> None:
    fake.node_groups["old"] = {"name": "old", "defined": False}
    assert (
        "write all, training, interactive" in run("nodegroup", "update", "old", "--role", "x").err
    )
    assert "name what to change" in run("nodegroup", "update", "old").err
    undefined = run("nodegroup", "update", "old", "--role", "training")
    assert "`carrel nodegroup create` defines it" in undefined.err
    missing = run("nodegroup", "describe", "new")
    assert "There is no node group new; there are old." in missing.err
    assert "at least one label" in run("nodegroup", "create", "new").err
