"""Keeps role bindings equal to the access rules, whatever somebody else does to them.

Every two seconds the rules and projects of the ledger are looked at; the cluster is asked when they
changed, once a minute, and after growing pauses while something is not as it should be. Nothing is
written into a namespace that is not its project's. What the scheduler's account may bind, to whom
and where, is bounded by a policy of the installation besides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from carrel_scheduler.backoff import Backoff, Jitter
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import Conflict, KubeError, NotFound
from carrel_scheduler.kube.resources import NAMESPACES, ROLE_BINDINGS
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.policy.access_records import read_rules
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.namespaces import access
from carrel_scheduler.workloads.namespaces.manifests import Manifest
from carrel_schema import names
from carrel_schema.objects import Project

log = logging.getLogger(__name__)
MANAGER: Final = "carrel"
LOOK_SECONDS: Final = 2.0
COMPARE_SECONDS: Final = 60.0
AT_ONCE: Final = 8
Place = tuple[str, str]
Bindings = Mapping[Place, Manifest]


class AccessBindings:
    """See the module.

    Args:
        ledger: of rules and projects.
        client: of the cluster.
        clock: in seconds; need not be the wall's.
        chance: jitter of pauses, in [0, 1).
        quarantine: names what cannot be written.
        pause: waits so many seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        client: KubeClient,
        *,
        clock: Callable[[], float],
        chance: Jitter,
        quarantine: Quarantine,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._ledger, self._client, self._clock = ledger, client, clock
        self._quarantine, self._pause = quarantine, pause
        self._backoff = Backoff(chance, first=LOOK_SECONDS, longest=COMPARE_SECONDS)
        self._tried: Bindings | None = None
        self._compare_at = 0.0

    async def run(self) -> None:
        """Keep them equal until cancelled."""
        while True:
            with self._quarantine.guard("namespace", "access rules"):
                try:
                    await self.look()
                except (KubeError, LedgerUnavailable) as error:
                    log.warning("Role bindings of access rules: %s", error)
                    raise
            await self._pause(LOOK_SECONDS)

    async def look(self) -> None:
        """Compare with the cluster if it is time. Raises ``KubeError``, ``LedgerUnavailable``."""
        rules = await read_rules(self._ledger)
        wanted = access.bindings(rules, (await self._ledger.list(Project)).items)
        if wanted == self._tried and self._clock() < self._compare_at:
            return
        if wanted != self._tried:
            self._backoff.reset()
        self._tried, self._compare_at = wanted, self._clock() + self._backoff.next()
        if await self._make_equal(wanted):
            self._backoff.reset()
            self._compare_at = self._clock() + COMPARE_SECONDS

    async def _make_equal(self, wanted: Bindings) -> bool:
        """Write what differs; whether all is as it should be."""
        found = await self._client.list(ROLE_BINDINGS, label_selector=names.ACCESS_RULE)
        there = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one for one in found.items
        }
        listed = await self._client.list(NAMESPACES, label_selector=names.PROJECT)
        ours = {
            one["metadata"]["name"]
            for one in listed.items
            if names.namespace_of(one["metadata"]["labels"][names.PROJECT])
            == one["metadata"]["name"]
        }
        limit = asyncio.Semaphore(AT_ONCE)

        async def done(place: Place) -> bool:
            async with limit:
                with self._quarantine.guard("namespace", "/".join(place)):
                    return await self._write(place, there.get(place), wanted.get(place))
                return False  # the guard has kept what was raised

        # What takes rights away comes first.
        gone = await asyncio.gather(*(done(place) for place in there if place not in wanted))
        differing = [
            place
            for place, manifest in wanted.items()
            if place not in there or access.differs(there[place], manifest)
        ]
        made = await asyncio.gather(*(done(place) for place in differing if place[0] in ours))
        return all(gone) and all(made) and len(made) == len(differing)

    async def _write(self, place: Place, found: Manifest | None, wanted: Manifest | None) -> bool:
        """Have one binding as it should be; ``False``: it changed meanwhile."""
        namespace, name = place
        try:
            if found is not None and (wanted is None or found["roleRef"] != wanted["roleRef"]):
                uid = found["metadata"]["uid"]
                await self._client.delete(ROLE_BINDINGS, name, namespace, uid=uid)
            if wanted is not None:
                await self._client.patch(
                    ROLE_BINDINGS,
                    name,
                    wanted,
                    namespace,
                    how=PatchKind.APPLY,
                    field_manager=MANAGER,
                    force=True,
                )
        except (Conflict, NotFound) as error:
            log.info("Role binding %s/%s: %s", namespace, name, error)
            return False
        return True
