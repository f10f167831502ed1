"""Every view and every part of the JupyterLab extension, in a real JupyterLab and browser.

The scheduler behind it is a fake, so that any moment of any kind of work can be shown. With
``CARREL_SCREENSHOTS`` naming a folder, what was seen is kept there.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect

from carrel.testing import FakeScheduler
from contract.notebook.conftest import QUOTA, USE, chromium
from contract.notebook.lab import Lab, running_lab, write_notebook

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 1000
SHOW = """from carrel import Client
from carrel.widgets.cluster import ClusterView
from carrel.notebook.form import FormView
from carrel.notebook.job import view_of
from carrel.widgets.tables import JobsView, QuotaView
client = Client()
for name in ("gang", "sweep", "model"):
    display(view_of(client, client.get_workload("vision", name)))
display(ClusterView(client, client.nodes()), QuotaView(client, client.list_projects()))
display(FormView(client, "experiment"))
display(JobsView(client, client.list_workloads(), "ada"))"""
BUSY = "import time; time.sleep(600)"
HOLDER = {"project": "vision", "name": "gang", "user": "ada", "state": "running"}
SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "layers": {"type": "int", "low": 1, "high": 4},
    "kind": {"type": "categorical", "choices": ["relu", "tanh"]},
}


@pytest.fixture(scope="module")
def scheduler() -> Iterator[FakeScheduler]:
    """Ada's workspace runs in ``vision``, and there is work of every kind."""
    with FakeScheduler(people={"ada": ["vision"]}, tcp=True) as fake:
        fake.project("vision", quota=QUOTA, use=USE, department="science")
        fake.submit("vision", "desk", kind="workspace", server_name="")
        fake.run("vision", "desk")
        fake.nodes(*nodes())
        a_gang(fake)
        an_experiment(fake)
        an_endpoint(fake)
        yield fake


@pytest.fixture(scope="module")
def lab(scheduler: FakeScheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab(scheduler, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh profile; errors in the page's code fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened, errors = context.new_page(), []
    opened.set_default_timeout(60 * SECONDS)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == [], errors


def nodes() -> tuple[dict[str, Any], dict[str, Any]]:
    whole = {**HOLDER, "gpu_milli": 1000}
    borrowed = {**HOLDER, "gpu_milli": 500, "borrowed": True}
    first = [
        {"index": 0, "name": "T4", "holders": [whole]},
        {"index": 1, "name": "T4", "holders": [borrowed]},
    ]
    second = [{"index": 0, "broken": True, "message": "fell off the bus"}, {"index": 1}]
    return (
        {"name": "node-1", "gpu_allocated_milli": 1500, "devices": first},
        {"name": "node-2", "devices": second},
    )


def a_gang(fake: FakeScheduler) -> None:
    fake.submit("vision", "gang", kind="distributed", tasks=2, gpus=1)
    fake.run("vision", "gang")
    fake.status("vision", "gang", borrowed=True, tasks=[
        {"index": 0, "node": "node-1", "devices": [0], "pid": 1, "started_at": time.time()},
        {"index": 1, "node": "node-2", "devices": [1], "pid": 2, "started_at": time.time()},
    ])  # fmt: skip
    fake.log("vision", "gang", "[0] epoch 1 of 40", "[1] epoch 1 of 40")
    for step in range(1, 13):
        fake.report("vision", "gang", step=step, done=step, total=40, rate=0.5, unit="epoch",
                    metrics={"loss": 2.3 / step, "accuracy": 1 - 0.9 / step})  # fmt: skip


def an_experiment(fake: FakeScheduler) -> None:
    search = {"parameters": SPACE, "metric": "loss", "completions": 24, "parallelism": 3}
    owner = fake.submit("vision", "sweep", kind="experiment", gpus=1, experiment=search)["uid"]
    fake.status("vision", "sweep", phase="running", started_at=time.time())
    for number in range(18):
        rate = 10 ** (-4 + 4 * ((number * 7) % 18) / 18)
        own = {"lr": rate, "layers": 1 + number % 4, "kind": ("relu", "tanh")[number % 2]}
        name = f"sweep-{number}"
        fake.submit("vision", name, kind="trial", owner=owner, part=number,
                    trial={"number": number, "parameters": own})  # fmt: skip
        fake.run("vision", name)
        loss = 0.2 + (math.log10(rate) + 2) ** 2 / 4 + 0.05 * (number % 4)
        fake.report("vision", name, step=1, metrics={"loss": loss})
        if number < 15:
            fake.finish("vision", name, exit_code=int(number == 6))


def an_endpoint(fake: FakeScheduler) -> None:
    section = {"min_replicas": 1, "max_replicas": 3}
    owner = fake.submit("vision", "model", kind="inference", gpus=0.5, inference=section)["uid"]
    for number in range(2):
        name = f"model-{number}"
        fake.submit("vision", name, kind="replica", owner=owner, part=number, gpus=0.5)
    fake.run("vision", "model-0", devices=[1])
    serving(fake, 2.5)


def serving(fake: FakeScheduler, rate: float) -> None:
    now = {"url": "/services/gateway/vision/model/", "wanted": 2, "ready": 1, "starting": 1,
           "revision": 1, "in_flight": 3, "requests_per_second": rate}  # fmt: skip
    fake.status("vision", "model", phase="running", started_at=time.time(), endpoint=now)


def keep(page: Page, name: str, selector: str = "") -> None:
    folder = os.environ.get("CARREL_SCREENSHOTS")
    if folder and selector:
        page.locator(selector).first.screenshot(path=Path(folder) / f"{name}.png")
    elif folder:
        page.wait_for_timeout(800)  # let what slides in arrive
        page.screenshot(path=Path(folder) / f"{name}.png")


def until(true: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.05)


def accessible(page: Page, selector: str) -> None:
    """Nothing of ours breaks a rule that axe knows."""
    page.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text())
    options = "{resultTypes: ['violations']}"  # of others not every element is told
    found = page.evaluate(f"selector => axe.run({{include: [[selector]]}}, {options})", selector)
    assert found["passes"], f"{selector} is not there"
    assert [
        (one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]
    ] == []


def ours_is_accessible(page: Page, *parts: Locator) -> None:
    """Nor does any of these, in light and in dark."""
    for name in ("Light", "Dark"):
        theme(page, name)
        for part in parts:
            part.first.evaluate("element => element.setAttribute('data-looked-at', '')")
            accessible(page, "[data-looked-at]")
            part.first.evaluate("element => element.removeAttribute('data-looked-at')")


def theme(page: Page, name: str) -> None:
    """Choose a theme; all of it again where JupyterLab has no shortcuts yet or is slow to open."""
    palette = page.locator(".lm-CommandPalette-input")
    is_light = str(name == "Light").lower()

    def chosen() -> bool:
        page.keyboard.press("Escape")
        page.keyboard.press("Control+Shift+C")
        with suppress(Error):
            palette.fill(f"Use Theme: JupyterLab {name}", timeout=2_000)
            page.keyboard.press("Enter")
            has_theme = f"body[data-jp-theme-light='{is_light}']"
            page.wait_for_selector(has_theme, state="attached", timeout=5_000)
            return True
        return False

    until(chosen, f"the theme {name}")


def run_cell(page: Page, index: int) -> None:
    """Click into a cell and run it, once the page has a kernel to run it in."""
    idle = page.get_by_role("button", name="Python 3 (ipykernel) | Idle")
    expect(idle.first).to_be_visible(timeout=90 * SECONDS)
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(index)
    cell.locator(".jp-InputArea-editor").click()
    page.keyboard.press("Control+Enter")
    expect(cell.locator(".jp-InputArea-prompt")).not_to_have_text("[ ]:")


def test_views(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    write_notebook(lab.folder, "views.ipynb", SHOW, BUSY)
    page.goto(lab.page("lab/tree/views.ipynb"))
    run_cell(page, 0)
    expect(page.get_by_role("form")).to_be_visible()
    gang = page.get_by_role("region", name="Training gang")
    gang.scroll_into_view_if_needed()
    expect(gang).to_contain_text("2 members: 2 running")
    expect(gang.locator(".carrel-members")).to_contain_text("node-2, GPU 1")
    expect(gang.locator(".carrel-lines")).to_contain_text("[1] epoch 1 of 40")
    expect(gang.locator(".carrel-figure")).to_have_count(2)
    sweep = page.get_by_role("region", name="Experiment sweep")
    expect(sweep).to_contain_text("14 completed · 3 running · 1 failed · 3 at once · tpe")
    expect(sweep.locator(".carrel-chart")).to_have_count(3)
    sweep.get_by_role("button", name="loss", exact=True).click()
    best = sweep.locator("tbody tr").first
    expect(best).to_have_class("carrel-best-row")
    sweep.get_by_role("button", name="Train with the best").click()
    expect(sweep).to_contain_text("sweep-best was submitted.")
    told = scheduler.workload("vision", "sweep-best")["spec"]["environment"]
    assert told["CARREL_PARAM_KIND"] == "relu"
    model = page.get_by_role("region", name="Endpoint model")
    model.scroll_into_view_if_needed()
    expect(model).to_contain_text("1 of 2 replicas ready · 1 starting · 2.5 requests/s")
    expect(
        page.get_by_role("img", name="GPU 1: 0.5 gang (vision), borrowed; 0.5 free")
    ).to_be_visible()
    run_cell(page, 1)
    expect(page.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(1)
    serving(scheduler, 4.0)
    expect(model).to_contain_text("4 requests/s")  # while the kernel is busy
    serving(scheduler, 3.0)
    expect(model.locator(".carrel-figure")).to_have_count(3)
    expect(page.locator(".carrel-department")).to_have_text("Department science")
    for shade in ("light", "dark"):
        theme(page, shade.capitalize())
        accessible(page, ".carrel-view")
        accessible(page, ".carrel-form")
        for name, selector in (
            ("gang", "[aria-label='Training gang']"),
            ("sweep", "[aria-label='Experiment sweep']"),
            ("model", "[aria-label='Endpoint model']"),
            ("gpus", "[aria-label='GPUs']"),
            ("form", ".carrel-form"),
        ):
            keep(page, f"{name}-{shade}", selector)
    the_saved_notebook_keeps_the_last_state(lab, scheduler, page)


def the_saved_notebook_keeps_the_last_state(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    scheduler.finish("vision", "gang")
    gang = page.get_by_role("region", name="Training gang")
    until(lambda: in_view(gang), "the training in view")
    expect(gang).to_contain_text("Succeeded")
    expect(gang).to_have_count(1)
    notebook = lab.folder / "views.ipynb"

    def saved() -> bool:
        page.keyboard.press("Control+s")
        page.wait_for_timeout(500)
        return "Succeeded</span> <b>gang</b>" in notebook.read_text()

    until(saved, "the last state in the saved notebook", 60)


def test_jobs_beside_kernels_and_their_news(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    scheduler.submit("vision", "old")
    scheduler.finish("vision", "old")
    page.goto(lab.page())
    queue = page.locator(".carrel-queue")
    expect(queue).to_have_text(re.compile(r"^\d running"))
    theme(page, "Light")
    scheduler.submit("vision", "night", gpus=1)
    scheduler.submit("vision", "not-mine", user="bob")
    expect(queue).to_have_text(re.compile(r"^\d running · [12] pending$"))
    scheduler.run("vision", "night")
    expect(toast(page, "night started on node-1.")).to_be_visible()
    accessible(page, ".Toastify__toast")
    theme(page, "Dark")
    scheduler.preempt("vision", "night", for_project="speech", lost=90.0)
    preempted = (
        "night was preempted for speech (it was on borrowed GPUs); 1 min 30 s of work was lost"
    )
    expect(toast(page, preempted)).to_be_visible()
    keep(page, "notifications")
    scheduler.report("vision", "night", step=1200, checkpoint_step=1200)
    scheduler.run("vision", "night")
    expect(toast(page, "night goes on from step 1,200.")).to_be_visible()
    accessible(page, ".Toastify__toast")
    assert page.locator(".Toastify__toast", has_text="old").count() == 0
    page.get_by_role("tab", name="Running").first.click()
    running = page.locator(".jp-RunningSessions-item", has_text="night")
    expect(running).to_be_visible()
    keep(page, "running-panel")
    status = (page.locator(".carrel-status"), page.locator(".carrel-queue"))
    section = page.locator(".jp-RunningSessions-section").filter(has=running)
    ours_is_accessible(page, section, *status)
    running.hover()
    running.locator(".jp-RunningSessions-itemShutdown").click()
    until(lambda: ("DELETE", "/workloads/vision/night") in scheduler.requests, "the cancellation")
    expect(running).to_have_count(0)


def in_view(part: Locator) -> bool:
    """Scroll to it; a part that was just drawn anew is looked for again."""
    try:
        part.scroll_into_view_if_needed()
    except Error:
        return False
    return True


def toast(page: Page, text: str) -> Any:
    return page.locator(".Toastify__toast", has_text=text)


def test_launcher_forms_and_jobs(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    page.goto(lab.page())
    card = page.locator(".jp-LauncherCard[title='Submit a training']")
    expect(card).to_be_visible()
    ours_is_accessible(page, page.locator(".jp-Launcher-section").filter(has=card))
    keep(page, "launcher")
    card.click()
    form = page.get_by_role("form", name="Submit a training")
    form.get_by_label("GPUs", exact=True).fill("many")
    expect(form).to_contain_text("'many' is no number of GPUs; write 0, 1 or 0.5.")
    form.get_by_label("GPUs", exact=True).fill("1")
    form.get_by_role("button", name="Submit").click()
    expect(form).to_contain_text("Say what runs.")
    form.get_by_label("Command").fill("python train.py --note 'two words'")
    form.get_by_label("Name", exact=True).fill("from-form")
    expect(form.get_by_role("status")).to_have_text("It would start now.")
    accessible(page, ".carrel-form")
    keep(page, "launcher-form")
    form.get_by_role("button", name="Submit").click()
    expect(form).to_contain_text("vision/from-form was submitted.")
    sent = scheduler.workload("vision", "from-form")["spec"]
    assert sent["command"] == ["python", "train.py", "--note", "two words"]
    assert (sent["gpus"], sent["working_dir"]) == (1.0, str(lab.folder))
    page.locator(".carrel-queue").click()
    row = page.get_by_role("row", name="from-form")
    expect(row).to_contain_text("Pending")
    accessible(page, ".carrel-panel")
    keep(page, "jobs-panel")
    row.get_by_role("button", name="Suspend").click()
    expect(row).to_contain_text("Stopped")


def test_notebook_runs_as_a_job(lab: Lab, scheduler: FakeScheduler, page: Page) -> None:
    write_notebook(lab.folder, "report.ipynb", "lr = 0.01\nname = 'a'  # of the run", "print(lr)")
    path = lab.folder / "report.ipynb"
    tagged = json.loads(path.read_text())
    tagged["cells"][0]["metadata"]["tags"] = ["parameters"]
    path.write_text(json.dumps(tagged))
    page.goto(lab.page("lab/tree/report.ipynb"))
    page.get_by_role("button", name="Run as job").click()
    form = page.get_by_role("form", name="Run report.ipynb as a job")
    values = form.get_by_label("Parameters")
    expect(values).to_have_value("lr=0.01\nname=a")
    values.fill("lr=0.1\nname=a")
    keep(page, "run-as-job")
    accessible(page, ".carrel-form")
    form.get_by_role("button", name="Submit").click()
    expect(form).to_contain_text("was submitted.")
    job = next(one for one in scheduler.workloads() if one["spec"]["kind"] == "notebook")
    assert job["spec"]["notebook"]["parameters"] == {"lr": 0.1, "name": "a"}
    assert job["spec"]["notebook"]["path"] == "report.ipynb"
    assert "report.ipynb" in job["spec"]["files"]


def test_notebook_without_lab_has_the_form_too(
    lab: Lab, scheduler: FakeScheduler, browser: Browser
) -> None:
    """In a page of its own: Notebook's code complains of a schema of its own that it lacks."""
    write_notebook(lab.folder, "alone.ipynb", "1")
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(60 * SECONDS)
        page.goto(lab.page("notebooks/alone.ipynb"))
        page.get_by_role("button", name="Run as job").click()
        form = page.get_by_role("form", name="Run alone.ipynb as a job")
        form.get_by_label("Name", exact=True).fill("alone")
        form.get_by_role("button", name="Submit").click()
        expect(form).to_contain_text("vision/alone was submitted.")
    assert scheduler.workload("vision", "alone")["spec"]["kind"] == "notebook"
