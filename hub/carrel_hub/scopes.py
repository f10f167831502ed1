"""Rights in the Hub's terms: custom scopes, roles and the services that hold them.

Rights are scopes and membership is groups; both live in the Hub, and every token carries what its
owner has and no more. Each service holds what it needs and nothing else.
"""

from typing import Any, Final

USE: Final = "custom:carrel:use"
ADMIN: Final = "custom:carrel:admin"
MANAGE: Final = "custom:carrel:manage"
SPAWN: Final = "custom:carrel:spawn"
METRICS: Final = "custom:carrel:metrics"
GATE: Final = "custom:carrel:gateway"
PEOPLE: Final = "custom:carrel:people"

SCHEDULER: Final = "carrel"
CONSOLE: Final = "console"
GATEWAY: Final = "gateway"
SPAWNER: Final = "carrel-spawner"
SETUP: Final = "carrel-setup"
PROMETHEUS: Final = "prometheus"

CUSTOM_SCOPES: Final = {
    USE: {"description": "Use Carrel: workspaces, trainings and everything of your projects."},
    ADMIN: {"description": "Manage Carrel: projects, quotas, everybody's work."},
    MANAGE: {"description": "Govern with your roles: what goes beyond your own work."},
    SPAWN: {"description": "Ask for workspaces in the name of users (the Hub's spawner only)."},
    METRICS: {"description": "Read Carrel's metrics."},
    PEOPLE: {"description": "Show and change people for those who may (the scheduler only)."},
    GATE: {"description": "Hear of everybody's routes, tell of requests (the gateway only)."},
}
ADMIN_GROUP: Final = "carrel-admins"
DISABLED_GROUP: Final = "carrel-disabled"
"""The group whose members cannot sign in, see ``carrel_hub.accounts.disabled``."""
OWN_GROUPS: Final = "read:users:groups!user"
ACCESS: Final = [f"access:services!service={one}" for one in (SCHEDULER, CONSOLE, GATEWAY)]
# Scopes of the console; each token gets those of them that its owner has.
AT_THE_CONSOLE: Final = [USE, ADMIN, MANAGE, OWN_GROUPS, ACCESS[0], ACCESS[1]]
# The gateway asks nobody in a person's name: it only has to know who comes.
AT_THE_GATEWAY: Final = [OWN_GROUPS, ACCESS[2]]
# From a workspace one looks after one's other workspaces, too: jobs have tokens of another kind.
# Whatever runs there can read the token, so an admin's carries no more than anybody's, and nobody's
# what their roles let them govern.
SERVER_TOKEN: Final = [
    *("users:activity!user", "access:servers!server", "servers!user"),
    *(USE, OWN_GROUPS, ACCESS[0], ACCESS[2]),
]


def user_scopes() -> set[str]:
    """The scopes of every user, in addition to the Hub's defaults."""
    return {USE, MANAGE, *ACCESS}


def load_roles(*, scraped: bool = False) -> list[dict[str, Any]]:
    """Roles of admins and of our services; ``scraped``: Prometheus is one of them.

    The Hub's own admin role cannot be added to, so ours comes with a group.
    """
    return [
        {
            "name": "carrel-admin",
            "description": "Manage Carrel",
            "scopes": [ADMIN, METRICS],
            "groups": [ADMIN_GROUP],
        },
        {
            "name": "carrel-metrics",
            "description": "Read the metrics of the scheduler, the gateway and the Hub",
            "scopes": [METRICS, "read:metrics"],
            **({"services": [PROMETHEUS]} if scraped else {}),
        },
        {
            "name": "carrel-scheduler",
            "description": "Membership of projects; starting a workspace whose turn has come",
            "scopes": [
                "admin:groups",
                "read:users:name",
                "read:users:groups",
                "start:servers",
                PEOPLE,
            ],
            "services": [SCHEDULER],
        },
        {
            "name": "carrel-gateway",
            "description": "Knows who comes and where routes lead",
            "scopes": [GATE, "read:users:name", "read:users:groups"],
            "services": [GATEWAY],
        },
        {
            "name": "carrel-spawner",
            "description": "Asks the scheduler for workspaces",
            "scopes": [USE, SPAWN],
            "services": [SPAWNER],
        },
        {
            "name": "carrel-setup",
            "description": "The person at the machine: first projects and accounts",
            "scopes": [USE, ADMIN, "admin:users"],
            "services": [SETUP],
        },
    ]
