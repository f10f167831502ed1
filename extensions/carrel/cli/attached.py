"""``carrel submit -it``: a job whose command runs in this terminal, as that of ``docker run -it``.

The job holds its place with a command that only waits, so it is interactive work, which nobody
preempts; what was asked for runs beside it with this terminal. When that ends, so does the job.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from carrel.cli.common import complain, connected, note
from carrel.errors import Unreachable

if TYPE_CHECKING:
    from carrel.client import Client
    from carrel.models import Workload

HOLDER: Final = ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"]
INTERRUPTED: Final = 130
Attach = Callable[[Any, Any], int]
"""Called with the client's loop and the opened terminal; returns the command's exit code."""


def has_terminal() -> bool:
    """Whether a person types here and reads here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def held(body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A request that holds the place, and the command for the terminal."""
    return {**body, "command": HOLDER}, list(body["command"])


def run_beside(job: "Workload", command: list[str], attach: Attach, *, remove: bool) -> int:
    """Wait for the job, run a command beside it in this terminal, end the job; the exit code.

    ``attach`` connects this terminal with the command's until that ends. With ``remove`` the job is
    deleted, otherwise it is suspended, and ``carrel resume`` brings its place back. When the
    connection breaks it goes on. Raises ``Unreachable``.
    """
    with connected() as client:
        try:
            if not _runs(client, job):
                return 1
            terminal = client.exec(job.project, job.name, command, index=0)
            code = attach(client.loop, terminal)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Unreachable:
            note(f"{job.name} goes on: `carrel bash {job.name}`, `carrel delete job {job.name}`.")
            raise
        if remove:
            client.delete_workload(job.project, job.name)
        else:
            client.suspend(job.project, job.name)
            note(f"{job.name} is suspended; `carrel delete job {job.name}` removes it.")
    return code


def _runs(client: "Client", job: "Workload") -> bool:
    """Wait until it runs; says what it waits for, and why it never will."""
    from carrel.cli import cells
    from carrel.client.shared_events import until

    told = ""
    while (now := client.get_workload(job.project, job.name)).status.phase != "running":
        why = cells.why(now) or f"{now.name} is {now.status.phase}."
        if now.at_rest:
            complain(why)
            return False
        if why != told:
            note(why)
            told = why
        changed = partial(_is_newer, now.resource_version)
        client.loop.run(until(changed, client.aio, job.project, job.name, None))
    return True


def _is_newer(version: int, job: "Workload") -> bool:
    return job.resource_version > version
