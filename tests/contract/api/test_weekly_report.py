"""The weekly report: on Mondays, once for each channel, over real HTTP."""

import json
from datetime import UTC, datetime

from carrel_scheduler.alerts.weekly import WeeklyReports
from carrel_schema.governance.costs import BudgetOut
from contract.api.service import ApiHarness
from contract.api.test_budgets import use
from contract.api.webhook import Hook, hook

__all__ = ["hook"]


async def test_it_is_sent_on_monday_once(harness: ApiHarness, hook: Hook) -> None:
    harness.clock.now = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()  # a Friday
    await use(harness, "ada", "vision", 10)
    await use(harness, "carl", "speech", 2.5)

    async def budgets() -> list[BudgetOut]:
        return [BudgetOut(scope="project/vision", gpu_hours=40, used_gpu_hours=10)]

    channel = {"kind": "slack", "url": hook.url, "weekly_report": True}
    for name in ("heads", "others"):
        body = channel | {"weekly_report": name == "heads"}
        made = await harness.ask("PUT", f"/notification-channels/{name}", "root", json=body)
        assert made.body["weekly_report"] is (name == "heads")
    reports = WeeklyReports(
        harness.ledger, harness.alerts.channels, budgets, harness.alerts.tell_text, harness.clock
    )
    harness.clock.now = datetime(2026, 11, 23, 5, 59, tzinfo=UTC).timestamp()
    await reports.once()
    assert hook.took == [], "not in the night"
    harness.clock.now += 120
    hook.status = 500
    await reports.once()
    assert len(hook.took) == 1
    hook.status = 200
    await reports.once()
    await reports.once()
    assert len(hook.took) == 2, "what was not taken is sent again, what was is not"
    text = json.loads(hook.took[-1][1])["text"]
    assert "from 2026-11-16 to 2026-11-22" in text
    assert "GPU-hours were allocated, of which" in text
    assert text.index("vision") < text.index("speech")
    assert "project/vision: 10.0 of 40 GPU-hours (month)" in text
    harness.clock.now += 7 * 86_400
    await reports.once()
    assert len(hook.took) == 3
