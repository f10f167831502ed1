"""Service accounts as callers: tokens ``csa1.NAME.SECRET``, of which the SHA-256 is stored.

The secrets are 32 random bytes, so a plain hash keeps them. Accounts are kept in memory for two
seconds; changes by this scheduler count at once. When a token was used last is stored beside the
account, at most once in five minutes for each token.
"""

import hashlib
import hmac
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from carrel_scheduler.api.principals.identity import MANAGE, USE, Identity, Principal
from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.audit.actor import acting
from carrel_scheduler.ledger.errors import LedgerUnavailable, StorageFull
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_schema.governance.service_accounts import SUFFIX, ServiceToken
from carrel_schema.scopes import Scope

log = logging.getLogger(__name__)
KIND: Final = "service-account"
USE_KIND: Final = "service-account-use"
VERSION: Final = "csa1"
KNOWN_SECONDS: Final = 2.0
STORE_SECONDS: Final = 300.0


LastUses = Callable[[], Awaitable[Mapping[str, float]]]


class StoredToken(ServiceToken, frozen=True, kw_only=True):
    """A token as it is stored."""

    digest: str


class StoredAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A service account as it is stored."""

    description: str = ""
    tokens: list[StoredToken] = []


class KnownAccounts(NamedTuple):
    """Accounts by name, with the scopes that they are in, and when tokens were used by their id."""

    accounts: Mapping[str, StoredAccount]
    scopes: Mapping[str, Scope]
    used: Mapping[str, float]


class ServiceAccountIdentity:
    """``Identity`` of service accounts' tokens, and of those that another identity knows."""

    def __init__(self, identity: Identity, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._identity, self._ledger, self._clock = identity, ledger, clock
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)
        self._used: dict[str, float] = {}
        self._stored = defaultdict[str, float](float)

    async def last_uses(self) -> Mapping[str, float]:
        """The times of the last use of tokens, by their id; those never used are left out."""
        stored = (await self._known.get()).used
        return {**stored, **self._used}

    async def user_for_token(self, token: str) -> Principal | None:
        """See ``Identity``."""
        version, dot, rest = token.partition(".")
        if version != VERSION or not dot:
            return await self._identity.user_for_token(token)
        name, _, secret = rest.rpartition(".")
        known, now = await self._known.get(), self._clock()
        account = known.accounts.get(name)
        for one in () if account is None else account.tokens:
            if hmac.compare_digest(one.digest, digest_of(secret)) and now < one.expires_at:
                self._used[one.id] = now
                if now >= self._stored[one.id] + STORE_SECONDS:
                    self._stored[one.id] = now
                    await self._store(name, known)
                scopes = frozenset({USE, MANAGE})
                return Principal(f"{name}{SUFFIX}", "service-account", frozenset(), scopes)
        return None

    def forget(self, user: str) -> None:
        """See ``Identity``."""
        self._known.invalidate()
        self._identity.forget(user)

    async def _store(self, name: str, known: KnownAccounts) -> None:
        """Write when the tokens of an account were used; a request does not fail by that."""
        uses = {
            one.id: at
            for one in known.accounts[name].tokens
            if (at := max(self._used.get(one.id, 0.0), known.used.get(one.id, 0.0)))
        }
        content = msgspec.Raw(msgspec.json.encode(uses))
        record = ScopedRecord(kind=USE_KIND, scope=known.scopes[name], name=name, content=content)
        try:
            with acting(None):  # it is no change of anybody's, so the audit log has no entry
                await self._ledger.scoped.put(record, actor=name + SUFFIX)
        except (LedgerUnavailable, StorageFull) as error:
            log.warning("the last use of the service account %s was not stored: %s", name, error)

    async def _read(self) -> KnownAccounts:
        records = await self._ledger.scoped.list(KIND)
        used: dict[str, float] = {}
        for one in await self._ledger.scoped.list(USE_KIND):
            used |= msgspec.json.decode(one.content, type=dict[str, float])
        return KnownAccounts(
            {one.name: read(one) for one in records},
            {one.name: one.scope for one in records},
            used,
        )


def make_token(name: str) -> tuple[str, str]:
    """A new token of an account, with its digest."""
    secret = secrets.token_urlsafe(32)
    return f"{VERSION}.{name}.{secret}", digest_of(secret)


def digest_of(secret: str) -> str:
    """The digest that is stored for a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def read(record: ScopedRecord) -> StoredAccount:
    """The account of a record."""
    return msgspec.json.decode(record.content, type=StoredAccount)
