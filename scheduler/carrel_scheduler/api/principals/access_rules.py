"""Access rules: who has which role where. They give every principal its rights.

Rules are kept in memory for two seconds, so that a decision asks no database; those written by this
scheduler count at once.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from carrel_scheduler.api.principals.identity import (
    Identity,
    IdentityUnavailable,
    Membership,
    Principal,
    group_of,
)
from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.policy.access_records import KIND, read, read_all
from carrel_scheduler.policy.rights import Rights, RightsUnknown, permission_for
from carrel_schema.governance.roles import SubjectKind
from carrel_schema.governance.service_accounts import SUFFIX
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Project

KNOWN_SECONDS: Final = 2.0


class AccessRules:
    """The access rules, and the departments of projects that they need.

    Args:
        ledger: where they are.
        membership: of the Hub's groups, for people who are not the caller.
        clock: in seconds.
    """

    def __init__(self, ledger: Ledger, membership: Membership, clock: Callable[[], float]) -> None:
        self._ledger, self._membership = ledger, membership
        self._known = CachedValue(partial(read_all, ledger), KNOWN_SECONDS, clock)

    def forget(self) -> None:
        """Drop the cached rules: rules or departments have changed."""
        self._known.invalidate()

    async def rights_of(self, principal: Principal) -> Rights:
        """The rights that rules grant a caller."""
        known = await self._known.get()
        return known.rights(principal.name, principal.kind, principal.groups)

    async def rights_of_user(self, user: str) -> Rights:
        """The rights of a user other than the caller, by access rules; the Hub knows groups."""
        known = await self._known.get()
        groups: Collection[str] = ()
        if any(one.subject_kind == "group" for one in known.rules.values()):
            groups = await self._membership.groups_of(user)
        return known.rights(user, _kind_of(user), groups)

    async def lets_submit(self, project: str, user: str) -> bool:
        """Whether a user may submit work to a project: as a member, or by a rule."""
        if await self._membership.includes(project, user):
            return True
        rights = await self.rights_of_user(user)
        return rights.may("workloads:create", "project", project)

    async def may_create(self, project: str, user: str, kind: WorkloadKind) -> bool:
        """Whether a user who does not call may make work of a kind in a project, as over REST.

        Raises ``RightsUnknown`` while the Hub does not answer.
        """
        try:
            if await self._membership.includes(project, user):
                return True
            if await self._membership.administers(user):
                return True
            rights = await self.rights_of_user(user)
        except IdentityUnavailable as error:
            raise RightsUnknown(str(error)) from error
        return rights.may(permission_for("workloads:create", kind), "project", project)

    async def projects_to_submit_to(self, user: str) -> list[str]:
        """The projects to which a user may submit work, in order."""
        groups = await self._membership.groups_of(user)
        rights = (await self._known.get()).rights(user, _kind_of(user), groups)
        return sorted(
            project.meta.name
            for project in (await self._ledger.list(Project)).items
            if not project.meta.deleting
            and (
                group_of(project.meta.name) in groups
                or rights.may("workloads:create", "project", project.meta.name)
            )
        )

    async def revoke_all(self, subject_kind: SubjectKind, subject: str) -> None:
        """Remove every rule of a subject, because its name may be used again."""
        for record in await self._ledger.scoped.list(KIND):
            rule = read(record)
            if (rule.subject_kind, rule.subject) == (subject_kind, subject):
                with suppress(ObjectNotFound):  # revoked meanwhile
                    await self._ledger.scoped.remove(KIND, record.scope, record.name)
        self.forget()


def _kind_of(user: str) -> SubjectKind:
    return "service-account" if user.endswith(SUFFIX) else "user"


class RightsIdentity:
    """``Identity`` whose principals have the rights of the access rules."""

    def __init__(self, identity: Identity, rules: AccessRules) -> None:
        self._identity, self._rules = identity, rules

    async def user_for_token(self, token: str) -> Principal | None:
        """See ``Identity``; a job has its user's rights of a researcher in its project at most."""
        principal = await self._identity.user_for_token(token)
        if principal is None or principal.job or not principal.scopes:
            return principal
        return replace(principal, rights=await self._rules.rights_of(principal))

    def forget(self, user: str) -> None:
        """See ``Identity``."""
        self._identity.forget(user)
