"""Classes of equal requests, by number.

Everything that is kept per request (capacity on every node, reasons, keys of the node choice) is
kept per class, so ten thousand equal tasks cost what one costs. Numbers are handed out in the
order of first sight and never change their meaning. A class counts its waiting tasks; only while
there are some does it occupy a column of the capacity rows, so ``changed`` lists the classes whose
first task came or whose last one left.
"""

from dataclasses import dataclass
from enum import IntEnum

from carrel_scheduler.core.devices.shares import share_of_memory
from carrel_scheduler.core.mig import Model, model_of, smallest_profile
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, Triple


class GpuForm(IntEnum):
    """The form of a request for GPUs."""

    NONE = 0
    WHOLE = 1
    SHARE = 2
    MEMORY = 3
    MIG = 4


@dataclass(frozen=True, slots=True)
class GpuKind:
    """The GPU part of a request: few kinds serve many classes.

    Attributes:
        amount: whole devices, thousandths of each device, or MiB of each device, by form.
        devices: how many devices a share is taken of.
        profile: of a MIG instance.
        types: of devices that will do, where those of a node are unlike; ``None``: any.
    """

    form: GpuForm
    amount: int = 0
    devices: int = 1
    profile: str = ""
    types: frozenset[str] | None = None


NO_GPU = GpuKind(GpuForm.NONE)


def gpu_kind(request: Request) -> GpuKind:
    """The GPU form of a request, with its amount; a request uses at most one."""
    asked = request.where.device_types
    types = None if asked is None else frozenset[str]().union(*asked)
    if request.gpus:
        return GpuKind(GpuForm.WHOLE, request.gpus, types=types)
    if request.share_milli:
        return GpuKind(GpuForm.SHARE, request.share_milli, request.devices, types=types)
    if request.gpu_memory_mib:
        return GpuKind(GpuForm.MEMORY, request.gpu_memory_mib, request.devices, types=types)
    if request.mig_profile:
        return GpuKind(GpuForm.MIG, 1, 1, request.mig_profile, types=types)
    return NO_GPU


def _share_of(kind: GpuKind, memory_mib: int, mig_model: str) -> int:
    """Thousandths of each GPU that a need takes where GPUs are like this; 0 where it can not."""
    if kind.form is GpuForm.WHOLE:
        return MILLI
    if kind.form is GpuForm.NONE:
        return 0
    if mig_model:
        return _instance_milli(kind, model_of(mig_model))
    if kind.form is GpuForm.SHARE:
        return kind.amount
    if kind.form is GpuForm.MEMORY:
        return share_of_memory(kind.amount, memory_mib)
    return 0


def _instance_milli(kind: GpuKind, model: Model) -> int:
    """The thousandths of the MIG instance for a need on a model; 0 where there is none."""
    if kind.form is GpuForm.MIG:
        profile = model.profiles.get(kind.profile)
    elif kind.form is GpuForm.MEMORY and kind.devices == 1:
        profile = smallest_profile(model, kind.amount)
    else:
        return 0
    return profile.milli if profile is not None else 0


class Classes:
    """The classes seen so far.

    Attributes:
        requests, kinds: by class number.
        waiting: by class number, how many waiting tasks retain it.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self.requests: list[Request] = []
        self.kinds: list[GpuKind] = []
        self.waiting: list[int] = []
        self._numbers: dict[Request, int] = {}
        self._hosts: dict[int, tuple[int, ...]] = {}
        self._changed: list[int] = []

    def __len__(self) -> int:
        return len(self.requests)

    def intern(self, request: Request) -> int:
        """The class of a request, new if need be."""
        number = self._numbers.get(request)
        if number is None:
            number = self._numbers[request] = len(self.requests)
            self.requests.append(request)
            self.kinds.append(gpu_kind(request))
            self.waiting.append(0)
            self.host(number)
        return number

    def request(self, class_id: int) -> Request:
        """The resource request of the tasks of a class."""
        return self.requests[class_id]

    def takes_gpu(self, class_id: int) -> bool:
        """Whether tasks of the class hold GPUs."""
        return self.kinds[class_id].form is not GpuForm.NONE

    def host(self, class_id: int) -> tuple[int, ...]:
        """The amount of each host row that a task takes, up to the last row that it asks for."""
        found = self._hosts.get(class_id)
        if found is None:
            request = self.requests[class_id]
            amounts = [request.cpu_milli, request.memory_mib]
            for name, amount in request.extended:
                row = self._nodes.host_row(name)
                amounts += [0] * (row + 1 - len(amounts))
                amounts[row] = amount
            found = self._hosts[class_id] = tuple(amounts)
        return found

    def clearing_kind(self, class_id: int) -> tuple[int, int, int, int]:
        """Devices, thousandths of each, millicores and MiB of a task.

        More than 1000 thousandths where they depend on the node.
        """
        request, kind = self.requests[class_id], self.kinds[class_id]
        size = MILLI if kind.form in (GpuForm.NONE, GpuForm.WHOLE) else MILLI + 1
        if kind.form is GpuForm.SHARE:
            size = kind.amount
        return self.devices(class_id), size, request.cpu_milli, request.memory_mib

    def devices(self, class_id: int) -> int:
        """The number of devices that a task holds."""
        kind = self.kinds[class_id]
        if kind.form is GpuForm.NONE:
            return 0
        return kind.amount if kind.form is GpuForm.WHOLE else kind.devices

    def share_on(self, class_id: int, nodes: NodeColumns, slot: int) -> int:
        """Thousandths of each of its devices that a task takes on a node; 0 where it can not."""
        fact = nodes.fact(slot)
        return _share_of(self.kinds[class_id], fact.gpu_memory_mib, fact.mig_model)

    def on_nodes(self, class_id: int) -> bool:
        """Whether the amount that a task of the class takes depends on the node."""
        return self.kinds[class_id].form in (GpuForm.MEMORY, GpuForm.MIG)

    def amounts(self, class_id: int) -> Triple:
        """The amounts that a task counts against quotas before its place is known.

        A need that depends on the node counts as what it takes at most on the nodes that are known
        now; as a whole GPU when no node can serve it.
        """
        request, kind = self.requests[class_id], self.kinds[class_id]
        if self.on_nodes(class_id):
            each = max((_share_of(kind, *gpu) for gpu in self._nodes.hardware), default=0)
            gpu = (each or MILLI) * kind.devices
        elif kind.form is GpuForm.WHOLE:
            gpu = kind.amount * MILLI
        else:
            gpu = kind.amount * kind.devices
        return (gpu + request.counted_milli, request.cpu_milli, request.memory_mib)

    def retain(self, class_id: int, tasks: int = 1) -> None:
        """Count further waiting tasks of the class."""
        if not self.waiting[class_id]:
            self._changed.append(class_id)
        self.waiting[class_id] += tasks

    def release(self, class_id: int, tasks: int = 1) -> None:
        """Count tasks of the class that wait no longer; ``ValueError`` below zero."""
        left = self.waiting[class_id] - tasks
        if left < 0:
            raise ValueError(f"class {class_id}: {tasks} released, {left + tasks} waiting")
        self.waiting[class_id] = left
        if not left:
            self._changed.append(class_id)

    def take_changed(self) -> list[int]:
        """Classes that began or ceased to wait since the last call, each once, in order."""
        changed = list(dict.fromkeys(self._changed))
        self._changed.clear()
        return changed
