"""Kernels of a workspace have no port that another account of the machine could reach."""

import json
import time
from pathlib import Path

import psutil
from jupyter_client.blocking.client import BlockingKernelClient

from carrel.testing import FakeScheduler
from contract.notebook.lab import running_lab

PATIENCE_SECONDS = 120


def connection_file(folder: Path) -> Path:
    """What the one kernel is reached by, once it is written."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = list(folder.glob("kernel-*.json"))
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError("no kernel")


def test_a_kernel_answers_at_private_sockets_only(tmp_path: Path) -> None:
    with FakeScheduler({"ada": ["vision"]}) as scheduler, running_lab(scheduler, tmp_path) as lab:
        lab.ask("api/kernels", "POST", {})
        file = connection_file(lab.runtime)
        told = json.loads(file.read_text())
        assert told["transport"] == "ipc"
        assert Path(told["ip"]).parent.stat().st_mode & 0o777 == 0o700
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE_SECONDS)
            answer = client.execute_interactive("import os; assert os.getpid()", timeout=60)
            assert answer["content"]["status"] == "ok"
        finally:
            client.stop_channels()
        kernels = [one for one in psutil.process_iter() if str(file) in " ".join(one.cmdline())]
        assert len(kernels) == 1
        assert not [one for one in kernels[0].net_connections("inet") if one.status == "LISTEN"]
