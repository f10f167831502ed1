"""TensorBoard on somebody's work: the one that is there already, or a new one."""

from typing import Any

from carrel.client import AsyncClient
from carrel.models import Workload
from carrel.notebook import words
from carrel.workspace.gateway import path_of


async def find(client: AsyncClient, project: str, job: str) -> Workload | None:
    """A TensorBoard over just this job that is at work or waits. Raises ``CarrelError``."""
    boards = await client.list_workloads(project=project, kind="tensorboard")
    mine = [
        board
        for board in boards
        if not board.at_rest
        and not board.spec.delete
        and board.spec.tensorboard is not None
        and list(board.spec.tensorboard.jobs) == [job]
    ]
    return mine[0] if mine else None


async def find_or_start(client: AsyncClient, project: str, job: str) -> Workload:
    """The same, started if there is none. Raises ``CarrelError``."""
    found = await find(client, project, job)
    return found or await client.create_workload(
        {
            "kind": "tensorboard",
            "project": project,
            "name_prefix": "tensorboard",
            "tensorboard": {"jobs": [job]},
        }
    )


def shown(board: Workload | None, prefix: str) -> dict[str, Any]:
    """What the button needs: an address once it is up, otherwise why not yet.

    Args:
        board: the TensorBoard; ``None`` when there is none any more.
        prefix: path of the gateway.
    """
    if board is None:
        return {"url": "", "over": True, "reason": "TensorBoard was stopped before it was ready."}
    running = board.status.phase == "running"
    return {
        "url": path_of(prefix, board.project, board.name) if running else "",
        "over": board.at_rest,
        "reason": words.why(board),
    }
