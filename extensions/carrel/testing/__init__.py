"""A scheduler in memory, for tests of whatever talks to Carrel.

It speaks the REST API (docs/api.md) well enough for clients and decides nothing: a workload waits
until the test says ``run``. It listens on a Unix socket of its own, so it works where tests have no
network; ``FakeScheduler(tcp=True)`` listens on a loopback port instead.

Example::

    with FakeScheduler(people={"ada": ["vision"]}, admins=["root"]) as fake:
        client = Client(fake.url, fake.token("ada"))
        client.create_workload({"project": "vision", "name": "x", "command": ["true"]})
        fake.run("vision", "x")
        assert client.get_workload("vision", "x").status.phase == "running"
"""

from carrel.testing.fake import FakeScheduler

__all__ = ["FakeScheduler"]
