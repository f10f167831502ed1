"""A real TensorBoard behind the gateway: shown to the project, stopped when nobody looks."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import async_playwright

from contract.chromium import FLAGS, program
from contract.gateway.running import GatewaySite, gateway_site, until

TIMEOUT_MS = 240_000
IDLE_SECONDS = 20.0
REPORTS = """
import carrel

for step in range(5):
    carrel.report(step=step, loss=1 / (1 + step))
"""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[GatewaySite]:
    """With a job of bea's that has reported."""
    async with gateway_site(tmp_path, gpus=1) as made:
        files = {"train.py": REPORTS}
        body = {"project": "vision", "command": ["python", "train.py"], "files": files}
        await made.api("POST", "/workloads", "bea", body | {"name": "train-1"})
        await made.until("train-1", lambda one: one["phase"] == "succeeded")
        yield made
        await made.api("DELETE", "/workloads/vision/board")
        await until(lambda: names(made), lambda found: found == ["train-1"], "the board's end")


async def names(served: GatewaySite) -> list[str]:
    listed = await served.api("GET", "/workloads")
    return [one["name"] for one in listed["items"]]


async def board(served: GatewaySite, **more: Any) -> dict[str, Any]:
    """Ada's TensorBoard over the job, once it answers."""
    body = {"kind": "tensorboard", "name": "board", "project": "vision"}
    made: dict[str, Any] = await served.api(
        "POST", "/workloads", body=body | {"tensorboard": {"jobs": ["train-1"], **more}}
    )
    await until(lambda: runs(served), lambda found: found == ["train-1"], "the runs")
    return made


async def runs(served: GatewaySite) -> Any:
    status, body, _ = await served.ask("GET", "vision/board/data/runs")
    return json.loads(body) if status == 200 else status


@pytest.mark.browser
async def test_members_see_the_curves_in_a_browser_and_others_nothing(served: GatewaySite) -> None:
    made = await board(served)
    assert made["spec"]["cpu_millicores"] == 500
    assert made["spec"]["preemptible"] is False
    points = "vision/board/data/plugin/scalars/scalars?tag=loss&run=train-1"
    status, body, _ = await served.ask("GET", points, "bea")
    assert status == 200
    assert [point[1] for point in json.loads(body)] == [0, 1, 2, 3, 4]
    assert json.loads(body)[-1][2] == pytest.approx(0.2)
    assert (await served.ask("GET", points, "carl"))[0] == 403
    await looks(served)
    refused = {"kind": "tensorboard", "name": "b", "project": "vision"}
    async with served.session.post(
        f"{served.scheduler.api}/workloads",
        json=refused | {"tensorboard": {"jobs": ["train-2"]}},
        headers={"Authorization": "token ada"},
    ) as answer:
        problem = await answer.json()
    assert (answer.status, problem["code"]) == (422, "unknown_job")
    assert "such as `train-1`" in problem["errors"][0]["expected"]


async def looks(served: GatewaySite) -> None:
    """Bea opens the page in a browser."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), args=FLAGS)
        page = await browser.new_page(extra_http_headers={"Authorization": "Bearer bea"})
        port = served.gateway.rpartition(":")[2]
        await page.goto(f"http://board--vision.localhost:{port}/", timeout=TIMEOUT_MS)
        await page.get_by_text("train-1").first.wait_for(timeout=TIMEOUT_MS)
        await page.get_by_text("loss").first.wait_for(timeout=TIMEOUT_MS)
        await page.screenshot(path=str(served.scheduler.state_dir / "tensorboard.png"))
        await browser.close()


async def test_it_stops_when_nobody_looks_and_comes_back(served: GatewaySite) -> None:
    await board(served, idle_seconds=IDLE_SECONDS)
    stopped = await served.until("board", lambda one: one["phase"] == "stopped")
    assert stopped["reason"]["token"] == "Idle"
    assert stopped["reason"]["sentence"].startswith("Stopped: nobody has looked at it for ")
    await served.api("POST", "/workloads/vision/board/resume")
    await until(lambda: runs(served), lambda found: found == ["train-1"], "the runs again")
