"""A scheduler on a bench whose requests for nodes a hand answers in place of an autoscaler."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from carrel_scheduler.engines.external import ExternalEvents, ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.messages import AllReconciled, NodeSeen
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.pods.types import Node
from carrel_scheduler.engines.kubernetes.provisioning.messages import (
    EndRequest,
    RequestGone,
    RequestNodes,
    RequestOrder,
    RequestRefused,
    RequestSeen,
    RequestsKnown,
)
from carrel_scheduler.engines.kubernetes.provisioning.types import (
    ProvisioningRequest,
    ProvisioningSettings,
)
from carrel_scheduler.engines.kubernetes.provisioning.writing import request_manifest
from carrel_scheduler.ledger.records import Ledger
from unit.workloads.conftest import opened
from unit.workloads.harness import SchedulerHarness

SETTINGS = ProvisioningSettings("scale-up.example.org", most=2, delay_s=60.0)


def node(name: str, gpus: int, *, ready: bool = True, **labels: str) -> NodeSeen:
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
    told = {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
    return NodeSeen(msgspec.convert(told, Node))


class ScalingHarness(SchedulerHarness):
    """A harness with the API server's part of requests: they are made and deleted at once."""

    def __init__(self, ledger: Ledger, tmp_path: Path, gpus: int = 4) -> None:
        self.requests: dict[str, ProvisioningRequest] = {}
        self.asked: list[RequestNodes] = []
        self.refusal = ""
        self.numbers = 0
        super().__init__(ledger, tmp_path, gpus, self._pods)

    def _pods(self, access: ReconcilerAccess) -> ExternalPodReconciler:
        self.pods = ExternalPodReconciler(access, provisioning=SETTINGS)
        self.pods.send_request = self._take
        return self.pods

    async def begin(self, *news: Any) -> None:
        seen = [RequestSeen(one) for one in self.requests.values()]
        await self.hear(*news, AllReconciled(), *seen, RequestsKnown())

    async def hear(self, *news: Any) -> None:
        self.loop.enqueue(ExternalEvents(news))
        await self.settle()

    def _take(self, order: RequestOrder) -> None:
        match order:
            case RequestNodes():
                self.asked.append(order)
                if self.refusal:
                    news: Any = RequestRefused(order.uid, order.name, self.refusal)
                    self.loop.enqueue(ExternalEvents((news,)))
                elif order.name not in self.requests:
                    self.numbers += 1
                    body = request_manifest(order, SETTINGS)
                    body["metadata"] |= {"namespace": order.namespace, "uid": f"r{self.numbers}"}
                    self._put(msgspec.convert(body, ProvisioningRequest))
            case EndRequest():
                gone = self.requests.get(order.name)
                if gone is not None and gone.metadata.uid == order.request_uid:
                    del self.requests[order.name]
                    self.loop.enqueue(ExternalEvents((RequestGone(gone),)))

    def _put(self, request: ProvisioningRequest) -> None:
        self.requests[request.metadata.name] = request
        self.loop.enqueue(ExternalEvents((RequestSeen(request),)))

    async def answer(self, kind: str, message: str = "", *, status: str = "True") -> None:
        """The autoscaler sets a condition of all requests."""
        at = datetime.fromtimestamp(self.now, UTC).isoformat()
        for request in list(self.requests.values()):
            condition = {
                "type": kind,
                "status": status,
                "message": message,
                "lastTransitionTime": at,
            }
            told = {
                "metadata": msgspec.to_builtins(request.metadata),
                "status": {"conditions": [condition]},
            }
            self._put(msgspec.convert(told, ProvisioningRequest))
        await self.settle()
        await self.wait(2.0)

    async def why(self, uid: str) -> tuple[str, str]:
        reason = (await self.stored(uid)).status.reason
        assert reason is not None
        return reason.token, reason.sentence

    def names(self) -> list[str]:
        """The workloads that there are requests for."""
        marks = (one.metadata.annotations for one in self.requests.values())
        return sorted(one["carrel.dev/workload"] for one in marks)


@asynccontextmanager
async def scaling(
    empty_ledger: Path, tmp_path: Path, *news: Any, gpus: int = 0
) -> AsyncIterator[ScalingHarness]:
    """A scheduler whose one node ``desk`` has so many GPUs."""
    async with opened(empty_ledger, tmp_path, gpus, ScalingHarness) as harness:
        assert isinstance(harness, ScalingHarness)
        await harness.begin(node("desk", gpus), *news)
        yield harness
