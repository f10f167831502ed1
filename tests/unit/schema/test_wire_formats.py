"""The formats that others depend on: REST, OpenAPI, manifests and stored rows stay as recorded.

``python tests/unit/schema/test_wire_formats.py`` records them anew after an intended change.
Of schemas only digests are kept, one for each component.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from carrel_scheduler.api import convert, encoding, openapi
from carrel_scheduler.api.http.requests import read_body
from carrel_scheduler.api.models.validators import read
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Problem
from carrel_scheduler.api.table import OPERATIONS
from carrel_scheduler.ledger.columns import codec as rows
from carrel_scheduler.ledger.resources import codec as manifests
from carrel_scheduler.manifests.crds import everything
from carrel_schema import sections
from carrel_schema.answers import DepartmentFields, ProjectCreate
from carrel_schema.objects import (
    Checkpoint,
    Limits,
    Object,
    Preemption,
    Progress,
    Project,
    ReasonInfo,
    StayRule,
    TaskInfo,
    Workload,
)
from carrel_schema.wire import WorkloadCreate

RECORDED: Final = Path(__file__).with_name("wire_formats.json")
ADA: Final = Principal("ada", "user", frozenset({"project-vision"}), frozenset())
ROUTE: Final = {
    "port": 8080, "name": "ui", "access": "project", "keep_prefix": True,
    "timeout_seconds": 5.0, "max_request_bytes": 1024, "idle_seconds": 60.0,
}  # fmt: skip
COMMON: Final = {
    "project": "vision", "gpus": 0.25, "cpu_millicores": 1500, "cpu_limit_millicores": 2000,
    "memory_bytes": 3 * 2**30, "priority": 70, "restart_policy": "never", "backoff_limit": 2,
    "grace_seconds": 12.5, "checkpoint_every_seconds": 60.0, "continue_from": "before",
    "large_shm": True, "node_group": "fast", "gpu_types": ["A100", "H100"], "inputs": ["x"],
    "labels": {"team": "a", "b/c": "d e"},
    "environment": {"A": "1"}, "files": {"train.py": "π"}, "working_dir": "/w", "image": "i",
    "volumes": [{"source": "/d", "destination": "/m", "read_only": True}, {"source": "claim"}],
}  # fmt: skip
COMMAND: Final = {"command": ["python", "train.py"], **COMMON}
BODIES: Final[tuple[dict[str, Any], ...]] = (
    {"name": "plain", "project": "vision", "command": ["true"]},
    {**COMMAND, "name": "train", "gpus": 2.0, "elastic": {"gpus_of_task": True},
     "preemptible": False, "routes": [ROUTE]},
    {**COMMAND, "name": "gang", "kind": "distributed", "tasks": 4, "elastic": {"min_tasks": 2},
     "rendezvous": {"launcher": "each", "join_timeout_seconds": 30.0}},
    {"name": "desk", "project": "vision", "kind": "workspace", "hold_for_claim": True,
     "preemptible": True, "user": "bob", "server_name": "s", "port": 8888},
    {**COMMAND, "name": "search", "kind": "experiment", "experiment": {
        "parameters": {
            "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
            "n": {"type": "int", "low": 1.0, "high": 9.0, "step": 2.0},
            "kind": {"type": "categorical", "choices": ["a", 2, None, True, 0.5]},
        },
        "metric": "loss", "direction": "maximize", "sampler": "random", "pruner": "median",
        "seed": 7, "completions": 5, "parallelism": 2, "max_failed_trials": 1}},
    {**COMMAND, "name": "serve", "kind": "inference", "gpus": 0.0, "mig_profile": "1g.10gb",
     "inference": {"min_replicas": 0, "max_replicas": 3, "in_flight_per_replica": 2,
                   "readiness_path": "/ok", "startup_seconds": 9.0, "idle_seconds": 8.0,
                   "drain_seconds": 7.0}},
    {**COMMON, "name": "book", "kind": "notebook", "notebook": {
        "path": "a.ipynb", "output": "{name}.ipynb", "parameters": {"x": [1, {"y": None}]},
        "kernel": "python3", "cell_timeout_seconds": 90.0}},
    {**COMMON, "name": "nightly", "kind": "schedule", "notebook": {"path": "a.ipynb"},
     "schedule": {"cron": "0 3 * * 1-5", "time_zone": "Europe/Berlin", "overlap": "replace",
                  "keep": 2, "starting_deadline_seconds": 60.0}},
    {"name": "board", "project": "vision", "kind": "tensorboard",
     "tensorboard": {"jobs": ["train", "gang"], "idle_seconds": 60.0}},
)  # fmt: skip
WRONG: Final[tuple[dict[str, Any], ...]] = (
    {**COMMAND, "name": "UP", "gpus": 0.333, "memory_bytes": 1, "volumes": [{"source": "../x"}],
     "elastic": {"min_tasks": -1, "more": 1}, "rendezvous": {"launcher": "x"}, "what": 1},
    {**COMMAND, "name": "s", "kind": "experiment", "experiment": {
        "parameters": {"a": {"type": "int", "low": 0.5, "high": 1.0}, "b": {"type": "float"}},
        "sampler": "best", "seed": -1, "completions": "5"}},
    {**COMMAND, "name": "s", "kind": "experiment", "experiment": {"sampler": "grid"}},
    {"name": "s", "project": "vision", "kind": "inference", "command": ["x"],
     "inference": {"min_replicas": 3, "max_replicas": 2}, "routes": [{"port": 7}, {"name": "A"}]},
    {"name": "s", "project": "vision", "kind": "notebook", "notebook": {"output": 1}},
    {"name": "s", "project": "vision", "kind": "schedule", "schedule": {"cron": "x", "keep": 0}},
    {"name": "s", "project": "vision", "kind": "tensorboard", "tensorboard": {"jobs": []}},
    {"name": "s", "project": "vision", "kind": "trial", "command": ["x"]},
    {"name": "s", "project": "vision", "command": ["x"], "notebook": {"path": "x"}},
)  # fmt: skip
PROJECT: Final = {
    "name": "vision", "description": "d", "quota": {"gpus": 0.5, "cpu_millicores": 1500},
    "limit": {"gpus": 4.0, "memory_bytes": 2**34}, "over_quota": False, "weight": 3, "rank": -1,
    "interactive": {"time_limit_seconds": 60.0, "busy_cap_seconds": None, "max_extensions": 2},
    "training": {"idle_gpu_seconds": 5.0, "apply_to_running": True}, "department": "science",
}  # fmt: skip


def objects() -> list[Object]:
    """One of each kind, with everything said; the first ones also have a rich status."""
    found: list[Object] = []
    for number, body in enumerate(BODIES):
        request = read(WorkloadCreate, body)
        made = convert.to_workload(request, ADA, name=body["name"], uid=f"u{number}", now=7.25)
        found.append(made)
    _rich(found[1])
    for body in ({"name": "plain"}, PROJECT):
        asked = read(ProjectCreate, body)
        found.append(convert.to_project(asked, ADA, color=3, now=7.25))
        rest = {name: body[name] for name in body.keys() & set(DepartmentFields.__struct_fields__)}
        group = read(DepartmentFields, rest)
        found.append(convert.to_department(group, ADA, name="science"))
    return found


def _rich(workload: Object) -> None:
    assert isinstance(workload, Workload)
    status = workload.status
    status.phase, status.attempt, status.metrics = "preempting", 2, {"loss": 0.5}
    status.reason = ReasonInfo(token="Reclaimed", data={"nodes": ["a"], "n": 1.5})
    status.tasks = [
        TaskInfo(index=0, attempt=2, node="n", devices=(1, 3), ports={"app": 9}, place="leaving")
    ]
    status.progress, status.checkpoint = Progress(done=1.0), Checkpoint(step=3, at=4.0)
    status.last_preemption = Preemption(at=1.0, rule="r", for_project="p", for_workload="w")
    status.limits, status.rule = Limits(stops_at=4.0), StayRule(time_limit_seconds=5.0)
    status.experiment = sections.ExperimentStatus(best_parameters={"a": 1})
    status.endpoint = sections.EndpointStatus(targets=(sections.Target(uid="u"),))
    status.notebook, status.schedule = sections.NotebookStatus(cell=1), sections.ScheduleStatus()


def shown(obj: Object) -> Any:
    """As the REST API answers."""
    if isinstance(obj, Workload):
        return convert.workload_fields(obj, obj.status)
    if isinstance(obj, Project):
        return convert.project_out(obj, None)
    return convert.department_out(obj)


def row(obj: Any) -> list[str]:
    """As the ledger stores it."""
    encoded = rows.encode(obj)
    return [encoded.spec, encoded.status]


def refused(body: dict[str, Any]) -> Any:
    """What is answered to a wrong request."""
    with pytest.raises(Problem) as caught:
        read_body(WorkloadCreate, msgspec.json.encode(body))
    return caught.value.body()


def digests(schemas: dict[str, Any]) -> dict[str, str]:
    """One for each component; descriptions may be reworded."""
    return {
        name: hashlib.sha256(json.dumps(plain(one), sort_keys=True).encode()).hexdigest()[:12]
        for name, one in schemas.items()
    }


def plain(schema: Any) -> Any:
    """Without descriptions and summaries."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    said = {key for key in ("description", "summary") if isinstance(schema.get(key), str)}
    return {key: plain(one) for key, one in schema.items() if key not in said}


def formats() -> dict[str, Any]:
    """All of them as they are now."""
    document = msgspec.json.decode(openapi.document(OPERATIONS, "/services/carrel"))
    made = objects()
    encoded = encoding.to_json(
        {
            "rest": [shown(obj) for obj in made],
            "rows": [row(obj) for obj in made],
            "manifests": [[manifests.manifest(obj), manifests.status(obj)] for obj in made],
            "problems": [refused(body) for body in WRONG],
            "openapi": digests(document["components"]["schemas"] | document["paths"]),
            "definitions": digests(everything()),
        }
    )
    # A notebook's job runs with this very Python.
    found: dict[str, Any] = json.loads(encoded.decode().replace(sys.executable, "python"))
    return found


@pytest.mark.parametrize("of", ["rest", "rows", "manifests", "problems", "openapi", "definitions"])
def test_a_format_is_as_recorded(of: str) -> None:
    assert formats()[of] == json.loads(RECORDED.read_text("utf-8"))[of]


def text(found: Any) -> str:
    """As JSON with one object in each line."""
    lines = [
        f'"{name}": '
        + "[\n{}\n]".format(",\n".join(json.dumps(one, ensure_ascii=False) for one in of))
        if isinstance(of, list)
        else f'"{name}": ' + json.dumps(of, indent=0)
        for name, of in found.items()
    ]
    return "{" + ",\n".join(lines) + "}\n"


if __name__ == "__main__":
    RECORDED.write_text(text(formats()), "utf-8")
