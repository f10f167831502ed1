"""Local accounts, and their changes in the audit log: without passwords and links."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

HIDDEN: Final = "(hidden)"


class LocalAccount(msgspec.Struct, kw_only=True):
    """A local account.

    Attributes:
        password: its scrypt hash.
        joins: projects to become a member of when the Hub first meets this user; from then on the
            Hub's groups are the truth and this is empty.
        invitation: hash of the token of a link by which a password may be chosen once; empty: none.
        invited_until: epoch seconds from which that link counts no more.
        revoke: what the Hub still has to take away. ``sessions`` after a new password: sessions
            and tokens; ``everything`` for a new account: whatever an earlier one of its name held.
    """

    password: str
    admin: bool = False
    joins: list[str] = []
    invitation: str = ""
    invited_until: float = 0.0
    revoke: Literal["", "sessions", "everything"] = ""


class AccountChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an account, with the fields that changed.

    Attributes:
        at: epoch seconds.
        actor: who did it.
        name: of the account.
        before: as they were; empty for a new account.
        after: as they are; empty for one that was removed.
    """

    at: float
    verb: Literal["create", "update", "delete"]
    actor: str
    name: str
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


def changes_between(
    before: Mapping[str, LocalAccount], after: Mapping[str, LocalAccount], actor: str, now: float
) -> list[AccountChange]:
    """The changes between two states, one for each account."""
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        was, now_is = _fields(old), _fields(new)
        changed = [key for key in {**was, **now_is} if _raw(old, key) != _raw(new, key)]
        found.append(
            AccountChange(
                at=now,
                verb="create" if old is None else "delete" if new is None else "update",
                actor=actor,
                name=name,
                before={key: was[key] for key in changed if key in was},
                after={key: now_is[key] for key in changed if key in now_is},
            )
        )
    return found


_SECRET: Final = frozenset({"password", "invitation"})
_TOLD: Final = ("admin", "joins", "password", "invitation", "invited_until")


def _fields(account: LocalAccount | None) -> dict[str, Any]:
    """The fields of an account that are set, for the audit log."""
    found = {key: _raw(account, key) for key in _TOLD}
    return {key: HIDDEN if key in _SECRET else value for key, value in found.items() if value}


def _raw(account: LocalAccount | None, key: str) -> Any:
    return None if account is None else getattr(account, key)
