"""The command line: the package's own options, ours behind them.

An option that asks for something we do not do (TLS, rewriting) is refused by name, never ignored.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Final

import click

# The package has no types.
from configurable_http_proxy import cli, log  # type: ignore[import-untyped]

from carrel_hub.proxy.options import Options
from carrel_hub.proxy.server import serve

TOKEN: Final = "CONFIGPROXY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
_AS_GIVEN: Final = (
    *("default_target", "error_target", "storage_backend"),
    *("x_forward", "prepend_path", "include_prefix", "change_origin"),
)
_KNOWN: Final = frozenset(
    [
        *_AS_GIVEN,
        *("ip", "port", "api_ip", "api_port", "error_path", "pid_file", "log_level"),
        *("timeout", "proxy_timeout", "host_routing", "custom_header"),
    ]
)


def options(given: dict[str, Any], token: str = "") -> Options:
    """What the command line says. Raises ``click.UsageError`` naming what cannot be done."""
    refused = [name for name, value in given.items() if value and name not in _KNOWN]
    if refused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
        raise click.UsageError(
            f"{flags}: not supported. This proxy speaks plain HTTP and changes no answers; "
            "put a TLS terminator in front of it."
        )
    if given["error_target"] and given["error_path"]:
        raise click.UsageError("--error-target and --error-path exclude each other; give one.")
    ip = given["ip"] or "127.0.0.1"
    return Options(
        ip=None if ip == "*" else ip,
        port=given["port"],
        api_ip=given["api_ip"] or "127.0.0.1",
        api_port=given["api_port"] or given["port"] + 1,
        auth_token=token,
        error_path=_path(given["error_path"]),
        pid_file=_path(given["pid_file"]),
        answer_seconds=_seconds(given["timeout"]),
        silence_seconds=_seconds(given["proxy_timeout"]),
        host_routing=bool(given["host_routing"]),
        custom_headers=tuple(given["custom_header"]),
        **{name: given[name] for name in _AS_GIVEN},
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _run(**given: Any) -> None:
    log.setLevel((given["log_level"] or "INFO").upper())
    wish = options(given, os.environ.get(TOKEN, ""))
    if not wish.auth_token:
        log.warning("Anybody who reaches port %d can set routes: set %s.", wish.api_port, TOKEN)
    logging.getLogger("aiohttp").setLevel(log.level)
    # It finds fault with sub-protocols that are for the target to pick.
    logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)
    asyncio.run(serve(wish))


def _parameters() -> list[click.Parameter]:
    """The package's; JupyterHub gives ``--host-routing`` without a value."""
    kept = [one for one in cli.main.params if one.name != "host_routing"]
    told = "Routes begin with a host name."
    return [*kept, click.Option(["--host-routing"], is_flag=True, help=told)]


command: Final = click.Command(
    "carrel-proxy",
    params=_parameters(),
    callback=_run,
    help="One public port; routes are set over REST, as JupyterHub does.",
)
