"""Encryption of stored secrets (Fernet: AES-128-CBC, HMAC-SHA256).

The newest key encrypts, all of them decrypt, so a key is replaced while the ledger has secrets of
older ones: a new key is put before the others, everything is encrypted anew, and only the newest is
kept. A stored secret belongs to one workload: under the uid of another it cannot be read.

On one machine the keys are in a file of their own, beside the ledger; on a cluster in a Kubernetes
Secret. Whoever has both a copy of the ledger and its keys reads the secrets.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from carrel_scheduler.ledger.columns.codec import to_json
from carrel_scheduler.ledger.errors import LedgerNotUsable, SecretsUnreadable

KEYS_FILE: Final = "ledger-secrets.key"
_STORED: Final = msgspec.json.Decoder(tuple[str, dict[str, str]])
_PLAIN: Final = msgspec.json.Decoder(dict[str, str])


class SecretKeys:
    """Keys of one ledger, the newest first.

    Args:
        keys: as ``Fernet.generate_key`` makes them; at least one. Raises ``ValueError``.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._newest = Fernet(keys[0]) if keys else None
        self._all = MultiFernet([Fernet(key) for key in keys])
        self._signing = [hashlib.sha256(f"carrel audit {key}".encode()).digest() for key in keys]

    @classmethod
    def from_text(cls, text: str, label: str) -> Self:
        """Keys from text, one a line; ``label`` names it in errors. Raises ``LedgerNotUsable``."""
        try:
            return cls(text.split())
        except ValueError as error:
            wrong = "holds no keys as `carrel keys rotate` writes them, one a line"
            raise LedgerNotUsable("keys_not_usable", label, wrong) from error

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """Read the keys from a file, or make it with a new key. Raises ``LedgerNotUsable``."""
        try:
            if not path.exists():
                write_keys(path, [new_key()])
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise LedgerNotUsable("keys_not_usable", str(path), str(error)) from error
        return cls.from_text(text, str(path))

    def encrypt(self, uid: str, environment: Mapping[str, str]) -> str:
        """The encrypted form of secrets. Raises ``InvalidArgument`` for what JSON cannot hold."""
        text = to_json((uid, dict(environment)), "secrets")
        return self._all.encrypt(text.encode()).decode("ascii")

    def decrypt(self, uid: str, stored: str) -> dict[str, str]:
        """The environment; raises ``SecretsUnreadable``."""
        # Earlier versions did not encrypt.
        if stored.startswith("{"):
            return _PLAIN.decode(stored)
        try:
            owner, environment = _STORED.decode(self._all.decrypt(stored))
        except InvalidToken as error:
            raise SecretsUnreadable(f"no key fits the secrets of workload {uid}") from error
        if owner != uid:
            raise SecretsUnreadable(f"the secrets of workload {uid} are those of another")
        return environment

    def sign(self, text: bytes) -> str:
        """A signature (HMAC-SHA256) by the newest key."""
        return hmac.digest(self._signing[0], text, "sha256").hex()

    def signed(self, text: bytes, signature: str) -> bool:
        """Whether a text was signed by one of the keys."""
        made = (hmac.digest(key, text, "sha256").hex() for key in self._signing)
        return any(hmac.compare_digest(one, signature) for one in made)

    def is_newest(self, stored: str) -> bool:
        """Whether the text was encrypted with the newest key."""
        if self._newest is None or stored.startswith("{"):
            return False
        try:
            self._newest.decrypt(stored)
        except InvalidToken:
            return False
        return True


def new_key() -> str:
    """A random one."""
    return Fernet.generate_key().decode("ascii")


def write_keys(path: Path, keys: Sequence[str]) -> None:
    """Replace the file (mode 0600), on the disk when this returns. Raises ``OSError``."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("".join(f"{key}\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
