"""The changes that would unblock a waiting workload, for pages that do well without them."""

import logging

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Remedy, Workload
from carrel_schema.kinds import COMPOSITES

log = logging.getLogger(__name__)


def may_have(workload: Workload) -> bool:
    """Whether the workload waits for capacity itself."""
    return workload.status.phase == "pending" and workload.spec.kind not in COMPOSITES


async def read(client: AsyncClient, workload: Workload) -> list[Remedy]:
    """What would unblock it; empty for what does not wait, and where nobody answers just now."""
    if not may_have(workload):
        return []
    try:
        return await client.remedies(workload.project, workload.name)
    except CarrelError as error:
        log.debug("no remedies for %s/%s: %s", workload.project, workload.name, error)
        return []
