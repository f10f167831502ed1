"""GPUs as DCGM's exporter tells of them, for nodes where the driver's library cannot be loaded.

It names the pod that a device was given to, so its use counts as that pod's; pods that share a
device all have the whole. Whose use it is remains unknown where it names nobody, as often with
claims, or only the pod that holds a shared GPU: then that of all work which may have the device. Of
health it tells the last Xid only.
"""

import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts, OwnerUse
from carrel_scheduler.node.health import UNKNOWN_TIME, HealthChecks, HealthFacts
from carrel_schema.names import RESERVATIONS_NAMESPACE

UTILIZATION: Final = "DCGM_FI_DEV_GPU_UTIL"
ENGINE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
USED, FREE, RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
POWER: Final = "DCGM_FI_DEV_POWER_USAGE"
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
XID: Final = "DCGM_FI_DEV_XID_ERRORS"
MOST_BYTES: Final = 8 << 20
SECONDS: Final = 5.0


class DcgmUnavailable(Exception):  # noqa: N818 - an outcome of a look
    """The exporter does not answer, or not with metrics."""


class _Gpu(msgspec.Struct):
    uuid: str
    name: str = ""
    values: dict[str, float] = {}
    pods: set[str] = set()
    divided: bool = False


class DcgmProvider:
    """The devices of a node; see ``node.contract.DeviceProvider``.

    Args:
        node: facts of the machine itself, without devices.
        url: of the exporter's metrics, as ``http://127.0.0.1:9400/metrics``.
        clock: epoch seconds.
    """

    def __init__(self, node: NodeFacts, url: str, clock: Callable[[], float]) -> None:
        self._node, self._url, self._clock = node, url, clock
        self._checks: dict[str, HealthChecks] = {}
        self._xids: dict[str, int] = {}
        self._found: dict[int, _Gpu] = {}

    def facts(self) -> NodeFacts:
        """The facts and the use of the machine's GPUs, of one look. Raises ``DcgmUnavailable``."""
        self._found = read(self._fetch())
        devices = tuple(self._device(index, gpu) for index, gpu in sorted(self._found.items()))
        return msgspec.structs.replace(self._node, devices=devices)

    def _device(self, index: int, gpu: _Gpu) -> Device:
        checks = self._checks.setdefault(gpu.uuid, HealthChecks())
        if XID in gpu.values:
            self._follow_xid(gpu.uuid, int(gpu.values[XID]), checks)
        memory = sum(gpu.values.get(name, 0.0) for name in (USED, FREE, RESERVED))
        return Device(
            index=index,
            uuid=gpu.uuid,
            name=gpu.name.removeprefix("NVIDIA "),
            memory_mib=int(memory),
            simulated=False,
            conditions=checks.check(HealthFacts(), self._clock()),
        )

    def _follow_xid(self, uuid: str, code: int, checks: HealthChecks) -> None:
        """Report a change: the gauge keeps the last code, and at the first look it may be old."""
        before = self._xids.get(uuid)
        if code and code != before:
            checks.report_xid(code, UNKNOWN_TIME if before is None else self._clock())
        self._xids[uuid] = code

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:  # noqa: ARG002 - pods are named
        """Use of every device."""
        return [_use(index, gpu) for index, gpu in sorted(self._found.items())]

    def _fetch(self) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self._url, timeout=SECONDS) as answer:
                content: bytes = answer.read(MOST_BYTES)
        except OSError as error:
            raise DcgmUnavailable(f"{self._url}: {error}") from error
        return content.decode("utf-8", "replace")


def read(text: str) -> dict[int, _Gpu]:
    """The GPUs by number. Raises ``DcgmUnavailable`` for text that is no metrics."""
    found: dict[int, _Gpu] = {}
    try:
        for family in text_string_to_metric_families(text):
            if not family.name.startswith("DCGM_FI_"):
                continue
            for sample in family.samples:
                _take(found, sample.name, sample.labels, sample.value)
    except ValueError as error:
        raise DcgmUnavailable(f"the exporter's answer is no metrics: {error}") from error
    return found


def _take(found: dict[int, _Gpu], name: str, labels: Mapping[str, str], value: float) -> None:
    index, uuid = labels.get("gpu", ""), labels.get("UUID", "")
    if not index.isdecimal() or not uuid or value != value:
        return
    gpu = found.setdefault(int(index), _Gpu(uuid, labels.get("modelName", ""), {}, set()))
    if labels.get("GPU_I_ID"):
        gpu.divided = True
    gpu.values[name] = max(value, gpu.values.get(name, value))
    if labels.get("pod") and labels.get("namespace", "") not in ("", RESERVATIONS_NAMESPACE):
        gpu.pods.add(f"{labels['namespace']}/{labels['pod']}")


def _use(index: int, gpu: _Gpu) -> DeviceUse:
    work = gpu.values.get(UTILIZATION)
    share = gpu.values.get(ENGINE) if work is None else work / 100
    known = share is not None and not gpu.divided
    busy = min(1.0, max(0.0, share or 0.0))
    memory = int(gpu.values.get(USED, 0.0))
    return DeviceUse(
        index=index,
        utilization=busy,
        known=known,
        memory_used_mib=memory,
        power_watts=gpu.values.get(POWER),
        temperature_c=int(gpu.values[TEMPERATURE]) if TEMPERATURE in gpu.values else None,
        owners=tuple(
            OwnerUse(owner=pod, utilization=busy if known else None, memory_used_mib=memory)
            for pod in sorted(gpu.pods)
        ),
        attributed=known and (bool(gpu.pods) or not busy),
    )
