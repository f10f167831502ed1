"""Names, addresses and files of users' networks; nothing is changed here."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from carrel_scheduler.engines.local.network import addressing, nftables
from carrel_scheduler.engines.local.network.addressing import (
    InstallationNetwork,
    free_pair,
    installation_of,
)
from carrel_scheduler.engines.local.network.namespaces import hosts_inside

NETWORK = InstallationNetwork(installation="ab12c", ports=(8000, 10001))


def test_names_fit_a_link_and_tell_installations_and_users_apart(tmp_path: Path) -> None:
    other = InstallationNetwork(installation=installation_of(tmp_path), ports=())
    names = {one.link(uid) for one in (NETWORK, other) for uid in (1000, 61184, 2**31 - 1)}
    assert len(names) == 6
    assert all(len(name) <= 15 for name in names)
    assert len(other.installation) == 5
    assert installation_of(tmp_path) == other.installation
    assert installation_of(tmp_path / "x") != other.installation


def routes(*known: str) -> Callable[[IPv4Address], int]:
    """The prefix length of the longest of these routes that leads to an address."""
    networks = [IPv4Network(one) for one in known]
    return lambda address: max((one.prefixlen for one in networks if address in one), default=0)


@pytest.mark.parametrize(
    ("known", "uid", "found"),
    [
        ((), 0, "10.213.0.0"),
        ((), 61184, "10.213.222.0"),  # 2 * 61184 of 65,536 addresses
        (("0.0.0.0/0", "10.213.0.0/31", "10.213.0.3/32"), 0, "10.213.0.4"),
        (("10.213.128.0/17",), 32767, "10.213.0.0"),
        (("10.213.0.0/17",), 5, "10.213.128.0"),
        (("10.213.128.0/17", "10.213.0.0/18"), 32000, "10.213.64.0"),
    ],
)
def test_addresses_that_the_machine_uses_are_not_taken(
    known: tuple[str, ...], uid: int, found: str
) -> None:
    pair = free_pair("10.213.0.0/16", uid, routes(*known))
    assert pair is not None
    assert pair.host == IPv4Address(found)
    assert pair.task == pair.host + 1


@pytest.mark.parametrize("known", ["10.0.0.0/8", "10.213.0.0/30", "10.213.0.0/31,10.213.0.3/32"])
def test_a_block_that_is_all_in_use_has_no_address(known: str) -> None:
    asked = []

    def route_prefix(address: IPv4Address) -> int:
        asked.append(address)
        return routes(*known.split(","))(address)

    assert free_pair("10.213.0.0/30", 1, route_prefix) is None
    assert len(asked) <= 4
    assert free_pair("10.213.0.0/16", 7, routes("10.0.0.0/8")) is None


def test_loopback_answers_no_names_inside() -> None:
    text = "# none\nnameserver 127.0.0.53\nnameserver 10.1.2.3\nnameserver ::1\noptions edns0\n"
    assert addressing.nameservers_of(text) == [IPv4Address("10.1.2.3")]
    assert addressing.nameservers_of("nameserver\nnameserver 1.2.3.999\n") == []


@pytest.mark.parametrize("line", ["192.0.2.2 box", "127.0.1.1 box.example box", "::1 box"])
def test_the_machines_name_is_loopback_inside(line: str) -> None:
    found = hosts_inside(f"127.0.0.1 localhost\n{line}\n10.0.0.1 other\n", "box")
    assert found == "127.0.0.1 localhost\n10.0.0.1 other\n127.0.0.1 box\n"


def test_every_port_that_is_open_is_redirected_too() -> None:
    machine = {chain.name: chain for chain in nftables.machine_chains(NETWORK, [])}
    inside = {
        chain.name: chain
        for chain in nftables.namespace_chains(
            NETWORK, addressing.pair_of(IPv4Address("10.213.0.0")), []
        )
    }
    assert len(machine["prerouting"].rules) == len(NETWORK.ports)
    assert len(inside["redirect"].rules) == len(NETWORK.ports) + 1
    # Answers, the ports, and the refusal of everything else.
    assert len(machine["input"].rules) == len(NETWORK.ports) + 2
