"""Kinds of objects as the API server knows them, and the paths that lead to them.

A path is made of names that come from users; each is quoted, so none leaves its place in the path.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects.

    Attributes:
        group: of the API, as ``batch``; empty for the core group.
        version: of the group, as ``v1``.
        plural: as in paths, ``pods``.
        kind: as in manifests, ``Pod``.
        namespaced: whether its objects live in namespaces.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """The path of one object, of its sub-resource, or of all objects.

        Args:
            namespace: empty for all namespaces; ignored where the kind has none.
            name: empty for the collection.
            sub: sub-resource of the object, as ``status`` or ``binding``.

        Raises:
            ValueError: a sub-resource without a name, a name without its namespace, or a name
                that would be another path.
        """
        if sub and not name:
            raise ValueError(f"name: {name!r} is not a name; {self.plural}/{sub} needs one")
        if name and self.namespaced and not namespace:
            raise ValueError(f"namespace: {namespace!r} is not a namespace; {self.kind} needs one")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{_part(namespace)}" if self.namespaced and namespace else ""
        one = f"/{_part(name)}" if name else ""
        below = f"/{_part(sub)}" if sub else ""
        return f"{root}{within}/{self.plural}{one}{below}"


def _part(name: str) -> str:
    if name in {".", ".."}:
        raise ValueError(f"name: {name!r} is not a name of an object")
    return quote(name, safe="")


CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PERSISTENT_VOLUME_CLAIMS: Final = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"
)
PERSISTENT_VOLUMES: Final = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False
)
PODS: Final = Resource("", "v1", "pods", "Pod")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SERVICES: Final = Resource("", "v1", "services", "Service")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
"""The newer group of events: the API server shows the same objects in ``v1`` too."""
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_DISRUPTION_BUDGETS: Final = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"
)
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
STORAGE_CLASSES: Final = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False
)
