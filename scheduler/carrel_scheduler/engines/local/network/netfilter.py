"""Rules of nftables as netlink wants them.

Each function gives the expressions of one condition or of one action; a rule is a sequence of them.
IPv4 only: namespaces have no other addresses.
"""

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

Expression = dict[str, Any]
Rule = list[Expression]

_VERDICT, _FIRST = 0, 1
_LINK_IN, _LINK_OUT, _SOCKET_USER, _PROTOCOL = 6, 7, 10, 16
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _UNEQUAL = 0, 1
_STATE = 0
_ESTABLISHED, _RELATED, _NEW = 2, 4, 8
_UNREACHABLE, _PROHIBITED = 0, 13
_IPV4 = 2
TCP: Final = 6
UDP: Final = 17
HOOKS: Final = {"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}


def _expression(name: str, **values: Any) -> Expression:
    attributes = [(f"NFTA_{name.upper()}_{key.upper()}", value) for key, value in values.items()]
    return {"attrs": [("NFTA_EXPR_NAME", name), ("NFTA_EXPR_DATA", {"attrs": attributes})]}


def _value(data: bytes) -> dict[str, Any]:
    return {"attrs": [("NFTA_DATA_VALUE", data)]}


def _compare(data: bytes, operation: int = _EQUAL) -> Expression:
    return _expression("cmp", sreg=_FIRST, op=operation, data=_value(data))


def _masked(mask: bytes) -> Expression:
    return _expression(
        "bitwise",
        sreg=_FIRST,
        dreg=_FIRST,
        len=len(mask),
        mask=_value(mask),
        xor=_value(bytes(len(mask))),
    )


def _link(key: int, prefix: str, operation: int) -> Rule:
    """Compares as many letters as ``prefix`` has; one that ends with NUL is a whole name."""
    return [_expression("meta", key=key, dreg=_FIRST), _compare(prefix.encode(), operation)]


def comes_by(prefix: str) -> Rule:
    """From a link whose name begins so."""
    return _link(_LINK_IN, prefix, _EQUAL)


def leaves_by(prefix: str) -> Rule:
    """To a link whose name begins so."""
    return _link(_LINK_OUT, prefix, _EQUAL)


def leaves_not_by(prefix: str) -> Rule:
    """To another link."""
    return _link(_LINK_OUT, prefix, _UNEQUAL)


def _address(offset: int, network: IPv4Network) -> Rule:
    load = _expression("payload", dreg=_FIRST, base=_NETWORK_HEADER, offset=offset, len=4)
    if network.prefixlen == network.max_prefixlen:
        return [load, _compare(network.network_address.packed)]
    return [load, _masked(network.netmask.packed), _compare(network.network_address.packed)]


def comes_from(network: IPv4Network) -> Rule:
    """From an address of this network."""
    return _address(12, network)


def goes_to(network: IPv4Network) -> Rule:
    """To an address of this network."""
    return _address(16, network)


def protocol(number: int) -> Rule:
    """Of this transport."""
    return [_expression("meta", key=_PROTOCOL, dreg=_FIRST), _compare(bytes([number]))]


def port(number: int, transport: int = TCP) -> Rule:
    """To this port."""
    load = _expression("payload", dreg=_FIRST, base=_TRANSPORT_HEADER, offset=2, len=2)
    return [*protocol(transport), load, _compare(struct.pack("!H", number))]


def _in_states(states: int) -> Rule:
    load = _expression("ct", key=_STATE, dreg=_FIRST)
    return [load, _masked(struct.pack("=I", states)), _compare(bytes(4), _UNEQUAL)]


def answers() -> Rule:
    """Belongs to a connection that was allowed."""
    return _in_states(_ESTABLISHED | _RELATED)


def begins() -> Rule:
    """The first packet of a connection."""
    return _in_states(_NEW)


def sent_by_others_than(user: int) -> Rule:
    """From a socket of another user."""
    load = _expression("meta", key=_SOCKET_USER, dreg=_FIRST)
    return [load, _compare(struct.pack("=I", user), _UNEQUAL)]


def _decide(code: int) -> Rule:
    decision = {"attrs": [("NFTA_DATA_VERDICT", {"attrs": [("NFTA_VERDICT_CODE", code)]})]}
    return [_expression("immediate", dreg=_VERDICT, data=decision)]


def accept() -> Rule:
    """Let it pass."""
    return _decide(1)


def reject() -> Rule:
    """Refuse it, and say so to the sender."""
    return [_expression("reject", type=_UNREACHABLE, icmp_code=_PROHIBITED)]


def redirect_to(address: IPv4Address) -> Rule:
    """Send it to another address, at the same port."""
    return [
        _expression("immediate", dreg=_FIRST, data=_value(address.packed)),
        _expression("nat", type=1, family=_IPV4, reg_addr_min=_FIRST),
    ]


def masquerade() -> Rule:
    """Send it from the address of the link that it leaves by."""
    return [_expression("masq")]


def rule(*parts: Iterable[Expression]) -> Rule:
    """All conditions, then the action."""
    return [expression for part in parts for expression in part]
