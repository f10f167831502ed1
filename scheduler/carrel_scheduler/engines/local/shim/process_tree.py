"""The processes of a task, including those that left its session.

The supervisor is a subreaper: a descendant whose parent dies becomes its child, so its process
tree and the task's control groups together hold everything the task ever started. A process is
named by (pid, start time), because pids are used again.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

Process = tuple[int, int]
REMOVAL_TRIES = 50


def stat_fields(pid: int) -> list[str]:
    """``/proc/<pid>/stat`` from the state on (field 3 of the manual); empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def boot_id() -> str:
    """The id of this boot of the machine; pids of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123 - pathlib is slow to load
        return file.read().strip()


def start_time(pid: int) -> int:
    """The time at which a process started, in clock ticks since boot; 0 when gone or a zombie."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else 0


def environment(pid: int) -> list[bytes]:
    """The environment of a process; empty when it is gone or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
            return file.read().split(b"\0")
    except OSError:
        return []


def descendants(ancestor: int) -> list[Process]:
    """Living descendants of a process, parents first."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to load
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append((int(name), int(fields[19])))
    found: list[Process] = []
    queue = [ancestor]
    while queue:
        of_this = children.get(queue.pop(0), [])
        found += of_this
        queue += [pid for pid, _ in of_this]
    return found


def members(groups: Sequence[str]) -> list[Process]:
    """Living processes in the control groups."""
    found: set[int] = set()
    for group in groups:
        try:
            with open(f"{group}/cgroup.procs") as file:  # noqa: PTH123 - pathlib is slow to load
                found.update(int(line) for line in file)
        except OSError:
            continue  # the group is gone, and so are its members
    started = [(pid, start_time(pid)) for pid in sorted(found) if pid != os.getpid()]
    return [process for process in started if process[1]]


def send(process: Process, number: int) -> None:
    """Send a signal to a process; no effect if it is gone."""
    pid, started = process
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_time(pid) == started:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return  # gone, or it became another account's and the group's end is what is left
    finally:
        os.close(handle)


def remove_groups(groups: Sequence[str]) -> None:
    """Remove control groups whose members are gone, and the group above with the last one.

    A group that stays busy is reported on standard error.
    """
    for group in groups:
        for _ in range(REMOVAL_TRIES):
            try:
                os.rmdir(group)  # noqa: PTH106 - pathlib is slow to load
            except FileNotFoundError:
                break
            except OSError as error:
                complaint = f"{group} stays: {error}\n"
                time.sleep(0.01)
            else:
                break
        else:
            sys.stderr.write(complaint)
        with contextlib.suppress(OSError):  # other tasks are in it, or one of them removed it
            os.rmdir(os.path.dirname(group))  # noqa: PTH106, PTH120 - pathlib is slow to load


def count_oom_kills(files: Sequence[str]) -> int:
    """The number of processes of these groups that the kernel killed for lack of memory."""
    total = 0
    for path in files:
        try:
            with open(path) as file:  # noqa: PTH123 - pathlib is slow to load
                pairs = [line.split() for line in file]
        except OSError:
            continue  # no such group: no such count
        total += sum(int(pair[1]) for pair in pairs if pair[0] == "oom_kill")
    return total
