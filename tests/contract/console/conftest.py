"""The console, whole, against fakes."""

from collections.abc import AsyncIterator

import pytest

from carrel.testing import FakeScheduler
from contract.console import scene
from contract.console.site import Clock, Site


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A console with a day's work behind it."""
    clock = Clock()
    with FakeScheduler(people=scene.PEOPLE, tcp=True, now=clock) as fake:
        scene.build(fake, clock)
        async with Site(fake, clock) as found:
            yield found
