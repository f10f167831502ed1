"""Encrypts a backup with a passphrase, by the primitives of the library ``cryptography``.

A file is ``MAGIC``, a salt of 16 bytes, a nonce of 12, and what AES-256-GCM makes of the content;
all that comes before is authenticated with it. The key is scrypt's of the passphrase and the salt,
with N = 2**17, r = 8, p = 1. Images without the library make backups that are not encrypted.
"""

import os
from typing import Final

MAGIC: Final = b"carrel backup, scrypt and AES-256-GCM, 1\n"
_SALT, _NONCE, _KEY = 16, 12, 32
_HEAD: Final = len(MAGIC) + _SALT + _NONCE


class WrongPassphrase(Exception):  # noqa: N818 - an outcome
    """The content was not encrypted with this passphrase, or it was changed since."""


def is_encrypted(content: bytes) -> bool:
    """Whether this is a file of ours."""
    return content.startswith(MAGIC)


def encrypt(content: bytes, passphrase: str) -> bytes:
    """Encrypt with a salt and a nonce of its own. Raises ``OverflowError`` above 2 GiB."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    head = MAGIC + salt + nonce
    return head + AESGCM(_key(passphrase, salt)).encrypt(nonce, content, head)


def decrypt(content: bytes, passphrase: str) -> bytes:
    """Decrypt the whole archive. Raises ``WrongPassphrase``."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    head, sealed = content[:_HEAD], content[_HEAD:]
    salt, nonce = head[len(MAGIC) : -_NONCE], head[-_NONCE:]
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, sealed, head)
    except (InvalidTag, ValueError) as error:
        raise WrongPassphrase from error


def _key(passphrase: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY, n=2**17, r=8, p=1).derive(passphrase.encode())
