"""When nothing that earlier schedulers began can happen any more.

A policy of the cluster refuses bindings of another epoch than the lease's. Two things may still
come late: the policy hears of a new lease a moment after it was written, and a binding that was let
in before may not be written yet. The first is asked for, by bindings that are not carried out, of a
pod that does not exist; for the second there is a bound, as bindings name the seconds after which
the server gives them up (``KubeClient.post_sub``). Whoever reads the pods after both reads
everything that earlier schedulers gave away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.kube.client import GIVEN_UP_SECONDS, KubeClient
from carrel_scheduler.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.resources import PODS
from carrel_schema.names import EPOCH

log = logging.getLogger(__name__)

SEEN_SECONDS: Final = 10.0
"""So long it is waited for that the policy knows of a new leader."""
WRITTEN_SECONDS: Final = 0.5
"""So long what the server just gave up may take to be written all the same."""
PROBE_SECONDS: Final = 0.1
NOBODY: Final = "carrel-probe-that-is-never-there"


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time: ``steady`` seconds that never jump, ``now`` epoch seconds, ``pause`` waits."""

    steady: Callable[[], float]
    now: Callable[[], float]
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class Fence:
    """What keeps earlier epochs from binding.

    Args:
        client: of the API server.
        namespace: where it is asked; no pod there has the name ``NOBODY``.
        clocks: see ``Clocks``.
    """

    def __init__(self, client: KubeClient, namespace: str, clocks: Clocks) -> None:
        self._client, self._namespace, self._clocks = client, namespace, clocks

    async def stands(self, epoch: int) -> bool:
        """Wait until bindings of earlier epochs are refused; false if they never are."""
        until = self._clocks.steady() + SEEN_SECONDS
        while self._clocks.steady() < until:
            try:
                if await self._passes(epoch) and not await self._passes(epoch - 1):
                    return True
            except (Unavailable, TooManyRequests, Conflict) as error:
                log.info("whether bindings are fenced was not answered: %s", error)
            await self._clocks.pause(PROBE_SECONDS)
        return False

    async def calm(self) -> None:
        """Wait until what was let in before is either written or given up."""
        await self._clocks.pause(GIVEN_UP_SECONDS + WRITTEN_SECONDS)

    async def _passes(self, epoch: int) -> bool:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": NOBODY, "annotations": {EPOCH: str(epoch)}},
            "target": {"kind": "Node", "name": NOBODY},
        }
        path = PODS.path(self._namespace, NOBODY, "binding")
        try:
            await self._client.raw("POST", f"{path}?dryRun=All", body)
        except NotFound:
            return True
        except (Forbidden, Invalid):
            return False
        return True
