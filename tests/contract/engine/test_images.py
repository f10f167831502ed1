"""Tasks in images from a registry of the test's own, as root; hostile layers among them."""

import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from contract.engine.local_engines import AS_ROOT, LocalEngines
from contract.engine_tasks import a_task, output, run

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not AS_ROOT, reason="images need root"),
]
LINK, HARD, DEVICE, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o755) -> Any:
    """One member of a layer."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, mode
    return member


def layer(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A layer with these files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        for member, data in members:
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return archive.getvalue()


class Registry:
    """Images at a port of loopback; ``asked`` counts requests by their last part."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                last = self.path.rpartition("/")[2]
                registry.asked.append(last)
                data = registry.found.get(last)
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            @override
            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _blob(self, data: bytes) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.found[digest] = data
        return {"digest": digest, "size": len(data)}

    def push(self, tag: str, *layers: bytes) -> str:
        """An image of these layers; returns its name."""
        config = {"config": {"Env": ["FROM_IMAGE=yes", "PATH=/own:/bin"]}}
        manifest = {
            "schemaVersion": 2,
            "config": self._blob(json.dumps(config).encode()),
            "layers": [self._blob(one) for one in layers],
        }
        self.found[tag] = json.dumps(manifest).encode()
        return f"127.0.0.1:{self.server.server_port}/team/tool:{tag}"


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry for one test."""
    made = Registry()
    yield made
    made.server.shutdown()
    made.server.server_close()


def shell() -> bytes:
    """A layer with the machine's shell and a few programs, and what they load."""
    with os.popen("ldd /bin/bash /bin/cat /bin/ls /usr/bin/id /bin/touch /bin/stat") as found:
        words = found.read().split()
    files = {word for word in words if word.startswith("/") and not word.endswith(":")}
    members = [(entry(file), Path(file).read_bytes()) for file in sorted(files)]
    names = [f"bin/{name}" for name in ("bash", "cat", "ls", "id", "touch", "stat")]
    members += [(entry(name), Path("/", name).read_bytes()) for name in names]
    return layer(*members, (entry("etc", FOLDER), b""), (entry("only-here", mode=0o644), b"hello"))


async def test_an_image_is_the_root_of_a_task(
    engines: LocalEngines, registry: Registry, tmp_path: Path
) -> None:
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o755)
    name = registry.push("v1", shell())
    engine = await engines.open()
    script = "cat /only-here /data/set; id -un; echo $FROM_IMAGE $PATH; pwd; touch /no; ls ~ /root"
    (tmp_path / "set").write_text(" numbers\n")
    volumes = ((str(tmp_path), "/data"),)
    task = a_task(engines, script, image=name, volumes=volumes, working_dir="/data")
    ended = await run(engine, task)
    assert ended.message == ""
    said = (await output(engine, task)).decode()
    assert said.startswith("hello numbers\nada\nyes /own:/bin\n/data\n"), (ended, said)
    assert "touch: cannot touch '/no'" in said
    assert "/root'" in said, "it is the image's own root"
    again = a_task(engines, "exit 3", image=name, uid="w2")
    assert (await run(engine, again)).exit_code == 3
    assert registry.asked.count("v1") == 1, "it is pulled once"


async def test_at_loopback_each_user_has_images_of_their_own(
    engines: LocalEngines, registry: Registry
) -> None:
    """Whoever answers at a user's loopback decides what the name means, for that user alone."""
    left = engines.root / "images" / "pulling-before"
    left.mkdir(parents=True)
    name = registry.push("v1", shell())
    engine = await engines.open()
    assert (await run(engine, a_task(engines, "cat /only-here", image=name))).exit_code == 0
    assert not left.exists(), "what an earlier process was pulling is removed"
    registry.push("v1", shell(), layer((entry("only-here", mode=0o644), b"another")))
    graces = a_task(engines, "cat /only-here", image=name, uid="w2", user="grace")
    await run(engine, graces)
    assert await output(engine, graces) == b"another"


async def test_hostile_layers_stay_in_their_image(
    engines: LocalEngines, registry: Registry, tmp_path: Path
) -> None:
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o755)
    engine = await engines.open()
    links = layer(
        (entry("out", LINK, "/etc"), b""),
        (entry("data", LINK, "/oldroot/tmp"), b""),
        (entry("setuid", mode=0o6755), b"x"),
        (entry("device", DEVICE), b""),
        (entry("kept/low"), b""),
    )
    through = layer(
        (entry("out/carrel-victim"), b"evil"),
        (entry("kept/.wh.low"), b""),
        (entry("kept/high"), b""),
    )
    name = registry.push("v1", shell(), links, through)
    script = "stat -c %a /setuid; ls /device; ls /kept; cat /etc/carrel-victim"
    task = a_task(engines, script, image=name)
    assert (await run(engine, task)).message == ""
    said = (await output(engine, task)).decode()
    assert "755\n" in said
    assert "cannot access '/device'" in said
    assert "high\n" in said
    assert "low\n" not in said
    assert said.endswith("evil"), "links of an image lead to its own files"
    assert not Path("/etc/carrel-victim").exists()
    mounted = a_task(engines, "true", image=name, uid="w2", volumes=((str(tmp_path), "/data/x"),))
    assert "leads nowhere" in (await run(engine, mounted)).message
    for number, member in enumerate(
        (entry("../up"), entry("hard", HARD, "../../../etc/shadow"), entry("a/.wh.."))
    ):
        name = registry.push(f"bad-{number}", layer((member, b"")))
        ended = await run(engine, a_task(engines, "true", uid=f"b{number}", image=name))
        assert ended.message.startswith("image="), "it fails at once"
        assert "cannot be unpacked" in ended.message


@pytest.mark.parametrize(("tag", "why"), [("none", "404 Not Found"), ("forged", "digest")])
async def test_what_cannot_be_pulled_says_why(
    engines: LocalEngines, registry: Registry, tag: str, why: str
) -> None:
    name = registry.push("forged", layer((entry("a"), b"")))
    forged = json.loads(registry.found["forged"])["layers"][0]["digest"]
    registry.found[forged] = registry.found[forged][:-1] + b"!"
    engine = await engines.open()
    task = a_task(engines, "true", image=name.replace("forged", tag))
    ended = await run(engine, task)
    assert ended.message.startswith("image="), "it fails at once"
    assert why in ended.message
