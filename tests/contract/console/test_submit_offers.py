"""What the form of a submission offers, what it says is usual, and what would happen now."""

import re
from collections.abc import AsyncIterator

import pytest

from contract.console.site import Site, Visitor

GIB = 1024**3


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "ada") as visitor:
        yield visitor


def asset(site: Site, kind: str, name: str, scope: str, **more: object) -> None:
    """Something to choose."""
    found = {"type": kind, "name": name, "scope": scope, **more}
    site.scheduler.assets[kind, scope, name] = found


def selected(page: str, name: str) -> list[str]:
    """The values of a list of choices."""
    found = re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL)
    assert found is not None, name
    return re.findall(r'<option value="([^"]+)"', found[0])


async def test_nothing_is_offered_that_is_not_there(ada: Visitor) -> None:
    page = await ada.get("submit")
    for name in ("environment-asset", "compute", "data", "node-group"):
        assert f'name="{name}"' not in page.text
    assert 'list="gpu-type-known"' in page.text
    assert '<option value="Simulated A10">' in page.text


async def test_assets_are_chosen_and_sent(site: Site, ada: Visitor) -> None:
    asset(site, "environment", "torch", "platform", description="PyTorch 2")
    asset(site, "environment", "theirs", "project/speech")
    asset(site, "compute", "two", "project/vision")
    for name in ("cells", "nuclei"):
        asset(site, "data-source", name, "user/ada")
    page = await ada.get("submit")
    assert "torch: PyTorch 2 (platform)" in page.words
    assert selected(page.text, "environment-asset") == ["torch"]
    typed = {"project": "vision", "command": "python t.py", "name": "put-together"}
    chosen = {"environment-asset": "torch", "compute": "two", "data": "cells"}
    assert (await ada.post("submit", typed | chosen)).status == 200
    made = site.scheduler.workload("vision", "put-together")["spec"]["assets"]
    assert made["environment"] == "torch"
    assert made["compute"] == "two"
    assert made["data_sources"] == ["cells"]
    again = (await ada.get("submit?again=vision/put-together")).text
    assert re.search(r'<option value="torch" selected>', again)
    assert re.search(r'value="cells" checked', again)
    assert not re.search(r'value="nuclei" checked', again)
    changed = {"again": "vision/put-together", "environment-asset": "torch", "name": "less"}
    assert (await ada.post("submit", typed | changed)).status == 200
    assert site.scheduler.workload("vision", "less")["spec"]["assets"] == {
        "environment": "torch",
        "compute": None,
        "data_sources": [],
    }


async def test_what_default_templates_say_is_what_is_usual(site: Site, ada: Visitor) -> None:
    for scope, gpus in (("platform", 1), ("project/vision", 2), ("project/speech", 3)):
        template = {"name": "base", "scope": scope, "default": True, "fields": {"gpus": gpus}}
        site.scheduler.documents["templates", scope, "base"] = template
    page = await ada.get("submit?project=vision")
    assert "By default 2, says the template base." in page.words
    assert re.search(r'name="gpus" value="" placeholder="2"', page.text)


async def test_fields_begin_empty_and_say_what_is_taken(ada: Visitor) -> None:
    page = await ada.get("submit")
    for name, usual in (("gpus", "0"), ("cpu", "100m"), ("memory", "1G")):
        assert f'name="{name}" value="" placeholder="{usual}"' in page.text
        assert f"By default {usual}." in page.words


async def test_only_what_is_wrong_or_filled_in_is_unfolded(ada: Visitor) -> None:
    folded = "<details><summary>{}</summary>"
    page = await ada.post("submit", {"project": "vision", "command": "x", "grace-period": "long"})
    assert page.status == 422
    assert folded.format("Surroundings") in page.text
    assert folded.format("Its turn and its end") not in page.text


async def test_it_says_what_would_happen_before_it_is_submitted(site: Site, ada: Visitor) -> None:
    typed = {"project": "vision", "gpus": "1", "action": "check"}
    page = await ada.post("submit", typed)
    assert page.status == 200
    assert "Submitted now: It would start now." in page.words
    assert "GPUs of vision: 4 of 4 guaranteed · 1.5 borrowed · 5 pending" in page.words
    assert "The project never gets more than 8 GPUs" in page.words
    assert ("POST", "/workloads") in site.scheduler.requests
    unfit = await ada.post("submit", typed | {"gpus": "many"})
    assert "is shown when the form is complete" in unfit.words
    assert "This should be" not in unfit.words
    refused = await ada.post("submit", typed | {"project": "speech"})
    assert "It would be refused: You are not a member of" in refused.words
    again = await ada.post("submit", typed | {"again": "vision/train-8"})
    assert "Submitted now: It would start now." in again.words


async def test_reading_the_form_writes_nothing(site: Site, ada: Visitor) -> None:
    await ada.get("submit?again=vision/train-8")
    assert {method for method, _ in site.scheduler.requests} == {"GET"}
