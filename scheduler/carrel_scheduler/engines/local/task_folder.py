"""Folders of a task: its own with files and volumes, event files, and what its sandbox mounts.

``events/<workload>/`` belongs to the job's user and is readable by others, but lies below the
engine's closed state folder: only a task whose mounts show it gets there. Parts of composite work
write to ``events/<owner>/<part>/``. Every folder above a user's own is the engine's, so that nobody
can put a link in the place of one that will be shown to others.

Folders that a task's account needs and cannot reach are bind-mounted for it. The state folder is
closed to everybody (mode 0700), and so may be the folders around the clone or its Python
(``/root``). For each folder that a task needs, the outermost closed folder on the way is masked
(covered by an empty one) in the task's mount namespace and the needed folder is bound at its path.
A mask always hides more than is bound in it: nothing that was closed opens. A bound folder may
itself hold closed ones (a volume with the state folder in it): these get masks of their own,
mounted after the folder that they lie in.
"""

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import msgspec

from carrel_scheduler.engines.contract import EngineError, TaskSpec
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.fork_server import SOURCES
from carrel_scheduler.engines.local.shim.mount_points import root_alone_changes
from carrel_scheduler.engines.local.task_state import StateLayout

READABLE: Final = 0o755
MOST_PARTS: Final = 2
_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def relative_path(text: str, field: str) -> PurePosixPath:
    """A path that stays inside its folder. Raises ``EngineError`` naming field and value."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise EngineError(f"{field}={text!r}: a relative path without '..' is right")
    return path


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, and create the folders above them."""
    for name, content in files.items():
        target = folder / relative_path(name, "files")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8", newline="") as file:
                file.write(content)
        except OSError as error:
            raise EngineError(f"files={name!r}: cannot be written: {error.strerror}") from error


def destinations(
    volumes: Sequence[tuple[str, str]], files: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """(source, destination or empty) of each volume: absolute, or relative to the task's folder.

    Raises ``EngineError`` for a destination inside another one or inside a file.
    """
    taken = {relative_path(name, "files").parts for name in files}
    for source, destination in volumes:
        if destination in ("", source):
            yield source, ""
            continue
        if destination.startswith("/"):
            relative_path(destination.lstrip("/"), "volumes")
            place = PurePosixPath("/", destination.lstrip("/")).parts
        else:
            place = relative_path(destination, "volumes").parts
        for other in taken:
            shorter = min(len(place), len(other))
            if place[:shorter] == other[:shorter]:
                raise EngineError(
                    f"volumes={destination!r}: lies in the same place as {'/'.join(other)!r};"
                    " a destination beside those of the other volumes and files is right"
                )
        taken.add(place)
        yield source, str(PurePosixPath(*place))


def in_volume(path: str, volumes: Sequence[tuple[str, str]]) -> bool:
    """Whether a path lies in a volume that is mounted at another path than its own."""
    places = [place for source, place in volumes if place not in ("", source)]
    return any(PurePosixPath(path).is_relative_to(place) for place in places)


def place_volumes(
    folder: Path, volumes: Sequence[tuple[str, str]], files: Iterable[str], *, linked: bool
) -> None:
    """Make the folders above destinations in the task's folder, or links at them (``linked``).

    Raises ``EngineError`` for an absolute destination where there are no mounts but links.
    """
    for source, place in list(destinations(volumes, files)):
        if place.startswith("/") and linked:
            raise EngineError(
                f"volumes={place!r}: work of an ordinary account mounts nothing at paths of the"
                f" machine; {place.lstrip('/')!r}, a name in the task's folder, is right, or none"
            )
        if place and not place.startswith("/"):
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if linked:
                target.symlink_to(source)


def give(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder that only the engine could write so far."""
    if account.shared:
        return
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            os.chown(Path(parent, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(folder, account.uid, account.gid)


def own_folder(root: Path, name: str, account: Account, mode: int = 0o700) -> Path:
    """Make a folder of the account inside one of the engine, unless it is there."""
    return make_folder(root, name, mode, None if account.shared else (account.uid, account.gid))


def make_folder(root: Path, name: str, mode: int, owner: tuple[int, int] | None) -> Path:
    """Make a folder by descriptor, unless it is there; the target of a link is never changed.

    Args:
        root: folder of the engine.
        name: of the new folder.
        mode: its permissions, set while the engine owns it.
        owner: (uid, gid) of its owner; ``None`` for the engine.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            above = os.open(root, flags)
            stack.callback(os.close, above)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
            descriptor = os.open(name, flags, dir_fd=above)
            stack.callback(os.close, descriptor)
        except NotADirectoryError as error:  # also what a link is
            raise EngineError(f"{root / name} is no folder; delete it") from error
        facts = os.fstat(descriptor)
        if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) != mode:
            os.fchmod(descriptor, mode)
        if owner is not None and facts.st_uid != owner[0]:
            os.fchown(descriptor, *owner)
    return root / name


def events_folder(root: Path, where: str, account: Account) -> Path:
    """Create the folder of a job's event files, if it is missing.

    Args:
        root: of all event files.
        where: below it; one name, or two for a part.
        account: the job's.
    """
    *above, last = _parts(where)
    folder = root
    for part in above:
        folder = make_folder(folder, part, READABLE, None)
    return own_folder(folder, last, account, READABLE)


def readable_events(root: Path, places: Iterable[str]) -> list[Path]:
    """Event folders of other workloads that a task may read, made if they are missing.

    Of a part the folder of the whole workload.
    """
    return [make_folder(root, _parts(where)[0], READABLE, None) for where in places]


def _parts(where: str) -> tuple[str, ...]:
    parts = PurePosixPath(where).parts
    if not 0 < len(parts) <= MOST_PARTS or not all(map(_PART.fullmatch, parts)):
        raise EngineError(f"events={where!r}: the uid of a workload, or `uid/part`, is right")
    return parts


TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - these are the folders that get replaced


class Mounts(msgspec.Struct, frozen=True):
    """Mounts of one task; see ``shim.job.Job``."""

    masks: list[str]
    binds: list[tuple[str, str, bool]]


def mounts_in_image(folder: Path, readable: Iterable[Path], own: Iterable[Path]) -> Mounts:
    """Bind mounts of a task whose root is an image: its folders, and its account's name."""
    record = folder.parent.resolve() / folder.name
    binds = [
        (os.path.realpath(path), str(path), read_only)
        for path, read_only in sorted(_wanted(readable, own).items())
    ]
    binds += [(str(record / name), f"/etc/{name}", True) for name in ("passwd", "group")]
    return Mounts([], binds)


def temporary_folders(image: str = "") -> list[Path]:
    """The private folders for temporary files of a sandboxed task."""
    if image:
        return list(TEMPORARY)
    return [folder for folder in TEMPORARY if folder.is_dir() and not folder.is_symlink()]


def interpreter_folders(account: Account) -> list[Path]:
    """The folders of the service's Python and its packages.

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
    elif facts.st_gid in (account.gid, *account.groups):
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
    """Masks and bind mounts that show folders of the engine to a task.

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
    """The users whose files may be trusted: root and the owners of programs that root runs."""
    return 0, SOURCES.stat().st_uid, Path(sys.prefix).stat().st_uid


def _wanted(readable: Iterable[Path], own: Iterable[Path]) -> dict[Path, bool]:
    """The paths to bind, as given and resolved, and whether each is read-only."""
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


class TaskFolders(NamedTuple):
    """The folders of one task that its environment names and its sandbox shows.

    Attributes:
        work: its working folder, which exists once the task starts.
        checkpoints: for its checkpoints.
        before: checkpoints from which it continues; at most one folder.
        models: the model that it serves; at most one folder.
        artifacts, events: for its artifacts and event files; at most one folder each.
        shown: event files of other work that it reads.
    """

    work: Path
    checkpoints: Path
    before: list[Path]
    models: list[Path]
    artifacts: list[Path]
    events: list[Path]
    shown: list[Path]


def folders_of(layout: StateLayout, task: TaskSpec, account: Account, folder: Path) -> TaskFolders:
    """The folders that a task reads and writes; those of its own are made.

    Raises ``EngineError`` where the model was deleted.
    """
    return TaskFolders(
        work=folder / "work",
        checkpoints=_checkpoints(layout, task, account),
        before=_before(layout, task),
        models=_model(layout, task),
        artifacts=(
            [own_folder(layout.artifacts, task.id.workload_uid, account)] if task.artifacts else []
        ),
        events=[events_folder(layout.events, task.events, account)] if task.events else [],
        shown=readable_events(layout.events, task.reads_events),
    )


def _checkpoints(layout: StateLayout, task: TaskSpec, account: Account) -> Path:
    """The folder for checkpoints: the engine's for the workload, or one of the user's."""
    ours = layout.checkpoints / task.id.workload_uid
    asked = Path(task.checkpoint_dir).absolute() if task.checkpoint_dir else ours
    return asked if asked != ours else own_folder(ours.parent, ours.name, account)


def _before(layout: StateLayout, task: TaskSpec) -> list[Path]:
    """The checkpoints from which the task continues, if there are any; its account owns them."""
    above, _, uid = task.continues.rpartition("/")
    if above == layout.copies.name:
        return _existing(layout.copies, uid)
    return _existing(layout.checkpoints, task.continues)


def _model(layout: StateLayout, task: TaskSpec) -> list[Path]:
    found = _existing(layout.copies, task.model)
    if task.model and not found:
        raise EngineError("the model of this work was deleted")
    return found


def _existing(above: Path, name: str) -> list[Path]:
    folder = above / name
    if not name or folder.parent != above:
        return []
    return [folder] if folder.is_dir() and not folder.is_symlink() else []
