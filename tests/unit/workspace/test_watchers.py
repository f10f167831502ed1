"""Listening at kernels and terminals, with stand-ins for the server's managers."""

from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import Session

from carrel.workspace.activity import ActivityTracker
from carrel.workspace.watchers import KernelWatcher, TerminalWatcher


class Stream:
    """Stands for a kernel's published messages."""

    def __init__(self) -> None:
        self.is_closed = False

    def on_recv(self, receive: Any) -> None:
        self.receive = receive

    def close(self) -> None:
        self.is_closed = True

    def closed(self) -> bool:
        return self.is_closed


class Kernel:
    def __init__(self) -> None:
        self.session = Session(key=b"secret")
        self.iopub_port, self.execution_state, self.last_activity = 5000, "idle", 1
        self.streams: list[Stream] = []

    def connect_iopub(self) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def publish(self, kind: str, content: dict[str, Any], parent: dict[str, Any] | None) -> None:
        message = self.session.msg(kind, content=content, parent=parent)
        frames = self.session.serialize(message, ident=b"kernel.status")
        self.streams[-1].receive(frames)


class Manager:
    def __init__(self, **kernels: Kernel) -> None:
        self.kernels = kernels

    def list_kernel_ids(self) -> list[str]:
        return list(self.kernels)

    def get_kernel(self, kernel_id: str) -> Kernel:
        return self.kernels[kernel_id]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def watched(kernel: Kernel) -> tuple[KernelWatcher, ActivityTracker, list[str], Manager]:
    tracker, changes, manager = ActivityTracker(), list[str](), Manager(k1=kernel)
    watcher = KernelWatcher(manager, tracker, lambda: 7.0, lambda: changes.append("changed"))
    watcher.refresh()
    return watcher, tracker, changes, manager


Watched = tuple[KernelWatcher, ActivityTracker, list[str], Manager]


def test_hears_an_execution_begin_and_end(kernel: Kernel, watched: Watched) -> None:
    _, tracker, changes, _ = watched
    request = kernel.session.msg("execute_request")
    kernel.publish("status", {"execution_state": "busy"}, request)
    heard = [tracker.busy_since]
    kernel.publish("stream", {"text": "x" * 1000}, request)
    kernel.publish("status", {"execution_state": "idle"}, request)
    assert [*heard, tracker.busy_since] == [7.0, None]
    assert changes == ["changed", "changed"]


def test_unreadable_messages_are_passed_over(kernel: Kernel, watched: Watched) -> None:
    kernel.streams[-1].receive([b"<IDS|MSG>", b"not signed", b"not json"])
    assert watched[1].busy_since is None


def test_forged_messages_are_not_believed(kernel: Kernel, watched: Watched) -> None:
    forger = Session(key=b"another")
    request = forger.msg("execute_request")
    message = forger.msg("status", content={"execution_state": "busy"}, parent=request)
    kernel.streams[-1].receive(forger.serialize(message))
    assert watched[1].busy_since is None


def test_looking_twice_listens_once(kernel: Kernel, watched: Watched) -> None:
    watched[0].refresh()
    assert len(kernel.streams) == 1


def test_listens_again_when_ports_change(kernel: Kernel, watched: Watched) -> None:
    kernel.iopub_port = 6000
    watched[0].refresh()
    assert [stream.is_closed for stream in kernel.streams] == [True, False]


def test_lets_go_of_a_kernel_that_ended(kernel: Kernel, watched: Watched) -> None:
    watcher, tracker, _, manager = watched
    tracker.execution_started("k1", "r", 1.0)
    del manager.kernels["k1"]
    watcher.refresh()
    assert kernel.streams[0].is_closed
    assert tracker.busy_since is None
    assert tracker.kernels == frozenset()


def test_waits_for_a_kernel_that_is_still_starting() -> None:
    starting = Kernel()
    starting.iopub_port = 0
    KernelWatcher(Manager(k1=starting), ActivityTracker(), lambda: 0.0, lambda: None).refresh()
    assert starting.streams == []


def test_finds_what_began_before_it_listened() -> None:
    kernel, tracker = Kernel(), ActivityTracker()
    kernel.execution_state = "busy"
    watcher = KernelWatcher(Manager(k1=kernel), tracker, lambda: 3.0, lambda: None)
    watcher.refresh()
    found = [tracker.busy_since]
    request = kernel.session.msg("execute_request")
    kernel.publish("status", {"execution_state": "idle"}, request)
    assert [*found, tracker.busy_since] == [3.0, None]
    assert tracker.last_input_at == 3.0


def test_finds_a_silent_computation_whose_begin_was_lost(kernel: Kernel, watched: Watched) -> None:
    watcher, tracker, changes, _ = watched
    kernel.execution_state = "busy"
    found = []
    for kernel.execution_state in ("busy", "busy", "idle"):
        watcher.refresh()
        found.append(tracker.busy_since)
    assert found == [None, 7.0, None]
    assert changes == ["changed", "changed"]


def test_busy_with_the_messages_of_widgets_is_not_found(kernel: Kernel, watched: Watched) -> None:
    watcher, tracker, _, _ = watched
    for kernel.last_activity in range(2, 12):
        kernel.execution_state = "busy"
        watcher.refresh()
    assert tracker.busy_since is None


def test_a_manager_that_keeps_no_times_is_not_believed(kernel: Kernel, watched: Watched) -> None:
    watcher, tracker, _, _ = watched
    del kernel.last_activity
    kernel.execution_state = "busy"
    for _ in range(3):
        watcher.refresh()
    assert tracker.busy_since is None


def test_idle_server_state_does_not_end_what_was_heard(kernel: Kernel, watched: Watched) -> None:
    watcher, tracker, _, _ = watched
    kernel.publish("status", {"execution_state": "busy"}, kernel.session.msg("execute_request"))
    watcher.refresh()
    assert tracker.busy_since == 7.0


def test_keys_count_and_output_does_not() -> None:
    typed: list[str] = []
    written: list[str] = []
    process = SimpleNamespace(write=written.append, read=lambda: "output")
    manager = SimpleNamespace(terminals={"1": SimpleNamespace(ptyproc=process)})
    watcher = TerminalWatcher(manager, lambda: typed.append("key"))
    watcher.refresh()
    watcher.refresh()
    assert typed == ["key"]  # opening it
    process.read()
    assert typed == ["key"]
    process.write("l")
    assert (typed, written) == (["key", "key"], ["l"])
    assert watcher.count == 1


def test_server_without_terminals() -> None:
    watcher = TerminalWatcher(None, lambda: None)
    watcher.refresh()
    assert watcher.count == 0
