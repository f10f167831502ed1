"""Empty ledgers in files, each a copy of one that was migrated once for the whole run.

Migrating takes longer than most of what is then done with a ledger.
"""

import functools
import tempfile
from pathlib import Path

from carrel_scheduler.ledger.open import migrated


def empty_ledger(file: Path) -> str:
    """Put one where none is; returns its URL."""
    if not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(_migrated())
    return f"sqlite:///{file}"


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.sqlite"
        migrated(f"sqlite:///{file}").dispose()
        return file.read_bytes()
