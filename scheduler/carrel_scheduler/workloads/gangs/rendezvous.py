"""Rendezvous: the environment with which the members of a gang find each other.

The first member has a port at which the others meet it. Every variable that launchers and libraries
read by themselves (torchrun, ``torch.distributed``, ``jax.distributed``, TensorFlow, mpirun) is
given, so that programs run as they are in those projects' documentation.

``mpirun`` starts its ranks inside the members instead of over ssh. MPICH and Open MPI read
different variables and host files (Open MPI 4 ``OMPI_MCA_*``, 5 ``PRTE_MCA_*`` too); all are given,
so that a job's command is the same with each. A rank keeps the environment of its member.
"""

import ipaddress
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_schema.objects import WorkloadSpec

OUR_PROGRAMS: Final = f"{Path(sys.executable).parent}/"
MEMBER_COMMAND: Final = (sys.executable, "-m", "carrel.job.mpi.member")
"""The command of the members of an MPI gang except the first, which runs that of the work."""

AddressOf = Callable[[CachedWorkload, int], str]
"""The address of a member for the others, by its index."""


def subdomain(entry: CachedWorkload) -> str:
    """The name, on a cluster, within which members have the names of ``member``."""
    return f"gang-{entry.uid}"


def member(entry: CachedWorkload, index: int) -> str:
    """The stable name of a member."""
    return f"{entry.workload.meta.name}-{index}"


def name_on_cluster(entry: CachedWorkload, index: int) -> str:
    """The DNS name of a member on a cluster; see ``AddressOf``."""
    return f"{member(entry, index)}.{subdomain(entry)}"


def files(entry: CachedWorkload) -> dict[str, str]:
    """The host files of an MPI gang."""
    spec = entry.workload.spec
    if not shape.is_mpi(spec):
        return {}
    return _mpi_files((member(entry, index) for index in entry.tasks), _processes(spec))


def hosts(entry: CachedWorkload, address_of: AddressOf) -> tuple[tuple[str, str], ...]:
    """Address and name of every member of a gang, for looking names up.

    Not of an MPI gang: ``mpirun`` takes a name that leads to its own machine for itself.
    """
    spec = entry.workload.spec
    if shape.is_mpi(spec):
        return ()
    return tuple((address_of(entry, index), member(entry, index)) for index in entry.tasks)


def environment(
    entry: CachedWorkload, index: int, address_of: AddressOf, programs: str = OUR_PROGRAMS
) -> dict[str, str]:
    """The variables of a member of a gang.

    ``programs``: the folder of our programs where it runs, with a slash; empty: on its path.
    """
    spec, members = entry.workload.spec, entry.tasks
    address, port = address_of(entry, 0), str(_port(entry, 0, shape.RENDEZVOUS))
    own: dict[str, str] = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RANK": str(index),
        "WORLD_SIZE": str(len(members)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(index),
        "CARREL_JOIN_TIMEOUT": f"{shape.rendezvous_of(spec).join_timeout_seconds:g}",
        "CARREL_MEMBER": member(entry, index),
        "CARREL_MEMBERS": ",".join(_names(entry, address_of)),
        **_torchrun(entry, index, address, port),
    }
    if shape.is_mpi(spec):
        return own | _mpi_environment(programs, address, spec.environment)
    return own | _jax(entry, index, address, port) | _tensorflow(entry, index, address_of)


def _processes(spec: WorkloadSpec) -> int:
    """The number of processes of a member that have a GPU each; at least one."""
    return max(spec.resources.gpu_devices, spec.resources.gpu_milli // MILLI)


def _torchrun(entry: CachedWorkload, index: int, address: str, port: str) -> dict[str, str]:
    """Options of ``torchrun``, which reads each from a variable; an option given goes before."""
    spec = entry.workload.spec
    least = shape.least_parts(spec)
    options = {
        "PET_NNODES": str(spec.tasks) if least == spec.tasks else f"{least}:{spec.tasks}",
        "PET_NODE_RANK": str(index),
        "PET_NPROC_PER_NODE": str(_processes(spec)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_RDZV_ID": entry.uid,
    }
    if least < spec.tasks:
        # Members come and go, the first is the last to go: so the first is where they meet.
        options |= {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_CONF": f"is_host={int(index == 0)}"}
    return options


def _jax(entry: CachedWorkload, index: int, address: str, port: str) -> dict[str, str]:
    """The variables from which ``jax.distributed.initialize()`` takes its arguments.

    It takes the coordinator's address and the devices from variables of its own, the rest from what
    cluster software sets; these are the ones of Open MPI's runtime.
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


def _tensorflow(entry: CachedWorkload, index: int, address_of: AddressOf) -> dict[str, str]:
    """``TF_CONFIG``: every member with the port at which it listens, and which of them this is.

    Not of a gang whose members come and go: TensorFlow's strategies take all of them for given.
    """
    spec = entry.workload.spec
    if shape.least_parts(spec) < spec.tasks:
        return {}
    members = sorted(entry.tasks)
    names = [shape.RENDEZVOUS if one == 0 else shape.WORKER for one in members]
    workers = [
        f"{address_of(entry, one)}:{_port(entry, one, name)}"
        for one, name in zip(members, names, strict=True)
    ]
    content = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    return {"TF_CONFIG": json.dumps(content)}


def _names(entry: CachedWorkload, address_of: AddressOf) -> list[str]:
    found = []
    for index in entry.tasks:
        port = _port(entry, index, shape.MEMBER)
        where = address_of(entry, index) + (f":{port}" if port else "")
        found.append(f"{member(entry, index)}={where}")
    return found


def _port(entry: CachedWorkload, index: int, name: str) -> int:
    infos = (info for info in entry.workload.status.tasks if info.index == index)
    return next((info.ports.get(name, 0) for info in infos), 0)


HOST_FILE: Final = "hostfile"
"""The members for MPICH; its path below the task's own folder."""
SLOTS_FILE: Final = "hostfile.openmpi"
"""The same for Open MPI, which would else count the cores of a machine as places for ranks."""

_IN_TASK: Final = "$(CARREL_TASK_DIR)"
_LOOPBACK: Final = "127.0.0.0/8"
_CHOICES: Final = {
    # As MPICH does it: one rank after the other to the next member, as many as are asked for.
    "OMPI_MCA_rmaps_base_mapping_policy": "node:oversubscribe",
    "PRTE_MCA_rmaps_default_mapping_policy": "node:oversubscribe",
    # Members share machines and do not know it: each would bind its ranks to the same first cores.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_ON_ONE_MACHINE: Final = {
    # MPI groups ranks by machine, of which there is one.
    "OMPI_MCA_coll": "^han",
    "OMPI_MCA_btl_tcp_if_include": _LOOPBACK,
    "OMPI_MCA_oob_tcp_if_include": _LOOPBACK,
    "OMPI_MCA_oob_tcp_disable_ipv6_family": "1",
    "PRTE_MCA_oob_tcp_disable_ipv6_family": "1",
    # Members would make one folder in /tmp at the same moment, and one of them would fail.
    "TMPDIR": _IN_TASK,
}


def _mpi_files(members: Iterable[str], ranks: int) -> dict[str, str]:
    """The host files, one member in a line; ``ranks``: how many of a member are not too many."""
    names = list(members)
    return {
        HOST_FILE: "".join(f"{name}\n" for name in names),
        SLOTS_FILE: "".join(f"{name} slots={ranks}\n" for name in names),
    }


def _mpi_environment(programs: str, address: str, own: Mapping[str, str]) -> dict[str, str]:
    """The variables of a member.

    Args:
        programs: the folder of our programs where it runs, with a slash; empty: on its path.
        address: where the first member is for the others.
        own: what the user set; it overrides our defaults.
    """
    choices = _CHOICES | (_ON_ONE_MACHINE if _is_loopback(address) else {})
    return {name: own.get(name, value) for name, value in choices.items()} | _needed(programs)


def _needed(programs: str) -> dict[str, str]:
    reach = f"{programs}carrel-reach"
    hosts, slots = f"{_IN_TASK}/{HOST_FILE}", f"{_IN_TASK}/{SLOTS_FILE}"
    return {
        "HYDRA_ENV": "none",
        "HYDRA_HOST_FILE": hosts,
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": reach,
        "OMPI_MCA_plm_rsh_agent": reach,
        "PRTE_MCA_plm_ssh_agent": reach,
        # Open MPI asks for the shell of the member, and `carrel-reach` answers.
        "OMPI_MCA_plm_rsh_assume_same_shell": "0",
        "PRTE_MCA_plm_ssh_assume_same_shell": "0",
        "OMPI_MCA_orte_default_hostfile": slots,
        "PRTE_MCA_prte_default_hostfile": slots,
        # Who a task runs as is decided by then; these count for the administrator alone.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name
        return False
