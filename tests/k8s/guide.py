"""docs/kubernetes.md as somebody follows it: its commands, and a place to run them.

A remark before a block says what is special about it: ``needs a registry`` (images are loaded on
the node instead), ``goes on until Ctrl-C`` (it is started and left running), ``in the workspace``
(it runs in the workspace's pod). All others run in a folder that looks like the repository's root.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

import yaml

from benchmarks.ports import free_port
from k8s.cluster.plane import ControlPlane
from k8s.cluster.waiting import Process, wait_for

ROOT: Final = Path(__file__).parents[2]
GUIDE: Final = ROOT / "docs" / "kubernetes.md"
BLOCK: Final = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```console\n(.*?)```", re.DOTALL)
COMMAND: Final = re.compile(r"^\$ (.*?)(?=^\$ |\Z)", re.DOTALL | re.MULTILINE)
MANIFEST: Final = re.compile(r"```yaml\n(apiVersion:.*?)```", re.DOTALL)
TIMEOUT_SECONDS: Final = 400
GUIDES_PORT: Final = "8000"
REGISTRY: Final = "needs a registry"
GOES_ON: Final = "goes on until Ctrl-C"
INSIDE: Final = "in the workspace"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the guide, and the remark on its block."""

    text: str
    remark: str


def commands(section: str) -> list[Command]:
    """The commands of a section, in order."""
    return [
        Command(found.strip(), remark)
        for remark, block in BLOCK.findall(_section(section))
        for found in COMMAND.findall(block)
    ]


def manifests() -> list[dict[str, Any]]:
    """The manifests that the guide has its reader write."""
    return [yaml.safe_load(text) for text in MANIFEST.findall(GUIDE.read_text())]


def _section(title: str) -> str:
    return GUIDE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


class GuideShell:
    """A shell in a copy of the repository, with ``kubectl`` and a port of its own."""

    def __init__(self, folder: Path, plane: ControlPlane, kubectl: Path) -> None:
        self.folder, self.port = folder, str(free_port())
        self._forward: Process | None = None
        shutil.copytree(ROOT / "deploy", folder / "deploy")
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").symlink_to(kubectl)
        plane.kubeconfig(folder / "kubeconfig.json")

    @property
    def url(self) -> str:
        """The URL of the Hub for the browser."""
        return f"http://localhost:{self.port}"

    def run(self, text: str) -> str:
        """Run a text as a shell does; returns what it printed. A failure is one of the test."""
        done = self._shell(
            f"timeout {TIMEOUT_SECONDS} bash -euo pipefail -c {quote(self._own(text))}"
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}{self.happening()}"
        return done.stdout

    def _shell(self, text: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_SECONDS,
            check=False,
        )

    def happening(self) -> str:
        """The state of the cluster's pods and their logs, also of containers that have ended."""
        logs = (
            "kubectl -n carrel-system logs --prefix --tail=10 -l app.kubernetes.io/part-of=carrel"
        )
        ended = (
            "for pod in $(kubectl -n carrel-system get pods -o name); do"
            " kubectl -n carrel-system logs --previous --prefix --tail=30 $pod 2>/dev/null; done"
        )
        return self._shell(f"kubectl get pods -A; {logs}; {ended}").stdout

    def _own(self, text: str) -> str:
        """The text with a free port."""
        return text.replace(GUIDES_PORT, self.port)

    def forward(self, text: str) -> None:
        """Start a command that goes on, in place of the one before; returns once it is at work."""
        self.stop()
        log = self.folder / "forward.log"
        command = ["bash", "-c", f"exec {self._own(text)}"]
        with log.open("wb") as said:
            self._forward = subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), stdout=said, stderr=said
            )
        wait_for(lambda: "Forwarding from" in log.read_text(), self._forward, log)

    def stop(self) -> None:
        """End what goes on."""
        if self._forward is not None:
            self._forward.terminate()
            self._forward.wait(TIMEOUT_SECONDS)
            self._forward = None

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.folder / "kubeconfig.json"),
        }


def images(text: str) -> Iterator[tuple[str, str]]:
    """Folders of ``images/`` and the names that a command gives what is built from them."""
    folders = re.search(r"for image in ([a-z ]+);", text)
    name = re.search(r"docker push (\S+\$image\S*)", text)
    if folders and name:
        for folder in folders[1].split():
            yield folder, name[1].replace("$image", folder)
