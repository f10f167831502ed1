"""Latency of ``%%gpu`` cells: a real kernel on a real installation with free GPUs.

Hub, scheduler, gateway and proxy run as ``carrel up`` runs them; beside them a notebook's kernel of
one person. A cell that assigns a number is run as it is and behind ``%%gpu``, in turns; the
difference of the two is what ``%%gpu`` adds. *Cold* is the first cell of a companion, which asks
for the GPU and gives it back; *warm* is one that finds a companion (``--keep``).
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from jupyter_client.manager import KernelManager

from benchmarks.stacks import CarrelStack, expect

USER: Final = "ada"
TOKENS: Final = """
c.JupyterHub.load_roles = [
    *c.JupyterHub.load_roles,
    {"name": "bench-tokens", "scopes": ["tokens"], "services": ["bench"]},
]
"""
TIMEOUT_SECONDS: Final = 120
PLAIN: Final = "x = 1"
COLD: Final = "%%gpu\nx = 1"
WARM: Final = "%%gpu --keep 600\nx = 1"


@dataclass(frozen=True, slots=True)
class Starts:
    """Seconds that ``%%gpu`` added to a cell, one for each that was measured."""

    cold: Sequence[float]
    warm: Sequence[float]


class _StackWithGateway(CarrelStack):
    """Companions are reached through the gateway."""

    wanted = (*CarrelStack.wanted, "gateway")


class _Kernel:
    """A notebook's kernel with the magics."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._manager: Any = KernelManager(transport="ipc", ip=str(folder / "kernel"))
        self._manager.start_kernel(cwd=str(folder), env=dict(environment))
        self._client: Any = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=TIMEOUT_SECONDS)

    def seconds(self, code: str) -> float:
        """Seconds from a cell to its reply. Raises ``RuntimeError`` with the cell's error."""
        began = time.perf_counter()
        answer = self._client.execute_interactive(
            code, output_hook=lambda _: None, timeout=TIMEOUT_SECONDS
        )
        took = time.perf_counter() - began
        if answer["content"]["status"] != "ok":
            raise RuntimeError(f"{code}: {answer['content'].get('evalue')}")
        return took

    def stop(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=False)


async def _token(session: aiohttp.ClientSession) -> str:
    async with session.post(f"/hub/api/users/{USER}/tokens", json={"note": "bench"}) as answer:
        await expect(answer, 201)
        return str((await answer.json())["token"])


async def measure_starts(runs: int) -> Starts:
    """Measure so many cells of each sort, after one of each that does not count."""
    within = "/srv" if os.geteuid() == 0 else Path.home()  # temporary folders differ in tasks
    folder = Path(tempfile.mkdtemp(prefix="carrel-cells-", dir=within))
    folder.chmod(0o755)
    try:
        stack = _StackWithGateway(extra=TOKENS)
        async with stack, stack.session() as session:
            await stack.add_users(session, [USER])
            service = {
                "CARREL_URL": f"{stack.url}/services/carrel",
                "CARREL_TOKEN": await _token(session),
            }
            return await asyncio.to_thread(_in_a_kernel, folder, service, runs)
    finally:
        shutil.rmtree(folder)


def _in_a_kernel(folder: Path, service: Mapping[str, str], runs: int) -> Starts:
    home = folder / "home"
    home.mkdir()
    kernel = _Kernel(folder, {**os.environ, "HOME": str(home), **service})
    try:
        kernel.seconds("%load_ext carrel")
        found = {code: _added(kernel, code, runs) for code in (COLD, WARM)}
    finally:
        kernel.stop()
    return Starts(found[COLD], found[WARM])


def _added(kernel: _Kernel, code: str, runs: int) -> list[float]:
    """Seconds beyond the cell itself."""
    kernel.seconds(code)
    return [kernel.seconds(code) - kernel.seconds(PLAIN) for _ in range(runs)]
