"""Where people reach work that listens: the column SERVICE URL(S)."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from carrel.models import Workload

SERVICE = "/services/carrel"


def hub_of(service: str, environ: Mapping[str, str] | None = None) -> str:
    """The Hub's public address; a workspace, which reaches ``service`` past it, is told."""
    env = os.environ if environ is None else environ
    if env.get("CARREL_URL", "").rstrip("/") == service and (told := env.get("CARREL_PUBLIC_URL")):
        return told.rstrip("/")
    return service.removesuffix(SERVICE)


def of(workload: "Workload", service: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """The addresses of a workload that can answer now; none for others."""
    hub, spec = hub_of(service, environ), workload.spec
    if workload.at_rest or workload.status.phase == "pending":
        return []
    found = []
    if spec.kind == "workspace" and workload.status.phase == "running":
        found.append("/".join(filter(None, (hub, "user", spec.user, spec.server_name))))
    if spec.kind not in ("trial", "replica", "experiment", "schedule"):
        base = f"{hub}/services/gateway/{quote(workload.project)}/{quote(workload.name)}/"
        found += [f"{base}~{route.name}/" if route.name else base for route in spec.routes]
    return found
