"""What this machine lets the local engine do, each fact with the line that a person reads."""

import subprocess
from functools import cache
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.interpreter import SHIM, isolated

HELP: Final = (
    "users' work cannot be kept apart here: this container refuses private mount namespaces."
    " Give it CAP_SYS_ADMIN, or start Carrel as an ordinary user"
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
    refusal = _namespace_refusal() if accounts.privileged else ""
    return Capabilities(
        separate_users=accounts.privileged and not refusal,
        limits=limiter.enforces,
        users_line=f"{HELP} ({refusal})." if refusal else accounts.summary,
        limits_line=limiter.summary,
    )


def require_namespaces() -> None:
    """Raise ``EngineError`` saying what to do where the kernel refuses private views."""
    refusal = _namespace_refusal()
    if refusal:
        raise EngineError(f"{HELP} ({refusal})")


@cache
def _namespace_refusal() -> str:
    """Why a private view cannot be made; empty when it can. Tried in a process of its own."""
    code = (
        f"from {SHIM} import linux; linux.unshare_mounts(); "
        "linux.mount('', '/', None, linux.MS_REC | linux.MS_SLAVE)"
    )
    done = subprocess.run(
        isolated(code),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
