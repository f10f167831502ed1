"""The secrets of one installation: made once, kept in one file that its owner alone can read."""

import os
import secrets
from pathlib import Path
from typing import Final, Self

import msgspec
from typing_extensions import override

KEYS_FILE: Final = "keys.json"


class Keys(msgspec.Struct, kw_only=True, frozen=True):
    """The secrets of an installation, by purpose.

    Attributes:
        cookie: signs the Hub's cookies (hex, 32 bytes).
        crypt: encrypts the Hub's auth state (hex, 32 bytes).
        proxy: between Hub and proxy.
        scheduler, console, gateway, spawner: Hub tokens of these services.
        setup: Hub token of the person at the machine: `carrel up` and `carrel user` use it.
        metrics: Hub token with which Prometheus reads metrics and nothing else; empty: there is
            none.
    """

    cookie: str
    crypt: str
    proxy: str
    scheduler: str
    console: str
    gateway: str
    spawner: str
    setup: str
    metrics: str = ""

    @classmethod
    def generate(cls) -> Self:
        """Generate new secrets."""
        return cls(**{name: secrets.token_hex(32) for name in cls.__struct_fields__})

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """Read the file, or make it; what an older one lacks is added.

        Raises ``OSError``, ``msgspec.MsgspecError``.
        """
        try:
            known = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            known = {}
        keys = msgspec.convert(msgspec.structs.asdict(cls.generate()) | known, cls)
        if set(known) < set(cls.__struct_fields__):
            fresh = path.with_name(f"{path.name}.new")
            descriptor = os.open(fresh, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(msgspec.json.encode(keys))
            fresh.replace(path)
        return keys

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the keys from a folder with a file for each (a mounted secret). Raises ``OSError``.

        ``metrics`` may be missing: an installation made before it was there goes on without.
        """
        names = [*cls.__struct_fields__]
        if not (folder / "metrics").exists():
            names.remove("metrics")
        return cls(**{name: cls.read_one(folder, name) for name in names})

    @staticmethod
    def read_one(folder: Path, name: str) -> str:
        """Read one key, for a part that is given no other. Raises ``OSError``."""
        return (folder / name).read_text().strip()

    @override
    def __repr__(self) -> str:
        """The name of the class, without secrets."""
        return f"{type(self).__name__}(...)"
