"""The accounts file: JSON, mode 0600, replaced in one step, read again whenever it changed.

The command line writes it while the Hub reads it, so every change is made under a lock on a file
beside it.
"""

import copy
import fcntl
import hashlib
import hmac
import os
import pwd
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from carrel_hub import scopes
from carrel_hub.accounts.account import AccountChange, LocalAccount, changes_between
from carrel_hub.accounts.passwords import SHORTEST, hash_password
from carrel_hub.state_folder import replace_file

T = TypeVar("T")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,30}[a-z0-9])?\Z")
# Names of the Hub's services, which appear beside those of users, and of privileged accounts.
_RESERVED: Final = frozenset(
    {"root", "nobody", "daemon", "system", "me", scopes.SCHEDULER, scopes.CONSOLE, scopes.GATEWAY}
)
BAD_LINK: Final = "This link does not count any more: it was used, replaced, or is too old."
_RESERVED_PREFIX: Final = "carrel-"
_LOWEST_PERSON: Final = 1000
_NOBODY: Final = 65534
MOST_CHANGES: Final = 10_000


class AccountError(Exception):
    """An account cannot be made, changed or found; the message says why."""


class _AccountFile(msgspec.Struct):
    version: int = 1
    accounts: dict[str, LocalAccount] = {}
    changes: list[AccountChange] = []


class AccountStore:
    """The accounts in one file.

    Args:
        path: of the file.
        actor: who changes it; each change is then kept in the file until the audit log has it.
        clock: epoch seconds.
    """

    def __init__(self, path: Path, actor: str = "", clock: Callable[[], float] = time.time) -> None:
        self.path, self._actor, self._clock = path, actor, clock
        self._seen: tuple[int, int, int] | None = None
        self._file = _AccountFile()

    def all(self) -> dict[str, LocalAccount]:
        """Read the accounts by name. Raises ``AccountError`` when the file cannot be read."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._file = None, _AccountFile()
            return {}
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._file, self._seen = self._read(), seen
        return dict(self._file.accounts)

    def find(self, name: str) -> LocalAccount | None:
        """Find an account."""
        return self.all().get(name)

    def add(
        self, name: str, password: str, *, admin: bool = False, joins: list[str] | None = None
    ) -> None:
        """Make an account. Raises ``AccountError`` for a bad name or one that is taken."""
        check_name(name)
        hashed = _hashed(password)

        def change(file: _AccountFile) -> None:
            if name in file.accounts:
                raise AccountError(
                    f"There is already an account {name}. "
                    f"For a new password: carrel user password {name}."
                )
            file.accounts[name] = LocalAccount(
                password=hashed, admin=admin, joins=list(joins or []), revoke="everything"
            )

        self._change(change)

    def invite(
        self, name: str, until: float, *, admin: bool = False, joins: list[str] | None = None
    ) -> str:
        """Let somebody choose a password by a link; returns the link's token.

        Makes the account where there is none: nobody signs in to it before a password was chosen.
        An account that is there keeps its password, rights and sessions until then; an earlier
        link of it counts no more.

        Args:
            name: of the account.
            until: epoch seconds; the link counts no longer.
            admin: of an account that is made.
            joins: projects of an account that is made.

        Raises ``AccountError`` for a bad name.
        """
        check_name(name)
        token = secrets.token_urlsafe(24)

        def change(file: _AccountFile) -> None:
            account = file.accounts.get(name)
            if account is None:
                account = file.accounts[name] = LocalAccount(
                    password="", admin=admin, joins=list(joins or []), revoke="everything"
                )
            account.invitation, account.invited_until = _digest(token), until

        self._change(change)
        return token

    def accept(self, name: str, token: str, password: str, now: float) -> None:
        """Choose a password by a link, which counts no more then; sessions of before end.

        Raises ``AccountError`` for a link that does not count and for a password that is too short.
        """
        if not self.is_invited(name, token, now):
            raise AccountError(BAD_LINK)
        hashed = _hashed(password)

        def change(file: _AccountFile) -> None:
            account = file.accounts.get(name)
            if account is None or not hmac.compare_digest(account.invitation, _digest(token)):
                raise AccountError(BAD_LINK)
            account.password, account.invitation, account.invited_until = hashed, "", 0.0
            account.revoke = account.revoke or "sessions"

        self._change(change)

    def is_invited(self, name: str, token: str, now: float) -> bool:
        """Whether a link counts."""
        account = self.find(name)
        digest = account.invitation if account is not None else ""
        right = hmac.compare_digest(digest or _digest(""), _digest(token))
        return right and bool(digest) and account is not None and now < account.invited_until

    def revoke_invitation(self, name: str) -> None:
        """Let a link count no more. Raises ``AccountError`` when there is no such account."""

        def change(file: _AccountFile) -> None:
            account = _known(file, name)
            account.invitation, account.invited_until = "", 0.0

        self._change(change)

    def set_admin(self, name: str, *, admin: bool) -> None:
        """Give or take the administrator's right; raises ``AccountError``, also for the last."""

        def change(file: _AccountFile) -> None:
            account = _known(file, name)
            if not admin:
                _check_not_last(file, name)
            account.admin = admin

        self._change(change)

    def set_password(self, name: str, password: str) -> None:
        """Replace a password and end the sessions that began with the old one.

        Raises ``AccountError`` when there is no such account.
        """
        hashed = _hashed(password)

        def change(file: _AccountFile) -> None:
            account = _known(file, name)
            account.password, account.invitation, account.invited_until = hashed, "", 0.0
            account.revoke = account.revoke or "sessions"

        self._change(change)

    def remove(self, name: str) -> None:
        """Remove an account. Raises ``AccountError`` for an unknown one."""
        self._change(lambda file: _remove(file, name))

    def changes(self) -> list[AccountChange]:
        """The changes not yet in the audit log, the oldest first. Raises ``AccountError``."""
        self.all()
        return list(self._file.changes)

    def told(self, changes: Sequence[AccountChange]) -> None:
        """Mark changes as reported to the audit log. Raises ``AccountError``."""

        def change(file: _AccountFile) -> None:
            file.changes = [one for one in file.changes if one not in changes]

        self._change(change)

    def applied(self, name: str, seen: LocalAccount) -> None:
        """Mark an account as applied by the Hub, unless it was changed since.

        Raises ``AccountError``.
        """

        def change(file: _AccountFile) -> None:
            if file.accounts.get(name) == seen:
                file.accounts[name] = msgspec.structs.replace(seen, joins=[], revoke="")

        self._change(change)

    def _read(self) -> _AccountFile:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_AccountFile)
        except (OSError, msgspec.MsgspecError) as error:
            raise AccountError(f"The accounts file {self.path} cannot be read: {error}") from error

    def _change(self, change: Callable[[_AccountFile], T]) -> T:
        with self._locked():
            file = self._read() if self.path.exists() else _AccountFile()
            before = copy.deepcopy(file.accounts) if self._actor else {}
            result = change(file)
            if self._actor:
                made = changes_between(before, file.accounts, self._actor, self._clock())
                file.changes = [*file.changes, *made][-MOST_CHANGES:]
            self._write(file)
        return result

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise AccountError(
                f"The accounts file {self.path} cannot be written: {error.strerror}"
            ) from error
        with os.fdopen(descriptor) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, file: _AccountFile) -> None:
        replace_file(self.path, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")


def check_name(name: str) -> None:
    """Raise ``AccountError`` unless the name can be a user's everywhere."""
    if not _NAME.match(name):
        raise AccountError(
            f"{name!r} cannot be a user name: use 1 to 32 lower-case letters, digits, dots, "
            f"dashes and underscores, beginning and ending with a letter or digit."
        )
    if name in _RESERVED or name.startswith(_RESERVED_PREFIX) or _is_of_the_system(name):
        raise AccountError(
            f"{name!r} cannot be a user name: it is reserved for this machine or for Carrel itself."
        )


def _is_of_the_system(name: str) -> bool:
    """Whether the operating system has an account of this name that is no person's."""
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return False
    return uid < _LOWEST_PERSON or uid == _NOBODY


def _hashed(password: str) -> str:
    if len(password) < SHORTEST:
        raise AccountError(f"The password is too short: use at least {SHORTEST} characters.")
    return hash_password(password)


def _known(file: _AccountFile, name: str) -> LocalAccount:
    if name not in file.accounts:
        raise AccountError(f"There is no account {name}.")
    return file.accounts[name]


def _check_not_last(file: _AccountFile, name: str) -> None:
    if not any(one.admin for other, one in file.accounts.items() if other != name):
        raise AccountError(f"{name} is the only admin; make somebody else one first.")


def _digest(token: str) -> str:
    """The digest of a token; tokens are random, so that a plain hash is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def _remove(file: _AccountFile, name: str) -> None:
    _known(file, name)
    del file.accounts[name]
