"""Sources of attempts to sign in: an address, or a browser that signed in before."""

import ipaddress
import secrets
from collections.abc import Collection
from typing import Any, Final

KNOWN_BROWSER: Final = "carrel-known-browser"
KNOWN_BROWSER_DAYS: Final = 90


def source_of_attempt(handler: Any, name: str, trusted: Collection[str]) -> str:
    """The source of a request to sign in as ``name``.

    A browser that signed in to this account before is a source of its own. ``trusted``: addresses
    of proxies before the Hub.
    """
    known = handler.get_secure_cookie(KNOWN_BROWSER, max_age_days=KNOWN_BROWSER_DAYS)
    owner, _, browser = (known or b"").decode("utf-8", "replace").rpartition(" ")
    if known and owner == name:
        return f"browser {browser}"
    request = handler.request
    forwarded = ",".join(request.headers.get_list("X-Forwarded-For"))
    return source_of(forwarded, request.remote_ip, trusted)


def remember_browser(handler: Any, name: str) -> None:
    """Give the browser a counter of its own for this account, so that no stranger locks it out."""
    handler.set_secure_cookie(
        KNOWN_BROWSER,
        f"{name} {secrets.token_hex(16)}",
        expires_days=KNOWN_BROWSER_DAYS,
        path=handler.hub.base_url,
        httponly=True,
        samesite="Lax",
        secure=handler.request.protocol == "https",
    )


def source_of(forwarded_for: str, peer: str, trusted: Collection[str] = ()) -> str:
    """The address that an attempt comes from: the last one that no trusted proxy of ours added.

    An IPv6 source is its network of 64 bits, which one subscriber has to himself.
    """
    hops = [one.strip() for one in forwarded_for.split(",") if one.strip()]
    named = next((one for one in reversed(hops) if one not in trusted), peer)
    try:
        address = ipaddress.ip_address(named.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(mapped)
    return str(address)
