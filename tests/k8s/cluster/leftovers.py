"""Removes what a node leaves in the machine besides processes and files.

Network interfaces, routes, control groups, and settings of the kernel that the kubelet changes have
names that outlive their maker, and so have the sockets of containers' keepers, which lie in one
folder for the whole machine. Mounts are found by where they lie. A line of a file names each thing
before it is made, so that whoever finds the file can end it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8s.cluster import controllers

END_SECONDS: Final = 60.0
SETTINGS: Final = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What a kubelet sets for the whole machine."""
_PAUSE_SECONDS: Final = 0.05


def remove_all(folder: Path, lines: list[str]) -> None:
    """End everything named, in an order in which nothing holds what is removed next.

    Args:
        folder: of the run; its mounts are unmounted.
        lines: ``<kind> <name> [<value>]``, as ``Record.leave`` wrote them.
    """
    named = [line.split(maxsplit=2) for line in lines]
    groups = [Path(name) for kind, name, *_ in named if kind == "group"]
    for group in groups:
        _end_members(group)
    for mount in reversed(list(_mounts_below(folder))):
        _unmount(folder, mount)
    for kind, name, *value in named:
        if kind == "interface" and Path("/sys/class/net", name).exists():
            subprocess.run(["ip", "link", "delete", name], check=True, capture_output=True)
        if kind == "route":
            _remove_route(name)
        if kind == "sockets":
            _remove_dead_sockets(Path(name), float(value[0]))
        if kind == "file":
            Path(name).unlink(missing_ok=True)
    for group in groups:
        _remove_group(group)
    for kind, name, *value in named:
        if kind == "setting":
            Path("/proc/sys", name).write_text(value[0])
        if kind == "controller":
            controllers.take_back(Path(value[0]), name)


def _unmount(folder: Path, mount: Path) -> None:
    """Unmount it; another one may have taken it along."""
    command = ["umount", "--lazy", str(mount)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode and mount in _mounts_below(folder):
        raise OSError(f"{mount} cannot be unmounted: {done.stderr.strip()}")


def _remove_route(network: str) -> None:
    """Remove the blackhole of a network if it is there."""
    show = ["ip", "route", "show", "type", "blackhole", network]
    if subprocess.run(show, check=True, capture_output=True).stdout:
        drop = ["ip", "route", "delete", "blackhole", network, "metric", "4096"]
        subprocess.run(drop, check=True, capture_output=True)


def settings() -> dict[str, str]:
    """The present settings of the machine that a kubelet changes."""
    return {name: Path("/proc/sys", name).read_text().strip() for name in SETTINGS}


def hierarchies() -> list[Path]:
    """The roots of control groups: one for each controller of version 1, one for version 2."""
    found: list[Path] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        if behind.split()[0] in {"cgroup", "cgroup2"}:
            found.append(Path(before.split()[4]))
    return found


def _mounts_below(folder: Path) -> Iterator[Path]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount = Path(line.split()[4])
        if mount.is_relative_to(folder):
            yield mount


def members(group: Path) -> set[int]:
    """Processes in a control group and those below it."""
    found: set[int] = set()
    for folder, _, _ in os.walk(group):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, Path(folder, "cgroup.procs").read_text().split()))
    return found


def _end_members(group: Path) -> None:
    deadline = time.monotonic() + END_SECONDS
    while left := members(group):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{group}: {sorted(left)} do not end")
        time.sleep(_PAUSE_SECONDS)


def _remove_group(group: Path) -> None:
    """Remove a tree of groups; the kernel lets go of the dead a moment later."""
    deadline = time.monotonic() + END_SECONDS
    while group.exists():
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(FileNotFoundError, OSError):
                Path(folder).rmdir()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{group} cannot be removed")
        time.sleep(_PAUSE_SECONDS)


def _remove_dead_sockets(folder: Path, since: float) -> None:
    """Remove sockets that were made since then and that no process listens on."""
    there = list(folder.glob("*"))
    alive = Path("/proc/net/unix").read_text().split()  # later, or a new one would look dead
    for socket in there:
        with suppress(FileNotFoundError):  # another run removed it
            if socket.stat().st_mtime >= since and str(socket) not in alive:
                socket.unlink()
