"""Under which system account each user's tasks run.

Run as root: the machine's account of the same name if there is an ordinary one, else a number of
our own from a range that nobody uses, the same for ever, with a home of its own. Never root and
never a system account. Run by anybody else, all tasks share that person's account.
"""

import fcntl
import grp
import os
import pwd
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.layout import PRIVATE, write_whole

FIRST_ORDINARY: Final = 1000
NOBODY: Final = 65534
DYNAMIC_UIDS: Final = range(61184, 65520)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}")


class AccountRefused(EngineError):  # noqa: N818 - an outcome, like those of the contract
    """No task may run for this user name."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Who a task is to the operating system.

    Attributes:
        name: login name; that of the user.
        shared: it is the scheduler's own account, which all users share.
        listed: the machine knows it (``/etc/passwd`` or a directory service).
    """

    name: str
    uid: int
    gid: int
    home: Path
    shared: bool
    listed: bool


class Accounts:
    """Finds and keeps accounts.

    Args:
        state: folder of the numbers given out (``uids.json``, mode 0600).
        homes: where dynamic accounts have their homes.
        uids: numbers that may be given out.
        privileged: whether users can be switched; by default, whether we are root.
    """

    def __init__(
        self,
        state: Path,
        homes: Path,
        *,
        uids: range = DYNAMIC_UIDS,
        privileged: bool | None = None,
    ) -> None:
        if uids.start < FIRST_ORDINARY or uids.stop > NOBODY:
            raise EngineError(
                f"uids={uids.start}-{uids.stop - 1}: a range from {FIRST_ORDINARY} to"
                f" {NOBODY - 1} is right"
            )
        self._file, self._homes, self._uids = state / "uids.json", homes, uids
        self._guard = threading.Lock()
        self._wanted: set[str] = set()
        self.privileged = os.geteuid() == 0 if privileged is None else privileged

    @property
    def summary(self) -> str:
        """One line for the person who starts the service."""
        if self.privileged:
            return "Every user's work runs under an account of their own."
        name = _own_name()
        return (
            f"All users' work runs under your account ({name}): they can read each other's files."
        )

    def resolve(self, user: str) -> Account:
        """The account of a user, with its home made. Raises ``AccountRefused``."""
        if not _NAME.fullmatch(user) or ".." in user:
            raise AccountRefused(
                f"user={user!r}: letters, digits and '_', '.', '@', '+', '-' are right,"
                " beginning with a letter or digit"
            )
        known = _lookup(user)
        if not self.privileged:
            return self._shared(user, known)
        if known is not None and not FIRST_ORDINARY <= known.pw_uid < NOBODY:
            raise AccountRefused(
                f"user={user!r}: this is a system account of the machine, whose number"
                f" {known.pw_uid} no task may run under; choose another user name"
            )
        number = self._given().get(user)
        if number is None and known is not None:
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
        if (owner is not None and owner != user) or number < FIRST_ORDINARY:
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
        """A number for ever. Who waits for the lock is given one by whoever holds it."""
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
            span = f"{self._uids.start} to {self._uids.stop - 1}"
            raise EngineError(f"all account numbers from {span} are given out")
        return given[user]

    def _numbers(self, users: list[str], taken: set[int]) -> dict[str, int]:
        """Free numbers for these users, for as many as there are."""
        free = (number for number in self._uids if number not in taken and _unused(number))
        return dict(zip(users, free, strict=False))


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


def _own_name() -> str:
    return _name_of(os.getuid()) or f"uid {os.getuid()}"
