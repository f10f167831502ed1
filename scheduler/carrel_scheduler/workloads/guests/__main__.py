"""A scheduler of guests as a process: ``python -m carrel_scheduler.workloads.guests``.

=========================  =====================================================================
variable                   meaning
=========================  =====================================================================
``KUBECONFIG``             how to reach the cluster; unset: from within it
``CARREL_DATABASE_URL``    SQLAlchemy URL of the ledger that has the projects
``CARREL_STATE_DIR``       folder for what is kept beside it
``CARREL_NAMESPACE``       where the lease of leadership lives
=========================  =====================================================================

It says ``ready`` on its standard output once it places pods, and ends on SIGTERM.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
import uuid
from pathlib import Path

from carrel_scheduler.engines.kubernetes.leading import Clocks, Leader, LeadershipLost
from carrel_scheduler.engines.kubernetes.seats import Seat
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import find
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.workloads.guests.hands import Fenced
from carrel_scheduler.workloads.guests.standalone import Standalone
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings
from carrel_scheduler.workloads.launch.tokens import TaskTokens


async def serve() -> None:
    """Run until SIGTERM or SIGINT."""
    stop, began = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    state = Path(os.environ["CARREL_STATE_DIR"])
    ledger = await open_ledger(
        os.environ["CARREL_DATABASE_URL"], clock=time.time, ids=lambda: uuid.uuid4().hex
    )
    client = KubeClient(find())
    instance = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
    namespace = os.environ["CARREL_NAMESPACE"]
    seat = Seat(state)
    clocks = Clocks(time.monotonic, time.time)
    leader = Leader(client, namespace, instance, clocks, seat=seat.name)
    launch = LaunchSettings(api_url="", checkpoint_root=state, tokens=TaskTokens(os.urandom(32)))
    scheduler = Standalone(client, ledger, launch, instance, time.time, leader)
    said = asyncio.create_task(_say(began))
    try:
        await scheduler.run(stop, began)
    finally:
        said.cancel()
        await client.close()
        await ledger.close()
        seat.close()


async def _say(began: asyncio.Event) -> None:
    await began.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> None:
    """Entry point."""
    logging.basicConfig(level=os.environ.get("CARREL_LOG_LEVEL", "INFO"))
    try:
        asyncio.run(serve())
    except* (LeadershipLost, Fenced) as errors:
        sys.exit(f"carrel-scheduler: {errors.exceptions[0]}")


if __name__ == "__main__":
    main()
