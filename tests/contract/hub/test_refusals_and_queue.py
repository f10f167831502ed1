"""No room: who holds what, the way into the queue, the turn, and the way out."""

import asyncio
import time
from typing import Any

import pytest

from contract.hub.stack import Person, Stack, person, until

SENTENCE = "Waiting for 1 GPU: `vision` uses all 2 of its GPUs."


def reason(token: str = "QuotaUsed", **data: Any) -> dict[str, Any]:
    """A reason as the scheduler gives it."""
    holders = [
        {"project": "vision", "name": "train-7", "user": "linus", "amount": 1000,
         "borrowed": False, "since": time.time() - 600},
        {"project": "speech", "name": "secret-job", "user": "grace", "amount": 1000,
         "borrowed": True, "since": time.time() - 60},
    ]  # fmt: skip
    facts = {"resource": "gpu", "holders": holders, "sentence_without_names": SENTENCE} | data
    return {
        "token": token,
        "cls": "not-now",
        "sentence": f"{SENTENCE} grace has secret-job.",
        "help": "A job of your project gives way in 5 min.",
        "data": facts,
    }


async def make_wait(stack: Stack, key: tuple[str, str], **status: Any) -> None:
    """Let a workload wait, as soon as it is there."""
    await until(lambda: any(key == (a["project"], a["name"]) for a in stack.fake.workloads()))
    stack.fake.status(*key, phase="pending", **status)


async def refused(stack: Stack, ada: Person, why: dict[str, Any]) -> tuple[int, Any]:
    """Try to start, and be refused for this reason."""
    stack.runner.hold = True
    waiting = asyncio.create_task(make_wait(stack, ("vision", "workspace-ada"), reason=why))
    answer = await ada.api("POST", "/users/ada/server", {"user_options": {"gpus": 1}})
    await waiting
    return answer


async def test_a_refusal_is_an_answer_and_leaves_nothing(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        status, answer = await refused(stack, ada, reason())
        assert status == 409
        assert answer["message"].startswith(SENTENCE)
        assert "grace" not in answer["message"]
        assert not [one for one in stack.fake.workloads() if one["name"] == "workspace-ada"]
        _, page = await ada.get("/hub/spawn-pending/ada")
        assert "linus of vision with train-7" in page
        assert "a member of speech" in page
        assert "secret-job" not in page
        assert "for 10 min" in page
        assert "Put me in the queue, start it for me" in page


async def test_a_refusal_is_counted_by_its_reason(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        await refused(stack, ada, reason())
        await refused(stack, ada, reason("NoNodeFits"))
    async with person(stack, "admin") as root:
        _, metrics = await root.get("/hub/metrics")
        assert 'spawn_duration_seconds_count{reason="quota",status="failure"}' in metrics
        assert 'spawn_duration_seconds_count{reason="capacity",status="failure"}' in metrics


async def test_the_form_page_shows_the_refusal(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        _, page = await ada.get("/hub/spawn/ada")
        assert "Start a workspace" in page
        stack.runner.hold = True
        waiting = asyncio.create_task(
            make_wait(stack, ("vision", "workspace-ada"), reason=reason())
        )
        fields = {"project": "vision", "gpus": 1, "cpu": 1, "memory_gib": 2}
        status, page, where = await ada.post("/hub/spawn/ada", fields)
        await waiting
        if "spawn-pending" in where:  # it took longer than the Hub waits: the page gets it by SSE
            events = await ada.progress()
            assert events[-1]["failed"]
            page = events[-1]["html_message"]
        else:
            assert status == 409
        assert "<code>vision</code> uses all 2 of its GPUs." in page
        assert "Put me in the queue" in page


async def test_room_that_is_being_freed_is_waited_for(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        stack.runner.hold = True
        told = "Taking back 1 GPU that `speech` had borrowed."
        why = reason("WaitsForRoom", nominated=True, sentence_without_names=told) | {
            "sentence": "Taking back 1 GPU that `speech` had borrowed for `secret-job`.",
            "help": "It saves its checkpoint, up to 30 s.",
        }
        waiting = asyncio.create_task(make_wait(stack, ("vision", "workspace-ada"), reason=why))
        starting = asyncio.create_task(ada.start(gpus=1))
        await waiting
        await ada.until("", lambda model: model.get("pending") == "spawn")
        viewers = [asyncio.create_task(ada.progress()) for _ in range(2)]
        await asyncio.sleep(1)
        stack.runner.hold = False
        await starting
        await ada.until_ready()
        for events in await asyncio.gather(*viewers):
            messages = [event["message"] for event in events]
            assert any("Taking back 1 GPU" in message for message in messages)
            assert not any("secret-job" in message for message in messages)
            assert any("up to 30 s" in message for message in messages)
            assert any("<code>speech</code>" in one.get("html_message", "") for one in events)
            percents = [event["progress"] for event in events]
            assert percents == sorted(percents)
            assert events[-1]["ready"]
        await ada.api("DELETE", "/users/ada/server")
        await ada.until_stopped()


@pytest.mark.parametrize("server", ["", "lab"])
async def test_queue_turn_and_claim(stack: Stack, server: str) -> None:
    name = f"workspace-ada--{server}" if server else "workspace-ada"
    path = f"/hub/carrel/queue/ada/{server}" if server else "/hub/carrel/queue/ada"
    async with person(stack, "ada") as ada:
        fields = {"action": "join", "project": "vision", "gpus": 1, "cpu": 0.5, "memory_gib": 1}
        status, home, where = await ada.post(path, fields)
        assert status == 200
        assert where.endswith("/hub/home")
        spec = stack.fake.workload("vision", name)["spec"]
        assert spec["hold_for_claim"]
        assert not spec.get("command")
        why = {"token": "QueuedBehind", "cls": "not-now", "sentence": "2 are before you."}
        stack.fake.status("vision", name, queue_position=3, reason=why)
        _, home = await ada.get("/hub/home")
        assert "Place 3" in home
        assert "2 are before you." in home
        _, form = await ada.get(f"/hub/spawn/ada/{server}" if server else "/hub/spawn/ada")
        assert "at place 3" in form
        # Starting by hand does not lose the place.
        status, answer = await ada.api(
            "POST", f"/users/ada/servers/{server}", {"user_options": {"gpus": 0}}
        )
        assert status == 409
        assert "at place 3 in the queue" in answer["message"]
        # The turn: the scheduler holds a place and has the Hub start the workspace.
        stack.fake.status("vision", name, phase="starting", queue_position=None, reason=None)
        options = {"claim": name, "project": "vision", "gpus": 1.0,
                   "cpu_millicores": 500, "memory_bytes": 1024**3}  # fmt: skip
        status, _ = await ada.api("POST", f"/users/ada/servers/{server}", {"user_options": options})
        assert status in (201, 202)
        await ada.until_ready(server)
        assert (await ada.inside(server))["CARREL_PROJECT"] == "vision"
        claimed = stack.fake.workload("vision", name)
        assert claimed["spec"]["command"][1:3] == ["-m", "carrel_spawner.launch"]
        await ada.api("DELETE", f"/users/ada/servers/{server}")
        await ada.until_stopped(server)
        # The claim was good for one start: the next one asks anew.
        await ada.start(server)
        await ada.until_ready(server)
        assert stack.fake.workload("vision", name)["uid"] != claimed["uid"]
        assert stack.fake.workload("vision", name)["spec"]["gpus"] == 1
        await ada.api("DELETE", f"/users/ada/servers/{server}")
        await ada.until_stopped(server)


async def test_leaving_the_queue(stack: Stack) -> None:
    async with person(stack, "grace") as grace:
        await grace.post("/hub/carrel/queue/grace", {"action": "join", "gpus": 1})
        assert stack.fake.workload("speech", "workspace-grace")
        await grace.post("/hub/carrel/queue/grace", {"action": "leave"})
        assert not [one for one in stack.fake.workloads() if one["spec"]["user"] == "grace"]


async def test_nobody_queues_for_somebody_else(stack: Stack) -> None:
    async with person(stack, "grace") as grace:
        status, _, _ = await grace.post("/hub/carrel/queue/ada", {"action": "join"})
        assert status in (403, 404)
        status, _ = await grace.get("/hub/carrel/queue/ada")
        assert status == 405


async def test_a_claim_of_somebody_elses_place_is_no_claim(stack: Stack) -> None:
    async with person(stack, "linus") as linus:
        stack.fake.submit(
            "vision", "workspace-marie", user="marie", kind="workspace", hold_for_claim=True,
            server_name="",
        )  # fmt: skip
        stack.fake.status("vision", "workspace-marie", phase="starting")
        await linus.start(claim="workspace-marie", project="vision")
        await linus.until_ready()
        assert "command" not in stack.fake.workload("vision", "workspace-marie")["spec"]
        await linus.api("DELETE", "/users/linus/server")
        await linus.until_stopped()


async def test_choices_are_checked_whatever_way_they_come(stack: Stack) -> None:
    async with person(stack, "ada") as ada:
        for options, said in (
            ({"project": "speech"}, "one of your projects (vision)"),
            ({"gpus": -1}, "a whole number from 0"),
            ({"gpus": 1.5}, "a whole number from 0"),
            ({"cpu": "many"}, "a number from 0.1"),
            ({"image": "x"}, "left out"),
        ):
            status, answer = await ada.api("POST", "/users/ada/server", {"user_options": options})
            assert status == 400, options
            assert said in answer["message"], options
        status, page, _ = await ada.post("/hub/spawn/ada", {"project": "speech", "gpus": "1"})
        assert status == 400
        assert "one of your projects (vision)" in page
    async with person(stack, "outsider") as outsider:
        status, answer = await outsider.api("POST", "/users/outsider/server", {"user_options": {}})
        assert status == 400
        assert "you are not in any" in answer["message"]
        _, page = await outsider.get("/hub/spawn/outsider")
        assert "not a member of a project yet" in page
        assert ">Start</button>" not in page


async def test_a_workspace_starts_where_an_access_rule_lets_one_work(stack: Stack) -> None:
    rule = {"subject": "outsider", "role": "researcher", "scope": "project/vision"}
    async with person(stack, "outsider") as outsider:
        stack.fake.access_rules.append(rule)
        try:
            _, page = await outsider.get("/hub/spawn/outsider")
            assert '<option value="vision"' in page
            await outsider.start(project="vision")
            await outsider.until_ready()
            assert stack.fake.workload("vision", "workspace-outsider")["spec"]["user"] == "outsider"
        finally:
            stack.fake.access_rules.remove(rule)
            await outsider.api("DELETE", "/users/outsider/server")
            await outsider.until_stopped()
        _, page = await outsider.get("/hub/spawn/outsider")
        assert "not a member of a project yet" in page
