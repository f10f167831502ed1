"""Passwords: made to be read aloud once, kept as scrypt hashes, compared in constant time."""

import base64
import hashlib
import hmac
import secrets
from typing import Final

# Without letters that look like digits; five bits each.
ALPHABET: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_COST, _BLOCK, _PARALLEL, _BYTES = 2**14, 8, 1, 32
_MEMORY: Final = 64 * 1024 * 1024
SHORTEST: Final = 8
LONGEST: Final = 256


def generate() -> str:
    """A new password of about 78 bits, in four groups."""
    return "-".join("".join(secrets.choice(ALPHABET) for _ in range(4)) for _ in range(4))


def hash_password(password: str, salt: bytes | None = None) -> str:
    """``scrypt$cost$block$parallel$salt$hash`` with a random salt. Takes about 50 ms."""
    salt = salt or secrets.token_bytes(16)
    digest = _scrypt(password, salt, _COST, _BLOCK, _PARALLEL)
    parts = ("scrypt", str(_COST), str(_BLOCK), str(_PARALLEL), _text(salt), _text(digest))
    return "$".join(parts)


def verify(password: str, stored: str) -> bool:
    """Whether the password is the one. An empty or foreign hash matches nothing."""
    try:
        kind, cost, block, parallel, salt, digest = stored.split("$")
        expected = base64.b64decode(digest)
        found = _scrypt(password, base64.b64decode(salt), int(cost), int(block), int(parallel))
    except ValueError:
        return False
    return kind == "scrypt" and hmac.compare_digest(found, expected)


def _scrypt(password: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=block, p=parallel, maxmem=_MEMORY, dklen=_BYTES
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
