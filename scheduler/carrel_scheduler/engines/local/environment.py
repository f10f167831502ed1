"""The environment of a task: what was asked for, and what the engine alone knows."""

import math
import os
import sys
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskSpec
from carrel_scheduler.engines.local.accounts import Account

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def task_environment(
    task: TaskSpec,
    account: Account,
    *,
    work: Path,
    checkpoints: Path,
    before: Path | None = None,
    events: Path | None = None,
    cpu_limited: bool,
) -> dict[str, str]:
    """Defaults, then what was asked for, then what nobody may change.

    Raises ``EngineError`` naming a variable that cannot be set.
    """
    asked = {**task.environment, **task.secret_environment}
    for name, value in asked.items():
        if not name or "=" in name or "\0" in name + value:
            raise EngineError(f"environment: {name!r} cannot be set (no '=' or NUL in names)")
    # Only here is known where the task's folder is; the form is that of Kubernetes.
    asked = {name: value.replace("$(CARREL_TASK_DIR)", str(work)) for name, value in asked.items()}
    return (
        _defaults(task, cpu_limited=cpu_limited)
        | asked
        | {
            "HOME": str(account.home),
            "USER": account.name,
            "LOGNAME": account.name,
            "CARREL_NODE": task.node,
            "CARREL_DEVICES": ",".join(map(str, task.devices)),
            "CARREL_CHECKPOINT_DIR": str(checkpoints),
            "CARREL_TASK_DIR": str(work),
            "CARREL_TASK_ID": str(task.id),
            "JOB_NAME": task.name,
            "JOB_UUID": task.id.workload_uid,
            "POD_INDEX": str(task.id.index),
            **({} if before is None else {"CARREL_CONTINUE_FROM": str(before)}),
            **({} if events is None else {"CARREL_EVENTS_DIR": str(events)}),
            **device_environment(task),
        }
    )


def device_environment(task: TaskSpec) -> dict[str, str]:
    """What shows CUDA and container tools the task's devices and hides all others."""
    if not task.devices:
        return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    seen = ",".join(task.device_uuids or map(str, task.devices))
    return {"CUDA_VISIBLE_DEVICES": seen, "NVIDIA_VISIBLE_DEVICES": seen}


def _defaults(task: TaskSpec, *, cpu_limited: bool) -> dict[str, str]:
    defaults = {
        "PATH": f"{Path(sys.prefix) / 'bin'}:{SYSTEM_PATH}",
        "SHELL": "/bin/bash",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        # Output goes to a pipe, where Python would otherwise hold lines back for minutes.
        "PYTHONUNBUFFERED": "1",
    }
    if cpu_limited:
        # One thread per core of the machine, squeezed into a quota of few, is slower than few.
        defaults["OMP_NUM_THREADS"] = str(math.ceil(task.cpu_limit_milli / 1000))
    return defaults
