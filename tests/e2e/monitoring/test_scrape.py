"""A real Prometheus reads ``carrel up`` as the page says; its rules and Grafana's boards find data.

One installation for the module, with something of everything: work that runs, waits, was preempted,
fails again and again and serves requests. The last tests make alerts fire, each by its cause, and
end the cause.
"""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest
import yaml
from promql_parser import Expr, VectorSelector, parse, walk

from carrel_scheduler.manifests.monitoring.alert_rules import groups
from carrel_scheduler.manifests.monitoring.files import BOARDS
from e2e.monitoring.installation import GPUS, Installation
from e2e.monitoring.prometheus import COMPONENT, RULES, Alert, Prometheus
from e2e.stack import Stack, until
from k8s.cluster import binaries

pytestmark = [pytest.mark.slow]

SCRAPED_SECONDS: Final = 60.0
ALERT_SECONDS: Final = 60.0
"""The scheduler looks every ten seconds for what its own rules find."""

LACKING: Final = {
    "carrel_gpu_health_condition": "simulated GPUs have no health checks",
    "carrel_gpu_power_watts_per_gpu": "simulated GPUs draw no power",
    "carrel_gpu_temperature_celsius_per_gpu": "simulated GPUs have no temperature",
    "scheduler_pending_pods": "pods that others made are on a cluster only",
}
"""Metrics that rules and boards use and this installation cannot show, with the reason."""
SEEN_LATER: Final = {
    "carrel_firing_alerts": "the scheduler has looked for alerts",
    "increase(carrel_queue_seconds_count[1d]) > 0": "what failed was started again",
}
"""Queries that find something some seconds after the work."""
EMPTY: Final = {
    ("carrel-nodes", "Allocated, and idle for"): "no GPU has been idle for five minutes",
}
"""Panels whose metrics are there and whose condition nothing meets."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a panel, with its board's variables at *All*."""

    board: str
    panel: str
    query: str

    @property
    def is_answered(self) -> bool:
        """Whether this installation has data for it."""
        if (self.board, self.panel) in EMPTY:
            return False
        return self.query.endswith(" or vector(0)") or not metrics_of(self.query) & {*LACKING}


def metrics_of(query: str) -> set[str]:
    """The metrics that a query selects."""
    found: set[str] = set()

    def visit(one: Expr) -> None:
        selector = getattr(one, "vector_selector", one)
        if isinstance(selector, VectorSelector) and selector.name is not None:
            found.add(selector.name)

    walk(parse(query), visit)
    return found


def panels(board: Any) -> Iterator[Asked]:
    """Every query of a board as Grafana asks it when all values are chosen."""
    for panel in json.loads(board.text)["panels"]:
        for target in panel["targets"]:
            query = re.sub(r"\$\w+", ".*", target["expr"])
            yield Asked(board.uid, panel["title"], query)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("up")
    stack = Stack(folder / "state", folder, ("--demo", "--gpus", f"{GPUS}"))
    try:
        stack.start()
        found = Installation(stack)
        found.set_up()
        yield found
    finally:
        stack.stop(jobs=True)


@pytest.fixture(scope="module")
def prometheus(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """It has read everything at least twice, before and after each thing happened."""
    program = binaries.monitoring(print)["prometheus"]
    found = Prometheus(program, tmp_path_factory.mktemp("prometheus"))
    found.configure(installation.stack.port, installation.scraping_token)
    with found:
        installation.borrow()
        until_read_again(found)
        installation.take_back()
        installation.ask_the_endpoint()
        until_read_again(found)
        for query, why in SEEN_LATER.items():
            until(partial(found.find, query), seconds=ALERT_SECONDS, why=why)
        yield found


def until_read_again(prometheus: Prometheus) -> None:
    """Wait for two more scrapes of every target that were answered."""
    query = f"timestamp(up == 1) > {time.time() + 2}"
    until(
        lambda: len(prometheus.find(query)) == 3,
        seconds=SCRAPED_SECONDS,
        why=f"{prometheus.targets()}: {prometheus.log}",
    )


def test_every_target_answers(prometheus: Prometheus) -> None:
    jobs = {"carrel-scheduler", "carrel-gateway", "carrel-hub"}
    assert prometheus.targets() == dict.fromkeys(jobs, "up")


def test_the_cluster_and_one_machine_have_the_same_rules() -> None:
    own = yaml.safe_load(RULES.read_text())["groups"]
    cluster = yaml.safe_load((COMPONENT / "rules.yaml").read_text())["spec"]["groups"]
    assert own == cluster == groups()


def test_every_rule_evaluates(prometheus: Prometheus) -> None:
    wanted = {group["name"]: [rule["alert"] for rule in group["rules"]] for group in groups()}

    def evaluated() -> bool:
        found = prometheus.groups()
        return all(rule["health"] != "unknown" for rules in found.values() for rule in rules)

    until(evaluated, seconds=SCRAPED_SECONDS, why="every rule was evaluated")
    found = prometheus.groups()
    assert {name: [rule["name"] for rule in rules] for name, rules in found.items()} == wanted
    wrong = {
        rule["name"]: rule.get("lastError")
        for rules in found.values()
        for rule in rules
        if rule["health"] != "ok"
    }
    assert wrong == {}


def test_every_metric_of_rules_and_boards_is_scraped(prometheus: Prometheus) -> None:
    queries = [one.query for board in BOARDS for one in panels(board)]
    queries += [rule["expr"] for group in groups() for rule in group["rules"]]
    used = set[str]().union(*map(metrics_of, queries))
    assert len(used) > 40
    assert used - {*prometheus.values("__name__")} == {*LACKING}


@pytest.mark.parametrize("board", BOARDS, ids=lambda one: one.uid)
def test_every_query_of_a_board_finds_data(prometheus: Prometheus, board: Any) -> None:
    end = time.time()
    for one in panels(board):
        now = prometheus.find(one.query)
        lately = prometheus.find_over(one.query, end - SCRAPED_SECONDS, end)
        assert bool(now) == bool(lately) == one.is_answered, one


@pytest.mark.parametrize("board", BOARDS, ids=lambda one: one.uid)
def test_what_is_chosen_above_a_board_is_there(prometheus: Prometheus, board: Any) -> None:
    there = {"project": {"speech", "vision"}, "department": {"science"}}
    for one in board.variables:
        found = {*prometheus.values(one.name, one.metric)}
        assert found == there.get(one.name, found)
        assert found


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("sum(carrel_gpu_count_per_node)", GPUS),
        ('carrel_allocated_gpu_count_per_project{project="vision"}', 2),
        ('carrel_allocated_gpu_count_per_project{project="speech"}', 1.5),
        ('carrel_project_waiting_gpus{project="speech"}', 1),
        ('sum(carrel_evictions_total{project="vision"})', 1),
        ('sum(carrel_workloads_ended_total{phase="succeeded"})', 1),
        ('carrel_endpoint_requests_total{endpoint="served",status="2xx"}', 1),
    ],
)
def test_figures_are_those_of_the_work(prometheus: Prometheus, query: str, value: float) -> None:
    (found,) = prometheus.find(query)
    assert float(found["value"][1]) == value


def fires(prometheus: Prometheus, name: str) -> Alert:
    """Wait for an alert; the only one of its rule."""
    found = until(lambda: prometheus.firing(name), seconds=ALERT_SECONDS, why=f"{name} fires")
    (alert,) = found
    assert isinstance(alert, Alert)
    assert "error expanding template" not in str(alert.annotations)
    return alert


def resolves(prometheus: Prometheus, name: str) -> None:
    """Wait until no alert of a rule is left."""
    until(
        lambda: name not in {one.name for one in prometheus.alerts()},
        seconds=ALERT_SECONDS,
        why=f"{name} resolves",
    )


def test_work_that_fails_again_and_again_is_an_alert_until_it_ends(
    installation: Installation, prometheus: Prometheus
) -> None:
    """The scheduler found it; its own severity and subject are those of the alert."""
    installation.client.put_alert_rule(
        "crash-loop", {"threshold": 1, "for_seconds": 0, "severity": "critical"}
    )
    alert = fires(prometheus, "CarrelCrashLoop")
    assert alert.labels["subject"] == "workload/vision/failing"
    assert "workload/vision/failing" in alert.annotations["summary"]
    installation.client.delete_workload("vision", "failing")
    resolves(prometheus, "CarrelCrashLoop")


def test_a_project_below_its_quota_is_an_alert_until_nothing_waits(
    installation: Installation, prometheus: Prometheus
) -> None:
    """Prometheus finds it from three metrics of the project."""
    alert = fires(prometheus, "CarrelStarvedQueue")
    assert alert.labels["project"] == "speech"
    assert alert.labels["severity"] == "warning"
    assert "(project speech)" in alert.annotations["summary"]
    installation.client.delete_workload("speech", "waiting")
    resolves(prometheus, "CarrelStarvedQueue")


def test_a_scheduler_that_stands_still_is_an_alert_until_it_goes_on(
    installation: Installation, prometheus: Prometheus
) -> None:
    resolves(prometheus, "CarrelSchedulerDown")
    scheduler = installation.stack.scheduler_pid()
    os.kill(scheduler, signal.SIGSTOP)
    try:
        alert = fires(prometheus, "CarrelSchedulerDown")
    finally:
        os.kill(scheduler, signal.SIGCONT)
    assert alert.labels["severity"] == "critical"
    assert prometheus.targets()["carrel-hub"] == "up"
    resolves(prometheus, "CarrelSchedulerDown")
    assert installation.stack.scheduler_pid() == scheduler


def test_prometheus_complains_of_nothing(prometheus: Prometheus) -> None:
    assert prometheus.log == ""
