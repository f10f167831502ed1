"""The public network: where hooks of people may lead, who must not reach what only we reach.

Names are looked up here and connected to by these very addresses, so that a name that answers
otherwise the second time gains nothing. Literal addresses are looked at in the URL.
"""

import socket
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override

TRANSLATED: Final = tuple(
    ip_network(one) for one in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
"""IPv6 addresses that stand for IPv4 ones, of any network."""


class NotPublic(OSError):  # noqa: N818 - an outcome to tell
    """A name or an address leads elsewhere than into the public network."""

    def __init__(self) -> None:
        super().__init__("its address is not in the public network")


def is_public(address: str) -> bool:
    """Whether a literal address is in the public network."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and any(found in network for network in TRANSLATED):
        return False
    return found.is_global and not found.is_multicast


def check_literal(url: str) -> None:
    """Raises ``NotPublic`` for a URL with an address that is not public; names pass."""
    try:
        host = urlsplit(url).hostname or ""
        public = is_public(host)
    except ValueError:
        return  # a name, or what no connection is made to
    if not public:
        raise NotPublic


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses those of addresses inside the network."""

    def __init__(self, inner: AbstractResolver | None = None) -> None:
        self._inner = inner or aiohttp.ThreadedResolver()

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises ``NotPublic``, ``OSError``."""
        found = await self._inner.resolve(host, port, family)
        if not all(is_public(one["host"]) for one in found):
            raise NotPublic
        return found

    @override
    async def close(self) -> None:
        """Close the resolver."""
        await self._inner.close()
