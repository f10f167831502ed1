"""Carries out what the scheduler wants of a node's MIG instances; see ``node.mig_allocation``.

The driver's calls cannot be interrupted. So each GPU has a thread at a time, which is waited for so
long; a GPU whose driver has not answered is not asked for more before it has. What fails
repeatedly closes the GPU for new instances, which the report of its health says; after a while it
is tried again.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from carrel_scheduler.node.contract import (
    HealthCondition,
    MigOrder,
    MigOrders,
    MigReport,
    MigResult,
)
from carrel_scheduler.node.mig import Instance, MigDevices, MigError
from carrel_scheduler.node.mig_allocation import (
    InstanceInUseError,
    InstanceOwner,
    InstanceRequest,
    take,
)

log = logging.getLogger("carrel_node")
DRIVER_SECONDS: Final = 60.0
"""Seconds for which the driver is awaited."""
MOST_FAILURES: Final = 3
"""The number of failures in a row after which a GPU is closed."""
CLOSED_SECONDS: Final = 600.0
CONDITION: Final = "mig"
AGAIN_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 0.2
"""The pause after an answer without orders, which the scheduler gives after a while."""
LONGEST_ERROR: Final = 1024
MOST_WORDS: Final = 180


@dataclass(slots=True)
class _DeviceState:
    """The state of a GPU: failures in a row, the last one, and the call that is under way."""

    failures: int = 0
    error: str = ""
    at: float = 0.0
    call: "Future[Instance] | None" = None


@dataclass(slots=True)
class _Changes(InstanceOwner):
    """Notes what one order changes, and passes it on to the owner of the instances."""

    owner: InstanceOwner
    made: bool = False
    gone: list[str] = field(default_factory=list)

    @override
    def seen(self, device: str, there: Sequence[Instance]) -> None:
        self.owner.seen(device, there)

    @override
    def is_ours(self, device: str, instance: Instance) -> bool:
        return self.owner.is_ours(device, instance)

    @override
    def making(self, wanted: InstanceRequest) -> None:
        self.made = True
        self.owner.making(wanted)

    @override
    def removed(self, device: str, instance: Instance) -> None:
        self.gone.append(instance.profile)
        self.owner.removed(device, instance)


class MigWorker:
    """See the module.

    Args:
        devices: of the node.
        ownership: which instances it may use and remove.
        clock: seconds that only grow.
        driver_seconds: for which the driver is waited for.
    """

    def __init__(
        self,
        devices: MigDevices,
        ownership: InstanceOwner,
        clock: Callable[[], float] = time.monotonic,
        driver_seconds: float = DRIVER_SECONDS,
    ) -> None:
        self._devices, self._ownership, self._clock = devices, ownership, clock
        self._driver_seconds = driver_seconds
        self._known: dict[str, _DeviceState] = {}

    def carry_out(self, orders: Sequence[MigOrder]) -> list[MigResult]:
        """Carry out orders, one after the other on each GPU; returns what became of them."""
        by_device: dict[str, list[MigOrder]] = {}
        for order in orders:
            by_device.setdefault(order.device, []).append(order)
        found: list[MigResult] = []
        threads = [
            threading.Thread(target=lambda own=own: found.extend(map(self._result, own)))
            for own in by_device.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def conditions(self, device: str) -> tuple[HealthCondition, ...]:
        """The health conditions of a GPU as to instances: it is closed, or there are none."""
        known = self._known.get(device)
        if known is None or known.failures < MOST_FAILURES:
            return ()
        if self._clock() - known.at > CLOSED_SECONDS:
            return ()
        text = f"MIG instances cannot be made: {known.error}"
        return (HealthCondition(key=CONDITION, severity="closed", message=text[:MOST_WORDS]),)

    def _result(self, order: MigOrder) -> MigResult:
        known = self._known.setdefault(order.device, _DeviceState())
        changes = _Changes(self._ownership)
        try:
            found = self._take(known, order, changes)
        except InstanceInUseError as error:
            return _failed(order, error, changes)
        except Exception as error:  # noqa: BLE001 - told to the scheduler, whatever it is
            known.failures, known.error, known.at = known.failures + 1, str(error), self._clock()
            log.warning("GPU %s: %s", order.device, error)
            return _failed(order, error, changes)
        known.failures = 0
        gone = tuple(changes.gone)
        return MigResult(id=order.id, uuid=found.uuid, made=changes.made, removed=gone)

    def _take(self, known: _DeviceState, order: MigOrder, changes: _Changes) -> Instance:
        if known.call is not None and not known.call.done():
            raise MigError(f"the driver of GPU {order.device} has not answered an earlier call yet")
        call = known.call = Future[Instance]()
        wanted = InstanceRequest(device=order.device, profile=order.profile, bits=order.slots)

        def work() -> None:
            try:
                call.set_result(take(self._devices, wanted, order.held, changes))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                call.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        try:
            return call.result(self._driver_seconds)
        except TimeoutError as error:
            raise MigError(
                f"the driver of GPU {order.device} did not answer within {self._driver_seconds:g} s"
            ) from error


def _failed(order: MigOrder, error: Exception, changes: _Changes) -> MigResult:
    text = str(error)[:LONGEST_ERROR]
    return MigResult(id=order.id, error=text, removed=tuple(changes.gone))


def serve(
    worker: MigWorker,
    ask: Callable[[MigReport], MigOrders],
    pause: Callable[[float], bool],
) -> None:
    """Ask the scheduler what it wants, and do it, until ``pause`` returns true.

    What could not be told is told with the next question.
    """
    results: list[MigResult] = []
    trouble = ""
    while True:
        try:
            orders = ask(MigReport(results=tuple(results))).orders
        except Exception as error:  # noqa: BLE001 - asked again
            told = f"{type(error).__name__}: {error}"
            if told != trouble:
                log.warning("the scheduler could not be asked for MIG instances: %s", told)
            trouble = told
            if pause(AGAIN_SECONDS):
                return
            continue
        trouble = ""
        results = worker.carry_out(orders) if orders else []
        if pause(0.0 if orders else IDLE_SECONDS):
            return
