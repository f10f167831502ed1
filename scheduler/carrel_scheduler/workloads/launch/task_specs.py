"""Task specifications: from a placed workload to what the engine starts.

They are made, and secrets read, while the pass is being recorded; nothing of it reaches the engine
before that is durable. A task token is what a job shows when it reports, good for its own workload
and nothing else: ``ct1.<uid>.<signature>`` with an HMAC-SHA256 of the uid. Nothing of it is stored,
so every attempt of a workload has the same token and any process that has the key can check it.
"""

import base64
import dataclasses
import hashlib
import hmac
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.core import mig
from carrel_scheduler.core.devices.shares import memory_of_share
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.node.contract import Device, NodeFacts
from carrel_scheduler.workloads.controllers.contract import OWNER_LABEL
from carrel_scheduler.workloads.gangs import rendezvous
from carrel_scheduler.workloads.launch import builtin_programs, identities, named_secrets
from carrel_scheduler.workloads.launch.named_secrets import MissingSecret
from carrel_scheduler.workloads.state import ports, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload, Place, WorkloadCache
from carrel_scheduler.workloads.state.pass_changes import Start
from carrel_schema.governance.secrets import without_references
from carrel_schema.objects import Resources, Workload, WorkloadSpec
from carrel_schema.shared_gpus import MEMORY, SHARE

# The platform's own Python comes first, so that ``python train.py`` finds the libraries that a
# workspace's notebooks have.
log = logging.getLogger(__name__)
SEARCH_PATH: Final = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


WITHOUT_ARTIFACTS: Final = frozenset({"workspace", "tensorboard"})
VERSION: Final = "ct1"
SHORTEST_KEY: Final = 16


class TaskTokens:
    """Issues and reads task tokens with one secret key of at least 16 bytes."""

    def __init__(self, key: bytes) -> None:
        if len(key) < SHORTEST_KEY:
            msg = f"the key of task tokens has {len(key)} bytes; at least {SHORTEST_KEY} are needed"
            raise ValueError(msg)
        # Setting a key up takes far longer than signing with it.
        self._signing = hmac.new(key, b"task:", hashlib.sha256)

    def issue(self, uid: str) -> str:
        """The token of the workload with this uid."""
        return f"{VERSION}.{uid}.{self._signature(uid)}"

    def uid(self, token: str) -> str | None:
        """The uid that a token was issued for; ``None`` if it is not one of ours."""
        version, _, rest = token.partition(".")
        uid, _, signature = rest.rpartition(".")
        if version != VERSION or not uid or not token.isascii():
            return None
        return uid if hmac.compare_digest(signature, self._signature(uid)) else None

    def _signature(self, uid: str) -> str:
        signing = self._signing.copy()
        signing.update(uid.encode())
        return base64.urlsafe_b64encode(signing.digest()).rstrip(b"=").decode("ascii")


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """Settings for the environment of every task.

    Attributes:
        api_url: where tasks reach the scheduler, without ``/api/v1``.
        gateway_prefix: path of the gateway, below which every workload with routes has its own.
        gateway_url: where tasks reach the gateway; empty: they do not get it.
        checkpoint_root: folder that holds one folder of checkpoints for each workload; ``None``:
            the engine has a place of its own for them.
        address_of: where a member of a gang is for the others; on one machine the loopback.
        python: the interpreter of images, where tasks run in containers; empty: they run with ours.
    """

    api_url: str
    checkpoint_root: Path | None
    tokens: TaskTokens
    gateway_prefix: str = "/services/gateway"
    address_of: rendezvous.AddressOf = lambda _entry, _index: "127.0.0.1"
    python: str = ""
    gateway_url: str = ""


def on_cluster(
    api_url: str, tokens: TaskTokens, gateway_prefix: str, gateway_url: str = ""
) -> LaunchSettings:
    """Settings for tasks that are pods: they have names of their own and what their image has."""
    return LaunchSettings(
        api_url=api_url,
        checkpoint_root=None,
        tokens=tokens,
        gateway_prefix=gateway_prefix,
        address_of=rendezvous.name_on_cluster,
        python="python3",
        gateway_url=gateway_url,
    )


def task_specs(
    entry: CachedWorkload,
    tasks: Iterable[int],
    facts: Mapping[str, NodeFacts],
    secrets: Mapping[str, str],
    settings: LaunchSettings,
) -> list[TaskSpec]:
    """The specifications of those of these tasks that still have a place."""
    present = [index for index in tasks if index in entry.wanted]
    return [_task_spec(entry, index, facts, secrets, settings) for index in present]


@dataclass(frozen=True, slots=True)
class Ready:
    """Tasks of one workload that are ready for the engine to start.

    ``refusal``: why they cannot be started; empty where they can.
    """

    entry: CachedWorkload
    tasks: tuple[int, ...]
    specs: Sequence[TaskSpec]
    refusal: str = ""


async def get_ready(
    starts: Sequence[Start],
    cache: WorkloadCache,
    facts: Mapping[str, NodeFacts],
    ledger: Ledger,
    settings: LaunchSettings,
) -> Sequence[Ready]:
    """The tasks of those starts whose workload is still live, in the same order."""
    secrets = await ledger.secrets_of([start.uid for start in starts])
    entries = [entry for start in starts if (entry := cache.get(start.uid)) is not None]
    with_images = [one.workload for one in entries if one.workload.spec.image]
    logins = await named_secrets.registry_logins(ledger, with_images) if with_images else {}
    posix = await identities.of_users(ledger, [one.workload.spec.user for one in entries])
    ready: list[Ready] = []
    for start in starts:
        entry = cache.get(start.uid)
        if entry is None:
            continue
        try:
            named = await _named_secrets(ledger, entry.workload)
        except MissingSecret as error:
            ready.append(Ready(entry, start.tasks, (), str(error)))
            continue
        numbers = posix.get(entry.workload.spec.user)
        if numbers is not None and numbers.problem:
            ready.append(Ready(entry, start.tasks, (), identities.refusal(entry, numbers)))
            continue
        own = {**named, **secrets.get(start.uid, {})}
        made = _ready(entry, start.tasks, facts, own, settings)
        registries = logins.get(start.uid, ())
        specs = [
            msgspec.structs.replace(one, registry_logins=registries, posix=numbers)
            for one in made.specs
        ]
        ready.append(dataclasses.replace(made, specs=specs))
    return ready


async def _named_secrets(ledger: Ledger, workload: Workload) -> Mapping[str, str]:
    """The variables with the named secrets of work that may refer to some."""
    spec = workload.spec
    if not (spec.environment or spec.code or spec.repositories):
        return {}
    return await named_secrets.environment_of(ledger, workload)


def _ready(
    entry: CachedWorkload,
    tasks: tuple[int, ...],
    facts: Mapping[str, NodeFacts],
    secrets: Mapping[str, str],
    settings: LaunchSettings,
) -> Ready:
    try:
        return Ready(entry, tasks, task_specs(entry, tasks, facts, secrets, settings))
    except Exception:
        log.exception("the tasks of workload %s cannot be described to the engine", entry.uid)
        return Ready(entry, tasks, (), "its tasks cannot be described; the log says why")


def _task_spec(
    entry: CachedWorkload,
    index: int,
    facts: Mapping[str, NodeFacts],
    secrets: Mapping[str, str],
    settings: LaunchSettings,
) -> TaskSpec:
    meta, spec = entry.workload.meta, entry.workload.spec
    if spec.kind in builtin_programs.SEALED:
        spec = builtin_programs.sealed(spec)
    place, contained = entry.wanted[index], bool(settings.python)
    node = facts.get(place.node)
    devices = {device.index: device for device in node.devices} if node else {}
    # In a container those devices are there that the cluster gives it, counted from 0.
    real = node is not None and not node.simulated and not contained
    own = [devices[device] for device in place.devices if device in devices]
    task = TaskSpec(
        id=entry.task_id(index),
        name=meta.name,
        project=meta.project,
        user=spec.user,
        node=place.node,
        kind=spec.kind,
        image=spec.image,
        external=spec.external,
        gpu_milli=spec.resources.gpu_milli,
        gpu_memory_mib=_share_memory(spec, own),
        devices=place.devices,
        device_uuids=tuple(device.uuid for device in own) if real else (),
        command=_command(entry, spec, index, settings),
        environment={**_share(spec, own), **_environment(entry, spec, index, settings)},
        secret_environment=_secret_environment(entry.uid, spec, secrets, settings),
        files=_files(spec),
        volumes=tuple(spec.volumes),
        read_only=tuple(spec.read_only),
        working_dir=spec.working_dir,
        checkpoint_dir=f"{settings.checkpoint_root}/{meta.uid}" if settings.checkpoint_root else "",
        artifacts=spec.kind not in WITHOUT_ARTIFACTS,
        continues=spec.continues,
        model=spec.model_uid,
        events=events_of(meta.uid, spec),
        reads_events=() if spec.tensorboard is None else spec.tensorboard.events,
        cpu_milli=spec.resources.cpu_milli,
        cpu_limit_milli=spec.resources.cpu_limit_milli,
        mig_profile=_mig_profile(spec, place, node),
        mig_slots=place.mig_slots,
        memory_mib=-(-spec.resources.memory_bytes // MIB),
        large_shm=spec.large_shm,
        grace_seconds=spec.grace_seconds,
    )
    return _as_member(task, entry, settings) if shape.is_gang(spec) else task


def _as_member(task: TaskSpec, entry: CachedWorkload, settings: LaunchSettings) -> TaskSpec:
    """The task of a gang with what it needs to find the others."""
    index, contained = task.id.index, bool(settings.python)
    beside = index > 0 and shape.is_mpi(entry.workload.spec) and not contained
    return msgspec.structs.replace(
        task,
        files={**task.files, **rendezvous.files(entry)},
        hosts=() if contained else rendezvous.hosts(entry, settings.address_of),
        hostname=rendezvous.member(entry, index),
        subdomain=rendezvous.subdomain(entry),
        seen_as=entry.task_id(0) if beside else None,
    )


def events_of(uid: str, spec: WorkloadSpec) -> str:
    """The folder of a workload's event files, see ``TaskSpec``: a part's lies below its whole's.

    Nowhere in a workspace, whose notebooks report to nobody.
    """
    if spec.kind == "workspace":
        return ""
    return f"{spec.owner}/{spec.part}" if spec.owner else uid


def _files(spec: WorkloadSpec) -> Mapping[str, str]:
    """The files that the task finds: those that came along, and what our program has to do."""
    ours = spec.kind in builtin_programs.MODULES or spec.code is not None or spec.repositories
    return {**spec.files, **builtin_programs.files_of(spec)} if ours else dict(spec.files)


def _mig_profile(spec: WorkloadSpec, place: Place, node: NodeFacts | None) -> str:
    """The profile of a task's MIG instance; empty without one."""
    profile = spec.resources.mig_profile
    if place.mig_slots and node is not None and not profile:
        return mig.whole_device(mig.model_of(node.mig_model)).name
    return profile


def _secret_environment(
    uid: str, spec: WorkloadSpec, secrets: Mapping[str, str], settings: LaunchSettings
) -> dict[str, str]:
    """The variables of a task that are kept from its description."""
    private = {} if spec.kind in builtin_programs.SEALED else dict(secrets)
    if spec.kind != "workspace":
        private["CARREL_TASK_TOKEN"] = settings.tokens.issue(uid)
    return private


def _command(
    entry: CachedWorkload, spec: WorkloadSpec, index: int, settings: LaunchSettings
) -> tuple[str, ...]:
    """The command of a task; built-in programs run with the interpreter of its environment."""
    asked = tuple(spec.command)
    if index and shape.is_mpi(spec) and spec.kind not in builtin_programs.SEALED:
        asked = rendezvous.MEMBER_COMMAND
    if given := _ports(entry, index, settings):
        asked = ports.filled_in(asked, given)
    python = settings.python or ("python3" if spec.image else sys.executable)
    if asked[:1] == (sys.executable,):
        asked = (python, *asked[1:])
    if spec.code is not None or spec.repositories:
        return builtin_programs.fetching(asked, python)
    return asked


def _environment(
    entry: CachedWorkload, spec: WorkloadSpec, index: int, settings: LaunchSettings
) -> dict[str, str]:
    """The environment of a task: the user's variables, and the facts about the task."""
    meta = entry.workload.meta
    own = {
        "CARREL_URL": settings.api_url,
        "CARREL_PROJECT": meta.project,
        "CARREL_WORKLOAD": meta.name,
        "CARREL_WORKLOAD_UID": meta.uid,
        "CARREL_ATTEMPT": str(entry.attempt_of(index)),
        "JOB_NAME": meta.name,
        "JOB_UUID": meta.uid,
        "POD_INDEX": str(index),
    }
    checkpoint = spec.continue_from.partition(":")[2]
    if checkpoint and spec.continues and "/" not in spec.continues:
        own["CARREL_CONTINUE_AT"] = checkpoint
    if settings.python:
        own["CARREL_VOLUMES"] = "[]"  # what it submits sees none of its folders
    if settings.gateway_url:
        own["CARREL_GATEWAY_URL"] = settings.gateway_url
    if spec.checkpoint_every_seconds is not None:
        own["CARREL_CHECKPOINT_EVERY"] = f"{spec.checkpoint_every_seconds:g}"
    if shape.is_gang(spec):
        programs = "" if settings.python else rendezvous.OUR_PROGRAMS
        own |= rendezvous.environment(entry, index, settings.address_of, programs)
    plain = without_references(spec.environment) if spec.environment else {}
    given = {**plain, **own, **_ports(entry, index, settings)}
    return given if settings.python or spec.image else {"PATH": SEARCH_PATH, **given}


def _share_memory(spec: WorkloadSpec, devices: Sequence[Device]) -> int:
    """MiB of a shared GPU that are the task's own; 0 for one that shares none."""
    smallest = min((device.memory_mib for device in devices), default=0)
    return part_of(spec.resources, smallest) if devices else 0


def part_of(resources: Resources, memory_mib: int) -> int:
    """MiB of a GPU with so much memory that belong to a task with a share; 0 without one."""
    milli = resources.gpu_milli
    if not 0 < milli < MILLI:
        return 0
    return memory_of_share(milli, resources.gpu_memory_mib, memory_mib)


def _share(spec: WorkloadSpec, devices: Sequence[Device]) -> dict[str, str]:
    """Variables that tell a task that its GPU is shared, and how much of it is its own."""
    milli, memory = spec.resources.gpu_milli, _share_memory(spec, devices)
    if not 0 < milli < MILLI:
        return {}
    told = {SHARE: f"{milli / MILLI:g}"}
    return {**told, MEMORY: str(memory)} if memory else told


def _ports(entry: CachedWorkload, index: int, settings: LaunchSettings) -> dict[str, str]:
    """The variables with a task's ports; none without routes."""
    meta, spec = entry.workload.meta, entry.workload.spec
    if not spec.routes:
        return {}
    given = next((one.ports for one in entry.workload.status.tasks if one.index == index), {})
    name = meta.labels.get(OWNER_LABEL, meta.name) if spec.owner else meta.name
    return ports.told(given, spec.routes, f"{settings.gateway_prefix}/{meta.project}/{name}")
