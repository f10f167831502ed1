"""The Hub and the scheduler may go away and come back; a workspace that runs does not notice."""

import asyncio
import signal
import sqlite3
from contextlib import closing

import pytest

from contract.hub.stack import Stack, person, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_hub_restart_keeps_the_workspace(stack: Stack, number: signal.Signals) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        before = await ada.inside()
        uid = stack.fake.workload("vision", "workspace-ada")["uid"]
        await asyncio.to_thread(stack.restart_hub, number)
        await ada.until_ready()
        assert (await ada.inside())["JUPYTERHUB_API_TOKEN"] == before["JUPYTERHUB_API_TOKEN"]
        assert stack.fake.workload("vision", "workspace-ada")["uid"] == uid
        assert stack.runner.processes() == 1
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


def written_down(stack: Stack) -> str:
    """What the Hub's database knows of workspaces."""
    with closing(sqlite3.connect(stack.settings.hub_dir / "jupyterhub.sqlite")) as database:
        return str(database.execute("SELECT state FROM spawners").fetchall())


async def test_a_hub_killed_in_the_middle_of_a_start_finds_it_again(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        stack.runner.hold = True
        starting = asyncio.create_task(ada.start())
        await until(lambda: any(a["spec"]["user"] == "ada" for a in stack.fake.workloads()))
        await until(lambda: "workspace-ada" in written_down(stack), what="the note of the start")
        stack.stop("hub", signal.SIGKILL)
        await asyncio.gather(starting, return_exceptions=True)
        stack.runner.hold = False
        stack.start("hub")
        await asyncio.to_thread(stack.wait_for_hub)
        await ada.until_ready()
        assert stack.runner.processes() == 1
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


async def test_a_workspace_that_ended_while_the_hub_was_away_is_noticed(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        stack.stop("hub")
        stack.fake.stop("vision", "workspace-ada", "TimedOut", "Stopped: its 4 h are over.")
        stack.start("hub")
        await asyncio.to_thread(stack.wait_for_hub)
        await ada.until_stopped()
        _, home = await ada.get("/hub/home")
        assert "Stopped: its 4 h are over." in home


async def test_a_silent_scheduler_does_not_stop_workspaces(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        await ada.start()
        await ada.until_ready()
        stack.fake.fail_next(*[503] * 12)  # several polls, each tried again a few times
        await until(lambda: not stack.fake._server.failures, what="the end of the silence")
        assert (await ada.server())["ready"]
        _, home = await ada.get("/hub/home")
        assert "running" in home
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


async def test_groups_changed_at_runtime_survive(stack: Stack) -> None:
    async with person(stack, "admin") as root:
        await root.api("POST", "/groups/project-new", {})
        await root.api("POST", "/groups/project-new/users", {"users": ["grace"]})
        await root.api("DELETE", "/groups/project-speech/users", {"users": ["grace"]})
        await asyncio.to_thread(stack.restart_hub)
        _, grace = await root.api("GET", "/users/grace")
        assert "project-new" in grace["groups"]
        assert "project-speech" not in grace["groups"]
        await root.api("POST", "/groups/project-speech/users", {"users": ["grace"]})
