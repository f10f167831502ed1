"""``carrel workspace`` against a real Hub: list, start, clone, stop, delete."""

import asyncio
from typing import Any

import pytest

from carrel import Client
from carrel.cli.main import run
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


async def test_a_workspaces_own_token_is_told_what_would_do(stack: Stack) -> None:
    from carrel.client.workspaces import Workspaces
    from carrel.errors import ApiError

    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        token = (await ada.inside())["JUPYTERHUB_API_TOKEN"]

        def begin() -> None:
            address = f"{stack.url}/services/carrel"
            with Client(address, token) as client, Workspaces(client) as workspaces:
                workspaces.start("other")

        with pytest.raises(ApiError, match="carrel login"):
            await asyncio.to_thread(begin)
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()
