"""A cluster: tasks are pods, nodes are watched, pods of others are placed beside our own work.

Several schedulers may be started; one leads, the others wait until its lease lapses; the one that
is started again where the leader was killed takes its place at once. What all must
have in common lies in the cluster: the key of task tokens is a secret in the scheduler's namespace.
"""

import asyncio
import base64
import logging
import os
import random
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from carrel_scheduler.api.dependencies import NodeAgents
from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.engines.external import ExternalPods, ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.nodes import facts_of
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.external_pods.watchers import ExternalPodRunner, Feeds
from carrel_scheduler.engines.kubernetes.leadership import Clocks, Leader, StateFolderLock
from carrel_scheduler.engines.kubernetes.node_group_store import ResourceNodeGroups
from carrel_scheduler.engines.kubernetes.node_tokens import NodeTokens
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import Inventory
from carrel_scheduler.engines.kubernetes.pods.nodes import UnmanagedUse, node_set
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.shared_gpus.events import EventWriter
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import ReservationSettings
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations
from carrel_scheduler.engines.kubernetes.tasks.device_claims import TaskDevices
from carrel_scheduler.engines.kubernetes.tasks.engine import KubernetesEngine
from carrel_scheduler.engines.kubernetes.tasks.manifest import check_runnable
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import AlreadyExists, NotFound
from carrel_scheduler.kube.metadata import PartialObject
from carrel_scheduler.kube.resources import SECRETS
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.secret_keys import KEYS_FILE, SecretKeys, new_key
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.policy.rights import MayCreate
from carrel_scheduler.service.cluster_settings import ClusterSettings
from carrel_scheduler.service.node_agents import ClusterNodeAgents
from carrel_scheduler.service.settings import ServiceSettings
from carrel_scheduler.workloads.launch import fitting
from carrel_scheduler.workloads.launch.fitting import Fitting
from carrel_scheduler.workloads.launch.task_specs import TaskTokens, on_cluster
from carrel_scheduler.workloads.namespaces.access import AccessBindings
from carrel_scheduler.workloads.namespaces.adoption import ObjectAdoption
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.synced_objects import SyncTiming
from carrel_scheduler.workloads.namespaces.work_policies import WorkPolicies
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.reconcile.watchers import watch_rendezvous
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.events import LoopEvent
from carrel_scheduler.workloads.state.ports import FixedPorts, PortAllocator

log = logging.getLogger(__name__)
TASK_KEY: Final = "carrel-task-key"
LEDGER_KEYS: Final = "carrel-ledger-keys"
MOST_OWNERS: Final = 10_000
LOOK_SECONDS: Final = 5.0
"""Looking into pods is a command in each: not as often as on one machine."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Proof of leadership of this process.

    Attributes:
        leader: has the lease.
        instance: the name of this process.
        key: signs task tokens.
        lock: of the state folder, which earlier and later processes share.
        keeping: renews the lease from the beginning: recovery before the first pass takes time.
    """

    leader: Leader
    instance: str
    key: bytes
    lock: StateFolderLock
    keeping: "asyncio.Task[None]"

    async def kept(self) -> None:
        """Wait as long as this process leads. Raises ``LeadershipLost``."""
        await self.keeping

    async def end(self) -> None:
        """Let another scheduler lead."""
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        await self.leader.release()
        self.lock.close()


class OwnerReferences:
    """References to the custom resources that own tasks; each is read once.

    They show that a controller makes such a pod again, so that `kubectl drain` evicts it unforced.
    """

    def __init__(self, client: KubeClient, ledger: KubernetesLedger) -> None:
        self._client, self._ledger = client, ledger
        self._known: OrderedDict[str, dict[str, Any]] = OrderedDict()

    async def __call__(self, task: TaskSpec) -> dict[str, Any] | None:
        """The reference; ``None`` when the object is gone."""
        uid = task.id.workload_uid
        place = self._ledger.known.place(uid)
        if uid not in self._known and place is not None:
            with suppress(NotFound):
                kind, namespace, name = place.resource, place.namespace, place.name
                found = await self._client.get(kind, name, namespace, PartialObject)
                self._known[uid] = {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "name": name,
                    "uid": found.metadata.uid,
                    "controller": True,
                }
                while len(self._known) > MOST_OWNERS:
                    self._known.popitem(last=False)
        return self._known.get(uid)


class Cluster:
    """See ``service.main.ServiceEnvironment``."""

    def __init__(
        self, settings: ServiceSettings, client: KubeClient, ledger: KubernetesLedger, lead: Lead
    ) -> None:
        cluster, leader = settings.need_cluster(), lead.leader
        self._cluster = cluster
        self.tokens = TaskTokens(lead.key)
        self.ports: PortAllocator = FixedPorts()
        self.fits: Fitting = fitting.on_cluster(partial(check_runnable, settings=cluster.pods))
        self.launch = on_cluster(
            cluster.task_api_url, self.tokens, settings.gateway_prefix, settings.gateway_url
        )
        self._feeds = Feeds.of(client, ours=True)
        self._gpus = GpuReservations(
            client,
            self._feeds.pods,
            ReservationSettings(
                image=cluster.pods.gpu_image or cluster.pods.image,
                pull_policy=cluster.pods.pull_policy,
                pull_secrets=cluster.pods.pull_secrets,
            ),
            epoch=lambda: leader.epoch,
            now=time.time,
        )
        self._devices = DeviceClaims(
            Inventory(cluster.gpu_drivers),
            task_class=cluster.gpu_device_class,
            mig_class=cluster.mig_device_class,
        )
        self._events = EventWriter(client, time.time, lead.instance)
        self._instances = MigInstances(self._gpus.in_use, self._events.publish)
        self.engine = KubernetesEngine(
            client,
            cluster.pods,
            clock=time.time,
            epoch=lambda: leader.epoch,
            owner_of=OwnerReferences(client, ledger),
            gpus=self._gpus,
            devices=TaskDevices(client, self._devices),
            instances=self._instances,
        )
        self._client, self._lead = client, lead
        self._ledger = ledger
        self._namespaces = Namespaces(
            ledger,
            client,
            system=cluster.namespace,
            checkpoints=cluster.storage,
            chance=random.random,
            closed=cluster.closed_networks,
        )
        self._work: ExternalPodRunner | None = None

    def external_pods(self, access: ReconcilerAccess) -> ExternalPods:
        """The part that places external pods."""
        self._external_pods = ExternalPodReconciler(
            access,
            stale_grace_s=self._cluster.stale_gang_s,
            places=PlacementConstraints(
                devices=self._devices,
                by_role=self._cluster.by_role,
            ),
            storage_claim=self._cluster.pods.storage_claim,
            provisioning=self._cluster.provisioning,
        )
        return self._external_pods

    def host_of(self, _node: str) -> str:
        """Nowhere: replicas have addresses of their own."""
        return ""

    def trouble(self) -> str:
        """The trouble with credentials or connections, as a sentence; empty for none."""
        return self._client.trouble

    def node_agents(self, enqueue: Callable[[LoopEvent], None]) -> NodeAgents:
        """The agents of the DaemonSet, authenticated by their pods' tokens."""
        return ClusterNodeAgents(
            NodeTokens(self._client),
            self.engine.workload_of,
            self.engine.known_gpus,
            enqueue,
            self._instances,
            self._gpus.memory_limits if self._cluster.pods.limits_gpu_memory else None,
        )

    def node_groups(self, _loop: Reconciler) -> ResourceNodeGroups:
        """Custom resources of the cluster."""
        return ResourceNodeGroups(self._client)

    async def facts(self) -> Sequence[NodeFacts]:
        """The nodes whose facts can be read."""
        await self._feeds.nodes.synced()
        found = []
        for node in self._feeds.nodes.objects.values():
            name = node.metadata.name
            try:
                fact = node_set(node, UnmanagedUse().of(name), (), ())
            except PodRefused as error:
                log.warning("node %s is left out: %s", name, error)
                continue
            found.append(facts_of(node, fact))
        return found

    async def begin(
        self, loop: Reconciler, group: asyncio.TaskGroup, may_create: MayCreate
    ) -> Sequence["asyncio.Task[None]"]:
        """Hear of nodes and of pods that others made; returns once all that are there are known."""
        began = asyncio.Event()
        self._namespaces.quarantine = loop.quarantine
        self._work = ExternalPodRunner(
            self._client,
            self._feeds,
            self._external_pods,
            loop.ledger,
            loop.enqueue,
            loop.cache.projects,
            epoch=self._lead.leader.epoch,
            instance=self._lead.instance,
            now=time.time,
            gpus=self._gpus,
            instances=self._instances,
        )
        loop.executor.announcer = self._work.announcer
        tasks = [
            group.create_task(self._work.run(began, loop.epoch)),
            group.create_task(self._lead.kept()),
            group.create_task(watch_rendezvous(self._met, loop, LOOK_SECONDS)),
            group.create_task(self._namespaces.run()),
            group.create_task(self.engine.listen()),
            group.create_task(self._gpus.run()),
            group.create_task(self._events.run()),
        ]
        await began.wait()
        live = LiveState(loop, self.fits)
        quarantine = loop.quarantine
        taking_on = ObjectAdoption(
            self._ledger,
            self._client,
            live,
            time.time,
            quarantine=quarantine,
            may_create=may_create,
        )
        timing = SyncTiming(clock=time.monotonic, chance=random.random, quarantine=quarantine)
        projects = loop.cache.projects.values
        bindings = AccessBindings(self._ledger, self._client, projects, **timing)
        policies = WorkPolicies(self._ledger, self._client, projects, **timing)
        tasks += [group.create_task(one.run()) for one in (bindings, policies)]
        return [*tasks, group.create_task(taking_on.run())]

    async def _met(self, entry: CachedWorkload, port: int) -> frozenset[int]:
        members = [entry.task_id(index) for index in sorted(entry.alive - entry.joined)]
        return await self.engine.met_at(members, port)

    async def close(self) -> None:
        """Stop watching, and let another scheduler lead."""
        await self._gpus.close()
        await self._feeds.close()
        if self._work is not None:
            await self._work.executor.flush()
        await self._lead.end()


async def lead(settings: ServiceSettings, client: KubeClient) -> Lead:
    """Wait until this process leads."""
    lock = StateFolderLock(settings.state_dir)
    try:
        return await _lead(settings.need_cluster(), client, lock)
    except BaseException:
        lock.close()
        raise


async def _lead(cluster: ClusterSettings, client: KubeClient, lock: StateFolderLock) -> Lead:
    instance = f"{socket.gethostname()}-{secrets.token_hex(6)}"
    clocks = Clocks(time.monotonic, time.time)
    leader = Leader(client, cluster.namespace, instance, clocks, state_folder=lock.name)
    await leader.acquire()
    keeping = asyncio.create_task(leader.keep())
    try:
        if not await leader.fenced():
            log.warning("the cluster has no policy that keeps former schedulers from binding pods")
        return Lead(leader, instance, await task_key(client, cluster), lock, keeping)
    except BaseException:
        keeping.cancel()
        raise


async def task_key(client: KubeClient, cluster: ClusterSettings) -> bytes:
    """The key for signing task tokens."""
    fresh = {"immutable": True, "data": {"key": _encoded(os.urandom(32))}}
    return _key(await _kept(client, cluster.namespace, TASK_KEY, fresh), "key")


async def secret_keys(client: KubeClient, cluster: ClusterSettings) -> SecretKeys:
    """The keys of secrets in the ledger, to which an admin may add. Raises ``LedgerNotUsable``."""
    fresh = {"data": {KEYS_FILE: _encoded(new_key().encode())}}
    text = _key(await _kept(client, cluster.namespace, LEDGER_KEYS, fresh), KEYS_FILE).decode()
    return SecretKeys.from_text(text, f"secret {cluster.namespace}/{LEDGER_KEYS}")


async def _kept(
    client: KubeClient, namespace: str, name: str, fresh: dict[str, Any]
) -> dict[str, Any]:
    """A secret, created by the first scheduler."""
    with suppress(NotFound):
        return await client.get(SECRETS, name, namespace)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fresh}
    with suppress(AlreadyExists):
        return await client.create(SECRETS, body, namespace)
    return await client.get(SECRETS, name, namespace)


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _key(secret: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(secret["data"][name])
