"""The pages below Manage, by permission.

What is offered follows from permissions; what is allowed is decided by the scheduler.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the menu.

    Attributes:
        name: of its section, which is its address.
        permission: who has it is offered the page; empty: everybody.
    """

    name: str
    text: str
    permission: str = ""


MANAGED: Final = (
    Entry("health", "Health", "alerts:read"),
    Entry("alerts", "Alerts"),
    Entry("analytics", "Analytics", "usage:read"),
    Entry("usage", "Consumption", "usage:read"),
    Entry("node-groups", "Node groups", "node-groups:read"),
    Entry("policies", "Policies", "policies:read"),
    Entry("assets", "Assets", "assets:read"),
    Entry("secrets", "Secrets", "secrets:read"),
    Entry("catalogue", "Model catalogue"),
    Entry("access", "Access"),
    Entry("service-accounts", "Service accounts", "service-accounts:read"),
    Entry("people", "People", "users:read"),
    Entry("audit", "Audit log", "audit:read"),
    Entry("retention", "Retention", "audit:update"),
)
NAMES: Final = frozenset(one.name for one in MANAGED)


def offered(permissions: Collection[str]) -> list[Entry]:
    """The pages that these permissions allow."""
    return [one for one in MANAGED if not one.permission or one.permission in permissions]
