"""Leader election by a Lease: one scheduler at a time, each with an epoch of its own.

A lease counts as expired when its holder has not renewed it for its duration, measured by our own
clock from when we saw it change, so that clocks that differ or jump do no harm. Each change of the
holder raises ``leaseTransitions``, which is the epoch. A leader that can not renew in time ends.

``StateFolderLock`` identifies the processes of one state folder: a lease whose holder had the same
folder is taken at once, since that process is dead. ``Fence`` waits until nothing that earlier
leaders began can happen any more. A policy of the cluster refuses bindings of another epoch than
the lease's, but two things may come late: the policy sees a new lease a moment after it was
written, and a binding that was admitted before may not be written yet. The first is probed with
dry-run bindings of a pod that does not exist; the second is bounded, as bindings name the seconds
after which the server gives them up (``KubeClient.post_sub``). Whoever reads the pods after both
reads everything that earlier leaders gave away.
"""

import asyncio
import fcntl
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from carrel_scheduler.kube.client import GIVEN_UP_SECONDS, KubeClient
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from carrel_scheduler.kube.resources import LEASES, PODS
from carrel_schema.names import EPOCH, LEASE

log = logging.getLogger(__name__)

FILE: Final = "scheduler-identity"
_BYTES: Final = 6


class StateFolderLock:
    """The lock of a state folder, held until ``close`` or the end of the process.

    Attributes:
        name: the identity of the folder, kept in it; empty where another process has the lock.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            log.warning("the identity in %s is in use by another process: %s", folder, error)
            self.name = ""
        else:
            self.name = self._read() or self._write()

    def _read(self) -> str:
        return os.read(self._file, 64).decode("ascii", "replace").strip()

    def _write(self) -> str:
        name = secrets.token_hex(_BYTES)
        os.pwrite(self._file, f"{name}\n".encode("ascii"), 0)
        os.fsync(self._file)
        return name

    def close(self) -> None:
        """Release the lock for the next process."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LeaseMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    """The name and version of a lease."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Spec(msgspec.Struct, rename="camel"):
    """The holder of a lease; ``lease_transitions`` is the epoch."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(msgspec.Struct, rename="camel"):
    """A lease object."""

    metadata: LeaseMeta
    spec: Spec
    api_version: str = LEASES.api_version
    kind: str = LEASES.kind


def micro_time(now: float) -> str:
    """Epoch seconds in the format of leases."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


SEEN_SECONDS: Final = 10.0
"""Seconds after which the policy is taken to know a new leader."""
WRITTEN_SECONDS: Final = 0.5
"""Seconds within which the server may still write what it just gave up."""
PROBE_SECONDS: Final = 0.1
NOBODY: Final = "carrel-probe-that-is-never-there"


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time: ``steady`` seconds that never jump, ``now`` epoch seconds, ``pause`` sleeps."""

    steady: Callable[[], float]
    now: Callable[[], float]
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class Fence:
    """The fence that prevents earlier epochs from binding.

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
                log.info("the check of the fence got no answer: %s", error)
            await self._clocks.pause(PROBE_SECONDS)
        return False

    async def calm(self) -> None:
        """Wait until every write that passed the fence has completed or failed."""
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


__all__ = ["Clocks", "Leader", "LeadershipLost"]

DURATION_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 5.0
TRY_SECONDS: Final = 2.0
_AWAY: Final = (Unavailable, TooManyRequests, Unauthorized)
"""The errors with which the lease cannot be read: for the moment, or until an admin acts."""


class LeadershipLost(Exception):  # noqa: N818 - an outcome to end on
    """Another scheduler leads, or this one could not renew its lease in time."""


class Leader:
    """A scheduler's claim to the lease.

    Args:
        client: of the API server.
        namespace: where the lease lives.
        identity: of this process, never used by another.
        clocks: see ``Clocks``.
        duration: seconds after which an unrenewed lease lapses.
        state_folder: the name of its ``StateFolderLock``; empty where it has none.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        identity: str,
        clocks: Clocks,
        duration: float = DURATION_SECONDS,
        state_folder: str = "",
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._folder = f"{state_folder}/" if state_folder else ""
        self._identity = f"{self._folder}{identity}"
        self._clocks = clocks
        self._duration = duration
        self._held: Lease | None = None
        self._renewed = 0.0
        self._fence = Fence(client, namespace, clocks)
        self._first = False
        self._early = 0.0
        self._said = ""

    @property
    def epoch(self) -> int:
        """The epoch of this leadership. Raises ``LeadershipLost`` without one."""
        if self._held is None:
            raise LeadershipLost("this scheduler does not lead")
        return self._held.spec.lease_transitions

    async def acquire(self) -> int:
        """Wait until this scheduler leads; returns its epoch."""
        seen: Lease | None = None
        since = self._clocks.steady()
        while True:
            try:
                found = await self._read()
                if seen is None or found is None or found.spec != seen.spec:
                    seen, since = found, self._clocks.steady()
                if await self._try(found, self._clocks.steady() - since):
                    return self.epoch
            except _AWAY as error:
                self._away("the lease can not be read: %s", error)
            await self._clocks.pause(min(TRY_SECONDS, self._duration / 5))

    async def keep(self) -> None:
        """Renew until cancelled. Raises ``LeadershipLost``."""
        pause = min(RENEW_SECONDS, self._duration / 3)
        while True:
            await self._clocks.pause(pause)
            try:
                await self._renew()
                self._said = ""
            except _AWAY as error:
                self._away("the lease was not renewed: %s", error)
                if self._clocks.steady() - self._renewed >= self._duration:
                    raise LeadershipLost("the lease could not be renewed in time") from error

    def _away(self, words: str, error: KubeError) -> None:
        """Log each problem once."""
        if self._said != error.reason:
            log.warning(words, error)
        self._said = error.reason

    async def release(self) -> None:
        """Let others lead at once."""
        held, self._held = self._held, None
        if held is None:
            return
        held.spec.holder_identity, held.spec.lease_duration_seconds = "", 1
        try:
            await self._replace(held)
        except KubeError as error:
            log.info("the lease was not released: %s", error)

    async def fenced(self) -> bool:
        """Wait until nothing that earlier leaders began can happen any more; read the pods then.

        False if the cluster has no policy that refuses bindings of earlier epochs: then the lease
        of the one before was waited for, and one that only believes to lead may still bind.
        """
        stands = await self._fence.stands(self.epoch)
        if self._early and not stands:
            await self._clocks.pause(self._early)
        if not self._first:
            await self._fence.calm()
        return stands

    async def _try(self, found: Lease | None, unchanged: float) -> bool:
        self._first, self._early = found is None, 0.0
        if found is None:
            fresh = Lease(
                LeaseMeta(name=LEASE, namespace=self._namespace), Spec(lease_transitions=1)
            )
            return await self._take(fresh, new=True)
        spec = found.spec
        if spec.holder_identity:
            left = max(self._duration, float(spec.lease_duration_seconds)) - unchanged
            if left > 0 and not self._is_dead(spec.holder_identity):
                return False
            self._early = max(0.0, left)
        spec.lease_transitions += 1
        return await self._take(found, new=False)

    def _is_dead(self, holder: str) -> bool:
        """Whether the holder had our state folder: it has ended, or is us after a lost answer."""
        return bool(self._folder) and holder.startswith(self._folder)

    async def _take(self, lease: Lease, *, new: bool) -> bool:
        now = micro_time(self._clocks.now())
        spec = lease.spec
        spec.holder_identity = self._identity
        spec.lease_duration_seconds = max(1, int(self._duration))
        spec.acquire_time = spec.renew_time = now
        began = self._clocks.steady()
        try:
            if new:
                stored = await self._client.create(LEASES, lease, self._namespace, type=Lease)
            else:
                stored = await self._replace(lease)
        except (Conflict, AlreadyExists):
            return False
        self._held, self._renewed = stored, began
        log.info("leading as %s in epoch %d", self._identity, self.epoch)
        return True

    async def _renew(self) -> None:
        held = self._held
        if held is None:
            raise LeadershipLost("this scheduler does not lead")
        began = self._clocks.steady()
        held.spec.renew_time = micro_time(self._clocks.now())
        try:
            self._held = await self._replace(held)
        except (Conflict, NotFound):
            # Our own renewal may have been stored though its answer was lost.
            found = await self._read()
            if found is None or found.spec.holder_identity != self._identity:
                self._held = None
                raise LeadershipLost("another scheduler took the lease") from None
            self._held = found
        self._renewed = began

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, LEASE, self._namespace, type=Lease)
        except NotFound:
            return None

    async def _replace(self, lease: Lease) -> Lease:
        return await self._client.replace(LEASES, LEASE, lease, self._namespace, type=Lease)
