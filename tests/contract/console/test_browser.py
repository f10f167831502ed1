"""The pages in a real browser: accessible, narrow, live but not nervous, and without JavaScript."""

import re
from collections.abc import AsyncIterator, Mapping
from importlib import resources

import pytest
from playwright.async_api import Browser, Page, expect

from contract.console.browser import TIMEOUT_MS, chromium, complaints, visit
from contract.console.site import Site

pytestmark = pytest.mark.browser

PAGES = {
    "ada": (
        "",
        "jobs",
        "help",
        "cluster",
        "queue",
        "submit",
        "submit?again=vision/train-7",
        "submit?kind=experiment",
        "jobs?whose=all",
        "jobs/vision/sweep",
        "jobs/vision/digits",
        "jobs/vision/nightly",
        "submit?kind=inference",
        "jobs/vision/train-7",
        "jobs/vision/desk",
        "jobs/vision/train-7/delete",
        "compare?run=vision/train-7&run=vision/train-8",
        "projects/vision",
    ),
    "root": (
        *("projects", "projects/vision", "new-project", "projects/speech/delete"),
        *("service-accounts", "assets", "assets/edit?type=compute", "node-groups"),
    ),
    "new": ("", "projects"),
}
# Of other results not every element is told: that would take a quarter more.
AXE = "rules => axe.run({runOnly: rules, resultTypes: ['violations']})"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture
async def chrome() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


async def opened(chrome: Browser, site: Site, path: str, who: str = "ada", **look: object) -> Page:
    """A page of the console, as ``who``."""
    site.hub.who = who
    made = await chrome.new_context(**look)  # type: ignore[arg-type]
    made.set_default_timeout(TIMEOUT_MS)
    page = await made.new_page()
    await visit(page, site.url(path))
    return page


def axe_script() -> str:
    """The accessibility checker, which inserts itself into the page."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text()


async def violations(page: Page, script: str, rules: list[str] | Mapping[str, object]) -> list[str]:
    """What axe finds on the page, one line each."""
    await page.evaluate(script)
    result = await page.evaluate(AXE, rules)
    return [
        f"{page.url}: {one['id']} {node['target']} {node['failureSummary']}"
        for one in result["violations"]
        for node in one["nodes"]
    ]


async def too_wide(page: Page, width: int) -> list[str]:
    """Whether the page would have to be moved sideways on a screen of this width."""
    await page.set_viewport_size({"width": width, "height": 800})
    beyond = await page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return [f"{page.url}: {beyond} px too wide at {width}"] if beyond > 0 else []


async def test_every_page_is_accessible_and_fits(chrome: Browser, site: Site) -> None:
    found: list[str] = []
    script = axe_script()
    for who, paths in PAGES.items():
        page = await opened(chrome, site, "", who, color_scheme="light")
        errors = complaints(page)
        for path in paths:
            await page.goto(site.url(path))
            found += await too_wide(page, 360) + await too_wide(page, 1280)
            found += await violations(page, script, RULES)
        found += errors
    assert found == []


async def test_every_page_can_be_read_in_the_dark(chrome: Browser, site: Site) -> None:
    found: list[str] = []
    script = axe_script()
    for who, paths in PAGES.items():
        page = await opened(chrome, site, "", who, color_scheme="dark")
        for path in paths:
            await page.goto(site.url(path))
            rule = {"type": "rule", "values": ["color-contrast"]}
            found += await violations(page, script, rule)
    assert found == []


async def test_a_change_appears_without_reloading(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "")
    errors = complaints(page)
    row = page.locator("#running tr", has_text="train-8")
    await expect(row).to_contain_text("310 of 4,000 steps")
    await page.evaluate("window.sameDocument = true")
    site.scheduler.report("vision", "train-8", step=999, total=4000, metrics={"loss": 1.0})
    await expect(row).to_contain_text("999 of 4,000 steps")
    site.scheduler.finish("vision", "train-8")
    await expect(row).to_have_count(0)
    assert await page.evaluate("window.sameDocument") is True
    assert errors == []


async def test_runs_are_compared_by_curves_and_a_table(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "compare?run=vision/train-7&run=vision/train-8")
    errors = complaints(page)
    plot = page.get_by_role("img", name="loss: ")
    await expect(plot).to_have_attribute("aria-label", re.compile("train-8 0.9251 at step 310"))
    await plot.locator(".u-over").hover(position={"x": 60, "y": 40})
    await expect(plot.locator(".u-legend .u-value").nth(1)).to_have_text(re.compile(r"^\d"))
    values = plot.locator(".u-axis").first
    await page.get_by_label("Across").select_option("time")
    await page.get_by_label("Logarithmic").check()
    await page.get_by_label("Smoothing").fill("0.9")
    await expect(values).to_be_attached()
    await page.mouse.move(5, 5)
    for order in (["train-8", "train-7"], ["train-7", "train-8"]):
        await page.get_by_role("button", name="accuracy").click()
        await page.get_by_role("button", name="loss").click()
        if order[0] == "train-8":
            await page.get_by_role("button", name="loss").click()
        await expect(page.locator("table.runs tbody a")).to_have_text(order)
    await page.get_by_label("Search the runs").fill("small")
    await expect(page.locator("table.runs tbody a")).to_have_text(["train-8"])
    await page.get_by_label("Group the runs by").select_option("net")
    await expect(page.locator("table.runs .group")).to_have_text("net: small")
    assert "search=small" in page.url
    await page.reload()
    await expect(page.locator("table.runs tbody a")).to_have_text(["train-8"])
    assert errors == []


async def test_the_palette_finds_pages_and_work_by_keyboard(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "")
    errors = complaints(page)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("train-8")
    await expect(page.locator(".palette li")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("train-8")
    assert errors == []


async def test_the_chosen_look_stays(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "", color_scheme="light")
    await page.get_by_role("button", name="Change between light and dark").click()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert await page.evaluate(ground) == "rgb(19, 21, 24)"
    await page.goto(site.url("queue"))
    assert await page.evaluate(ground) == "rgb(19, 21, 24)"


async def test_a_page_says_when_the_scheduler_is_silent(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "")
    await expect(page.locator("#live-note")).to_have_text("Live")
    # Between any two looks at the clock a minute passes, whatever is heard meanwhile.
    await page.evaluate("const now = Date.now; let n = 0; Date.now = () => now() + 60000 * n++;")
    note = page.locator("#live-note")
    await expect(note).to_contain_text("Nothing heard from the scheduler for 6")


async def test_rows_stay_while_the_pointer_or_the_keyboard_is_on_them(
    chrome: Browser, site: Site
) -> None:
    page = await opened(chrome, site, "")
    row = page.locator("#running tr", has_text="train-8")
    await row.hover()
    site.scheduler.finish("vision", "train-8")
    site.scheduler.submit("vision", "later", gpus=1)
    # Another part of the page shows that the change has arrived.
    await expect(page.locator("#next")).to_contain_text("later")
    await expect(row).to_have_count(1)
    await page.mouse.move(5, 5)
    await expect(row).to_have_count(0)
    link = page.locator("#running a", has_text="train-7")
    await link.focus()
    site.scheduler.finish("vision", "train-7")
    site.scheduler.submit("vision", "latest", gpus=1)
    await expect(page.locator("#next")).to_contain_text("latest")
    await expect(link).to_have_count(1)
    await page.locator("h1").click()
    await page.evaluate("document.activeElement.blur()")
    await expect(link).to_have_count(0)


async def test_it_says_when_one_is_signed_out(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "jobs/vision/train-7")
    await expect(page.locator("#live-note")).to_have_text("Live")
    site.hub.revoked.add("token-of-ada")
    site.app.console.hub_auth.cache.clear()
    note = page.locator("#live-note")
    await expect(note).to_contain_text("reload the page to sign in again")
    await expect(page.locator("h1")).to_contain_text("train-7")


async def test_the_log_follows_the_job(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "jobs/vision/train-7")
    site.scheduler.log("vision", "train-7", "the newest line")
    await expect(page.locator("#log")).to_contain_text("the newest line")


async def test_a_rule_is_previewed_while_it_is_edited(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "projects/vision", "root")
    errors = complaints(page)
    await page.fill("#quota_gpus", "2")
    await page.locator("#quota_cpus").focus()
    await expect(page.locator("#impact")).to_contain_text("Saved now, this would at once")
    await page.fill("#time_limit", "for ever")
    await page.locator("#quota_cpus").focus()
    await expect(page.locator("#impact")).to_contain_text("This should be a duration")
    assert await page.input_value("#quota_gpus") == "2"
    assert site.scheduler.project("vision")["quota"]["gpus"] == 4
    await page.fill("#time_limit", "8 h")
    await page.get_by_role("button", name="Save the rules of vision").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert site.scheduler.project("vision")["quota"]["gpus"] == 2
    assert errors == []


async def test_the_keyboard_reaches_everything_visibly(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "jobs/vision/train-7")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the page"
    wanted = await page.evaluate(
        "document.querySelectorAll('a[href], button, input:not([type=hidden]), .log').length"
    )
    seen = set()
    for _ in range(wanted):
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        seen.add(await page.evaluate("document.activeElement.outerHTML"))
        await page.keyboard.press("Tab")
    assert len(seen) == wanted


async def test_without_javascript_pages_read_and_forms_work(chrome: Browser, site: Site) -> None:
    page = await opened(chrome, site, "submit", java_script_enabled=False)
    await page.fill("#name", "plain")
    await page.fill("#command", "python train.py")
    await page.get_by_role("button", name="Submit").click()
    await expect(page).to_have_url(site.url("jobs/vision/plain"))
    await page.get_by_role("button", name="Suspend").click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    await page.get_by_role("link", name="Delete…").click()
    await page.get_by_role("button", name="Delete plain").click()
    await expect(page).to_have_url(site.url("jobs"))
    await page.goto(site.url("cluster"))
    await expect(page.locator("main")).to_contain_text("Largest job that would start now")


async def test_the_columns_of_projects_are_a_choice_that_the_browser_keeps(
    chrome: Browser, site: Site
) -> None:
    page = await opened(chrome, site, "projects", "root")
    limit = page.locator('#project-table th[data-column="limit-gpus"]')
    await expect(limit).to_be_hidden()
    await page.get_by_text("Columns", exact=True).click()
    await page.get_by_label("GPU limit", exact=True).check()
    await expect(limit).to_be_visible()
    await page.reload()
    await expect(limit).to_be_visible()
    await page.get_by_text("Columns", exact=True).click()
    await page.get_by_label("GPU limit", exact=True).uncheck()
    await expect(limit).to_be_hidden()


async def test_the_form_follows_the_project_that_is_chosen(chrome: Browser, site: Site) -> None:
    bound = {"policy": "small", "scope": "project/vision", "message": "", "value": 2.0}
    site.scheduler.project_rules["vision"] = {"gpus": {"locked": bound}}
    site.scheduler.project_rules["speech"] = {"gpus": {"default": bound | {"value": 1.0}}}
    page = await opened(chrome, site, "submit?kind=training&project=vision", "cyd")
    errors = complaints(page)
    gpus = page.locator("#gpus")
    await expect(gpus).to_be_disabled()
    await page.fill("#command", "python train.py")
    await page.select_option("#project", "speech")
    await expect(gpus).to_have_value("1")
    await expect(gpus).to_be_enabled()
    await expect(page.locator("#command")).to_have_value("python train.py")
    await expect(page.locator("#forecast")).to_contain_text("speech")
    assert errors == []
