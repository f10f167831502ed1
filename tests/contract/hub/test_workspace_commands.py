"""``carrel workspace`` against a real Hub: list, start, clone, stop, delete."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from carrel import Client
from carrel.cli.main import run
from carrel.client.workspaces import Workspaces
from carrel.errors import ApiError
from contract.hub.stack import Person, Stack, person


@pytest.fixture
def shell(stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command line as somebody; returns exit code, output and complaints."""

    async def shell(who: Person, *words: str) -> tuple[int, str, str]:
        status, made = await who.api("POST", f"/users/{who.name}/tokens", {"note": "test"})
        assert status == 201
        for name in ("JUPYTERHUB_API_URL", "CARREL_CONSOLE_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("CARREL_URL", f"{stack.url}/services/carrel")
        monkeypatch.setenv("CARREL_TOKEN", made["token"])
        code = await asyncio.to_thread(run, ["workspace", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return shell


async def test_a_workspace_is_started_copied_stopped_and_deleted(stack: Stack, shell: Any) -> None:
    async with person(stack, "linus") as linus:
        words = ("-p", "speech", "-g", "1", "--cpu", "0.5", "--memory", "1")
        code, out, err = await shell(linus, "start", "lab", *words)
        assert code == 0, err
        assert f"{stack.url}/user/linus/lab/" in out
        await linus.until_ready("lab")
        assert stack.fake.workload("speech", "workspace-linus--lab")["spec"]["gpus"] == 1

        code, _, err = await shell(linus, "clone", "lab", "lab-2")
        assert code == 0, err
        await linus.until_ready("lab-2")
        copy = stack.fake.workload("speech", "workspace-linus--lab-2")["spec"]
        assert (copy["gpus"], copy["cpu_millicores"], copy["memory_bytes"]) == (1, 500, 2**30)
        code, _, err = await shell(linus, "clone", "lab", "lab-2")
        assert code == 2
        assert "choose one that is free" in err

        _, out, _ = await shell(linus, "list")
        rows = [line.split()[:4] for line in out.splitlines()]
        assert ["lab", "Running", "speech", "1"] in rows
        assert ["lab-2", "Running", "speech", "1"] in rows

        assert (await shell(linus, "stop", "lab"))[0] == 0
        await linus.until_stopped("lab")
        _, out, _ = await shell(linus, "list")
        assert ["lab", "Stopped", "speech", "1"] in [line.split()[:4] for line in out.splitlines()]
        assert (await shell(linus, "start", "lab"))[0] == 0
        await linus.until_ready("lab")
        assert stack.fake.workload("speech", "workspace-linus--lab")["spec"]["gpus"] == 1

        for name in ("lab", "lab-2"):
            assert (await shell(linus, "delete", name))[0] == 0
            await linus.until_stopped(name)
        code, _, err = await shell(linus, "delete", "lab-9")
        assert code == 2
        assert "There is no workspace 'lab-9'" in err


async def test_a_workspace_is_made_from_a_file_and_copied_with_its_surroundings(
    stack: Stack, shell: Any, tmp_path: Path
) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: sci\nproject: speech\ncpu: 0.5\nenvironment: ~/venv\n"
        "volumes: ['/data/sets:ro', {source: /data/more, destination: deep/more}]\n"
    )
    async with person(stack, "linus") as linus:
        code, _, err = await shell(linus, "create", "-f", str(file), "--memory", "1")
        assert code == 0, err
        await linus.until_ready("sci")
        assert (await shell(linus, "clone", "sci", "sci-2"))[0] == 0
        await linus.until_ready("sci-2")
        for name in ("sci", "sci-2"):
            spec = stack.fake.workload("speech", f"workspace-linus--{name}")["spec"]
            assert spec["environment"]["CARREL_ENVIRONMENT"] == "~/venv"
            assert [(one["destination"], one.get("read_only")) for one in spec["volumes"]] == [
                ("sets", True),
                ("deep/more", False),
            ]
        _, out, _ = await shell(linus, "describe", "sci-2", "-o", "yaml")
        copy = tmp_path / "copy.yaml"
        copy.write_text(out.replace("name: sci-2", "name: sci-3"))
        assert (await shell(linus, "create", "-f", str(copy)))[0] == 0
        await linus.until_ready("sci-3")
        _, out, _ = await shell(linus, "describe", "sci-3")
        assert "/data/sets:sets:ro, /data/more:deep/more" in out
        assert (await shell(linus, "stop", "sci"))[0] == 0
        await linus.until_stopped("sci")
        assert (await shell(linus, "start", "sci", "-v", "/data/x"))[0] == 0
        await linus.until_ready("sci")
        spec = stack.fake.workload("speech", "workspace-linus--sci")["spec"]
        assert [one["source"] for one in spec["volumes"]] == ["/data/x"]
        assert spec["environment"]["CARREL_ENVIRONMENT"] == "~/venv"

        for words, expected in (
            (("-e", "torch"), "profile is 'torch'"),
            (("-v", "/data:../x"), "volumes is"),
            (("-e", "/no:where"), "environment is '/no:where'"),
        ):
            code, _, err = await shell(linus, "create", "bad", "-p", "speech", *words)
            assert code == 1
            assert expected in err
        _, out, _ = await shell(linus, "list")
        assert "bad" not in out
        for name in ("sci", "sci-2", "sci-3"):
            await shell(linus, "delete", name)
            await linus.until_stopped(name)


async def test_a_workspace_looks_after_the_others_of_its_owner_only(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        token = (await ada.inside())["JUPYTERHUB_API_TOKEN"]

        def begin() -> None:
            address = f"{stack.url}/services/carrel"
            with Client(address, token) as client, Workspaces(client) as workspaces:
                workspaces.start("other", {"project": "vision"})

        await asyncio.to_thread(begin)
        await ada.until_ready("other")
        async with person(stack, "linus") as linus, aiohttp.ClientSession() as session:
            theirs = f"{stack.url}/hub/api/users/{linus.name}/server"
            async with session.post(theirs, headers={"Authorization": f"token {token}"}) as answer:
                assert answer.status in (403, 404)
        for name in ("", "other"):
            path = f"servers/{name}" if name else "server"
            await ada.api("DELETE", f"/users/ada/{path}")
            await ada.until_stopped(name)


async def test_a_token_that_may_not_is_told_what_would_do(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        status, made = await ada.api(
            "POST", "/users/ada/tokens", {"scopes": ["custom:carrel:use", "read:users:name!user"]}
        )
        assert status == 201

        def begin() -> None:
            address = f"{stack.url}/services/carrel"
            with Client(address, made["token"]) as client, Workspaces(client) as workspaces:
                workspaces.start("other")

        with pytest.raises(ApiError, match="carrel login"):
            await asyncio.to_thread(begin)


async def test_a_workspace_is_put_together_from_assets(stack: Stack, shell: Any) -> None:
    async with person(stack, "linus") as linus:
        sized = ("--gpus", "1", "--cpu", "0.5", "--memory", "1")
        code, _, err = await shell(linus, "create", "parts", "-p", "speech", *sized)
        assert code == 0, err
        await linus.until_ready("parts")
        assert (await shell(linus, "stop", "parts"))[0] == 0
        await linus.until_stopped("parts")
        named = ("--compute", "small", "--environment-asset", "torch", "--data", "words")
        code, _, err = await shell(linus, "start", "parts", *named)
        assert code == 0, err
        await linus.until_ready("parts")
        spec = stack.fake.workload("speech", "workspace-linus--parts")["spec"]
        assert spec["assets"] == {
            "environment": "torch", "compute": "small", "data_sources": ["words"],
        }  # fmt: skip
        assert spec["gpus"] == 0, "the compute resource says the sizes, which say nothing here"
        _, out, _ = await shell(linus, "describe", "parts", "-o", "yaml")
        assert "compute: small" in out
        assert "gpus:" not in out
        assert (await shell(linus, "delete", "parts"))[0] == 0
        await linus.until_stopped("parts")
