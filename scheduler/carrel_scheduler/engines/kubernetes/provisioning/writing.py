"""Creates and deletes requests for nodes, and follows their status.

A request is made before its templates, which it owns: they go when it goes. What was made before
an answer was lost is found there; a request whose templates are missing gets them with the next
start of the scheduler.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.external import ExternalEvents
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
    OURS,
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    ProvisioningRequest,
    ProvisioningSettings,
    template_name,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_schema import names

log = logging.getLogger(__name__)
Deliver = Callable[[ExternalEvents], None]
PAUSES: Final = Pauses(1.0, 15.0)


class RequestWriter:
    """See the module. ``put`` queues an order; ``run`` carries orders out.

    Args:
        client: of the API server.
        settings: class and parameters of requests.
        deliver: delivers events to the reconciler.
    """

    def __init__(
        self, client: KubeClient, settings: ProvisioningSettings, deliver: Deliver
    ) -> None:
        self._client, self._settings, self._deliver = client, settings, deliver
        self._orders: asyncio.Queue[RequestOrder] = asyncio.Queue()

    def put(self, order: RequestOrder) -> None:
        """Take an order."""
        self._orders.put_nowait(order)

    def feed(self) -> Feed[ProvisioningRequest]:
        """A new feed of all requests of ours."""
        return Feed(self._client, PROVISIONING_REQUESTS, ProvisioningRequest, label_selector=OURS)

    async def watch(self, feed: Feed[ProvisioningRequest]) -> None:
        """Deliver every request and each change, until the feed is closed."""
        subscription = feed.subscribe()
        while changes := await subscription.batch():
            news: list[RequestSeen | RequestGone | RequestsKnown] = []
            for change in changes:
                if change.kind is ChangeKind.SYNCED:
                    news.append(RequestsKnown())
                elif change.kind is ChangeKind.DELETED:
                    news.append(RequestGone(change.object))
                else:
                    news.append(RequestSeen(change.object))
            self._deliver(ExternalEvents(tuple(news)))

    async def run(self) -> None:
        """Carry orders out until cancelled, one after the other."""
        while True:
            order, tries = await self._orders.get(), 0
            while not await self._done(order):
                await asyncio.sleep(PAUSES.after(tries))
                tries += 1

    async def _done(self, order: RequestOrder) -> bool:
        """Carry out one order; ``False`` if it has to be retried."""
        try:
            match order:
                case RequestNodes():
                    await self._make(order)
                case EndRequest():
                    await self._delete(order)
        except (Unavailable, TooManyRequests):
            return False
        except KubeError as error:
            self._refused(order, str(error))
        except Exception as error:
            log.exception("request for nodes %s failed", order.name)
            self._refused(order, repr(error))
        return True

    def _refused(self, order: RequestOrder, text: str) -> None:
        log.warning("request for nodes %s/%s: %s", order.namespace, order.name, text)
        if isinstance(order, RequestNodes):
            self._deliver(ExternalEvents((RequestRefused(order.uid, order.name, text),)))

    async def _make(self, order: RequestNodes) -> None:
        made = await self._made(
            PROVISIONING_REQUESTS, order.namespace, request_manifest(order, self._settings)
        )
        owner = {
            "apiVersion": PROVISIONING_REQUESTS.api_version,
            "kind": PROVISIONING_REQUESTS.kind,
            "name": order.name,
            "uid": made.metadata.uid,
            "controller": True,
        }
        for number, manifest in enumerate(template_manifests(order)):
            body = {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}
            try:
                await self._client.create(POD_TEMPLATES, body, order.namespace)
            except AlreadyExists:
                log.debug("template %d of %s is there already", number, order.name)

    async def _made(
        self, resource: Any, namespace: str, manifest: dict[str, Any]
    ) -> ProvisioningRequest:
        try:
            return await self._client.create(
                resource, manifest, namespace, type=ProvisioningRequest
            )
        except AlreadyExists:
            name = manifest["metadata"]["name"]
            return await self._client.get(resource, name, namespace, type=ProvisioningRequest)

    async def _delete(self, order: EndRequest) -> None:
        try:
            await self._client.delete(
                PROVISIONING_REQUESTS,
                order.name,
                order.namespace,
                uid=order.request_uid,
                propagation="Background",
            )
        except (NotFound, Conflict) as error:
            log.debug("request for nodes %s is gone already: %s", order.name, error)


def _metadata(order: RequestNodes, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {
            names.MADE_BY: names.MADE_BY_US,
            names.WORKLOAD_UID: names.label(order.uid),
        },
        "annotations": {names.WORKLOAD: order.workload, names.WORKLOAD_UID: order.uid},
    }


def request_manifest(order: RequestNodes, settings: ProvisioningSettings) -> dict[str, Any]:
    """The manifest of the request."""
    sets = [
        {"podTemplateRef": {"name": template_name(order.name, number)}, "count": one.count}
        for number, one in enumerate(order.sets)
    ]
    given = {"parameters": dict(settings.parameters)} if settings.parameters else {}
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": _metadata(order, order.name),
        "spec": {"provisioningClassName": settings.class_name, "podSets": sets, **given},
    }


def template_manifests(order: RequestNodes) -> list[dict[str, Any]]:
    """The manifests of the request's templates, without their owner."""
    return [
        {
            "apiVersion": POD_TEMPLATES.api_version,
            "kind": POD_TEMPLATES.kind,
            "metadata": _metadata(order, template_name(order.name, number)),
            "template": {"metadata": {"labels": dict(one.labels)}, "spec": one.spec},
        }
        for number, one in enumerate(order.sets)
    ]
