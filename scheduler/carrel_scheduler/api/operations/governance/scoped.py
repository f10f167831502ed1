"""Scopes as parameters of operations."""

from typing import Annotated

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.problems import Code
from carrel_schema.constraints import Constraint
from carrel_schema.scopes import Scope

ScopeText = Annotated[str, Constraint(max_length=200)]


class ScopeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Only those of a scope, as ``project/vision``."""

    scope: ScopeText | None = None


class InScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which scope: ``platform``, ``department/NAME``, ``project/NAME`` or ``user/NAME``."""

    scope: ScopeText


class ChangeInScope(InScope, frozen=True, kw_only=True):
    """``dry_run``: check, tell what would happen, and write nothing."""

    dry_run: bool = False


def scope_of(text: str) -> Scope:
    """The scope of a query; raises ``Invalid``."""
    try:
        return Scope.parse(text)
    except ValueError as error:
        expected = str(error).rpartition("it should be ")[2]
        raise problems.invalid_field("scope", Code.WRONG_FORM, text, expected) from error
