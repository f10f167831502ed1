"""What the environment may say of where the service runs."""

from pathlib import Path

import pytest

from carrel_scheduler.core.settings import Settings as CoreSettings
from carrel_scheduler.environment import InvalidVariable, MissingSetting
from carrel_scheduler.service.cluster_settings import CERTIFICATE
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.reconcile.usage_history import PastUseRules

HUB = {
    "CARREL_STATE_DIR": "/state",
    "JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:8040/",
    "JUPYTERHUB_SERVICE_PREFIX": "/services/carrel/",
    "JUPYTERHUB_API_URL": "http://127.0.0.1:8081/hub/api",
    "JUPYTERHUB_API_TOKEN": "t",
}


def test_one_machine_is_the_default() -> None:
    found = ServiceSettings.from_environment(HUB)
    assert (found.engine, found.host, found.port) == ("local", "127.0.0.1", 8040)
    assert found.gateway_prefix == "/services/gateway"
    with pytest.raises(MissingSetting):
        found.need_cluster()


ACCESS = {
    **HUB,
    "CARREL_ENGINE": "kubernetes",
    "CARREL_TASK_IMAGE": "trainer:1",
    "CARREL_API_SERVER": "https://k8s.example.org:6443/",
    "CARREL_API_SERVER_CA": "system",
}


def test_how_people_reach_the_api_server(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text(CERTIFICATE)
    assert (
        ServiceSettings.from_environment(ACCESS | {"CARREL_API_SERVER": ""}).need_cluster().access
        is None
    )
    access = ServiceSettings.from_environment(ACCESS).need_cluster().access
    assert access is not None
    assert (access.server, access.sign_in) == ("https://k8s.example.org:6443", None)
    assert access.certificate_authority == ""
    command = '{"command": "kubelogin", "interactiveMode": "Never"}'
    more = {"CARREL_API_SERVER_SIGN_IN": command, "CARREL_API_SERVER_CA": str(authority)}
    access = ServiceSettings.from_environment(ACCESS | more).need_cluster().access
    assert access is not None
    assert access.certificate_authority == CERTIFICATE
    assert access.sign_in is not None
    assert (access.sign_in.command, access.sign_in.interactive_mode) == ("kubelogin", "Never")


def test_a_key_is_not_sent_in_place_of_certificates(tmp_path: Path) -> None:
    file = tmp_path / "tls.pem"
    for content in ("nothing", f"{CERTIFICATE}\n-----BEGIN EC PRIVATE KEY-----"):
        file.write_text(content)
        with pytest.raises(InvalidVariable, match="CARREL_API_SERVER_CA"):
            ServiceSettings.from_environment(ACCESS | {"CARREL_API_SERVER_CA": str(file)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CARREL_API_SERVER", "http://k8s:6443"),
        ("CARREL_API_SERVER", "https://ada:secret@k8s:6443"),
        ("CARREL_API_SERVER", "https://"),
        ("CARREL_API_SERVER_CA", "/nowhere/ca.crt"),
        ("CARREL_API_SERVER_SIGN_IN", "kubelogin"),
        ("CARREL_API_SERVER_SIGN_IN", '{"args": []}'),
        ("CARREL_API_SERVER_SIGN_IN", '{"command": " "}'),
        ("CARREL_API_SERVER_SIGN_IN", '{"command": "a", "token": "secret"}'),
    ],
)
def test_what_cannot_reach_an_api_server_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidVariable, match=name):
        ServiceSettings.from_environment(ACCESS | {name: value})


def test_a_cluster() -> None:
    more = {
        "CARREL_ENGINE": "kubernetes",
        "CARREL_LISTEN": "0.0.0.0:8080",
        "CARREL_TASK_IMAGE": "trainer:1",
        "CARREL_TASK_API_URL": "http://scheduler.carrel-system:8080/services/carrel/",
        "CARREL_STORAGE_CLAIM": "none",
        "CARREL_TASK_PULL_SECRETS": "a,b",
    }
    found = ServiceSettings.from_environment({**HUB, **more})
    cluster = found.need_cluster()
    assert (found.host, found.port) == ("0.0.0.0", 8080)
    assert cluster.task_api_url == "http://scheduler.carrel-system:8080/services/carrel"
    assert cluster.namespace == "carrel-system"
    assert (cluster.pods.image, cluster.pods.storage_claim) == ("trainer:1", "")
    assert cluster.pods.pull_secrets == ("a", "b")
    assert cluster.storage.size == "", "an admin sees to it"
    claimed = ServiceSettings.from_environment(
        {**HUB, **more, "CARREL_STORAGE_CLAIM": ""}
    ).need_cluster()
    assert not claimed.by_role
    strict = ServiceSettings.from_environment({**HUB, **more, "CARREL_NODE_ROLES": "strict"})
    assert strict.need_cluster().by_role
    with pytest.raises(InvalidVariable, match="CARREL_NODE_ROLES"):
        ServiceSettings.from_environment({**HUB, **more, "CARREL_NODE_ROLES": "yes"})
    assert (claimed.storage.size, claimed.pods.storage_claim) == ("100Gi", "carrel-checkpoints")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CARREL_ENGINE", "swarm"),
        ("CARREL_LISTEN", "8080"),
        ("CARREL_LISTEN", "a:b"),
        ("CARREL_PAST_USE_FACTOR", "much"),
        ("CARREL_PAST_USE_FACTOR", "-1"),
        ("CARREL_PAST_USE_HALF_LIFE", "0"),
        ("CARREL_RECLAIM_DELAY", "-1"),
        ("CARREL_RECLAIM_DELAY", "5m"),
    ],
)
def test_what_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidVariable, match=name):
        ServiceSettings.from_environment({**HUB, name: value})


def test_past_use_does_not_count_unless_it_is_asked_for() -> None:
    assert ServiceSettings.from_environment(HUB).past_use == PastUseRules(0.0, 7 * 86_400.0)
    told = {"CARREL_PAST_USE_FACTOR": "0.5", "CARREL_PAST_USE_HALF_LIFE": "24"}
    assert ServiceSettings.from_environment({**HUB, **told}).past_use == PastUseRules(0.5, 86_400.0)


def test_rules_reach_the_core() -> None:
    assert ServiceSettings.from_environment(HUB).core == CoreSettings()
    told = {"CARREL_PAST_USE_FACTOR": "0.5", "CARREL_RECLAIM_DELAY": "450"}
    wanted = CoreSettings(usage_factor_millionths=500_000, reclaim_delay_s=450.0)
    assert ServiceSettings.from_environment({**HUB, **told}).core == wanted


def test_a_cluster_needs_an_image() -> None:
    with pytest.raises(MissingSetting, match="CARREL_TASK_IMAGE"):
        ServiceSettings.from_environment({**HUB, "CARREL_ENGINE": "kubernetes"})


def test_how_long_a_gang_may_be_too_few() -> None:
    more = {"CARREL_ENGINE": "kubernetes", "CARREL_TASK_IMAGE": "trainer"}
    assert ServiceSettings.from_environment({**HUB, **more}).need_cluster().stale_gang_s == 60.0
    more["CARREL_STALE_GANG_SECONDS"] = "2.5"
    assert ServiceSettings.from_environment({**HUB, **more}).need_cluster().stale_gang_s == 2.5
    more["CARREL_STALE_GANG_SECONDS"] = "-1"
    with pytest.raises(InvalidVariable, match="CARREL_STALE_GANG_SECONDS"):
        ServiceSettings.from_environment({**HUB, **more})


def test_how_long_a_node_may_be_out_of_reach() -> None:
    more = {"CARREL_ENGINE": "kubernetes", "CARREL_TASK_IMAGE": "trainer"}
    assert (
        ServiceSettings.from_environment({**HUB, **more}).need_cluster().pods.lost_after_seconds
        == 60
    )
    more["CARREL_LOST_AFTER_SECONDS"] = "300"
    assert (
        ServiceSettings.from_environment({**HUB, **more}).need_cluster().pods.lost_after_seconds
        == 300
    )
    more["CARREL_LOST_AFTER_SECONDS"] = "soon"
    with pytest.raises(InvalidVariable, match="CARREL_LOST_AFTER_SECONDS='soon'"):
        ServiceSettings.from_environment({**HUB, **more})


def test_the_network_of_tasks() -> None:
    assert ServiceSettings.from_environment(HUB).network is None
    told = {"CARREL_TASK_NETWORK": "isolated", "CARREL_TASK_PORTS": "8000,10001"}
    found = ServiceSettings.from_environment({**HUB, **told}).network
    assert found is not None
    assert (found.ports, found.block, found.public) == ((8000, 10001), "10.213.0.0/16", None)
    for name, wrong in (
        ("CARREL_TASK_NETWORK", "none"),
        ("CARREL_TASK_PORTS", "http"),
        ("CARREL_NETWORK_BLOCK", "10.213.1"),
    ):
        with pytest.raises(InvalidVariable, match=f"{name}='{wrong}'"):
            ServiceSettings.from_environment({**HUB, **told, name: wrong})


def test_how_nodes_are_asked_for() -> None:
    assert ServiceSettings.from_environment(ACCESS).need_cluster().provisioning.class_name == ""
    more = {
        "CARREL_PROVISIONING_CLASS": "check-capacity.autoscaling.x-k8s.io",
        "CARREL_PROVISIONING_PARAMETERS": "noRetry=true, runs=1h",
        "CARREL_PROVISIONING_MOST": "5",
        "CARREL_PROVISIONING_AFTER_SECONDS": "0",
    }
    found = ServiceSettings.from_environment(ACCESS | more).need_cluster().provisioning
    assert (found.class_name, found.most) == ("check-capacity.autoscaling.x-k8s.io", 5)
    assert (found.parameters, found.delay_s) == ({"noRetry": "true", "runs": "1h"}, 0.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CARREL_PROVISIONING_CLASS", "Not a class"),
        ("CARREL_PROVISIONING_CLASS", "a" * 254),
        ("CARREL_PROVISIONING_PARAMETERS", "noRetry"),
        ("CARREL_PROVISIONING_PARAMETERS", f"a={'x' * 256}"),
        ("CARREL_PROVISIONING_MOST", "0"),
        ("CARREL_PROVISIONING_AFTER_SECONDS", "-1"),
    ],
)
def test_what_means_nothing_about_nodes_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidVariable, match=name):
        ServiceSettings.from_environment(ACCESS | {name: value})


@pytest.mark.parametrize("kind", ["gpu", "mig"])
def test_the_class_of_devices_that_tasks_claim(kind: str) -> None:
    variable, name = f"CARREL_{kind.upper()}_DEVICE_CLASS", f"{kind}_device_class"
    assert getattr(ServiceSettings.from_environment(ACCESS).need_cluster(), name) == ""
    found = ServiceSettings.from_environment(
        ACCESS | {variable: f"{kind}.nvidia.com"}
    ).need_cluster()
    assert getattr(found, name) == f"{kind}.nvidia.com"
    with pytest.raises(InvalidVariable, match=variable):
        ServiceSettings.from_environment(ACCESS | {variable: "GPU class"}).need_cluster()
