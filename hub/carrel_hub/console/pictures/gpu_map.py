"""The map of all GPUs: one row a node, one cell a device.

A cell is filled by share, left to right, in the colours of the projects that hold it: solid inside
their guarantee, hatched when borrowed, dashed when held for somebody who is about to start, crossed
when broken. What the picture shows also stands below it in words, with links.
"""

from collections.abc import Callable

from markupsafe import Markup

from carrel.models import Device, Holder, Node
from carrel_hub.console import format as fmt
from carrel_hub.console.pictures.palette import css_class
from carrel_hub.console.pictures.svg import element, percent

WHOLE = 1000
_HEIGHT = 26

Link = Callable[[str, str], str]


def gpu_map(nodes: list[Node], link: Link, now: float) -> Markup:
    """A picture of all nodes and their GPUs.

    Args:
        nodes: as the API tells them.
        link: address of a workload's page from project and name.
        now: epoch seconds, for how long a device has been idle.
    """
    rows = [_row(node, link, now) for node in nodes]
    return element("div", *rows, class_="gpu-map")


def node_facts(node: Node) -> str:
    """A node's description and use, as one line."""
    facts = [] if node.status in {"", "ready"} else [node.status]
    models: dict[str, int] = {}
    for device in node.devices:
        label = f"{device.name or 'GPU'}, {fmt.gib(device.memory_mib * 1024**2)}"
        models[label] = models.get(label, 0) + 1
    facts += [f"{count} × {label}" for label, count in models.items()]  # noqa: RUF001 - times is meant
    if node.simulated or any(device.simulated for device in node.devices):
        facts.append("simulated GPUs")
    if node.devices:
        used = fmt.number(node.gpu_allocated_milli / WHOLE)
        facts.append(f"{used} of {fmt.gpus(node.gpu_milli / WHOLE)} in use")
    else:
        facts.append("no GPU")
    facts.append(
        f"{fmt.number(node.cpu_allocated_milli / 1000)} of {fmt.cpus(node.cpu_milli)} in use"
    )
    facts.append(
        f"{fmt.number(node.memory_allocated_bytes / fmt.GIB)} of {fmt.gib(node.memory_bytes)}"
        " memory in use"
    )
    return " · ".join(facts)


def device_sentence(device: Device) -> str:
    """The text of a cell, for screen readers and for hovering."""
    if device.broken:
        return f"GPU {device.index} is broken" + (f": {device.message}" if device.message else "")
    parts = [_holding(holder) for holder in device.holders]
    free = _free(device)
    if free:
        parts.append("free" if not device.holders else f"{_share(free)} free")
    simulated = ", simulated" if device.simulated else ""
    return f"GPU {device.index}{simulated}: " + "; ".join(parts)


def _row(node: Node, link: Link, now: float) -> Markup:
    cells = [_cell(device, link, now) for device in node.devices]
    return element(
        "section",
        element("h2", node.name),
        element("p", node_facts(node), class_="quiet"),
        element("ul", *cells, class_="gpu-cells") if cells else "",
        class_="gpu-node",
    )


def _cell(device: Device, link: Link, now: float) -> Markup:
    sentence = device_sentence(device)
    picture = element(
        "svg",
        element("title", sentence),
        element("desc", _details(device)),
        *_shapes(device),
        class_="gpu-cell",
        role="img",
        width="100%",
        height=_HEIGHT,
    )
    return element(
        "li",
        picture,
        element("span", str(device.index), class_="gpu-index"),
        _words(device, link, now),
    )


def _shapes(device: Device) -> list[Markup]:
    shapes = [_rect(0, WHOLE, "gpu-frame")]
    start = 0
    for holder in device.holders:
        shapes += _held(holder, start) if holder.state == "held" else _used(holder, start)
        start += holder.gpu_milli
    if device.broken:
        shapes += [
            element("line", x1=0, y1=0, x2="100%", y2=_HEIGHT, class_="gpu-cross"),
            element("line", x1=0, y1=_HEIGHT, x2="100%", y2=0, class_="gpu-cross"),
        ]
    return shapes


def _used(holder: Holder, start: int) -> list[Markup]:
    shapes = [_rect(start, holder.gpu_milli, f"gpu-used {_color(holder)}")]
    if holder.borrowed:
        shapes.append(_rect(start, holder.gpu_milli, "hatched", fill="url(#hatch)"))
    if holder.state == "releasing":
        shapes.append(_rect(start, holder.gpu_milli, "gpu-releasing"))
    return shapes


def _held(holder: Holder, start: int) -> list[Markup]:
    return [_rect(start, holder.gpu_milli, f"gpu-held {_color(holder)}", inset=2)]


def _rect(start: int, length: int, class_: str, fill: str | None = None, inset: int = 0) -> Markup:
    return element(
        "rect",
        x=percent(start, WHOLE),
        y=1 + inset,
        width=percent(length, WHOLE),
        height=_HEIGHT - 2 - 2 * inset,
        class_=class_,
        fill=fill,
    )


def _words(device: Device, link: Link, now: float) -> Markup:
    if device.broken:
        told = f"broken: {device.message}" if device.message else "broken"
        return element("span", told, class_="gpu-words failed")
    lines = [_holder_words(holder, link) for holder in device.holders]
    free = _free(device)
    if free:
        lines.append(
            element("span", "free" if not lines else f"{_share(free)} free", class_="quiet")
        )
    busy = _busy(device, now)
    if busy:
        lines.append(element("span", busy, class_="quiet"))
    return element("span", *lines, class_="gpu-words")


def _busy(device: Device, now: float) -> str:
    """The utilization of a device in words; empty where it is unknown or simulated without work."""
    since = [holder.since for holder in device.holders if holder.state != "held"]
    if not since or (device.simulated and not device.utilization):
        return ""
    if device.idle_since is None:
        work = device.utilization
        busy = "use not measured" if work is None else f"{fmt.share(work)} busy"
        return " · ".join([busy, *_memory(device)])
    # It may have been idle before its present holders came: that is not theirs.
    idle = f"idle for {fmt.duration(now - max(device.idle_since, *since))}"
    return " · ".join([idle, *_memory(device)])


def _memory(device: Device) -> list[str]:
    """``12 GiB of 24 GiB memory used``, where it is measured."""
    if device.memory_used_mib is None:
        return []
    used, whole = device.memory_used_mib * 1024**2, device.memory_mib * 1024**2
    return [f"{fmt.gib(used)} of {fmt.gib(whole)} memory used"]


def _holder_words(holder: Holder, link: Link) -> Markup:
    name: str = holder.project
    if holder.name:
        address = link(holder.project, holder.name)
        name = element("a", holder.name, href=address, title=f"{holder.project}/{holder.name}")
    notes = []
    if holder.gpu_milli < WHOLE:
        notes.append(_share(holder.gpu_milli))
    if holder.borrowed:
        notes.append("borrowed")
    notes += {"held": ["held"], "releasing": ["preempting"]}.get(holder.state, [])
    note = element("span", " ", " · ".join(notes), class_="quiet") if notes else ""
    return element("span", name, note)


def _holding(holder: Holder) -> str:
    who = f"{holder.project}/{holder.name}" if holder.name else f"a member of {holder.project}"
    verb = {"held": "held for", "releasing": "preempting:"}.get(holder.state, "used by")
    amount = "" if holder.gpu_milli >= WHOLE else f"{_share(holder.gpu_milli)} "
    borrowed = " (borrowed)" if holder.borrowed else ""
    return f"{amount}{verb} {who}{borrowed}"


def _details(device: Device) -> str:
    parts = ["use not measured"]
    if device.utilization is not None:
        parts = [f"{fmt.share(device.utilization)} busy"]
    parts += _memory(device)
    if device.power_watts is not None:
        parts.append(f"{device.power_watts:.0f} W")
    if device.temperature_c is not None:
        parts.append(f"{device.temperature_c} °C")
    return f"{device.name or 'GPU'}: " + ", ".join([*parts, *device.conditions])


def _free(device: Device) -> int:
    return max(WHOLE - sum(holder.gpu_milli for holder in device.holders), 0)


def _share(milli: int) -> str:
    return fmt.number(milli / WHOLE)


def _color(holder: Holder) -> str:
    """The color of the project; grey for a deleted one."""
    return "p-other" if holder.color is None else css_class(holder.color)
