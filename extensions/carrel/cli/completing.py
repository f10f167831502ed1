"""Names of jobs that a shell completes: asked of the service, and none when it does not answer."""

import contextlib

from carrel.errors import CarrelError

MOST: int = 50
SECONDS: float = 2.0


def job_names(incomplete: str) -> list[str]:
    """Names of the newest jobs in one's project that begin so."""
    from carrel.client import Client
    from carrel.client.submit import default_project

    with contextlib.suppress(CarrelError), Client(timeout=SECONDS) as client:
        page = client.workload_page(
            default_project(client), search=incomplete, newest_first=True, limit=MOST
        )
        return [job.name for job in page.items if job.name.startswith(incomplete)]
    return []
