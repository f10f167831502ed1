"""Order of tests in several processes: those that wait for each other, and those that go first.

Tests of a cluster share what they start: those whose pods run share one with nodes, all others one
without. What has servers for a whole folder goes by folder, everything else by file. Whatever takes
minutes begins first, or the last process would be left alone with it. Told to the scheduler of
pytest-xdist itself, as marks for its groups are lost with newer versions of pytest.
"""

from pathlib import PurePosixPath
from typing import Any, Final

import pytest
from typing_extensions import override

ON_NODES: Final = frozenset(
    f"test_{name}"
    for name in (
        *("backup", "device_driver", "device_driver_story", "engine", "engine_story", "execution"),
        *("guide", "images", "kinds", "leftovers", "mig_instances_story", "node", "node_agents"),
        *("shared_gpus", "shared_gpus_story", "spawner_story"),
    )
)
"""Of ``tests/k8s``, those with pods that run."""
FIRST: Final = ("nodes", "control plane", "tests/e2e/", "tests/attacks", "tests/contract/")
BY_FOLDER: Final = ("tests/attacks", "tests/contract", "tests/e2e/notebooks", "tests/hunts")


def turn_of(nodeid: str) -> str:
    """The turn of a test: tests of one turn run one after the other, in one process."""
    path = PurePosixPath(nodeid.partition("::")[0])
    if path.is_relative_to("tests/k8s"):
        return "nodes" if path.stem in ON_NODES else "control plane"
    if any(path.is_relative_to(folder) for folder in BY_FOLDER):
        return str(path.parent)
    return str(path)


def place_of(turn: str) -> int:
    """The place of a turn in the order of all."""
    return next((at for at, begin in enumerate(FIRST) if turn.startswith(begin)), len(FIRST))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes minutes first, where several processes take turns."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(turn_of(item.nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole turns, in the order of the collection."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class ByTurn(LoadScopeScheduling):
        @override
        def _split_scope(self, nodeid: str) -> str:
            return turn_of(nodeid)

    return ByTurn(config, log)
