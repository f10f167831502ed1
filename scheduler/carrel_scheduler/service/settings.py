"""Settings of the scheduler, from the environment: a service of the Hub has no other channel.

==============================  =================================================================
variable                        meaning
==============================  =================================================================
``CARREL_STATE_DIR``            folder that holds everything that lasts
``CARREL_DATABASE_URL``         SQLAlchemy URL; default: SQLite in the state folder
``CARREL_ENGINE``               ``local``: tasks are processes of this machine (default);
                                ``kubernetes``: they are pods of a cluster
``CARREL_LISTEN``               ``host:port`` to listen on; default: where the Hub's URL leads
``CARREL_PAST_USE_FACTOR``      how much past use counts in the shares of the surplus; 0 (default):
                                not at all
``CARREL_PAST_USE_HALF_LIFE``   hours after which use counts half as much; default 168, a week
``CARREL_RECLAIM_DELAY``        seconds for which preemptible work that waits lets what other
                                projects borrowed run, before it reclaims them; default 0
``CARREL_PATIENCE``             seconds that large work waits before places are reserved for it;
                                default 600
``CARREL_PLACEMENT``            ``pack`` (default): work fills nodes one after the other;
                                ``spread``: it goes where most is free
``CARREL_STALLED_AFTER``        seconds without GPU work and reports after which a gang stands
                                still; default 1800, 0: never
``CARREL_STALLED_GANGS``        ``tell`` their owners (default), or ``restart`` the workers, which
                                counts as a failure
``CARREL_RUNAI_METRICS``        ``on``: metrics have Run:ai's names as well (docs/monitoring.md);
                                default: ``off``
``CARREL_JOB_DEPTH``            generations of jobs that jobs submit; default 2, 0: none
``CARREL_JOB_DESCENDANTS``      live jobs below one that a person submitted; default 100
``CARREL_ARTIFACT_DAYS``        so long after the end of their work artifacts are kept; default 90,
                                0: until it is deleted
``CARREL_CHECKPOINT_DAYS``      the same of checkpoints; default 30
``CARREL_PROJECT_FILES_GIB``    room of each project for artifacts and checkpoints, and the same for
                                models and kept checkpoints; default 200, 0: no bound
``CARREL_GATEWAY_URL``          where tasks reach the gateway; empty: they do not get it
``CARREL_FRONT_URL``            where the scheduler asks whether the proxy answers; empty: it does
                                not ask
``CARREL_PUBLIC_URL``           the address that people know
``JUPYTERHUB_*``                what the Hub gives every service: URL, token, prefix
**on one machine**
``CARREL_GPUS``                 number of simulated GPUs; unset: real ones if there are, else 4
``CARREL_GPU_MEMORY_MIB``       memory of a simulated GPU
``CARREL_GPU_NAME``             model of a simulated GPU
``CARREL_MIG``                  ``on``: GPUs are divided into MIG instances as work asks for them
``CARREL_GPU_MEMORY_ENFORCEMENT``  what keeps a task with a fraction of a GPU within its part of the
                                memory: ``warn`` (default): a library that its programs load, and a
                                warning to the owner of a task that goes round it; ``end``: such a
                                task is ended; ``off``: nothing
``CARREL_SYSTEM_ACCOUNTS``      users whose work runs under the machine's account of their name,
                                comma separated; ``*``: all who have one. As root, on one machine
``CARREL_USER_NAMESPACES``      ``allow``: tasks may begin user namespaces, as rootless containers
                                do. As root, on one machine; otherwise they may not
``CARREL_TASK_NETWORK``         ``isolated``: each user's tasks are in a network of their own;
                                ``shared`` (default): all are in the machine's
``CARREL_TASK_PORTS``           loopback ports of Carrel that isolated tasks reach, comma separated
``CARREL_TASK_PUBLIC_PORT``     a port of the machine's other addresses that they reach, too
``CARREL_NETWORK_BLOCK``        their addresses are chosen from it; default 10.213.0.0/16
``CARREL_IMAGE_CREDENTIALS``    file with logins for registries, as ``docker login`` writes it
``CARREL_IMAGE_MOST_GIB``       size of one image at most, unpacked; default 50
``CARREL_IMAGE_STORE_GIB``      of all; beyond it what was not used for longest goes; default 200
**on a cluster**
``KUBECONFIG``                  how to reach the cluster; unset: from within it
``CARREL_NAMESPACE``            where the scheduler's own lease and secret are
``CARREL_TASK_API_URL``         where pods reach this service, without ``/api/v1``
``CARREL_TASK_IMAGE``           image of work that names none
``CARREL_TASK_PULL_POLICY``     of images, as ``IfNotPresent``; empty: Kubernetes' own choice
``CARREL_TASK_PULL_SECRETS``    names of secrets that images are pulled with, comma separated
``CARREL_STORAGE_CLAIM``        each project's claim for checkpoints and event files; ``none``
``CARREL_STORAGE_SIZE``         of the claims that are made for projects; default 100Gi
``CARREL_STORAGE_CLASS``        of them; empty: the cluster's own choice
``CARREL_STORAGE_MODES``        of them, comma separated; default ReadWriteMany
``CARREL_CLOSED_NETWORKS``      networks as ``10.0.0.0/16``, comma separated, that pods of projects
                                do not reach, such as the nodes' and the API server's; metadata
                                services of clouds are closed in any case
``CARREL_API_SERVER``           where people reach the API server, as https://k8s.example.org:6443;
                                without it there is no ``carrel kubeconfig``
``CARREL_API_SERVER_CA``        file with the certificates by which it is known; default: those of
                                the scheduler's own account; ``system``: those of people's machines
``CARREL_API_SERVER_SIGN_IN``   how people sign in there: the ``exec`` of a user in a kubeconfig, as
                                JSON; empty: they have a user of their own in theirs
``CARREL_CLUSTER_DOMAIN``       what names of services end with
``CARREL_NODE_ROLES``           ``strict``: work with GPUs runs on nodes with the role of GPU
                                workers only, other work on CPU workers only; ``open`` (default):
                                roles do not matter
``CARREL_GPU_DRIVERS``          drivers of dynamic resource allocation whose devices are GPUs, comma
                                separated; default gpu.nvidia.com,gpu.amd.com,gpu.intel.com
``CARREL_STALE_GANG_SECONDS``   so long a gang of pods that others made may run with fewer than it
                                needs before it releases its capacity; default 60
``CARREL_LOST_AFTER_SECONDS``   so long a node may be out of reach before trainings that run there
                                are taken for lost and begin elsewhere; default 60
==============================  =================================================================
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from carrel_scheduler.api.principals.jobs import JobLimits
from carrel_scheduler.core.settings import DEFAULTS as CORE
from carrel_scheduler.core.settings import Settings as CoreSettings
from carrel_scheduler.core.settings import Strategy
from carrel_scheduler.engines.kubernetes.external_pods.reconcile_pass import STALE_SECONDS
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import GPU_DRIVERS
from carrel_scheduler.engines.kubernetes.tasks.settings import LOST_AFTER_SECONDS, PodSettings
from carrel_scheduler.engines.local.images.store import StoreSettings
from carrel_scheduler.engines.local.network.addressing import (
    DEFAULT_BLOCK,
    Network,
    installation_of,
)
from carrel_scheduler.kube.credentials import ACCOUNT
from carrel_scheduler.workloads.gangs.stalling import DEFAULT_SECONDS, StallRule
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_scheduler.workloads.reconcile.usage_history import PastUseRules
from carrel_scheduler.workloads.retention import DAY_SECONDS, RetentionRules
from carrel_schema.governance.kubeconfig import ClusterAccess, SignInCommand
from carrel_schema.names import CHECKPOINTS_CLAIM, SYSTEM_NAMESPACE

NO_CLAIM = "none"
OWN_AUTHORITY = ACCOUNT / "ca.crt"
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
HOUR_S = 3600.0
MOST = 1e6


class MissingSetting(Exception):  # noqa: N818
    """A variable without which the service cannot start is not set."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not set; `carrel up` sets it, or see carrel_scheduler.service.settings"
        )


_DRIVER = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


class BadSetting(Exception):  # noqa: N818
    """A variable has a value that it cannot have."""

    def __init__(self, name: str, value: str, right: str) -> None:
        super().__init__(f"{name}={value!r}: {right} is right")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of a cluster.

    Attributes:
        namespace: of the scheduler's own objects.
        task_api_url: where pods reach the service.
        pods: how they are made.
        storage: the claim that is made for each project.
        by_role: nodes take only work of their roles.
        gpu_drivers: drivers of dynamic resource allocation whose devices are GPUs.
        stale_gang_s: so long a gang of other people's pods may run with too few of them.
        closed_networks: that pods of projects do not reach.
        access: how people reach the API server; ``None``: nobody said.
    """

    namespace: str
    task_api_url: str
    pods: PodSettings
    storage: Checkpoints
    by_role: bool = False
    gpu_drivers: tuple[str, ...] = GPU_DRIVERS
    stale_gang_s: float = STALE_SECONDS
    closed_networks: tuple[str, ...] = ()
    access: ClusterAccess | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. ``host`` and ``port`` are where to listen.

    ``gateway_url`` is where tasks reach the gateway, without a final slash; empty: they are not
    told of it. ``network`` is what isolated tasks are given; ``None``: the machine's.
    ``certificate`` is the front's, whose end is watched; ``alerts_address`` the page of alerts.
    ``front_url`` is where the scheduler reaches the proxy, ``public_url`` where people do.
    """

    state_dir: Path
    database_url: str
    host: str
    port: int
    prefix: str
    hub_api_url: str
    hub_token: str
    gpus: int | None
    gpu_memory_mib: int
    gpu_name: str
    mig: bool = False
    engine: Literal["local", "kubernetes"] = "local"
    cluster: ClusterSettings | None = None
    past_use: PastUseRules = field(default_factory=PastUseRules)
    reclaim_delay_s: float = 0.0
    patience_s: float = CORE.patience_s
    placement: Strategy = Strategy.BIN_PACK
    gateway_url: str = ""
    system_accounts: frozenset[str] = frozenset()
    user_namespaces: bool = False
    images: StoreSettings = field(default_factory=StoreSettings)
    gpu_memory_enforcement: Literal["off", "warn", "end"] = "warn"
    stall_rule: StallRule = field(default_factory=StallRule)
    network: Network | None = None
    job_limits: JobLimits = field(default_factory=JobLimits)
    retention: RetentionRules = field(default_factory=RetentionRules)
    certificate: Path | None = None
    alerts_address: str = ""
    front_url: str = ""
    public_url: str = ""
    runai_metrics: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "Settings":
        """Read the environment; raises ``MissingSetting`` and ``BadSetting``."""
        state_dir = Path(_need(env, "CARREL_STATE_DIR"))
        prefix = _need(env, "JUPYTERHUB_SERVICE_PREFIX").rstrip("/")
        host, port = _listen(env)
        gpus = env.get("CARREL_GPUS", "")
        engine = _engine(env)
        return cls(
            state_dir=state_dir,
            certificate=_path(env.get("CARREL_TLS_CERTIFICATE", "")),
            alerts_address=_alerts_address(env.get("CARREL_PUBLIC_URL", "")),
            front_url=env.get("CARREL_FRONT_URL", ""),
            public_url=env.get("CARREL_PUBLIC_URL", ""),
            database_url=env.get("CARREL_DATABASE_URL") or f"sqlite:///{state_dir}/carrel.sqlite",
            host=host,
            port=port,
            prefix=prefix,
            hub_api_url=_need(env, "JUPYTERHUB_API_URL"),
            hub_token=_need(env, "JUPYTERHUB_API_TOKEN"),
            gpus=int(gpus) if gpus else None,
            gpu_memory_mib=int(env.get("CARREL_GPU_MEMORY_MIB") or 24 * 1024),
            gpu_name=env.get("CARREL_GPU_NAME") or "A10",
            mig=_switch(env, "CARREL_MIG"),
            engine=engine,
            cluster=_cluster(env, host, port, prefix) if engine == "kubernetes" else None,
            past_use=_past_use(env),
            reclaim_delay_s=_number(env, "CARREL_RECLAIM_DELAY", 0.0, least=0.0),
            patience_s=_number(env, "CARREL_PATIENCE", CORE.patience_s, least=0.0),
            placement=_placement(env),
            gateway_url=env.get("CARREL_GATEWAY_URL", "").rstrip("/"),
            system_accounts=frozenset(env.get("CARREL_SYSTEM_ACCOUNTS", "").split(",")) - {""},
            user_namespaces=env.get("CARREL_USER_NAMESPACES", "") == "allow",
            images=StoreSettings(
                most_gib=int(_number(env, "CARREL_IMAGE_MOST_GIB", 50, least=1)),
                store_gib=int(_number(env, "CARREL_IMAGE_STORE_GIB", 200, least=1)),
                credentials=Path(login) if (login := env.get("CARREL_IMAGE_CREDENTIALS")) else None,
            ),
            gpu_memory_enforcement=_enforcement(env),
            stall_rule=_stall_rule(env),
            network=_network(env, state_dir) if engine == "local" else None,
            job_limits=_job_limits(env),
            retention=_retention(env),
            runai_metrics=_switch(env, "CARREL_RUNAI_METRICS"),
        )

    @property
    def core(self) -> CoreSettings:
        """Rules of the decision core."""
        return CoreSettings(
            usage_factor_millionths=round(self.past_use.factor * 1e6),
            reclaim_delay_s=self.reclaim_delay_s,
            patience_s=self.patience_s,
            gpu_strategy=self.placement,
            cpu_strategy=self.placement,
        )

    @property
    def gateway_prefix(self) -> str:
        """Path of the gateway, a sibling of this service's."""
        return f"{self.prefix.rpartition('/')[0]}/gateway"

    def need_cluster(self) -> ClusterSettings:
        """Settings of the cluster; raises ``MissingSetting`` where there is none."""
        if self.cluster is None:
            raise MissingSetting("CARREL_ENGINE")
        return self.cluster


def _need(env: Mapping[str, str], name: str) -> str:
    if name not in env:
        raise MissingSetting(name)
    return env[name]


def _engine(env: Mapping[str, str]) -> Literal["local", "kubernetes"]:
    match env.get("CARREL_ENGINE") or "local":
        case "local":
            return "local"
        case "kubernetes":
            return "kubernetes"
        case other:
            raise BadSetting("CARREL_ENGINE", other, "`local` or `kubernetes`")


def _placement(env: Mapping[str, str]) -> Strategy:
    match env.get("CARREL_PLACEMENT") or "pack":
        case "pack":
            return Strategy.BIN_PACK
        case "spread":
            return Strategy.SPREAD
        case other:
            raise BadSetting("CARREL_PLACEMENT", other, "`pack` or `spread`")


def _enforcement(env: Mapping[str, str]) -> Literal["off", "warn", "end"]:
    match env.get("CARREL_GPU_MEMORY_ENFORCEMENT") or "warn":
        case "off":
            return "off"
        case "warn":
            return "warn"
        case "end":
            return "end"
        case other:
            raise BadSetting("CARREL_GPU_MEMORY_ENFORCEMENT", other, "`off`, `warn` or `end`")


def _switch(env: Mapping[str, str], name: str) -> bool:
    match env.get(name) or "off":
        case "on":
            return True
        case "off":
            return False
        case other:
            raise BadSetting(name, other, "`on` or `off`")


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _alerts_address(public_url: str) -> str:
    return f"{public_url.rstrip('/')}/services/console/alerts" if public_url else ""


def _network(env: Mapping[str, str], state_dir: Path) -> Network | None:
    mode = env.get("CARREL_TASK_NETWORK") or "shared"
    if mode not in ("isolated", "shared"):
        raise BadSetting("CARREL_TASK_NETWORK", mode, "`isolated` or `shared`")
    if mode == "shared":
        return None
    block = env.get("CARREL_NETWORK_BLOCK") or DEFAULT_BLOCK
    ports, public = env.get("CARREL_TASK_PORTS", ""), env.get("CARREL_TASK_PUBLIC_PORT", "")
    try:
        IPv4Network(block)
    except ValueError as error:
        raise BadSetting("CARREL_NETWORK_BLOCK", block, "a network, as 10.213.0.0/16,") from error
    try:
        numbers = tuple(int(port) for port in ports.split(",") if port)
    except ValueError as error:
        raise BadSetting("CARREL_TASK_PORTS", ports, "numbers of ports") from error
    installation = installation_of(state_dir)
    shown = int(public) if public.isdecimal() else None
    return Network(installation=installation, block=block, ports=numbers, public=shown)


def _stall_rule(env: Mapping[str, str]) -> StallRule:
    after = _number(env, "CARREL_STALLED_AFTER", DEFAULT_SECONDS, least=0.0)
    match env.get("CARREL_STALLED_GANGS") or "tell":
        case "tell":
            return StallRule(after)
        case "restart":
            return StallRule(after, "restart")
        case other:
            raise BadSetting("CARREL_STALLED_GANGS", other, "`tell` or `restart`")


def _job_limits(env: Mapping[str, str]) -> JobLimits:
    usual = JobLimits()
    return JobLimits(
        depth=int(_number(env, "CARREL_JOB_DEPTH", usual.depth, least=0)),
        descendants=int(_number(env, "CARREL_JOB_DESCENDANTS", usual.descendants, least=0)),
    )


def _past_use(env: Mapping[str, str]) -> PastUseRules:
    rules, hours = PastUseRules(), HOUR_S
    return PastUseRules(
        _number(env, "CARREL_PAST_USE_FACTOR", rules.factor, least=0.0),
        _number(env, "CARREL_PAST_USE_HALF_LIFE", rules.half_life_s / hours, least=0.1) * hours,
    )


def _retention(env: Mapping[str, str]) -> RetentionRules:
    days, room = "CARREL_CHECKPOINT_DAYS", "CARREL_PROJECT_FILES_GIB"
    return RetentionRules(
        _number(env, "CARREL_ARTIFACT_DAYS", 90.0, least=0.0) * DAY_SECONDS,
        _number(env, days, 30.0, least=0.0) * DAY_SECONDS,
        int(_number(env, room, 200.0, least=0.0) * 2**30),
    )


def _number(env: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    given = env.get(name, "")
    try:
        value = float(given) if given else default
    except ValueError:
        value = math.nan
    if not least <= value <= MOST:
        raise BadSetting(name, given, f"a number from {least:g} to {MOST:g}")
    return value


def _listen(env: Mapping[str, str]) -> tuple[str, int]:
    given = env.get("CARREL_LISTEN", "")
    where = urlsplit(f"//{given}" if given else _need(env, "JUPYTERHUB_SERVICE_URL"))
    try:
        port = where.port
    except ValueError:
        port = None
    if given and (not where.hostname or port is None):
        raise BadSetting("CARREL_LISTEN", given, "an address and a port, as 0.0.0.0:8080,")
    return where.hostname or "127.0.0.1", port or 0


def _cluster(env: Mapping[str, str], host: str, port: int, prefix: str) -> ClusterSettings:
    claim = env.get("CARREL_STORAGE_CLAIM") or CHECKPOINTS_CLAIM
    secrets = env.get("CARREL_TASK_PULL_SECRETS", "")
    limited = _enforcement(env) != "off"
    return ClusterSettings(
        storage=_storage(env, wanted=claim == CHECKPOINTS_CLAIM),
        by_role=_by_role(env),
        gpu_drivers=_gpu_drivers(env),
        closed_networks=_closed_networks(env),
        access=_cluster_access(env),
        stale_gang_s=_number(env, "CARREL_STALE_GANG_SECONDS", STALE_SECONDS, least=0.0),
        namespace=env.get("CARREL_NAMESPACE") or SYSTEM_NAMESPACE,
        task_api_url=(env.get("CARREL_TASK_API_URL") or f"http://{host}:{port}{prefix}").rstrip(
            "/"
        ),
        pods=PodSettings(
            image=_need(env, "CARREL_TASK_IMAGE"),
            pull_policy=env.get("CARREL_TASK_PULL_POLICY", ""),
            storage_claim="" if claim == NO_CLAIM else claim,
            cluster_domain=env.get("CARREL_CLUSTER_DOMAIN") or "cluster.local",
            pull_secrets=tuple(name for name in secrets.split(",") if name),
            gpu_image=env.get("CARREL_GPU_IMAGE", ""),
            limits_gpu_memory=limited,
            lost_after_seconds=round(
                _number(env, "CARREL_LOST_AFTER_SECONDS", LOST_AFTER_SECONDS, least=0.0)
            ),
        ),
    )


def _cluster_access(env: Mapping[str, str]) -> ClusterAccess | None:
    server = env.get("CARREL_API_SERVER", "").rstrip("/")
    if not server:
        return None
    where = urlsplit(server)
    if where.scheme != "https" or not where.hostname or where.username is not None:
        right = "an address that begins with https://, without a user"
        raise BadSetting("CARREL_API_SERVER", server, right)
    given = env.get("CARREL_API_SERVER_SIGN_IN", "")
    try:
        sign_in = msgspec.json.decode(given, type=SignInCommand) if given else None
        if sign_in is not None and not sign_in.command.strip():
            raise msgspec.ValidationError("`command` is empty")
    except msgspec.MsgspecError as error:
        right = f"the `exec` of a kubeconfig's user as JSON ({error})"
        raise BadSetting("CARREL_API_SERVER_SIGN_IN", given, right) from error
    authority = env.get("CARREL_API_SERVER_CA") or str(OWN_AUTHORITY)
    try:
        trusted = "" if authority == "system" else Path(authority).read_text()
    except (OSError, UnicodeDecodeError) as error:
        right = f"a file with certificates, or `system` ({error})"
        raise BadSetting("CARREL_API_SERVER_CA", authority, right) from error
    if trusted and (CERTIFICATE not in trusted or "PRIVATE KEY" in trusted):
        right = "a file with certificates and nothing else, which is sent to everybody,"
        raise BadSetting("CARREL_API_SERVER_CA", authority, right)
    return ClusterAccess(server=server, certificate_authority=trusted, sign_in=sign_in)


def _closed_networks(env: Mapping[str, str]) -> tuple[str, ...]:
    said = env.get("CARREL_CLOSED_NETWORKS", "")
    try:
        return tuple(str(ip_network(one.strip())) for one in said.split(",") if one.strip())
    except ValueError as error:
        right = f"networks such as 10.0.0.0/16, comma separated ({error})"
        raise BadSetting("CARREL_CLOSED_NETWORKS", said, right) from None


def _gpu_drivers(env: Mapping[str, str]) -> tuple[str, ...]:
    said = env.get("CARREL_GPU_DRIVERS", "")
    names = tuple(name for one in said.split(",") if (name := one.strip()))
    if not all(_DRIVER.fullmatch(name) for name in names):
        right = "names of drivers such as gpu.nvidia.com, comma separated,"
        raise BadSetting("CARREL_GPU_DRIVERS", said, right)
    return names or GPU_DRIVERS


def _by_role(env: Mapping[str, str]) -> bool:
    said = env.get("CARREL_NODE_ROLES") or "open"
    if said not in ("open", "strict"):
        raise BadSetting("CARREL_NODE_ROLES", said, "`open` or `strict`")
    return said == "strict"


def _storage(env: Mapping[str, str], *, wanted: bool) -> Checkpoints:
    """None is made where the claim is another one: then an admin sees to it."""
    modes = env.get("CARREL_STORAGE_MODES") or "ReadWriteMany"
    size = env.get("CARREL_STORAGE_SIZE") or "100Gi"
    return Checkpoints(
        size=size if wanted else "",
        storage_class=env.get("CARREL_STORAGE_CLASS", ""),
        access_modes=tuple(mode for mode in modes.split(",") if mode),
    )
