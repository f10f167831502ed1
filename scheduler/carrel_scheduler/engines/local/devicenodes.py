"""The files in ``/dev`` by which a task reaches its GPUs, and no others.

The driver tells the number of each GPU's file by its UUID. Without the driver there are none
to give, and devices without a UUID are simulated.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskSpec

DRIVER: Final = Path("/proc/driver/nvidia/gpus")
DEVICES: Final = Path("/dev")
COMMON: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_UUID: Final = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def of_task(task: TaskSpec, *, driver: Path = DRIVER, devices: Path = DEVICES) -> list[str]:
    """Paths of the files. Raises ``EngineError`` for a GPU that the driver does not know."""
    if not task.device_uuids or not driver.is_dir():
        return []
    numbers = _numbers(driver)
    missing = [uuid for uuid in task.device_uuids if uuid not in numbers]
    if missing:
        raise EngineError(f"device_uuids={missing[0]!r}: the driver at {driver} knows no such GPU")
    own = [devices / f"nvidia{numbers[uuid]}" for uuid in task.device_uuids]
    common = [devices / name for name in COMMON]
    return [str(path) for path in (*own, *(path for path in common if path.exists()))]


def _numbers(driver: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for path in driver.glob("*/information"):
        text = path.read_text(errors="replace")
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            found[uuid[1]] = minor[1]
    return found
