"""The client and the shell tool as real processes: interrupts, pipes, many threads."""

import signal
import subprocess
import sys
import threading

from carrel.client import Client
from carrel.testing import FakeScheduler
from contract.client.conftest import TIMEOUT_SECONDS, Launch, eventually

WAIT_FOR_THE_END = """
from carrel.client import Client
with Client() as client:
    try:
        for event in client.events("vision", "x"):
            print(event.workload.status.phase, flush=True)
    except KeyboardInterrupt:
        print("interrupted", client.get_workload("vision", "x").status.phase)
"""


def test_interrupting_a_wait_leaves_job_and_client_in_order(
    fake: FakeScheduler, launch: Launch
) -> None:
    fake.submit("vision", "x")
    fake.run("vision", "x")
    process = launch("-W", "error", "-c", WAIT_FOR_THE_END)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (out, err, process.returncode) == ("interrupted running\n", "", 0)


def test_following_logs_ends_with_130(fake: FakeScheduler, launch: Launch) -> None:
    fake.submit("vision", "x")
    fake.run("vision", "x")
    fake.log("vision", "x", "step 1")
    process = launch("-m", "carrel.cli", "logs", "-f", "x")
    assert process.stdout is not None
    assert process.stdout.readline() == "step 1\n"
    fake.log("vision", "x", "step 2")
    assert process.stdout.readline() == "step 2\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, err) == (130, "")


def test_a_reader_that_has_seen_enough_is_no_error(fake: FakeScheduler, launch: Launch) -> None:
    fake.submit("vision", "x")
    for _ in range(20):
        fake.log("vision", "x", *(["a line of a long log"] * 5000))
    process = launch("-m", "carrel.cli", "logs", "x")
    assert process.stdout is not None
    assert process.stdout.readline() == "a line of a long log\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(TIMEOUT_SECONDS) == 0


def test_one_client_serves_many_threads(fake: FakeScheduler) -> None:
    with Client(fake.url, fake.token("ada")) as client:

        def submit() -> None:
            client.create_workload({"project": "vision", "name_prefix": "t", "command": ["true"]})

        threads = [threading.Thread(target=submit) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(client.list_workloads("vision")) == 16


def test_a_restarted_server_is_found_again_by_a_stream(fake: FakeScheduler, launch: Launch) -> None:
    fake.submit("vision", "x")
    process = launch("-c", WAIT_FOR_THE_END)
    assert process.stdout is not None
    assert process.stdout.readline() == "pending\n"
    fake.fail_next(503, 0, 502)
    fake.end_streams()
    fake.run("vision", "x")
    assert process.stdout.readline() == "running\n"
    eventually(lambda: fake.requests.count(("GET", "/workloads/vision/x/events")) >= 5, "5 tries")


def test_quick_commands_import_nothing_heavy() -> None:
    program = (
        "import sys\nfrom carrel.cli.main import run\nassert run(['version']) == 0\n"
        "found = {'aiohttp', 'rich', 'yaml', 'asyncio'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=TIMEOUT_SECONDS)
