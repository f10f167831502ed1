"""The node agent as a process: what it takes of a core and of memory on a node with 8 GPUs.

It runs as on a cluster, with the real ``pynvml`` on the test driver of NVML (which answers at once:
the time that a driver takes is not in it), and sends its reports to a server on loopback that
takes them. 64 processes are listed on the GPUs, 18 links of each are up, and each look finds new
samples. CPU is counted over many looks at one a second and told for the interval of 10 s.
"""

import argparse
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from typing_extensions import override

from benchmarks.report import Figure, show

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gpu_driver.session import NAME, library  # noqa: E402 - the path is set above
from gpu_driver.state import LINKS, MIB, GpuState  # noqa: E402

GPUS, PROCESSES = 8, 64
INTERVAL_SECONDS = 10.0
MOST_PER_CENT, MOST_MIB = 1.0, 60.0


class Taker(http.server.BaseHTTPRequestHandler):
    """Takes reports and counts them."""

    sizes: list[int] = []  # noqa: RUF012 - of the one server of this process

    def do_POST(self) -> None:
        """Take a report."""
        self.sizes.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    @override
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def busy_machine(path: Path, pids: list[int]) -> GpuState:
    """A full node: GPUs, links, processes."""
    state = GpuState.create(path, devices=GPUS, memory=143_771 * MIB)
    for device in state.layout.devices[:GPUS]:
        device.utilization_gpu = 97
        for link in device.links[:LINKS]:
            link.active, link.remote_type, link.remote_bus_id = 1, 2, b"00000000:C0:00.0"
    work(state, pids)
    return state


def work(state: GpuState, pids: list[int]) -> None:
    """Record that every process has just worked."""
    now = time.time_ns() // 1000
    for number, pid in enumerate(pids):
        state.list_process(number % GPUS, pid, memory=9_000 * MIB, sm_percent=12, sampled_us=now)


def measure(looks: int) -> list[Figure]:
    """Measure all figures."""
    sleeping = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(PROCESSES)]
    pids = [process.pid for process in sleeping]
    with (
        tempfile.TemporaryDirectory() as name,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taker) as server,
    ):
        folder = Path(name)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state = busy_machine(folder / "gpus", pids)
        (folder / "token").write_text("a token")
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(library().parent),
            "CARREL_TEST_GPU_STATE": str(state.path),
            "CARREL_NODE_NAME": "node-1",
            "CARREL_API_URL": f"http://127.0.0.1:{server.server_address[1]}",
            "CARREL_NODE_TOKEN_FILE": str(folder / "token"),
            "CARREL_NODE_SECONDS": "1",
        }
        assert (library().parent / NAME).exists()
        agent = subprocess.Popen(
            [sys.executable, "-m", "carrel_scheduler.node.agent"], env=environment
        )
        try:
            return figures(psutil.Process(agent.pid), state, pids, looks)
        finally:
            agent.terminate()
            agent.wait()
            for process in sleeping:
                process.kill()
                process.wait()
            server.shutdown()


def figures(agent: psutil.Process, state: GpuState, pids: list[int], looks: int) -> list[Figure]:
    """CPU of so many looks, and memory after them."""
    until(3, state, pids)
    begun, before = len(Taker.sizes), cpu_seconds(agent)
    until(begun + looks, state, pids)
    seen = len(Taker.sizes) - begun
    each = (cpu_seconds(agent) - before) / seen
    share = each / INTERVAL_SECONDS * 100
    memory = agent.memory_info().rss / 2**20
    own = agent.memory_full_info().uss / 2**20
    size = sum(Taker.sizes[begun:]) / seen / 1024
    return [
        Figure("CPU of a look", each * 1000, "ms", "-"),
        Figure(
            "of a core, a look every 10 s",
            share,
            "%",
            f"at most {MOST_PER_CENT:g}",
            share <= MOST_PER_CENT,
        ),
        Figure("memory", memory, "MiB", f"at most {MOST_MIB:g}", memory <= MOST_MIB),
        Figure("memory of its own", own, "MiB", "-"),
        Figure("a report", size, "KiB", "-"),
    ]


def until(count: int, state: GpuState, pids: list[int]) -> None:
    """Wait for so many reports, each after new work."""
    deadline = time.monotonic() + 60 + 3 * count
    while len(Taker.sizes) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(Taker.sizes)} of {count} reports came")
        work(state, pids)
        time.sleep(0.5)


def cpu_seconds(process: psutil.Process) -> float:
    """The processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--looks", type=int, default=30)
    options = parser.parse_args()
    show("The agent on a node", measure(options.looks), as_json=options.json)


if __name__ == "__main__":
    main()
