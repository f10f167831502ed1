"""The lease as the API server keeps it."""

from datetime import UTC, datetime

import msgspec

from carrel_scheduler.kube.resources import LEASES


class Meta(msgspec.Struct, rename="camel", omit_defaults=True):
    """Which lease, in which version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Spec(msgspec.Struct, rename="camel"):
    """Who has it; ``lease_transitions`` is the epoch."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(msgspec.Struct, rename="camel"):
    """One lease."""

    metadata: Meta
    spec: Spec
    api_version: str = LEASES.api_version
    kind: str = LEASES.kind


def micro_time(now: float) -> str:
    """Epoch seconds as leases have them."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
