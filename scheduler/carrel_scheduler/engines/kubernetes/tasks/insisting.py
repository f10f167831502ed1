"""Writes about one pod that have to be done as long as there is that pod.

Such a write names the pod's uid. "Conflict" is the answer where another pod has its name by now,
and where somebody else wrote at the same moment, which is no reason to give up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, NotFound
from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_scheduler.kube.resources import PODS

PAUSES_SECONDS: Final = (0.05, 0.2, 0.5, 1.0, 2.0)


async def unless_gone(
    client: KubeClient, pod: Metadata, write: Callable[[], Awaitable[Any]]
) -> bool:
    """Do a write; false: that pod is gone, so there is nothing to be written.

    Raises:
        KubeError: the write is refused, or conflicts with others again and again.
    """
    for pause in PAUSES_SECONDS:
        try:
            await write()
        except NotFound:
            return False
        except Conflict:
            if not await _is_there(client, pod):
                return False
            await asyncio.sleep(pause)
        else:
            return True
    await write()
    return True


async def _is_there(client: KubeClient, pod: Metadata) -> bool:
    try:
        found = await client.get(PODS, pod.name, pod.namespace, PartialObject)
    except NotFound:
        return False
    return found.metadata.uid == pod.uid
