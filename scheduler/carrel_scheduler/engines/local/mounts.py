"""Mounts of a task: folders that its account needs and cannot reach are bind-mounted for it.

The state folder is closed to everybody (mode 0700), and so may be the folders around the clone or
its Python (``/root``). For each folder that a task needs, the outermost closed folder on the way is
masked (covered by an empty one) in the task's mount namespace and the needed folder is bound at
its path. A mask always hides more than is bound in it: nothing that was closed opens. A bound
folder may itself hold closed ones (a volume with the state folder in it): these get masks of their
own, mounted after the folder that they lie in.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.fork_server import SOURCES
from carrel_scheduler.engines.local.shim.sandbox import root_alone_changes

TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these are the folders that get replaced


class Mounts(msgspec.Struct, frozen=True):
    """Mounts of one task; see ``shim.job.Job``."""

    masks: list[str]
    binds: list[tuple[str, str, bool]]


def temporary_folders() -> list[Path]:
    """Folders for temporary files that a sandboxed task has of its own."""
    return [folder for folder in TEMPORARY if folder.is_dir() and not folder.is_symlink()]


def interpreter_folders(account: Account) -> list[Path]:
    """Folders of the service's Python and its packages.

    Raises ``EngineError`` when their permissions keep the account from reading them.
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


def closed_ancestor(path: Path, account: Account, below: Path | None = None) -> Path | None:
    """The outermost folder above ``path`` (and below ``below``) that the account cannot pass."""
    above = [one for one in reversed(path.parents) if below is None or below in one.parents]
    return next((one for one in above if not passes(one, account, 1)), None)


def check_kept(path: str, account: Account) -> None:
    """Refuse a read-only volume where there are no mounts and its permissions allow writing."""
    if account.shared and os.access(path, os.W_OK):
        raise EngineError(
            f"volumes={path!r}: cannot be kept from being written to here, where all work "
            "runs as one account; leave out :ro, or take the permission away from the folder"
        )


def plan_mounts(
    account: Account,
    *,
    readable: Iterable[Path],
    own: Iterable[Path],
    covered: Iterable[Path] = (),
    replaced: Sequence[tuple[Path, Path]] = (),
) -> Mounts:
    """Masks and bind mounts that show a task folders of the engine.

    Args:
        account: of the task.
        readable: folders to bind read-only (as far as their permissions allow).
        own: folders of the account, to bind as they are.
        covered: folders to mask where they are visible.
        replaced: (source, target) files bound in place of others, read-only.

    Raises ``EngineError`` when others than root could replace a folder that has to be masked.
    """
    masks: set[Path] = set()
    binds: dict[Path, tuple[str, str, bool]] = {}
    for path, read_only in sorted(_wanted(readable, own).items()):
        _show(path, account, masks, binds, read_only=read_only)
    for path in covered:
        real = path.resolve()
        if real.is_dir() and not any(real.is_relative_to(mask) for mask in masks):
            masks.add(real)
    hidden = [path for path in binds if any(path.is_relative_to(one) for one in TEMPORARY)]
    for needed in (*masks, *hidden):
        if not root_alone_changes(os.path.realpath(needed), _trusted()):
            raise EngineError(
                f"{needed} holds what tasks of user {account.name!r} need and lies in a folder that"
                " others than root can change; move it to where only root can"
            )
    ordered = [binds[path] for path in sorted(binds)]
    ordered += [
        (os.path.realpath(source), os.path.realpath(target), True) for source, target in replaced
    ]
    return Mounts([str(path) for path in sorted(masks)], ordered)


def _trusted() -> tuple[int, ...]:
    """Root and the owners of the programs that root runs here."""
    return 0, SOURCES.stat().st_uid, Path(sys.prefix).stat().st_uid


def _wanted(readable: Iterable[Path], own: Iterable[Path]) -> dict[Path, bool]:
    """Every path to bind, as named and resolved, and whether it is read-only."""
    found: dict[Path, bool] = {}
    for read_only, folders in ((True, readable), (False, own)):
        for folder in folders:
            found[folder.absolute()] = found[folder.resolve()] = read_only
    return found


def _show(
    path: Path,
    account: Account,
    masks: set[Path],
    binds: dict[Path, tuple[str, str, bool]],
    *,
    read_only: bool,
) -> None:
    """Add the mask and the bind mount of ``path``; those of folders above it are there."""
    if path in TEMPORARY:
        return
    shown = next((above for above in path.parents if above in binds), None)
    if shown is not None:
        closed = closed_ancestor(path, account, shown)
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
            return  # it is bound at its resolved path, and links lead there
        masks.add(closed)
    binds[path] = (os.path.realpath(path), str(path), read_only)
