"""A real Hub whose workspaces are pods of the tests' API server, without a node.

The scheduler is the fake one, and a thread stands in for what is not there: it binds pods as the
engine does, and says of them what a kubelet would; a small server answers in a workspace's place.
"""

import base64
import contextlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec
from typing_extensions import override

from benchmarks.ports import free_port
from carrel.testing import FakeScheduler
from carrel.testing.state import Refusal
from carrel_hub.kubernetes.settings import ClusterHubSettings
from carrel_hub.up.parts import ProcessPart, write_traefik
from contract.hub.stack import Stack
from k8s.cluster.plane import ControlPlane, Refused

NODE: Final = "node-1"
NETWORK: Final = "127.88.0"
QUICK: Final = {
    "settle_seconds": 0.1,
    "poll_interval": 1,
    "believed_seconds": 2,
    "http_timeout": 120,
    "k8s_api_request_timeout": 30,
    "k8s_api_request_retry_timeout": 120,
}
CONFIG: Final = """
from pathlib import Path
from carrel_hub.keys import Keys
from carrel_hub.kubernetes.config import install
from carrel_hub.kubernetes.settings import ClusterHubSettings
c = get_config()
install(c, ClusterHubSettings.load(Path({settings!r})), Keys.load_or_create(Path({keys!r})))
"""


class Cluster:
    """Engine and kubelet of workspaces' pods, in a thread."""

    def __init__(self, plane: ControlPlane, fake: FakeScheduler) -> None:
        self.plane, self.fake = plane, fake
        self.hold = False
        """Give nobody a place."""
        self.silent = False
        """Say nothing of pods."""
        self.port = free_port()
        """Where every workspace answers, each at an address of its own."""
        self._servers: dict[str, ThreadingHTTPServer] = {}
        self._told: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        """Begin to look after workloads and pods."""
        with contextlib.suppress(Refused):
            self.plane.ask("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        self._thread.start()

    def stop(self) -> None:
        """End everything that answers, and remove the pods."""
        self._end.set()
        self._thread.join(120)
        for pod in self.pods():
            self._remove(pod)
        with contextlib.suppress(Refused):
            self.plane.ask("DELETE", f"/api/v1/nodes/{NODE}")

    def pods(self) -> list[dict[str, Any]]:
        """The pods of workspaces."""
        found: list[dict[str, Any]] = self.plane.get(
            "/api/v1/pods?labelSelector=carrel.dev%2Fkind%3Dworkspace"
        )["items"]
        return found

    def pod(self) -> dict[str, Any]:
        """The only one there is."""
        (one,) = self.pods()
        return one

    def secret(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """The environment that a pod finds in its secret."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/secrets/{meta['name']}"
        data = self.plane.get(path)["data"]
        return {name: base64.b64decode(text).decode() for name, text in data.items()}

    def owner_of_secret(self, pod: Mapping[str, Any]) -> str:
        """The uid of what a pod's secret goes with."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/secrets/{meta['name']}"
        (owner,) = self.plane.get(path)["metadata"]["ownerReferences"]
        return str(owner["uid"])

    def secrets(self) -> list[str]:
        """Names of all secrets of workspaces."""
        path = "/api/v1/secrets?labelSelector=carrel.dev%2Fkind%3Dworkspace"
        return [one["metadata"]["name"] for one in self.plane.get(path)["items"]]

    def _loop(self) -> None:
        while not self._end.wait(0.1):
            # What is looked at may change or vanish between looking and doing.
            with contextlib.suppress(Refused, Refusal, KeyError, OSError):
                self._step()

    def _step(self) -> None:
        pods = self.pods()  # before the workloads: a pod is made at a place that is there already
        alive = {}
        for one in self.fake.workloads():
            phase = one["status"]["phase"]
            if phase == "pending" and not self.hold and not one["spec"].get("hold_for_claim"):
                self.fake.status(one["project"], one["name"], phase="starting")
            if phase in ("starting", "running"):
                alive[f"{one['uid']}-0-{one['status']['attempt']}"] = one
        for pod in pods:
            workload = alive.get(pod["metadata"]["labels"]["carrel.dev/task"])
            if workload is None or "deletionTimestamp" in pod["metadata"]:
                self._remove(pod)
            elif not self.silent:
                self._run(pod, workload)

    def _run(self, pod: dict[str, Any], workload: dict[str, Any]) -> None:
        path, uid = _path(pod), pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            body = {"metadata": {"name": pod["metadata"]["name"], "uid": uid}, "target": target}
            self.plane.ask("POST", f"{path}/binding", body)
        if uid in self._told:
            return
        if uid not in self._servers:
            address = f"{NETWORK}.{len(self._servers) + 1}"
            self._servers[uid] = _stub_server((address, self.port), self._environment(pod))
        address = str(self._servers[uid].server_address[0])
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": [
                {
                    "name": "notebook", "ready": True, "started": True, "restartCount": 0,
                    "image": "workspace", "imageID": "", "state": {"running": {}},
                }
            ],
        }  # fmt: skip
        self.plane.ask("PATCH", f"{path}/status", {"metadata": {"uid": uid}, "status": status})
        self.fake.run(workload["project"], workload["name"], node=NODE)
        self._told.add(uid)

    def _environment(self, pod: dict[str, Any]) -> dict[str, str]:
        container = pod["spec"]["containers"][0]
        shown = {one["name"]: one.get("value", "") for one in container["env"]}
        return shown | self.secret(pod)

    def _remove(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        server = self._servers.get(uid)
        if server is not None:
            server.shutdown()
            server.server_close()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        with contextlib.suppress(Refused):
            self.plane.ask("DELETE", _path(pod), body)


class ClusterStack(Stack):
    """The Hub as on a cluster, its workspaces in the project's namespaces."""

    def __init__(
        self, folder: Path, people: Mapping[str, list[str]], plane: ControlPlane, kubeconfig: Path
    ) -> None:
        super().__init__(folder, people)
        self.plane, self.kubeconfig = plane, kubeconfig
        self.cluster = Cluster(plane, self.fake)

    @override
    def __exit__(self, *arguments: object) -> None:
        self.cluster.stop()
        super().__exit__(*arguments)

    @override
    def begin_running(self) -> None:
        hub = self.parts["hub"]
        environment = {**hub.environment, "KUBECONFIG": str(self.kubeconfig)}
        self.parts["hub"] = ProcessPart(hub.name, hub.shown, hub.command, hub.log, environment)
        self.cluster.start()

    @override
    def write_config(self, config: Path, keys_file: Path) -> None:
        local, path = self.settings, self.settings.hub_dir / "hub.yaml"
        write_traefik(local)
        settings = ClusterHubSettings(
            public_url=local.public_url,
            hub_url=local.hub_url,
            proxy_api_url=f"http://127.0.0.1:{local.ports.proxy_api}",
            scheduler_url=local.scheduler_url,
            console_url=local.console_url,
            gateway_url=local.gateway_url,
            state_dir=local.state_dir,
            image="workspace",
            traits={
                "CarrelKubeSpawner": {**QUICK, "port": self.cluster.port},
                "JupyterHub": {"hub_bind_url": local.hub_url},
                "StoppedRoutes": {
                    "provider_name": "file",
                    "dynamic_config_file": str(local.routes_dir / "routes.yaml"),
                },
            },
        )
        path.write_bytes(msgspec.json.encode(settings, enc_hook=str))
        config.write_text(CONFIG.format(settings=str(path), keys=str(keys_file)))


def _path(pod: Mapping[str, Any]) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _stub_server(place: tuple[str, int], environment: Mapping[str, str]) -> ThreadingHTTPServer:
    """A server that answers every request with the environment that the workspace would have."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"environment": dict(environment), "path": self.path}).encode()
            self.send_response(200)
            self.send_header("X-JupyterHub-Version", "6.1.1")
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(place, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
