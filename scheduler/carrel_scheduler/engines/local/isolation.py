"""Which folders an account sees: what it could not reach by itself and needs is shown to it.

The state folder is closed to everybody (mode 0700), and so may be whatever lies around the clone
or its Python (``/root``). For each folder that a task needs, the outermost closed folder on the
way is veiled in the task's private mount namespace and the needed folder put back at its path.
A veil always hides more than it shows: nothing that was closed opens. A folder that is shown may
itself hold closed ones (somebody's volume with the state folder in it): these get veils of their
own, mounted after what they lie in.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.interpreter import SOURCES
from carrel_scheduler.engines.local.shim.sandbox import root_alone_changes

TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these are the folders that get replaced


class View(msgspec.Struct, frozen=True):
    """Mounts of one task; see ``shim.job.Job``."""

    veils: list[str]
    binds: list[tuple[str, str, bool]]


def temporary_folders() -> list[Path]:
    """Folders for temporary files, in whose place a task has its own."""
    return [folder for folder in TEMPORARY if folder.is_dir() and not folder.is_symlink()]


def interpreter_folders(account: Account) -> list[Path]:
    """Folders without which our own Python and its packages cannot be used.

    Raises ``EngineError`` when they are closed to the account by their own permissions.
    """
    for prefix in (Path(sys.prefix), Path(sys.base_prefix)):
        if not passes(prefix, account, 5):
            raise EngineError(
                f"users cannot read {prefix}, where Python lies: chmod -R go+rX {prefix}"
            )
    found = [Path(entry) for entry in (sys.prefix, sys.exec_prefix, sys.base_prefix)]
    found += [Path(entry) for entry in sys.path if entry]
    link = Path(sys.executable)
    while link.is_symlink():
        link = link.parent / link.readlink()
        found.append(link.parent)
    return [folder for folder in dict.fromkeys(found) if folder.exists()]


def passes(path: Path, account: Account, need: int) -> bool:
    """Whether permission bits let the account use ``path`` with ``need`` (4 read, 1 pass)."""
    facts = path.stat()
    if facts.st_uid == account.uid:
        granted = facts.st_mode >> 6
    elif facts.st_gid == account.gid:
        granted = facts.st_mode >> 3
    else:
        granted = facts.st_mode
    return granted & need == need


def closed_ancestor(path: Path, account: Account) -> Path | None:
    """The outermost folder above ``path`` that the account cannot pass."""
    for ancestor in reversed(path.parents):
        if not passes(ancestor, account, 1):
            return ancestor
    return None


def check_kept(path: str, account: Account) -> None:
    """Refuse a read-only volume that nothing would keep the account from writing to.

    Without root's help there are no mounts, and the folder's own permissions may let it.
    """
    if account.shared and os.access(path, os.W_OK):
        raise EngineError(
            f"volumes={path!r}: cannot be kept from being written to here, where all work "
            "runs as one account; leave out :ro, or take the permission away from the folder"
        )


def plan_view(
    account: Account,
    *,
    readable: Iterable[Path],
    own: Iterable[Path],
    covered: Iterable[Path] = (),
    replaced: Sequence[tuple[Path, Path]] = (),
) -> View:
    """What to mount for a task of what is ours.

    Raises ``EngineError`` when somebody else could put something in the place of a folder that
    has to be covered.

    Args:
        account: who will look.
        readable: folders to show read-only (as far as their permissions allow).
        own: folders of the account, to show as they are.
        covered: folders to hide, where they are to be seen.
        replaced: (source, target) files shown in place of others, read-only.
    """
    veils: set[Path] = set()
    binds: dict[Path, tuple[str, str, bool]] = {}
    for path, read_only in sorted(_wanted(readable, own).items()):
        _show(path, account, veils, binds, read_only=read_only)
    for path in covered:
        real = path.resolve()
        if real.is_dir() and not any(real.is_relative_to(veil) for veil in veils):
            veils.add(real)
    hidden = [path for path in binds if any(path.is_relative_to(one) for one in TEMPORARY)]
    for needed in (*veils, *hidden):
        if not root_alone_changes(os.path.realpath(needed), _trusted()):
            raise EngineError(
                f"{needed} holds what tasks of user {account.name!r} need and lies in a folder that"
                " others than root can change; move it to where only root can"
            )
    ordered = [binds[path] for path in sorted(binds)]
    ordered += [
        (os.path.realpath(source), os.path.realpath(target), True) for source, target in replaced
    ]
    return View([str(path) for path in sorted(veils)], ordered)


def _trusted() -> tuple[int, ...]:
    """Root, and whoever owns the programs that root runs here."""
    return 0, SOURCES.stat().st_uid, Path(sys.prefix).stat().st_uid


def _wanted(readable: Iterable[Path], own: Iterable[Path]) -> dict[Path, bool]:
    """Every path to show, as named and as it really is, and whether it is read-only."""
    found: dict[Path, bool] = {}
    for read_only, folders in ((True, readable), (False, own)):
        for folder in folders:
            found[folder.absolute()] = found[folder.resolve()] = read_only
    return found


def _show(
    path: Path,
    account: Account,
    veils: set[Path],
    binds: dict[Path, tuple[str, str, bool]],
    *,
    read_only: bool,
) -> None:
    """Add what makes ``path`` visible; the folders above it have had their turn."""
    if path in TEMPORARY:
        return
    shown = next((above for above in path.parents if above in binds), None)
    if shown is not None:
        closed = _first_closed(path, account, below=shown)
        if closed is None and binds[shown][2] in (read_only, False):
            return
    elif any(path.is_relative_to(folder) for folder in TEMPORARY):
        closed = None
    else:
        closed = closed_ancestor(path, account)
        if closed is None:
            return
    if closed is not None:
        if os.path.realpath(closed) != str(closed):
            return  # it is shown where it really is, and links lead there
        veils.add(closed)
    binds[path] = (os.path.realpath(path), str(path), read_only)


def _first_closed(path: Path, account: Account, *, below: Path) -> Path | None:
    """The outermost folder between ``below`` and ``path`` that the account cannot pass."""
    between = [above for above in reversed(path.parents) if above.is_relative_to(below)]
    return next((above for above in between[1:] if not passes(above, account, 1)), None)
