"""What tests of live views say as the page does, and wait for."""

import threading
import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait for a condition that another thread makes true."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not true():
        assert time.monotonic() < deadline
        pause.wait(0.01)


def page_says(view: Any, kind: str, **content: Any) -> None:
    view._handle_custom_msg({"type": kind, **content}, [])
