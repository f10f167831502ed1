"""Settings of the scheduler, from the environment: a service of the Hub has no other channel.

Those that count on a cluster are in ``cluster_settings``.

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
``CARREL_RESERVATION_DELAY``    seconds that large work waits before places are reserved for it;
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
==============================  =================================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from carrel_scheduler.api.principals.jobs import JobLimits
from carrel_scheduler.core.settings import DEFAULTS as CORE
from carrel_scheduler.core.settings import Settings as CoreSettings
from carrel_scheduler.core.settings import Strategy
from carrel_scheduler.engines.local.images.store import StoreSettings
from carrel_scheduler.engines.local.network.addressing import (
    DEFAULT_BLOCK,
    InstallationNetwork,
    installation_of,
)
from carrel_scheduler.environment import (
    InvalidVariable,
    MissingSetting,
    choice,
    need,
    number,
    switch,
)
from carrel_scheduler.service.cluster_settings import ClusterSettings, read_cluster_settings
from carrel_scheduler.workloads.gangs.stalling import DEFAULT_SECONDS, Reaction, StallRule
from carrel_scheduler.workloads.reconcile.usage_history import PastUseRules
from carrel_scheduler.workloads.retention import DAY_SECONDS, RetentionRules

HOUR_S = 3600.0


Engine = Literal["local", "kubernetes"]
Enforcement = Literal["warn", "off", "end"]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
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
    engine: Engine = "local"
    cluster: ClusterSettings | None = None
    past_use: PastUseRules = field(default_factory=PastUseRules)
    reclaim_delay_s: float = 0.0
    reservation_delay_s: float = CORE.reservation_delay_s
    placement: Strategy = Strategy.BIN_PACK
    gateway_url: str = ""
    system_accounts: frozenset[str] = frozenset()
    user_namespaces: bool = False
    images: StoreSettings = field(default_factory=StoreSettings)
    gpu_memory_enforcement: Enforcement = "warn"
    stall_rule: StallRule = field(default_factory=StallRule)
    network: InstallationNetwork | None = None
    job_limits: JobLimits = field(default_factory=JobLimits)
    retention: RetentionRules = field(default_factory=RetentionRules)
    certificate: Path | None = None
    alerts_address: str = ""
    front_url: str = ""
    public_url: str = ""
    runai_metrics: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "ServiceSettings":
        """Read the environment; raises ``InvalidVariable``."""
        state_dir = Path(need(env, "CARREL_STATE_DIR"))
        prefix = need(env, "JUPYTERHUB_SERVICE_PREFIX").rstrip("/")
        host, port = _listen(env)
        gpus = env.get("CARREL_GPUS", "")
        engine: Engine = choice(env, "CARREL_ENGINE", get_args(Engine))
        enforcement: Enforcement = choice(
            env, "CARREL_GPU_MEMORY_ENFORCEMENT", get_args(Enforcement)
        )
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
            hub_api_url=need(env, "JUPYTERHUB_API_URL"),
            hub_token=need(env, "JUPYTERHUB_API_TOKEN"),
            gpus=int(gpus) if gpus else None,
            gpu_memory_mib=int(env.get("CARREL_GPU_MEMORY_MIB") or 24 * 1024),
            gpu_name=env.get("CARREL_GPU_NAME") or "A10",
            mig=switch(env, "CARREL_MIG"),
            engine=engine,
            cluster=read_cluster_settings(
                env,
                f"http://{host}:{port}{prefix}",
                limits_gpu_memory=enforcement != "off",
            )
            if engine == "kubernetes"
            else None,
            past_use=_past_use(env),
            reclaim_delay_s=number(env, "CARREL_RECLAIM_DELAY", 0.0, least=0.0),
            reservation_delay_s=number(
                env, "CARREL_RESERVATION_DELAY", CORE.reservation_delay_s, least=0.0
            ),
            placement=_placement(env),
            gateway_url=env.get("CARREL_GATEWAY_URL", "").rstrip("/"),
            system_accounts=frozenset(env.get("CARREL_SYSTEM_ACCOUNTS", "").split(",")) - {""},
            user_namespaces=env.get("CARREL_USER_NAMESPACES", "") == "allow",
            images=StoreSettings(
                most_gib=int(number(env, "CARREL_IMAGE_MOST_GIB", 50, least=1)),
                store_gib=int(number(env, "CARREL_IMAGE_STORE_GIB", 200, least=1)),
                credentials=Path(login) if (login := env.get("CARREL_IMAGE_CREDENTIALS")) else None,
            ),
            gpu_memory_enforcement=enforcement,
            stall_rule=_stall_rule(env),
            network=_network(env, state_dir) if engine == "local" else None,
            job_limits=_job_limits(env),
            retention=_retention(env),
            runai_metrics=switch(env, "CARREL_RUNAI_METRICS"),
        )

    @property
    def core(self) -> CoreSettings:
        """Rules of the decision core."""
        return CoreSettings(
            usage_factor_millionths=round(self.past_use.factor * 1e6),
            reclaim_delay_s=self.reclaim_delay_s,
            reservation_delay_s=self.reservation_delay_s,
            gpu_strategy=self.placement,
            cpu_strategy=self.placement,
        )

    @property
    def gateway_prefix(self) -> str:
        """Path of the gateway, a sibling of this service's."""
        return f"{self.prefix.rpartition('/')[0]}/gateway"

    def need_cluster(self) -> ClusterSettings:
        """The settings for a cluster. Raises ``MissingSetting`` on one machine."""
        if self.cluster is None:
            raise MissingSetting("CARREL_ENGINE")
        return self.cluster


def _placement(env: Mapping[str, str]) -> Strategy:
    named = choice(env, "CARREL_PLACEMENT", ("pack", "spread"))
    return Strategy.BIN_PACK if named == "pack" else Strategy.SPREAD


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _alerts_address(public_url: str) -> str:
    return f"{public_url.rstrip('/')}/services/console/alerts" if public_url else ""


def _network(env: Mapping[str, str], state_dir: Path) -> InstallationNetwork | None:
    if choice(env, "CARREL_TASK_NETWORK", ("shared", "isolated")) == "shared":
        return None
    block = env.get("CARREL_NETWORK_BLOCK") or DEFAULT_BLOCK
    ports, public = env.get("CARREL_TASK_PORTS", ""), env.get("CARREL_TASK_PUBLIC_PORT", "")
    try:
        IPv4Network(block)
    except ValueError as error:
        raise InvalidVariable(
            "CARREL_NETWORK_BLOCK", block, "a network, as 10.213.0.0/16,"
        ) from error
    try:
        numbers = tuple(int(port) for port in ports.split(",") if port)
    except ValueError as error:
        raise InvalidVariable("CARREL_TASK_PORTS", ports, "numbers of ports") from error
    installation = installation_of(state_dir)
    shown = int(public) if public.isdecimal() else None
    return InstallationNetwork(installation=installation, block=block, ports=numbers, public=shown)


def _stall_rule(env: Mapping[str, str]) -> StallRule:
    after = number(env, "CARREL_STALLED_AFTER", DEFAULT_SECONDS, least=0.0)
    then: Reaction = choice(env, "CARREL_STALLED_GANGS", get_args(Reaction))
    return StallRule(after, then)


def _job_limits(env: Mapping[str, str]) -> JobLimits:
    usual = JobLimits()
    return JobLimits(
        depth=int(number(env, "CARREL_JOB_DEPTH", usual.depth, least=0)),
        descendants=int(number(env, "CARREL_JOB_DESCENDANTS", usual.descendants, least=0)),
    )


def _past_use(env: Mapping[str, str]) -> PastUseRules:
    rules, hours = PastUseRules(), HOUR_S
    return PastUseRules(
        number(env, "CARREL_PAST_USE_FACTOR", rules.factor, least=0.0),
        number(env, "CARREL_PAST_USE_HALF_LIFE", rules.half_life_s / hours, least=0.1) * hours,
    )


def _retention(env: Mapping[str, str]) -> RetentionRules:
    days, room = "CARREL_CHECKPOINT_DAYS", "CARREL_PROJECT_FILES_GIB"
    return RetentionRules(
        number(env, "CARREL_ARTIFACT_DAYS", 90.0, least=0.0) * DAY_SECONDS,
        number(env, days, 30.0, least=0.0) * DAY_SECONDS,
        int(number(env, room, 200.0, least=0.0) * 2**30),
    )


def _listen(env: Mapping[str, str]) -> tuple[str, int]:
    given = env.get("CARREL_LISTEN", "")
    where = urlsplit(f"//{given}" if given else need(env, "JUPYTERHUB_SERVICE_URL"))
    try:
        port = where.port
    except ValueError:
        port = None
    if given and (not where.hostname or port is None):
        raise InvalidVariable("CARREL_LISTEN", given, "an address and a port, as 0.0.0.0:8080,")
    return where.hostname or "127.0.0.1", port or 0
