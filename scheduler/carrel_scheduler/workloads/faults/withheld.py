"""Devices that nobody may get because a task runs there that no live workload owns.

Such a task was told to end. Until the engine says that it has, its devices are reported to the core
as broken, so that no device is used twice.
"""

from collections.abc import Iterable
from dataclasses import replace

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import TaskId, TaskStatus


class Withheld:
    """Devices by the task that runs on them."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, tuple[str, frozenset[int]]] = {}

    def keep(self, task: TaskStatus, state: State) -> None:
        """Withhold the devices of a task."""
        if task.node and task.devices:
            self._tasks[task.id] = (task.node, frozenset(task.devices))
            self._tell(state, task.node, ())

    def ended(self, task: TaskId, state: State) -> None:
        """The task has ended; its devices may be used again."""
        found = self._tasks.pop(task, None)
        if found is not None:
            self._tell(state, *found)

    def on(self, node: str) -> frozenset[int]:
        """The devices of a node that are withheld."""
        if not self._tasks:
            return frozenset()
        return frozenset(
            device for name, devices in self._tasks.values() if name == node for device in devices
        )

    def added_to(self, event: NodeSet) -> NodeSet:
        """A node as the core is to be told of it."""
        there = frozenset(range(event.devices)) & self.on(event.name)
        return replace(event, broken_devices=event.broken_devices | there) if there else event

    def _tell(self, state: State, node: str, given_back: Iterable[int]) -> None:
        slot = state.nodes.slots.get(node)
        if slot is None:
            return
        fact = state.nodes.fact(slot)
        usable = replace(fact, broken_devices=fact.broken_devices - frozenset(given_back))
        told = self.added_to(usable)
        if told != fact:
            state.apply(told)
