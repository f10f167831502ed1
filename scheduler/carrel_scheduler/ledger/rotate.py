"""A new key for the secrets in a ledger that no scheduler uses now.

``python -m carrel_scheduler.ledger.rotate KEYS DATABASE_URL`` puts a new key before those in the
file ``KEYS``, encrypts all secrets by it, and keeps no other. If it is interrupted the file has the
old keys still, and doing it again finishes it.
"""

import argparse
import asyncio
import sys
import time
import uuid
from pathlib import Path

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.secret_keys import SecretKeys, new_key, write_keys
from carrel_scheduler.ledger.store import StoreError


async def rotate(keys_file: Path, url: str, *, discard: bool = False) -> tuple[int, int]:
    """Returns how many workloads' secrets were encrypted anew, and how many were dropped.

    Args:
        keys_file: made if it is missing.
        url: of the database.
        discard: drop secrets that no key fits, instead of raising ``LedgerNotUsable`` for them.

    Raises ``StoreError``, ``OSError``.
    """
    SecretKeys.load_or_create(keys_file)  # an unusable file is left as it is
    newest = new_key()
    write_keys(keys_file, [newest, *keys_file.read_text().split()])
    keys = SecretKeys.load_or_create(keys_file)
    ledger = await open_ledger(url, clock=time.time, ids=lambda: uuid.uuid4().hex, keys=keys)
    try:
        counted = await ledger.encrypt_secrets_anew(discard=discard)
    finally:
        await ledger.close()
    write_keys(keys_file, [newest])
    return counted


def main() -> None:
    """Entry point, see the module."""
    parser = argparse.ArgumentParser(description="Encrypt the secrets of work by a new key.")
    parser.add_argument("keys", type=Path)
    parser.add_argument("database_url")
    parser.add_argument("--discard-unreadable", action="store_true")
    given = parser.parse_args()
    try:
        done, dropped = asyncio.run(
            rotate(given.keys, given.database_url, discard=given.discard_unreadable)
        )
    except (StoreError, OSError) as error:
        sys.exit(str(error))
    sys.stdout.write(f"Encrypted the secrets of {done} workloads by a new key")
    sys.stdout.write(f"; dropped those of {dropped}.\n" if dropped else ".\n")


if __name__ == "__main__":
    main()
