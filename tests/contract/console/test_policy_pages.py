"""Policies and templates in the console: the list, the editor, and the form of a submission."""

from collections.abc import AsyncIterator

import pytest

from contract.console.site import Site, Visitor

RULES = "rules:\n  gpus: {max: 2, message: ask Grace}\n"
BOUND = {"value": 2, "policy": "small", "scope": "platform", "message": "ask Grace"}


@pytest.fixture
async def ada(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "ada") as visitor:
        yield visitor


@pytest.fixture
async def root(site: Site) -> AsyncIterator[Visitor]:
    async with Visitor(site, "root") as visitor:
        yield visitor


def typed(**more: str) -> dict[str, str]:
    return {"name": "small", "scope": "platform", "text": RULES, "version": "0"} | more


async def test_a_policy_is_checked_saved_shown_and_deleted(site: Site, root: Visitor) -> None:
    checked = await root.post("policies/edit", typed(action="check"))
    assert "The policy is right; nothing was saved." in checked.words
    assert site.scheduler.documents == {}
    saved = await root.post("policies/edit", typed(action="save"))
    assert "small of platform was saved." in saved.words
    assert "gpus max 2 ask Grace" in saved.words
    edited = await root.get("policies/edit?name=small&scope=platform")
    assert 'name="version" value="1"' in edited.text
    late = await root.post("policies/edit", typed(action="save", version="7"))
    assert (late.status, "changed meanwhile" in late.words) == (422, True)
    gone = await root.post("policies/edit", typed(action="delete", version="1"))
    assert "was deleted" in gone.words
    assert site.scheduler.documents == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules: [", "This cannot be read"),
        ("- a", "This should be a mapping of fields to values."),
        ("rules: {gpuz: {max: 1}}", "rules.gpuz: expected a field"),
    ],
)
async def test_what_is_wrong_is_told_and_nothing_is_lost(
    root: Visitor, text: str, told: str
) -> None:
    page = await root.post("policies/edit", typed(action="save", text=text))
    assert page.status == 422
    assert told in page.words
    assert text.partition(":")[0] in page.text


async def test_who_is_no_admin_reads_and_is_refused(
    site: Site, ada: Visitor, root: Visitor
) -> None:
    await root.post("policies/edit", typed(action="save"))
    page = await ada.get("policies")
    assert "gpus max 2 ask Grace" in page.words
    assert "New policy" not in page.text
    refused = await ada.post("policies/edit", typed(action="save", version="1"))
    assert refused.status == 422
    assert "Only administrators write this" in refused.words


async def test_the_form_shows_rules_first_values_and_locked_fields(
    site: Site, ada: Visitor
) -> None:
    site.scheduler.effective_rules.update(
        {
            "gpus": {"max": BOUND, "default": BOUND | {"value": 2.0}},
            "memory_bytes": {"locked": BOUND | {"value": 2**31, "policy": "tight"}},
        }
    )
    page = await ada.get("submit?kind=training")
    assert "At most 2, says policy small of platform. Ask Grace." in page.words
    assert "Fixed at 2G, says policy <b>tight</b> of platform." in page.text
    gpus = page.text.partition('<input id="gpus"')[2].partition(">")[0]
    memory = page.text.partition('<input id="memory"')[2].partition(">")[0]
    assert ('value="2"' in gpus, "disabled" in gpus) == (True, False)
    assert ('value="2G"' in memory, "disabled" in memory) == (True, True)


async def test_another_project_has_its_own_defaults_and_locked_fields(
    site: Site, ada: Visitor
) -> None:
    default = {"default": BOUND | {"value": 2.0}}
    site.scheduler.project_rules["vision"] = {
        "gpus": default,
        "time_limit_seconds": default | {"default": BOUND | {"value": 3600.0}},
        "memory_bytes": {"locked": BOUND | {"value": 2**31}},
    }
    site.scheduler.project_rules["speech"] = {"gpus": {"default": BOUND | {"value": 1.0}}}
    typed = {"kind": "training", "project": "speech", "filled-for": "vision", "action": "check"}
    page = await ada.post("submit", typed | {"gpus": "2", "time-limit": "7h"})
    fields = {
        name: page.text.partition(f'<input id="{name}"')[2].partition(">")[0]
        for name in ("gpus", "memory", "time-limit")
    }
    assert 'value="1"' in fields["gpus"], "the default of the other project"
    assert ('value=""' in fields["memory"], "disabled" in fields["memory"]) == (True, False)
    assert 'value="7h"' in fields["time-limit"], "what was typed stays"
    assert 'name="filled-for" value="speech"' in page.text
    again = await ada.post("submit", typed | {"filled-for": "speech", "gpus": ""})
    gpus = again.text.partition('<input id="gpus"')[2].partition(">")[0]
    assert 'value=""' in gpus, "who emptied a field of this project left it empty"


async def test_a_form_is_saved_as_a_template_and_filled_from_it(site: Site, ada: Visitor) -> None:
    asked = {
        "name": "nightly",
        "project": "vision",
        "kind": "training",
        "command": "python night.py --all",
        "gpus": "2",
        "volume": "/data:/in:ro",
        "secret": "KEY=hidden",
        "action": "template",
    }
    saved = await ada.post("submit", asked)
    assert "Saved as your template nightly." in saved.words
    document = site.scheduler.documents["templates", "user/ada", "nightly"]
    assert document["kinds"] == ["training"]
    assert document["fields"]["command"] == ["python", "night.py", "--all"]
    assert not {"name", "project", "secret_environment"} & document["fields"].keys()
    filled = await ada.get("submit?kind=training&project=vision&template=nightly")
    assert ">python night.py --all</textarea>" in filled.text
    assert "/data:/in:ro" in filled.text
