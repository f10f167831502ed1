"""How the members of a gang find each other: what each is told in its environment.

The first member has a port at which the others meet it. Every variable that launchers and libraries
read by themselves (torchrun, ``torch.distributed``, ``jax.distributed``, mpirun) is given, so that
programs run as they are in those projects' documentation.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.workloads import gangs
from carrel_scheduler.workloads.book import Entry

HOST_FILE: Final = "hostfile"
"""Its path below the task's own folder."""
_PROGRAMS: Final = Path(sys.executable).parent
_MEMBER_COMMAND: Final = (sys.executable, "-m", "carrel.job.mpi_member")

AddressOf = Callable[[str], str]
"""The address of a node for other nodes, by its name."""


def command(entry: Entry, index: int) -> tuple[str, ...]:
    """What a member runs: of an MPI gang only the first runs the command."""
    spec = entry.workload.spec
    if gangs.is_mpi(entry.workload.spec) and index > 0:
        return _MEMBER_COMMAND
    return tuple(spec.command)


def files(entry: Entry) -> dict[str, str]:
    """The host file of an MPI gang, one member in a line."""
    if not gangs.is_mpi(entry.workload.spec):
        return {}
    return {HOST_FILE: "".join(f"{_name(entry, index)}\n" for index in entry.tasks)}


def hosts(entry: Entry, address_of: AddressOf) -> tuple[tuple[str, str], ...]:
    """Address and name of every member of a gang, for looking names up.

    Not of an MPI gang: ``mpirun`` takes a name that leads to its own machine for itself.
    """
    spec = entry.workload.spec
    if not gangs.is_gang(spec) or gangs.is_mpi(spec):
        return ()
    members = entry.tasks.items()
    return tuple((address_of(place.node), _name(entry, index)) for index, place in members)


def environment(entry: Entry, index: int, address_of: AddressOf) -> dict[str, str]:
    """What a member of a gang is told; nothing for other work."""
    if not gangs.is_gang(entry.workload.spec):
        return {}
    members = entry.tasks
    address, port = address_of(members[0].node), str(_port(entry, 0, gangs.RENDEZVOUS))
    own: dict[str, str] = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RANK": str(index),
        "WORLD_SIZE": str(len(members)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(index),
        "CARREL_JOIN_TIMEOUT": f"{gangs.rendezvous_of(entry.workload.spec).join_timeout_seconds:g}",
        "CARREL_MEMBER": _name(entry, index),
        "CARREL_MEMBERS": ",".join(_names(entry, address_of)),
        **_torchrun(entry, index, address, port),
    }
    return own | (
        _mpi() if gangs.is_mpi(entry.workload.spec) else _jax(entry, index, address, port)
    )


def _torchrun(entry: Entry, index: int, address: str, port: str) -> dict[str, str]:
    """Options of ``torchrun``, which reads each from a variable; an option given goes before."""
    spec = entry.workload.spec
    least = gangs.least_parts(spec)
    options = {
        "PET_NNODES": str(spec.tasks) if least == spec.tasks else f"{least}:{spec.tasks}",
        "PET_NODE_RANK": str(index),
        "PET_NPROC_PER_NODE": str(max(1, spec.resources.gpu_milli // MILLI)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_RDZV_ID": entry.uid,
    }
    if least < spec.tasks:
        # Members come and go, the first is the last to go: so the first is where they meet.
        options |= {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_CONF": f"is_host={int(index == 0)}"}
    return options


def _jax(entry: Entry, index: int, address: str, port: str) -> dict[str, str]:
    """How ``jax.distributed.initialize()`` learns its place without arguments.

    It takes the coordinator's address and the devices from variables of its own, the rest from what
    cluster software tells it; these are the ones of Open MPI's runtime.
    """
    number = str(len(entry.tasks))
    devices = range(len(entry.tasks[index].devices))
    return {
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        "JAX_NUM_PROCESSES": number,
        "JAX_PROCESS_ID": str(index),
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{address}:{port}",
        "OMPI_COMM_WORLD_SIZE": number,
        "OMPI_COMM_WORLD_RANK": str(index),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    } | ({"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, devices))} if devices else {})


def _mpi() -> dict[str, str]:
    """What makes ``mpirun`` start its ranks inside the members instead of over ssh."""
    reach = str(_PROGRAMS / "carrel-reach")
    hosts = f"$(CARREL_TASK_DIR)/{HOST_FILE}"
    return {
        # Ranks keep the environment of the member they run in: its devices, its rank.
        "HYDRA_ENV": "none",
        "HYDRA_HOST_FILE": hosts,
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": reach,
        "OMPI_MCA_plm_rsh_agent": reach,
        "PRTE_MCA_plm_ssh_agent": reach,
        "OMPI_MCA_orte_default_hostfile": hosts,
        "PRTE_MCA_prte_default_hostfile": hosts,
    }


def _names(entry: Entry, address_of: AddressOf) -> list[str]:
    found = []
    for index, place in entry.tasks.items():
        port = _port(entry, index, gangs.MEMBER)
        where = address_of(place.node) + (f":{port}" if port else "")
        found.append(f"{_name(entry, index)}={where}")
    return found


def _name(entry: Entry, index: int) -> str:
    return f"{entry.workload.meta.name}-{index}"


def _port(entry: Entry, index: int, name: str) -> int:
    infos = (info for info in entry.workload.status.tasks if info.index == index)
    return next((info.ports.get(name, 0) for info in infos), 0)
