"""Which view shows which kind of work."""

from collections.abc import Callable, Mapping
from typing import Final

from carrel.client import Client
from carrel.models import Workload
from carrel.widgets.endpoint import EndpointView
from carrel.widgets.experiment import ExperimentView
from carrel.widgets.job import JobView
from carrel.widgets.work import WorkView

VIEWS: Final[Mapping[str, Callable[[Client, Workload], WorkView]]] = {
    "experiment": ExperimentView,
    "inference": EndpointView,
}


def view_of(client: Client, workload: Workload) -> WorkView:
    """The live view of a workload."""
    return VIEWS.get(workload.spec.kind, JobView)(client, workload)
