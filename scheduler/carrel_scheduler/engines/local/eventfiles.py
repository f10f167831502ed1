"""Where jobs write event files, and who may read them.

``events/<workload>/`` belongs to the job's user and is open to others' eyes, but lies below the
engine's closed state folder: only a task whose view shows it gets there. Parts of composite work
write to ``events/<owner>/<part>/``. Every folder above a user's own is ours, so that nobody can put
a link in the place of one that will be shown to them.
"""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local import files
from carrel_scheduler.engines.local.accounts import Account

OPEN: Final = 0o755
_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
MOST_PARTS: Final = 2


def own_folder(root: Path, where: str, account: Account) -> Path:
    """The folder of a job, made on first use.

    Args:
        root: of all event files.
        where: below it; one name, or two for a part.
        account: the job's.
    """
    *above, last = _parts(where)
    folder = root
    for part in above:
        folder = files.make_folder(folder, part, OPEN, None)
    return files.own_folder(folder, last, account, OPEN)


def shown_folders(root: Path, places: Iterable[str]) -> list[Path]:
    """Folders of other workloads that a task may read; one that is not there yet is made.

    Of a part the whole of what it is a part of is shown.
    """
    return [files.make_folder(root, _parts(where)[0], OPEN, None) for where in places]


def _parts(where: str) -> tuple[str, ...]:
    parts = PurePosixPath(where).parts
    if not 0 < len(parts) <= MOST_PARTS or not all(map(_PART.fullmatch, parts)):
        raise EngineError(f"events={where!r}: the uid of a workload, or `uid/part`, is right")
    return parts
