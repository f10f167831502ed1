"""Whether the group of nodes that work asks for is there, and open to it."""

from carrel_scheduler.engines.external import ExternalPods
from carrel_scheduler.workloads.launch.fitting import Misfit
from carrel_schema.objects import Workload

FIELD = "node_group"
_MOST = 8


def misfit(external_pods: ExternalPods, workload: Workload) -> Misfit | None:
    """What is wrong with the group that it asks for; ``None`` when nothing."""
    asked = workload.spec.node_group
    if not asked:
        return None
    interactive = workload.spec.kind == "workspace"
    open_to = external_pods.open_node_groups(workload.meta.project, interactive=interactive)
    known = external_pods.node_groups()
    usable = sorted(known if open_to is None else known & open_to)
    if asked in usable:
        return None
    right = f"one of {', '.join(f'`{name}`' for name in usable[:_MOST])}, or left out"
    if not usable:
        right = "left out: no group of nodes is open to it" if known else "left out: there are none"
    code = "node_group_not_open" if asked in known else "unknown_node_group"
    return Misfit(code, FIELD, asked, right)
