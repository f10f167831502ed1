"""Every way to be known to a real API server, and to know it."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import (
    Credentials,
    find,
    from_kubeconfig,
    in_cluster,
)
from carrel_scheduler.kube.errors import Unauthorized, Unavailable
from k8s.cluster import authority
from k8s.cluster.plane import ControlPlane

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
PLUGIN = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with (folder / "runs").open("a") as runs:
    runs.write("run\\n")
print(json.dumps({
    "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
    "status": {"token": (folder / "token").read_text()},
}))
"""


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def whoami(credentials: Credentials) -> str:
    """The name by which the server knows us."""

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    client = KubeClient(credentials, pause=no_pause)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        told = json.loads(await client.raw("POST", WHO, review))
    finally:
        await client.close()
    return str(told["status"]["userInfo"]["username"])


def kubeconfig(plane: ControlPlane, to: Path, user: Any, **cluster: Any) -> Path:
    cluster = {"certificate-authority": str(plane.authority), **cluster}
    parts = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": plane.url, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    to.write_text(json.dumps(parts))
    return to


async def test_a_client_certificate(plane: ControlPlane, tmp_path: Path) -> None:
    user = {
        "client-certificate": str(plane.issuer.with_name("client.crt")),
        "client-key": str(plane.issuer.with_name("client.key")),
    }
    path = kubeconfig(plane, tmp_path / "config", user)
    assert await whoami(from_kubeconfig(path)) == "kube-apiserver"
    assert await whoami(find({"KUBECONFIG": str(path)})) == "kube-apiserver"


async def test_a_server_of_another_authority_is_not_believed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    other = authority.make(tmp_path)
    wrong = {"certificate-authority": str(other.certificate)}
    path = kubeconfig(plane, tmp_path / "config", {"token": "t"}, **wrong)
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await whoami(from_kubeconfig(path))


async def test_a_token_file_that_changes(plane: ControlPlane, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(plane.admin_token)
    clock = Clock()
    path = kubeconfig(plane, tmp_path / "config", {"tokenFile": str(token)})
    credentials = from_kubeconfig(path, now=clock)
    assert await whoami(credentials) == "admin"
    token.write_text("withdrawn")
    clock.now += 60
    with pytest.raises(Unauthorized):
        await whoami(credentials)
    token.write_text(plane.admin_token)
    clock.now += 10
    assert await whoami(credentials) == "admin"


async def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(
    plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "token").write_text("not-yet-known")
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "plugin.py"), str(tmp_path)],
        "interactiveMode": "Never",
    }
    clock = Clock()
    credentials = from_kubeconfig(kubeconfig(plane, tmp_path / "c", {"exec": run}), now=clock)
    with pytest.raises(Unauthorized):
        await whoami(credentials)
    (tmp_path / "token").write_text(plane.admin_token)
    clock.now += 10
    assert await whoami(credentials) == "admin"
    clock.now += 600
    assert await whoami(credentials) == "admin"
    assert (tmp_path / "runs").read_text().count("run") == 2


async def test_a_service_account_whose_token_rotates(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(plane.authority.read_bytes())
    (tmp_path / "token").write_text("an-old-one")
    host, _, port = plane.url.removeprefix("https://").rpartition(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    clock = Clock()
    credentials = in_cluster(tmp_path, environ, now=clock)
    with pytest.raises(Unauthorized):
        await whoami(credentials)
    (tmp_path / "token").write_text(f"{plane.admin_token}\n")
    clock.now += 60
    assert await whoami(credentials) == "admin"


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"token": "t"}, {"insecure-skip-tls-verify": True}, "is not accepted"),
        ({"client-certificate": "/no/such/file"}, {}, "does not exist"),
        ({"exec": {"command": "x"}}, {}, "apiVersion"),
    ],
)
async def test_configurations_that_cannot_be_used(
    plane: ControlPlane, tmp_path: Path, user: Any, cluster: dict[str, Any], words: str
) -> None:
    path = kubeconfig(plane, tmp_path / "config", user, **cluster)
    with pytest.raises(Unavailable, match=f"CredentialsUnusable: .*{words}"):
        await whoami(from_kubeconfig(path))


async def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"CredentialsUnusable: .*nothing-here is not a file"):
        await whoami(from_kubeconfig(tmp_path / "nothing-here"))
    with pytest.raises(Unavailable, match=r"CredentialsUnusable: .*token file does not exist"):
        await whoami(
            in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"})
        )
