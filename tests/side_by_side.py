"""Which tests wait for each other where several processes run them.

Those that use the whole machine (its control groups and accounts) are one process's, as are those
of the cluster, which share what they start. What has servers of its own on loopback, and perhaps a
browser, goes by folder, so that they are started once; all others go by file. Told to the scheduler
of pytest-xdist itself, as marks for its groups are lost with newer versions of pytest.
"""

from typing import Any, Final

import pytest
from typing_extensions import override

PARTS: Final = {
    "tests/contract": "machine",
    "tests/attacks": "machine",
    "tests/e2e": "machine",
    "tests/hunts": "machine",
    "tests/k8s": "cluster",
}
APART: Final = frozenset(
    f"tests/contract/{name}" for name in ("api", "client", "console", "kube", "ledger", "notebook")
)


def turn_of(nodeid: str) -> str:
    """What tests that run one after the other, in one process, have in common."""
    path = nodeid.partition("::")[0]
    folders = path.split("/")
    if (apart := "/".join(folders[:3])) in APART:
        return apart
    return PARTS.get("/".join(folders[:2]), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole turns; the largest come first."""
    from xdist.scheduler import LoadScopeScheduling

    class ByTurn(LoadScopeScheduling):
        @override
        def _split_scope(self, nodeid: str) -> str:
            return turn_of(nodeid)

    return ByTurn(config, log)
