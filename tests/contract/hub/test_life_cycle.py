"""Start, look, stop: the Hub's life cycle with workspaces that are workloads."""

import asyncio

import pytest

from carrel_spawner.options import BYTES_PER_GIB
from contract.hub.stack import TIMEOUT_SECONDS, Stack, person, until


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


async def test_a_stopped_named_workspace_is_started_at_its_own_address(stack: Stack) -> None:
    async with person(stack, "linus") as linus:
        await linus.start(project="vision")
        await linus.start("bench", project="speech")
        await linus.until_ready()
        await linus.until_ready("bench")
        await linus.api("DELETE", "/users/linus/servers/bench")
        await linus.until_stopped("bench")

        async def offers_a_start() -> None:
            status, page = await linus.get("/user/linus/bench/lab/tree/a.ipynb")
            assert status == 424
            assert "Your workspace is not running" in page
            assert 'href="/hub/spawn/linus/bench' in page

        await offers_a_start()
        assert (await linus.inside())["CARREL_PROJECT"] == "vision"
        await asyncio.to_thread(stack.restart_hub)
        await linus.until_ready()
        await offers_a_start()
        await linus.api("DELETE", "/users/linus/server")
        await linus.until_stopped()
        await offers_a_start()
        await linus.start(project="vision")
        await linus.until_ready()
        await offers_a_start()
        await linus.start("bench", project="speech")
        await linus.until_ready("bench")
        assert (await linus.inside("bench"))["CARREL_PROJECT"] == "speech"
        await linus.api("DELETE", "/users/linus/servers/bench", {"remove": True})
        await linus.until_stopped("bench")

        async def is_a_page_of_the_default_one() -> bool:
            return (await linus.get("/user/linus/bench/x"))[0] == 200

        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await is_a_page_of_the_default_one():  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)
        await linus.api("DELETE", "/users/linus/server")
        await linus.until_stopped()


async def test_a_named_workspace_hides_no_page_of_the_default_one(stack: Stack) -> None:
    async with person(stack, "linus") as linus:
        await linus.start("lab", project="speech")
        await linus.until_ready("lab")
        await linus.api("DELETE", "/users/linus/servers/lab")
        await linus.until_stopped("lab")
        await linus.start(project="vision")
        await linus.until_ready()
        assert (await linus.get("/user/linus/lab"))[0] == 200
        await linus.api("DELETE", "/users/linus/servers/lab", {"remove": True})
        await linus.api("DELETE", "/users/linus/server")
        await linus.until_stopped()


@pytest.mark.parametrize("server", ["", "borrower"])
async def test_a_workspace_that_gave_way_is_stopped_and_says_why(stack: Stack, server: str) -> None:
    name, path = ("workspace-ada--borrower", "/ada/borrower") if server else (
        "workspace-ada", "/ada")  # fmt: skip
    async with person(stack, "ada") as ada:
        await ada.start(server)
        await ada.until_ready(server)
        stack.fake.preempt("vision", name, for_project="speech")
        await ada.until_stopped(server)
        _, home = await ada.get("/hub/home")
        assert "Gave its place back to <code>speech</code>." in home
        status, page = await ada.get_once_there(f"/user{path}/lab")
        assert status == 424
        assert "Gave its place back to <code>speech</code>." in page
        assert f'href="/hub/spawn{path}' in page
        assert stack.fake.workload("vision", name)["status"]["phase"] == "stopped"
        await until(lambda: stack.runner.processes() == 0, what="the end of its process")
        await ada.start(server)
        await ada.until_ready(server)
        assert (await ada.inside(server))["CARREL_PROJECT"] == "vision"
        await ada.api("DELETE", f"/users/ada/servers/{server}")
        await ada.until_stopped(server)


async def test_a_workspace_that_was_queued_again_runs_no_longer(stack: Stack) -> None:
    """Stopped and resumed behind the Hub's back: what comes next is another start."""
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        with stack.runner.turn:
            stack.fake.status("vision", "workspace-ada", phase="pending", attempt=1, tasks=[])
            stack.runner.kill("vision", "workspace-ada")
        await ada.until_stopped()
        _, page = await ada.get_once_there("/user/ada/lab")
        assert "queued again; it starts when it is its turn" in page
        await ada.start()
        await ada.until_ready()
        assert stack.fake.workload("vision", "workspace-ada")["status"]["attempt"] == 0
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


async def test_interactive_work_from_elsewhere_is_not_the_hubs(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        stack.fake.submit("vision", "shell", kind="workspace", server_name="", command=["bash"])
        await ada.start()
        await ada.until_ready()
        assert stack.fake.workload("vision", "shell")["status"]["phase"] == "pending"
        _, home = await ada.get("/hub/home")
        assert "running" in home
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


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
