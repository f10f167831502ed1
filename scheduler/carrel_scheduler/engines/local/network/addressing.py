"""Names and addresses of users' network namespaces; nothing here changes the machine.

Everything is derived from the installation and the user's account, so that a scheduler that starts
again finds what an earlier one made. Only the address is chosen, when the namespace is made, among
those that no route of the machine leads to; it is read back from the link later.
"""

import contextlib
import hashlib
import string
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

import msgspec

DEFAULT_BLOCK: Final = "10.213.0.0/16"
LINKS: Final = "crl"
INNER_LINK: Final = "carrel0"
TABLE: Final = "carrel"
NAMESPACES: Final = Path("/run/netns")
# Ports that are chosen for tasks are the machine's; those of outgoing connections are others.
OUTGOING_PORTS: Final = "15001 32000"
_DIGITS: Final = string.digits + string.ascii_lowercase


class InstallationNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The network settings of an installation.

    Attributes:
        installation: tells the links and namespaces of one installation from another's.
        block: addresses are chosen from it.
        ports: TCP ports of the machine's loopback that tasks reach as their own.
        public: the port at which browsers reach Carrel where that is not at loopback.
    """

    installation: str
    block: str = DEFAULT_BLOCK
    ports: tuple[int, ...]
    public: int | None = None

    @property
    def links(self) -> str:
        """The prefix of the names of this installation's links."""
        return f"{LINKS}{self.installation}"

    @property
    def table(self) -> str:
        """Name of the table of rules on the machine."""
        return f"{TABLE}-{self.installation}"

    def link(self, uid: int) -> str:
        """Name of the machine's end of a user's link (15 characters at most)."""
        return f"{self.links}{_short(uid)}"

    def namespace(self, uid: int) -> Path:
        """The user's namespace."""
        return NAMESPACES / f"{TABLE}-{self.installation}-{uid}"

    def uids(self) -> list[int]:
        """Users that have a namespace."""
        prefix = f"{TABLE}-{self.installation}-"
        names = [path.name for path in NAMESPACES.glob(f"{prefix}*")]
        return [int(name.removeprefix(prefix)) for name in names]


class Pair(msgspec.Struct, frozen=True):
    """The two addresses of a link."""

    host: IPv4Address
    task: IPv4Address


def installation_of(folder: Path) -> str:
    """Five characters that follow from where an installation keeps its state."""
    digest = int.from_bytes(hashlib.sha256(str(folder.resolve()).encode()).digest()[:8], "big")
    return _short(digest).rjust(5, "0")[-5:]


def pair_of(host: IPv4Address) -> Pair:
    """The pair that begins with the machine's address."""
    return Pair(host, host + 1)


def free_pair(block: str, uid: int, route_prefix: Callable[[IPv4Address], int]) -> Pair | None:
    """Find two addresses next to each other that no route of the machine leads to.

    The search begins at a place that follows from the user, so that it finds a free pair at once
    however many users there are.

    Args:
        block: the addresses to choose from.
        uid: the user's.
        route_prefix: the prefix length of the route to an address; 0 for the default route or none.
    """
    network = IPv4Network(block)
    size = network.num_addresses
    at, searched = 2 * uid % size, 0
    while searched < size:
        host = network.network_address + at
        longest = max(route_prefix(host), route_prefix(host + 1))
        if not longest:
            return pair_of(host)
        routed = 2 ** (32 - longest)
        step = max(2, routed - int(host) % routed)
        at, searched = (at + step) % size, searched + step
    return None


def nameservers_of(resolv_conf: str) -> list[IPv4Address]:
    """The IPv4 name servers in a ``resolv.conf`` that are not at loopback."""
    found = []
    for words in map(str.split, resolv_conf.splitlines()):
        if words[:1] == ["nameserver"]:
            with contextlib.suppress(AddressValueError):  # of IPv6, or nothing
                found.append(IPv4Address("".join(words[1:2])))
    return [address for address in found if not address.is_loopback]


def _short(number: int) -> str:
    """A number in base 36."""
    digits = ""
    while True:
        number, rest = divmod(number, len(_DIGITS))
        digits = _DIGITS[rest] + digits
        if not number:
            return digits
