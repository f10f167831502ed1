"""Service accounts as callers: tokens ``csa1.NAME.SECRET``, of which the SHA-256 is stored.

The secrets are 32 random bytes, so a plain hash keeps them. Accounts are kept in memory for two
seconds; changes by this scheduler count at once. When a token was used last is known since the
scheduler began.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from carrel_scheduler.api.principals.identity import MANAGE, USE, Identity, Principal
from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_schema.governance.service_accounts import SUFFIX, ServiceToken

KIND: Final = "service-account"
VERSION: Final = "csa1"
KNOWN_SECONDS: Final = 2.0


class StoredToken(ServiceToken, frozen=True, kw_only=True):
    """A token as it is stored."""

    digest: str


class StoredAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A service account as it is stored."""

    description: str = ""
    tokens: list[StoredToken] = []


class ServiceAccountIdentity:
    """``Identity`` of service accounts' tokens, and of whatever another identity knows."""

    def __init__(self, identity: Identity, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._identity, self._ledger, self._clock = identity, ledger, clock
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)
        self._used: dict[str, float] = {}

    def used_at(self, token_id: str) -> float:
        """When a token was used last; 0: not since this process began."""
        return self._used.get(token_id, 0.0)

    async def user_for_token(self, token: str) -> Principal | None:
        """See ``Identity``."""
        version, dot, rest = token.partition(".")
        if version != VERSION or not dot:
            return await self._identity.user_for_token(token)
        name, _, secret = rest.rpartition(".")
        account, now = (await self._known.get()).get(name), self._clock()
        for one in () if account is None else account.tokens:
            if hmac.compare_digest(one.digest, digest_of(secret)) and now < one.expires_at:
                self._used[one.id] = now
                scopes = frozenset({USE, MANAGE})
                return Principal(f"{name}{SUFFIX}", "service-account", frozenset(), scopes)
        return None

    def forget(self, user: str) -> None:
        """See ``Identity``."""
        self._known.invalidate()
        self._identity.forget(user)

    async def _read(self) -> Mapping[str, StoredAccount]:
        return {one.name: read(one) for one in await self._ledger.scoped.list(KIND)}


def make_token(name: str) -> tuple[str, str]:
    """A new token of an account, and its digest."""
    secret = secrets.token_urlsafe(32)
    return f"{VERSION}.{name}.{secret}", digest_of(secret)


def digest_of(secret: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def read(record: ScopedRecord) -> StoredAccount:
    """The account of a record."""
    return msgspec.json.decode(record.content, type=StoredAccount)
