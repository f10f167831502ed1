"""What ``install`` sets: least privilege, loopback, nothing that a restart would undo."""

from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from carrel_hub import scopes, services
from carrel_hub.accounts.store import AccountStore
from carrel_hub.config import install, install_from
from carrel_hub.keys import Keys
from carrel_hub.settings import Gpus, InstallationSettings, Ports

PORTS = Ports(hub=1001, proxy_api=1002, scheduler=1003, console=1004, gateway=1005)


@pytest.fixture
def settings(tmp_path: Path) -> InstallationSettings:
    return InstallationSettings(state_dir=tmp_path, ports=PORTS, gpus=Gpus(count=4), managed=False)


@pytest.fixture
def keys() -> Keys:
    return Keys.generate()


def installed(settings: InstallationSettings, keys: Keys) -> Any:
    c = Config()
    install(c, settings, keys)
    return c


def test_everything_listens_on_loopback(settings: InstallationSettings, keys: Keys) -> None:
    c = installed(settings, keys)
    assert c.JupyterHub.hub_bind_url == "http://127.0.0.1:1001"
    assert c.StoppedRoutes.traefik_api_url == "http://127.0.0.1:1002"
    urls = [one["url"] for one in c.JupyterHub.services if "url" in one]
    assert urls == [f"http://127.0.0.1:{port}" for port in (1003, 1004, 1005)]


def test_a_restart_stops_nothing_and_keeps_groups(
    settings: InstallationSettings, keys: Keys
) -> None:
    c = installed(settings, keys)
    assert not c.JupyterHub.cleanup_servers
    assert not c.JupyterHub.cleanup_proxy
    assert not c.StoppedRoutes.should_start
    assert "load_groups" not in c.JupyterHub
    assert c.JupyterHub.cookie_secret == bytes.fromhex(keys.cookie)


def test_accounts_become_users_and_admins(settings: InstallationSettings, keys: Keys) -> None:
    accounts = AccountStore(settings.accounts_file)
    accounts.add("ada", "a-long-password")
    accounts.add("root2", "a-long-password", admin=True)
    c = installed(settings, keys)
    assert c.CarrelAuthenticator.allowed_users == {"ada", "root2"}
    assert c.CarrelAuthenticator.admin_users == {"root2"}


def test_only_the_spawner_may_spawn_and_nobody_is_superuser() -> None:
    for role in scopes.load_roles():
        assert ("carrel-spawner" in role.get("services", [])) == (scopes.SPAWN in role["scopes"])
        assert "admin:servers" not in role["scopes"]
        assert "admin:auth_state" not in role["scopes"]
    assert scopes.ADMIN not in scopes.user_scopes()
    assert scopes.SPAWN not in scopes.AT_THE_CONSOLE


def test_workspace_tokens_reach_the_api_and_what_is_their_owners() -> None:
    assert {scopes.USE, scopes.OWN_GROUPS, "users:activity!user"} <= set(scopes.SERVER_TOKEN)
    assert {one for one in scopes.SERVER_TOKEN if one.startswith("servers")} == {"servers!user"}


def test_workspace_tokens_administer_nothing_whoever_they_belong_to() -> None:
    mine = {"!user", "!server"}
    for scope in set(scopes.SERVER_TOKEN) - {scopes.USE}:
        assert any(end in scope for end in mine) or scope.startswith("access:services!service=")
    assert scopes.ADMIN not in scopes.SERVER_TOKEN


def test_the_console_acts_for_users_only_with_their_own_rights(
    settings: InstallationSettings, keys: Keys
) -> None:
    console = next(
        one for one in services.registrations(settings, keys) if one["name"] == scopes.CONSOLE
    )
    allowed = set(console["oauth_client_allowed_scopes"])
    assert {scopes.USE, scopes.ADMIN, scopes.OWN_GROUPS} <= allowed
    assert scopes.SPAWN not in allowed
    roles = [role for role in scopes.load_roles() if scopes.CONSOLE in role.get("services", [])]
    assert roles == []


def test_services_may_be_the_hubs_children_or_somebody_elses(
    settings: InstallationSettings, keys: Keys, tmp_path: Path
) -> None:
    outside = services.registrations(settings, keys)
    assert not any("command" in one for one in outside)
    managed = InstallationSettings(
        state_dir=tmp_path, ports=PORTS, gpus=Gpus(count=4, memory_mib=24576)
    )
    inside = {one["name"]: one for one in services.registrations(managed, keys)}
    scheduler = inside[scopes.SCHEDULER]
    assert scheduler["command"][1:] == ["-P", "-m", "carrel_scheduler.service"]
    told = scheduler["environment"]
    assert told["CARREL_STATE_DIR"] == str(tmp_path)
    assert (told["CARREL_GPUS"], told["CARREL_GPU_MEMORY_MIB"]) == ("4", "24576")
    assert "CARREL_GPU_NAME" not in told
    assert "CARREL_STATE_DIR" not in inside[scopes.CONSOLE]["environment"]


def test_no_service_is_told_the_secrets_of_another(
    settings: InstallationSettings, keys: Keys
) -> None:
    for service, own in (
        (scopes.SCHEDULER, keys.scheduler),
        (scopes.CONSOLE, keys.console),
        (scopes.GATEWAY, keys.gateway),
    ):
        told = services.service_environment(settings, keys, service)
        secrets = {getattr(keys, name) for name in keys.__struct_fields__}
        assert {value for value in told.values() if value in secrets} == {own}


def test_settings_and_keys_survive_the_disk(settings: InstallationSettings, tmp_path: Path) -> None:
    settings.save(tmp_path / "settings.json")
    assert InstallationSettings.load(tmp_path / "settings.json") == settings
    keys = Keys.load_or_create(tmp_path / "keys.json")
    assert Keys.load_or_create(tmp_path / "keys.json") == keys
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    assert keys.spawner not in repr(keys)
    c = Config()
    install_from(c, str(tmp_path / "settings.json"), str(tmp_path / "keys.json"))
    assert c.CarrelSpawner.carrel_token == keys.spawner


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_the_public_address(tmp_path: Path, host: str, url: str) -> None:
    settings = InstallationSettings(state_dir=tmp_path, host=host, ports=PORTS)
    assert settings.public_url == url
    assert settings.on_loopback == (host in ("127.0.0.1", "::1"))


def test_workspaces_are_found_again_after_the_hub_listens(
    settings: InstallationSettings, keys: Keys
) -> None:
    assert installed(settings, keys).JupyterHub.init_spawners_timeout == 1
