"""Names, addresses and rules of users' network namespaces; nothing here changes anything.

Everything is derived from the installation and the user's account, so that a scheduler that starts
again finds what an earlier one made. Only the address is chosen, when the namespace is made, among
those that no route of the machine leads to; it is read back from the link later.
"""

import contextlib
import hashlib
import string
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.local.network import netfilter as nf

LOOPBACK: Final = IPv4Network("127.0.0.0/8")
LOCALHOST: Final = IPv4Address("127.0.0.1")
# Where clouds keep the machine's own credentials.
METADATA: Final = (IPv4Network("169.254.0.0/16"), IPv4Network("100.100.100.200/32"))
DEFAULT_BLOCK: Final = "10.213.0.0/16"
LINKS: Final = "crl"
INNER_LINK: Final = "carrel0"
TABLE: Final = "carrel"
NAMESPACES: Final = Path("/run/netns")
DNS_PORT: Final = 53
# Ports that are chosen for tasks are the machine's; those of outgoing connections are others.
OUTGOING_PORTS: Final = "15001 32000"
_DIGITS: Final = string.digits + string.ascii_lowercase
_FILTER, _NAT_IN, _NAT_OUT = 0, -100, 100


class Chain(msgspec.Struct, frozen=True):
    """A base chain: where it hooks in and its rules. What no rule decides passes."""

    name: str
    kind: str
    hook: str
    priority: int
    rules: Sequence[nf.Rule]


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed for an installation.

    Attributes:
        installation: tells the links and namespaces of one installation from another's.
        block: addresses are chosen from it.
        ports: TCP ports of the machine's loopback that tasks reach as their own.
        public: the port at which people reach Carrel where that is not at loopback.
    """

    installation: str
    block: str = DEFAULT_BLOCK
    ports: tuple[int, ...]
    public: int | None = None

    @property
    def links(self) -> str:
        """What the names of this installation's links begin with."""
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


def free_pair(block: str, used: Iterable[IPv4Network]) -> Pair | None:
    """The first two addresses next to each other that no known route leads to."""
    taken = [one for one in used if one.prefixlen]
    for candidate in IPv4Network(block).subnets(new_prefix=31):
        if not any(candidate.overlaps(one) for one in taken):
            return pair_of(candidate.network_address)
    return None


def machine_chains(network: Network, nameservers: Sequence[IPv4Address]) -> list[Chain]:
    """The machine's rules: whom tasks reach, and who reaches them."""
    ours, block = nf.comes_by(network.links), IPv4Network(network.block)
    carrel = [nf.rule(ours, nf.goes_to(_only(LOCALHOST)), nf.port(one)) for one in network.ports]
    if network.public is not None:
        carrel.append(nf.rule(ours, nf.port(network.public)))
    names = [nf.rule(ours, one) for one in _names(nameservers)]
    allowed = [nf.rule(one, nf.accept()) for one in (*carrel, *names)]
    refused = [nf.rule(ours, nf.goes_to(one), nf.reject()) for one in (block, *METADATA)]
    return [
        Chain("prerouting", "nat", "prerouting", _NAT_IN, [
            nf.rule(ours, nf.goes_to(block), nf.port(one), nf.redirect_to(LOCALHOST))
            for one in network.ports
        ]),
        Chain("input", "filter", "input", _FILTER, [
            nf.rule(ours, nf.answers(), nf.accept()), *allowed, nf.rule(ours, nf.reject()),
        ]),
        Chain("forward", "filter", "forward", _FILTER, [
            nf.rule(ours, nf.leaves_by(LINKS), nf.reject()),
            nf.rule(nf.leaves_by(network.links), nf.answers(), nf.accept()),
            nf.rule(nf.leaves_by(network.links), nf.reject()),
            *allowed[len(carrel):], *refused,
        ]),
        Chain("output", "filter", "output", _FILTER, [
            nf.rule(nf.leaves_by(network.links), nf.begins(), nf.sent_by_others_than(0),
                    nf.reject()),
        ]),
        Chain("postrouting", "nat", "postrouting", _NAT_OUT, [
            nf.rule(nf.comes_from(block), nf.leaves_not_by(LINKS), nf.leaves_not_by("lo\0"),
                    nf.masquerade()),
        ]),
    ]  # fmt: skip


def namespace_chains(
    network: Network, pair: Pair, nameservers: Sequence[IPv4Address]
) -> list[Chain]:
    """The rules inside: Carrel's ports lead to the machine, what comes from it to loopback.

    They also keep users apart while the machine's rules are missing.
    """
    host = _only(pair.host)
    to_host = [nf.rule(nf.goes_to(host), nf.port(one), nf.accept()) for one in network.ports]
    names = [nf.rule(one, nf.accept()) for one in _names(nameservers)]
    closed = (IPv4Network(network.block), *METADATA)
    return [
        Chain("redirect", "nat", "output", _NAT_IN, [
            nf.rule(nf.goes_to(LOOPBACK), nf.port(one), nf.redirect_to(pair.host))
            for one in network.ports
        ] + [nf.rule(nf.goes_to(_only(pair.task)), nf.protocol(nf.TCP),
                     nf.redirect_to(LOCALHOST))]),
        Chain("postrouting", "nat", "postrouting", _NAT_OUT, [
            nf.rule(nf.leaves_by(f"{INNER_LINK}\0"), nf.masquerade()),
        ]),
        Chain("prerouting", "nat", "prerouting", _NAT_IN, [
            nf.rule(nf.comes_by(f"{INNER_LINK}\0"), nf.protocol(nf.TCP),
                    nf.redirect_to(LOCALHOST)),
        ]),
        Chain("input", "filter", "input", _FILTER, [
            nf.rule(nf.comes_by("lo\0"), nf.accept()),
            nf.rule(nf.answers(), nf.accept()),
            nf.rule(nf.comes_from(host), nf.accept()),
            nf.rule(nf.reject()),
        ]),
        Chain("output", "filter", "output", _FILTER, [
            nf.rule(nf.leaves_by("lo\0"), nf.accept()),
            nf.rule(nf.answers(), nf.accept()),
            *to_host, *names,
            *[nf.rule(nf.goes_to(one), nf.reject()) for one in closed],
        ]),
    ]  # fmt: skip


def nameservers_of(resolv_conf: str) -> list[IPv4Address]:
    """The servers of names that a file like ``/etc/resolv.conf`` tells, loopback left out."""
    lines = [line.split() for line in resolv_conf.splitlines()]
    found = []
    for words in lines:
        if words[:1] == ["nameserver"]:
            with contextlib.suppress(AddressValueError):  # of IPv6, or nothing
                found.append(IPv4Address("".join(words[1:2])))
    return [address for address in found if not address.is_loopback]


def _names(nameservers: Sequence[IPv4Address]) -> Iterator[nf.Rule]:
    for server in nameservers:
        for transport in (nf.UDP, nf.TCP):
            yield nf.rule(nf.goes_to(_only(server)), nf.port(DNS_PORT, transport))


def _only(address: IPv4Address) -> IPv4Network:
    return IPv4Network(address)


def _short(number: int) -> str:
    """A number in base 36."""
    digits = ""
    while True:
        number, rest = divmod(number, len(_DIGITS))
        digits = _DIGITS[rest] + digits
        if not number:
            return digits
