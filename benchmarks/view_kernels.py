"""Kernels of many people in one process: each holds live views, whose messages are counted.

``python -m benchmarks.view_kernels URL VIEWS PEOPLE``; prints a line of JSON when all views stand,
and one for every line that it reads: messages and processor seconds since the line before.
"""

import json
import sys
import threading
import time
from typing import Any

from carrel import Client
from carrel.widgets.job import JobView


class Counter:
    """Counts messages of all views."""

    def __init__(self) -> None:
        self.messages = 0
        self._cpu = time.process_time()

    def count(self, *_: Any, **__: Any) -> None:
        """Count a message."""
        self.messages += 1

    def tell(self) -> None:
        """Print, and begin anew."""
        now = time.process_time()
        line = {"messages": self.messages, "cpu_seconds": now - self._cpu}
        self.messages, self._cpu = 0, now
        print(json.dumps(line), flush=True)


def look(url: str, views: int, people: int, counter: Counter) -> list[JobView]:
    """Show everybody's share of the jobs."""
    shown = []
    for person in range(people):
        client = Client(url, f"t{person}")
        for number in range(person, views, people):
            view = JobView(client, client.get_workload("vision", f"job-{number}"))
            setattr(view, "_send", counter.count)  # noqa: B010 - stands in for the page
            view._handle_custom_msg({"type": "shown"}, [])  # noqa: SLF001 - as the page says it
            shown.append(view)
    return shown


def main() -> None:
    """See the module."""
    url, views, people = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    counter = Counter()
    shown = look(url, views, people, counter)
    waiting = threading.Event()
    while not all(view.lines or view.curves for view in shown):
        waiting.wait(0.5)
    counter.tell()
    for _ in sys.stdin:
        counter.tell()


if __name__ == "__main__":
    main()
