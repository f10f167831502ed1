"""``carrel budget``."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_a_budget_is_set_listed_and_deleted(run: Run, fake: FakeScheduler) -> None:
    made = run("budget", "set", "project/vision", "--gpu-hours", "50", "--refuse")
    assert made.out == "project/vision has used 12.5 of 50 GPU-hours (month).\n"
    assert fake.budgets["project/vision"]["at_end"] == "refuse"
    assert "project/vision  12.5  50 GPU-hours  25%    month   refuse" in run("budget", "list").out
    assert run("budget", "delete", "project/vision").code == 0
    assert fake.budgets == {}


def test_a_budget_may_lower_priorities(run: Run, fake: FakeScheduler) -> None:
    hours = ("budget", "set", "project/vision", "--gpu-hours", "50", "--lower-priority")
    assert run(*hours).code == 0
    assert fake.budgets["project/vision"]["at_end"] == "lower-priority"
    assert "lower-priority" in run("budget", "list").out
    both = run(*hours, "--refuse")
    assert (both.code, "say one of both" in both.err) == (2, True)


def test_a_budget_may_be_money(run: Run, fake: FakeScheduler) -> None:
    made = run("budget", "set", "user/ada", "--cost", "120", "--period", "year")
    assert made.out == "user/ada has used 30.0 of 120 EUR (year).\n"
    assert fake.budgets["user/ada"]["gpu_hours"] is None
    assert "user/ada  30.0  120 EUR  25%    year    warn" in run("budget", "list").out
    none = run("budget", "set", "user/ada")
    assert (none.code, "needs --gpu-hours, --cost or both" in none.err) == (2, True)
