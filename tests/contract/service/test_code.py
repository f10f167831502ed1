"""Code that travels with a job, on a real scheduler: folders and Git repositories."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from carrel.client import AsyncClient
from carrel.models import Workload
from contract.service.jobs import TIMEOUT_SECONDS, client

__all__ = ["client"]
TRAIN = """
import helper, os, pathlib
print(helper.word, pathlib.Path("data/big").stat().st_size, os.access("run.sh", os.X_OK))
"""


async def ran(client: AsyncClient, **fields: object) -> tuple[Workload, str]:
    body = {"project": "vision", "name_prefix": "coded", "kind": "training", **fields}
    job = await client.create_workload(body)
    [ended] = await client.wait([job], timeout=TIMEOUT_SECONDS)
    output = "".join([piece async for piece in client.logs("vision", job.name)])
    return ended, output


async def test_a_folder_is_there_and_is_sent_once(client: AsyncClient, tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "train.py").write_text(TRAIN)
    (root / "helper.py").write_text("word = 'first'")
    (root / "data/big").write_bytes(bytes(9_000_000))
    (root / "run.sh").write_text("#!/bin/sh\npython train.py\n")
    (root / "run.sh").chmod(0o755)
    digest, _ = await client.upload_code("vision", root)
    job, output = await ran(client, command=["python", "train.py"], code={"digest": digest})
    assert (job.status.phase, output) == ("succeeded", "first 9000000 True\n")
    (root / "helper.py").write_text("word = 'second'")
    changed, _ = await client.upload_code("vision", root)
    assert changed != digest
    _, output = await ran(client, command=["./run.sh"], code={"digest": changed})
    assert output == "second 9000000 True\n"
    job, output = await ran(client, command=["./walk.sh"], code={"digest": changed})
    assert (job.status.phase, job.status.failures) == ("failed", 1)
    assert job.status.reason is not None
    assert "./walk.sh: command not found (exit code 127)" in job.status.reason.sentence


async def test_files_of_the_request_come_before_those_of_the_folder(
    client: AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/a.py").write_text("print('folder')")
    digest, _ = await client.upload_code("vision", tmp_path / "job")
    _, output = await ran(
        client,
        command=["python", "a.py"],
        files={"a.py": "print('request')"},
        code={"digest": digest},
    )
    assert output == "request\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a branch and a commit that is no branch."""
    root = tmp_path / "repositories/project.git"
    root.mkdir(parents=True)

    def git(*words: str) -> None:
        identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
        subprocess.run(["git", *identity, "-C", root, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    for word in ("first", "second"):
        (root / "train.py").write_text(f"print('{word}')")
        git("add", ".")
        git("commit", "-m", word)
        git("tag", word)
    return root


async def test_a_revision_of_a_repository_is_there(client: AsyncClient, repository: Path) -> None:
    port = free_port()
    daemon = await asyncio.create_subprocess_exec(
        "git", "daemon", "--listen=127.0.0.1", f"--port={port}", "--export-all",
        f"--base-path={repository.parent}", "--reuseaddr",
    )  # fmt: skip
    try:
        url = f"git://127.0.0.1:{port}/project.git"
        await answers(port)
        for revision, word in (("", "second"), ("first", "first"), ("main", "second")):
            source = {"git": url, "revision": revision}
            job, output = await ran(client, command=[sys.executable, "train.py"], code=source)
            assert (job.status.phase, output) == ("succeeded", f"{word}\n")
        source = {"git": url, "revision": "nowhere"}
        job, output = await ran(client, command=["true"], code=source)
        assert job.status.phase == "failed"
        assert f"{url}@nowhere" in output
    finally:
        daemon.terminate()
        await daemon.wait()


async def answers(port: int) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
