"""The engine's interface to users' network namespaces, each made when it is first needed.

A helper program (``setup``) changes the machine; it runs while the engine is open, because its
start takes most of its time. Namespaces are kept over restarts of the scheduler.
"""

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.network import addressing
from carrel_scheduler.engines.local.network.addressing import InstallationNetwork

log = logging.getLogger("carrel_scheduler.network")

RESOLV_CONF: Final = Path("/etc/resolv.conf")
# systemd-resolved answers at loopback only; here it writes which servers it asks itself.
UPSTREAM: Final = Path("/run/systemd/resolve/resolv.conf")
LINKS: Final = Path("/sys/class/net")
# An admin's firewall may have dropped our rules; so often they are looked for.
VERIFIED_SECONDS: Final = 10.0
HELPER: Final = (sys.executable, "-P", "-m", "carrel_scheduler.engines.local.network.setup")
_TOLD: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


class Joined(msgspec.Struct, frozen=True):
    """A user's namespace and its address."""

    path: Path
    address: str


class NetworkNamespaces:
    """The namespaces of one installation. Thread-safe; ``join`` blocks for some milliseconds."""

    def __init__(
        self, network: InstallationNetwork, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._network, self._clock = network, clock
        self._lock = threading.Lock()
        self._joined: dict[int, Joined] = {}
        self._verified: dict[int, float] = {}
        self._helper: subprocess.Popen[bytes] | None = None
        self._closed_because = ""

    def join(self, uid: int) -> Joined:
        """The user's namespace, made or repaired where needed. Raises ``EngineError``."""
        with self._lock:
            known = self._joined.get(uid)
            there = (LINKS / self._network.link(uid)).exists()
            if known is None or not there or self._clock() > self._verified[uid]:
                address = self._order(join=uid)
                known = Joined(self._network.namespace(uid), address)
                self._joined[uid] = known
                self._verified[uid] = self._clock() + VERIFIED_SECONDS
            return known

    def keep(self, uids: Collection[int]) -> None:
        """Remove the namespaces of all other users. Raises ``EngineError``."""
        with self._lock:
            if self._network.uids():
                self._order(keep=sorted(uids))
            self._joined = {uid: one for uid, one in self._joined.items() if uid in uids}

    def close(self) -> None:
        """Let the helper end; namespaces stay."""
        with self._lock:
            self._drop_helper()

    def _order(self, **what: object) -> str:
        servers = addressing.nameservers_of(_text(RESOLV_CONF)) or addressing.nameservers_of(
            _text(UPSTREAM)
        )
        order = {"network": self._network, "nameservers": [str(one) for one in servers], **what}
        answer = self._ask(msgspec.json.encode(order) + b"\n")
        if answer["error"]:
            raise EngineError(f"the user's network could not be made: {answer['error']}")
        if answer["closed"] != self._closed_because:
            self._closed_because = answer["closed"]
            log.warning(
                "connections of tasks to other machines: %s", self._closed_because or "open"
            )
        return answer["address"]

    def _ask(self, line: bytes) -> dict[str, str]:
        """Ask the helper, a new one if the old one has ended meanwhile."""
        for _ in range(2):
            with contextlib.suppress(OSError):
                helper = self._helper or self._start()
                if helper.stdin is not None and helper.stdout is not None:
                    helper.stdin.write(line)
                    helper.stdin.flush()
                    answer = helper.stdout.readline()
                    if answer:
                        return msgspec.json.decode(answer, type=dict[str, str])
            self._drop_helper()
        raise EngineError("the user's network could not be made: its helper ends at once")

    def _start(self) -> subprocess.Popen[bytes]:
        self._helper = subprocess.Popen(
            HELPER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: os.environ[name] for name in _TOLD if name in os.environ},
        )
        return self._helper

    def _drop_helper(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            with contextlib.suppress(OSError), helper:  # closes its streams and waits for it
                helper.kill()


def hosts_inside(text: str, machine: str) -> str:
    """``/etc/hosts`` for a namespace, where the machine's own name is loopback."""
    kept = [line for line in text.splitlines() if machine not in line.partition("#")[0].split()]
    return "\n".join([*kept, f"127.0.0.1 {machine}", ""])


def files_inside() -> Iterator[tuple[Path, Path]]:
    """(source, target) of files to bind inside: a name server at loopback is not reached there."""
    if not addressing.nameservers_of(_text(RESOLV_CONF)) and UPSTREAM.exists():
        yield UPSTREAM, RESOLV_CONF.resolve()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
