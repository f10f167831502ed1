"""Capacity of devices that several claims share, and what a request consumes of it. Pure.

What a request asks for is raised to what the device allows (``requestPolicy``); what it does not
name it consumes by default, which is all of it unless the device says otherwise. A device is given
as long as enough of everything is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from carrel_scheduler.engines.kubernetes.pods.devices.types import SliceCapacity, SliceDevice
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO, PodRefused, nanos

Asked = tuple[tuple[str, int], ...]
"""Names of capacities and amounts in billionths, in order of the names."""


@dataclass(frozen=True, slots=True)
class SharedCapacity:
    """A capacity of a device that is shared; all amounts in billionths.

    Attributes:
        total: of the device.
        default: consumed by a request that does not name it.
        values: the amounts that may be consumed; empty: any, or those of the range.
        least, most, step: the range; ``step`` 0: any amount within.
    """

    total: int
    default: int
    values: tuple[int, ...] = ()
    least: int = 0
    most: int | None = None
    step: int = 0

    def consumed(self, asked: int | None) -> int | None:
        """The amount that a request consumes; ``None`` where the device allows no such amount."""
        found = self.default if asked is None else self._raised(asked)
        if found is None or found > self.total:
            return None
        return found

    def floor(self, most: int) -> int | None:
        """The largest amount up to ``most`` that may be consumed; ``None`` where there is none."""
        if self.values:
            return max((one for one in self.values if one <= most), default=None)
        found = most if self.most is None else min(most, self.most)
        if found < self.least:
            return None
        return found - (found - self.least) % self.step if self.step else found

    def _raised(self, asked: int) -> int | None:
        if self.values:
            return min((one for one in self.values if one >= asked), default=None)
        found = max(asked, self.least)
        if self.step:
            found = self.least + -(-(found - self.least) // self.step) * self.step
        return None if self.most is not None and found > self.most else found


def consumables(device: SliceDevice) -> dict[str, SharedCapacity]:
    """The capacities of a device that is shared, by name. Raises ``PodRefused``."""
    return {name: _consumable(name, one) for name, one in device.capacity.items()}


def _consumable(name: str, one: SliceCapacity) -> SharedCapacity:
    total = _amount(one.value, name)
    policy = one.request_policy
    if policy is None:
        return SharedCapacity(total, total)
    within = policy.valid_range
    bounds = (None, None, None) if within is None else (within.min, within.max, within.step)
    least, most, step = (None if text is None else _amount(text, name) for text in bounds)
    return SharedCapacity(
        total=total,
        default=total if policy.default is None else _amount(policy.default, name),
        values=tuple(_amount(text, name) for text in policy.valid_values),
        least=least or 0,
        most=most,
        step=step or 0,
    )


def _amount(written: str, field: str) -> int:
    found = nanos(written, field)
    if found < 0:
        raise PodRefused("bad_quantity", field, written, "a quantity of at least 0")
    return found


def asked_of(requests: Mapping[str, str], field: str) -> Asked:
    """The capacities that a request asks for. Raises ``PodRefused``."""
    return tuple(
        sorted((name, _amount(text, f"{field}[{name}]")) for name, text in requests.items())
    )


def consumption(there: Mapping[str, SharedCapacity], asked: Asked) -> Asked | None:
    """The amounts that a request consumes of all capacities; ``None`` if impossible."""
    wanted = dict(asked)
    if wanted.keys() - there.keys():
        return None
    found = {name: one.consumed(wanted.get(name)) for name, one in there.items()}
    given = tuple((name, amount) for name, amount in sorted(found.items()) if amount is not None)
    return given if len(given) == len(found) else None


def has(device: SliceDevice, asked: Asked) -> bool:
    """Whether a device that is given whole has as much as is asked for."""
    try:
        return all(
            name in device.capacity and nanos(device.capacity[name].value) >= amount
            for name, amount in asked
        )
    except PodRefused:
        return False


def written(nano: int) -> str:
    """An amount as a quantity."""
    return f"{nano}n" if nano % NANO else str(nano // NANO)
