"""Definitions of groups of nodes as custom resources, written for people who use REST.

Whoever may change these objects with kubectl does not need this; it carries changes of people whom
the cluster does not know. A change names the version that it was decided on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from typing_extensions import override

from carrel_scheduler.engines.kubernetes.pods.types import NodeGroup
from carrel_scheduler.engines.node_group_store import NodeGroupStore, StoredNodeGroup
from carrel_scheduler.kube import errors
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.resources.kinds import NODE_GROUP
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.groups import NodeGroupSpec

RESOURCE = NODE_GROUP.resource


class ResourceNodeGroups(NodeGroupStore):
    """The node groups of a cluster; ``client`` needs the right to write them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    @override
    async def all(self) -> Sequence[StoredNodeGroup]:
        with _as_ledger_errors(""):
            found = (await self._client.list(RESOURCE, NodeGroup)).items
        return [_stored(one) for one in sorted(found, key=lambda one: one.metadata.name)]

    @override
    async def create(self, name: str, spec: NodeGroupSpec, actor: str) -> StoredNodeGroup:
        body = {
            "apiVersion": RESOURCE.api_version,
            "kind": RESOURCE.kind,
            "metadata": {"name": name},
            "spec": msgspec.to_builtins(spec),
        }
        with _as_ledger_errors(name):
            return _stored(await self._client.create(RESOURCE, body, type=NodeGroup))

    @override
    async def replace(
        self, name: str, spec: NodeGroupSpec, actor: str, version: str | None = None
    ) -> StoredNodeGroup:
        with _as_ledger_errors(name):
            there = await self._client.get(RESOURCE, name, type=NodeGroup)
            wanted: dict[str, Any] = msgspec.to_builtins(spec)
            gone = there.spec.match_labels.keys() - spec.match_labels.keys()
            wanted["matchLabels"] = {**wanted["matchLabels"], **dict.fromkeys(gone)}
            seen = version or there.metadata.resource_version
            body = {"metadata": {"resourceVersion": seen}, "spec": wanted}
            return _stored(await self._client.patch(RESOURCE, name, body, type=NodeGroup))

    @override
    async def delete(self, name: str) -> None:
        with _as_ledger_errors(name):
            await self._client.delete(RESOURCE, name)


@contextmanager
def _as_ledger_errors(name: str) -> Iterator[None]:
    """Raise errors of the API server as errors of the ledger."""
    try:
        yield
    except errors.NotFound:
        raise ObjectNotFound("NodeGroup", name) from None
    except errors.AlreadyExists:
        raise ObjectExists("NodeGroup", name) from None
    except errors.Conflict as error:
        raise VersionConflict(str(error)) from error
    except errors.Unavailable as error:
        raise LedgerUnavailable(str(error)) from error


def _stored(group: NodeGroup) -> StoredNodeGroup:
    return StoredNodeGroup(group.metadata.name, group.spec, group.metadata.resource_version)
