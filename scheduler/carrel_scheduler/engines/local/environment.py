"""The surroundings of a task: environment variables, device files, account names, ``/dev/shm``."""

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from carrel_scheduler.engines.contract import EngineError, TaskSpec
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.shim import linux
from carrel_scheduler.engines.local.task_state import write_whole

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DRIVER: Final = Path("/proc/driver/nvidia/gpus")
DEVICES: Final = Path("/dev")
COMMON_DEVICES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the one that the kernel provides
SMALL_BYTES: Final = 64 * 1024**2
PASSWD: Final = Path("/etc/passwd")
GROUP: Final = Path("/etc/group")
LARGEST_ACCOUNTS_BYTES: Final = 1024**2
_UUID: Final = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def task_environment(
    task: TaskSpec,
    account: Account,
    *,
    work: Path,
    checkpoints: Path,
    artifacts: Path | None = None,
    before: Path | None = None,
    model: Path | None = None,
    events: Path | None = None,
    cpu_limited: bool,
    gpu_limited: bool = False,
    image: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The task's environment variables: defaults, the requested ones, then the engine's own.

    ``artifacts`` takes what it keeps, ``before`` holds checkpoints of other work that it continues,
    ``model`` the model that it serves, ``events`` its event files, ``image`` the variables of its
    image.
    Raises ``EngineError`` naming a variable that cannot be set.
    """
    asked = {**task.environment, **task.secret_environment}
    for name, value in asked.items():
        if not name or "=" in name or "\0" in name + value:
            raise EngineError(f"environment: {name!r} cannot be set (no '=' or NUL in names)")
    # Only here is known where the task's folder is; the form is that of Kubernetes.
    asked = {name: value.replace("$(CARREL_TASK_DIR)", str(work)) for name, value in asked.items()}
    folders = {
        "CARREL_ARTIFACTS": artifacts,
        "CARREL_CONTINUE_FROM": before,
        "CARREL_MODEL": model,
        "CARREL_EVENTS_DIR": events,
    }
    return (
        _defaults(task, cpu_limited=cpu_limited, gpu_limited=gpu_limited)
        | ({} if image is None else {"PATH": SYSTEM_PATH, "SHELL": "/bin/sh", **image})
        | asked
        | _facts(task, account, work, checkpoints)
        | {name: str(folder) for name, folder in folders.items() if folder is not None}
        | device_environment(task)
    )


def _facts(task: TaskSpec, account: Account, work: Path, checkpoints: Path) -> dict[str, str]:
    """The variables that tell a task its account, its place and its identity."""
    return {
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
    }


def device_environment(task: TaskSpec) -> dict[str, str]:
    """Variables that show CUDA and container tools the task's devices and hide all others."""
    if not task.devices:
        return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    seen = ",".join(task.device_uuids or map(str, task.devices))
    return {"CUDA_VISIBLE_DEVICES": seen, "NVIDIA_VISIBLE_DEVICES": seen}


def _defaults(task: TaskSpec, *, cpu_limited: bool, gpu_limited: bool) -> dict[str, str]:
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
    if 0 < task.gpu_milli < 1000 and not gpu_limited:
        # JAX takes most of the memory that it sees, which is then that of the whole GPU.
        defaults["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{task.gpu_milli / 1000:g}"
    return defaults


def device_nodes(task: TaskSpec, *, driver: Path = DRIVER, devices: Path = DEVICES) -> list[str]:
    """Files in ``/dev`` of the task's GPUs and no others, as the driver numbers them by UUID.

    There are none without a driver; devices without a UUID are simulated.
    Raises ``EngineError`` for a GPU that the driver does not know.
    """
    if not task.device_uuids or not driver.is_dir():
        return []
    numbers = device_numbers(driver)
    missing = [uuid for uuid in task.device_uuids if uuid not in numbers]
    if missing:
        raise EngineError(f"device_uuids={missing[0]!r}: the driver at {driver} knows no such GPU")
    own = [devices / f"nvidia{numbers[uuid]}" for uuid in task.device_uuids]
    common = [devices / name for name in COMMON_DEVICES]
    return [str(path) for path in (*own, *(path for path in common if path.exists()))]


def device_numbers(driver: Path = DRIVER) -> Mapping[str, str]:
    """The number of each GPU's file in ``/dev``, by UUID."""
    found: dict[str, str] = {}
    for path in driver.glob("*/information"):
        text = path.read_text(errors="replace")
        uuid, minor = _UUID.search(text), _MINOR.search(text)
        if uuid and minor:
            found[uuid[1]] = minor[1]
    return found


def check_shared_memory(task: TaskSpec, path: Path = SHARED_MEMORY) -> None:
    """Refuse a request for a large ``/dev/shm`` where tasks use the machine's, and it is small.

    Data loaders pass batches through it, and containers often have 64 MiB of it.
    """
    if not task.large_shm:
        return
    try:
        facts = os.statvfs(path)
    except OSError as error:
        raise EngineError(f"large_shm=True: {path} cannot be used: {error.strerror}") from error
    found = facts.f_frsize * facts.f_blocks
    if found <= SMALL_BYTES:
        raise EngineError(
            f"large_shm=True: {path} has {found // 1024**2} MiB here, and tasks that run under"
            " the service's own account cannot have one of their own. Give this container more"
            " (docker: --shm-size=8g), or start Carrel as root"
        )


def account_files(account: Account, folder: Path) -> list[tuple[Path, Path]]:
    """Copies of ``/etc/passwd`` and ``/etc/group`` with a line for an account the machine lacks.

    Returns (copy, the machine's file) to show to the account's tasks, so that ``whoami`` and
    prompts know its name; nothing for an account that the machine lists.
    """
    if account.listed:
        return []
    user = f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:/bin/bash"
    group = f"{account.name}:x:{account.gid}:"
    return [
        (_copy_with(PASSWD, user, folder / f"{account.name}.passwd"), PASSWD),
        (_copy_with(GROUP, group, folder / f"{account.name}.group"), GROUP),
    ]


def write_account_files(folder: Path, image: Path, account: Account) -> None:
    """Write ``passwd`` and ``group`` of an image with a line for the account into a folder."""
    user = f"{account.name}:x:{account.uid}:{account.gid}::{account.home}:/bin/sh"
    root = os.open(image, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for file, line in ((PASSWD, user), (GROUP, f"{account.name}:x:{account.gid}:")):
            try:
                found = linux.open_path(str(file), linux.RESOLVE_IN_ROOT, root)
            except OSError:
                text = b"root:x:0:0:root:/root:/bin/sh\n" if file == PASSWD else b"root:x:0:\n"
            else:
                with os.fdopen(os.open(f"/proc/self/fd/{found}", os.O_RDONLY), "rb") as known:
                    text = known.read(LARGEST_ACCOUNTS_BYTES)
                os.close(found)
            others = [
                one for one in text.splitlines() if one.split(b":")[0] != account.name.encode()
            ]
            whole = b"\n".join([*others, line.encode(), b""])
            write_whole(folder / file.name, whole, mode=0o644)
    finally:
        os.close(root)


def _copy_with(original: Path, line: str, copy: Path) -> Path:
    """Write a copy in which the line replaces one of the same name, which is another account's."""
    name = line.partition(":")[0].encode() + b":"
    others = [one for one in original.read_bytes().splitlines() if not one.startswith(name)]
    wanted = b"\n".join([*others, line.encode(), b""])
    if not copy.exists() or copy.read_bytes() != wanted:
        write_whole(copy, wanted, mode=0o644)
    return copy
