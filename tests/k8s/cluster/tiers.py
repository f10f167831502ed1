"""Tiers of the cluster: those that this machine can run, and why not the others.

Two tiers: the *control plane* needs nothing but a compiler and runs as anybody; the *node* tier
needs root, the kernel's namespaces and control groups, and a few programs of the distribution.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from k8s.cluster import controllers
from k8s.cluster.leftovers import hierarchies

CONTROL_PLANE: Final = "control plane"
NODE: Final = "node"
RUNNING: Final = "CARREL_TEST_KUBECONFIG"
PROGRAMS: Final = ("runc", "ip", "mount", "umount", "mmdebstrap", "buildah")
ADMIN_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def why_no_node(
    environ: Mapping[str, str] = os.environ, also: Sequence[str] = ADMIN_FOLDERS
) -> str:
    """The reason why nodes cannot run here; empty when they can.

    Programs are looked for in ``PATH`` and ``also``.
    """
    if environ.get(RUNNING):
        return f"{RUNNING} names a cluster that has nodes of its own"
    if sys.platform != "linux":
        return "nodes run on Linux only"
    if os.geteuid() != 0:
        return "nodes run as root only"
    path = os.pathsep.join([environ.get("PATH", ""), *also])
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"{', '.join(missing)} not found: run `make cluster`, which installs it on Debian"
    return why_no_groups(hierarchies())


def why_no_groups(places: Sequence[Path]) -> str:
    """The reason why pods cannot be limited here; empty when they can.

    ``places`` are the mounted hierarchies: a folder for each controller of version 1, one for
    version 2.
    """
    if not places or not os.access(places[0], os.W_OK):
        return "no control groups can be made here"
    if missing := controllers.lacking(places):
        return f"control groups here do not limit {', '.join(missing)}"
    for place in places:
        if controllers.kept_back(place) and controllers.is_inhabited(place):
            return f"{place} has processes of its own: move them to a group below it"
    return ""
