"""The address of the service and the caller's token: arguments, environment, ``carrel login``.

A token is sent only to the server that it came with: the file's token to the file's URL, a
workspace's own token to the URL its spawner set, a task's token, which asks endpoints and little
else, to the URL in the task's environment. ``CARREL_TOKEN`` and the ``token`` argument are the
caller's own word and go to the URL in force.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from carrel.errors import BadSetting, NotSignedIn

SCHEMES = ("http", "https", "http+unix")


class Stored(msgspec.Struct, kw_only=True):
    """The content of the configuration file.

    Attributes:
        by_code: the token was made for the command line by ``carrel login``, which ends it, too;
            others were given by their owner.
    """

    url: str = ""
    token: str = ""
    project: str = ""
    by_code: bool = False


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """A server and a token; ``project`` is the default project, empty when none is set."""

    url: str
    token: str = field(repr=False)
    project: str = ""


def path(environ: Mapping[str, str] | None = None) -> Path:
    """The configuration file: ``CARREL_CONFIG_FILE``, else one in the user's folder."""
    env = os.environ if environ is None else environ
    if chosen := env.get("CARREL_CONFIG_FILE"):
        return Path(chosen)
    base = env.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "carrel" / "config.json"


def load(environ: Mapping[str, str] | None = None) -> Stored:
    """The stored settings; empty without a file. Raises ``BadSetting`` when it is unreadable."""
    file = path(environ)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Stored)
    except FileNotFoundError:
        return Stored()
    except (OSError, msgspec.MsgspecError) as error:
        raise BadSetting(
            f"The configuration file {file} cannot be read ({error}); sign in again with "
            f"`carrel login`, or remove it."
        ) from error


def save(stored: Stored, environ: Mapping[str, str] | None = None) -> Path:
    """Write the file at once and for its owner only; returns its path."""
    file = path(environ)
    write_private(file, msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
    return file


def write_private(file: Path, content: bytes) -> None:
    """Replace a file at once by one that only its owner may read; its folder is made if need be."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def checked_url(url: str) -> str:
    """The URL without a final slash. Raises ``BadSetting`` for what is not a server's URL."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise BadSetting(
            f"{url!r} is not the URL of a Carrel server; "
            f"it looks like http://127.0.0.1:8000/services/carrel."
        )
    return url.rstrip("/")


def resolve(
    url: str | None = None,
    token: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> ClientSettings:
    """Find server and token. Raises ``NotSignedIn`` when one is missing, ``BadSetting``."""
    env = os.environ if environ is None else environ
    stored = load(env)
    project = env.get("CARREL_PROJECT") or stored.project
    chosen = url or env.get("CARREL_URL") or stored.url
    if not chosen:
        raise NotSignedIn("You are not signed in: run `carrel login --url URL`.")
    settings = ClientSettings(url=checked_url(chosen), token="", project=project)
    own = token or env.get("CARREL_TOKEN")
    if own:
        return replace(settings, token=own)
    workspace_url = env.get("CARREL_URL", "").rstrip("/")
    if settings.url == workspace_url and (workspace := env.get("JUPYTERHUB_API_TOKEN")):
        return replace(settings, token=workspace)
    if stored.token and settings.url == stored.url.rstrip("/"):
        return replace(settings, token=stored.token)
    if settings.url == workspace_url and (task := env.get("CARREL_TASK_TOKEN")):
        return replace(settings, token=task)
    raise NotSignedIn(
        f"You are not signed in to {settings.url}: run `carrel login --url {settings.url}`."
    )
