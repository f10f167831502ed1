"""Dashboards of the installation: an overview, and its nodes and GPUs."""

from typing import Final

from carrel_scheduler.manifests.monitoring.boards import Board, Panel, Query, Variable

NODE: Final = Variable("node", "Node", "carrel_node_ready")
_IDLE_SECONDS: Final = 300


def _figure(
    title: str, expression: str, *, unit: str = "short", warn_at: float | None = None
) -> Panel:
    """A large figure, six in a line."""
    return Panel(title, [Query(expression)], "stat", unit, 4, warn_at=warn_at)


OVERVIEW: Final = Board(
    uid="carrel-overview",
    title="Carrel / Overview",
    description="What the whole installation does now, and whether its scheduler keeps up.",
    panels=[
        _figure("Ready nodes", "sum(carrel_node_ready)"),
        _figure("GPUs", "sum(carrel_gpu_count_per_node)"),
        _figure("Allocated GPUs", "sum(carrel_allocated_gpu_count_per_node)"),
        _figure(
            "Allocated and idle GPUs",
            "count((carrel_gpu_allocated_per_gpu > 0) and "
            f"(carrel_gpu_idle_seconds_per_gpu > {_IDLE_SECONDS})) or vector(0)",
            warn_at=1,
        ),
        _figure("Running workloads", "sum(carrel_running_workloads)"),
        _figure("Pending workloads", "sum(carrel_queue_length)"),
        Panel(
            "GPUs",
            [
                Query("sum(carrel_gpu_count_per_node)", "there"),
                Query("sum(carrel_allocated_gpu_count_per_node)", "allocated"),
                Query("sum(carrel_gpu_utilization_per_gpu)", "in use"),
                Query("sum(carrel_project_waiting_gpus)", "asked for by pending work"),
            ],
        ),
        Panel(
            "Pending workloads",
            [Query("sum by (project) (carrel_queue_length) > 0", "{{project}}")],
        ),
        Panel(
            "Time until a place, last hour",
            [
                Query(
                    f"histogram_quantile({share}, sum by (le, kind) "
                    "(rate(carrel_queue_seconds_bucket[1h])))",
                    f"{{{{kind}}}}, {words}",
                )
                for share, words in ((0.5, "median"), (0.95, "95 %"))
            ],
            unit="s",
        ),
        Panel(
            "Ended workloads in an hour",
            [Query("sum by (phase) (increase(carrel_workloads_ended_total[1h]))", "{{phase}}")],
        ),
        Panel(
            "Evictions in an hour",
            [Query("sum by (rule) (increase(carrel_evictions_total[1h]))", "{{rule}}")],
        ),
        Panel(
            "Firing alerts",
            [
                Query(
                    "max by (rule, severity, subject) (carrel_firing_alerts)",
                    "firing",
                )
            ],
            "table",
        ),
        Panel(
            "The scheduler's delay",
            [
                Query("max(carrel_inbox_age_seconds)", "oldest event"),
                Query(
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(carrel_reconcile_pass_seconds_bucket[5m])))",
                    "pass, 99 %",
                ),
                Query(
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(carrel_ledger_commit_seconds_bucket[5m])))",
                    "commit, 99 %",
                ),
            ],
            unit="s",
        ),
        Panel(
            "Requests to the API",
            [
                Query(
                    "sum by (code) (rate(carrel_api_request_seconds_count[5m]))",
                    "{{code}}",
                )
            ],
            unit="reqps",
        ),
        Panel(
            "Servers and people of the Hub",
            [
                Query("sum(jupyterhub_running_servers)", "running servers"),
                Query('sum(jupyterhub_active_users{period="24h"})', "people of the last day"),
            ],
        ),
        Panel(
            "Inputs set aside, violated invariants",
            [
                Query("sum(carrel_set_aside_inputs)", "set aside"),
                Query(
                    "sum(increase(carrel_invariant_violations_total[1h])) or vector(0)",
                    "violations in an hour",
                ),
            ],
            description="`carrel list faults` names them.",
        ),
    ],
)

NODES: Final = Board(
    uid="carrel-nodes",
    title="Carrel / Nodes and GPUs",
    description="Nodes, their GPUs, and what health checks found.",
    variables=[NODE],
    panels=[
        _figure("Ready nodes", 'sum(carrel_node_ready{node=~"$node"})'),
        _figure(
            "Nodes not ready",
            'count(carrel_node_ready{node=~"$node"} == 0) or vector(0)',
            warn_at=1,
        ),
        _figure("GPUs", 'sum(carrel_gpu_count_per_node{node=~"$node"})'),
        _figure(
            "Allocated",
            'sum(carrel_allocated_gpu_count_per_node{node=~"$node"}) / '
            'sum(carrel_gpu_count_per_node{node=~"$node"})',
            unit="percentunit",
        ),
        _figure(
            "GPUs out of service",
            'sum(carrel_gpu_broken_per_gpu{node=~"$node"})',
            warn_at=1,
        ),
        _figure(
            "Largest request that fits now",
            'max(carrel_largest_free_gpus_per_node{node=~"$node"})',
        ),
        Panel(
            "Nodes",
            [
                Query('sum by (node) (carrel_node_ready{node=~"$node"})', "ready"),
                Query('sum by (node) (carrel_gpu_count_per_node{node=~"$node"})', "GPUs"),
                Query(
                    'sum by (node) (carrel_allocated_gpu_count_per_node{node=~"$node"})',
                    "GPUs allocated",
                ),
                Query(
                    'sum by (node) (carrel_allocated_cpu_cores_per_node{node=~"$node"})',
                    "cores allocated",
                ),
                Query(
                    'sum by (node) (carrel_allocated_memory_bytes_per_node{node=~"$node"})',
                    "bytes allocated",
                ),
            ],
            "table",
            width=24,
        ),
        *(
            Panel(
                title,
                [Query(f'{metric}{{node=~"$node"}}', "{{node}} {{gpu}}")],
                unit=unit,
            )
            for title, metric, unit in (
                ("Utilization", "carrel_gpu_utilization_per_gpu", "percentunit"),
                ("Allocated", "carrel_gpu_allocated_per_gpu", "percentunit"),
                ("Power", "carrel_gpu_power_watts_per_gpu", "watt"),
                ("Temperature", "carrel_gpu_temperature_celsius_per_gpu", "celsius"),
            )
        ),
        Panel(
            "Memory of GPUs in use",
            [
                Query(
                    'carrel_gpu_memory_used_mebibytes_per_gpu{node=~"$node"} / '
                    'carrel_gpu_memory_total_mebibytes_per_gpu{node=~"$node"}',
                    "{{node}} {{gpu}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "Allocated, and idle for",
            [
                Query(
                    '(carrel_gpu_idle_seconds_per_gpu{node=~"$node"} > '
                    f'{_IDLE_SECONDS}) and (carrel_gpu_allocated_per_gpu{{node=~"$node"}} > 0)',
                    "{{node}} {{gpu}}",
                )
            ],
            "bargauge",
            "s",
        ),
        Panel(
            "What health checks found",
            [
                Query(
                    'max by (node, gpu, condition) (carrel_gpu_health_condition{node=~"$node"})',
                    "found",
                )
            ],
            "table",
            width=24,
        ),
    ],
)
