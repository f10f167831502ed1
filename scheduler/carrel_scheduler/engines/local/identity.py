"""Names for accounts that the machine does not list, so that ``whoami`` and prompts know them.

A dynamic account has a number only. Its tasks see copies of ``/etc/passwd`` and ``/etc/group``
with a line for it; the machine's own files stay as they are.
"""

from pathlib import Path
from typing import Final

from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.layout import write_whole

PASSWD: Final = Path("/etc/passwd")
GROUP: Final = Path("/etc/group")


def listings(account: Account, folder: Path) -> list[tuple[Path, Path]]:
    """(our copy, the machine's file) to show to the account's tasks; none when it is listed."""
    if account.listed:
        return []
    person = f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:/bin/bash"
    group = f"{account.name}:x:{account.gid}:"
    return [
        (_copy(PASSWD, person, folder / f"{account.name}.passwd"), PASSWD),
        (_copy(GROUP, group, folder / f"{account.name}.group"), GROUP),
    ]


def _copy(original: Path, line: str, copy: Path) -> Path:
    """Its line takes the place of one with the same name, which is somebody else's."""
    name = line.partition(":")[0].encode() + b":"
    others = [one for one in original.read_bytes().splitlines() if not one.startswith(name)]
    wanted = b"\n".join([*others, line.encode(), b""])
    if not copy.exists() or copy.read_bytes() != wanted:
        write_whole(copy, wanted, mode=0o644)
    return copy
