"""``carrel policy`` and ``carrel template``."""

import io
from pathlib import Path

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text("kinds: [training]\nrules:\n  gpus: {max: 2, message: ask Grace}\n")
    return str(file)


def test_a_policy_is_applied_listed_described_and_deleted(
    run: Run, fake: FakeScheduler, small: str
) -> None:
    tried = run("policy", "apply", "small", "-f", small, "--dry-run", user="root")
    assert "nothing was written" in tried.out
    assert fake.documents == {}
    made = run("policy", "apply", "small", "-f", small, user="root")
    assert made.out == "Policy small of platform applied, version 1.\n"
    assert "small  platform  training  gpus" in run("policy", "list").out
    told = run("policy", "describe", "small").out
    assert "max 2" in told
    assert "ask Grace" in told
    fake.effective_rules.update(
        {"gpus": {"max": {"value": 2.0, "policy": "small", "scope": "platform"}}}
    )
    assert "gpus   max 2  small   platform" in run("policy", "effective", "-p", "vision").out
    assert run("policy", "delete", "small", user="root").code == 0
    assert fake.documents == {}


def test_a_file_that_is_none_is_told(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("- a\n")
    refused = run("policy", "apply", "p", "-f", str(wrong), user="root")
    assert (refused.code, "holds no mapping" in refused.err) == (2, True)
    missing = run("policy", "apply", "p", "-f", str(tmp_path / "none"), user="root")
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


def test_ones_own_template_and_a_submission_with_it(
    run: Run, fake: FakeScheduler, tmp_path: Path
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("fields:\n  gpus: 1\n  command: [python, batch.py]\n")
    assert run("template", "apply", "batch", "-f", str(file)).out == (
        "Template batch of user/ada applied, version 1.\n"
    )
    assert "batch  user/ada  all" in run("template", "list").out
    assert run("list", "templates").out == run("template", "list").out
    assert "python batch.py" in run("template", "describe", "batch").out
    assert run("submit", "--template", "batch", "-n", "x").code == 0
    assert run("submit", "-n", "y").code == 2
    assert run("template", "delete", "batch").code == 0
    assert fake.documents == {}


def test_a_secret_is_made_without_its_value_on_the_command_line(
    run: Run, fake: FakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("from a file")
    monkeypatch.setenv("HUB_TOKEN", "from a variable")
    monkeypatch.setattr("sys.stdin", io.StringIO("typed\n"))
    made = run("secret", "create", "hub", "USER", "--from-file", f"KEY={tmp_path / 'key'}",
               "--from-env", "TOKEN=HUB_TOKEN")  # fmt: skip
    assert "has the keys KEY, TOKEN, USER, version 1." in made.out
    assert "-e VARIABLE=SECRET:hub,KEY" in made.out
    assert "hub   user/ada  generic  KEY, TOKEN, USER" in run("secret", "list").out
    assert "Which keys?" in run("secret", "create", "hub").err
    assert "should be KEY=FILE" in run("secret", "create", "hub", "--from-file", "x").err
    assert "no variable NONE" in run("secret", "create", "hub", "--from-env", "NONE").err
    assert "Standard input ended" in run("secret", "create", "hub", "A").err
    assert run("secret", "delete", "hub").code == 0
    assert fake.documents == {}


def test_use_is_shown_with_its_cost_and_as_csv(run: Run, fake: FakeScheduler) -> None:
    items = [{"key": "=vision", "gpu_seconds": 5400.0, "cost": 3.25, "workloads": 2}]
    fake.usage_facts.update({"items": items, "currency": "EUR"})
    shown = run("usage", "--by", "department", "--since", "30d", "--until", "1d")
    assert "COST (EUR)" in shown.out
    assert "3.25" in shown.out
    written = run("usage", "-o", "csv").out.splitlines()
    assert written[0].startswith("key,gpu_seconds")
    assert written[1].startswith("'=vision,5400.0")
    assert "longer ago" in run("usage", "--since", "1d", "--until", "2d").err
