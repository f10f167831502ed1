"""Identity and membership against a real JupyterHub: what ``test_hub`` imitates is true."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.ports import free_ports
from carrel_scheduler.api.principals import identity
from carrel_scheduler.api.principals.hub import HubClient, HubIdentity, HubMembership
from carrel_scheduler.api.principals.identity import UnknownHubUser

SERVICE, SPAWNER, MAKER = "service-token-0123456789", "spawner-token-0123456789", "maker-0123456789"
CONFIG = """
c.JupyterHub.bind_url = "http://127.0.0.1:{front}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [{proxy_program!r}]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{"ada", "bea"}}
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.custom_scopes = {{
    name: {{"description": name}}
    for name in ("custom:carrel:use", "custom:carrel:spawn", "custom:carrel:admin")
}}
c.JupyterHub.load_groups = {{"project-vision": {{"users": ["ada"]}}}}
c.JupyterHub.services = [
    {{"name": "carrel", "api_token": "{service}"}},
    {{"name": "spawner", "api_token": "{spawner}"}},
    {{"name": "maker", "api_token": "{maker}"}},
]
c.JupyterHub.load_roles = [
    {{"name": "user", "scopes": ["self", "custom:carrel:use"]}},
    {{"name": "carrel", "services": ["carrel"], "scopes": ["read:users", "admin:groups"]}},
    {{"name": "spawner", "services": ["spawner"], "scopes": ["custom:carrel:spawn"]}},
    {{"name": "maker", "services": ["maker"], "scopes": ["tokens"]}},
]
"""


@dataclass
class RealHub:
    who: HubIdentity
    members: HubMembership
    maker: HubClient

    async def token(self, user: str, *scopes: str) -> str:
        """A new token of a user, narrowed to scopes if any are given."""
        body = {"scopes": list(scopes)} if scopes else {}
        answer = await self.maker.call("POST", f"/users/{user}/tokens", json=body)
        assert answer.status == 201, answer
        return str(answer.body["token"])


@pytest.fixture
async def real_hub(tmp_path: Path) -> AsyncIterator[RealHub]:
    front, hub, proxy = free_ports(3)
    config = CONFIG.format(
        front=front,
        hub=hub,
        proxy=proxy,
        proxy_program=str(Path(sys.executable).parent / "configurable-http-proxy"),
        service=SERVICE,
        spawner=SPAWNER,
        maker=MAKER,
    )
    (tmp_path / "jupyterhub_config.py").write_text(config)
    log = tmp_path / "hub.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "jupyterhub",
            cwd=tmp_path,
            env={**os.environ, "TZ": "UTC"},
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{hub}/hub/api"
    found = RealHub(HubIdentity(url, SERVICE), HubMembership(url, SERVICE), HubClient(url, MAKER))
    try:
        async with asyncio.timeout(240):
            while b"is now running" not in log.read_bytes():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        yield found
    finally:
        for one in (found.who, found.members, found.maker):
            await one.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def test_what_a_real_hub_says(real_hub: RealHub) -> None:
    who, members = real_hub.who, real_hub.members
    ada = await who.user_for_token(await real_hub.token("ada"))
    assert ada is not None
    assert (ada.name, ada.kind, sorted(ada.projects)) == ("ada", "user", ["vision"])
    assert (identity.USE in ada.scopes, ada.admin, ada.spawner) == (True, False, False)
    # Like a workspace's: may not read its own groups.
    narrow = await who.user_for_token(await real_hub.token("ada", identity.USE))
    assert narrow is not None
    assert sorted(narrow.projects) == ["vision"]
    own = await who.user_for_token(await real_hub.token("ada", f"{identity.USE}!user"))
    assert own is not None
    assert identity.USE in own.scopes
    spawner = await who.user_for_token(SPAWNER)
    assert spawner is not None
    assert (spawner.name, spawner.kind, spawner.spawner) == ("spawner", "service", True)
    assert await who.user_for_token("nonsense") is None

    assert [await members.administers(name) for name in ("ada", "root", "zoe")] == [
        False,
        True,
        False,
    ]
    assert await members.users("vision") == ["ada"]
    assert await members.users("robots") == []
    await members.add("robots", "bea")
    assert await members.users("robots") == ["bea"]
    with pytest.raises(UnknownHubUser):
        await members.add("robots", "zoe")
    for user in ("bea", "bea", "zoe"):
        await members.remove("robots", user)
    await members.remove("nowhere", "bea")
    assert await members.users("robots") == []
    for _ in range(2):
        await members.create_group("robots")
    for _ in range(2):
        await members.delete_group("robots")
    assert await members.users("robots") == []
