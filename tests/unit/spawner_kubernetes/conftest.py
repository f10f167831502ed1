"""No test here asks a cluster."""

import pytest

from unit.spawner_kubernetes.pods import without_cluster


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cluster(monkeypatch)
