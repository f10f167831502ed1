"""The scheduler's settings for a cluster, from the environment.

==============================  =================================================================
variable                        meaning
==============================  =================================================================
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
``CARREL_GPU_DEVICE_CLASS``     DeviceClass of the GPUs that tasks and workspaces get by claims,
                                where such a driver offers them, as gpu.nvidia.com; empty (default):
                                they get GPUs of device plugins only
``CARREL_MIG_DEVICE_CLASS``     DeviceClass of the MIG instances that tasks get by claims, as
                                mig.nvidia.com; empty (default): they get none so
``CARREL_PROVISIONING_CLASS``   class of the ProvisioningRequests by which nodes are asked for that
                                waiting work fits on, as
                                best-effort-atomic-scale-up.autoscaling.x-k8s.io; empty (default):
                                none are asked for
``CARREL_PROVISIONING_PARAMETERS``  of that class, as key=value, comma separated
``CARREL_PROVISIONING_MOST``    so many requests are open at a time; default 20
``CARREL_PROVISIONING_AFTER_SECONDS``  so long work waits for room on the nodes there are before
                                more are asked for; default 60
``CARREL_STALE_GANG_SECONDS``   so long a gang of pods that others made may run with fewer than it
                                needs before it releases its capacity; default 60
``CARREL_LOST_AFTER_SECONDS``   so long a node may be out of reach before trainings that run there
                                are taken for lost and begin elsewhere; default 60
==============================  =================================================================
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from carrel_scheduler.engines.kubernetes.external_pods.reconcile_pass import STALE_SECONDS
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import GPU_DRIVERS
from carrel_scheduler.engines.kubernetes.provisioning.types import ProvisioningSettings
from carrel_scheduler.engines.kubernetes.tasks.settings import LOST_AFTER_SECONDS, PodSettings
from carrel_scheduler.environment import InvalidVariable, choice, need, number
from carrel_scheduler.kube.credentials import ACCOUNT
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.governance.kubeconfig import ClusterAccess, SignInCommand
from carrel_schema.names import CHECKPOINTS_CLAIM, SYSTEM_NAMESPACE

NO_CLAIM = "none"
OWN_AUTHORITY = ACCOUNT / "ca.crt"
CERTIFICATE = "-----BEGIN CERTIFICATE-----"
DEFAULTS = ProvisioningSettings()
LONGEST_CLASS = 253
LONGEST_PARAMETER = 255
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DRIVER = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


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
        gpu_device_class: class of the GPUs that tasks get by claims; empty: they get none so.
        mig_device_class: the same of MIG instances.
        stale_gang_s: so long a gang of other people's pods may run with too few of them.
        closed_networks: that pods of projects do not reach.
        access: how people reach the API server; ``None``: nobody said.
        provisioning: how nodes are asked for.
    """

    namespace: str
    task_api_url: str
    pods: PodSettings
    storage: Checkpoints
    by_role: bool = False
    gpu_drivers: tuple[str, ...] = GPU_DRIVERS
    gpu_device_class: str = ""
    mig_device_class: str = ""
    stale_gang_s: float = STALE_SECONDS
    closed_networks: tuple[str, ...] = ()
    access: ClusterAccess | None = None
    provisioning: ProvisioningSettings = DEFAULTS


def read_cluster_settings(
    env: Mapping[str, str], task_api_url: str, *, limits_gpu_memory: bool
) -> ClusterSettings:
    """The settings of a cluster.

    Args:
        env: the environment.
        task_api_url: where pods reach the service, unless it says so itself.
        limits_gpu_memory: tasks are kept within their part of a GPU's memory.

    Raises:
        InvalidVariable: as it says.
    """
    claim = env.get("CARREL_STORAGE_CLAIM") or CHECKPOINTS_CLAIM
    secrets = env.get("CARREL_TASK_PULL_SECRETS", "")
    return ClusterSettings(
        storage=_storage(env, wanted=claim == CHECKPOINTS_CLAIM),
        by_role=choice(env, "CARREL_NODE_ROLES", ("open", "strict")) == "strict",
        gpu_drivers=_gpu_drivers(env),
        gpu_device_class=_device_class(env, "CARREL_GPU_DEVICE_CLASS"),
        mig_device_class=_device_class(env, "CARREL_MIG_DEVICE_CLASS"),
        closed_networks=_closed_networks(env),
        access=_cluster_access(env),
        provisioning=_provisioning(env),
        stale_gang_s=number(env, "CARREL_STALE_GANG_SECONDS", STALE_SECONDS, least=0.0),
        namespace=env.get("CARREL_NAMESPACE") or SYSTEM_NAMESPACE,
        task_api_url=(env.get("CARREL_TASK_API_URL") or task_api_url).rstrip("/"),
        pods=PodSettings(
            image=need(env, "CARREL_TASK_IMAGE"),
            pull_policy=env.get("CARREL_TASK_PULL_POLICY", ""),
            storage_claim="" if claim == NO_CLAIM else claim,
            cluster_domain=env.get("CARREL_CLUSTER_DOMAIN") or "cluster.local",
            pull_secrets=tuple(name for name in secrets.split(",") if name),
            gpu_image=env.get("CARREL_GPU_IMAGE", ""),
            limits_gpu_memory=limits_gpu_memory,
            lost_after_seconds=round(
                number(env, "CARREL_LOST_AFTER_SECONDS", LOST_AFTER_SECONDS, least=0.0)
            ),
        ),
    )


def _provisioning(env: Mapping[str, str]) -> ProvisioningSettings:
    name = env.get("CARREL_PROVISIONING_CLASS", "").strip()
    if name and not (len(name) <= LONGEST_CLASS and _CLASS.fullmatch(name)):
        right = "the name of a class such as best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        raise InvalidVariable("CARREL_PROVISIONING_CLASS", name, right)
    said = env.get("CARREL_PROVISIONING_PARAMETERS", "")
    pairs = [one.strip().partition("=") for one in said.split(",") if one.strip()]
    if not all(key and equals and len(value) <= LONGEST_PARAMETER for key, equals, value in pairs):
        right = f"key=value, comma separated, values of at most {LONGEST_PARAMETER} characters,"
        raise InvalidVariable("CARREL_PROVISIONING_PARAMETERS", said, right)
    return ProvisioningSettings(
        class_name=name,
        parameters={key.strip(): value.strip() for key, _, value in pairs},
        most=round(number(env, "CARREL_PROVISIONING_MOST", DEFAULTS.most, least=1)),
        delay_s=number(env, "CARREL_PROVISIONING_AFTER_SECONDS", DEFAULTS.delay_s, least=0.0),
    )


def _cluster_access(env: Mapping[str, str]) -> ClusterAccess | None:
    server = env.get("CARREL_API_SERVER", "").rstrip("/")
    if not server:
        return None
    where = urlsplit(server)
    if where.scheme != "https" or not where.hostname or where.username is not None:
        right = "an address that begins with https://, without a user"
        raise InvalidVariable("CARREL_API_SERVER", server, right)
    given = env.get("CARREL_API_SERVER_SIGN_IN", "")
    try:
        sign_in = msgspec.json.decode(given, type=SignInCommand) if given else None
        if sign_in is not None and not sign_in.command.strip():
            raise msgspec.ValidationError("`command` is empty")
    except msgspec.MsgspecError as error:
        right = f"the `exec` of a kubeconfig's user as JSON ({error})"
        raise InvalidVariable("CARREL_API_SERVER_SIGN_IN", given, right) from error
    authority = env.get("CARREL_API_SERVER_CA") or str(OWN_AUTHORITY)
    try:
        trusted = "" if authority == "system" else Path(authority).read_text()
    except (OSError, UnicodeDecodeError) as error:
        right = f"a file with certificates, or `system` ({error})"
        raise InvalidVariable("CARREL_API_SERVER_CA", authority, right) from error
    if trusted and (CERTIFICATE not in trusted or "PRIVATE KEY" in trusted):
        right = "a file with certificates and nothing else, which is sent to everybody,"
        raise InvalidVariable("CARREL_API_SERVER_CA", authority, right)
    return ClusterAccess(server=server, certificate_authority=trusted, sign_in=sign_in)


def _closed_networks(env: Mapping[str, str]) -> tuple[str, ...]:
    said = env.get("CARREL_CLOSED_NETWORKS", "")
    try:
        return tuple(str(ip_network(one.strip())) for one in said.split(",") if one.strip())
    except ValueError as error:
        right = f"networks such as 10.0.0.0/16, comma separated ({error})"
        raise InvalidVariable("CARREL_CLOSED_NETWORKS", said, right) from None


def _gpu_drivers(env: Mapping[str, str]) -> tuple[str, ...]:
    said = env.get("CARREL_GPU_DRIVERS", "")
    names = tuple(name for one in said.split(",") if (name := one.strip()))
    if not all(_DRIVER.fullmatch(name) for name in names):
        right = "names of drivers such as gpu.nvidia.com, comma separated,"
        raise InvalidVariable("CARREL_GPU_DRIVERS", said, right)
    return names or GPU_DRIVERS


def _device_class(env: Mapping[str, str], variable: str) -> str:
    name = env.get(variable, "").strip()
    if name and not (len(name) <= LONGEST_CLASS and _CLASS.fullmatch(name)):
        right = "the name of a DeviceClass such as gpu.nvidia.com"
        raise InvalidVariable(variable, name, right)
    return name


def _storage(env: Mapping[str, str], *, wanted: bool) -> Checkpoints:
    """None is made where the claim is another one: then an admin sees to it."""
    modes = env.get("CARREL_STORAGE_MODES") or "ReadWriteMany"
    size = env.get("CARREL_STORAGE_SIZE") or "100Gi"
    return Checkpoints(
        size=size if wanted else "",
        storage_class=env.get("CARREL_STORAGE_CLASS", ""),
        access_modes=tuple(mode for mode in modes.split(",") if mode),
    )
