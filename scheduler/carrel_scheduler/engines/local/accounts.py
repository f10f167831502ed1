"""The account of the operating system under which each user's tasks run.

If the scheduler runs as root: a number from a block of this installation that never changes, with a
home of its own; the machine's ordinary account of the same name only if the admin lists it, because
a user of Carrel and an account of the machine with one name need not be the same person. Never root
and never a system account. Otherwise all tasks share the scheduler's account.

Blocks lie where no distribution, directory service (SSSD maps up to 2000200000), subordinate id or
container manager allots numbers. Each installation chooses one at random and keeps it.
"""

import fcntl
import grp
import os
import pwd
import re
import secrets
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.task_state import PRIVATE, write_whole
from carrel_schema.governance.people import LEAST_ID, NO_IDS, PosixIdentity, usable

NOBODY: Final = 65534
BLOCKS: Final = range(2_013_265_920, 2_130_706_432, 8192)
EVERY: Final = "*"
GROUPS: Final = Path("/etc/group")
SUBORDINATE: Final = (Path("/etc/subuid"), Path("/etc/subgid"))
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")


class AccountRefused(EngineError):  # noqa: N818 - an outcome, like those of the contract
    """The engine refuses to run tasks for this user name."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account of the operating system.

    Attributes:
        name: login name; that of the user.
        groups: numbers of further groups.
        shared: it is the scheduler's own account, which all users share.
        listed: the machine knows it (``/etc/passwd`` or a directory service).
    """

    name: str
    uid: int
    gid: int
    home: Path
    shared: bool
    listed: bool
    groups: tuple[int, ...] = ()


class Accounts:
    """Finds and keeps accounts.

    Args:
        state: folder of the numbers given out (``uids.json``, mode 0600).
        homes: where dynamic accounts have their homes.
        uids: numbers that may be given out; by default a block of this installation.
        system_accounts: names that stand for the machine's accounts; ``*``: each that has one.
        privileged: whether users can be switched; by default, whether we are root.
    """

    def __init__(
        self,
        state: Path,
        homes: Path,
        *,
        uids: range | None = None,
        system_accounts: Collection[str] = (),
        privileged: bool | None = None,
    ) -> None:
        if uids is not None and (uids.start < LEAST_ID or set(NO_IDS) & set(uids)):
            raise EngineError(
                f"uids={uids.start}-{uids.stop - 1}: a range from {LEAST_ID} without"
                f" {NO_IDS[0]} and {NO_IDS[1]} is right"
            )
        self._block_file, self._system = state / "block.json", system_accounts
        self._file, self._homes, self._uids = state / "uids.json", homes, uids
        self._guard = threading.Lock()
        self._wanted: set[str] = set()
        self.privileged = os.geteuid() == 0 if privileged is None else privileged

    @property
    def summary(self) -> str:
        """A summary for the admin who starts the service."""
        if self.privileged:
            return "Every user's work runs under an account of their own."
        name = _name_of(os.getuid()) or f"uid {os.getuid()}"
        return (
            f"All users' work runs under your account ({name}): they can read each other's files."
        )

    def resolve(self, user: str, posix: PosixIdentity | None = None) -> Account:
        """The account of a user; creates its home. Raises ``AccountRefused``.

        ``posix``: numbers of the directory; without them it gets a number of this installation.
        """
        if not _NAME.fullmatch(user) or ".." in user:
            raise AccountRefused(
                f"user={user!r}: letters, digits and '_', '.', '@', '+', '-' are right,"
                " beginning with a letter or digit"
            )
        known = _lookup(user)
        if not self.privileged:
            return self._shared(user, known)
        if known is not None and (known.pw_uid < LEAST_ID or known.pw_uid in NO_IDS):
            raise AccountRefused(
                f"user={user!r}: this is a system account of the machine, whose number"
                f" {known.pw_uid} no task may run under; choose another user name"
            )
        number = self._given().get(user)
        if posix is not None:
            return self._of_directory(user, posix)
        if number is None and known is not None and {user, EVERY} & set(self._system):
            if known.pw_gid == 0:
                raise AccountRefused(f"user={user!r}: its group is root's; give it its own group")
            home = Path(known.pw_dir)
            uid, gid = known.pw_uid, known.pw_gid
            return Account(name=user, uid=uid, gid=gid, home=home, shared=False, listed=True)
        return self._dynamic(user, self._give(user) if number is None else number)

    def _shared(self, user: str, known: pwd.struct_passwd | None) -> Account:
        if os.getuid() == 0:
            raise EngineError("root's account is never shared: let users be switched")
        own = known is not None and known.pw_uid == os.getuid()
        home = Path(known.pw_dir) if own and known is not None else self._make_home(user)
        uid, gid = os.getuid(), os.getgid()
        return Account(name=user, uid=uid, gid=gid, home=home, shared=True, listed=own)

    def _dynamic(self, user: str, number: int) -> Account:
        owner = _name_of(number)
        if (owner is not None and owner != user) or number < LEAST_ID:
            raise AccountRefused(
                f"user={user!r}: its number {number} belongs to the machine's account {owner!r};"
                f" correct {self._file} or give that account another number"
            )
        home = self._make_home(user)
        if home.stat().st_uid != number:
            os.chown(home, number, number, follow_symlinks=False)
        return Account(
            name=user, uid=number, gid=number, home=home, shared=False, listed=owner == user
        )

    def _of_directory(self, user: str, posix: PosixIdentity) -> Account:
        """An account with the directory's numbers, which no other account here may have."""
        own = usable(posix)
        if own.problem:
            raise AccountRefused(f"user={user!r}: {own.problem}")
        numbers = (own.uid, own.gid, *own.gids)
        if any(one in range(BLOCKS.start, BLOCKS.stop) for one in numbers):
            raise AccountRefused(
                f"user={user!r}: the directory's numbers {numbers} are partly among those from"
                f" {BLOCKS.start} that Carrel gives out; smaller ones are right"
            )
        holders = [name for name, uid in self._given().items() if uid == own.uid and name != user]
        if holders:
            raise AccountRefused(
                f"user={user!r}: the directory's uid {own.uid} is the number that {holders[0]!r}"
                " has here; give one of them another number"
            )
        owner = _name_of(own.uid)
        if own.uid == os.geteuid() or (owner is not None and owner != user):
            raise AccountRefused(
                f"user={user!r}: the directory's uid {own.uid} belongs to the machine's account"
                f" {owner!r}; give one of them another number"
            )
        local = _local_groups()
        if local.get(own.gid, user) != user:
            raise AccountRefused(
                f"user={user!r}: the directory's gid {own.gid} is that of the machine's group"
                f" {local[own.gid]!r}; give one of them another number"
            )
        home = self._make_home(user)
        found = home.stat().st_uid
        if found not in (own.uid, os.geteuid()):
            raise AccountRefused(
                f"user={user!r}: their home belongs to the number {found} of before; end their"
                f" work, then run: chown -R --from={found} {own.uid}:{own.gid} {home}"
            )
        os.chown(home, own.uid, own.gid, follow_symlinks=False)
        return Account(
            name=user,
            uid=own.uid,
            gid=own.gid,
            groups=tuple(one for one in own.gids if one not in local),
            home=home,
            shared=False,
            listed=owner == user,
        )

    def _make_home(self, user: str) -> Path:
        self._homes.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        home = self._homes / user
        home.mkdir(mode=PRIVATE, exist_ok=True)
        return home

    def _given(self) -> Mapping[str, int]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            raise EngineError(
                f"{self._file} is damaged ({error}); restore it from backup"
            ) from error

    def _give(self, user: str) -> int:
        """Give a user a lasting number; the holder of the lock serves all that wait for it."""
        with self._guard:
            self._wanted.add(user)
        with _locked(self._file.with_suffix(".lock")):
            given = dict(self._given())
            if user not in given:
                with self._guard:
                    wanted, self._wanted = self._wanted | {user}, set()
                given |= self._numbers(sorted(wanted - given.keys()), set(given.values()))
                write_whole(self._file, msgspec.json.encode(given), sync=True)
        if user not in given:
            uids = self._block()
            span = f"{uids.start} to {uids.stop - 1}"
            raise EngineError(f"all account numbers from {span} are given out")
        return given[user]

    def _numbers(self, users: list[str], taken: set[int]) -> dict[str, int]:
        """Unused numbers for these users, as long as there are some."""
        uids = self._block()
        free = (number for number in uids if number not in taken and _unused(number))
        return dict(zip(users, free, strict=False))

    def _block(self) -> range:
        """The numbers of this installation, chosen at the first use."""
        if self._uids is None:
            try:
                first = msgspec.json.decode(self._block_file.read_bytes(), type=int)
            except FileNotFoundError:
                first = _free_block()
                write_whole(self._block_file, msgspec.json.encode(first), sync=True)
            except msgspec.DecodeError as error:
                raise EngineError(f"{self._block_file} is damaged ({error})") from error
            if first not in BLOCKS:
                raise EngineError(f"{self._block_file}: {first} begins no block of account numbers")
            self._uids = range(first, first + BLOCKS.step)
        return self._uids


def _local_groups() -> dict[int, str]:
    """The groups in the machine's own file, by number."""
    lines = (line.split(":") for line in GROUPS.read_text(errors="replace").splitlines())
    return {int(one[2]): one[0] for one in lines if len(one) > 2 and one[2].isdigit()}


def _free_block() -> int:
    """A random block without subordinate ids of the machine."""
    taken = [one for path in SUBORDINATE for one in _subordinate(path)]
    free = [
        first
        for first in BLOCKS
        if not any(one.start < first + BLOCKS.step and first < one.stop for one in taken)
    ]
    if not free:
        raise EngineError(f"subordinate ids leave no account numbers from {BLOCKS.start}")
    return secrets.choice(free)


def _subordinate(path: Path) -> Iterator[range]:
    text = path.read_text(errors="replace") if path.exists() else ""
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
            yield range(int(parts[1]), int(parts[1]) + int(parts[2]))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lookup(user: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _unused(number: int) -> bool:
    try:
        grp.getgrgid(number)
    except KeyError:
        return _name_of(number) is None
    return False
