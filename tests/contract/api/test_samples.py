"""Metrics over time: of what one may see, in spans that fit the time."""

import pytest

from carrel_schema.samples import Sample, Step
from contract.api.service import ApiHarness

DAY = 86_400


async def test_metrics_are_read_by_subject_and_time(harness: ApiHarness) -> None:
    now = int(harness.clock.now)
    spans: dict[Step, int] = {300: 1, 3600: 60}
    for step, days in spans.items():
        for at in range(now - days * DAY, now, step * 12):
            means = {"cluster": Sample(gpus=8), "project/vision": Sample(gpus_allocated=2)}
            await harness.ledger.samples.add(step, at - at % step, means)
    day = (await harness.ask("GET", "/samples")).body
    assert (day["subject"], day["step_seconds"], len(day["times"]) > 20) == ("cluster", 300, True)
    assert set(day["values"]["gpus"]) == {8}
    long = await harness.ask("GET", f"/samples?subject=project/vision&since={now - 30 * DAY}")
    assert (long.body["step_seconds"], len(long.body["times"]) > 55) == (3600, True)
    assert set(long.body["values"]["gpus_allocated"]) == {2}


@pytest.mark.parametrize(
    ("who", "subject", "status"),
    [
        ("ada", "cluster", 200),
        ("ada", "node/n1", 200),
        ("ada", "project/vision", 200),
        ("ada", "project/speech", 404),
        ("ada", "department/sciences", 404),
        ("ada", "department/../x", 404),
        ("root", "department/sciences", 200),
        ("root", "project/speech", 200),
        ("root", "cluster/x", 422),
        ("ada", "node/%00", 422),
        ("root", "user/ada", 422),
    ],
)
async def test_of_what_one_may_see(
    harness: ApiHarness, who: str, subject: str, status: int
) -> None:
    assert (await harness.ask("GET", f"/samples?subject={subject}", who)).status == status
