"""Access rules as they are stored, and what they give to whom. Pure but for reading records.

The API asks for the rights of who calls; on a cluster the same rules become role bindings, and work
that comes by ``kubectl`` is checked against them.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.rights import NO_RIGHTS, Rights
from carrel_schema.governance.people import DIRECTORY_GROUP, DirectoryGroupFields
from carrel_schema.governance.roles import ROLES, AccessRuleFields
from carrel_schema.governance.service_accounts import SUFFIX
from carrel_schema.objects import Project
from carrel_schema.scopes import Scope

KIND: Final = "access-rule"
DIRECTORY_KIND: Final = "directory-group"


class KnownRules(NamedTuple):
    """Rules by id, and the projects by department, as far as a rule is about departments."""

    rules: Mapping[str, AccessRuleFields]
    projects: Mapping[str, Collection[str]]

    def rights(self, name: str, kind: str, groups: Collection[str]) -> Rights:
        """The rights that the rules give a subject, with those of its groups."""
        mine = [
            one
            for one in self.rules.values()
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


async def read_rules(ledger: Ledger) -> Mapping[str, AccessRuleFields]:
    """All rules by id: those that people made, and those that groups of the directory bring."""
    rules = {one.name: read(one) for one in await ledger.scoped.list(KIND)}
    return rules | dict(rules_of_directory(await ledger.scoped.list(DIRECTORY_KIND)))


async def read_all(ledger: Ledger) -> KnownRules:
    """All rules, with the projects in their scopes."""
    rules = await read_rules(ledger)
    projects: defaultdict[str, list[str]] = defaultdict(list)
    if any(one.scope.startswith("department/") for one in rules.values()):
        for project in (await ledger.list(Project)).items:
            projects[project.spec.department].append(project.meta.name)
    return KnownRules(rules, projects)


def rules_of_directory(records: Iterable[ScopedRecord]) -> Iterator[tuple[str, AccessRuleFields]]:
    """The access rules of directory groups, each with an id made from its content.

    The Hub has a group of its own for each.
    """
    for record in records:
        rule = msgspec.json.decode(record.content, type=DirectoryGroupFields)
        if rule.role:
            said = f"{record.name}\n{rule.role}\n{rule.scope}"
            yield (
                f"directory-{hashlib.sha256(said.encode()).hexdigest()[:12]}",
                AccessRuleFields(
                    subject=f"{DIRECTORY_GROUP}{record.name}",
                    subject_kind="group",
                    role=rule.role,
                    scope=rule.scope,
                ),
            )


def read(record: ScopedRecord) -> AccessRuleFields:
    """The rule of a record."""
    return msgspec.json.decode(record.content, type=AccessRuleFields)
