"""The pages below Manage, by permission.

What is offered follows from permissions; what is allowed is decided by the scheduler.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """A page of the menu.

    Attributes:
        name: of its section, which is its address.
        permission: who has it is offered the page; empty: everybody.
    """

    name: str
    text: str
    permission: str = ""


MANAGED: Final = (
    MenuEntry("health", "Health", "alerts:read"),
    MenuEntry("alerts", "Alerts"),
    MenuEntry("analytics", "Analytics", "usage:read"),
    MenuEntry("usage", "Consumption", "usage:read"),
    MenuEntry("node-groups", "Node groups", "node-groups:read"),
    MenuEntry("policies", "Policies", "policies:read"),
    MenuEntry("assets", "Assets", "assets:read"),
    MenuEntry("secrets", "Secrets", "secrets:read"),
    MenuEntry("catalogue", "Model catalogue"),
    MenuEntry("access", "Access"),
    MenuEntry("service-accounts", "Service accounts", "service-accounts:read"),
    MenuEntry("people", "People", "users:read"),
    MenuEntry("audit", "Audit log", "audit:read"),
    MenuEntry("retention", "Retention", "audit:update"),
)
NAMES: Final = frozenset(one.name for one in MANAGED)


def offered(permissions: Collection[str]) -> list[MenuEntry]:
    """The pages that these permissions allow."""
    return [one for one in MANAGED if not one.permission or one.permission in permissions]
