"""The files of monitoring: generated ones beside those of the component that people wrote.

Boards are plain JSON, which kustomize puts into ConfigMaps and which Grafana imports as it is; the
rules are there once for Prometheus Operator and once for a Prometheus of its own.
"""

from collections.abc import Mapping
from typing import Any, Final

from carrel_scheduler.manifests.monitoring.alert_rules import groups
from carrel_scheduler.manifests.monitoring.cluster_boards import NODES, OVERVIEW
from carrel_scheduler.manifests.monitoring.work_boards import PROJECTS, WORKLOADS

COMPONENT: Final = "components/monitoring"
BOARDS: Final = (OVERVIEW, NODES, PROJECTS, WORKLOADS)
RULE_FILE: Final = f"{COMPONENT}/prometheus/rules.yml"


def boards() -> Mapping[str, str]:
    """JSON by path."""
    return {f"{COMPONENT}/boards/{one.uid}.json": one.text for one in BOARDS}


def rules() -> Mapping[str, dict[str, Any]]:
    """Contents of YAML files by path."""
    return {
        f"{COMPONENT}/rules.yaml": {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {
                "name": "carrel",
                "namespace": "carrel-system",
                "labels": {"app.kubernetes.io/part-of": "carrel"},
            },
            "spec": {"groups": groups()},
        },
        RULE_FILE: {"groups": groups()},
    }
