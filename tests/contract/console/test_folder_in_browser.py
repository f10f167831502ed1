"""A folder of the browser's computer goes along with submitted work, as from the command line."""

import itertools
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from carrel.client.working_folder import ignore_spec, pack
from carrel_schema.code import CHUNK_BYTES
from contract.console.browser import TIMEOUT_MS, chromium, complaints
from contract.console.site import Site

pytestmark = pytest.mark.browser

PATTERNS = (
    *(
        "a",
        "/a",
        "a/",
        "!a",
        "*.log",
        "a/b",
        "a/*",
        "a/**",
        "**/b",
        "a/**/c",
        "**",
        "*",
        "*/",
        "**/",
    ),
    *(
        "?.py",
        "[ab].py",
        "[!a].py",
        "[^a]*",
        "[]a]",
        "[a",
        "[z-a]",
        "\\#x",
        "#x",
        "\\!x",
        "a\\",
        "!",
    ),
    *(
        "/",
        "//",
        "!/",
        " a",
        "a ",
        "a\\ ",
        "data/",
        "!data/keep.txt",
        "b/c",
        "/b/c/",
        "**/**/c",
        "é*",
    ),
    *("a.b", "(a)", "a+", "**/*", "**/*/**", "a//b", "[[:alpha:]]", "[!]a-]", "x\\", "*a*b*"),
)
PATHS = (
    *("a", "b", "a/", "a/b", "a/b/c", "b/c", "b/c/", "c/b", "a.log", "b/a.log", "a.py", "z.py"),
    *("#x", "!x", " a", "a ", "data/", "data/keep.txt", "data/x", "é", "éa/b", "a.b", "axb", "(a)"),
    *("a+", "[a", "]", "a/a/a/b", "aab", "deep/er/a", "deep/a/b/c", "]a-"),
)


@pytest.fixture
async def chrome() -> AsyncIterator[Browser]:
    async with chromium() as found:
        yield found


@pytest.fixture
async def page(chrome: Browser, site: Site) -> Page:
    """The form, as a member of two projects."""
    return await opened(chrome, site)


async def opened(chrome: Browser, site: Site, path: str = "submit?project=vision") -> Page:
    site.hub.who = "cyd"
    made = await chrome.new_context()
    made.set_default_timeout(TIMEOUT_MS)
    page = await made.new_page()
    await page.goto(site.url(path))
    return page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with what stays here and a file of several chunks."""
    root = tmp_path / "project"
    for name in ("train.py", "data/big.bin", "data/keep.txt", "lib/build/x", "lib/y", "run.sh"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for name in (".git/config", "__pycache__/x.pyc", ".venv/bin/python", "node_modules/m/i.js"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("never")
    (root / ".gitignore").write_text("*.bin\ndata/\n")
    (root / ".carrelignore").write_text("!data/\ndata/*\n!data/keep.txt\n")
    (root / "lib/.gitignore").write_text("build\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "model.pt").write_bytes(os.urandom(2 * CHUNK_BYTES + 5))
    return root


async def choose(page: Page, folder: Path) -> None:
    await page.locator("#code-files").set_input_files(folder)


def digest_in(spec: dict[str, Any]) -> str:
    """The folder of some work; empty if it has none."""
    return str((spec.get("code") or {}).get("digest", ""))


async def submitted(page: Page, site: Site, name: str, project: str = "vision") -> dict[str, Any]:
    """Submit; what the work became."""
    await page.fill("#name", name)
    await page.fill("#command", "python train.py")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page).to_have_url(site.url(f"jobs/{project}/{name}"))
    spec: dict[str, Any] = site.scheduler.workload(project, name)["spec"]
    return spec


async def test_a_chosen_folder_is_the_one_that_the_command_line_sends(
    page: Page, site: Site, folder: Path
) -> None:
    errors = complaints(page)
    await choose(page, folder)
    await expect(page.locator("#code-told")).to_have_text("project: 8 files, 2.0 MiB")
    digest = digest_in(await submitted(page, site, "along"))
    assert site.scheduler.uploaded(digest) == pack(folder).listed
    assert errors == []


async def test_only_what_changed_is_sent_again(
    chrome: Browser, page: Page, site: Site, folder: Path
) -> None:
    await choose(page, folder)
    await submitted(page, site, "first")
    (folder / "train.py").write_text("print(2)")
    before = len(site.scheduler.requests)
    again = await opened(chrome, site)
    await choose(again, folder)
    await submitted(again, site, "second")
    sent = site.scheduler.requests[before:]
    assert len([path for method, path in sent if method == "PUT"]) == 1


async def test_a_refused_form_keeps_the_folder_and_another_project_is_sent_it_too(
    page: Page, site: Site, folder: Path
) -> None:
    await choose(page, folder)
    await page.fill("#gpus", "many")
    await page.fill("#command", "python train.py")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page.locator("#gpus-note")).to_contain_text("is no number of GPUs")
    await expect(page.locator("#code-told")).to_have_text("project: 8 files, 2.0 MiB")
    await page.fill("#gpus", "1")
    assert digest_in(await submitted(page, site, "kept"))
    await page.goto(site.url("submit?project=vision"))
    await choose(page, folder)
    await page.select_option("#project", "speech")
    assert digest_in(await submitted(page, site, "there", "speech"))
    assert ("POST", "/projects/speech/code") in site.scheduler.requests


async def test_a_folder_can_be_left_out_again(page: Page, site: Site, folder: Path) -> None:
    await choose(page, folder)
    await expect(page.locator("#code-told")).to_contain_text("8 files")
    await page.locator("#code").uncheck()
    assert digest_in(await submitted(page, site, "bare")) == ""
    assert not [path for _, path in site.scheduler.requests if "/code" in path]


async def test_run_again_keeps_the_folder_or_takes_another(
    chrome: Browser, page: Page, site: Site, folder: Path
) -> None:
    await choose(page, folder)
    first = digest_in(await submitted(page, site, "train-20"))
    await page.get_by_role("link", name="Edit and run again").click()
    await expect(page.locator("#code-told")).to_contain_text("train-20 was submitted with")
    assert digest_in(await submitted(page, site, "same")) == first
    (folder / "train.py").write_text("print(3)")
    again = await opened(chrome, site, "submit?again=vision/train-20")
    await choose(again, folder)
    assert digest_in(await submitted(again, site, "other")) not in ("", first)


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        ("mostFiles", 2, "project has more than 2 files: name large data in .carrelignore"),
        ("mostBytes", 2**20, "project has more than 1 MiB"),
        ("longestPath", 9, '".carrelignore" is no name that can be sent.'),
    ],
)
async def test_too_much_is_said_before_anything_is_sent(
    page: Page, site: Site, folder: Path, rule: str, value: int, said: str
) -> None:
    change = (
        "([rule, value]) => { const place = document.getElementById('code-field');"
        " const rules = JSON.parse(place.dataset.rules);"
        " place.dataset.rules = JSON.stringify({...rules, [rule]: value}); }"
    )
    await page.route(re.compile(r"/static/submit\.js"), lambda route: route.abort())
    await page.reload()
    await page.evaluate(change, [rule, value])
    await page.unroute_all()
    await page.add_script_tag(url=f"{site.url('static/submit.js')}", type="module")
    await choose(page, folder)
    await expect(page.locator("#code-state")).to_contain_text(said)
    assert digest_in(await submitted(page, site, "without")) == ""


async def test_a_refusal_of_the_server_is_said_and_nothing_is_submitted(
    page: Page, site: Site, folder: Path
) -> None:
    await choose(page, folder)
    await expect(page.locator("#code-told")).to_contain_text("8 files")
    site.hub.revoked.add("token-of-cyd")
    site.app.console.hub_auth.cache.clear()
    await page.fill("#command", "python train.py")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page.locator("#code-state")).to_contain_text("Sign in again")
    await expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()
    assert not [
        path for method, path in site.scheduler.requests if method != "GET" and "code" in path
    ]


async def test_a_changed_file_is_not_sent_as_another(page: Page, folder: Path) -> None:
    await choose(page, folder)
    await expect(page.locator("#code-told")).to_contain_text("8 files")
    (folder / "model.pt").write_bytes(b"x" * (2 * CHUNK_BYTES + 5))
    await page.fill("#command", "python train.py")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page.locator("#code-state")).to_contain_text("model.pt was changed, or cannot be")


async def test_elsewhere_than_at_https_it_says_what_to_do(chrome: Browser, site: Site) -> None:
    site.hub.who = "cyd"
    made = await chrome.new_context()
    await made.add_init_script("Object.defineProperty(window, 'isSecureContext', {value: false})")
    page = await made.new_page()
    await page.goto(site.url("submit"))
    await expect(page.locator("#code-state")).to_contain_text(
        "only at addresses that begin with https"
    )
    await expect(page.locator("#code-choose")).to_be_hidden()


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
async def test_ignore_files_mean_the_same_as_to_the_command_line(page: Page, site: Site) -> None:
    pairs = [(one,) for one in PATTERNS] + list(itertools.permutations(PATTERNS, 2))
    wanted = [[ignore_spec(lines).check_file(path).include for path in PATHS] for lines in pairs]
    found = await page.evaluate(
        "async ([address, sets, paths]) => {"
        " const { rulesOf, verdict } = await import(address);"
        " return sets.map((lines) => { const rules = rulesOf(lines.join('\\n'));"
        " return paths.map((path) => verdict(rules, path)); }); }",
        [site.url("static/ignore.js"), [list(one) for one in pairs], list(PATHS)],
    )
    differing = [
        (lines, path, told, meant)
        for lines, of_script, of_client in zip(pairs, found, wanted, strict=True)
        for path, told, meant in zip(PATHS, of_script, of_client, strict=True)
        if told != meant
    ]
    assert differing == []
