"""A Prometheus that runs the configuration of the documents against a ``carrel up``.

Its folder has what ``docs/monitoring.md`` says: the two files of the component, and the token. Only
what a test cannot wait for is changed: targets have the port of the tests, scrapes and evaluations
come every second, and what a rule has to last for (``for``) is a second where it is longer.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import requests
import yaml

from benchmarks.ports import free_port
from e2e.stack import until

COMPONENT: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "components" / "monitoring"
CONFIGURATION: Final = COMPONENT / "prometheus" / "prometheus.yml"
RULES: Final = COMPONENT / "prometheus" / "rules.yml"
DOCUMENTED_PORT: Final = "8000"
START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 20.0


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as Prometheus has it: ``pending`` or ``firing``."""

    labels: dict[str, str]
    annotations: dict[str, str]
    state: str

    @property
    def name(self) -> str:
        """The name of its rule."""
        return self.labels["alertname"]


class Prometheus:
    """The real program, in a folder of its own. Use as a context manager."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder, self._port = program, folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, carrel_port: int, token: str) -> None:
        """Write its folder as the page says for one machine."""
        told = CONFIGURATION.read_text().replace(f":{DOCUMENTED_PORT}", f":{carrel_port}")
        found = yaml.safe_load(told)
        found["global"] |= {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        }
        rules = yaml.safe_load(RULES.read_text())
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            if rule["for"] != "0s":
                rule["for"] = "1s"
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(found))
        (self._folder / "rules.yml").write_text(yaml.safe_dump(rules))
        secret = self._folder / "carrel-token"
        secret.touch(mode=0o400)
        secret.write_text(token)

    def __enter__(self) -> Self:
        command = [
            *(str(self._program), f"--config.file={self._folder / 'prometheus.yml'}"),
            f"--web.listen-address=127.0.0.1:{self._port}",
            *(f"--storage.tsdb.path={self._folder / 'data'}", "--log.level=warn"),
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"}
            )
        try:
            until(self._is_ready, seconds=START_SECONDS, every=0.1, why="Prometheus gets ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(START_SECONDS)

    @property
    def log(self) -> str:
        """The log of Prometheus."""
        return (self._folder / "prometheus.log").read_text()

    def find(self, query: str) -> list[dict[str, Any]]:
        """The series that an instant query finds; a number counts as one."""
        return _series(self._ask("query", {"query": query}))

    def find_over(self, query: str, begin: float, end: float) -> list[dict[str, Any]]:
        """The series that a query finds in a range of time, as a chart asks for it."""
        asked = {"query": query, "start": begin, "end": end, "step": 1}
        return _series(self._ask("query_range", asked))

    def values(self, label: str, metric: str = "") -> Sequence[str]:
        """The values of a label, of all metrics or of one."""
        asked = {"match[]": metric} if metric else {}
        found: list[str] = self._ask(f"label/{label}/values", asked)
        return found

    def targets(self) -> Mapping[str, str]:
        """The health of each scrape job: ``up``, ``down`` or ``unknown``."""
        active = self._ask("targets", {"state": "active"})["activeTargets"]
        return {one["scrapePool"]: one["health"] for one in active}

    def groups(self) -> Mapping[str, list[dict[str, Any]]]:
        """The rules of each group, with their health and what went wrong."""
        return {one["name"]: one["rules"] for one in self._ask("rules", {})["groups"]}

    def alerts(self) -> list[Alert]:
        """The alerts whose condition holds."""
        return msgspec.convert(self._ask("alerts", {})["alerts"], list[Alert])

    def firing(self, name: str) -> list[Alert]:
        """The alerts of a rule that fire."""
        return [one for one in self.alerts() if one.name == name and one.state == "firing"]

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        try:
            answer = requests.get(f"http://127.0.0.1:{self._port}/-/ready", timeout=ANSWER_SECONDS)
        except requests.ConnectionError:
            return False
        return answer.status_code == 200

    def _ask(self, what: str, asked: Mapping[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}"
        answer = requests.get(url, params=dict(asked), timeout=ANSWER_SECONDS)
        told = answer.json()
        assert told["status"] == "success", f"{json.dumps(dict(asked))}: {told}"
        assert not told.get("warnings"), f"{json.dumps(dict(asked))}: {told['warnings']}"
        return told["data"]


def _series(found: dict[str, Any]) -> list[dict[str, Any]]:
    if found["resultType"] == "scalar":
        return [{"metric": {}, "value": found["result"]}]
    return list(found["result"])
