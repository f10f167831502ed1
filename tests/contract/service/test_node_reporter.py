"""How the agent on a node sends what it saw: to the scheduler alone, with the token of now."""

import http.server
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from typing_extensions import override

from carrel_scheduler.node.agent import AgentSettings, NodeReporter, run
from carrel_scheduler.node.contract import (
    MemoryLimit,
    MigReport,
    MigResult,
    NodeFacts,
    NodeReport,
)
from carrel_scheduler.node.simulated import SimulatedProvider


class Scheduler(http.server.BaseHTTPRequestHandler):
    """Takes reports; answers with the statuses that a test wants."""

    taken: ClassVar[list[tuple[str, str, bytes]]] = []
    statuses: ClassVar[list[int]] = []
    limits: ClassVar[bytes] = b""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.statuses.pop(0) if self.statuses else 204)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        if self.path.endswith("/report"):
            self.wfile.write(self.limits)
        if self.path.endswith("/mig"):
            self.wfile.write(
                b'{"orders": [{"id": "1", "device": "GPU-a", "profile": "1g.10gb", "slots": 1}]}'
            )

    @override
    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def scheduler() -> Iterator[str]:
    Scheduler.taken, Scheduler.statuses, Scheduler.limits = [], [], b""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scheduler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/services/carrel"
        server.shutdown()


def test_reports_carry_the_token_as_it_is_now_and_go_nowhere_else(
    scheduler: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    settings = AgentSettings.from_environment(
        {
            "CARREL_NODE_NAME": "node-1",
            "CARREL_API_URL": scheduler,
            "CARREL_NODE_TOKEN_FILE": str(token),
        }
    )
    Scheduler.statuses = [204, 307, 503, 503, 204]
    rounds = iter(range(5))

    def pause(seconds: float) -> bool:
        assert seconds == 10.0
        token.write_text("second")
        return next(rounds) == 4

    node = NodeFacts(name="node-1", cpu_milli=1, memory_mib=1, devices=(), simulated=False)
    provider = SimulatedProvider(node, count=2, memory_mib=1024, name="A10")
    with caplog.at_level(logging.INFO, "carrel_node"):
        run(provider, NodeReporter(settings).send, settings.seconds, pause)
    assert {path for path, _, _ in Scheduler.taken} == {
        "/services/carrel/api/v1/nodes/node-1/report"
    }
    assert [header for _, header, _ in Scheduler.taken] == ["Bearer first"] + 4 * ["Bearer second"]
    assert len(msgspec.json.decode(Scheduler.taken[0][2], type=NodeReport).devices) == 2
    told = [record.message for record in caplog.records if record.name == "carrel_node"]
    assert [("307" in line, "503" in line) for line in told] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert "second" not in caplog.text


def test_a_report_is_answered_with_the_memory_to_limit(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine")
    environment = {
        "CARREL_NODE_NAME": "node-1",
        "CARREL_API_URL": scheduler,
        "CARREL_NODE_TOKEN_FILE": str(tmp_path / "token"),
    }
    reporter = NodeReporter(AgentSettings.from_environment(environment))
    report = NodeReport(driver="", devices=(), use=())
    Scheduler.statuses = [200, 204]
    Scheduler.limits = b'{"limits": [{"pod": "p", "device": "GPU-0", "memory_mib": 4096}]}'
    part = MemoryLimit(pod="p", device="GPU-0", memory_mib=4096)
    assert reporter.send(report).limits == (part,)
    Scheduler.limits = b""
    assert reporter.send(report).limits == ()


def test_what_is_wanted_is_asked_for_with_what_was_done(scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine")
    settings = AgentSettings.from_environment(
        {
            "CARREL_NODE_NAME": "node-1",
            "CARREL_API_URL": scheduler,
            "CARREL_NODE_TOKEN_FILE": str(tmp_path / "token"),
        }
    )
    Scheduler.statuses = [200, 503]
    done = MigReport(results=(MigResult(id="0", uuid="MIG-1"),))
    [order] = NodeReporter(settings).ask(done).orders
    assert (order.id, order.device, order.profile, order.slots) == ("1", "GPU-a", "1g.10gb", 1)
    [(path, token, body)] = Scheduler.taken
    assert (path, token) == ("/services/carrel/api/v1/nodes/node-1/mig", "Bearer mine")
    assert msgspec.json.decode(body, type=MigReport) == done
    with pytest.raises(OSError, match="503"):
        NodeReporter(settings).ask(done)
