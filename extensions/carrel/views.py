"""Live views by name, for notebooks and for dashboards made of several.

from carrel import views
views.job("train-7")                     # a training, an experiment or an endpoint
views.form("experiment", gpus=1)         # a form; `.job` is what it submitted
views.gpus(), views.quota(), views.jobs()
"""

from typing import TYPE_CHECKING, Any

from carrel.client import Client
from carrel.client.submit import default_project
from carrel.notebook.job import view_of

if TYPE_CHECKING:
    from carrel.notebook.form import FormView
    from carrel.widgets.cluster import ClusterView
    from carrel.widgets.live import WorkView
    from carrel.widgets.tables import JobsView, QuotaView

__all__ = ["form", "gpus", "job", "jobs", "quota"]


def job(name: str, project: str | None = None, *, client: Client | None = None) -> "WorkView":
    """The view of one workload, whatever its kind. Raises ``CarrelError``."""
    used = client or Client()
    return view_of(used, used.get_workload(project or default_project(used), name))


def form(kind: str = "training", *, client: Client | None = None, **preset: Any) -> "FormView":
    """A form for a kind of work; ``preset`` holds options (docs/options.md), ``_`` for ``-``.

    Raises ``CarrelError``.
    """
    from carrel.notebook.form import FormView

    texts = {
        flag.replace("_", "-"): value if isinstance(value, bool | list) else str(value)
        for flag, value in preset.items()
    }
    return FormView(client or Client(), kind, texts)


def gpus(*, client: Client | None = None) -> "ClusterView":
    """The map of all GPUs. Raises ``CarrelError``."""
    from carrel.widgets.cluster import ClusterView

    used = client or Client()
    return ClusterView(used, used.nodes())


def quota(*, client: Client | None = None) -> "QuotaView":
    """The quota lines of the caller's projects, with their budgets. Raises ``CarrelError``."""
    from carrel.widgets.tables import QuotaView

    return QuotaView.of(client or Client())


def jobs(*, client: Client | None = None) -> "JobsView":
    """The table of the caller's work. Raises ``CarrelError``."""
    from carrel.widgets.tables import JobsView

    used = client or Client()
    user = used.whoami().user
    mine = [one for one in used.list_workloads(user=user) if one.spec.kind != "workspace"]
    return JobsView(used, mine, user)
