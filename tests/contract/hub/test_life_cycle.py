"""Start, look, stop: the Hub's life cycle with workspaces that are workloads."""

import asyncio

from carrel_spawner.options import BYTES_PER_GIB
from contract.hub.stack import Stack, person


async def test_starts_a_workspace_and_stops_it(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        assert await ada.start(gpus=1, cpu=0.5, memory_gib=1) in (201, 202)
        await ada.until_ready()
        spec = stack.fake.workload("vision", "workspace-ada")["spec"]
        assert (spec["user"], spec["gpus"], spec["cpu_millicores"]) == ("ada", 1, 500)
        assert spec["memory_bytes"] == BYTES_PER_GIB
        inside = await ada.inside()
        assert inside["CARREL_PROJECT"] == "vision"
        assert inside["CARREL_URL"] == stack.fake.url
        assert (
            inside["JUPYTERHUB_API_TOKEN"]
            == stack.fake.secrets("vision", "workspace-ada")["JUPYTERHUB_API_TOKEN"]
        )
        assert not any("TOKEN" in name for name in spec["environment"])
        status, _ = await ada.api("DELETE", "/users/ada/server")
        assert status in (202, 204)
        await ada.until_stopped()
        workload = stack.fake.workload("vision", "workspace-ada")
        assert workload["status"]["phase"] == "stopped"


async def test_starts_again_with_a_new_token(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        tokens = []
        for _ in range(2):
            await ada.start()
            await ada.until_ready()
            tokens.append((await ada.inside())["JUPYTERHUB_API_TOKEN"])
            await ada.api("DELETE", "/users/ada/server")
            await ada.until_stopped()
        assert tokens[0] != tokens[1]


async def test_stopping_a_named_workspace_leaves_the_default_one(stack: Stack) -> None:
    async with person(stack, "linus") as linus:
        await linus.start()
        await linus.start("gpu-lab", project="speech")
        await linus.until_ready()
        await linus.until_ready("gpu-lab")
        assert stack.fake.workload("speech", "workspace-linus--gpu-lab")["spec"]["gpus"] == 0
        await linus.api("DELETE", "/users/linus/servers/gpu-lab")
        await linus.until_stopped("gpu-lab")
        assert (await linus.server())["ready"]
        await linus.api("DELETE", "/users/linus/server")
        await linus.until_stopped()


async def test_the_page_of_a_starting_named_workspace_stops_that_one(stack: Stack) -> None:
    async with person(stack, "linus") as linus:
        stack.runner.hold = True
        starting = asyncio.create_task(linus.start("slow", project="vision"))
        await linus.until("slow", lambda model: model.get("pending") == "spawn")
        _, page = await linus.get("/hub/spawn-pending/linus/slow")
        assert "'servers/slow'" in page or "servers/slow" in page
        assert "Stop slow" in page
        status, _ = await linus.api("DELETE", "/users/linus/servers/slow")
        assert status in (202, 204)
        await starting
        await linus.until_stopped("slow")


async def test_a_workspace_that_ends_by_itself_says_why(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        stack.fake.stop("vision", "workspace-ada", "Idle", "Stopped after 1 h without activity.")
        await ada.until_stopped()
        _, home = await ada.get("/hub/home")
        assert "Stopped after 1 h without activity." in home
        _, page = await ada.get("/hub/user/ada/")
        assert "Stopped after 1 h without activity." in page
        await ada.start()
        await ada.until_ready()
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


async def test_a_server_that_dies_at_once_is_explained(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        stack.runner.command = ["/bin/sh", "-c", "exit 3"]
        assert await ada.start() == 500
        _, page = await ada.get("/hub/spawn-pending/ada")
        assert "exit code 3" in page
        assert "Internal Server Error" not in page


async def test_a_scheduler_that_is_away_is_a_sentence(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        stack.fake.fail_next(500, 500, 500, 500, 500, 500)
        status, answer = await ada.api("POST", "/users/ada/server", {"user_options": {}})
        assert status == 503
        assert "scheduler could not be asked" in answer["message"]
        stack.fake.fail_next()
