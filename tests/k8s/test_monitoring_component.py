"""The component of monitoring builds with an installation, also with the patches of its page."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.cluster import binaries
from k8s.ours import DEPLOY, MARKS

pytestmark = MARKS
PAGE = DEPLOY.parents[1] / "docs" / "monitoring.md"


@pytest.fixture(scope="module")
def program() -> Path:
    return binaries.control_plane(print)["kubectl"]


def built(program: Path, folder: Path, patches: list[Any]) -> list[dict[str, Any]]:
    """The component with an installation below it, as ``kubectl apply -k`` would send them."""
    base = Path(os.path.relpath(DEPLOY, folder.resolve()))
    overlay = {
        "resources": [f"{base}"],
        "components": [f"{base}/components/monitoring"],
        "patches": patches,
    }
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    command = [str(program), "kustomize", str(folder.resolve())]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return [dict(one) for one in yaml.safe_load_all(told.stdout)]


def of_the_page() -> list[Any]:
    """The patches that the page tells."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    found = [yaml.safe_load(one.partition("```")[0]) for one in blocks]
    return [patch for one in found for patch in one.get("patches", [])]


def test_it_goes_with_the_installation(program: Path, tmp_path: Path) -> None:
    objects = built(program, tmp_path, [])
    kinds = [one["kind"] for one in objects]
    assert kinds.count("PodMonitor") == 3
    assert kinds.count("PrometheusRule") == 1
    boards = [
        one
        for one in objects
        if one["kind"] == "ConfigMap" and one["metadata"].get("labels", {}).get("grafana_dashboard")
    ]
    titles = [json.loads(text)["title"] for one in boards for text in one["data"].values()]
    assert len(titles) == 4
    assert {one["metadata"]["namespace"] for one in boards} == {"carrel-system"}


def test_the_patches_of_the_page_do_what_it_says(program: Path, tmp_path: Path) -> None:
    patches = of_the_page()
    assert len(patches) == 2
    objects = built(program, tmp_path, patches)
    for one in objects:
        if one["kind"] in ("PodMonitor", "PrometheusRule"):
            assert one["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        name = one["metadata"]["name"]
        if one["kind"] == "NetworkPolicy" and name.startswith("monitoring-"):
            ((peer,),) = [rule["from"] for rule in one["spec"]["ingress"]]
            assert peer == {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "observability"}
                }
            }
