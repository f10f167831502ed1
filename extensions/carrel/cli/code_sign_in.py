"""Sign in by a code: the Hub is asked here, and its person says yes in any browser.

As OAuth's device authorization grant (RFC 8628). Nothing secret is typed or pasted, and the browser
may be on another machine, so it works over SSH. The code is typed and not part of an address, so
that nobody is led by a link to let in the command line of somebody else.
"""

import asyncio
import os
import platform
import re
import sys
import time
import webbrowser
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from carrel.cli.common import note
from carrel.client.plain_http import Failure, PlainHttp
from carrel.errors import NotSignedIn, Unreachable

T = TypeVar("T", bound=msgspec.Struct)
SERVICE: Final = "/services/carrel"
ADDRESS: Final = "/hub/api/carrel/sign-ins"
PAGE: Final = "/hub/sign-in"
TIMEOUT_SECONDS: Final = 30.0
LONGEST_HOST: Final = 64


class PendingSignIn(msgspec.Struct, frozen=True):
    """What the Hub says of a sign-in that waits."""

    secret: str
    code: str
    expires_in: float
    interval: float


class Decided(msgspec.Struct, frozen=True):
    """What became of it: ``waiting``, ``allowed``, ``refused`` or ``expired``."""

    state: str
    token: str = ""


def service_url(url: str) -> str:
    """The service's URL, also where that of the Hub or of one of its pages was given."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or SERVICE in parts.path:
        return url
    base = re.split(r"/(?:hub|services|user)(?:/|$)", parts.path)[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{base}{SERVICE}"


def token_by_code(service: str, *, show_page: bool) -> str | None:
    """The token of whoever types the code; ``None`` where the Hub has no such sign-in.

    Raises ``NotSignedIn`` when that is refused or nobody does it in time, ``Unreachable``.
    """
    hub = service.removesuffix(SERVICE)
    if not hub.startswith(("http://", "https://")):
        return None
    host = re.sub(r"[^A-Za-z0-9._-]", "", platform.node())[:LONGEST_HOST]
    begun = _ask(hub, "", {"host": host}, PendingSignIn)
    if begun is None:
        return None
    note(f"Open {hub}{PAGE} in a browser, and type the code {begun.code} there.")
    if show_page and _has_browser():
        webbrowser.open(f"{hub}{PAGE}")
    ends_at = time.monotonic() + begun.expires_in
    while time.monotonic() < ends_at:
        time.sleep(begun.interval)
        try:
            decided = _ask(hub, "/token", {"secret": begun.secret}, Decided)
        except Unreachable:
            continue  # as while the Hub restarts
        if decided is None or decided.state == "expired":
            break
        if decided.state == "refused":
            raise NotSignedIn("It was refused in the browser; you are not signed in.")
        if decided.state == "allowed":
            return decided.token
    raise NotSignedIn(f"The code {begun.code} counts no more; run `carrel login` again.")


def _has_browser() -> bool:
    """Whether a browser would open on this screen, and not inside this terminal."""
    if not sys.stderr.isatty():
        return False
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _ask(hub: str, path: str, body: dict[str, Any], kind: type[T]) -> T | None:
    """One request; ``None`` where there is nothing at that address. Raises ``Unreachable``."""
    server = PlainHttp(hub, None)
    address = f"{hub}{ADDRESS}{path}"
    headers = {"Content-Type": "application/json"}
    content = msgspec.json.encode(body)
    try:
        answer = asyncio.run(server.request("POST", address, (), headers, content, TIMEOUT_SECONDS))
    except (Failure, TimeoutError) as error:
        raise Unreachable(
            f"Nobody answers at {hub}: {str(error) or 'it takes too long'}."
        ) from error
    finally:
        server.close()
    if answer.status in (403, 404, 405):
        return None
    if answer.status >= 400:
        raise Unreachable(f"{hub} refuses the sign-in: {_said(answer.content, answer.status)}")
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError:
        return None


def _said(content: bytes, status: int) -> str:
    try:
        return str(msgspec.json.decode(content, type=dict[str, Any])["message"])
    except (msgspec.MsgspecError, KeyError):
        return f"status {status}."
