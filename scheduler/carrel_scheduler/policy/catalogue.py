"""The model catalogue: entries that come along, and whether the nodes of here can hold one."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from carrel_schema.answers import DeviceView, NodeView
from carrel_schema.governance.catalogue import CatalogueEntry
from carrel_schema.governance.templates import TemplateFields, TemplateOut

KIND: Final = "inference"
MIB_OF_GIB: Final = 1024
RESERVED: Final = 0.97
"""The part of a GPU's memory in its data sheet that drivers show."""


@cache
def included() -> Mapping[str, TemplateFields]:
    """The entries that come along, by name."""
    text = resources.files(__package__).joinpath("catalogue.yaml").read_bytes()
    found = msgspec.yaml.decode(text, type=dict[str, TemplateFields])
    return {
        name: msgspec.structs.replace(one, kinds=[KIND], fields={"kind": KIND, **one.fields})
        for name, one in found.items()
    }


def entries(templates: Iterable[TemplateOut], nodes: Sequence[NodeView]) -> list[CatalogueEntry]:
    """The catalogue for a user of these templates; of equal names the narrowest scope counts.

    Args:
        templates: from the widest scope to the narrowest.
        nodes: of this installation.
    """
    found: dict[str, CatalogueEntry] = {
        name: _entry(name, "", one, nodes) for name, one in included().items()
    }
    for one in templates:
        if one.model is not None:
            found[one.name] = _entry(one.name, one.scope, one, nodes)
        else:
            found.pop(one.name, None)  # a template of that name is what a request would get
    return [found[name] for name in sorted(found)]


def _entry(
    name: str, scope: str, template: TemplateFields | TemplateOut, nodes: Sequence[NodeView]
) -> CatalogueEntry:
    model, fields = template.model, template.fields
    memory = 0.0 if model is None else model.gpu_memory_gib
    why = why_not(fields, memory, nodes)
    return CatalogueEntry(
        name=name,
        scope=scope,
        description=template.description,
        source="" if model is None else model.source,
        license="" if model is None else model.license,
        gpus=_gpus(fields),
        gpu_memory_gib=memory,
        image=str(fields.get("image") or ""),
        fields=fields,
        runs_here=not why,
        why_not=why,
    )


def _gpus(fields: Mapping[str, Any]) -> float:
    value = fields.get("gpus", 0)
    return float(value) if isinstance(value, int | float) else 0.0


def why_not(fields: Mapping[str, Any], memory_gib: float, nodes: Sequence[NodeView]) -> str:
    """The reason why no node can ever hold a replica, as a sentence; empty: one can."""
    gpus = _gpus(fields)
    if not gpus and not memory_gib:
        return ""
    wanted = max(1, round(gpus))
    of_each = f" with {memory_gib:g} GiB of memory" if memory_gib else ""
    plural = "GPUs" if wanted > 1 else "GPU"
    real = [[one for one in node.devices if _counts(one)] for node in nodes]
    largest = max((len(devices) for devices in real), default=0)
    needs = f"It needs {wanted} {plural}{of_each} on one node"
    if not largest:
        return f"{needs}; here are none."
    least = memory_gib * MIB_OF_GIB * RESERVED
    fitting = max(sum(1 for one in devices if one.memory_mib >= least) for devices in real)
    if fitting >= wanted:
        return ""
    if fitting or not memory_gib:
        return f"{needs}; no node has more than {fitting or largest}."
    most = max(one.memory_mib for devices in real for one in devices)
    return f"{needs}; the largest GPU here has {most / MIB_OF_GIB:.0f} GiB."


def _counts(device: DeviceView) -> bool:
    return not device.simulated and not device.broken
