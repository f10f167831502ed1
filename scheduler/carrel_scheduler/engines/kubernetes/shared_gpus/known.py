"""Known reservations and the pods that use them, node by node. It does no I/O.

It comes from a watch of pods, from answers to what was written, and from starts that are under way:
their GPUs are *held*, which no watch shows yet. A later state is never replaced by an earlier one
that is answered late.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.nodes import is_reservation
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    HeldGpu,
    epoch_of,
    gpu_of,
    is_leaving,
    key_of_node,
    node_key,
    reservations_of,
    visible_of,
)

REMOVE_GRACE_SECONDS: Final = 1


@dataclass(slots=True)
class User:
    """A pod that uses a shared GPU.

    Attributes:
        reservations: uids of the pods that hold them.
        visible: UUIDs of the GPUs, or of the MIG instance, that it was told to see.
        pod: as the watch showed it with its place; ``None``: it was bound a moment ago.
    """

    reservations: frozenset[str]
    visible: frozenset[str]
    pod: Pod | None = None

    @property
    def ending(self) -> bool:
        """Whether the pod is terminating."""
        return self.pod is not None and self.pod.metadata.deletion_timestamp is not None


@dataclass(slots=True)
class NodeReservations:
    """The reservations of a node.

    Attributes:
        pods: its reservations by name.
        users: by uid.
        held: how many starts hold a reservation, by name.
        removing: uids of reservations that are being deleted, as no watch may show yet.
        changed: set and replaced with each change.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    removing: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    def note(self, pod: Pod) -> None:
        """A reservation as the server answered, unless a later state of it is known."""
        known = self.pods.get(pod.metadata.name)
        if known is None or _version(known) < _version(pod):
            self.pods[pod.metadata.name] = pod

    def drop(self, pod: Pod) -> None:
        """A reservation is gone."""
        if self.is_this(pod):
            del self.pods[pod.metadata.name]

    def is_this(self, pod: Pod) -> bool:
        """Whether the reservation of this name has this uid."""
        known = self.pods.get(pod.metadata.name)
        return known is not None and known.metadata.uid == pod.metadata.uid

    def leaves(self, pod: Pod) -> bool:
        """Whether a reservation cannot be used any more."""
        return is_leaving(pod) or pod.metadata.uid in self.removing

    def is_held(self, gpu: HeldGpu | None) -> bool:
        """Whether the reservation of a GPU is in order at this moment."""
        return gpu is not None and any(
            pod.metadata.uid == gpu.reservation and not self.leaves(pod)
            for pod in self.pods.values()
        )

    def has_another(self, name: str, gpu: HeldGpu) -> bool:
        """Whether a reservation of another name holds the same GPU."""
        theirs = (
            gpu_of(pod)
            for pod in self.pods.values()
            if pod.metadata.name != name and not is_leaving(pod)
        )
        return any(isinstance(one, HeldGpu) and one.uuid == gpu.uuid for one in theirs)

    def is_unused(self, pod: Pod, epoch: int) -> bool:
        """Whether a reservation is to be deleted by the leader of that epoch, and at once."""
        meta = pod.metadata
        if meta.uid in self._used() or epoch_of(pod) > epoch:
            return False  # somebody uses it, or another leader answers for it
        if meta.deletion_timestamp is not None:
            return (meta.deletion_grace_period_seconds or 0) > REMOVE_GRACE_SECONDS
        return pod.ended or not self.held[meta.name]

    def lost_users(self) -> Iterator[Pod]:
        """Pods whose GPU may be given to others, and which were not told to end yet."""
        alive = self._alive()
        for user in self.users.values():
            if user.pod is not None and not user.ending and not user.reservations <= alive:
                yield user.pod

    def is_in_the_way(self, name: str = "") -> bool:
        """Whether pods keep GPUs of the node that the core counts as free.

        A reservation of this ``name`` is not in its own way.
        """
        used = self._used()
        for pod in self.pods.values():
            meta = pod.metadata
            idle = meta.uid not in used and not self.held[meta.name]
            if meta.name != name and (idle or self.leaves(pod)):
                return True
        alive = self._alive()
        return any(not user.reservations <= alive for user in self.users.values())

    def _used(self) -> frozenset[str]:
        return frozenset().union(*(user.reservations for user in self.users.values()))

    def _alive(self) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in self.pods.values() if not is_leaving(pod))


class KnownReservations:
    """The reservations of all nodes; ``touched`` are the nodes with changes."""

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self._nodes: dict[str, NodeReservations] = {}
        self._gone: set[str] = set()
        self._at: dict[str, str] = {}

    def of(self, node: str) -> NodeReservations:
        """The reservations of a node, by its name."""
        return self.at(key_of_node(node))

    def at(self, key: str) -> NodeReservations:
        """The reservations of a node, by its key."""
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = NodeReservations()
        return found

    def is_free(self, node: str) -> bool:
        """Whether no pod keeps a GPU of a node that the core counts as free."""
        found = self._nodes.get(key_of_node(node))
        return found is None or not found.is_in_the_way()

    def take(self, pod: Pod, *, gone: bool) -> None:
        """Handle a pod's change or deletion from the watch."""
        if is_reservation(pod):
            key = node_key(pod)
            if gone:
                self.at(key).drop(pod)
            else:
                self.at(key).pods[pod.metadata.name] = pod
            self.touched.add(key)
            return
        uid, used = pod.metadata.uid, reservations_of(pod)
        if gone or pod.ended:
            self._gone.discard(uid)
            self._forget(uid)
        elif used and uid not in self._gone:
            self._put(pod.spec.node_name, uid, User(used, visible_of(pod), pod))

    def in_use(self, node: str) -> frozenset[str]:
        """UUIDs of GPUs and MIG instances that pods of a node were told to see."""
        return frozenset().union(*(user.visible for user in self.of(node).users.values()))

    def bound(self, uid: str, node: str, gpus: Sequence[HeldGpu], visible: Collection[str]) -> bool:
        """A pod has these GPUs, and sees these UUIDs; false: the watch shows it already."""
        if uid in self._at or uid in self._gone:
            return False
        reservations = frozenset(gpu.reservation for gpu in gpus)
        self._put(node, uid, User(reservations, frozenset(visible)))
        return True

    def ended(self, uid: str) -> bool:
        """A pod has ended, which the watch shows later; whether it was a user."""
        if uid not in self._at:
            return False
        self._gone.add(uid)
        self._forget(uid)
        return True

    def never_was(self, uid: str) -> None:
        """A pod that was bound has come and gone, and the watch showed nothing of it."""
        self._forget(uid)

    def is_unseen(self, uid: str) -> bool:
        """Whether a pod was bound that the watch has not delivered yet."""
        key = self._at.get(uid)
        return key is not None and self._nodes[key].users[uid].pod is None

    def _put(self, node: str, uid: str, user: User) -> None:
        key = key_of_node(node)
        self.at(key).users[uid] = user
        self._at[uid] = key
        self.touched.add(key)

    def _forget(self, uid: str) -> None:
        key = self._at.pop(uid, None)
        if key is not None:
            del self._nodes[key].users[uid]
            self.touched.add(key)


def _version(pod: Pod) -> int:
    written = pod.metadata.resource_version
    return int(written) if written.isdecimal() else 0
