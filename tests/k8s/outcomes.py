"""Report of the tiers of the cluster that ran, also of a run by several processes.

A tier that cannot run is a skip with its reason on somebody's machine and a failure where
``CI=true``.
"""

import os
from typing import Any, NoReturn

import pytest

from k8s.cluster import tiers

SENT_AS = "kubernetes_tiers"
_outcomes = pytest.StashKey[dict[str, str]]()


def ran(config: pytest.Config, tier: str, how: str = "ran") -> None:
    """Note it for the summary."""
    config.stash[_outcomes][tier] = how


def cannot(config: pytest.Config, tier: str, reason: str) -> NoReturn:
    """Note it, and end the test that asked for the tier."""
    config.stash[_outcomes][tier] = f"did not run: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"the {tier} tier cannot run: {reason}")
    pytest.skip(f"the {tier} tier cannot run: {reason}")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the record of tiers."""
    config.stash[_outcomes] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process that runs tests for another one tells it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[SENT_AS] = session.config.stash[_outcomes]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what such a process told; one that died told nothing."""
    node.config.stash[_outcomes].update(getattr(node, "workeroutput", {}).get(SENT_AS, {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which tiers ran, where any was asked for."""
    told = config.stash[_outcomes]
    if told:
        terminalreporter.section("Kubernetes")
        for tier in (tiers.CONTROL_PLANE, tiers.NODE):
            terminalreporter.line(f"{tier} tier: {told.get(tier, 'not asked for')}")
