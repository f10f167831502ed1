"""The nodes and devices as the API shows them, with the work on them: from memory."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from carrel_scheduler.core import views
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.external import ExternalPods, NodeHealth
from carrel_scheduler.engines.mig_resources import held_milli
from carrel_scheduler.node.contract import Device, DeviceUse, MigInstance, NodeFacts
from carrel_scheduler.workloads.nodes import health
from carrel_scheduler.workloads.nodes.device_records import NOT_SHOWN
from carrel_scheduler.workloads.nodes.devices import NodeState, WithheldDevices
from carrel_scheduler.workloads.state.cache import (
    WorkloadCache,
)
from carrel_schema.answers import (
    DeviceHolder,
    DeviceLinkView,
    DeviceView,
    MigInstanceView,
    NodeView,
)
from carrel_schema.names import NODE_GROUP


class NodeViews:
    """Views of the nodes of one scheduler.

    Args:
        cache: of workloads and projects.
        nodes: the known nodes by name.
        external_pods: what holds devices beside the workloads.
        withheld: devices that health checks have cordoned.
        now: the time, in the clock of ``nodes``.
    """

    def __init__(
        self,
        cache: WorkloadCache,
        nodes: Mapping[str, NodeState],
        external_pods: ExternalPods,
        withheld: WithheldDevices,
        now: float,
    ) -> None:
        self._cache, self._nodes, self._now = cache, nodes, now
        self._external_pods, self._withheld = external_pods, withheld

    def of(self, found: Iterable[views.NodeSnapshot]) -> Sequence[NodeView]:
        """The views of these nodes, with their devices."""
        return [self._node(view) for view in found]

    def _node(self, view: views.NodeSnapshot) -> NodeView:
        known = self._nodes.get(view.name)
        facts = _facts(view) if known is None else known.facts
        told = {device.index: device for device in facts.devices}
        hardware = [told.get(shown.index) or _untold(shown) for shown in view.devices]
        if known is not None:
            hardware = [known.hardware(device) for device in hardware]
        devices = tuple(
            self._device(known, device, shown)
            for device, shown in zip(hardware, view.devices, strict=True)
        )
        there = [shown for shown, device in zip(devices, hardware, strict=True) if not device.lost]
        free = sum(1 for device in view.devices if device.free_milli == MILLI and not device.broken)
        return NodeView(
            name=view.name,
            status=self._status(view, known),
            group=dict(view.labels).get(NODE_GROUP, ""),
            simulated=facts.simulated,
            driver=facts.driver,
            fractions=facts.fractions,
            cpu_milli=view.cpu_milli,
            cpu_allocated_milli=view.cpu_allocated_milli,
            memory_bytes=view.memory_mib * MIB,
            memory_allocated_bytes=view.memory_allocated_mib * MIB,
            gpu_milli=len(there) * MILLI + held_milli((name, n) for name, n, _ in view.extended),
            gpu_allocated_milli=sum(device.allocated_milli for device in there)
            + held_milli((name, n) for name, _, n in view.extended),
            largest_free_gpus=free,
            devices=devices,
            links=tuple(
                DeviceLinkView(first=link.first, second=link.second, hops=link.hops)
                for link in facts.links
            ),
        )

    def _status(self, view: views.NodeSnapshot, known: NodeState | None) -> str:
        standing = self._external_pods.node_health(view.name)
        if known is None or standing is NodeHealth.GONE:
            return "lost"
        return "ready" if view.schedulable else "cordoned"

    def _device(
        self, node: NodeState | None, device: Device, shown: views.DeviceSnapshot
    ) -> DeviceView:
        use = node.fresh_use(device.index, self._now) if node else None
        sick = self._withheld.cordons.of(node.facts.name, device.index) if node else ()
        holders = [
            _with_use(holder, use, alone=len(shown.holders) == 1)
            for one in shown.holders
            if (holder := self._holder(one.uid, one.gpu_milli, releasing=one.releasing)) is not None
        ]
        if shown.reserved_for:
            promised = self._holder(shown.reserved_for, MILLI, releasing=False)
            holders += [promised] if promised is not None else []
        return DeviceView(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            memory_mib=device.memory_mib,
            memory_used_mib=use.memory_used_mib if use else None,
            utilization=use.utilization if use and use.known else None,
            power_watts=use.power_watts if use else None,
            temperature_c=use.temperature_c if use else None,
            read_at=node.read_at if node and use else None,
            numa_node=device.numa_node if device.numa_node >= 0 else None,
            simulated=device.simulated,
            broken=device.broken or bool(sick),
            message=device.message or health.in_words(sick),
            conditions=tuple(one.message for one in device.conditions),
            instances=tuple(_instance(one) for one in device.instances),
            allocated_milli=sum(one.gpu_milli for one in shown.holders),
            idle_since=node.idle_since.get(device.index) if node else None,
            holders=tuple(holders),
        )

    def _holder(self, uid: str, gpu_milli: int, *, releasing: bool) -> DeviceHolder | None:
        entry = self._cache.get(uid)
        if entry is None:
            external_pods, book = self._external_pods, self._cache
            return external_pods.holder(
                uid, gpu_milli, releasing=releasing, color_of=partial(color_of, book)
            )
        meta, spec, status = entry.workload.meta, entry.workload.spec, entry.workload.status
        state = "releasing" if releasing else "running"
        return DeviceHolder(
            uid=uid,
            name=meta.name,
            project=meta.project,
            user=spec.user,
            kind=spec.kind,
            gpu_milli=gpu_milli,
            borrowed=status.borrowed,
            state=state if entry.holding else "held",
            since=status.started_at or status.queued_at or meta.created_at,
            color=color_of(self._cache, meta.project),
        )


def _with_use(holder: DeviceHolder, use: DeviceUse | None, *, alone: bool) -> DeviceHolder:
    """The use by a holder's own processes; the only holder of a device has all of its use."""
    if use is None:
        return holder
    own = next((one for one in use.owners if one.owner == holder.uid), None)
    if own is not None:
        work, memory = own.utilization, own.memory_used_mib
    elif alone and not use.owners:
        work, memory = use.utilization if use.known else None, use.memory_used_mib
    else:
        return holder
    return msgspec.structs.replace(holder, utilization=work, memory_used_mib=memory)


def _instance(one: MigInstance) -> MigInstanceView:
    return MigInstanceView(
        uuid=one.uuid,
        name=one.name,
        memory_mib=one.memory_mib,
        memory_used_mib=one.memory_used_mib,
    )


def _facts(view: views.NodeSnapshot) -> NodeFacts:
    """The facts of a missing node on which work is still recorded."""
    return NodeFacts(
        name=view.name,
        cpu_milli=view.cpu_milli,
        memory_mib=view.memory_mib,
        devices=tuple(_untold(shown) for shown in view.devices),
        simulated=False,
    )


def _untold(shown: views.DeviceSnapshot) -> Device:
    """A device on which work is recorded, although its node does not report it."""
    return Device(
        index=shown.index,
        uuid="",
        name="GPU",
        memory_mib=0,
        simulated=False,
        broken=True,
        lost=True,
        message=NOT_SHOWN,
    )


def color_of(cache: WorkloadCache, project: str) -> int | None:
    """The color of a project; ``None`` without one."""
    found = cache.projects.get(project)
    return None if found is None else found.spec.color
