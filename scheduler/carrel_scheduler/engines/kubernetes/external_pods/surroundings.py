"""What is looked up beside pods: their owners, of any kind, and the projects of namespaces."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types import Namespace, Owned, Owner
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Forbidden, NotFound
from carrel_scheduler.kube.resources import Resource
from carrel_schema.names import NAMESPACE_PREFIX, PROJECT


class _Kind(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _Kinds(msgspec.Struct):
    resources: list[_Kind] = []


class OwnerLookup:
    """Gets owners by their references; the server says under which path each kind lives."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._kinds: dict[tuple[str, str], Resource] = {}

    async def __call__(self, owner: Owner, namespace: str) -> Owned | None:
        """The owner; ``None`` where there is none, or it may not be read."""
        try:
            resource = await self._resource(owner)
            if resource is None:
                return None
            where = namespace if resource.namespaced else ""
            return await self._client.get(resource, owner.name, where, type=Owned)
        except (NotFound, Forbidden):
            return None

    async def _resource(self, owner: Owner) -> Resource | None:
        key = (owner.api_version, owner.kind)
        if key not in self._kinds:
            group, _, version = owner.api_version.rpartition("/")
            root = f"/apis/{owner.api_version}" if group else f"/api/{version}"
            told = msgspec.json.decode(await self._client.raw("GET", root), type=_Kinds)
            for one in told.resources:
                if "/" not in one.name:
                    found = Resource(group, version, one.name, one.kind, one.namespaced)
                    self._kinds[owner.api_version, one.kind] = found
        return self._kinds.get(key)


class KnownProjects:
    """Projects by name, and those that namespaces belong to.

    Args:
        projects: by name, as the loop knows them.
        namespaces: gives them by uid, as the cluster shows them now.
    """

    def __init__(
        self, projects: Mapping[str, Any], namespaces: Callable[[], Mapping[str, Namespace]]
    ) -> None:
        self._projects = projects
        self._namespaces = namespaces

    def known(self, name: str) -> bool:
        """Whether there is a project of this name."""
        return name in self._projects

    def of_namespace(self, namespace: str) -> str:
        """The project that a namespace says it belongs to; empty where it says nothing."""
        if namespace.startswith(NAMESPACE_PREFIX):
            return namespace.removeprefix(NAMESPACE_PREFIX)
        for one in self._namespaces().values():
            if one.metadata.name == namespace:
                return one.metadata.labels.get(PROJECT, "")
        return ""
