"""Who comes in for metrics, and what is scraped: the component of monitoring as it is written."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from carrel_hub import scopes

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
COMPONENT = DEPLOY / "components" / "monitoring"
PATHS = {
    "carrel-scheduler": f"/services/{scopes.SCHEDULER}/metrics",
    "carrel-gateway": f"/services/{scopes.GATEWAY}/metrics",
    "carrel-hub": "/hub/metrics",
}


def documents(path: Path) -> list[dict[str, Any]]:
    return [dict(one) for one in yaml.safe_load_all(path.read_text())]


def containers() -> dict[str, dict[str, Any]]:
    """The container of each deployment, by the name of its pods."""
    found = {}
    for path in ("scheduler/scheduler.yaml", "hub/hub.yaml", "hub/parts.yaml"):
        for one in documents(DEPLOY / path):
            if one["kind"] == "Deployment":
                template = one["spec"]["template"]
                name = template["metadata"]["labels"]["app.kubernetes.io/name"]
                (found[name],) = template["spec"]["containers"]
    return found


def ports(name: str) -> dict[str, int]:
    return {one["name"]: one["containerPort"] for one in containers()[name]["ports"]}


def admitted(pod: str, port: int, namespace: dict[str, str], client: dict[str, str]) -> bool:
    """Whether a policy of the component lets a pod with such labels in."""
    for policy in documents(COMPONENT / "network.yaml"):
        spec = policy["spec"]
        assert policy["metadata"]["namespace"] == "carrel-system"
        assert spec["policyTypes"] == ["Ingress"]
        if spec["podSelector"] != {"matchLabels": {"app.kubernetes.io/name": pod}}:
            continue
        for rule in spec["ingress"]:
            assert set(rule) == {"from", "ports"}
            for peer in rule["from"]:
                assert set(peer) == {"namespaceSelector", "podSelector"}
                theirs = peer["namespaceSelector"]["matchLabels"].items()
                wanted = peer["podSelector"]["matchLabels"].items()
                if theirs <= namespace.items() and wanted <= client.items() and wanted and theirs:
                    return {"port": port} in rule["ports"]
    return False


MONITORING = {"carrel.dev/monitoring": "true", "kubernetes.io/metadata.name": "monitoring"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


@pytest.mark.parametrize("name", PATHS)
def test_prometheus_comes_in_where_metrics_are(name: str) -> None:
    (port,) = ports(name).values()
    assert admitted(name, port, MONITORING, PROMETHEUS)
    assert not admitted(name, port + 1, MONITORING, PROMETHEUS)


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    ("namespace", "client"),
    [
        ({"kubernetes.io/metadata.name": "monitoring"}, PROMETHEUS),
        ({"carrel.dev/project": "vision"}, PROMETHEUS),
        (MONITORING, {"app.kubernetes.io/name": "grafana"}),
        ({}, {}),
    ],
)
def test_nobody_else_does(name: str, namespace: dict[str, str], client: dict[str, str]) -> None:
    (port,) = ports(name).values()
    assert not admitted(name, port, namespace, client)


def test_the_proxy_and_the_console_are_not_opened() -> None:
    selected = {
        one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        for one in documents(COMPONENT / "network.yaml")
    }
    assert selected == set(PATHS)
    assert selected < set(containers())


def test_what_is_scraped_is_there_and_shows_the_key_of_metrics() -> None:
    monitors = {one["metadata"]["name"]: one for one in documents(COMPONENT / "scraping.yaml")}
    assert set(monitors) == set(PATHS)
    for name, one in monitors.items():
        spec = one["spec"]
        assert one["metadata"]["namespace"] == "carrel-system"
        assert spec["selector"] == {"matchLabels": {"app.kubernetes.io/name": name}}
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["path"] == PATHS[name]
        assert endpoint["port"] in ports(name)
        assert endpoint["honorLabels"]
        assert endpoint["followRedirects"] is False
        credentials = {"name": "carrel-keys", "key": "metrics"}
        assert endpoint["authorization"] == {"type": "Bearer", "credentials": credentials}


def test_one_machine_is_scraped_at_the_same_paths_under_the_same_names() -> None:
    (config,) = documents(COMPONENT / "prometheus" / "prometheus.yml")
    jobs = {one["job_name"]: one for one in config["scrape_configs"]}
    assert {name: one["metrics_path"] for name, one in jobs.items()} == PATHS
    for one in jobs.values():
        assert one["honor_labels"]
        assert one["authorization"]["credentials_file"]


def test_the_component_has_all_its_files() -> None:
    (component,) = documents(COMPONENT / "kustomization.yaml")
    boards = [name for one in component["configMapGenerator"] for name in one["files"]]
    assert sorted(boards) == sorted(
        path.relative_to(COMPONENT).as_posix() for path in COMPONENT.glob("boards/*")
    )
    there = {path.name for path in COMPONENT.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(component["resources"]) == there
    assert component["generatorOptions"]["labels"]["grafana_dashboard"] == "1"
