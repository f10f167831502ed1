"""containerd with everything it keeps below one folder."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from k8s.cluster.network import Network
from k8s.cluster.records import Record
from k8s.cluster.waiting import wait_for

PAUSE: Final = "localhost/carrel-pause:1"
IMPORT_SECONDS: Final = 600.0
PLENTY_BYTES: Final = 8 << 30
TIMEOUT: Final = "60s"
"""How long it waits for a keeper of containers; usually a few seconds."""
KEEPERS: Final = "/run/containerd/s"
"""Where the keepers of containers listen; containerd lets nobody choose another place."""
DEVICES: Final = "cdi"
"""Below the folder of a node: where drivers of devices describe them for containers."""
_MEMBERS: Final = "daemons"


@dataclass(frozen=True, slots=True)
class Containerd:
    """A running containerd.

    Attributes:
        socket: where it answers.
    """

    socket: Path
    client: Path

    def ask(self, *words: str) -> str:
        """The output of ``ctr``. Raises ``OSError`` with its error."""
        command = [str(self.client), "--address", str(self.socket), "--namespace", "k8s.io", *words]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=IMPORT_SECONDS
        )
        if done.returncode:
            raise OSError(f"ctr {words[0]}: {done.stderr.strip()}")
        return done.stdout


def start(
    programs: Mapping[str, Path], record: Record, folder: Path, network: Network, node: int
) -> Containerd:
    """Start it in a folder of its own, for one node, counted from 0. Raises ``NotReady``."""
    _in_memory(folder / "containerd")
    plugins = folder / "cni"
    plugins.mkdir()
    settings = network.configuration(node, folder / "addresses")
    (plugins / "pods.conflist").write_text(json.dumps(settings))
    (folder / DEVICES).mkdir()
    socket = folder / "containerd.sock"
    file = folder / "containerd.toml"
    file.write_text(_configuration(programs, folder, socket))
    record.leave("sockets", KEEPERS, str(time.time()))
    shims = programs["containerd-shim-runc-v2"].parent
    environment = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    log = folder / "containerd.log"
    process = record.start([str(programs["containerd"]), "--config", str(file)], log, environment)
    _join(process.pid, network)
    made = Containerd(socket, programs["ctr"])
    wait_for(lambda: bool(made.ask("version")), process, log)
    return made


def _in_memory(root: Path) -> None:
    """Have it unpack images into memory if there is plenty: many small files, soon removed."""
    root.mkdir()
    if psutil.virtual_memory().available > PLENTY_BYTES:
        mount = ["mount", "-t", "tmpfs", "-o", "mode=0711,nr_inodes=0", "carrel-images", str(root)]
        subprocess.run(mount, check=True, capture_output=True)


def _join(pid: int, network: Network) -> None:
    """Put it into a control group of the run, so that whatever it starts is found there."""
    chosen = next(one for one in network.groups() if one.parent.name != "cpuset")
    group = chosen / _MEMBERS
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text(str(pid))


def _configuration(programs: Mapping[str, Path], folder: Path, socket: Path) -> str:
    """The settings of containerd; not every root may lower the score of the OOM killer."""
    return f"""
version = 3
root = "{folder / "containerd"}"
state = "{folder / "state"}"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{socket}"

[timeouts]
"io.containerd.timeout.shim.cleanup" = "{TIMEOUT}"
"io.containerd.timeout.shim.load" = "{TIMEOUT}"
"io.containerd.timeout.shim.shutdown" = "{TIMEOUT}"
"io.containerd.timeout.task.state" = "{TIMEOUT}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
disable_apparmor = true
enable_cdi = true
cdi_spec_dirs = ["{folder / DEVICES}"]

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
Root = "{folder / "runc"}"
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{programs["bridge"].parent}"]
conf_dir = "{folder / "cni"}"
"""
