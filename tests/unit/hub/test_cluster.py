"""The Hub on a cluster: what its file and secret become, for it and for the parts beside it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from oauthenticator.github import GitHubOAuthenticator
from traitlets.config import Config

from carrel_hub import scopes
from carrel_hub.keys import Keys
from carrel_hub.kubernetes.config import install, load, part_settings
from carrel_hub.kubernetes.part import PARTS, process
from carrel_hub.kubernetes.settings import ClusterHubSettings
from carrel_spawner.kubernetes.spawner import CarrelKubeSpawner

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
FILE = """
public_url: https://carrel.lab.example
hub_url: http://hub:8081
proxy_api_url: http://proxy-api:8001
scheduler_url: http://scheduler:8080
console_url: http://console:8060
gateway_url: http://gateway:8070
state_dir: {state_dir}
image: registry.lab.example/carrel/workspace:1
image_pull_secrets: [registry]
traits:
  CarrelKubeSpawner:
    gpu_resource: amd.com/gpu
    node_selector: {{pool: desks}}
  JupyterHub:
    named_server_limit_per_user: 2
request_seconds: 1200
"""


@pytest.fixture
def keys() -> Keys:
    return Keys.generate()


@pytest.fixture
def settings(tmp_path: Path) -> ClusterHubSettings:
    path = tmp_path / "hub.yaml"
    path.write_text(FILE.format(state_dir=tmp_path))
    return ClusterHubSettings.load(path)


def installed(settings: ClusterHubSettings, keys: Keys) -> Any:
    c = Config()
    install(c, settings, keys)
    return c


def test_parts_find_each_other_by_the_names_of_services(
    settings: ClusterHubSettings, keys: Keys
) -> None:
    c = installed(settings, keys)
    assert c.JupyterHub.hub_bind_url == "http://:8081"
    assert c.JupyterHub.hub_connect_url == "http://hub:8081"
    assert c.StoppedRoutes.traefik_api_url == "http://proxy-api:8001"
    assert not c.StoppedRoutes.should_start
    urls = {one["name"]: one.get("url") for one in c.JupyterHub.services}
    assert urls[scopes.SCHEDULER] == "http://scheduler:8080"
    assert urls[scopes.CONSOLE] == "http://console:8060"
    assert not any("command" in one for one in c.JupyterHub.services)


def test_workspaces_are_pods_with_the_rights_they_have_on_one_machine(
    settings: ClusterHubSettings, keys: Keys
) -> None:
    c = installed(settings, keys)
    assert c.JupyterHub.spawner_class is CarrelKubeSpawner
    section = c.CarrelKubeSpawner
    assert section.server_token_scopes == scopes.SERVER_TOKEN
    assert section.carrel_url == "http://scheduler:8080/services/carrel"
    assert section.carrel_token == keys.spawner
    assert section.image == "registry.lab.example/carrel/workspace:1"
    assert section.image_pull_secrets == ["registry"]
    assert section.priority_class_name == "carrel-build"
    assert c.JupyterHub.load_roles == scopes.load_roles(scraped=True)


def test_the_file_has_the_last_word(settings: ClusterHubSettings, keys: Keys) -> None:
    c = installed(settings, keys)
    assert c.CarrelKubeSpawner.gpu_resource == "amd.com/gpu"
    assert c.CarrelKubeSpawner.node_selector == {"pool": "desks"}
    assert c.JupyterHub.named_server_limit_per_user == 2
    for name, values in settings.traits.items():
        known = CarrelKubeSpawner.class_trait_names() if name == "CarrelKubeSpawner" else values
        assert set(values) <= set(known)


@pytest.mark.parametrize("name", ["githup", "nowhere.Authenticator"])
def test_an_unknown_sign_in_is_refused_with_those_that_are_known(
    settings: ClusterHubSettings, keys: Keys, name: str
) -> None:
    other = msgspec.structs.replace(settings, authenticator=name)
    with pytest.raises(ImportError, match=f"authenticator is '{name}'; it should be .*github"):
        installed(other, keys)


def test_another_sign_in(settings: ClusterHubSettings, keys: Keys) -> None:
    other = msgspec.structs.replace(settings, authenticator="github")
    chosen = installed(other, keys).JupyterHub.authenticator_class
    assert issubclass(chosen, GitHubOAuthenticator)
    assert chosen.__name__ == "GitHubOAuthenticator"
    assert "accounts_file" in installed(settings, keys).CarrelAuthenticator


def test_what_is_mounted_is_read(
    settings: ClusterHubSettings, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    for name, value in msgspec.structs.asdict(keys).items():
        (folder / name).write_text(f"{value}\n")
    monkeypatch.setenv("CARREL_HUB_SETTINGS", str(tmp_path / "hub.yaml"))
    monkeypatch.setenv("CARREL_KEYS_DIR", str(folder))
    c = Config()
    load(c)
    assert c.JupyterHub.cookie_secret == bytes.fromhex(keys.cookie)
    assert c.JupyterHub.db_url == f"sqlite:///{settings.state_dir}/jupyterhub.sqlite"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("hub_url: hub:8081", "hub_url is 'hub:8081'; it should be http"),
        ("console_url: http://console", "console_url is 'http://console'; it should say the port"),
        ("public_url: https://lab.example/carrel", "it should be http(s)://host:port"),
        ("hub_ulr: http://hub:8081", "hub_ulr"),
        ("image: [1]", "$.image"),
        ("request_seconds: 3", "Expected `int` >= 10 - at `$.request_seconds`"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, part: str) -> None:
    path = tmp_path / "hub.yaml"
    name = line.split(":", maxsplit=1)[0]
    kept = [
        one for one in FILE.format(state_dir="/x").splitlines() if not one.startswith(f"{name}:")
    ]
    path.write_text("\n".join([*kept, line]))
    with pytest.raises(msgspec.ValidationError) as caught:
        ClusterHubSettings.load(path)
    assert part in str(caught.value)


def test_the_parts_beside_the_hub(settings: ClusterHubSettings, keys: Keys) -> None:
    proxy = process("proxy", settings, keys.proxy)
    (written,) = proxy.files.values()
    told = json.loads(written)
    assert told["providers"]["http"]["endpoint"] == "http://hub:8081/hub/carrel/routes"
    assert told["providers"]["http"]["headers"] == {"Authorization": f"token {keys.proxy}"}
    assert told["entryPoints"]["internal"]["address"] == ":8001"
    transport = told["entryPoints"]["public"]["transport"]
    assert transport["respondingTimeouts"]["readTimeout"] == "1200s"
    console = process("console", settings, keys.console)
    assert console.command[-1] == "carrel_hub.console.app"
    assert console.environment["JUPYTERHUB_SERVICE_URL"] == "http://0.0.0.0:8060"
    assert console.environment["JUPYTERHUB_API_URL"] == "http://hub:8081/hub/api"
    assert console.environment["CARREL_API_URL"] == "http://scheduler:8080/services/carrel"
    gateway = process("gateway", settings, keys.gateway)
    assert gateway.environment["JUPYTERHUB_API_TOKEN"] == keys.gateway
    assert "CARREL_SEPARATE_ORIGINS" not in gateway.environment
    apart = msgspec.structs.replace(settings, separate_origins=True)
    assert process("gateway", apart, keys.gateway).environment["CARREL_SEPARATE_ORIGINS"] == "1"
    for one in (proxy, console, gateway):
        assert keys.spawner not in str(one.environment)
        assert keys.console not in repr(one)
    with pytest.raises(ValueError, match="proxy, console, gateway are right"):
        process("scheduler", settings, keys.scheduler)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_needs_the_key_of_its_own_name_and_no_other(
    settings: ClusterHubSettings,
    keys: Keys,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / name).write_text(f"{getattr(keys, name)}\n")
    (tmp_path / "hub.yaml").write_text(FILE.format(state_dir=tmp_path))
    monkeypatch.setenv("CARREL_KEYS_DIR", str(tmp_path))
    monkeypatch.setenv("CARREL_HUB_SETTINGS", str(tmp_path / "hub.yaml"))
    made = process(name, *part_settings(name))
    said = str(made.environment) + str(made.files)
    there = {key for key in keys.__struct_fields__ if getattr(keys, key) in said}
    assert there == {name}


def test_pods_of_the_parts_see_the_keys_that_they_need() -> None:
    """The Hub makes the tokens of all known to itself; each other part has one key."""
    found = {}
    for file in ("hub/hub.yaml", "hub/parts.yaml", "scheduler/scheduler.yaml"):
        for one in yaml.safe_load_all((DEPLOY / file).read_text()):
            if one["kind"] == "Deployment":
                found[one["metadata"]["name"]] = keys_of(one["spec"]["template"]["spec"])
    assert found == {
        "carrel-hub": None,
        "carrel-proxy": {"proxy"},
        "carrel-console": {"console"},
        "carrel-gateway": {"gateway"},
        "carrel-scheduler": {"scheduler"},
    }


def keys_of(pod: Mapping[str, Any]) -> set[str] | None:
    """The keys that a pod sees; ``None`` for all."""
    (container,) = pod["containers"]
    seen = {
        one["valueFrom"]["secretKeyRef"]["key"]
        for one in container.get("env", [])
        if "secretKeyRef" in one.get("valueFrom", {})
    }
    for volume in pod["volumes"]:
        if "secret" in volume:
            if "items" not in volume["secret"]:
                return None
            seen |= {one["key"] for one in volume["secret"]["items"]}
    return seen


def deployments() -> list[dict[str, Any]]:
    """All that the installation runs."""
    texts = [file.read_text() for file in sorted(DEPLOY.glob("*/*.yaml"))]
    found = [one for text in texts for one in yaml.safe_load_all(text)]
    return [one for one in found if one and one.get("kind") == "Deployment"]


@pytest.mark.parametrize("one", deployments(), ids=lambda one: str(one["metadata"]["name"]))
def test_parts_are_confined(one: dict[str, Any]) -> None:
    spec = one["spec"]["template"]["spec"]
    whole = spec["securityContext"]
    assert whole["runAsNonRoot"]
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    # Only Hub and scheduler ask the API server, each with an account of its own.
    asks = "serviceAccountName" in spec
    assert asks == (one["metadata"]["name"] in ("carrel-hub", "carrel-scheduler"))
    assert asks or spec["automountServiceAccountToken"] is False
