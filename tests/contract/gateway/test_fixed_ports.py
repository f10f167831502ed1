"""A port that its owner named, and that somebody has already."""

import json
import socket
from pathlib import Path

from contract.gateway.running import SERVER, gateway_site, until


async def test_a_named_port_is_reached_and_a_taken_one_is_refused_in_words(tmp_path: Path) -> None:
    async with gateway_site(tmp_path) as served:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            body = {
                "project": "vision",
                "command": ["python", "server.py"],
                "files": {"server.py": SERVER.read_text()},
                "routes": [{"port": port}, {"name": "other"}],
                "backoff_limit": 0,
                "grace_seconds": 2,
            }
            await served.api("POST", "/workloads", body=body | {"name": "refused"})
            failed = await served.until("refused", lambda one: one["phase"] == "failed")
            assert f"port {port} is used already" in failed["reason"]["sentence"]
        await served.api("POST", "/workloads", body=body | {"name": "board"})
        answer = await until(
            lambda: served.ask("GET", "vision/board/x"), lambda found: found[0] == 200, "board"
        )
        assert json.loads(answer[1])["path"] == "/x"
        status = await served.status("board")
        ports = status["tasks"][0]["ports"]
        assert (ports["main"], len(ports)) == (port, 2)
        refused, _, headers = await served.ask("GET", "vision/board/~other/")
        assert (refused, int(headers["Retry-After"]) > 0) == (503, True)
        await served.api("DELETE", "/workloads/vision/board")
