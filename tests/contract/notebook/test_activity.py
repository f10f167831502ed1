"""What a real server with real kernels and terminals tells the scheduler of its activity."""

import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from carrel.testing import FakeScheduler
from contract.notebook.lab import TOKEN, Lab

SILENT_SECONDS = 8
SILENT = f"import time; time.sleep({SILENT_SECONDS})"
TIMEOUT_SECONDS = 60.0
COMM = """
import threading, time
from comm import create_comm
comm = create_comm(target_name="a-widget")
def chatter():
    for number in range(600):
        comm.send({"number": number})
        time.sleep(0.01)
threading.Thread(target=chatter, daemon=True).start()
"""


@pytest.fixture
def kernel(lab: Lab) -> Iterator[str]:
    started = lab.ask("api/kernels", "POST")
    yield started["id"]
    with contextlib.suppress(OSError):  # a test may have ended it
        lab.ask(f"api/kernels/{started['id']}", "DELETE")


@contextlib.asynccontextmanager
async def socket(lab: Lab, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    headers = {"Authorization": f"token {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(f"{lab.url}{path}") as opened,
    ):
        yield opened


async def execute(lab: Lab, kernel: str, code: str, *, wait: bool) -> None:
    """Send code, as a page does; the page may be closed before the code is done."""
    header = {
        "msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s",
        "username": "ada", "version": "5.3", "date": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
    async with socket(lab, f"api/kernels/{kernel}/channels") as page:
        await page.send_json(message | {"channel": "shell", "buffers": []})
        async for received in page:
            told = json.loads(received.data)
            if told["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            state = told["content"].get("execution_state")
            if state == ("idle" if wait else "busy"):
                return
        pytest.fail(f"the server closed the connection: {page.close_code}")


def told(scheduler: FakeScheduler, true: Callable[[Any], bool], since: int | None = None) -> Any:
    """The first heartbeat after now, or after the first ``since``, of which this is true."""
    known = len(scheduler.activities) if since is None else since
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        for activity in scheduler.activities[known:]:
            if true(activity):
                return activity
        time.sleep(0.05)
    return pytest.fail(f"was not told; last: {scheduler.activities[-1]}")


def test_nobody_works_in_an_untouched_workspace(lab: Lab, scheduler: FakeScheduler) -> None:
    first = told(scheduler, lambda _: True)
    for _ in range(20):  # a page that is open asks all the time
        lab.ask("api/kernels")
        lab.ask("api/terminals")
        lab.ask("carrel/limits")
    later = told(scheduler, lambda a: a["at"] > first["at"] + 1)
    assert later["busy_since"] is None
    assert later["last_input_at"] == first["last_input_at"]


async def test_silent_computation_is_busy_with_its_page_closed(
    lab: Lab, scheduler: FakeScheduler, kernel: str
) -> None:
    began, known = time.time(), len(scheduler.activities)
    await execute(lab, kernel, SILENT, wait=False)
    busy = told(scheduler, lambda a: a["busy_since"] is not None, since=known)
    assert began - 0.5 <= busy["busy_since"] <= time.time()
    assert busy["kernels"] == 1
    idle = told(scheduler, lambda a: a["at"] > busy["at"] and a["busy_since"] is None, since=known)
    assert idle["last_input_at"] >= began + SILENT_SECONDS


async def test_talking_widgets_are_nothing(lab: Lab, scheduler: FakeScheduler, kernel: str) -> None:
    await execute(lab, kernel, COMM, wait=True)
    idle = told(scheduler, lambda a: a["busy_since"] is None)
    later = told(scheduler, lambda a: a["at"] > idle["at"] + 2)
    assert later["busy_since"] is None
    assert later["last_input_at"] == idle["last_input_at"]


async def test_killed_kernel_computes_no_more(
    lab: Lab, scheduler: FakeScheduler, kernel: str
) -> None:
    known = len(scheduler.activities)
    await execute(lab, kernel, "import time; time.sleep(600)", wait=False)
    told(scheduler, lambda a: a["busy_since"] is not None, since=known)
    lab.ask(f"api/kernels/{kernel}", "DELETE")
    gone = told(scheduler, lambda a: a["busy_since"] is None)
    assert gone["kernels"] == 0


async def test_keys_in_a_terminal_are_input_and_its_output_is_not(
    lab: Lab, scheduler: FakeScheduler
) -> None:
    name = lab.ask("api/terminals", "POST")["name"]
    before = told(scheduler, lambda a: a["terminals"] == 1)
    async with socket(lab, f"terminals/websocket/{name}") as terminal:
        await terminal.send_json(["stdin", "while true; do date; sleep 0.2; done\r"])
        typed = told(scheduler, lambda a: a["last_input_at"] > before["last_input_at"])
        later = told(scheduler, lambda a: a["at"] > typed["at"] + 2)
    assert later["last_input_at"] == typed["last_input_at"]
    lab.ask(f"api/terminals/{name}", "DELETE")


def test_saving_is_input_and_reading_is_not(lab: Lab, scheduler: FakeScheduler) -> None:
    before = told(scheduler, lambda _: True)
    body = {"type": "file", "format": "text", "content": "x = 1"}
    lab.ask("api/contents/notes.py", "PUT", body)
    saved = told(scheduler, lambda a: a["last_input_at"] > before["last_input_at"])
    lab.ask("api/contents/notes.py")
    later = told(scheduler, lambda a: a["at"] > saved["at"] + 1)
    assert later["last_input_at"] == saved["last_input_at"]
