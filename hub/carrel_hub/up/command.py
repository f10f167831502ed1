"""The command line of ``carrel up``."""

from pathlib import Path
from typing import Annotated

import typer

from carrel_hub.front.traefik import (
    LONGEST_REQUEST_SECONDS,
    REQUEST_SECONDS,
    SHORTEST_REQUEST_SECONDS,
)
from carrel_hub.state_folder import default_state_dir
from carrel_hub.up.checks import StartupError, check_python

Port = Annotated[int, typer.Option(min=1, max=65535, help="Where people reach it.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
StateDir = Annotated[
    Path | None,
    typer.Option(help="The one folder that is written to.", show_default="~/.local/state/carrel"),
]
GpuCount = Annotated[
    int | None,
    typer.Option(
        min=0, max=64, help="Simulate so many GPUs.", show_default="the real ones, else 4"
    ),
]
GpuMemory = Annotated[str | None, typer.Option(help="Memory of a simulated GPU, such as 24G.")]
GpuName = Annotated[str | None, typer.Option(help="Model of a simulated GPU, such as A10.")]
Mig = Annotated[
    bool,
    typer.Option(
        "--mig",
        help="Divide GPUs into MIG instances as work asks for them; takes root and MIG "
        "mode, which is switched on.",
    ),
]
Demo = Annotated[
    bool, typer.Option("--demo", help="Two projects, three accounts and a notebook to try.")
]
Domain = Annotated[
    str | None,
    typer.Option(
        help="The name by which people reach it, when all names below it lead here, too: then "
        "every user and every route of work has an origin of its own.",
        show_default="localhost, on loopback",
    ),
]
TlsCert = Annotated[Path | None, typer.Option(help="Speak TLS with this certificate (PEM).")]
TlsKey = Annotated[Path | None, typer.Option(help="Its key (PEM).")]
AcmeDomains = Annotated[
    list[str] | None,
    typer.Option(
        "--acme-domain",
        help="Speak TLS with a certificate for this name that Let's Encrypt gives, which has to "
        "reach port 443 of it; may be repeated.",
    ),
]
AcmeEmail = Annotated[str, typer.Option(help="Where Let's Encrypt writes to.")]
PlainPort = Annotated[
    int, typer.Option(min=0, max=65535, help="With TLS: redirect plain HTTP from this port.")
]
TrustedProxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="NETWORK",
        help="A proxy of yours before this one; may be repeated.",
    ),
]
RequestTimeout = Annotated[
    int,
    typer.Option(
        "--request-timeout",
        metavar="SECONDS",
        min=SHORTEST_REQUEST_SECONDS,
        max=LONGEST_REQUEST_SECONDS,
        help="A request has to arrive within this time, with its body: as long as the longest "
        "upload may take.",
    ),
]
Database = Annotated[
    str,
    typer.Option(help="URL of a PostgreSQL database for the ledger.", show_default="SQLite"),
]
Environments = Annotated[
    list[str] | None,
    typer.Option(
        "--environment",
        metavar="NAME=FOLDER",
        help="A Python environment that workspaces are offered; may be repeated.",
    ),
]
SignInFile = Annotated[
    Path | None,
    typer.Option(
        "--sign-in",
        metavar="FILE",
        help="People sign in with the directory (OpenID Connect or LDAP) that this file tells of.",
        show_default="accounts of this machine",
    ),
]
StopJobs = Annotated[
    bool, typer.Option("--stop-jobs", help="At Ctrl-C, stop workspaces and jobs too.")
]


def up(
    port: Port = 8000,
    host: Host = "127.0.0.1",
    state_dir: StateDir = None,
    gpus: GpuCount = None,
    gpu_memory: GpuMemory = None,
    gpu_name: GpuName = None,
    mig: Mig = False,
    demo: Demo = False,
    domain: Domain = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    acme_domain: AcmeDomains = None,
    acme_email: AcmeEmail = "",
    plain_port: PlainPort = 0,
    trusted_proxy: TrustedProxies = None,
    request_timeout: RequestTimeout = REQUEST_SECONDS,
    database: Database = "",
    environment: Environments = None,
    sign_in: SignInFile = None,
    stop_jobs: StopJobs = False,
) -> None:
    """Run Carrel on this machine: JupyterHub, the scheduler and the console."""
    from carrel_hub.up.screen import Screen

    screen = Screen()
    try:
        check_python()
        from carrel_hub.settings import Gpus
        from carrel_hub.up import options
        from carrel_hub.up.machine import run

        memory = None if gpu_memory is None else options.mebibytes(gpu_memory, "--gpu-memory")
        encrypted = options.tls(tls_cert, tls_key, acme_domain or [], acme_email, plain_port)
        chosen = options.Options(
            state_dir=(state_dir or default_state_dir()).expanduser().absolute(),
            host=host,
            port=port,
            gpus=Gpus(count=gpus, memory_mib=memory, name=gpu_name, mig=mig),
            demo=demo,
            database_url=database,
            environments=options.environments(environment or ()),
            tls=encrypted,
            domain=options.domain(domain, host, encrypted),
            trusted_proxies=options.networks(trusted_proxy or []),
            request_seconds=request_timeout,
            sign_in=options.sign_in(sign_in, demo=demo),
            stop_jobs=stop_jobs,
        )
        run(chosen, screen)
    except StartupError as error:
        screen.error(str(error))
        raise typer.Exit(1) from None
    except ModuleNotFoundError as error:
        screen.error(f"{error.name} is not installed: run pip install 'jupyter-carrel[hub]'.")
        raise typer.Exit(1) from None
