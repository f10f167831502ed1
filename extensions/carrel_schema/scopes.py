"""Scopes: the platform, a department, a project, or one user; written ``project/vision``.

What admins configure (access rules, policies, templates, assets, credentials) belongs to a scope
and holds for all that lies below it: the platform contains departments, they contain projects. A
user's scope contains nothing but what is that user's own.
"""

import re
from typing import Final, Literal, Self

import msgspec
from typing_extensions import override

ScopeLevel = Literal["platform", "department", "project", "user"]
LEVELS: Final[tuple[ScopeLevel, ...]] = ("platform", "department", "project", "user")
_NAME: Final = re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9._@+]*[A-Za-z0-9_])?")
SCOPE_WORDS: Final = "`platform`, `department/NAME`, `project/NAME` or `user/NAME`"


class Scope(msgspec.Struct, frozen=True, order=True):
    """A scope of rights.

    Attributes:
        level: what it is.
        name: of the department, project or user; empty for the platform.
    """

    level: ScopeLevel = "platform"
    name: str = ""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a platform with a name and for anything else without one."""
        if (self.level == "platform") != (not self.name):
            raise ValueError(f"scope is {str(self)!r}; it should be {SCOPE_WORDS}")
        if self.name and not _NAME.fullmatch(self.name):
            raise ValueError(f"scope is {str(self)!r}; it should be {SCOPE_WORDS}")

    @override
    def __str__(self) -> str:
        return f"{self.level}/{self.name}" if self.name else self.level

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` writes; raises ``ValueError`` that names the text and what is right."""
        level, slash, name = text.partition("/")
        for known in LEVELS:
            if level == known and bool(slash) == (known != "platform"):
                return cls(known, name)
        raise ValueError(f"scope is {text!r}; it should be {SCOPE_WORDS}")


PLATFORM: Final = Scope()


def scopes_over(*, project: str = "", department: str = "", user: str = "") -> tuple[Scope, ...]:
    """The scopes that contain work of a user in a project, from the widest to the narrowest.

    Args:
        project: empty: left out.
        department: that of the project; empty: left out.
        user: empty: left out.
    """
    named: tuple[tuple[ScopeLevel, str], ...] = (
        ("department", department),
        ("project", project),
        ("user", user),
    )
    return (PLATFORM, *(Scope(level, name) for level, name in named if name))
