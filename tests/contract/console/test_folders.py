"""The upload of a folder for work from the form: who may, how much, what becomes of it."""

import io
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec
import pytest

from carrel_schema.code import CHUNK_BYTES, MOST_LIST_BYTES, CodeFile, CodeFolder, digest_of
from contract.console.site import Site, Visitor

LIST = "submit/folders/vision"
FOLDER = CodeFolder(files=(CodeFile(path="a.py", size=3, chunks=(digest_of(b"one"),)),))
DIGEST = digest_of(FOLDER.encode())
BYTES = {"Content-Type": "application/octet-stream"}
TRAINING = {"name": "train-9", "project": "vision", "command": "python a.py"}


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "ada") as visitor:
        yield visitor


async def sent(
    ada: Visitor, method: str, path: str, content: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, object]]:
    """Status and JSON of an upload; with the token of the form unless headers are given."""
    more = {"X-XSRFToken": await ada.token("submit")} if headers is None else dict(headers)
    url = ada.site.url(path)
    async with ada.session.request(
        method, url, data=io.BytesIO(content), headers=BYTES | more
    ) as answer:
        text = await answer.read()
        return answer.status, msgspec.json.decode(text) if text else {}


async def test_only_what_is_missing_is_asked_for_and_work_gets_it(site: Site, ada: Visitor) -> None:
    status, answer = await sent(ada, "POST", LIST, FOLDER.encode())
    assert (status, answer["missing"]) == (200, [digest_of(b"one")])
    assert await sent(ada, "PUT", f"{LIST}/{digest_of(b'one')}", b"one") == (204, {})
    assert await sent(ada, "POST", LIST, FOLDER.encode()) == (
        200,
        {"digest": DIGEST, "missing": []},
    )
    made = await ada.post("submit", TRAINING | {"code": DIGEST, "code-about": "x: 1 file"})
    assert made.address.endswith("jobs/vision/train-9")
    assert site.scheduler.workload("vision", "train-9")["spec"]["code"]["digest"] == DIGEST
    assert f"a folder that went along, {DIGEST[:12]}" in made.words


async def test_nothing_is_sent_for_somebody_else(site: Site, ada: Visitor) -> None:
    await ada.get()
    at = f"{LIST}/{digest_of(b'one')}"
    for token in ({}, {"X-XSRFToken": "guessed"}):
        for method, path in (("POST", LIST), ("PUT", at)):
            assert (await sent(ada, method, path, b"one", token))[0] == 403
    status, answer = await sent(ada, "POST", "submit/folders/speech", FOLDER.encode())
    assert (status, "project" in str(answer["problem"])) == (404, True)
    token = {"X-XSRFToken": await ada.token("submit")}
    site.hub.revoked.add("token-of-ada")
    site.app.console.hub_auth.cache.clear()
    status, answer = await sent(ada, "POST", LIST, FOLDER.encode(), token)
    assert (status, "Sign in again" in str(answer["problem"])) == (401, True)
    assert not [path for _, path in site.scheduler.requests if path.endswith("vision/code")]


async def test_what_is_too_large_never_reaches_the_scheduler(site: Site, ada: Visitor) -> None:
    for method, path, most in (
        ("POST", LIST, MOST_LIST_BYTES),
        ("PUT", f"{LIST}/{digest_of(b'one')}", CHUNK_BYTES),
    ):
        try:
            assert (await sent(ada, method, path, b"x" * (most + 1)))[0] in (400, 413)
        except aiohttp.ClientError:
            continue  # it hung up while the rest was sent
    assert not [path for _, path in site.scheduler.requests if "/code" in path]
    whole = b"x" * CHUNK_BYTES
    assert (await sent(ada, "PUT", f"{LIST}/{digest_of(whole)}", whole))[0] == 204
    long = CodeFolder(
        files=tuple(
            CodeFile(path=f"{n:0200d}", size=3, chunks=(digest_of(b"one"),)) for n in range(9_000)
        )
    )
    assert len(long.encode()) > 2 * CHUNK_BYTES
    assert (await sent(ada, "POST", LIST, long.encode()))[0] == 200


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a//b", ""])
async def test_paths_that_leave_the_folder_are_refused(ada: Visitor, path: str) -> None:
    listed = msgspec.json.encode({"files": [{"path": path, "size": 0}]})
    assert (await sent(ada, "POST", LIST, listed))[0] == 422


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"git": "https://host/x.git"}, "Either a folder to take along or code from Git"),
        ({"working-dir": "/data"}, "Either a folder to take along or a folder to start in"),
        ({"code": "../../x"}, "This is no folder that was sent"),
    ],
)
async def test_a_folder_that_cannot_go_along_is_said_at_its_field(
    ada: Visitor, more: dict[str, str], said: str
) -> None:
    page = await ada.post("submit", TRAINING | {"code": DIGEST, "code-about": "x: 1 file"} | more)
    assert page.status == 422
    assert said in page.words
    assert 'id="code-told">x: 1 file</label>' in page.text


async def test_what_is_said_of_a_folder_is_text(ada: Visitor) -> None:
    about = "<script>1</script>" + "x" * 1000
    page = await ada.post("submit", {"code": DIGEST, "code-about": about, "project": "vision"})
    assert "<script>1" not in page.text
    assert "&lt;script&gt;1" in page.text
    assert "x" * 200 not in page.text


async def test_a_template_has_no_folder(site: Site, ada: Visitor) -> None:
    await ada.post("submit", TRAINING | {"code": DIGEST, "action": "template"})
    assert "code" not in site.scheduler.documents["templates", "user/ada", "train-9"]["fields"]


@pytest.mark.parametrize(
    ("source", "field", "kept"),
    [
        ({"digest": DIGEST}, f'name="code" value="{DIGEST}" checked', {"code": DIGEST}),
        (
            {"git": "https://host/x.git", "revision": "main"},
            'name="git" value="https://host/x.git@main"',
            {"git": "https://host/x.git@main"},
        ),
    ],
)
async def test_run_again_keeps_the_code_unless_it_is_taken_off(
    site: Site, ada: Visitor, source: dict[str, str], field: str, kept: dict[str, str]
) -> None:
    site.scheduler.submit("vision", "coded", command=["python", "a.py"], code=source)
    assert field in (await ada.get("submit?again=vision/coded")).text
    again = TRAINING | {"again": "vision/coded"}
    await ada.post("submit", again | kept)
    found = site.scheduler.workload("vision", "train-9")["spec"]["code"]
    assert {name: value for name, value in found.items() if value} == source
    await ada.post("submit", again | {"name": "bare"})
    assert site.scheduler.workload("vision", "bare")["spec"].get("code") is None
    other = {"git": "https://host/other.git"} if "digest" in source else {"code": DIGEST}
    await ada.post("submit", again | other | {"name": "other"})
    changed = site.scheduler.workload("vision", "other")["spec"]["code"]
    wanted = {"git": "https://host/other.git"} if "digest" in source else {"digest": DIGEST}
    assert {name: value for name, value in changed.items() if value} == wanted


async def test_run_again_keeps_repositories_and_what_it_came_after(
    site: Site, ada: Visitor
) -> None:
    lists: dict[str, Any] = {
        "repositories": [{"git": "https://host/t.git", "destination": "lib/t", "secret": "deploy"}],
        "after": [{"name": "first", "condition": "any"}, {"name": "second", "condition": "ok"}],
        "gpu_types": ["A100", "H100"],
    }
    site.scheduler.submit("vision", "linked", command=["true"], **lists)
    page = (await ada.get("submit?again=vision/linked")).text
    assert ">lib/t=https://host/t.git,deploy</textarea>" in page
    assert ">first:any\nsecond</textarea>" in page
    assert 'name="gpu-type" value="A100,H100"' in page
