"""A department administrator's day in a real browser, with an organisation's directory.

Everybody signs in by OpenID Connect. An administrator makes a department and gives it to somebody,
who makes a project in it with a policy and a template; a researcher of the directory's group is
refused with the sentence, works by the template, and is gone when the directory says so. What
happened is in the audit log, what was used in the consumption. The tests of this module build on
each other, in order.
"""

import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
import requests
import yaml
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from carrel import Client
from contract.chromium import FLAGS, program
from contract.directory.servers import OidcProvider
from e2e.stack import TIMEOUT_MS, Stack, picture, token_of, until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

CONSOLE = "/services/console/"
POLICY = """description: What fits beside the others.
kinds: [training]
rules:
  gpus: {max: 1, message: ask Grace for more}
  priority: {default: train, locked: true}
"""
TEMPLATE = """kinds: [training]
fields:
  gpus: 1
  command: [sleep, "300"]
"""


def say(provider: OidcProvider, subject: str, name: str, *groups: str) -> None:
    """What the provider tells of somebody from now on."""
    claims = {"preferred_username": name, "groups": list(groups)}
    answer = requests.put(f"{provider.url}/users/{subject}", json=claims, timeout=20)
    assert answer.status_code < 300, answer.text


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    found = OidcProvider(tmp_path_factory.mktemp("oidc"))
    found.start()
    try:
        say(found, "3", "ruth", "it")
        say(found, "1", "grace", "heads")
        say(found, "2", "ada", "vision-team")
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def stack(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """``carrel up --sign-in``, with groups of the directory mapped by the command."""
    folder = tmp_path_factory.mktemp("up")
    told = msgspec.to_builtins(provider.settings, enc_hook=str)
    told["scopes"] = ["openid", "profile", "email", "offline_access"]
    sign_in = folder / "sign-in.yaml"
    sign_in.write_text(yaml.safe_dump({"provider": told, "refresh_seconds": 1.0}))
    stack = Stack(folder / "state", arguments=("--gpus", "4", "--sign-in", str(sign_in)))
    try:
        stack.start()
        for arguments in (("it", "--admin"), ("vision-team", "--project", "vision")):
            command = [sys.executable, "-m", "carrel.cli", "directory", "set", *arguments]
            subprocess.run([*command, "--state-dir", str(stack.state_dir)], check=True)
        yield stack
    finally:
        stack.stop(jobs=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program(), args=FLAGS)
        yield found
        found.close()


def signed_in(browser: Browser, stack: Stack, subject: str) -> tuple[BrowserContext, Page]:
    """A person's browser, through the provider's page."""
    context = browser.new_context(viewport={"width": 1380, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.goto(f"{stack.url}/hub/oauth_login")
    page.fill("input[name=sub]", subject)
    page.locator("form [type=submit]").first.click()
    page.wait_for_url("**/hub/home")
    return context, page


@pytest.fixture(scope="module")
def ruth(browser: Browser, stack: Stack) -> Iterator[Page]:
    """An administrator of the platform, who makes the department."""
    context, page = signed_in(browser, stack, "3")
    client = stack.client(token_of(page.context, stack.url, "ruth"))
    client.put_department("sciences", {})
    page.goto(f"{stack.url}{CONSOLE}access")
    page.fill("#subject", "grace")
    page.select_option("#role", "department-administrator")
    page.fill("#scope", "department/sciences")
    page.locator("button", has_text="Give the role").click()
    note = "grace is department-administrator in department/sciences."
    expect(page.locator("[role=status]").first).to_contain_text(note)
    picture(page, stack.shots, "governance-access")
    yield page
    context.close()


@pytest.fixture(scope="module")
def grace(ruth: Page, browser: Browser, stack: Stack) -> Iterator[Page]:
    """Administers the department, and nothing else."""
    assert ruth.url
    context, page = signed_in(browser, stack, "1")
    yield page
    context.close()


@pytest.fixture(scope="module")
def ada(grace: Page, browser: Browser, stack: Stack) -> Iterator[Page]:
    """Comes when the project is there, which is in the department by itself."""
    grace.goto(f"{stack.url}{CONSOLE}new-project")
    expect(grace.locator("#department")).to_have_value("sciences")
    grace.fill("#name", "vision")
    grace.locator("button", has_text="Create the project").click()
    grace.wait_for_url("**/projects/vision**")
    context, page = signed_in(browser, stack, "2")
    yield page
    context.close()


def write(page: Page, stack: Stack, sort: str, name: str, text: str) -> None:
    """Write a policy or template in the console's editor."""
    page.goto(f"{stack.url}{CONSOLE}{sort}/edit")
    page.fill("#name", name)
    page.fill("#scope", "project/vision")
    page.fill("#text", text)
    page.locator("button", has_text="Save").click()
    expect(page.locator("[role=status]").first).to_contain_text(f"{name} of project/vision")


def test_the_department_s_administrator_writes_a_policy_and_a_template(
    grace: Page, ada: Page, stack: Stack
) -> None:
    assert ada.url.endswith("/hub/home")
    write(grace, stack, "policies", "small", POLICY)
    write(grace, stack, "templates", "nightly", TEMPLATE)
    picture(grace, stack.shots, "governance-policies")
    assert grace.goto(f"{stack.url}{CONSOLE}policies/edit") is not None
    grace.fill("#name", "all")
    grace.fill("#scope", "platform")
    grace.fill("#text", POLICY)
    grace.locator("button", has_text="Save").click()
    expect(grace.locator("[role=alert]").first).to_contain_text("policies:update")


def test_the_researcher_is_told_the_rule_and_works_by_the_template(ada: Page, stack: Stack) -> None:
    ada.goto(f"{stack.url}{CONSOLE}submit?project=vision")
    expect(ada.locator("#gpus-note")).to_contain_text("At most 1, says policy small")
    assert ada.locator("#priority").is_disabled()
    ada.fill("#gpus", "3")
    ada.fill("#command", "sleep 300")
    ada.locator("button.first").click()
    refused = ada.locator("#gpus-note")
    expect(refused).to_contain_text("This should be at most 1 (policy small of project/vision).")
    picture(ada, stack.shots, "governance-refused")
    ada.goto(f"{stack.url}{CONSOLE}submit?project=vision")
    ada.select_option("#template", "nightly")
    ada.locator("button", has_text="Fill in").click()
    ada.fill("#name", "night-1")
    ada.locator("button.first").click()
    ada.wait_for_url("**/jobs/vision/night-1")
    client = stack.client(token_of(ada.context, stack.url, "ada"))
    until(lambda: _phase(client) == "running", seconds=60, why="it runs")


def _phase(client: Client) -> str:
    return client.get_workload("vision", "night-1").status.phase


def test_both_are_in_the_audit_log_and_the_use_in_the_consumption(
    grace: Page, stack: Stack
) -> None:
    grace.goto(f"{stack.url}{CONSOLE}audit")
    text = grace.locator("main").inner_text()
    assert "small" in text
    assert "nightly" in text
    assert "night-1" in text
    assert "ada" in text
    picture(grace, stack.shots, "governance-audit")
    client = stack.client(token_of(grace.context, stack.url, "grace"))
    until(
        lambda: any(one.gpu_seconds > 2 for one in client.usage("project")),
        seconds=30,
        why="something was used",
    )
    for by in ("project", "user", "kind", "department"):
        grace.goto(f"{stack.url}{CONSOLE}usage?by={by}&days=1")
        rows = grace.locator("[aria-label=Use] tbody td:nth-child(2)").all_inner_texts()
        whole = grace.locator("[aria-label=Use] tfoot td").first.inner_text()
        assert sum(map(float, rows)) == pytest.approx(float(whole), abs=0.011)
    picture(grace, stack.shots, "governance-consumption")


def test_who_leaves_the_directory_s_group_leaves_the_project(
    ada: Page, stack: Stack, provider: OidcProvider
) -> None:
    assert ada.goto(f"{stack.url}{CONSOLE}projects/vision").status == 200  # type: ignore[union-attr]
    say(provider, "2", "ada")

    def status() -> int:
        answer = ada.goto(f"{stack.url}{CONSOLE}projects/vision")
        return answer.status if answer is not None else 0

    until(lambda: status() == 404, seconds=60, why="the project is gone for her")
