"""What makes ``mpirun`` start its ranks inside the members of a gang instead of over ssh.

Two libraries read two kinds of variables and of host files: MPICH, and Open MPI, the
fourth by ``OMPI_MCA_*``, the fifth by ``PRTE_MCA_*`` too. All are given, so that the command of
a job is the same with each. A rank keeps the environment of the member in which it runs: its
devices, its name.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

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
    # It groups ranks by machine, of which there is one.
    "OMPI_MCA_coll": "^han",
    "OMPI_MCA_btl_tcp_if_include": _LOOPBACK,
    "OMPI_MCA_oob_tcp_if_include": _LOOPBACK,
    "OMPI_MCA_oob_tcp_disable_ipv6_family": "1",
    "PRTE_MCA_oob_tcp_disable_ipv6_family": "1",
    # Members would make one folder in /tmp at the same moment, and one of them would fail.
    "TMPDIR": _IN_TASK,
}


def files(members: Iterable[str], ranks: int) -> dict[str, str]:
    """The host files, one member in a line; ``ranks``: how many of a member are not too many."""
    names = list(members)
    return {
        HOST_FILE: "".join(f"{name}\n" for name in names),
        SLOTS_FILE: "".join(f"{name} slots={ranks}\n" for name in names),
    }


def environment(programs: str, address: str, own: Mapping[str, str]) -> dict[str, str]:
    """The variables of a member.

    Args:
        programs: the folder of our programs where it runs, with a slash; empty: on its path.
        address: where the first member is for the others.
        own: what the user set; what is only a choice of ours gives way to it.
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
        # It asks in whose language to write, and `carrel-reach` answers.
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
