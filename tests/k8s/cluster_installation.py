"""The whole product on a node of the tests: Hub, proxy and scheduler as processes, work in pods.

Pods reach the Hub and the scheduler at the host's address on their network; people reach the proxy
on loopback. Volumes are folders of this machine, as an admin of a small cluster makes them.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self
from urllib.error import URLError
from urllib.parse import urlsplit

import msgspec

from benchmarks.ports import free_ports
from carrel import Client
from carrel.errors import CarrelError
from carrel_hub import scopes, services
from carrel_hub.accounts.store import AccountStore
from carrel_hub.front import traefik
from carrel_hub.front.provided import PROVIDED_PATH
from carrel_hub.front.traefik import find_traefik
from carrel_hub.keys import Keys
from carrel_hub.kubernetes.settings import ClusterHubSettings
from contract.hub.stack import wait_until
from k8s import access
from k8s.cluster.node import Node
from k8s.cluster.plane import Refused

PASSWORD: Final = "correct-horse-battery"
PASSED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV")
CLAIMS: Final = {"carrel-checkpoints": True, "project": False}
"""Claims of every project, and whether they are made before the Hub makes them."""
CONFIG: Final = "from carrel_hub.kubernetes.config import load\nload(get_config())\n"
START_SECONDS: Final = 300.0
END_SECONDS: Final = 180.0


class ClusterInstallation:
    """The running product; a context manager that removes everything at the end.

    Args:
        people: whose accounts there are, and the projects they are in.
        quotas: GPUs that projects are guaranteed.
        images: of workspaces, and of jobs.
    """

    def __init__(
        self,
        node: Node,
        folder: Path,
        people: Mapping[str, list[str]],
        quotas: Mapping[str, float],
        images: tuple[str, str],
    ) -> None:
        self.node, self.plane, self.folder = node, node.plane, folder
        self.people, self.quotas, self.images = people, quotas, images
        self.keys = Keys.generate()
        self.passwords = dict.fromkeys(people, PASSWORD)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._volumes: list[str] = []
        self._settle()

    def _settle(self) -> None:
        """Addresses of all parts."""
        here = self.node.address
        hub, scheduler, proxy_api, public, console, gateway = free_ports(6)
        self.settings = ClusterHubSettings(
            public_url=f"http://127.0.0.1:{public}",
            hub_url=f"http://{here}:{hub}",
            proxy_api_url=f"http://127.0.0.1:{proxy_api}",
            scheduler_url=f"http://{here}:{scheduler}",
            console_url=f"http://127.0.0.1:{console}",
            gateway_url=f"http://127.0.0.1:{gateway}",
            state_dir=self.folder / "hub-state",
            image=self.images[0],
            demo=True,
            traits={
                "JupyterHub": {"hub_bind_url": f"http://{here}:{hub}"},
                "CarrelKubeSpawner": {
                    "image_pull_policy": "Never",
                    "poll_interval": 2,
                    "k8s_api_request_timeout": 30,
                    "k8s_api_request_retry_timeout": 120,
                    "default_cpu": 0.2,
                    "default_memory_gib": 1.0,
                    "environment": {"CARREL_DEMO_SECONDS_PER_EPOCH": "0.8"},
                },
            },
        )

    @property
    def url(self) -> str:
        """The public URL."""
        return self.settings.public_url

    def __enter__(self) -> Self:
        try:
            self._prepare()
            for name in ("proxy", "hub", "scheduler"):
                self.start(name)
            self._found()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if "scheduler" in self._processes:
            with suppress(CarrelError, AssertionError):  # what is left then goes with the cluster
                self._end_all_work()
        for name in reversed(list(self._processes)):
            self.stop(name)
        for project in self.quotas:
            with suppress(Refused):
                self.plane.ask("DELETE", f"/api/v1/namespaces/carrel-{project}")
        for name in self._volumes:
            with suppress(Refused):
                self.plane.ask("DELETE", f"/api/v1/persistentvolumes/{name}")

    def _end_all_work(self) -> None:
        with self.client(self.keys.setup) as admin:
            for one in admin.list_workloads():
                admin.delete_workload(one.project, one.name)
            wait_until(lambda: not admin.list_workloads(), END_SECONDS, "the end of all work")

    def _prepare(self) -> None:
        self.settings.accounts_file.parent.mkdir(parents=True)
        accounts = AccountStore(self.settings.accounts_file)
        for name, projects in self.people.items():
            accounts.add(name, PASSWORD, joins=projects)
        (self.folder / "keys").mkdir(mode=0o700)
        for name, key in msgspec.structs.asdict(self.keys).items():
            (self.folder / "keys" / name).write_text(key)
        (self.folder / "hub.yaml").write_bytes(msgspec.json.encode(self.settings, enc_hook=str))
        (self.folder / "jupyterhub_config.py").write_text(CONFIG)
        access.give(self.plane)
        for account in ("hub", "scheduler"):
            access.kubeconfig(self.plane, f"carrel-{account}", self._access(account))
        for project in self.quotas:
            access.project_namespace(self.plane, project)
            users = [user for user, projects in self.people.items() if project in projects]
            self._provide(project, [*CLAIMS, *(f"home-{user}" for user in users)])

    def _provide(self, project: str, claims: Iterable[str]) -> None:
        """Volumes for a project's claims; the folders belong to everybody, as fsGroup has it."""
        for claim in claims:
            namespace, name = f"carrel-{project}", f"{self.folder.name}-{project}-{claim}"
            path = self.volume(project, claim)
            path.mkdir(parents=True)
            path.chmod(0o777)
            modes = ["ReadWriteOnce", "ReadWriteMany"]
            spec = {
                "capacity": {"storage": "100Gi"},
                "accessModes": modes,
                "hostPath": {"path": str(path)},
                "claimRef": {"namespace": namespace, "name": claim},
                "persistentVolumeReclaimPolicy": "Retain",
            }
            volume = {"metadata": {"name": name}, "spec": spec}
            access.make(self.plane, "/api/v1/persistentvolumes", volume)
            self._volumes.append(name)
            if CLAIMS.get(claim):
                wanted = {
                    "metadata": {"name": claim},
                    "spec": {
                        "accessModes": ["ReadWriteMany"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
                access.make(
                    self.plane, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", wanted
                )

    def _access(self, part: str) -> Path:
        return self.folder / f"{part}-kubeconfig.json"

    def volume(self, project: str, claim: str) -> Path:
        """The folder of a claim's files on this machine."""
        return self.folder / "volumes" / project / claim

    def _found(self) -> None:
        """The projects, once everything answers."""
        wait_until(self._hub_answers, START_SECONDS, "the Hub")
        wait_until(self._scheduler_answers, START_SECONDS, "the scheduler")
        with self.client(self.keys.setup) as admin:
            for name, gpus in self.quotas.items():
                admin.create_project({"name": name, "quota": {"gpus": gpus}})

    def client(self, token: str) -> Client:
        """The scheduler as the owner of a token sees it."""
        return Client(self.settings.api_url, token)

    def start(self, name: str) -> None:
        """Start a part: ``proxy``, ``hub`` or ``scheduler``."""
        command, told = getattr(self, f"_{name}")()
        base = {one: os.environ[one] for one in PASSED if one in os.environ}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env={**base, **told}, cwd=self.folder, stdout=log, stderr=log
            )

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop a part and wait for its end."""
        process = self._processes.pop(name)
        process.send_signal(number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)

    def log(self, name: str) -> str:
        """The log of a part."""
        return (self.folder / f"{name}.log").read_text()

    def _proxy(self) -> tuple[list[str], dict[str, str]]:
        listening = traefik.Listening(
            public=urlsplit(self.url).netloc, internal=urlsplit(self.settings.proxy_api_url).netloc
        )
        routes = f"{self.settings.hub_url}/hub{PROVIDED_PATH}"
        found = traefik.configuration(listening, traefik.from_hub(routes, self.keys.proxy))
        file = self.folder / "traefik.yaml"
        file.write_bytes(msgspec.json.encode(found))
        return [find_traefik(), f"--configFile={file}"], {}

    def _hub(self) -> tuple[list[str], dict[str, str]]:
        config = str(self.folder / "jupyterhub_config.py")
        told = {
            "CARREL_HUB_SETTINGS": str(self.folder / "hub.yaml"),
            "CARREL_KEYS_DIR": str(self.folder / "keys"),
            "KUBECONFIG": str(self._access("hub")),
        }
        return [sys.executable, "-m", "carrel_hub.hub_process", "-f", config], told

    def _scheduler(self) -> tuple[list[str], dict[str, str]]:
        state = self.folder / "scheduler"
        state.mkdir(exist_ok=True)
        told = services.service_environment(self.settings, self.keys, scopes.SCHEDULER)
        told |= services.carrel_environment(self.settings, scopes.SCHEDULER)
        told |= {
            "CARREL_STATE_DIR": str(state),
            "CARREL_ENGINE": "kubernetes",
            "KUBECONFIG": str(self._access("scheduler")),
            "CARREL_NAMESPACE": access.SYSTEM,
            "CARREL_TASK_API_URL": self.settings.api_url,
            "CARREL_TASK_IMAGE": self.images[1],
            "CARREL_TASK_PULL_POLICY": "Never",
        }
        return services.commands()[scopes.SCHEDULER], told

    def _hub_answers(self) -> bool:
        self._still("hub")
        return self._answers(f"{self.url}/hub/api/", {})

    def _scheduler_answers(self) -> bool:
        self._still("scheduler")
        headers = {"Authorization": f"token {self.keys.setup}"}
        return self._answers(f"{self.settings.api_url}/api/v1/nodes", headers)

    def _answers(self, url: str, headers: Mapping[str, str]) -> bool:
        try:
            request = urllib.request.Request(url, headers=dict(headers))
            with urllib.request.urlopen(request, timeout=20) as answer:
                found = json.load(answer)
        except (URLError, OSError):
            return False
        return bool(found.get("items", True))

    def _still(self, name: str) -> None:
        assert self._processes[name].poll() is None, self.log(name)[-4000:]
