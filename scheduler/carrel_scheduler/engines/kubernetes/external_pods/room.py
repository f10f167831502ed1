"""Finding a place in the core for a pod that is bound already: its devices, or others as good."""

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import TaskPlaced
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.kubernetes.external_pods.members import Member


def knows_node(state: State, node: str) -> bool:
    """Whether the core has a node of this name."""
    return node in state.nodes.slots


def place_found(
    state: State, uid: str, index: int, member: Member, request: Request, at: float
) -> tuple[int, ...] | None:
    """Have the core take a bound pod in; returns its devices, ``None`` when there is no room.

    Bindings by others name no devices, and two of them may claim the same; then any free ones do:
    a device that is counted wrongly is better than one that is counted twice.
    """
    for devices in _choices(state, member, request):
        try:
            state.apply(TaskPlaced(uid, index, member.node, devices, at))
        except InvalidEvent:
            continue
        return devices
    return None


def _choices(state: State, member: Member, request: Request) -> list[tuple[int, ...]]:
    choices = [] if member.devices is None else [member.devices]
    others = free_devices(state, member.node, request)
    return choices if others is None else [*choices, others]


def free_devices(state: State, node: str, request: Request) -> tuple[int, ...] | None:
    """The first devices of a node with room for a request; ``None`` when there are too few."""
    count, share = devices_wanted(request)
    slot = state.nodes.slots[node]
    free = state.nodes.free.devices[: int(state.nodes.devices[slot]), slot]
    found = tuple(index for index, left in enumerate(free.tolist()) if left >= share)
    return found[:count] if len(found) >= count else None


def devices_wanted(request: Request) -> tuple[int, int]:
    """How many devices, and how much of each in thousandths.

    A share that is asked for in memory is looked for on devices that nobody uses.
    """
    if request.share_milli:
        return request.devices, request.share_milli
    if request.gpu_memory_mib:
        return request.devices, MILLI
    return (1 if request.mig_profile else request.gpus), MILLI
