"""The library for notebooks: send a cell as a job, follow the job, show it.

The client is imported when it is first used: loading the magics must not slow a kernel's start.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carrel.notebook.job import Job, submit

__all__ = ["Job", "submit"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from carrel.notebook import job

        return getattr(job, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
