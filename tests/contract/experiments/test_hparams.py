"""How trials ended, as TensorBoard's own HPARAMS page reads it of the files of real processes."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

REPORT = "import sys, time, carrel; carrel.report(step=1, loss=0.5); "
GIVES_WAY = """
carrel.checkpoint.preempted()
print("ready", flush=True)
while not carrel.checkpoint.preempted():
    time.sleep(0.01)
carrel.checkpoint.exit_for_preemption()
"""
# As slow as an import can be, of what TensorBoard imports where it is installed.
SLOW_PACKAGE = """
import threading
threading.main_thread().join()
from concurrent.futures import ThreadPoolExecutor
"""
ENDS = {
    "done": ("", 0, api_pb2.STATUS_SUCCESS),
    "raises": ("raise ValueError('x')", 1, api_pb2.STATUS_FAILURE),
    "leaves": ("sys.exit(3)", 3, api_pb2.STATUS_FAILURE),
}


async def started(
    root: Path, name: str, script: str, *packages: Path
) -> asyncio.subprocess.Process:
    trial = {"CARREL_TRIAL": "0", "CARREL_PARAMETERS": '{"rate": 0.1}', "CARREL_WORKLOAD": name}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", REPORT + script),
        env={
            **os.environ,
            **trial,
            "CARREL_EVENTS_DIR": str(root / name),
            "PYTHONPATH": os.pathsep.join(map(str, [*packages, *sys.path])),
        },
        stdout=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> int:
    await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0


def shown(root: Path) -> dict[str, int]:
    """The status of every session that the page lists, by its run."""
    runs = plugin_event_multiplexer.EventMultiplexer()
    runs.AddRunsFromDirectory(str(root))
    runs.Reload()
    provider = data_provider.MultiplexerDataProvider(runs, str(root))
    page = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    asked = api_pb2.ListSessionGroupsRequest(
        start_index=0,
        slice_size=10,
        allowed_statuses=[status for _, status in api_pb2.Status.items()],
    )
    found = list_session_groups.Handler(RequestContext(), page, "", asked).run()
    return {one.name: one.status for group in found.session_groups for one in group.sessions}


async def test_the_page_says_of_each_trial_how_it_ended(tmp_path: Path) -> None:
    running = {name: await started(tmp_path, name, told[0]) for name, told in ENDS.items()}
    gives_way = await started(tmp_path, "gives-way", GIVES_WAY)
    assert gives_way.stdout is not None
    assert await asyncio.wait_for(gives_way.stdout.readline(), 120) == b"ready\n"
    gives_way.send_signal(signal.SIGTERM)
    assert await ended(gives_way) == 128 + signal.SIGTERM
    codes = {name: await ended(process) for name, process in running.items()}
    assert codes == {name: told[1] for name, told in ENDS.items()}
    open_still = {"gives-way": api_pb2.STATUS_UNKNOWN}
    assert shown(tmp_path) == {name: told[2] for name, told in ENDS.items()} | open_still

    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "fsspec.py").write_text(SLOW_PACKAGE)
    again = [await started(tmp_path, name, "", slow) for name in ("gives-way", "raises")]
    assert [await ended(process) for process in again] == [0, 0]
    after = shown(tmp_path)
    assert [after["gives-way"], after["raises"]] == [api_pb2.STATUS_SUCCESS] * 2
