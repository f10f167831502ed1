"""Service accounts: callers that are programs, such as pipelines.

One belongs to a scope: who administers the scope makes it and its tokens, and access rules give it
roles there and below. A token is told once; its hash is kept.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import Constraint, Text

SUFFIX: Final = "@service-accounts"
"""The end of a service account's name where users' names stand; no user's name ends so."""
DAY_SECONDS: Final = 86_400
MOST_DAYS: Final = 366
MOST_TOKENS: Final = 16


class ServiceAccountFields(msgspec.Struct, frozen=True, kw_only=True):
    """A service account as it is written."""

    description: Annotated[Text, Constraint(max_length=1000)] = ""


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A token to create; ``days``: how long it is valid."""

    days: Annotated[int, Constraint(ge=1, le=MOST_DAYS)] = 90


class ServiceToken(Answer, frozen=True, kw_only=True):
    """A token without its value; times in epoch seconds.

    ``used_at`` 0: not used yet; it is kept over restarts of the scheduler.
    """

    id: str
    created_at: float = 0.0
    created_by: str = ""
    expires_at: float = 0.0
    used_at: float = 0.0


class NewToken(ServiceToken, frozen=True, kw_only=True):
    """A new token with its value, which only this answer contains."""

    token: str


class ServiceAccountOut(Answer, frozen=True, kw_only=True):
    """A service account; ``user`` is its name where users' names stand."""

    name: str
    scope: str
    user: str
    description: str = ""
    tokens: Sequence[ServiceToken] = ()
    changed_at: float = 0.0
    changed_by: str = ""


class ServiceAccountList(Answer, frozen=True, kw_only=True):
    """Service accounts of scopes that the caller administers."""

    items: Sequence[ServiceAccountOut] = ()
