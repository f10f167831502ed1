"""What ``carrel up`` says of the network, and what it has the scheduler do."""

from pathlib import Path

from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.up.network import NetworkFacts, find_network

PORTS = Ports(hub=1001, proxy_api=1002, scheduler=1003, console=1004, gateway=1005)


def found(
    *, privileged: bool = True, refusal: str = "", host: str = "127.0.0.1", **environment: str
) -> NetworkFacts:
    settings = InstallationSettings(state_dir=Path("/state"), host=host, ports=PORTS)
    return find_network(
        settings, privileged=privileged, environment=environment, refusal=lambda: refusal
    )


def test_root_gives_each_user_a_network_with_the_ports_that_work_needs() -> None:
    told = found().told
    assert told == {"CARREL_TASK_NETWORK": "isolated", "CARREL_TASK_PORTS": "1001,1003,1005,8000"}
    assert "a network of its own" in found().line


def test_the_public_port_is_reached_at_all_addresses_where_it_is_open_to_all() -> None:
    assert found(host="0.0.0.0").told["CARREL_TASK_PUBLIC_PORT"] == "8000"


def test_an_admin_chooses_addresses_or_to_share() -> None:
    block = found(CARREL_NETWORK_BLOCK="10.9.0.0/16").told
    assert block["CARREL_NETWORK_BLOCK"] == "10.9.0.0/16"
    shared = found(CARREL_TASK_NETWORK="shared")
    assert not shared.told
    assert "can reach each other's ports" in shared.line


def test_what_is_not_kept_apart_is_said() -> None:
    refused = found(refusal="this kernel has no nf_tables")
    assert not refused.told
    assert "can reach each other's ports, because this kernel has no nf_tables" in refused.line
    alone = found(privileged=False)
    assert not alone.told
    assert "run as root to part them" in alone.line
