"""The scheduler's service as it is, on a machine of any size whose processes are not started.

``CARREL_SIMULATED_CPUS`` says how many cores the machine has. When it is told to stop, it says in
``decisions.json`` of the state folder how long the decision core took: of all that happens here,
that is measured apart.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from benchmarks.simulated_engine import SimulatedEngine
from carrel_scheduler.ids import new_id
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.node.contract import DeviceUse, NodeFacts
from carrel_scheduler.service.local import OneMachine
from carrel_scheduler.service.main import SchedulerService
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.reconcile import reconciler
from carrel_scheduler.workloads.state.events import LoopEvent, WorkloadChanged

P = ParamSpec("P")
T = TypeVar("T")


class Machine:
    """A node without GPUs; see ``node.contract.DeviceProvider``."""

    def __init__(self, cpus: int) -> None:
        self._facts = NodeFacts(
            name="simulated",
            cpu_milli=cpus * 1000,
            memory_mib=1 << 40,
            devices=(),
            simulated=True,
        )

    def facts(self) -> NodeFacts:
        """The node."""
        return self._facts

    def sample(self, _tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """No devices."""
        return ()


class Stopwatch:
    """Processor seconds and calls of the functions that it was put around."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def around(self, function: Callable[P, T]) -> Callable[P, T]:
        """The same function, measured."""

        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - began
                self.calls += 1

        return measured


class CpuAtFirst:
    """Processor time until the first workload is heard of: start-up and projects."""

    def __init__(self, loop: reconciler.Reconciler) -> None:
        self.cpu_seconds = 0.0
        self._enqueue = loop.enqueue
        setattr(loop, "enqueue", self._note)  # noqa: B010 - stands in until the first comes
        self._loop = loop

    def _note(self, message: LoopEvent) -> None:
        if isinstance(message, WorkloadChanged):
            self.cpu_seconds = time.process_time()
            setattr(self._loop, "enqueue", self._enqueue)  # noqa: B010
        self._enqueue(message)


async def serve(settings: ServiceSettings, cpus: int) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    deciding, applying = Stopwatch(), Stopwatch()
    ledger = await open_ledger(settings.database_url, clock=time.time, ids=new_id)
    engine = SimulatedEngine(clock=time.time)
    around = OneMachine(settings, Machine(cpus))
    running = SchedulerService(settings, ledger, engine, around)
    setattr(reconciler, "decide", deciding.around(vars(reconciler)["decide"]))  # noqa: B010 - measured
    setattr(running.loop.state, "apply", applying.around(running.loop.state.apply))  # noqa: B010
    first = CpuAtFirst(running.loop)
    try:
        await running.run(stop)
    finally:
        await engine.close()
        await ledger.close()
    (settings.state_dir / "decisions.json").write_text(
        json.dumps(
            {
                "decide_seconds": deciding.seconds,
                "decisions": deciding.calls,
                "apply_seconds": applying.seconds,
                "events": applying.calls,
                "cpu_seconds": time.process_time() - first.cpu_seconds,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(
        serve(
            ServiceSettings.from_environment(os.environ), int(os.environ["CARREL_SIMULATED_CPUS"])
        )
    )
