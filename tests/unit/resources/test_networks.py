"""What pods of a project reach, and who reaches them."""

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from carrel_scheduler.workloads.namespaces import manifests

POLICIES = Path(__file__).parents[3] / "deploy" / "kubernetes" / "network" / "policies.yaml"


def blocks(egress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks of addresses that are open at any port."""
    return [
        peer["ipBlock"]
        for rule in egress
        if "ports" not in rule
        for peer in rule["to"]
        if "ipBlock" in peer
    ]


def reaches(egress: list[dict[str, Any]], address: str) -> bool:
    asked = ip_address(address)
    return any(
        asked in ip_network(one["cidr"])
        and not any(asked in ip_network(left_out) for left_out in one.get("except", ()))
        for one in blocks(egress)
    )


def of_a_project(*closed: str) -> dict[str, Any]:
    return dict(manifests.network("vision", "carrel-system", closed)["spec"])


def of_the_installation() -> dict[str, Any]:
    policies = {one["metadata"]["name"]: one for one in yaml.safe_load_all(POLICIES.read_text())}
    return dict(policies["metadata"]["spec"])


@pytest.mark.parametrize("spec", [of_a_project(), of_the_installation()])
@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fe80::a9fe:a9fe",
    ],
)
def test_metadata_services_are_closed(spec: dict[str, Any], address: str) -> None:
    assert "Egress" in spec["policyTypes"]
    assert not reaches(spec["egress"], address)


@pytest.mark.parametrize("address", ["151.101.0.223", "10.20.30.40", "2a04:4e42::223"])
def test_the_world_is_open_but_for_what_an_admin_closes(address: str) -> None:
    assert reaches(of_a_project()["egress"], address)
    assert not reaches(of_a_project(f"{address}")["egress"], address)


def test_pods_of_other_projects_and_of_the_cluster_are_reached_for_names_only() -> None:
    spec = of_a_project()
    (peers,) = [rule["from"] for rule in spec["ingress"]]
    within, ours = peers
    assert within == {"podSelector": {}}
    assert ours["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": "carrel-system"}
    }
    for rule in spec["egress"]:
        for peer in rule["to"]:
            if peer.get("namespaceSelector") == {}:
                assert {port["port"] for port in rule["ports"]} == {53, 5353}


def test_of_the_installation_they_reach_what_serves_work() -> None:
    (rule,) = [
        one
        for one in of_a_project()["egress"]
        if "matchLabels" in one["to"][0].get("namespaceSelector", {})
    ]
    assert [port["port"] for port in rule["ports"]] == [8080, 8081, 8091]


def test_it_is_as_the_installation_says_it() -> None:
    """The same list of networks in both places."""
    project, ours = blocks(of_a_project()["egress"]), blocks(of_the_installation()["egress"])
    closed = [set(one["except"]) for one in project]
    assert [set(one["except"]) for one in ours if "except" in one] == closed
