"""Kernels of a workspace are spoken to through sockets that no other account can reach."""

import json
import time
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient

from carrel.testing import FakeScheduler
from contract.notebook.lab import running_lab

TIMEOUT_SECONDS = 120
CHANNELS = 5


def sockets(folder: Path) -> list[Path]:
    """Those of the one kernel, once it listens at all of them."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = [path for path in folder.glob("kernel-*") if path.is_socket()]
        if len(found) == CHANNELS:
            return found
        time.sleep(0.05)
    raise AssertionError("no kernel")


def test_a_kernel_answers_at_private_sockets_only(tmp_path: Path) -> None:
    with FakeScheduler({"ada": ["vision"]}) as scheduler, running_lab(scheduler, tmp_path) as lab:
        lab.ask("api/kernels", "POST", {})
        listening = sockets(lab.runtime)
        assert lab.runtime.stat().st_mode & 0o777 == 0o700
        (file,) = lab.runtime.glob("kernel-*.json")
        told = json.loads(file.read_text())
        assert told["transport"] == "ipc"
        ports = {told[name] for name in told if name.endswith("_port")}
        assert {str(one) for one in listening} == {f"{told['ip']}-{port}" for port in ports}
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=TIMEOUT_SECONDS)
            answer = client.execute_interactive("import os; assert os.getpid()", timeout=60)
            assert answer["content"]["status"] == "ok"
        finally:
            client.stop_channels()
