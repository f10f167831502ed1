"""``make cluster``: builds what the tests' cluster takes, so that no test has to wait for it."""

import os
import time

from k8s.cluster import binaries, tiers
from k8s.cluster.images import builder
from k8s.cluster.waiting import NotReady


def main() -> None:
    """Build what is missing and say where it lies and what will not run."""
    begun = time.monotonic()
    binaries.oldest(_say)
    binaries.monitoring(_say)
    reason = tiers.why_no_node() or _build_for_nodes()
    if reason:
        _say(f"Only the control plane: {reason}")
    _say(f"Kubernetes for tests: {binaries.cache()} ({time.monotonic() - begun:.0f} s)")


def _build_for_nodes() -> str:
    """Build for nodes; returns why they cannot run. Where ``CI=true`` that is an error."""
    try:
        binaries.node(_say)
        builder.build(("base", *builder.IMAGES), _say)
    except (binaries.NotBuilt, NotReady) as failed:
        if os.environ.get("CI") == "true":
            raise
        return str(failed)
    return ""


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
