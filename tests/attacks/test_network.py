"""The network between users of one machine: who reaches whose ports, and who does not.

Attacker's programs run as jobs. Each says ``reached`` or ``refused`` for each address it tries.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from attacks.person import Person
from carrel.models import Workload
from carrel_hub.settings import InstallationSettings
from carrel_scheduler.node.processes import listening
from e2e.stack import Stack, until

TRY = """
import json, socket, sys
for host, port in json.loads(sys.argv[1]):
    try:
        with socket.create_connection((host, port), 3) as line:
            line.settimeout(3)
            line.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            print("reached", host, port, line.recv(60))
    except OSError as error:
        print("refused", host, port, error)
"""
SERVE = """
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["SAYS"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
place = (os.environ.get("AT", "127.0.0.1"), int(os.environ["PORT"]))
ThreadingHTTPServer(place, Handler).serve_forever()
"""


def tried(person: Person, *places: tuple[str, int]) -> list[bool]:
    """Whether a job of the person reaches each place."""
    phase, printed = person.run(["python", "-c", TRY, json.dumps(places)])
    assert phase == "succeeded", printed
    said = [line.split()[0] for line in printed.splitlines() if line.startswith(("rea", "ref"))]
    assert len(said) == len(places), printed
    return [one == "reached" for one in said]


def settings(stack: Stack) -> InstallationSettings:
    """What the product was started with."""
    return InstallationSettings.load(stack.state_dir / "hub" / "settings.json")


def own_addresses() -> list[str]:
    """IPv4 addresses of the machine that are not loopback."""
    return [
        one.address
        for link in psutil.net_if_addrs().values()
        for one in link
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    ]


@pytest.fixture(scope="module")
def endpoint(grace: Person) -> Iterator[Workload]:
    """A server of Grace's that listens at loopback, as servers do by default."""
    made = grace.submit(
        ["python", "-c", SERVE], environment={"SAYS": "private"}, routes=[{"name": "web"}]
    )
    grace.running(made)
    until(lambda: page(grace, made) == "private", seconds=30, why="the endpoint answers")
    yield made
    grace.delete(made)


def place(person: Person, made: Workload) -> tuple[str, int]:
    """Where the machine reaches a running job."""
    found = person.client.get_workload(made.project, made.name)
    (task,) = [one for one in found.status.tasks if one.ended_at is None]
    return task.address, next(iter(task.ports.values()))


def page(person: Person, made: Workload) -> str:
    """What a person gets from a job's route."""
    return requests.get(
        f"{person.stack.url}/services/gateway/{made.project}/{made.name}/~web/",
        headers={"Authorization": f"Bearer {person.token}"},
        timeout=30,
    ).text


def test_the_machine_says_that_users_are_parted(stack: Stack) -> None:
    assert "each user's work is in a network of its own" in stack.output


def test_a_job_does_not_reach_the_server_of_another_user(
    ada: Person, grace: Person, endpoint: Workload
) -> None:
    address, port = place(grace, endpoint)
    assert address not in ("", "127.0.0.1")
    with closing(socket.create_connection((address, port), 5)) as line:  # the proxy's way
        line.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200" in line.recv(60)
    assert tried(ada, (address, port), ("127.0.0.1", port)) == [False, False]
    assert tried(grace, (address, port), ("127.0.0.1", port)) == [True, True]


def test_listeners_of_others_are_not_even_seen(
    ada: Person, grace: Person, endpoint: Workload
) -> None:
    _, port = place(grace, endpoint)
    phase, printed = ada.python("print(open('/proc/net/tcp').read())")
    assert phase == "succeeded"
    assert f":{port:04X}" not in printed


def test_a_port_that_was_told_to_another_user_cannot_be_taken(
    ada: Person, grace: Person, endpoint: Workload
) -> None:
    _, port = place(grace, endpoint)
    mine = ada.submit(
        ["python", "-c", SERVE], environment={"SAYS": "ada", "PORT": str(port), "AT": "0.0.0.0"}
    )
    ada.running(mine)
    assert page(grace, endpoint) == "private"
    ada.delete(mine)


def test_parts_that_no_task_needs_are_out_of_reach(ada: Person, stack: Stack) -> None:
    ports = settings(stack).ports
    found = tried(ada, ("127.0.0.1", ports.proxy_api), ("127.0.0.1", ports.console))
    assert found == [False, False]


@contextmanager
def listener(host: str) -> Iterator[int]:
    """A service of the machine that has nothing to do with Carrel."""
    with socket.create_server((host, 0)) as server:
        server.settimeout(1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            over.set()
            thread.join()


def test_services_of_the_machine_are_out_of_reach(ada: Person) -> None:
    with listener("0.0.0.0") as port:
        places = [(address, port) for address in ("127.0.0.1", *own_addresses())]
        assert len(places) > 2
        assert tried(ada, *places) == [False] * len(places)


def test_metadata_of_clouds_is_out_of_reach(ada: Person) -> None:
    assert tried(ada, ("169.254.169.254", 80)) == [False]


def test_a_job_reaches_what_it_needs(ada: Person, stack: Stack) -> None:
    ports = settings(stack).ports
    needed = (ports.hub, ports.scheduler, ports.gateway, settings(stack).port)
    assert tried(ada, *(("127.0.0.1", port) for port in needed)) == [True] * len(needed)
    phase, printed = ada.python("import carrel; carrel.report(step=1, total=1, loss=0.5)")
    assert phase == "succeeded", printed


def test_workers_of_one_job_meet(ada: Person) -> None:
    program = """
import os, socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
host = os.environ["MASTER_ADDR"]
if rank == 0:
    with socket.create_server((host, port)) as server:
        server.accept()[0].close()
else:
    for _ in range(300):
        try:
            socket.create_connection((host, port), 3).close(); break
        except OSError: time.sleep(0.1)
    else:
        raise SystemExit("nobody there")
"""
    phase, printed = ada.run(["python", "-c", program], kind="distributed", tasks=2)
    assert phase == "succeeded", printed


def test_a_port_of_a_part_that_restarts_brings_nobody_to_the_attacker(
    ada: Person, grace: Person, stack: Stack
) -> None:
    """Also while the scheduler is away, its port leads nobody to a job's listener."""
    port = settings(stack).ports.scheduler
    trap = ada.submit(
        ["python", "-c", SERVE], environment={"SAYS": "trap", "PORT": str(port), "AT": "0.0.0.0"}
    )
    ada.running(trap)
    before = stack.scheduler_pid()
    os.kill(before, signal.SIGKILL)
    caught: list[bytes] = []

    def back() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port), 3) as line:
                line.settimeout(5)
                line.sendall(b"GET /services/carrel/health HTTP/1.0\r\n\r\n")
                caught.append(line.recv(2000))
        except OSError:
            return False
        return b"200 OK" in caught[-1]

    until(back, seconds=60, every=0.05, why="the scheduler is back")
    assert stack.scheduler_pid() != before
    assert not any(b"trap" in one for one in caught)
    assert tried(grace, ("127.0.0.1", port)) == [True]
    assert grace.phase(grace.submit(["true"])) != ""
    ada.delete(trap)


def test_running_work_is_reached_after_a_restart_of_the_scheduler(
    grace: Person, endpoint: Workload, stack: Stack
) -> None:

    def answers() -> bool:
        return grace.api("GET", "/projects").status_code == 200

    until(answers, seconds=60, why="the scheduler answers")
    before = place(grace, endpoint)
    os.kill(stack.scheduler_pid(), signal.SIGKILL)
    until(answers, seconds=60, why="the scheduler is back")
    until(lambda: page(grace, endpoint) == "private", seconds=60, why="the endpoint is served")
    assert place(grace, endpoint) == before
    mine = grace.submit(["sleep", "600"])
    grace.running(mine)
    found = grace.client.get_workload(mine.project, mine.name)
    assert found.status.tasks[0].address == before[0]
    grace.delete(mine)


def test_a_workspace_is_reached_by_its_user_through_the_proxy_only(
    ada: Person, grace: Person
) -> None:
    answer = grace.hub("POST", "/users/grace/server", {})
    assert answer.status_code in (201, 202), answer.text

    def ready() -> bool:
        return bool(grace.hub("GET", "/users/grace").json()["servers"][""]["ready"])

    until(ready, seconds=120, why="the workspace is ready")
    try:
        made = grace.client.get_workload("speech", "workspace-grace")
        task, port = made.status.tasks[0], urlsplit(grace.stack.url).port
        asked = requests.get(
            f"http://127.0.0.1:{port}/user/grace/api/status",
            headers={"Authorization": f"Bearer {grace.token}", "Host": f"grace.localhost:{port}"},
            timeout=30,
            allow_redirects=False,
        )
        assert (asked.status_code, "kernels" in asked.text) == (200, True), asked.text
        assert task.pid is not None
        places = [(task.address, one) for one in listening(task.pid)]
        assert places
        assert tried(ada, *places) == [False] * len(places)
    finally:
        grace.hub("DELETE", "/users/grace/server")
