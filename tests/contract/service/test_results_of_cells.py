"""Cells and calls on a real scheduler: what they hand back, from the shell and from Python."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from carrel.client import AsyncClient
from carrel.models import Workload
from carrel.notebook.cell import capture, cell_body
from carrel.options import RequestFields
from carrel.results import NoResult
from carrel_schema.sections import Target
from contract.service.jobs import TIMEOUT_SECONDS, client

__all__ = ["client"]


async def run_cell(client: AsyncClient, source: str, folder: Path, **fields: Any) -> Workload:
    """Send a cell away as a magic does, and wait for its end."""
    captured = capture(source, ["epochs"], {"epochs": 3})
    asked = RequestFields("training", {"backoff_limit": 0, **fields})
    body = cell_body(captured, asked, project="vision", folder=str(folder))
    job = await client.create_workload(body)
    [ended] = await client.wait([job], timeout=TIMEOUT_SECONDS)
    return ended


async def test_the_last_line_of_a_cell_comes_back_and_so_does_what_it_raises(
    client: AsyncClient, tmp_path: Path
) -> None:
    kept = await run_cell(client, "print('hi')\n{'epochs': epochs, 'loss': 0.5}", tmp_path, gpus=1)
    assert kept.status.phase == "succeeded"
    assert await client.result("vision", kept.name) == {"epochs": 3, "loss": 0.5}
    failed = await run_cell(client, "raise ValueError(f'bad {epochs}')", tmp_path)
    assert failed.status.phase == "failed"
    with pytest.raises(ValueError, match="bad 3") as raised:
        await client.result("vision", failed.name)
    assert "cell.py" in str(raised.value.__cause__)
    await client.delete_workload("vision", kept.name)
    await client.wait([kept], timeout=TIMEOUT_SECONDS)
    silent = await client.create_workload(
        {"project": "vision", "name": "silent", "command": ["true"]}
    )
    await client.wait([silent], timeout=TIMEOUT_SECONDS)
    with pytest.raises(NoResult, match="`silent` has handed no result back"):
        await client.result("vision", "silent")


async def test_a_cell_is_tried_with_many_configurations(
    client: AsyncClient, tmp_path: Path
) -> None:
    """A sweep as ``%%sweep`` sends it: parameters are variables, the last line is the objective."""
    space = {"x": {"type": "int", "low": 0, "high": 3}}
    search = {"parameters": space, "completions": 4, "parallelism": 2, "sampler": "grid"}
    asked = RequestFields("experiment", {"name": "sweep", "experiment": search})
    captured = capture("(x - 2) ** 2", [], {"x": "not this"}, given={"x"})
    body = cell_body(captured, asked, project="vision", folder=str(tmp_path), how=["parameters"])
    job = await client.create_workload(body)
    [ended] = await client.wait([job], timeout=TIMEOUT_SECONDS)
    assert ended.status.phase == "succeeded", ended.status.reason
    found = ended.status.experiment
    assert found is not None
    assert (found.completed, found.best_value, found.best_parameters) == (4, 0.0, {"x": 2})
    best = await client.run_best("vision", "sweep")
    await client.wait([best], timeout=TIMEOUT_SECONDS)
    assert await client.result("vision", best.name) == 0


async def test_a_cell_s_function_answers_requests(client: AsyncClient, tmp_path: Path) -> None:
    """An endpoint as ``%%serve`` makes it, asked at its replica's own port."""
    asked = RequestFields("inference", {"name": "double", "inference": {}, "routes": [{}]})
    captured = capture("def predict(x):\n    return 2 * x", [], {})
    how = ["serve=predict"]
    body = cell_body(captured, asked, project="vision", folder=str(tmp_path), how=how)
    await client.create_workload(body)
    targets: tuple[Target, ...] = ()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in client.events("vision", "double"):
            endpoint = event.workload.status.endpoint
            if endpoint is not None and endpoint.targets:
                targets = tuple(endpoint.targets)
                break
    [target] = targets
    port = target.ports[""] if "" in target.ports else next(iter(target.ports.values()))
    url = f"http://{target.host}:{port}/"
    async with aiohttp.ClientSession() as session, session.post(url, json={"x": 21}) as answer:
        assert await answer.json() == 42


async def test_lines_of_workers_are_merged_with_their_names(client: AsyncClient) -> None:
    command = ["sh", "-c", "echo member $RANK"]
    body = {"project": "vision", "name": "gang", "kind": "distributed", "tasks": 2}
    job = await client.create_workload({**body, "command": command})
    [ended] = await client.wait([job], timeout=TIMEOUT_SECONDS)
    assert ended.status.phase == "succeeded", ended.status.reason
    told = "".join([piece async for piece in client.logs("vision", "gang", index="all")])
    lines = sorted(told.splitlines())
    assert [line.endswith(f"member {rank}") for rank, line in enumerate(lines)] == [True, True]
    assert all("gang" in line for line in lines)


async def test_map_over_small_jobs(client: AsyncClient) -> None:
    offset = 10
    found = await client.map(lambda n: n + offset, [1, 2, 3], project="vision", progress=False)
    assert found == [11, 12, 13]
    mixed: list[object] = await client.map(
        int, ["1", "x"], project="vision", name="ints", progress=False, return_exceptions=True
    )
    assert mixed[0] == 1
    assert isinstance(mixed[1], ValueError)
    left = [job.name for job in await client.list_workloads("vision") if not job.spec.delete]
    assert left == ["ints"]  # one with a call that failed stays to be looked at


async def test_the_shell_asks_for_every_kind(client: AsyncClient, tmp_path: Path) -> None:
    """A dry run of each kind is understood and foretold by a real scheduler."""
    (tmp_path / "a.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    lines = {
        "training": ["--elastic", "-g", "1", "--", "true"],
        "distributed": ["--workers", "2", "--max-workers", "3", "--", "true"],
        "experiment": ["--param", "lr=log:1e-5..1e-1", "--parallelism", "2", "--", "true"],
        "inference": ["--replicas", "2", "--port", "0", "--", "true"],
        "notebook": ["--notebook", str(tmp_path / "a.ipynb"), "--param", "a=1"],
        "schedule": ["night", "--schedule", "0 3 * * *", "--", "true"],
        "workspace": ["--interactive", "--", "true"],
    }
    environment = {"CARREL_URL": client.settings.url, "CARREL_TOKEN": "ada", "PATH": "/usr/bin"}
    for kind, line in lines.items():
        words = [sys.executable, "-m", "carrel.cli", "submit", *line, "-p", "vision", "--dry-run"]
        if "--" in line:
            cut = line.index("--")
            words[4:] = [*line[:cut], "-p", "vision", "--dry-run", *line[cut:]]
        done = await asyncio.to_thread(
            subprocess.run, words, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (kind, done.stderr)
        told = done.stdout.splitlines()[0]
        assert "Starting on" in told
        assert ("Its first trial: " in told) == (kind == "experiment")
        assert re.search(rf"^Kind: +{kind}$", done.stdout, re.MULTILINE), done.stdout
