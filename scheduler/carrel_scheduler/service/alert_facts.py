"""What alerts are decided on: the state of this process, its disk and the front's certificate."""

import logging
import shutil
import time
from pathlib import Path
from typing import Final

from cryptography import x509

from carrel_scheduler.alerts.conditions import Facts, QueueFacts
from carrel_scheduler.workloads.reconcile.live import LiveView
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.gpu_series import GpuSeries

log = logging.getLogger(__name__)
WINDOW_SECONDS: Final = 3600.0
MEASURED_SECONDS: Final = 1800.0
"""Work that was measured for less than this is not judged."""


class AlertFacts:
    """Gathers facts.

    Args:
        loop: whose state it is.
        live: the same, as people see it.
        folder: on the disk that fills.
        certificate: of the front, a PEM file; ``None``: it has none here.
    """

    def __init__(
        self, loop: Reconciler, live: LiveView, folder: Path, certificate: Path | None
    ) -> None:
        self._loop, self._live = loop, live
        self._folder, self._certificate = folder, certificate

    def __call__(self) -> Facts:
        """The state of now."""
        loop, live, now = self._loop, self._live, time.time()
        faults = live.faults()
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
            disk_used=self._disk_used(),
            set_aside=len(faults.set_aside) + len(faults.violated),
            certificate_ends=self._certificate_ends(),
        )

    def _queues(self) -> dict[str, QueueFacts]:
        found = {}
        for name, use in self._live.project_use().items():
            project = self._loop.cache.projects.get(name)
            quota = None if project is None else project.spec.quota.gpu_milli
            if quota is not None:
                found[name] = QueueFacts(quota, use.gpu_allocated_milli, use.gpu_waiting_milli)
        return found

    def _disk_used(self) -> float | None:
        try:
            usage = shutil.disk_usage(self._folder)
        except OSError:
            return None
        return 1.0 - usage.free / usage.total if usage.total else None

    def _certificate_ends(self) -> float | None:
        if self._certificate is None:
            return None
        try:
            found = x509.load_pem_x509_certificate(self._certificate.read_bytes())
        except (OSError, ValueError) as error:
            log.debug("the certificate of the front cannot be read: %s", error)
            return None
        return found.not_valid_after_utc.timestamp()


def gpus_of(entry: CachedWorkload) -> float:
    """GPUs of all tasks of a workload."""
    spec = entry.workload.spec
    return shape.gpu_milli_of(spec.resources) * spec.tasks / 1000


def mean_use(series: GpuSeries, now: float, gpus: float) -> float | None:
    """Utilization of one GPU over the last hour; ``None``: it was not measured for long enough."""
    if not gpus or series.length_seconds < MEASURED_SECONDS:
        return None
    mean = series.mean_since(now - WINDOW_SECONDS)
    return None if mean is None else mean / gpus
