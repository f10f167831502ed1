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


def default(value: object, scope: str = "platform", **more: object) -> dict[str, object]:
    """A part of what policies say of a field."""
    return {"value": value, "policy": "usual", "scope": scope, "message": "", **more}


def ticked(page: str, name: str) -> list[str]:
    """The values that are ticked of a list of boxes."""
    return re.findall(rf'name="{name}" value="([^"]+)" checked', page)


async def test_assets_that_policies_name_are_filled_in_with_the_reason(
    site: Site, ada: Visitor
) -> None:
    asset(site, "compute", "half", "platform")
    for name in ("cells", "nuclei", "words"):
        asset(site, "data-source", name, "platform")
    site.scheduler.effective_rules["assets.compute"] = {"default": default("half")}
    site.scheduler.effective_rules["assets.data_sources"] = {
        "default": default(["cells", "nuclei"], "project/vision")
    }
    page = await ada.get("submit?project=vision")
    assert re.search(r'<option value="half" selected>', page.text)
    assert "Filled in with half, says policy usual of platform." in page.words
    assert ticked(page.text, "data") == ["cells", "nuclei"]
    told = "Filled in with cells, nuclei, says policy usual of project/vision."
    assert told in page.words
    typed = {"project": "vision", "command": "x", "name": "own", "compute": "", "data": "words"}
    assert (await ada.post("submit", typed)).status == 200
    made = site.scheduler.workload("vision", "own")["spec"]["assets"]
    assert (made.get("compute"), made["data_sources"]) == (None, ["words"])


async def test_a_locked_asset_is_shown_and_cannot_be_changed(site: Site, ada: Visitor) -> None:
    """Also after a refusal: browsers do not send what is disabled."""
    asset(site, "environment", "torch", "platform", description="PyTorch of the platform")
    asset(site, "environment", "torch", "user/ada", description="PyTorch of my own")
    site.scheduler.effective_rules["assets.environment"] = {"locked": default("torch")}
    site.scheduler.effective_rules["assets.data_sources"] = {"locked": default(["hidden"])}
    refused = {"project": "vision", "command": "x", "gpus": "many"}
    for page in (await ada.get("submit"), await ada.post("submit", refused)):
        field = page.text.partition('<select id="environment-asset"')[2].partition("</select>")[0]
        assert " disabled>" in field.partition("\n")[0]
        assert re.search(r'<option value="torch" selected>torch: PyTorch of the platform', field)
        assert "my own" not in field
        assert "Fixed at torch, says policy usual of platform." in page.words
        assert re.search(r'name="data" value="hidden" checked disabled>', page.text)


async def test_an_asset_that_has_to_be_named_is_asked_for_though_none_is_there(
    site: Site, ada: Visitor
) -> None:
    site.scheduler.effective_rules["assets.compute"] = {"required": default(value=True)}
    page = await ada.get("submit")
    assert '<select id="compute"' in page.text
    assert "Has to be given, says policy usual of platform." in page.words
    assert '<select id="environment-asset"' not in page.text
