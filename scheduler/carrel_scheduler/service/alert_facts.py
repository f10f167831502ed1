"""The facts that alerts are decided on: the state of this process and of what is around it.

Around it are the disk, the front's certificate, other parts, and the last run of `carrel backup`.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509

from carrel_scheduler.alerts.conditions import Facts, QueueFacts
from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.gpu_series import GpuSeries
from carrel_schema.governance.health import LAST_BACKUP_FILE

log = logging.getLogger(__name__)
WINDOW_SECONDS: Final = 3600.0
MEASURED_SECONDS: Final = 1800.0
"""Work that was measured for less than this is not judged."""


@dataclass(frozen=True, slots=True)
class AlertSources:
    """Facts from outside the scheduler.

    Attributes:
        folder: on the disk that fills.
        engine: ``local`` or ``kubernetes``.
        certificate: of the front, a PEM file; ``None``: it has none here.
        trouble: what is in the way of all work, a sentence; empty: nothing.
        parts: why other parts gave no answer, by name; empty: they did.
    """

    folder: Path
    engine: str = "local"
    certificate: Path | None = None
    trouble: Callable[[], str] = str
    parts: Callable[[], Mapping[str, str]] = dict


class AlertFacts:
    """Gathers facts.

    Args:
        loop: whose state it is.
        live: the same, as people see it.
        sources: what is around it.
    """

    def __init__(self, loop: Reconciler, live: LiveState, sources: AlertSources) -> None:
        self._loop, self._live, self._sources = loop, live, sources

    def __call__(self) -> Facts:
        """The state of now."""
        loop, live, now = self._loop, self._live, time.time()
        faults, disk = live.faults(), self._disk()
        return Facts(
            now=now,
            nodes=live.nodes(),
            workloads=[entry.workload for entry in loop.cache],
            queues=self._queues(),
            mean_use={
                entry.uid: mean
                for entry in loop.cache
                if entry.workload.status.phase == "running"
                and (mean := mean_use(entry.gpu_series, now, gpus_of(entry))) is not None
            },
            lag_seconds=loop.inbox_age_seconds,
            disk_used=None if disk is None else 1.0 - disk[1] / disk[0],
            disk_free_bytes=None if disk is None else disk[1],
            set_aside=len(faults.set_aside) + len(faults.violated),
            certificate_ends=self._certificate_ends(),
            engine=self._sources.engine,
            trouble=self._sources.trouble(),
            parts=self._sources.parts(),
            backup_at=self._backup_at(),
        )

    def _queues(self) -> dict[str, QueueFacts]:
        found = {}
        for name, use in self._live.project_use().items():
            project = self._loop.cache.projects.get(name)
            quota = None if project is None else project.spec.quota.gpu_milli
            if quota is not None:
                found[name] = QueueFacts(quota, use.gpu_allocated_milli, use.gpu_waiting_milli)
        return found

    def _disk(self) -> tuple[int, int] | None:
        """Size and free space of the disk in bytes."""
        try:
            usage = shutil.disk_usage(self._sources.folder)
        except OSError:
            return None
        return (usage.total, usage.free) if usage.total else None

    def _backup_at(self) -> float | None:
        try:
            return float(
                msgspec.json.decode((self._sources.folder / LAST_BACKUP_FILE).read_bytes())
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            log.debug("when the last backup was made cannot be read: %s", error)
            return None

    def _certificate_ends(self) -> float | None:
        if self._sources.certificate is None:
            return None
        try:
            found = x509.load_pem_x509_certificate(self._sources.certificate.read_bytes())
        except (OSError, ValueError) as error:
            log.debug("the certificate of the front cannot be read: %s", error)
            return None
        return found.not_valid_after_utc.timestamp()


def gpus_of(entry: CachedWorkload) -> float:
    """GPUs of all tasks of a workload."""
    spec = entry.workload.spec
    return counted_gpu_milli(spec.resources) * spec.tasks / 1000


def mean_use(series: GpuSeries, now: float, gpus: float) -> float | None:
    """Utilization of one GPU over the last hour; ``None``: it was not measured for long enough."""
    if not gpus or series.length_seconds < MEASURED_SECONDS:
        return None
    mean = series.mean_since(now - WINDOW_SECONDS)
    return None if mean is None else mean / gpus
