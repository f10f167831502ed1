"""Boards and rules of monitoring ask only for what a scrape of the service shows."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec
import pytest
from jupyterhub import metrics as hub_metrics
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from carrel_hub.gateway.metrics import EndpointMetrics
from carrel_scheduler.alerts.conditions import Facts
from carrel_scheduler.manifests.monitoring.alert_rules import EXPRESSIONS, alert_name, groups
from carrel_scheduler.manifests.monitoring.boards import Board
from carrel_scheduler.manifests.monitoring.files import BOARDS
from carrel_scheduler.workloads.contract import Faults
from carrel_scheduler.workloads.reconcile.metrics import ReconcilerMetrics
from carrel_schema.governance.alerts import ABOUT
from carrel_schema.objects import Department, DepartmentSpec, Meta, Project, ProjectSpec, Quota
from contract.api.promql import QueryError, labels
from contract.api.service import ApiHarness
from contract.api.test_edge import row

Scraped = Mapping[str, set[str]]
LEGEND = re.compile(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}")
LABEL_VALUES = re.compile(r"label_values\((\w+), (\w+)\)")


def names_of(*texts: str) -> Scraped:
    """The labels of each metric in what Prometheus reads."""
    found = defaultdict[str, set[str]](set)
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] |= set(sample.labels)
    return found


def gateway() -> str:
    """What a gateway shows that answered one request."""
    metrics = EndpointMetrics()
    metrics.observe("vision", "digits", 200, 0.1)
    return metrics.text([("vision", "digits", 1, 1)]).decode()


@pytest.fixture
async def scraped(harness: ApiHarness) -> Scraped:
    """What scheduler, gateway and Hub show while there is something of everything."""
    clock = harness.clock
    await harness.ledger.create(
        Department(
            meta=Meta(name="science", created_at=1.0),
            spec=DepartmentSpec(quota=Quota(gpu_milli=4000), limit=Quota(gpu_milli=8000)),
        )
    )
    spec = ProjectSpec(limit=Quota(gpu_milli=4000), members_group="project-art")
    await harness.ledger.create(Project(meta=Meta(name="art", created_at=1.0), spec=spec))
    epoch = await harness.ledger.begin_epoch()
    rows = [
        row(harness, "b", "", "pending", 1),
        row(harness, "b", "pending", "starting", 4),
        row(harness, "b", "running", "preempting", 5),
        row(harness, "b", "preempting", "succeeded", 6),
    ]
    fresh = [msgspec.structs.replace(one, epoch=epoch) for one in rows]
    await harness.ledger.record(epoch=epoch, transitions=fresh)
    harness.live.told_faults = Faults(violations={"sum": 1}, skipped={("workload", "bad"): 1})
    for _ in range(2):
        harness.facts = Facts(now=clock.now, lag_seconds=100.0)
        await harness.alerts.once()
        clock.now += 120
    await harness.ask("GET", "/queue")
    reply = await harness.ask("GET", "/metrics", "scraper", base="/services/carrel")
    assert reply.status == 200
    loop = generate_latest(ReconcilerMetrics().registry).decode()
    assert hub_metrics.RUNNING_SERVERS is not None
    hub_metrics.ACTIVE_USERS.labels(period="24h").set(1)
    hub = generate_latest(REGISTRY).decode()
    return {**names_of(reply.raw.decode(), loop, gateway(), hub), "up": set()}


def queries(board: Board) -> Iterator[tuple[str, str]]:
    """Each query of a board as Grafana is told it, with its legend."""
    for panel in json.loads(board.text)["panels"]:
        for target in panel["targets"]:
            legend = target["legendFormat"]
            yield target["expr"], legend if legend != "__auto" else ""


async def test_every_query_of_every_board_finds_something_of_a_scrape(scraped: Scraped) -> None:
    for board in BOARDS:
        names = {one.name for one in board.variables}
        for query, legend in queries(board):
            there = labels(query, scraped)
            assert there is not None
            assert set(LEGEND.findall(legend)) <= there, query
            assert set(re.findall(r"\$(\w+)", query)) <= names, query


async def test_what_is_chosen_above_a_board_is_a_label_of_its_metric(scraped: Scraped) -> None:
    for board in BOARDS:
        for one in json.loads(board.text)["templating"]["list"][1:]:
            found = LABEL_VALUES.fullmatch(one["query"]["query"])
            assert found is not None
            assert found[2] in scraped[found[1]]
            assert one["name"] == found[2]


async def test_every_rule_finds_something_of_a_scrape(scraped: Scraped) -> None:
    for group in groups():
        for rule in group["rules"]:
            there = labels(rule["expr"], scraped)
            assert there is not None
            texts = f"{rule['annotations']['summary']} {rule['labels']['severity']}"
            assert set(LEGEND.findall(texts)) <= there, rule


def test_every_rule_of_the_scheduler_has_one_of_prometheus() -> None:
    rules = {rule["alert"]: rule for group in groups() for rule in group["rules"]}
    for name, about in ABOUT.items():
        rule = rules[alert_name(name)]
        assert rule["annotations"]["description"] == about.action
        severity = rule["labels"]["severity"]
        if name in EXPRESSIONS:
            assert severity == about.default.severity
            assert rule["for"] == f"{about.default.for_seconds:g}s"
        else:
            assert severity == "{{ $labels.severity }}"
            assert f'rule="{name}"' in rule["expr"]


async def test_alerts_are_told_with_their_subject(harness: ApiHarness, scraped: Scraped) -> None:
    assert scraped["carrel_firing_alerts"] == {"rule", "severity", "subject", "silenced"}
    reply = await harness.ask("GET", "/metrics", "scraper", base="/services/carrel")
    told = 'rule="scheduler-lag",severity="critical",silenced="false",subject="platform"'
    assert f"carrel_firing_alerts{{{told}}} 1.0" in reply.raw.decode()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("carrel_gpus", "not scraped"),
        ("sum by (team) (carrel_queue_length)", "no labels"),
        ('carrel_queue_length{user="ada"}', "no labels"),
        ("carrel_queue_length / carrel_node_ready", "never match"),
        ("carrel_queue_length * on (project) group_left (team) carrel_project_info", "no labels"),
        ("histogram_quantile(0.5, sum by (kind) (carrel_queue_seconds_bucket))", "no labels"),
    ],
)
async def test_a_wrong_query_is_seen(scraped: Scraped, query: str, words: str) -> None:
    with pytest.raises(QueryError, match=words):
        labels(query, scraped)


def test_a_query_that_is_none_does_not_parse() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        labels("sum by (", {})
