"""Commands about one node and its GPUs: ``describe node``, ``node uncordon``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    fields,
    for_programs,
    say,
    show,
)
from carrel.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carrel.models import Device, Node

GPU_COLUMNS = ("GPU", "UUID", "UTILIZATION", "MEMORY", "POWER", "TEMPERATURE", "NUMA", "HEALTH")
GPU_NUMBERS = ("GPU", "UTILIZATION", "POWER", "TEMPERATURE", "NUMA")
GROUP_COLUMNS = ("GROUP", "NODES", "GPUs", "FREE", "GPU TYPES")
FARTHEST = 3
HOPS = {0: "NVLink", 1: "PCIe switch", 2: "same NUMA node", FARTHEST: "far"}
Name = Annotated[str, typer.Argument(metavar="NODE", help="The node.")]


def describe(name: Name, *, output: OutputOption = Output.TABLE) -> None:
    """Show a node in full: its GPUs, their health, how they are linked."""
    from carrel.cli.common import table

    with connected() as client:
        node = client.node(name)
    if for_programs(output):
        document(node, output)
        return
    fields(_facts(node))
    if node.devices:
        say()
        rows = [_row(device) for device in node.devices]
        table(GPU_COLUMNS, rows, title="GPUs:", right=GPU_NUMBERS)
    for device in node.devices:
        for one in device.instances:
            memory = f"{one.memory_used_mib / 1024:.1f} of {one.memory_mib / 1024:.1f} GiB"
            say(f"GPU {device.index}: instance {one.name} {one.uuid}, {memory} used")
    if node.links:
        say()
        headers = ("", *(f"GPU{device.index}" for device in node.devices))
        table(headers, _matrix(node), title="Links between GPUs:")


def list_groups(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List groups of nodes: how many nodes and GPUs are in each, and what is free."""
    with connected() as client:
        nodes = client.nodes()
    found: dict[str, list[Node]] = {}
    for node in nodes:
        if node.group:
            found.setdefault(node.group, []).append(node)
    groups = [_group(name, inside) for name, inside in sorted(found.items())]
    rows = ([str(value) for value in one.values()] for one in groups)
    show(groups, output, GROUP_COLUMNS, rows, no_headers=no_headers, right=GROUP_COLUMNS[1:4])


def _group(name: str, nodes: "Sequence[Node]") -> dict[str, Any]:
    gpus = sum(node.gpu_milli for node in nodes)
    free = gpus - sum(node.gpu_allocated_milli for node in nodes)
    models = {device.name for node in nodes for device in node.devices if device.name}
    return {
        "group": name,
        "nodes": len(nodes),
        "gpus": units.number(gpus / 1000),
        "free": units.number(free / 1000),
        "gpu_types": ", ".join(sorted(models)) or "-",
    }


def uncordon(
    gpu: Annotated[
        str, typer.Argument(metavar="NODE/GPU", help="A GPU by its number, as node-1/3.")
    ],
) -> None:
    """Return a GPU to service that health checks took out (administrators)."""
    node, _, index = gpu.rpartition("/")
    if not node or not index.isdecimal():
        raise BadSetting(f"{gpu!r} names no GPU: a node and a number are right, as node-1/3.")
    with connected() as client:
        client.uncordon(node, int(index))
    say(f"GPU {index} of {node} takes work again.")


def _facts(node: "Node") -> list[tuple[str, str]]:
    return [
        ("Name", node.name),
        ("Status", node.status.capitalize()),
        *([("Group", node.group)] if node.group else []),
        ("Driver", node.driver or ("simulated" if node.simulated else "-")),
        ("CPU", f"{node.cpu_allocated_milli / 1000:g} of {node.cpu_milli / 1000:g} allocated"),
        (
            "Memory",
            f"{units.memory(node.memory_allocated_bytes)} of {units.memory(node.memory_bytes)}",
        ),
        ("GPUs", f"{node.gpu_allocated_milli / 1000:g} of {node.gpu_milli / 1000:g} allocated"),
        *([("Fractions", node.fractions)] if node.fractions else []),
    ]


def _row(device: "Device") -> list[str]:
    memory = device.memory_used_mib
    used = "?" if memory is None else units.number(memory / 1024)
    trouble = device.message or "; ".join(device.conditions)
    return [
        str(device.index),
        device.uuid or "-",
        "-" if device.utilization is None else f"{device.utilization:.0%}",
        f"{used} of {units.number(device.memory_mib / 1024)} GiB",
        "-" if device.power_watts is None else f"{device.power_watts:.0f} W",
        "-" if device.temperature_c is None else f"{device.temperature_c} °C",
        "-" if device.numa_node is None else str(device.numa_node),
        f"broken: {trouble}" if device.broken else trouble or "good",
    ]


def _matrix(node: "Node") -> list[list[str]]:
    """The connections of each pair of GPUs, as `nvidia-smi topo -m` shows them."""
    near = {frozenset((link.first, link.second)): link.hops for link in node.links}
    indices = [device.index for device in node.devices]

    def between(one: int, other: int) -> str:
        if one == other:
            return "X"
        hops = near.get(frozenset((one, other)), FARTHEST)
        return HOPS.get(hops, f"{hops} hops")

    return [[f"GPU{one}", *(between(one, other) for other in indices)] for one in indices]
