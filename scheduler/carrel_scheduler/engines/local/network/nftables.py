"""Rules of nftables for users' networks, in the form that netlink takes.

A chain is a list of rules, a rule a list of expressions: conditions that a packet has to meet, all
of them, and an action. IPv4 only: namespaces have no other addresses.
"""

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

import msgspec
from pyroute2.nftables.expressions import genex, masq, verdict

from carrel_scheduler.engines.local.network.addressing import (
    INNER_LINK,
    LINKS,
    InstallationNetwork,
    Pair,
)

Rule = list[dict[str, Any]]

LOOPBACK: Final = IPv4Network("127.0.0.0/8")
LOCALHOST: Final = IPv4Address("127.0.0.1")
# The address at which clouds give a machine its credentials.
METADATA: Final = (IPv4Network("169.254.0.0/16"), IPv4Network("100.100.100.200/32"))
DNS_PORT: Final = 53
TCP, UDP = 6, 17
_FILTER, _NAT_IN, _NAT_OUT = 0, -100, 100
_LINK_IN, _LINK_OUT, _SOCKET_USER, _PROTOCOL = 6, 7, 10, 16  # keys of "meta"
_SOURCE, _DESTINATION = 12, 16  # offsets in the IPv4 header
_ESTABLISHED, _RELATED, _NEW = 2, 4, 8
_ANSWERS: Final = _ESTABLISHED | _RELATED
_ACCEPT: Final[Rule] = verdict(1)
_REJECT: Final[Rule] = [genex("reject", {"type": 0, "icmp_code": 13})]  # "prohibited"
_MASQUERADE: Final[Rule] = masq()


class Chain(msgspec.Struct, frozen=True):
    """A base chain: where it hooks in and its rules. A packet that no rule decides on passes."""

    name: str
    kind: str
    hook: str
    priority: int
    rules: Sequence[Rule]


def _value(data: bytes) -> dict[str, Any]:
    return {"attrs": [("NFTA_DATA_VALUE", data)]}


def _redirect(address: IPv4Address) -> Rule:
    """Send the packet to another address, at the same port."""
    return [
        genex("immediate", {"dreg": 1, "data": _value(address.packed)}),
        genex("nat", {"type": 1, "family": 2, "reg_addr_min": 1}),
    ]


def _match(
    kind: str, where: dict[str, int], data: bytes, *, mask: bytes = b"", unequal: bool = False
) -> Rule:
    """Compare what is loaded, where it is masked, with data."""
    found = [genex(kind, {"dreg": 1, **where})]
    if mask:
        size = len(mask)
        bits = {"sreg": 1, "dreg": 1, "len": size, "mask": _value(mask), "xor": _value(bytes(size))}
        found.append(genex("bitwise", bits))
    return [*found, genex("cmp", {"sreg": 1, "op": int(unequal), "data": _value(data)})]


def _address(offset: int, network: IPv4Network | IPv4Address) -> Rule:
    whole = IPv4Network(network)
    where = {"base": 1, "offset": offset, "len": 4}
    mask = whole.netmask.packed if whole.prefixlen < whole.max_prefixlen else b""
    return _match("payload", where, whole.network_address.packed, mask=mask)


def _rule(
    action: Rule,
    *,
    by: str = "",
    out: str = "",
    out_not: Sequence[str] = (),
    source: IPv4Network | IPv4Address | None = None,
    to: IPv4Network | IPv4Address | None = None,
    port: int | None = None,
    protocol: int | None = None,
    states: int = 0,
    user_not: int | None = None,
) -> Rule:
    """The action for packets that meet all conditions.

    Args:
        action: what is done.
        by: the link by which they come has a name that begins so; with a NUL at the end it is
            the whole name.
        out: the same of the link by which they leave.
        out_not: they leave by other links.
        source: their sender's address, or its network.
        to: their destination's.
        port: their destination's, of TCP unless ``protocol`` says otherwise.
        protocol: their transport.
        states: of their connection, one of these bits.
        user_not: they were sent from a socket of another user.
    """
    found: Rule = []
    if by:
        found += _match("meta", {"key": _LINK_IN}, by.encode())
    if out:
        found += _match("meta", {"key": _LINK_OUT}, out.encode())
    for name in out_not:
        found += _match("meta", {"key": _LINK_OUT}, name.encode(), unequal=True)
    if source is not None:
        found += _address(_SOURCE, source)
    if to is not None:
        found += _address(_DESTINATION, to)
    if protocol is not None or port is not None:
        found += _match("meta", {"key": _PROTOCOL}, bytes([protocol or TCP]))
    if port is not None:
        found += _match("payload", {"base": 2, "offset": 2, "len": 2}, struct.pack("!H", port))
    if states:
        mask = struct.pack("=I", states)
        found += _match("ct", {"key": 0}, bytes(4), mask=mask, unequal=True)
    if user_not is not None:
        found += _match("meta", {"key": _SOCKET_USER}, struct.pack("=I", user_not), unequal=True)
    return found + action


def machine_chains(network: InstallationNetwork, nameservers: Sequence[IPv4Address]) -> list[Chain]:
    """The machine's rules: what tasks may reach, and from where they are reached."""
    links, block = network.links, IPv4Network(network.block)
    carrel = [_rule(_ACCEPT, by=links, to=LOCALHOST, port=port) for port in network.ports]
    if network.public is not None:
        carrel.append(_rule(_ACCEPT, by=links, port=network.public))
    names = _name_rules(nameservers, by=links)
    refused = [_rule(_REJECT, by=links, to=one) for one in (block, *METADATA)]
    return [
        Chain("prerouting", "nat", "prerouting", _NAT_IN, [
            _rule(_redirect(LOCALHOST), by=links, to=block, port=port) for port in network.ports
        ]),
        Chain("input", "filter", "input", _FILTER, [
            _rule(_ACCEPT, by=links, states=_ANSWERS),
            *carrel, *names,
            _rule(_REJECT, by=links),
        ]),
        Chain("forward", "filter", "forward", _FILTER, [
            _rule(_REJECT, by=links, out=LINKS),
            _rule(_ACCEPT, out=links, states=_ANSWERS),
            _rule(_REJECT, out=links),
            *names, *refused,
        ]),
        Chain("output", "filter", "output", _FILTER, [
            _rule(_REJECT, out=links, states=_NEW, user_not=0),
        ]),
        Chain("postrouting", "nat", "postrouting", _NAT_OUT, [
            _rule(_MASQUERADE, source=block, out_not=(LINKS, "lo\0")),
        ]),
    ]  # fmt: skip


def namespace_chains(
    network: InstallationNetwork, pair: Pair, nameservers: Sequence[IPv4Address]
) -> list[Chain]:
    """The rules inside: Carrel's ports lead to the machine, what comes from it to loopback.

    They also keep users apart while the machine's rules are missing.
    """
    inner = f"{INNER_LINK}\0"
    return [
        Chain("redirect", "nat", "output", _NAT_IN, [
            *(_rule(_redirect(pair.host), to=LOOPBACK, port=port) for port in network.ports),
            _rule(_redirect(LOCALHOST), to=pair.task, protocol=TCP),
        ]),
        Chain("postrouting", "nat", "postrouting", _NAT_OUT, [_rule(_MASQUERADE, out=inner)]),
        Chain("prerouting", "nat", "prerouting", _NAT_IN, [
            _rule(_redirect(LOCALHOST), by=inner, protocol=TCP),
        ]),
        Chain("input", "filter", "input", _FILTER, [
            _rule(_ACCEPT, by="lo\0"),
            _rule(_ACCEPT, states=_ANSWERS),
            _rule(_ACCEPT, source=pair.host),
            _rule(_REJECT),
        ]),
        Chain("output", "filter", "output", _FILTER, [
            _rule(_ACCEPT, out="lo\0"),
            _rule(_ACCEPT, states=_ANSWERS),
            *(_rule(_ACCEPT, to=pair.host, port=port) for port in network.ports),
            *_name_rules(nameservers),
            *(_rule(_REJECT, to=one) for one in (IPv4Network(network.block), *METADATA)),
        ]),
    ]  # fmt: skip


def _name_rules(nameservers: Sequence[IPv4Address], by: str = "") -> list[Rule]:
    return [
        _rule(_ACCEPT, by=by, to=server, port=DNS_PORT, protocol=transport)
        for server in nameservers
        for transport in (UDP, TCP)
    ]
