"""The program that makes and removes users' network namespaces; it runs as root.

It reads one order per line from standard input, as JSON, and answers each with a line; with
``--probe`` it only says what keeps this machine from having such namespaces. It is a process of its
own, because a namespace is made by entering it. Every order is idempotent: a complete namespace is
left as it is, an incomplete one is made anew. A namespace is complete once the machine's end of its
link is up, which is the last step; no task ran in it before.
"""

import contextlib
import errno
import fcntl
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import msgspec
from pyroute2.iproute.linux import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.main import NFTables

from carrel_scheduler.engines.local.network import addressing, nftables
from carrel_scheduler.engines.local.network.addressing import InstallationNetwork, Pair
from carrel_scheduler.engines.local.network.rule_tables import replace_table
from carrel_scheduler.engines.local.shim import linux

LOCK: Final = Path("/run/carrel-network.lock")
IPV4: Final = Path("/proc/sys/net/ipv4")
IPV6: Final = Path("/proc/sys/net/ipv6/conf")
UP: Final = 1
RTM_F_FIB_MATCH: Final = 0x2000  # linux/rtnetlink.h: answer with the route that matched
WHOLE_ADDRESS: Final = 32
PROBE_USER: Final = 0
PROBE_SECONDS: Final = 3.0


class NamespaceOrder(msgspec.Struct, kw_only=True):
    """A request: ``join`` makes a user's namespace, ``keep`` removes all but those of users."""

    network: InstallationNetwork
    join: int | None = None
    keep: list[int] = []
    nameservers: list[str] = []


class NamespaceState(msgspec.Struct, kw_only=True):
    """The namespace's address, and in words what does not work."""

    address: str = ""
    error: str = ""
    closed: str = ""


def main() -> None:
    """Serve orders until there are no more."""
    if sys.argv[1:] == ["--probe"]:
        sys.stdout.write(probe())
        return
    for line in sys.stdin.buffer:
        try:
            answer = carry_out(msgspec.json.decode(line, type=NamespaceOrder))
        except (NetlinkError, OSError, msgspec.MsgspecError) as error:
            answer = NamespaceState(error=str(error) or type(error).__name__)
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def carry_out(order: NamespaceOrder) -> NamespaceState:
    """Carry out an order; only one process of the machine at a time."""
    servers = [IPv4Address(one) for one in order.nameservers]
    with _locked(), IPRoute() as machine:
        if order.join is None:
            _keep(machine, order.network, set(order.keep), servers)
            return NamespaceState()
        pair = _complete(machine, order.network, order.join)
        if pair is None:
            _remove(machine, order.network, order.join)
            pair = _make(machine, order.network, order.join, servers)
        if not _has_table(order.network.table):
            replace_table(order.network.table, nftables.machine_chains(order.network, servers))
        return NamespaceState(address=str(pair.task), closed=_enable_forwarding(machine))


def probe() -> str:
    """The reason why this machine cannot have network namespaces of users; empty when it can.

    Makes one, connects both ways, and removes it.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as here:
            number = here.getsockname()[1]
            # A capital letter: no installation is called so, as the last step removes all of it.
            network = InstallationNetwork(
                installation=f"P{os.getpid() % 10_000:04}", ports=(number,)
            )
            with _locked(), IPRoute() as machine:
                try:
                    pair = _make(machine, network, PROBE_USER, [])
                    replace_table(network.table, nftables.machine_chains(network, []))
                    return _test_connections(network, pair, here)
                finally:
                    _keep(machine, network, set(), [])
    except (NetlinkError, OSError) as error:
        return str(error) or type(error).__name__


def _test_connections(network: InstallationNetwork, pair: Pair, here: socket.socket) -> str:
    with _inside_of(network.namespace(PROBE_USER)):
        there = socket.create_server(("127.0.0.1", 0))
        caller = socket.socket()
    with there, caller:
        caller.settimeout(PROBE_SECONDS)
        try:
            caller.connect(here.getsockname())
        except OSError as error:
            return (
                f"a firewall keeps tasks from Carrel ({error}): let packets in that come by links "
                f"named {addressing.LINKS}*"
            )
        try:
            address = (str(pair.task), there.getsockname()[1])
            socket.create_connection(address, PROBE_SECONDS).close()
        except OSError as error:
            return f"a firewall keeps Carrel from tasks ({error})"
    return ""


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """Return to the present network namespace after the block."""
    with Path("/proc/self/ns/net").open("rb", buffering=0) as here:
        try:
            yield
        finally:
            linux.setns(here.fileno())


@contextlib.contextmanager
def _inside_of(path: Path) -> Iterator[None]:
    """Enter a network namespace for the block."""
    with path.open("rb", buffering=0) as inner, _returning():
        linux.setns(inner.fileno())
        yield


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _complete(machine: IPRoute, network: InstallationNetwork, uid: int) -> Pair | None:
    """The addresses of a complete namespace."""
    path = network.namespace(uid)
    links = machine.link_lookup(ifname=network.link(uid))
    if not links or not os.path.ismount(path):
        return None
    (link,) = machine.get_links(links[0])
    addresses = [one.get_attr("IFA_LOCAL") for one in machine.get_addr(index=links[0], family=2)]
    if not link["flags"] & UP or len(addresses) != 1:
        return None
    return addressing.pair_of(IPv4Address(addresses[0]))


def _make(
    machine: IPRoute, network: InstallationNetwork, uid: int, servers: Sequence[IPv4Address]
) -> Pair:
    pair = addressing.free_pair(network.block, uid, partial(_route_prefix, machine))
    if pair is None:
        raise OSError(f"no address of {network.block} is free")
    name, path = network.link(uid), network.namespace(uid)
    path.parent.mkdir(mode=0o755, exist_ok=True)
    path.touch(mode=0o600)
    with _returning():  # the namespace lasts as long as it is mounted
        linux.unshare(linux.CLONE_NEWNET)
        linux.mount("/proc/self/ns/net", str(path), linux.MS_BIND)
    peer = {"ifname": addressing.INNER_LINK, "net_ns_fd": str(path)}
    machine.link("add", ifname=name, kind="veth", peer=peer)
    with _inside_of(path):
        _configure(network, pair, servers)
    index = machine.link_lookup(ifname=name)[0]
    _set(IPV6 / name / "disable_ipv6", "1")
    _set(IPV4 / "conf" / name / "route_localnet", "1")
    _set(IPV4 / "conf" / name / "forwarding", "1")
    machine.addr("add", index=index, address=str(pair.host), prefixlen=31)
    machine.link("set", index=index, state="up")
    return pair


def _configure(network: InstallationNetwork, pair: Pair, servers: Sequence[IPv4Address]) -> None:
    """Set up the namespace from inside: rules first, then addresses."""
    _set(IPV6 / addressing.INNER_LINK / "disable_ipv6", "1")
    _set(IPV4 / "conf" / addressing.INNER_LINK / "route_localnet", "1")
    _set(IPV4 / "ip_local_port_range", addressing.OUTGOING_PORTS)
    replace_table(addressing.TABLE, nftables.namespace_chains(network, pair, servers))
    with IPRoute() as own:
        index = own.link_lookup(ifname=addressing.INNER_LINK)[0]
        own.link("set", index=own.link_lookup(ifname="lo")[0], state="up")
        own.addr("add", index=index, address=str(pair.task), prefixlen=31)
        own.link("set", index=index, state="up")
        own.route("add", dst="default", gateway=str(pair.host))


def _keep(
    machine: IPRoute, network: InstallationNetwork, kept: set[int], servers: Sequence[IPv4Address]
) -> None:
    """Remove the namespaces of all other users, and with the last one the machine's rules."""
    for uid in set(network.uids()) - kept:
        _remove(machine, network, uid)
    if network.uids():
        replace_table(network.table, nftables.machine_chains(network, servers))
        return
    if _has_table(network.table):
        with NFTables() as tables:
            tables.table("del", name=network.table)


def _remove(machine: IPRoute, network: InstallationNetwork, uid: int) -> None:
    for index in machine.link_lookup(ifname=network.link(uid)):
        machine.link("del", index=index)
    path = network.namespace(uid)
    if os.path.ismount(path):
        linux.unmount(str(path))
    path.unlink(missing_ok=True)


def _has_table(name: str) -> bool:
    with NFTables() as tables:
        return any(one.get_attr("NFTA_TABLE_NAME") == name for one in tables.get_tables())


def _enable_forwarding(machine: IPRoute) -> str:
    """Enable forwarding on the links of default routes; returns why it cannot be, or ""."""
    defaults = list(machine.get_default_routes(family=2))
    links = {one.get_attr("RTA_OIF") for one in defaults} - {None}
    if not links:
        return "the machine has no default route"
    try:
        for index in links:
            (link,) = machine.get_links(index)
            forwarding = IPV4 / "conf" / link.get_attr("IFLA_IFNAME") / "forwarding"
            if forwarding.read_text().strip() != "1":
                _set(forwarding, "1")
    except OSError as error:
        return f"the machine may not forward packets ({error})"
    return ""


def _route_prefix(machine: IPRoute, address: IPv4Address) -> int:
    """The prefix length of the machine's route to an address; 0 for the default route or none."""
    try:
        (route,) = machine.route("get", dst=str(address), flags=RTM_F_FIB_MATCH)
    except NetlinkError as error:
        return 0 if error.code == errno.ENETUNREACH else WHOLE_ADDRESS
    return int(route["dst_len"])


def _set(path: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        path.write_text(text)


if __name__ == "__main__":
    main()
