"""Access rules: who has which role, where. They give every principal its rights.

Rules are kept in memory for two seconds, so that a decision asks no database; those written by this
scheduler count at once.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from carrel_scheduler.api.principals.identity import Identity, Membership, Principal
from carrel_scheduler.api.principals.rights import NO_RIGHTS, Rights
from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import NotFound
from carrel_schema.governance.people import DIRECTORY_GROUP, DirectoryGroupFields
from carrel_schema.governance.roles import ROLES, AccessRuleFields, SubjectKind
from carrel_schema.governance.service_accounts import SUFFIX
from carrel_schema.objects import Project
from carrel_schema.scopes import Scope

KIND: Final = "access-rule"
DIRECTORY_KIND: Final = "directory-group"
KNOWN_SECONDS: Final = 2.0


class KnownRules(NamedTuple):
    """All rules, and the projects of each department that they are about."""

    rules: Sequence[AccessRuleFields]
    projects: Mapping[str, Collection[str]]

    def rights(self, name: str, kind: str, groups: Collection[str]) -> Rights:
        """What they give a subject of a kind, and members of groups."""
        mine = [
            one
            for one in self.rules
            if (one.subject_kind == "group" and one.subject in groups)
            or (one.subject_kind == kind and one.subject == name.removesuffix(SUFFIX))
        ]
        if not mine:
            return NO_RIGHTS
        platform: set[str] = set()
        departments: defaultdict[str, set[str]] = defaultdict(set)
        projects: defaultdict[str, set[str]] = defaultdict(set)
        for rule in mine:
            scope, permissions = Scope.parse(rule.scope), ROLES[rule.role].permissions
            if scope.level == "platform":
                platform |= permissions
            elif scope.level == "department":
                departments[scope.name] |= permissions
                for project in self.projects.get(scope.name, ()):
                    projects[project] |= permissions
            else:
                projects[scope.name] |= permissions
        return Rights(
            platform=frozenset(platform),
            departments={one: frozenset(found) for one, found in departments.items()},
            projects={one: frozenset(found) for one, found in projects.items()},
            held=tuple((rule.role, rule.scope) for rule in mine),
        )


class AccessRules:
    """The access rules, and the departments of projects that they need.

    Args:
        ledger: where they are.
        membership: of the Hub's groups, for people who are not the caller.
        clock: in seconds.
    """

    def __init__(self, ledger: Ledger, membership: Membership, clock: Callable[[], float]) -> None:
        self._ledger, self._membership = ledger, membership
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)

    def forget(self) -> None:
        """Rules or departments changed: the next decision reads them again."""
        self._known.invalidate()

    async def rights_of(self, principal: Principal) -> Rights:
        """What rules give a caller."""
        known = await self._known.get()
        return known.rights(principal.name, principal.kind, principal.groups)

    async def rights_of_user(self, user: str) -> Rights:
        """What rules give somebody who does not call; the Hub is asked for groups if need be."""
        known = await self._known.get()
        groups: Collection[str] = ()
        if any(one.subject_kind == "group" for one in known.rules):
            groups = await self._membership.groups_of(user)
        kind = "service-account" if user.endswith(SUFFIX) else "user"
        return known.rights(user, kind, groups)

    async def lets_submit(self, project: str, user: str) -> bool:
        """Whether a user may submit work to a project: as a member, or by a rule."""
        if await self._membership.includes(project, user):
            return True
        rights = await self.rights_of_user(user)
        return rights.may("workloads:create", "project", project)

    async def revoke_all(self, subject_kind: SubjectKind, subject: str) -> None:
        """Remove every rule about a subject, whose name somebody else may get."""
        for record in await self._ledger.scoped.list(KIND):
            rule = read(record)
            if (rule.subject_kind, rule.subject) == (subject_kind, subject):
                with suppress(NotFound):  # revoked meanwhile
                    await self._ledger.scoped.remove(KIND, record.scope, record.name)
        self.forget()

    async def _read(self) -> KnownRules:
        rules = [read(one) for one in await self._ledger.scoped.list(KIND)]
        rules += rules_of_directory(await self._ledger.scoped.list(DIRECTORY_KIND))
        projects: defaultdict[str, list[str]] = defaultdict(list)
        if any(one.scope.startswith("department/") for one in rules):
            for project in (await self._ledger.list(Project)).items:
                projects[project.spec.department].append(project.meta.name)
        return KnownRules(rules, projects)


class RightsIdentity:
    """``Identity`` whose principals have what access rules give them."""

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


def rules_of_directory(records: Iterable[ScopedRecord]) -> Iterator[AccessRuleFields]:
    """Roles that groups of the directory bring; the Hub has a group of its own for each."""
    for record in records:
        rule = msgspec.json.decode(record.content, type=DirectoryGroupFields)
        if rule.role:
            yield AccessRuleFields(
                subject=f"{DIRECTORY_GROUP}{record.name}",
                subject_kind="group",
                role=rule.role,
                scope=rule.scope,
            )


def read(record: ScopedRecord) -> AccessRuleFields:
    """The rule of a record."""
    return msgspec.json.decode(record.content, type=AccessRuleFields)
