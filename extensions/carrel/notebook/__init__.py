"""The library for notebooks: send a cell as a job, follow the job, show it.

The client is imported when it is first used: loading the magics must not slow a kernel's start.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carrel.client.submit import submit
    from carrel.notebook.job import Job

__all__ = ["Job", "submit"]


def __getattr__(name: str) -> Any:
    if name == "Job":
        from carrel.notebook.job import Job

        return Job
    if name == "submit":
        from carrel.client.submit import submit

        return submit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
