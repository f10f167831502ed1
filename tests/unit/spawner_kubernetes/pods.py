"""A spawner of the Hub's that asks no cluster, and the pods that it makes."""

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient

from carrel.models import Workload, WorkloadSpec
from carrel_spawner.kubernetes.spawner import CarrelKubeSpawner
from carrel_spawner.workspace import Address

TOKEN = "a-token-of-ada"


def without_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """KubeSpawner looks for no cluster."""
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **_: None)
    monkeypatch.setattr("kubespawner.spawner.shared_client", lambda _: None)


def spawner(user: str = "ada", server: str = "", **settings: Any) -> Any:
    """A spawner of the Hub's, of somebody in two projects."""
    groups = [SimpleNamespace(name=f"project-{name}") for name in ("speech", "vision")]
    somebody = SimpleNamespace(
        name=user, id=7, url=f"/user/{user}/", groups=groups, escaped_name=user
    )
    hub = SimpleNamespace(
        public_host="", base_url="/hub/", api_url="http://hub:8081/hub/api", url="http://hub:8081/hub/"
    )  # fmt: skip
    usual = {"carrel_url": "http://scheduler:8080/services/carrel", "image": "lab/desk:1"}
    known = SimpleNamespace(name=server, server=None, state={}, user_options={})
    made: Any = CarrelKubeSpawner(
        _mock=True, user=somebody, hub=hub, orm_spawner=known, api_token=TOKEN,
        oauth_client_id="jupyterhub-user-ada", **usual, **settings,
    )  # fmt: skip
    return made


def workload(**spec: Any) -> Workload:
    usual: dict[str, Any] = {"gpus": 2.0, "cpu_millicores": 1500, "memory_bytes": 3 * 1024**3}
    return Workload(
        name="workspace-ada", project="vision", uid="4f0c", spec=WorkloadSpec(**usual | spec)
    )


async def manifest(one: Any, of: Workload | None = None) -> dict[str, Any]:
    """The pod as it would be sent."""
    found = of or workload()
    address = Address.of(found, 8888)
    one.take_address(address)
    one.address, one.placed = address, found
    api: Any = ApiClient.__new__(ApiClient)  # one that only writes JSON: no session, no TLS
    pod: dict[str, Any] = api.sanitize_for_serialization(await one.get_pod_manifest())
    return pod
