"""The first objects of a new installation: accounts before the Hub starts, projects after.

Everything is made only where it is missing, so a second start changes nothing.
"""

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel_hub.accounts.passwords import generate
from carrel_hub.accounts.store import AccountError, AccountStore, check_name

DEFAULT_PROJECT: Final = "research"
DEMO_PROJECTS: Final = ("vision", "speech")
INTERACTIVE: Final = {
    "idle_timeout_seconds": 3600.0,
    "busy_cap_seconds": 86_400.0,
    "warn_before_seconds": 600.0,
    "extend_seconds": 3600.0,
    "max_extensions": 2,
}


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account that was just made; the password is known only now."""

    name: str
    password: str = field(repr=False)
    admin: bool
    projects: tuple[str, ...]


def first_accounts(
    accounts: AccountStore, *, demo: bool, owner: str | None = None
) -> list[NewAccount]:
    """Create missing accounts. Raises ``AccountError``."""
    known = accounts.all()
    wanted: dict[str, tuple[bool, tuple[str, ...]]] = {}
    if demo:
        vision, speech = DEMO_PROJECTS
        wanted = {"ada": (False, (vision,)), "grace": (False, (speech,)), "admin": (True, ())}
    elif not known:
        wanted = {_owner(owner): (True, (DEFAULT_PROJECT,))}
    made = []
    for name, (admin, projects) in wanted.items():
        if name not in known:
            password = generate()
            accounts.add(name, password, admin=admin, joins=list(projects))
            made.append(NewAccount(name, password, admin, projects))
    return made


async def first_projects(client: AsyncClient, gpus: float, *, demo: bool) -> list[str]:
    """Create missing projects; returns their names. Raises ``CarrelError``."""
    known = {project.name for project in await client.list_projects()}
    wanted = _projects(gpus, demo=demo, known=known)
    return [str(body["name"]) for body in wanted if await _create(client, body)]


def _projects(gpus: float, *, demo: bool, known: set[str]) -> list[dict[str, Any]]:
    if demo:
        half = gpus // 2
        shares = dict(zip(DEMO_PROJECTS, (gpus - half, half), strict=True))
        return [_project(name, share) for name, share in shares.items() if name not in known]
    return [] if known else [_project(DEFAULT_PROJECT, gpus)]


def _project(name: str, gpus: float) -> dict[str, Any]:
    return {"name": name, "quota": {"gpus": gpus}, "interactive": INTERACTIVE}


async def _create(client: AsyncClient, body: Mapping[str, Any]) -> bool:
    try:
        await client.create_project(body)
    except ApiError as error:
        if error.status != 409:
            raise
        return False
    return True


def _owner(name: str | None) -> str:
    """The person at the machine; ``admin`` for root and for names that cannot be ours."""
    try:
        found = name or getpass.getuser()
        check_name(found)
    except (AccountError, KeyError, OSError):
        return "admin"
    return "admin" if found == "root" else found
