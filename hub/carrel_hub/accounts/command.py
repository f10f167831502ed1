"""``carrel user``: the accounts of this machine, for whoever owns its state folder."""

import asyncio
import contextlib
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

import typer

from carrel_hub.accounts.passwords import generate
from carrel_hub.accounts.store import AccountError, AccountStore
from carrel_hub.state_folder import default_state_dir, is_running

SECONDS_OF_A_DAY: Final = 86_400.0
app = typer.Typer(no_args_is_help=True, help="Accounts of this machine (see `carrel up`).")
StateDir = Annotated[Path | None, typer.Option(help="The state folder of `carrel up`.")]
Name = Annotated[str, typer.Argument(help="Name of the user.")]


@app.command()
def add(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May manage everything.")] = False,
    project: Annotated[
        list[str] | None, typer.Option("--project", "-p", help="Member of it from the start.")
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Create an account and print its password, once."""
    accounts, folder = _accounts(state_dir)
    password = generate()
    with _told():
        accounts.add(name, password, admin=admin, joins=project or [])
    _notify_hub(folder, "POST", name)
    typer.echo(f"{name}  {password}")
    typer.echo("The password is shown this once.")


@app.command()
def invite(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="May manage everything.")] = False,
    project: Annotated[
        list[str] | None, typer.Option("--project", "-p", help="Member of it from the start.")
    ] = None,
    days: Annotated[
        float, typer.Option("--days", min=0.01, max=90, help="How long the link counts.")
    ] = 3.0,
    state_dir: StateDir = None,
) -> None:
    """Print a link by which somebody chooses a password, once; makes the account if need be."""
    accounts, folder = _accounts(state_dir)
    with _told():
        token = accounts.invite(
            name, time.time() + days * SECONDS_OF_A_DAY, admin=admin, joins=project or []
        )
    _notify_hub(folder, "POST", name)
    typer.echo(f"{_public_url(folder)}/hub/invitation?{urlencode({'user': name, 'token': token})}")
    typer.echo(f"The link is shown this once and counts once, for {days:g} days.")


def _public_url(folder: Path) -> str:
    """The public URL of the Hub; empty on a cluster, where only its Ingress knows it."""
    from carrel_hub.settings import InstallationSettings

    file = folder / "hub" / "settings.json"
    return InstallationSettings.load(file).public_url if file.exists() else ""


@app.command("password")
def password_(name: Name, state_dir: StateDir = None) -> None:
    """Give an account a new password and print it, once. Sessions and tokens of the old one end."""
    accounts, _ = _accounts(state_dir)
    password = generate()
    with _told():
        accounts.set_password(name, password)
    typer.echo(f"{name}  {password}")


@app.command("list")
def list_(state_dir: StateDir = None) -> None:
    """Show the accounts."""
    accounts, _ = _accounts(state_dir)
    with _told():
        found = accounts.all()
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("user")
    table.add_column("may")
    for name, account in sorted(found.items()):
        table.add_row(name, "manage everything" if account.admin else "use projects")
    Console(highlight=False).print(table)


@app.command()
def remove(name: Name, state_dir: StateDir = None) -> None:
    """Remove an account, its sessions, tokens and memberships. Files, jobs and history stay."""
    accounts, folder = _accounts(state_dir)
    with _told():
        accounts.remove(name)
    _notify_hub(folder, "DELETE", name)
    typer.echo(f"Removed {name}; files, jobs and history stay, workspaces stop.")


def _accounts(state_dir: Path | None) -> tuple[AccountStore, Path]:
    folder = (state_dir or default_state_dir()).expanduser().absolute()
    if not (folder / "hub").is_dir():
        typer.echo(f"There is no Carrel in {folder} yet: start it once with carrel up.", err=True)
        raise typer.Exit(1)
    return AccountStore(folder / "hub" / "accounts.json", actor=_operator()), folder


def _operator() -> str:
    """The name of the account of this machine that runs the command, not one of Carrel's."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    asked_by = os.environ.get("SUDO_USER", "")
    return f"account {name}" + (f" for {asked_by}" if asked_by and asked_by != name else "")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Show an account error as a sentence."""
    try:
        yield
    except AccountError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _notify_hub(folder: Path, method: str, name: str) -> None:
    """Let a running Hub know at once; one that does not run learns it at its start."""
    if is_running(folder):
        asyncio.run(_ask_hub(folder, method, name))


async def _ask_hub(folder: Path, method: str, name: str) -> None:
    import aiohttp

    from carrel_hub.keys import KEYS_FILE, Keys
    from carrel_hub.settings import InstallationSettings

    settings = InstallationSettings.load(folder / "hub" / "settings.json")
    keys = Keys.load_or_create(folder / KEYS_FILE)
    headers = {"Authorization": f"token {keys.setup}"}
    timeout = aiohttp.ClientTimeout(total=15)
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.request(method, f"{settings.hub_url}/hub/api/users/{name}") as answer,
        ):
            if answer.status >= 400 and answer.status not in (404, 409):
                typer.echo(f"The Hub answered {answer.status}; it tries again.", err=True)
    except (aiohttp.ClientError, TimeoutError) as error:
        typer.echo(f"The Hub learns of it when it answers again ({error}).", err=True)
