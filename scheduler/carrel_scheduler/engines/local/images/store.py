"""The images of this machine: each unpacked once, in a folder named by the digest of its manifest.

``images/<digest>/`` holds ``root`` and ``image.json`` (its configuration); ``images/names/`` says
which digest a name meant: for everybody, but of registries at loopback for one user, because each
user has a loopback of their own and may answer there. An image is built aside and claimed by a
rename. One program pulls it, however many tasks wait for it. What was not used for longest goes
when all together exceed a limit, but never what a task uses.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from carrel_scheduler.engines.contract import EngineError, RegistryLogin
from carrel_scheduler.engines.local.images import pull, reference
from carrel_scheduler.engines.local.task_state import write_whole

GIB: Final = 1024**3
PULLING: Final = "pulling-"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_TOLD: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
Tell = Callable[[int, int], None]


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the store, and where credentials are.

    Attributes:
        most_gib: of one image, unpacked.
        store_gib: of all; more than this is removed once no task uses it.
        credentials: a file as ``docker login`` writes it.
    """

    most_gib: int = 50
    store_gib: int = 200
    credentials: Path | None = None


class Image(msgspec.Struct, frozen=True):
    """An unpacked image.

    Attributes:
        digest: of its manifest, in hexadecimal.
        folder: its files.
        environment: its variables.
    """

    digest: str
    folder: Path
    environment: dict[str, str]


class PullTicket(msgspec.Struct, frozen=True):
    """The identity for which an image is pulled.

    Attributes:
        uid: whose pull it is.
        network: of the user; ``None``: the machine's.
        files: that replace the machine's for the pull.
        logins: the user's own, which count before the installation's.
    """

    uid: int = 0
    network: Path | None = None
    files: tuple[tuple[Path, Path], ...] = ()
    logins: tuple[RegistryLogin, ...] = ()

    def login(self, registry: str) -> tuple[str, str] | None:
        """User and password of a registry, if the user has some."""
        for one in self.logins:
            if one.server == registry:
                return one.username, one.password
        return None


class ImageStore:
    """Images below a folder of the engine. Thread-safe; ``get`` blocks while it pulls."""

    def __init__(self, root: Path, bubblewrap: Callable[[], str], settings: StoreSettings) -> None:
        self._root, self._bubblewrap, self._settings = root, bubblewrap, settings
        self._guard = threading.Lock()
        self._pulling: dict[str, threading.Lock] = {}
        self._made = False

    def get(self, name: str, ticket: PullTicket, tell: Tell, used: Collection[str] = ()) -> Image:
        """The image of that name, pulled if it is missing.

        Args:
            name: as it was asked for.
            ticket: of the user.
            tell: called with bytes done and in total while it is pulled.
            used: digests of images that tasks use.

        Raises ``EngineError``: with ``image=`` first where another try would fail alike.
        """
        parts = reference.parse(name)
        own = parts.plain or ticket.login(parts.registry) is not None
        whose = f"{ticket.uid} {name}" if own else name  # what one may pull others may not
        with self._guard:
            self._make()
            lock = self._pulling.setdefault(whose, threading.Lock())
        with lock:
            known = self._known(whose)
            if known is None or parts.moves:
                known = self._pull(name, whose, parts, ticket, tell)
                self._prune({*used, known.digest})
        os.utime(self._root / known.digest)
        return known

    def _make(self) -> None:
        """Create the folders, and remove what an interrupted process had begun to pull."""
        if self._made:
            return
        (self._root / "names").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.chmod(0o700)
        for left in self._root.glob(f"{PULLING}*"):
            shutil.rmtree(left, ignore_errors=True)
        self._made = True

    def _name_file(self, whose: str) -> Path:
        return self._root / "names" / hashlib.sha256(whose.encode()).hexdigest()

    def _known(self, whose: str) -> Image | None:
        try:
            return self._read(self._name_file(whose).read_text())
        except FileNotFoundError:
            return None

    def _read(self, digest: str) -> Image:
        folder = self._root / digest
        config = json.loads((folder / "image.json").read_bytes())
        pairs = (one.partition("=") for one in config.get("Env") or ())
        environment = {key: value for key, _, value in pairs if key and "\0" not in key + value}
        return Image(digest, folder / pull.ROOT, environment)

    def _pull(
        self, name: str, whose: str, parts: reference.Reference, ticket: PullTicket, tell: Tell
    ) -> Image:
        folder = Path(tempfile.mkdtemp(prefix=PULLING, dir=self._root))
        try:
            answer = self._ask(parts, ticket, folder, tell)
            if text := answer.get("text"):
                if answer["failure"] == "unreachable":
                    raise EngineError(f"image {name} cannot be pulled: {text}")
                raise EngineError(f"image={name!r}: cannot be pulled: {text}")
            digest = str(answer["digest"]).partition(":")[2]
            if not answer.get("known"):
                write_whole(folder / "image.json", json.dumps(answer["config"]).encode())
                if not (self._root / digest).exists():  # the same one may have another name
                    folder.rename(self._root / digest)
            write_whole(self._name_file(whose), digest.encode())
            return self._read(digest)
        except OSError as error:
            raise EngineError(f"image {name} cannot be stored: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _ask(
        self, parts: reference.Reference, ticket: PullTicket, folder: Path, tell: Tell
    ) -> dict[str, Any]:
        settings = self._settings
        asked = {
            "folder": str(folder),
            "bubblewrap": self._bubblewrap(),
            "network": str(ticket.network or ""),
            "files": [(str(source), str(target)) for source, target in ticket.files],
            "host": parts.host,
            "plain": parts.plain,
            "repository": parts.repository,
            "version": parts.version,
            # Over plain HTTP, as at loopback, the library tells them to nobody.
            "login": ticket.login(parts.registry)
            or reference.login_of(parts.registry, settings.credentials),
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "most_bytes": settings.most_gib * GIB,
            "most_unpacked_bytes": settings.most_gib * GIB,
            "known": str(self._root),
        }
        with subprocess.Popen(
            [sys.executable, "-P", "-m", f"{pull.PACKAGE}.pull"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={name: os.environ[name] for name in _TOLD if name in os.environ},
        ) as process:
            if process.stdin is None or process.stdout is None:  # both are pipes
                raise RuntimeError("no pipes")
            json.dump(asked, process.stdin)
            process.stdin.close()
            answer: dict[str, Any] = {"failure": "unreachable", "text": "the puller broke off"}
            for line in process.stdout:
                said = json.loads(line)
                if "total" in said:
                    tell(said["done"], said["total"])
                else:
                    answer = said
        return answer

    def _prune(self, used: Collection[str]) -> None:
        """Remove what was not used for longest until all together are within the limit."""
        folders = [one for one in self._root.iterdir() if (one / "image.json").exists()]
        sizes = {folder: _size(folder) for folder in folders}
        total = sum(sizes.values())
        for folder in sorted(folders, key=lambda one: one.stat().st_mtime):
            if total <= self._settings.store_gib * GIB:
                return
            if folder.name not in used:
                total -= sizes[folder]
                going = folder.with_name(f"{PULLING}{folder.name}")
                folder.rename(going)
                shutil.rmtree(going, ignore_errors=True)


def _size(folder: Path) -> int:
    facts = {}
    for above, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(f"{above}/{name}")
            facts[found.st_ino] = found.st_blocks * 512
    return sum(facts.values())
