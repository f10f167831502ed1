"""Dashboards of work: departments and projects with their quotas, and workloads."""

from typing import Final

from carrel_scheduler.manifests.monitoring.boards import Board, Panel, Query, Variable

PROJECT: Final = Variable("project", "Project", "carrel_project_info")
DEPARTMENT: Final = Variable("department", "Department", "carrel_project_info")
_BY_DEPARTMENT: Final = (
    " * on (project) group_left (department) "
    'max by (project, department) (carrel_project_info{department=~"$department"})'
)


def _of_departments(metric: str) -> str:
    """The sum of a figure of projects, by department."""
    return f"sum by (department) ({metric}{_BY_DEPARTMENT})"


def _of_projects(metric: str) -> str:
    """A figure of the chosen projects."""
    return f'sum by (project) ({metric}{{project=~"$project"}})'


def _of_day(part: str) -> str:
    """A part of the histogram of waits: what it grew by in a day."""
    metric = f'carrel_queue_seconds_{part}{{project=~"$project"}}'
    return f"sum by (project) (increase({metric}[1d]))"


PROJECTS: Final = Board(
    uid="carrel-projects",
    title="Carrel / Departments and projects",
    description="Quotas, what is allocated of them, what is borrowed, and what has to wait.",
    variables=[DEPARTMENT, PROJECT],
    panels=[
        Panel(
            "Departments",
            [
                Query(
                    "sum by (department) "
                    '(carrel_department_guaranteed_gpus{department=~"$department"})',
                    "guaranteed",
                ),
                Query(
                    'sum by (department) (carrel_department_limit_gpus{department=~"$department"})',
                    "limit",
                ),
                Query(_of_departments("carrel_project_guaranteed_gpus"), "guaranteed to projects"),
                Query(_of_departments("carrel_allocated_gpu_count_per_project"), "allocated"),
                Query(_of_departments("carrel_project_borrowed_gpus"), "borrowed"),
                Query(_of_departments("carrel_project_waiting_gpus"), "pending"),
            ],
            "table",
            width=24,
        ),
        Panel(
            "Projects",
            [
                Query(_of_projects("carrel_project_guaranteed_gpus"), "guaranteed"),
                Query(_of_projects("carrel_project_limit_gpus"), "limit"),
                Query(_of_projects("carrel_project_fair_share_gpus"), "fair share"),
                Query(_of_projects("carrel_allocated_gpu_count_per_project"), "allocated"),
                Query(_of_projects("carrel_project_borrowed_gpus"), "borrowed"),
                Query(_of_projects("carrel_project_waiting_gpus"), "pending"),
                Query(_of_projects("carrel_running_workloads"), "running workloads"),
                Query(_of_projects("carrel_queue_length"), "pending workloads"),
            ],
            "table",
            width=24,
        ),
        Panel(
            "GPUs allocated by department",
            [Query(_of_departments("carrel_allocated_gpu_count_per_project"), "{{department}}")],
        ),
        Panel(
            "GPUs allocated by project",
            [Query(_of_projects("carrel_allocated_gpu_count_per_project"), "{{project}}")],
        ),
        Panel(
            "Allocated of the quota",
            [
                Query(
                    f"{_of_projects('carrel_allocated_gpu_count_per_project')} / "
                    f"({_of_projects('carrel_project_guaranteed_gpus')} > 0)",
                    "{{project}}",
                )
            ],
            "bargauge",
            "percentunit",
            warn_at=1.0,
        ),
        Panel(
            "GPUs borrowed beyond the quota",
            [Query(_of_projects("carrel_project_borrowed_gpus"), "{{project}}")],
        ),
        Panel(
            "Longest present wait",
            [Query(_of_projects("carrel_queue_oldest_seconds"), "{{project}}")],
            unit="s",
        ),
        Panel(
            "Time until a place, mean of a day",
            [
                Query(f"{_of_day('sum')} / ({_of_day('count')} > 0)", "{{project}}"),
            ],
            unit="s",
        ),
        Panel(
            "GPU-hours allocated in a day",
            [
                Query(
                    "sum by (project) (avg_over_time("
                    'carrel_allocated_gpu_count_per_project{project=~"$project"}[1d])) * 24',
                    "{{project}}",
                )
            ],
            "bargauge",
            "h",
            description="From samples of the last day; `carrel usage` counts exactly.",
        ),
        Panel(
            "Evictions in a day",
            [
                Query(
                    "sum by (project, rule) "
                    '(increase(carrel_evictions_total{project=~"$project"}[1d]))',
                    "{{project}}, {{rule}}",
                )
            ],
            "bargauge",
        ),
    ],
)

_EACH: Final = "sum by (project, workload)"
_WORK: Final = '{project=~"$project"}'

WORKLOADS: Final = Board(
    uid="carrel-workloads",
    title="Carrel / Workloads",
    description="Work that holds GPUs, work that ended, and endpoints that serve.",
    variables=[PROJECT],
    panels=[
        Panel(
            "Workloads with GPUs",
            [
                Query(f"{_EACH} (carrel_workload_allocated_gpus{_WORK})", "GPUs"),
                Query(
                    f"{_EACH} (carrel_workload_gpu_utilization{_WORK})",
                    "GPUs in use",
                ),
                Query(
                    f"{_EACH} (carrel_workload_gpu_memory_used_bytes{_WORK})",
                    "bytes of GPU memory",
                ),
            ],
            "table",
            width=24,
        ),
        Panel(
            "Utilization of the GPUs of each workload",
            [
                Query(
                    f"{_EACH} (carrel_workload_gpu_utilization{_WORK}) / "
                    f"{_EACH} (carrel_workload_allocated_gpus{_WORK})",
                    "{{project}}/{{workload}}",
                )
            ],
            unit="percentunit",
        ),
        Panel(
            "GPU memory of each workload",
            [
                Query(
                    f"{_EACH} (carrel_workload_gpu_memory_used_bytes{_WORK})",
                    "{{project}}/{{workload}}",
                )
            ],
            unit="bytes",
        ),
        Panel(
            "Least used in the last hour",
            [
                Query(
                    "bottomk(20, "
                    f"{_EACH} (avg_over_time("
                    f"carrel_workload_gpu_utilization{_WORK}[1h])) / "
                    f"{_EACH} (avg_over_time("
                    f"carrel_workload_allocated_gpus{_WORK}[1h])))",
                    "{{project}}/{{workload}}",
                )
            ],
            "bargauge",
            "percentunit",
        ),
        Panel(
            "Ended in an hour",
            [
                Query(
                    f"sum by (kind, phase) (increase(carrel_workloads_ended_total{_WORK}[1h]))",
                    "{{kind}}, {{phase}}",
                )
            ],
        ),
        Panel(
            "Requests to endpoints",
            [
                Query(
                    "sum by (project, endpoint, status) "
                    f"(rate(carrel_endpoint_requests_total{_WORK}[5m]))",
                    "{{project}}/{{endpoint}} {{status}}",
                )
            ],
            unit="reqps",
        ),
        Panel(
            "Latency of endpoints, 95 %",
            [
                Query(
                    "histogram_quantile(0.95, sum by (le, project, endpoint) "
                    f"(rate(carrel_endpoint_latency_seconds_bucket{_WORK}[5m])))",
                    "{{project}}/{{endpoint}}",
                )
            ],
            unit="s",
        ),
        Panel(
            "Servers of endpoints, and requests in flight",
            [
                Query(
                    f"sum by (project, endpoint) (carrel_endpoint_ready_targets{_WORK})",
                    "{{project}}/{{endpoint}} servers",
                ),
                Query(
                    f"sum by (project, endpoint) (carrel_endpoint_in_flight{_WORK})",
                    "{{project}}/{{endpoint}} in flight",
                ),
            ],
        ),
        Panel(
            "Pods that others made",
            [Query("sum by (queue) (scheduler_pending_pods)", "{{queue}}")],
            description="On a cluster: pods with schedulerName: carrel that wait.",
        ),
    ],
)
