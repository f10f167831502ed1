"""Selectors of devices: expressions of CEL, evaluated in a time that their length bounds.

An expression may name ``device`` only and use the functions of ``_FUNCTIONS``: those of Kubernetes
for selectors, without loops and additions, whose results could outgrow the expression. One that
fails for a device, as for an attribute that it does not have, does not select it. The library is
loaded with the first device or selector: most clusters have none.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from carrel_scheduler.engines.kubernetes.pods.devices.types import Attribute, SliceDevice
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO, PodRefused, nanos

if TYPE_CHECKING:
    import cel

LONGEST: Final = 10 * 1024
_OPERATORS: Final = frozenset(
    {"_&&_", "_||_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_[_]", "_?_:_"}
    | {"-_", "_-_"}
)
_NAMED: Final = frozenset(
    {"startsWith", "endsWith", "contains", "matches", "size", "int", "string"}
)
_SEMVER: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")
Order = tuple[int, int, int, tuple[tuple[int, int, str], ...]]


def _quantity(written: str) -> int | float:
    nano = nanos(written)
    return nano / NANO if nano % NANO else nano // NANO


def _semver(written: str) -> dict[str, str]:
    if _SEMVER.fullmatch(written) is None:
        raise ValueError(f"{written!r} is no semantic version")
    return {"semver": written}


def _order(version: Mapping[str, str]) -> Order:
    """A version as what it is compared by; one before a release comes before it."""
    found = _SEMVER.fullmatch(version["semver"])
    if found is None:
        raise ValueError(f"{version['semver']!r} is no semantic version")
    parts = found[4].split(".") if found[4] else []
    before = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts)
    return int(found[1]), int(found[2]), int(found[3]), before or ((2, 0, ""),)


def _compare(one: Any, other: Any) -> int:
    if isinstance(one, Mapping):
        one, other = _order(one), _order(other)
    return int(one > other) - int(one < other)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "quantity": _quantity,
    "semver": _semver,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "lowerAscii": str.lower,
    "upperAscii": str.upper,
}
_ALLOWED: Final = _OPERATORS | _NAMED | _FUNCTIONS.keys()


@lru_cache(maxsize=1024)
def program_of(expression: str) -> "cel.Program":
    """The program of an expression.

    Raises:
        PodRefused: ``bad_selector``.
    """
    import cel

    shown = expression if len(expression) <= 200 else f"{expression[:200]}..."
    field = "selectors.cel.expression"
    if len(expression) > LONGEST:
        raise PodRefused("bad_selector", field, shown, f"{LONGEST} characters or fewer")
    try:
        program = cel.compile(expression)
        names, functions = set(program.variables()), set(program.functions())
    except (ValueError, RuntimeError) as error:
        expected = "an expression of CEL about `device`"
        raise PodRefused("bad_selector", field, shown, expected) from error
    if names - {"device"} or functions - _ALLOWED:
        expected = (
            "an expression about `device` without loops and additions, of "
            f"{', '.join(sorted(_NAMED | _FUNCTIONS.keys()))}"
        )
        raise PodRefused("bad_selector", field, shown, expected)
    return program


def context_of(driver: str, device: SliceDevice) -> "cel.Context":
    """The variables of expressions about a device.

    Names without a domain are in that of the driver.
    """
    import cel

    attributes: dict[str, dict[str, Any]] = {driver: {}}
    for name, attribute in device.attributes.items():
        domain, key = _qualified(name, driver)
        attributes.setdefault(domain, {})[key] = _value(attribute)
    capacity: dict[str, dict[str, Any]] = {driver: {}}
    for name, amount in device.capacity.items():
        domain, key = _qualified(name, driver)
        capacity.setdefault(domain, {})[key] = _quantity(amount.value)
    seen = {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": device.allow_multiple_allocations,
    }
    return cel.Context(variables={"device": seen}, functions=dict(_FUNCTIONS))


def attribute_of(driver: str, device: SliceDevice, name: str) -> object:
    """The value of an attribute by its full name; ``None`` where the device lacks it."""
    for key, attribute in device.attributes.items():
        if "/".join(_qualified(key, driver)) == name:
            value = _value(attribute)
            return value["semver"] if isinstance(value, dict) else value
    return None


def selects(expression: str, context: "cel.Context") -> bool:
    """Whether an expression is true for a device. Raises ``PodRefused``, see ``program_of``."""
    program = program_of(expression)
    try:
        return program.execute(context) is True
    except Exception:  # noqa: BLE001 - whatever the library says: it does not hold
        return False
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of a library in Rust: a fault, no end
            raise
        return False


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def _value(attribute: Attribute) -> Any:
    if attribute.version is not None:
        return {"semver": attribute.version}
    for value in (attribute.int_value, attribute.bool_value):
        if value is not None:
            return value
    return attribute.string or ""
