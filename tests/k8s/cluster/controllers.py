"""Control groups of version 2: what a group may limit is what its parent hands on.

A kubelet refuses a group that lacks a controller which the machine has. In version 1 every group
has its hierarchy's controllers, and there is nothing to do.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

NEEDED: Final = frozenset({"cpu", "cpuset", "memory", "pids"})
"""What a kubelet cannot do without."""
_HAS: Final = "cgroup.controllers"
_HANDS_ON: Final = "cgroup.subtree_control"


def lacking(hierarchies: Sequence[Path]) -> list[str]:
    """The controllers of ``NEEDED`` that no hierarchy of the machine has.

    A machine with both versions has its controllers in version 1, whose folders are named by them.
    """
    of_two = [one for one in hierarchies if _is_of_two(one)]
    there = {name for one in of_two for name in _read(one / _HAS)}
    there |= {name for one in hierarchies if one not in of_two for name in one.name.split(",")}
    return sorted(NEEDED - there)


def kept_back(group: Path) -> list[str]:
    """The controllers of a group that its children do not have."""
    return sorted(_read(group / _HAS) - _read(group / _HANDS_ON))


def is_inhabited(group: Path) -> bool:
    """Whether a group cannot hand on anything, because it has processes and is not the machine's.

    So it is in a container with a hierarchy of its own.
    """
    return (group / "cgroup.type").exists() and bool(_read(group / "cgroup.procs"))


def hand_on(group: Path) -> None:
    """Let a group's children have all that it has. Raises ``OSError``."""
    if fresh := kept_back(group):
        (group / _HANDS_ON).write_text(" ".join(f"+{name}" for name in fresh))


def take_back(group: Path, name: str) -> None:
    """Undo that for one controller; what others have come to need stays."""
    with suppress(OSError):  # busy, or gone with its group
        (group / _HANDS_ON).write_text(f"-{name}")


def _is_of_two(group: Path) -> bool:
    return (group / _HAS).exists()


def _read(file: Path) -> set[str]:
    try:
        return set(file.read_text().split())
    except FileNotFoundError:
        return set()
