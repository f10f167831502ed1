"""Files of work over REST: whose they are, how they are answered, and in what pieces they come."""

import asyncio
import io
import tarfile
from typing import Any

import pytest

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel_schema.files import PIECE_BYTES
from contract.api.service import ROOT, ApiHarness

AT = f"{ROOT}/workloads/vision/train-1"
BYTES = {"Content-Type": "application/octet-stream"}


async def call(
    harness: ApiHarness, method: str, path: str, token: str = "ada-token", **more: Any
) -> tuple[int, bytes, dict[str, str]]:
    headers = {"Authorization": f"token {token}", **BYTES}
    if "data" in more:
        more["data"] = io.BytesIO(more["data"])
    async with harness.session.request(
        method, harness.url + path, headers=headers, **more
    ) as answer:
        return answer.status, await answer.read(), dict(answer.headers)


async def test_artifacts_are_listed_and_read_as_attachments(harness: ApiHarness) -> None:
    harness.files.write("artifacts", "uid-vision-train-1", "web/a b.html", b"<script>")
    reply = await harness.ask("GET", "/workloads/vision/train-1/artifacts", "bea")
    assert reply.status == 200
    assert [(one["path"], one["size"]) for one in reply.body["items"]] == [("web/a b.html", 8)]
    at = f"{AT}/artifacts/content"
    status, content, headers = await call(harness, "GET", at, params={"path": "web/a b.html"})
    assert (status, content) == (200, b"<script>")
    assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20b.html"
    assert headers["Content-Security-Policy"].startswith("sandbox")
    assert headers["X-Content-Type-Options"] == "nosniff"
    for path in ("nothing", "../uid-vision-train-1/web/a b.html", "/etc/passwd", "web"):
        assert (await call(harness, "GET", at, params={"path": path}))[0] == 404
    assert (await call(harness, "GET", at, "carl-token", params={"path": "web/a b.html"}))[0] == 404


async def test_a_file_goes_into_a_running_task_in_pieces_and_comes_back(
    harness: ApiHarness,
) -> None:
    at = f"{AT}/files"
    where = {"path": "in/data.bin"}
    await harness.set_status("vision", "train-1", phase="pending")
    assert (await call(harness, "PUT", at, params=where, data=b"x"))[0] == 409
    await harness.set_status("vision", "train-1", phase="running")
    first = {**where, "more": "true"}
    assert (await call(harness, "PUT", at, params=first, data=b"one "))[0] == 204
    assert (await call(harness, "GET", at, params=where))[0] == 404
    status, content, _ = await call(harness, "PUT", at, params={**where, "offset": "9"}, data=b"x")
    assert (status, b"somebody else" in content.lower()) == (409, True)
    assert (await call(harness, "PUT", at, params={**where, "offset": "4"}, data=b"two"))[0] == 204
    for path, name in (("in/data.bin", "data.bin"), ("in", "in/data.bin")):
        status, content, _ = await call(harness, "GET", at, params={"path": path})
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            member = archive.extractfile(name)
            assert status == 200
            assert member is not None
            assert member.read() == b"one two"
    status, content, _ = await call(harness, "PUT", at, params={"path": "in"}, data=b"x")
    assert (status, b"is a folder" in content) == (409, True)
    assert (await call(harness, "PUT", at, params=where, data=bytes(PIECE_BYTES + 1)))[0] == 413
    assert (await call(harness, "GET", at, "bea-token", params=where))[0] == 403


async def test_a_port_of_a_running_task_is_reached_at_a_loopback_port(
    harness: ApiHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())  # to its end: that is passed on, too
        writer.close()

    opened: asyncio.Queue[int] = asyncio.Queue()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    remote = server.sockets[0].getsockname()[1]

    async def ask(content: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(content)
        writer.write_eof()
        said = await reader.read()
        writer.close()
        return said

    async with AsyncClient(f"{harness.url}/services/carrel", "ada-token") as client:
        listening = asyncio.create_task(
            client.forward("vision", "train-1", remote, opened=opened.put_nowait)
        )
        port = await opened.get()
        asked = [bytes([97 + n]) * 200_000 for n in range(3)]
        assert await asyncio.gather(*map(ask, asked)) == [one.upper() for one in asked]
        server.close()
        assert await ask(b"anybody?") == b""
        assert "the port could not be forwarded" in caplog.text
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        with pytest.raises(ApiError):
            await client.forward("speech", "train-1", 80)
    async with AsyncClient(f"{harness.url}/services/carrel", "bea-token") as other:
        with pytest.raises(ApiError):
            await other.forward("vision", "train-1", remote)


async def test_a_checkpoint_is_kept_beyond_its_work_and_others_begin_with_it(
    harness: ApiHarness,
) -> None:
    for step in (1, 2):
        folder = f"step-{step:012d}.0"
        harness.files.write("checkpoints", "uid-vision-train-1", f"{folder}/data.pkl", b"12345")
    listed = await harness.ask("GET", "/workloads/vision/train-1/checkpoints", "bea")
    assert [(one["step"], one["size"]) for one in listed.body["items"]] == [(1, 5), (2, 5)]
    at = "/workloads/vision/train-1/checkpoints"
    kept = await harness.ask("POST", f"{at}/2/keep", "ada", json={"name": "best"})
    assert (kept.status, kept.body["size"]) == (201, 5)
    assert (await harness.ask("POST", f"{at}/1/keep", "ada", json={"name": "best"})).status == 409
    assert (await harness.ask("POST", f"{at}/7/keep", "ada", json={})).status == 404
    assert (await harness.ask("POST", f"{at}/1/keep", "bea", json={})).status == 403
    listed = await harness.ask("GET", at, "ada")
    assert [one["kept_as"] for one in listed.body["items"]] == ["", "best"]
    body = {"project": "vision", "name": "next", "command": ["true"]}
    wanted = body | {"continue_from": "train-1:best"}
    assert (await harness.ask("POST", "/workloads", "ada", json=wanted)).status == 201
    stored = await harness.workload("vision", "next")
    assert stored.spec.continues.startswith("copies/")
    for foreign in ({"name": "b"}, {"name": "c", "continue_from": "train-1"}):
        reply = await harness.ask("POST", "/workloads", "bea", json=wanted | foreign)
        assert reply.fields == {"continue_from": "unknown_job"}
    assert (await harness.ask("DELETE", "/projects/vision/checkpoints/best", "bea")).status == 403
    assert (await harness.ask("DELETE", "/projects/vision/checkpoints/best", "ada")).status == 204
    assert (await harness.ask("GET", "/projects/vision/checkpoints", "ada")).body["items"] == []


async def test_a_model_is_a_version_of_what_a_run_kept(harness: ApiHarness) -> None:
    harness.files.write("artifacts", "uid-vision-train-1", "net/model.pt", b"weights")
    await harness.set_status("vision", "train-1", metrics={"loss": 0.25}, parameters={"lr": "0.1"})
    asked = {"name": "net", "workload": "train-1", "path": "net/model.pt", "description": "wide"}
    made = await harness.ask("POST", "/projects/vision/models", "bea", json=asked)
    assert (made.status, made.body["version"], made.body["user"]) == (201, 1, "bea")
    assert (made.body["metrics"], made.body["parameters"]) == ({"loss": 0.25}, {"lr": "0.1"})
    assert (await harness.ask("POST", "/projects/vision/models", "ada", json=asked)).body[
        "version"
    ] == 2
    for wrong in ({"workload": "nobody"}, {"name": "Not A Name"}, {"path": "a", "checkpoint": "1"}):
        reply = await harness.ask("POST", "/projects/vision/models", "ada", json=asked | wrong)
        assert reply.status == 422
    asked_checkpoint = {"name": "net", "workload": "train-1", "checkpoint": "1"}
    reply = await harness.ask("POST", "/projects/vision/models", "bea", json=asked_checkpoint)
    assert reply.status == 403
    assert (await harness.ask("GET", "/projects/vision/models", "carl")).status == 404
    content = f"{ROOT}/projects/vision/models/net/1/files/content"
    assert (await call(harness, "GET", content, params={"path": "model.pt"}))[1] == b"weights"
    body = {"project": "vision", "name": "serve-it", "command": ["true"], "model": "net"}
    reply = await harness.ask("POST", "/workloads", "ada", json=body)
    assert (reply.status, reply.body["spec"]["model"]) == (201, "net@2")
    assert (await harness.workload("vision", "serve-it")).spec.model_uid
    reply = await harness.ask(
        "POST", "/workloads", "ada", json=body | {"name": "x", "model": "net@9"}
    )
    assert reply.fields == {"model": "unknown_job"}
    assert (await harness.ask("DELETE", "/projects/vision/models/net/1", "ada")).status == 403
    assert (await harness.ask("DELETE", "/projects/vision/models/net/1", "bea")).status == 204
    versions = await harness.ask("GET", "/projects/vision/models/net", "ada")
    assert [one["version"] for one in versions.body["items"]] == [2]


@pytest.mark.parametrize("kind", ["models", "checkpoints"])
async def test_a_project_without_room_keeps_no_more(harness: ApiHarness, kind: str) -> None:
    big = bytes(harness.files.ROOM + 1)
    harness.files.write("artifacts", "uid-vision-train-1", "big", big)
    harness.files.write("checkpoints", "uid-vision-train-1", "step-000000000001.0/data.pkl", big)
    if kind == "models":
        asked = {"name": "net", "workload": "train-1"}
        reply = await harness.ask("POST", "/projects/vision/models", "ada", json=asked)
    else:
        at = "/workloads/vision/train-1/checkpoints/1/keep"
        reply = await harness.ask("POST", at, "ada", json={})
    assert (reply.status, reply.code) == (409, "storage_full")
