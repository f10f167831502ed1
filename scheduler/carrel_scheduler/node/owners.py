"""Owners of the processes that a driver lists: a task of this machine, or a pod.

On one machine a process belongs to the task among whose descendants it is. On a node of a cluster
it belongs to the pod in whose control group it is: the kernel tells the group, and a process
cannot leave its pod's. A process that belongs to nobody known is told as ``None``, never guessed.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

import psutil

_POD: Final = re.compile(
    r"(?:.*[-_])?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?"
)
MOST_BYTES: Final = 16_384
KUBELET: Final = "kubepods"
PEOPLE: Final = "user.slice"
"""The folder in which people of the node name groups as they like."""
MOST_LEVELS: Final = 6
"""The depth at which pods' folders are looked for: ``kubepods.slice/kubepods-burstable.slice/...``,
and some levels more where the kubelet itself runs in a container."""


class ProcessOwners(Protocol):
    """Finds owners of processes."""

    def find(self, pids: Collection[int], roots: Collection[int]) -> Mapping[int, str | None]:
        """The owner of each process; ``roots`` are the first processes of this machine's tasks."""
        ...


class TaskOwners:
    """Owners are tasks: the process id of a task's first process, as text."""

    def find(self, pids: Collection[int], roots: Collection[int]) -> Mapping[int, str | None]:
        """See ``ProcessOwners``."""
        return {pid: self._root(pid, roots) for pid in pids}

    def _root(self, pid: int, roots: Collection[int]) -> str | None:
        if pid in roots:
            return str(pid)
        try:
            above = psutil.Process(pid).parents()
        except psutil.Error:  # it has ended
            return None
        return next((str(one.pid) for one in above if one.pid in roots), None)


class PodOwners:
    """Owners are pods: the uid of each.

    Args:
        proc: where the host's processes are listed.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, tuple[int, str | None]] = {}

    def find(self, pids: Collection[int], roots: Collection[int]) -> Mapping[int, str | None]:  # noqa: ARG002 - pods need no roots
        """See ``ProcessOwners``; a process is looked up once."""
        self._known = {pid: self._found(pid) for pid in pids}
        return {pid: owner for pid, (_, owner) in self._known.items()}

    def _found(self, pid: int) -> tuple[int, str | None]:
        began = self._began(pid)
        known = self._known.get(pid)
        if known is not None and known[0] == began:
            return known
        try:
            with (self._proc / str(pid) / "cgroup").open("rb") as file:
                text = file.read(MOST_BYTES).decode("utf-8", "replace")
        except OSError:  # it has ended
            return began, None
        return began, pod_of(text.splitlines())

    def _began(self, pid: int) -> int:
        """The start of a process, in ticks: a pid that is given again is another process."""
        try:
            text = (self._proc / str(pid) / "stat").read_bytes()
        except OSError:
            return -1
        fields = text.rpartition(b")")[2].split()
        return int(fields[19]) if len(fields) > 19 else -1


class PodGroups:
    """Control groups of pods, found by their folders.

    Args:
        system: where control groups of version 2 are mounted.
    """

    def __init__(self, system: Path) -> None:
        self._system = system

    def find(self, pods: Collection[str]) -> Mapping[str, Path]:
        """The folder of each of these pods that is there.

        It is looked for below the kubelet's folders alone, whose names have ``kubepods``, and
        not within pods: no folder that a pod makes can pose as another's.
        """
        found: dict[str, Path] = {}
        level = [self._system]
        for _ in range(MOST_LEVELS):
            below = [one for folder in level for one in _folders(folder)]
            level = []
            for one in below:
                pod = pod_of([f"0::/{one.name}"])
                if pod is None:
                    level.append(one)
                elif pod in pods and any(KUBELET in part for part in one.parent.parts):
                    found.setdefault(pod, one)
        return found


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and entry.name != PEOPLE
            ]
    except OSError:  # it was just removed
        return []


def pod_of(lines: Iterable[str]) -> str | None:
    """The pod of a process by its ``/proc/<pid>/cgroup``.

    The outermost folder that names a pod counts: whoever may make groups within their own pod can
    name those after another one.
    """
    for line in lines:
        path = line.split(":", 2)[-1]
        if path.startswith("/user.slice/"):  # people of the node name groups there as they like
            continue
        for part in path.split("/"):
            found = _POD.fullmatch(part)
            if found:
                return found[1].replace("_", "-")
    return None
