"""Scopes as parameters of operations, and which scope a call is about.

Where a path names no project, an operation's permission is needed in the scope that it says here.
"""

from typing import Annotated

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.operation import Call
from carrel_scheduler.api.problems import Code
from carrel_schema.constraints import Constraint
from carrel_schema.scopes import PLATFORM, Scope

ScopeText = Annotated[str, Constraint(max_length=200)]


class ScopeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter by scope, as ``project/vision``."""

    scope: ScopeText | None = None


class InScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope: ``platform``, ``department/NAME``, ``project/NAME`` or ``user/NAME``."""

    scope: ScopeText


class ChangeInScope(InScope, frozen=True, kw_only=True):
    """``dry_run``: check, tell what would happen, and write nothing."""

    dry_run: bool = False


def scope_of(text: str) -> Scope:
    """The scope of a query; raises ``InvalidRequest``."""
    try:
        return Scope.parse(text)
    except ValueError as error:
        expected = str(error).rpartition("it should be ")[2]
        raise problems.invalid_field("scope", Code.WRONG_FORM, text, expected) from error


def anywhere(_call: Call) -> None:
    """Admit a call for any scope: the operation shows what the caller may see."""


def of_department(call: Call) -> Scope:
    """The department of the path."""
    return Scope("department", call.path["name"])


def of_query(call: Call) -> Scope:
    """The scope that the query names."""
    return scope_of(call.query.scope)


def of_body(call: Call) -> Scope:
    """The scope that the body names."""
    return scope_of(call.body.scope)


def of_new_project(call: Call) -> Scope:
    """The department of a project that is to be made."""
    department = call.body.department
    return Scope("department", department) if department else PLATFORM
