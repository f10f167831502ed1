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
from urllib.parse import quote, urlsplit

import msgspec

from carrel.cli.common import note
from carrel.client.plain_http import HttpResponse, PlainHttp, RequestFailed
from carrel.errors import NotSignedIn, Unreachable

T = TypeVar("T", bound=msgspec.Struct)
SERVICE: Final = "/services/carrel"
ADDRESS: Final = "/hub/api/carrel/sign-ins"
PAGE: Final = "/hub/sign-in"
USER: Final = "/hub/api/user"
TIMEOUT_SECONDS: Final = 30.0
LONGEST_HOST: Final = 64


class PendingSignIn(msgspec.Struct, frozen=True):
    """The Hub's answer about a pending sign-in."""

    secret: str
    code: str
    expires_in: float
    interval: float


class Decided(msgspec.Struct, frozen=True):
    """The state of a sign-in request: ``waiting``, ``allowed``, ``refused`` or ``expired``."""

    state: str
    token: str = ""


class _TokenOwner(msgspec.Struct, frozen=True):
    """The owner and the id of the token with which the Hub was asked."""

    name: str
    token_id: str | None = None


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


def revoke(service: str, token: str) -> None:
    """End a token at the Hub; one that it does not know any more is no trouble.

    Raises ``Unreachable`` when the Hub does not say that the token has ended.
    """
    hub = service.removesuffix(SERVICE)
    headers = {"Authorization": f"token {token}"}
    answer = _send("GET", hub, f"{hub}{USER}", headers)
    if answer.status in (401, 403):
        return
    try:
        owner = msgspec.json.decode(answer.content, type=_TokenOwner)
    except msgspec.MsgspecError:
        owner = _TokenOwner("")
    if answer.status != 200 or not owner.token_id:
        raise Unreachable(f"{hub} does not say which token this is (status {answer.status}).")
    path = f"{quote(owner.name, safe='')}/tokens/{quote(owner.token_id, safe='')}"
    answer = _send("DELETE", hub, f"{hub}{USER}s/{path}", headers)
    if answer.status not in (204, 401, 404):
        raise Unreachable(f"{hub} does not revoke it: {_said(answer.content, answer.status)}")


def _has_browser() -> bool:
    """Whether a browser would open on this screen, and not inside this terminal."""
    if not sys.stderr.isatty():
        return False
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def _ask(hub: str, path: str, body: dict[str, Any], kind: type[T]) -> T | None:
    """Send a request; ``None`` where there is nothing at that address. Raises ``Unreachable``."""
    headers = {"Content-Type": "application/json"}
    answer = _send("POST", hub, f"{hub}{ADDRESS}{path}", headers, msgspec.json.encode(body))
    if answer.status in (403, 404, 405):
        return None
    if answer.status >= 400:
        raise Unreachable(f"{hub} refuses the sign-in: {_said(answer.content, answer.status)}")
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError:
        return None


def _send(
    method: str, hub: str, address: str, headers: dict[str, str], content: bytes | None = None
) -> HttpResponse:
    """Send a request and return its answer, whatever it is. Raises ``Unreachable``."""
    server = PlainHttp(hub, None)
    try:
        return asyncio.run(server.request(method, address, (), headers, content, TIMEOUT_SECONDS))
    except (RequestFailed, TimeoutError) as error:
        raise Unreachable(
            f"Nobody answers at {hub}: {str(error) or 'it takes too long'}."
        ) from error
    finally:
        server.close()


def _said(content: bytes, status: int) -> str:
    try:
        return str(msgspec.json.decode(content, type=dict[str, Any])["message"])
    except (msgspec.MsgspecError, KeyError):
        return f"status {status}."
