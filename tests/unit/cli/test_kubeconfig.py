"""``carrel kubeconfig``: printed, or merged into a file with others' entries."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from carrel.cli.kubeconfig import usual_file
from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

SIGN_IN = {
    "command": "kubelogin",
    "args": ["get-token"],
    "apiVersion": "client.authentication.k8s.io/v1",
}
ACCESS = {
    "server": "https://k8s.example.org:6443",
    "certificate_authority": "CERTIFICATES",
    "sign_in": SIGN_IN,
    "namespaces": [
        {"project": "vision", "namespace": "carrel-vision"},
        {"project": "speech", "namespace": "carrel-speech"},
    ],
}
OTHERS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {"colors": True},
    "clusters": [{"name": "other", "cluster": {"server": "https://other"}}],
    "users": [{"name": "other", "user": {"token": "kept"}}, {"name": "carrel", "user": {}}],
    "contexts": [{"name": "other", "context": {"cluster": "other", "user": "other"}}],
    "current-context": "other",
}


@pytest.fixture
def cluster(fake: FakeScheduler) -> FakeScheduler:
    fake.cluster_access.update(ACCESS)
    return fake


@pytest.mark.usefixtures("cluster")
def test_it_is_printed_and_holds_no_credential(run: Run) -> None:
    shown = run("kubeconfig", "-p", "speech", user="ada")
    assert (shown.code, shown.err) == (0, "kubectl will run `kubelogin` to sign you in.\n")
    found = yaml.safe_load(shown.out)
    assert found["current-context"] == "carrel-speech"
    [entry] = found["clusters"]
    authority = base64.b64encode(b"CERTIFICATES").decode()
    assert entry["cluster"] == {
        "server": "https://k8s.example.org:6443",
        "certificate-authority-data": authority,
    }
    [user] = found["users"]
    assert user["user"] == {"exec": SIGN_IN | {"interactiveMode": "IfAvailable"}}
    assert [one["name"] for one in found["contexts"]] == ["carrel-vision", "carrel-speech"]
    assert found["contexts"][1]["context"]["namespace"] == "carrel-speech"


def test_who_brings_a_user_of_their_own_is_given_none(run: Run, cluster: FakeScheduler) -> None:
    cluster.cluster_access["sign_in"] = None
    shown = run("kubeconfig", user="ada")
    assert (shown.code, shown.err) == (0, "")
    assert "users" not in yaml.safe_load(shown.out)


@pytest.mark.usefixtures("cluster")
def test_merging_keeps_what_others_wrote(run: Run, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text(yaml.safe_dump(OTHERS))
    real.chmod(0o644)
    file = tmp_path / "config"
    file.symlink_to(real)
    words = ("kubeconfig", "--write", "--file", str(file), "-p", "vision")
    assert run(*words, user="ada").code == 0
    assert file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    found = yaml.safe_load(real.read_text())
    assert found["preferences"] == {"colors": True}
    assert found["users"][0] == OTHERS["users"][0]
    assert [one["name"] for one in found["users"]] == ["other", "carrel"]
    assert "exec" in found["users"][1]["user"]
    named = ["other", "carrel-vision", "carrel-speech"]
    assert [one["name"] for one in found["contexts"]] == named
    assert found["current-context"] == "carrel-vision"
    assert run(*words, user="ada").code == 0
    assert yaml.safe_load(real.read_text()) == found
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("content", ["[1, 2]", "clusters: 5", "users: [a]", "{", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_left_alone(run: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    done = run("kubeconfig", "--write", "--file", str(file), user="ada")
    assert done.code != 0
    assert str(file) in done.err
    assert file.read_text() == content


def test_the_usual_file_is_that_of_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert usual_file() == tmp_path / ".kube" / "config"
    monkeypatch.setenv("KUBECONFIG", f":{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert usual_file() == tmp_path / "a"


def test_another_project_and_no_cluster_are_refused(run: Run, fake: FakeScheduler) -> None:
    alone = run("kubeconfig", user="ada")
    assert alone.code != 0
    assert "There is no API server for kubectl here" in alone.err
    fake.cluster_access.update(ACCESS)
    wrong = run("kubeconfig", "-p", "nobodys", user="ada")
    assert wrong.code != 0
    assert "--project nobodys: not one of your projects (vision, speech)." in wrong.err
