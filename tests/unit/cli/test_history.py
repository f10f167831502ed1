"""``carrel history``."""

from carrel.cli.commands.admin.samples import bars
from carrel.testing import FakeScheduler
from carrel_schema.samples import METRICS
from unit.cli.conftest import NOW, Run


def test_metrics_are_shown_over_time(run: Run, fake: FakeScheduler) -> None:
    values = {name: [0.0, 0.0] for name in METRICS} | {"gpus_allocated": [1.0, 3.0]}
    fake.samples.update(times=[NOW - 600, NOW - 300], values=values)
    shown = run("history", "project/vision", "--since", "7d").out
    assert "GPUs allocated to running work  3     2.00  3     ▃█" in shown
    assert "pending work" not in shown
    csv = run("history", "-o", "csv").out.splitlines()
    assert csv[0].startswith("at,gpus,")
    assert len(csv) == 3


def test_bars_are_means_of_parts() -> None:
    assert bars([0, 0, 4, 4], width=2) == "▁█"
    assert bars([1.0]) == "█"
