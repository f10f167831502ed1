"""KubeSpawner's reflectors, one for each namespace, when a namespace was not there at first.

KubeSpawner shares them for the Hub's life and, with one for each namespace, neither gives up nor
mends one whose first list was refused, or whose watch has ended: a spawner that gets it from then
on sees no pod, for ever. Here such a one is replaced by the next who asks.
"""

from typing import Any


def is_broken(reflector: Any) -> bool:
    """Whether nothing will ever come from it again."""
    loaded = reflector.first_load_future
    if loaded.done() and (loaded.cancelled() or loaded.exception() is not None):
        return True
    watch = reflector.watch_task
    return watch is not None and watch.done()
