"""``carrel budget``."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_a_budget_is_set_listed_and_deleted(run: Run, fake: FakeScheduler) -> None:
    made = run("budget", "set", "project/vision", "--gpu-hours", "50", "--refuse")
    assert made.out == "project/vision has used 12.5 of 50 GPU-hours (month).\n"
    assert fake.budgets["project/vision"]["at_end"] == "refuse"
    assert "project/vision  12.5  50         25%    month   refuse" in run("budget", "list").out
    assert run("budget", "delete", "project/vision").code == 0
    assert fake.budgets == {}
