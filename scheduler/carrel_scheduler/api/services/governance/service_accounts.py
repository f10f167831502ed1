"""Service accounts, and their tokens, which are shown once."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import uuid4

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.principals.service_accounts import (
    KIND,
    USE_KIND,
    LastUses,
    StoredAccount,
    StoredToken,
    make_token,
    read,
)
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.scoped_records import ScopedRecord, scope_exists
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.governance.service_accounts import (
    DAY_SECONDS,
    MOST_TOKENS,
    SUFFIX,
    NewToken,
    ServiceAccountFields,
    ServiceAccountOut,
    ServiceToken,
)
from carrel_schema.scopes import Scope

MANAGES: Final = "service-accounts:update"


class ServiceAccounts:
    """Reads and writes service accounts.

    Args:
        deps: of the application.
        used: when tokens were used last.
    """

    def __init__(self, deps: ApiDependencies, used: LastUses) -> None:
        self._deps, self._used = deps, used

    async def visible(self, principal: Principal) -> Sequence[ServiceAccountOut]:
        """Service accounts of scopes that the caller administers."""
        found = await self._deps.ledger.scoped.list(KIND)
        readable = [one for one in found if principal.may("service-accounts:read", one.scope)]
        used = await self._used()
        return [_out(one, used) for one in readable]

    async def put(
        self, name: str, scope: Scope, fields: ServiceAccountFields, principal: Principal
    ) -> ServiceAccountOut:
        """Create an account, or change its description; names are unique on the platform."""
        if scope.level == "user":
            right = "`platform`, `department/NAME` or `project/NAME`"
            raise problems.invalid_field("scope", Code.WRONG_FORM, str(scope), right)
        if not await scope_exists(self._deps.ledger, scope):
            right = f"a {scope.level} that exists"
            raise problems.invalid_field("scope", Code.NOT_FOUND, str(scope), right)
        known = await self._find(name)
        if known is not None and known.scope != scope:
            raise problems.Conflicting(Code.ALREADY_EXISTS, f"A service account `{name}` exists")
        tokens = [] if known is None else read(known).tokens
        account = StoredAccount(description=fields.description, tokens=tokens)
        version = 0 if known is None else known.version
        if known is None:  # an earlier one of the name may have gone with its scope
            await self._deps.access_rules.revoke_all("service-account", name)
        made = await self._write(name, scope, account, version, principal)
        return _out(made, await self._used())

    async def delete(self, name: str, principal: Principal) -> None:
        """Delete an account with its tokens and roles. Raises ``Missing``."""
        record = await self._own(name, principal)
        await self._deps.access_rules.revoke_all("service-account", name)
        await self._deps.ledger.scoped.remove(KIND, record.scope, name)
        with suppress(ObjectNotFound):
            await self._deps.ledger.scoped.remove(USE_KIND, record.scope, name)
        self._deps.identity.forget(name + SUFFIX)

    async def add_token(self, name: str, days: int, principal: Principal) -> NewToken:
        """Make a token. Raises ``Missing``, ``Conflicting`` for one too many."""
        record = await self._own(name, principal)
        account, now = read(record), self._deps.clock()
        live = [one for one in account.tokens if one.expires_at > now]
        if len(live) >= MOST_TOKENS:
            raise problems.Conflicting(
                Code.CONFLICT, f"`{name}` has {MOST_TOKENS} tokens; revoke one first"
            )
        token, digest = make_token(name)
        made = StoredToken(
            id=uuid4().hex[:12],
            created_at=now,
            created_by=principal.name,
            expires_at=now + days * DAY_SECONDS,
            digest=digest,
        )
        changed = msgspec.structs.replace(account, tokens=[*live, made])
        await self._write(name, record.scope, changed, record.version, principal)
        return NewToken(
            id=made.id,
            created_at=made.created_at,
            created_by=made.created_by,
            expires_at=made.expires_at,
            token=token,
        )

    async def revoke_token(self, name: str, token_id: str, principal: Principal) -> None:
        """Make a token good for nothing. Raises ``Missing``."""
        record = await self._own(name, principal)
        account = read(record)
        left = [one for one in account.tokens if one.id != token_id]
        if len(left) == len(account.tokens):
            raise problems.Missing(Code.NOT_FOUND, f"`{name}` has no token `{token_id}`")
        changed = msgspec.structs.replace(account, tokens=left)
        await self._write(name, record.scope, changed, record.version, principal)

    async def _own(self, name: str, principal: Principal) -> ScopedRecord:
        record = await self._find(name)
        if record is None or not principal.may("service-accounts:read", record.scope):
            raise problems.Missing(
                Code.NOT_FOUND, f"There is no service account `{name}` that you can see"
            )
        if not principal.may(MANAGES, record.scope):
            raise problems.not_permitted(MANAGES, str(record.scope))
        return record

    async def _find(self, name: str) -> ScopedRecord | None:
        found = await self._deps.ledger.scoped.list(KIND)
        return next((one for one in found if one.name == name), None)

    async def _write(
        self, name: str, scope: Scope, account: StoredAccount, version: int, principal: Principal
    ) -> ScopedRecord:
        content = msgspec.Raw(msgspec.json.encode(account))
        record = ScopedRecord(kind=KIND, scope=scope, name=name, content=content)
        try:
            made = await self._deps.ledger.scoped.put(
                record, actor=principal.name, expected_version=version
            )
        except (ObjectExists, VersionConflict, ObjectNotFound) as error:
            raise problems.Conflicting(Code.CONFLICT, str(error)) from error
        self._deps.identity.forget(name + SUFFIX)
        return made


def _out(record: ScopedRecord, used: Mapping[str, float]) -> ServiceAccountOut:
    account = read(record)
    tokens = [
        ServiceToken(
            id=one.id,
            created_at=one.created_at,
            created_by=one.created_by,
            expires_at=one.expires_at,
            used_at=used.get(one.id, 0.0),
        )
        for one in account.tokens
    ]
    return ServiceAccountOut(
        name=record.name,
        scope=str(record.scope),
        user=record.name + SUFFIX,
        description=account.description,
        tokens=tokens,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )
