"""The code of jobs: who may upload it, what is refused, and what a job's own token fetches."""

import io
import time
from pathlib import Path

import msgspec
import pytest

from carrel_scheduler.api.code_store import KEPT_SECONDS, UPLOAD_SECONDS, CodeStore
from carrel_schema.code import CHUNK_BYTES, CodeFile, CodeFolder, digest_of
from carrel_schema.sections import CodeSource
from contract.api.service import MOST_CODE_BYTES, ROOT, ApiHarness

BYTES = {"Content-Type": "application/octet-stream"}
CODE = f"{ROOT}/projects/vision/code"


async def call(
    harness: ApiHarness, method: str, path: str, token: str, content: bytes = b""
) -> tuple[int, bytes]:
    headers = {"Authorization": f"token {token}", **BYTES}
    async with harness.session.request(
        method, harness.url + path, data=io.BytesIO(content), headers=headers
    ) as answer:
        return answer.status, await answer.read()


def folder_of(**files: bytes) -> CodeFolder:
    return CodeFolder(
        files=tuple(
            CodeFile(path=name, size=len(content), chunks=(digest_of(content),))
            for name, content in files.items()
        )
    )


async def uploaded(harness: ApiHarness, folder: CodeFolder, *contents: bytes) -> str:
    for content in contents:
        path = f"{CODE}/chunks/{digest_of(content)}"
        assert (await call(harness, "PUT", path, "ada-token", content))[0] == 204
    status, answer = await call(harness, "POST", CODE, "ada-token", folder.encode())
    assert status == 200
    assert msgspec.json.decode(answer)["missing"] == []
    return str(msgspec.json.decode(answer)["digest"])


async def test_only_what_is_missing_is_asked_for(harness: ApiHarness) -> None:
    folder = folder_of(a=b"one", b=b"two")
    _, answer = await call(harness, "POST", CODE, "ada-token", folder.encode())
    assert msgspec.json.decode(answer)["missing"] == [digest_of(b"one"), digest_of(b"two")]
    await uploaded(harness, folder, b"one", b"two")
    changed = folder_of(a=b"one", b=b"three")
    _, answer = await call(harness, "POST", CODE, "bea-token", changed.encode())
    assert msgspec.json.decode(answer)["missing"] == [digest_of(b"three")]


async def test_a_job_fetches_its_own_code_and_nothing_else(harness: ApiHarness) -> None:
    digest = await uploaded(harness, folder_of(a=b"one"), b"one")
    await uploaded(harness, folder_of(b=b"other"), b"other")
    await harness.add("vision", "coded", "ada", code=CodeSource(digest=digest))
    job, at = harness.tokens.issue("uid-vision-coded"), f"{ROOT}/workloads/vision/coded/code"
    await harness.set_status("vision", "coded", phase="running")
    assert await call(harness, "GET", at, job) == (200, folder_of(a=b"one").encode())
    assert await call(harness, "GET", f"{at}/content", job) == (200, b"one")
    for token in (harness.tokens.issue("uid-vision-train-1"), "bea-token"):
        assert (await call(harness, "GET", at, token))[0] == 403
        assert (await call(harness, "GET", f"{at}/content", token))[0] == 403


async def test_an_object_of_a_cluster_cannot_name_the_code_of_another_project(
    harness: ApiHarness,
) -> None:
    digest = await uploaded(harness, folder_of(a=b"one"), b"one")
    outside = f"../../vision/folders/{digest}"
    await harness.add("speech", "thief", "carl", code=CodeSource(digest=outside))
    await harness.set_status("speech", "thief", phase="running")
    at = f"{ROOT}/workloads/speech/thief/code"
    assert (await call(harness, "GET", at, harness.tokens.issue("uid-speech-thief")))[0] == 404


async def test_work_is_submitted_with_code_of_its_project_only(harness: ApiHarness) -> None:
    digest = await uploaded(harness, folder_of(a=b"one"), b"one")
    body = {"name": "x", "project": "vision", "command": ["true"], "code": {"digest": digest}}
    assert (await harness.ask("POST", "/workloads?dry_run=true", "ada", json=body)).status == 200
    foreign = body | {"project": "speech"}
    refused = await harness.ask("POST", "/workloads?dry_run=true", "carl", json=foreign)
    assert (refused.status, refused.body["errors"][0]["code"]) == (422, "unknown_code")


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"digest": "a" * 64, "git": "https://host/x"},
        {"digest": "../x"},
        {"git": "https://ada:secret@host/x"},
        {"git": "ext::sh -c id"},
        {"git": "file:///etc"},
        {"git": "--upload-pack=id"},
        {"git": "ssh://-oProxyCommand=id/x"},
        {"git": "git@-oProxyCommand=id:x"},
        {"git": "https://host/x", "revision": "--output=x"},
        {"digest": "a" * 64, "revision": "main"},
    ],
)
async def test_other_sources_are_refused(harness: ApiHarness, source: dict[str, str]) -> None:
    body = {"name": "x", "project": "vision", "command": ["true"], "code": source}
    assert (await harness.ask("POST", "/workloads?dry_run=true", "ada", json=body)).status == 422


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a/../../x", "a//b", "./x", "", "a\x00b", "a/", "x\n"]
)
async def test_paths_that_leave_the_folder_are_refused(harness: ApiHarness, path: str) -> None:
    listed = msgspec.json.encode({"files": [{"path": path, "size": 0}]})
    status, answer = await call(harness, "POST", CODE, "ada-token", listed)
    assert status == 422
    assert b"path" in answer


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "a", "size": 0}, {"path": "a", "size": 0}],
        [{"path": "a", "size": 0}, {"path": "a/b", "size": 0}],
        [{"path": "a", "size": CHUNK_BYTES + 1, "chunks": ["0" * 64]}],
        [{"path": "a", "size": 2**29, "chunks": []}],
        [{"path": "a", "size": 1, "chunks": ["../../x"]}],
        [{"path": "a", "size": 1, "chunks": ["0" * 64], "mode": "setuid"}],
    ],
)
async def test_folders_that_cannot_be_are_refused(harness: ApiHarness, files: list[object]) -> None:
    listed = msgspec.json.encode({"files": files})
    assert (await call(harness, "POST", CODE, "ada-token", listed))[0] == 422


async def test_content_has_to_be_what_its_name_says_and_fit(harness: ApiHarness) -> None:
    at = f"{CODE}/chunks/{digest_of(b'one')}"
    assert (await call(harness, "PUT", at, "ada-token", b"another"))[0] == 422
    assert (await call(harness, "PUT", at, "ada-token", b"x" * (CHUNK_BYTES + 1)))[0] == 413
    assert (await call(harness, "PUT", at, "carl-token", b"one"))[0] == 404
    large = b"x" * (MOST_CODE_BYTES - 2)
    assert (await call(harness, "PUT", at, "ada-token", b"one"))[0] == 204
    status, answer = await call(
        harness, "PUT", f"{CODE}/chunks/{digest_of(large)}", "ada-token", large
    )
    assert (status, msgspec.json.decode(answer)["code"]) == (409, "storage_full")


async def test_what_no_work_needs_is_removed_after_a_week(tmp_path: Path) -> None:
    store, now = CodeStore(tmp_path / "code"), time.time()
    old, needed = folder_of(a=b"old"), folder_of(a=b"needed", b=b"old b")
    for content in (b"old", b"needed", b"old b", b"of nobody"):
        await store.put_chunk("vision", content)
    digests = [await store.put_folder("vision", folder) for folder in (old, needed)]
    await store.sweep({"vision": set()}, now + UPLOAD_SECONDS - 60)
    assert await store.get_chunks("vision", [digest_of(b"of nobody")]) is not None
    await store.sweep({"vision": set()}, now + UPLOAD_SECONDS + 60)
    assert await store.get_chunks("vision", [digest_of(b"of nobody")]) is None
    await store.sweep({"vision": {digests[1]}}, now + KEPT_SECONDS + 60)
    assert await store.get_folder("vision", digests[0]) is None
    assert await store.missing("vision", old) == [digest_of(b"old")]
    assert await store.get_folder("vision", digests[1]) == needed.encode()
    assert await store.missing("vision", needed) == []
    await store.sweep({}, now + 2 * KEPT_SECONDS + 60)
    assert list((tmp_path / "code").iterdir()) == []


async def test_a_command_without_a_program_is_refused(harness: ApiHarness) -> None:
    body = {"name": "x", "project": "vision", "command": ["", "train.py"]}
    refused = await harness.ask("POST", "/workloads", "ada", json=body)
    assert (refused.status, refused.body["errors"][0]["code"]) == (422, "command_required")
