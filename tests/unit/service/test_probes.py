"""Whether other parts answer."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from carrel_scheduler.service import probes
from carrel_scheduler.service.probes import PartProbes


@dataclass
class Places:
    """The settings that addresses follow from."""

    hub_api_url: str = "http://127.0.0.1:8081/hub/api"
    front_url: str = ""
    gateway_url: str = ""


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (Places(), {"Hub": "http://127.0.0.1:8081/hub/api/"}),
        (
            Places(
                front_url="https://127.0.0.1:443/", gateway_url="http://g:8091/services/gateway"
            ),
            {
                "Hub": "http://127.0.0.1:8081/hub/api/",
                "proxy": "https://127.0.0.1:443/hub/api/",
                "gateway": "http://g:8091/services/gateway/health",
            },
        ),
    ],
)
def test_parts_with_an_address_are_asked(places: Places, expected: dict[str, str]) -> None:
    assert probes.addresses(places) == expected  # type: ignore[arg-type]  # what it reads of them


async def test_answers_are_kept_by_part() -> None:
    asked: dict[str, Mapping[str, str]] = {}

    async def ask(url: str, headers: Mapping[str, str]) -> str:
        asked[url] = headers
        return "answered 502" if url == "http://hub" else ""

    parts = PartProbes({"Hub": "http://hub", "proxy": "http://front"}, "carrel.example.org", ask)
    assert parts.found == {}
    await parts.once()
    assert parts.found == {"Hub": "answered 502", "proxy": ""}
    assert asked["http://front"] == {"Host": "carrel.example.org"}
    assert asked["http://hub"] == {}
