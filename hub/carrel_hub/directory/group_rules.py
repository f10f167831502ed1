"""The table from groups of the directory to projects and admins: a YAML file, read when it changed.

An admin edits it with ``carrel directory`` or by hand; the Hub applies a change at each sign-in and
with the next look at the directory.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from carrel_hub.state_folder import replace_file
from carrel_schema.names import expected_project_name


class GroupRuleError(Exception):
    """The table cannot be read, or a rule is wrong; the message says why."""


class GroupRule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The rights and projects of a directory group's members.

    Attributes:
        group: its name, as the directory spells it.
        projects: they are members of these projects.
        admin: they manage everything.
        role: they have this role in ``scope``, as ``department/sciences``; empty: none. Only rules
            that the console or ``carrel group`` made have one.
    """

    group: str
    projects: list[str] = []
    admin: bool = False
    role: str = ""
    scope: str = ""


class _RulesFile(msgspec.Struct, forbid_unknown_fields=True):
    groups: list[GroupRule] = []


class GroupRules:
    """The table in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._rules: tuple[GroupRule, ...] = ()

    def all(self) -> tuple[GroupRule, ...]:
        """Read all rules; none without a file. Raises ``GroupRuleError``."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return ()
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._rules, self._seen = self._read(), seen
        return self._rules

    def put(self, rule: GroupRule) -> None:
        """Add or replace the rule of a group. Raises ``GroupRuleError``."""
        check(rule)
        self._write([*(one for one in self.all() if one.group != rule.group), rule])

    def remove(self, group: str) -> None:
        """Remove the rule of a group. Raises ``GroupRuleError`` when there is none."""
        rules = self.all()
        left = [one for one in rules if one.group != group]
        if len(left) == len(rules):
            raise GroupRuleError(f"There is no rule for the group {group!r}.")
        self._write(left)

    def _read(self) -> tuple[GroupRule, ...]:
        try:
            file = msgspec.yaml.decode(self.path.read_bytes(), type=_RulesFile)
        except (OSError, msgspec.MsgspecError) as error:
            raise GroupRuleError(
                f"The table of groups {self.path} cannot be read: {error}"
            ) from error
        for rule in file.groups:
            check(rule)
        return tuple(file.groups)

    def _write(self, rules: Sequence[GroupRule]) -> None:
        content = msgspec.yaml.encode(_RulesFile(sorted(rules, key=lambda rule: rule.group)))
        replace_file(self.path, content)


def check(rule: GroupRule) -> None:
    """Raise ``GroupRuleError`` unless the rule can be applied."""
    if not rule.group.strip():
        raise GroupRuleError("group is empty; it should be the name of a group of the directory.")
    if rule.role or rule.scope:
        raise GroupRuleError(
            f"role is {rule.role!r} for the group {rule.group!r}; it should be left out in this "
            "file: `carrel group map` gives roles."
        )
    for project in rule.projects:
        expected = expected_project_name(project)
        if expected:
            raise GroupRuleError(
                f"projects has {project!r} for the group {rule.group!r}; it should be {expected}."
            )
