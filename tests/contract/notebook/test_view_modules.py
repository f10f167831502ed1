"""Modules of views and of JupyterLab, in a real browser without a Jupyter around them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Page, expect

from carrel.widgets import bundle
from carrel.widgets.compare import CompareView
from contract.console.browser import TIMEOUT_MS, chromium, complaints

pytestmark = pytest.mark.browser

MODEL = """(code, values) => {
  const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const model = { get: name => values[name], on() {}, off() {}, send() {} };
  const draw = ({ default: view }) => { view.render({ model, el: document.body }); };
  return import(address).then(draw);
}"""
LAB = """(code) => {
  const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const here = new Map();
  let last = 0;
  const notification = {
    manager: { has: id => here.has(id) },
    emit: (text) => { here.set(++last, text); return last; },
    update: ({ id, message }) => { here.set(id, message); },
    dismiss: id => { here.delete(id); }
  };
  window.texts = () => [...here.values()];
  return import(address).then(({ notices }) => {
    notices(notification, { listen: told => { window.tell = news => told({ news }); } }, () => {});
  });
}"""


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with chromium() as chrome:
        found = await chrome.new_page()
        found.set_default_timeout(TIMEOUT_MS)
        await found.goto("about:blank")
        yield found


async def test_a_comparison_draws_curves_and_a_table_that_sorts(page: Page) -> None:
    errors = complaints(page)
    row: dict[str, Any] = {"state": "running", "seconds": 5.0, "workload": "a", "project": "vision"}
    sheet = {
        "parameters": ["lr"],
        "varying": ["lr"],
        "metrics": ["loss"],
        "rows": [
            {**row, "run": name, "parameters": {"lr": rate}, "metrics": {"loss": 1 - rate}}
            for name, rate in (("a", 0.1), ("b", 0.2))
        ],
    }
    curve = [[step, float(step), 1 / (step + 1)] for step in range(5)]
    runs = [{"label": name, "project": "vision", "curves": {"loss": curve}} for name in "ab"]
    await page.evaluate(f"([code, values]) => ({MODEL})(code, values)", [
        CompareView._esm, {"runs": runs, "sheet": sheet},
    ])  # fmt: skip
    await expect(page.get_by_role("img", name="loss: a 0.2 at step 4")).to_be_visible()
    await expect(page.locator("canvas")).to_have_count(1)
    await page.get_by_role("button", name="loss").click()
    await expect(page.locator("tbody tr td:first-child")).to_have_text(["b", "a"])
    assert errors == []


async def test_at_most_three_notifications_stand_at_a_time(page: Page) -> None:
    await page.evaluate(LAB, bundle.text("notices.js"))

    def news(name: str, level: str, text: str) -> dict[str, str]:
        return {"project": "vision", "name": name, "level": level, "text": text}

    many = [news(f"job-{number}", "info", f"job-{number} started") for number in range(25)]
    await page.evaluate("news => window.tell(news)", many)
    assert await page.evaluate("window.texts()") == [
        "job-0 started",
        "job-1 started",
        "23 more of your jobs have news.",
    ]
    await page.evaluate("news => window.tell(news)", [news("job-0", "success", "job-0 succeeded")])
    await page.evaluate("news => window.tell(news)", [news("job-9", "error", "job-9 failed")])
    texts = await page.evaluate("window.texts()")
    assert len(texts) == 3
    assert "job-9 failed" in texts
    assert "job-0 started" not in texts
