"""What the proxy was told on its command line."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """Where to listen and how to pass things on.

    Attributes:
        ip: Of the public port; ``None`` is every address of the machine.
        api_ip: Of the port that the Hub sets routes on.
        auth_token: What the Hub shows to set routes; empty lets everybody.
        default_target: Where goes what no route claims, such as ``http://127.0.0.1:8081``.
        error_target: Who makes the pages for errors: asked for ``<error_target>/404?url=...``.
        error_path: A folder with ``404.html``, ``503.html`` or ``error.html``.
        answer_seconds: How long a target may take to begin its answer.
        silence_seconds: How long a target may send nothing in the midst of an answer.
        x_forward: Whether targets are told who asks, in ``X-Forwarded-*``.
        prepend_path: Whether the path of a target comes before that of a request.
        include_prefix: Whether targets see the prefix of their route.
        change_origin: Whether targets see their own address as ``Host``.
        host_routing: Whether the first part of a route is a host name.
        custom_headers: Told to every target.
        storage_backend: Dotted name of a class of the package that keeps routes.
    """

    ip: str | None = "127.0.0.1"
    port: int = 8000
    api_ip: str = "127.0.0.1"
    api_port: int = 8001
    auth_token: str = field(default="", repr=False)
    default_target: str | None = None
    error_target: str | None = None
    error_path: Path | None = None
    pid_file: Path | None = None
    answer_seconds: float | None = None
    silence_seconds: float | None = None
    x_forward: bool = True
    prepend_path: bool = True
    include_prefix: bool = True
    change_origin: bool = False
    host_routing: bool = False
    custom_headers: tuple[tuple[str, str], ...] = ()
    storage_backend: str | None = None
