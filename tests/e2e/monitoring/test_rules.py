"""Prometheus' own checks of the files of the component, and each rule in virtual time.

``promtool test rules`` evaluates the rules over series of samples and compares which alerts fire at
given minutes. Conditions have to last as long as the rules say, which ``test_scrape.py`` shortens.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from carrel_scheduler.manifests.monitoring.alert_rules import EXPRESSIONS, alert_name, groups
from carrel_schema.governance.alerts import ABOUT
from e2e.monitoring.prometheus import CONFIGURATION, RULES
from k8s.cluster import binaries

NODE: Final = {"node": "gpu-7"}
GPU: Final = {"node": "gpu-7", "gpu": "0"}
PROJECT: Final = {"project": "vision"}
WORK: Final = {"project": "vision", "workload": "train"}
ENDPOINT: Final = {"project": "vision", "endpoint": "digits"}


@dataclass(frozen=True, slots=True)
class Case:
    """One rule: its condition holds from minute 10 on, for some time.

    Attributes:
        series: samples of each minute, in promtool's words, by metric with its labels.
        quiet: the last minute without the alert.
        fires: the first minute with it.
        resolved: the first minute without it again.
        about: what its summary names.
    """

    alert: str
    series: dict[str, str]
    quiet: int
    fires: int
    resolved: int
    labels: dict[str, str]
    about: str = ""


def _of(metric: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"


CASES: Final = (
    Case("CarrelSchedulerDown", {
        'up{job="carrel-scheduler"}': "1x9 0x9 1x200",
    }, 14, 15, 20, {}),
    Case("CarrelApiFailing", {
        'carrel_api_request_seconds_count{operation="list",code="200"}': "0+60x200",
        'carrel_api_request_seconds_count{operation="list",code="503"}': "0x9 0+6x30 180x99",
    }, 22, 23, 42, {}),
    Case("CarrelEndpointFailing", {
        _of("carrel_endpoint_requests_total", {**ENDPOINT, "status": "2xx"}): "0+60x200",
        _of("carrel_endpoint_requests_total", {**ENDPOINT, "status": "5xx"}): "0x9 0+6x30 180x99",
    }, 22, 23, 42, ENDPOINT),
    Case("CarrelIdleGpu", {
        _of("carrel_gpu_idle_seconds_per_gpu", GPU): "0x9 0+60x50 0x100",
        _of("carrel_gpu_allocated_per_gpu", GPU): "1x200",
    }, 39, 40, 61, GPU, "GPU 0 of gpu-7"),
    Case("CarrelLowUse", {
        _of("carrel_workload_gpu_utilization", {**WORK, **NODE}): "1x9 0x300 2x200",
        _of("carrel_workload_allocated_gpus", {**WORK, **NODE}): "2x500",
    }, 109, 110, 316, WORK, "vision/train"),
    Case("CarrelLongPending", {
        _of("carrel_queue_oldest_seconds", PROJECT): "0x9 0+60x1500 0x100",
    }, 1449, 1450, 1511, PROJECT, "project vision"),
    Case("CarrelNodeLost", {
        _of("carrel_node_ready", NODE): "1x9 0x10 1x100",
    }, 11, 12, 21, NODE, "node gpu-7"),
    Case("CarrelGpuUnhealthy", {
        _of("carrel_gpu_broken_per_gpu", GPU): "0x9 1x10 0x100",
    }, 9, 10, 21, GPU, "GPU 0 of gpu-7"),
    Case("CarrelStarvedQueue", {
        _of("carrel_allocated_gpu_count_per_project", PROJECT): "2x9 1x50 2x100",
        _of("carrel_project_guaranteed_gpus", PROJECT): "2x200",
        _of("carrel_project_waiting_gpus", PROJECT): "1x200",
    }, 39, 40, 61, PROJECT, "project vision"),
    Case("CarrelSchedulerLag", {
        "carrel_inbox_age_seconds": "1x9 45x10 1x100",
    }, 10, 11, 21, {}, "platform"),
    Case("CarrelSetAside", {
        "carrel_set_aside_inputs": "0x9 2x10 0x100",
    }, 14, 15, 21, {}, "platform"),
    Case("CarrelBudget", {
        'carrel_firing_alerts{rule="budget",subject="project/vision",severity="critical",silenced="false"}':
            "_x10 1x10 stale",
    }, 9, 10, 21, {"rule": "budget", "subject": "project/vision"}, "project/vision"),
)  # fmt: skip
"""Every rule that Prometheus decides, and one of those that the scheduler tells."""


@pytest.fixture(scope="module")
def promtool() -> Path:
    return binaries.monitoring(print)["promtool"]


def told(promtool: Path, *words: str) -> str:
    """What it prints; a failure is one of the test."""
    command = [str(promtool), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rule_named(name: str) -> dict[str, Any]:
    (found,) = (rule for group in groups() for rule in group["rules"] if rule["alert"] == name)
    return dict(found)


def expected(case: Case) -> dict[str, Any]:
    """The alert as Alertmanager would get it."""
    rule = rule_named(case.alert)
    severity = rule["labels"]["severity"]
    summary = rule["annotations"]["summary"].partition(" (")[0]
    return {
        "exp_labels": {
            **case.labels,
            "part_of": "carrel",
            "severity": "critical" if severity.startswith("{{") else severity,
        },
        "exp_annotations": {
            "summary": f"{summary} ({case.about})" if case.about else summary,
            "description": rule["annotations"]["description"],
        },
    }


def story(case: Case) -> dict[str, Any]:
    """The case in the format of promtool."""
    alert = [expected(case)]
    moments: list[tuple[int, list[dict[str, Any]]]] = [
        (case.quiet, []),
        (case.fires, alert),
        (case.resolved - 1, alert),
        (case.resolved, []),
    ]
    return {
        "name": case.alert,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values} for name, values in case.series.items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
            for minute, alerts in moments
        ],
    }


def test_prometheus_takes_the_files_as_they_are(promtool: Path, tmp_path: Path) -> None:
    """As the page says: both files in one folder, and the token beside them."""
    for file in (CONFIGURATION, RULES):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "carrel-token").write_text("token")
    said = told(
        promtool,
        "check",
        "config",
        "--lint=all",
        "--lint-fatal",
        str(tmp_path / CONFIGURATION.name),
    )
    assert f"{sum(len(group['rules']) for group in groups())} rules found" in said


def test_every_rule_that_prometheus_decides_has_a_case() -> None:
    decided = {alert_name(name) for name in EXPRESSIONS}
    parts = {rule["alert"] for rule in groups()[0]["rules"]}
    assert {case.alert for case in CASES} == decided | parts | {alert_name("budget")}
    assert "budget" in {*ABOUT} - {*EXPRESSIONS}


def test_each_fires_when_its_condition_lasted_and_resolves_when_it_ends(
    promtool: Path, tmp_path: Path
) -> None:
    file = tmp_path / "test.yml"
    told_what = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [story(case) for case in CASES],
    }
    file.write_text(yaml.safe_dump(told_what))
    assert "SUCCESS" in told(promtool, "test", "rules", str(file))
