"""Signing in and out, the signed-in user, the settings, and the version."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from carrel.cli.common import Output, OutputOption, connected, document, for_programs, note, say
from carrel.errors import BadSetting, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from carrel.client import config


def login(
    *,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Carrel's address, such as https://carrel.example.org."),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token of the Hub's page Tokens instead.")
    ] = False,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read the token from standard input.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page, where there is a screen.")
    ] = True,
) -> None:
    """Sign in by a code that you type in a browser; the token is kept in a file of yours only."""
    import os

    from carrel.cli import code_sign_in
    from carrel.client import Client, config

    stored = config.load()
    where = url or os.environ.get("CARREL_URL") or stored.url
    if not where:
        raise BadSetting("Where to? `carrel login --url http://HOST:PORT`.")
    where = code_sign_in.service_url(config.checked_url(where))
    found = None
    if not token and not token_stdin:
        found = code_sign_in.token_by_code(where, show_page=browser)
    by_code = found is not None
    found = found or _token(where, from_input=token_stdin)
    with Client(where, found) as client:
        identity = client.whoami()
    project = stored.project if stored.project in identity.projects else ""
    config.save(config.Stored(url=where, token=found, project=project, by_code=by_code))
    say(f"Signed in to {where} as {identity.user}.")


def _token(url: str, *, from_input: bool) -> str:
    if from_input:
        token = sys.stdin.readline().strip()
    else:
        hub = url.removesuffix("/services/carrel")
        say(f"Make a token at {hub}/hub/token and paste it here.")
        token = str(typer.prompt("Token", hide_input=True)).strip()
    if not token:
        raise BadSetting("There was no token to read.")
    return token


def logout() -> None:
    """Forget the token; one that `carrel login` got by a code is revoked at the Hub, too."""
    import os

    from carrel.cli import code_sign_in
    from carrel.client import config

    stored = config.load()
    config.save(config.Stored(url=stored.url, project=stored.project))
    say(_revoked(stored, code_sign_in.revoke) if stored.token else "You were not signed in here.")
    if os.environ.get("CARREL_TOKEN"):
        note("CARREL_TOKEN is set: commands go on with that token, which is left as it is.")


def _revoked(stored: "config.Stored", revoke: "Callable[[str, str], None]") -> str:
    """Revoke a stored token that is ours to revoke; the sentence about what became of it."""
    page = f"{stored.url.removesuffix('/services/carrel')}/hub/token"
    if not stored.by_code:
        return f"Signed out: the token is forgotten here, and counts until you revoke it at {page}."
    try:
        revoke(stored.url, stored.token)
    except Unreachable as error:
        note(str(error))
        return (
            "Signed out here, but the token could not be revoked at the Hub: it is forgotten here, "
            f"and counts until it expires, or until you revoke it at {page}."
        )
    return "Signed out: the token is revoked at the Hub and forgotten here."


def whoami(*, output: OutputOption = Output.TABLE) -> None:
    """Show who you are and which projects you are in."""
    with connected() as client:
        identity = client.whoami()
        default = client.settings.project or identity.default_project
        url = client.settings.url
    if for_programs(output):
        document(identity, output)
        return
    role = " (administrator)" if identity.admin else ""
    names = [f"{name} (default)" if name == default else name for name in identity.projects]
    say(f"{identity.user}{role} at {url}")
    say(f"Projects: {', '.join(names) or 'none yet; ask an administrator to add you to one'}")


def kubeconfig(
    *,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Whose namespace kubectl uses; default: yours."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Merge it into the file instead of printing it.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="The file; default: that of kubectl.")
    ] = None,
    name: Annotated[
        str, typer.Option("--name", help="Of the cluster there; contexts are NAME-PROJECT.")
    ] = "carrel",
) -> None:
    """Show, or write, how kubectl reaches your projects on the cluster.

    It holds no credential: kubectl signs you in as the cluster's administrators arranged it.
    """
    from carrel.cli import kubeconfig as files

    with connected() as client:
        access = client.cluster_access()
        wanted = project or client.settings.project or client.whoami().default_project
    known = [one.project for one in access.namespaces]
    if project and project not in known:
        raise BadSetting(f"--project {project}: not one of your projects ({', '.join(known)}).")
    made = files.build(access, name, wanted if wanted in known else None)
    if access.sign_in is not None:
        note(f"kubectl will run `{access.sign_in.command}` to sign you in.")
    if not write:
        say(files.as_yaml(made).rstrip())
        return
    place = file or files.usual_file()
    files.merge_into(place, made)
    say(f"{place} has a context for each of {len(known)} projects.")


def config_project(
    name: Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")],
) -> None:
    """Use this project where none is named."""
    from carrel.client import config

    with connected() as client:
        identity = client.whoami()
    if name not in identity.projects:
        known = ", ".join(identity.projects) or "in no project yet"
        raise BadSetting(f"You are not a member of {name!r}; you are in: {known}.")
    stored = config.load()
    stored.project = name
    config.save(stored)
    say(f"Project {name} is your default now.")


def version() -> None:
    """Show the version."""
    from carrel import __version__

    say(f"carrel {__version__}")


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def start(
    *,
    _shown: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
) -> None:
    """Carrel: workspaces and preemptible jobs on shared GPUs."""
