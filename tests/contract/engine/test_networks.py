"""Networks of users on the machine itself: made, found again, repaired and removed, by root."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2.iproute.linux import IPRoute
from pyroute2.nftables.main import NFTables

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.network import namespaces, setup
from carrel_scheduler.engines.local.network.addressing import InstallationNetwork, installation_of
from carrel_scheduler.engines.local.network.namespaces import NetworkNamespaces
from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.node.processes import listening, met_at

pytestmark = pytest.mark.root
ADA, GRACE = 61001, 61002


@pytest.fixture
def network(tmp_path: Path) -> InstallationNetwork:
    return InstallationNetwork(installation=installation_of(tmp_path), ports=())


@pytest.fixture
def spaces(network: InstallationNetwork) -> Iterator[NetworkNamespaces]:
    made = NetworkNamespaces(network)
    yield made
    made.keep(())
    made.close()


def tables(network: InstallationNetwork) -> list[str]:
    """The machine's rules of this installation."""
    with NFTables() as nft:
        names = [str(one.get_attr("NFTA_TABLE_NAME")) for one in nft.get_tables()]
    return [name for name in names if name == network.table]


def test_a_user_keeps_one_network_until_nobody_uses_it(
    spaces: NetworkNamespaces, network: InstallationNetwork
) -> None:
    ada, grace = spaces.join(ADA), spaces.join(GRACE)
    assert ada.address != grace.address
    assert ada.path.exists()
    assert spaces.join(ADA) == ada
    again = NetworkNamespaces(network)  # a scheduler that started again
    assert again.join(ADA) == ada
    again.keep({ADA})
    again.close()
    assert network.uids() == [ADA]
    assert len(tables(network)) == 1
    spaces.keep(())
    assert network.uids() == []
    assert tables(network) == []
    assert not [name for _, name in socket.if_nameindex() if name.startswith(network.links)]


@pytest.mark.parametrize("damage", ["link", "namespace", "down"])
def test_what_is_half_made_is_made_anew(
    spaces: NetworkNamespaces, network: InstallationNetwork, damage: str
) -> None:
    before = spaces.join(ADA)
    if damage == "namespace":
        linux.unmount(str(before.path))
    else:
        with IPRoute() as machine:
            index = machine.link_lookup(ifname=network.link(ADA))[0]
            if damage == "link":
                machine.link("del", index=index)
            else:
                machine.link("set", index=index, state="down")
    again = NetworkNamespaces(network)
    after = again.join(ADA)
    again.close()
    assert after.path == before.path
    assert os.path.ismount(after.path)
    with setup._inside_of(after.path):
        names = [name for _, name in socket.if_nameindex()]
    assert "carrel0" in names


def test_rules_that_somebody_dropped_are_written_again(network: InstallationNetwork) -> None:
    now = [0.0]
    spaces = NetworkNamespaces(network, lambda: now[0])
    try:
        spaces.join(ADA)
        (name,) = tables(network)
        with NFTables() as nft:
            nft.table("del", name=name)
        now[0] += namespaces.VERIFIED_SECONDS + 1
        spaces.join(ADA)
        assert len(tables(network)) == 1
    finally:
        spaces.keep(())
        spaces.close()


def test_a_helper_that_was_killed_is_replaced(spaces: NetworkNamespaces) -> None:
    spaces.join(ADA)
    assert spaces._helper is not None
    spaces._helper.kill()
    spaces._helper.wait()
    assert spaces.join(GRACE).address


def test_no_address_left_is_an_error_that_names_the_block(network: InstallationNetwork) -> None:
    full = NetworkNamespaces(
        InstallationNetwork(installation=network.installation, block="127.0.0.0/24", ports=())
    )
    try:
        with pytest.raises(EngineError, match=r"no address of 127\.0\.0\.0/24 is free"):
            full.join(ADA)
    finally:
        full.keep(())
        full.close()


LISTEN = (
    "import socket; s = socket.create_server(('127.0.0.1', {port})); print(1, flush=True); input()"
)


def test_who_has_met_is_seen_in_a_network_of_its_own(spaces: NetworkNamespaces) -> None:
    with setup._inside_of(spaces.join(ADA).path):
        inside = subprocess.Popen(
            [sys.executable, "-c", LISTEN.format(port=23456)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    assert inside.stdout is not None
    assert inside.stdout.readline() == b"1\n"
    try:
        assert met_at({7: inside.pid}, 23456) == {7}
        assert met_at({7: inside.pid, 8: os.getpid()}, 23457) == frozenset()
        assert listening(inside.pid) == {23456}
    finally:
        inside.communicate(b"\n")
    assert met_at({7: inside.pid}, 23456) == frozenset()


def test_this_machine_can() -> None:
    assert setup.probe() == ""
