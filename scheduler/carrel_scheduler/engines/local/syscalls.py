"""The system calls that tasks in a sandbox cannot make: those that begin user namespaces.

Inside one a user is root in name, and reaches parts of the kernel that otherwise root alone does,
where most of its holes were found.
"""

import errno
import logging
import os
import platform
from functools import cache
from typing import Final

CLONE_NEWUSER: Final = 0x10000000
_log = logging.getLogger(__name__)


@cache
def filter_without_user_namespaces() -> bytes:
    """The filter as the kernel reads it; empty, with a warning, where libseccomp is missing."""
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError) as error:
        _log.warning("Tasks can begin user namespaces here: %s (Debian: libseccomp2).", error)
        return b""
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    if platform.machine() == "x86_64":
        rules.add_arch(seccomp.Arch.X86)  # programs of 32 bits run under the same rules
    refused = seccomp.ERRNO(errno.EPERM)
    flags = seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
    for name in ("unshare", "clone"):
        rules.add_rule(refused, name, flags)
    # Its flags lie in memory, where no filter can look; programs go on to use clone.
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    memory = os.memfd_create("carrel-filter")
    with os.fdopen(memory, "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
