"""Notes of policies at fields of a submission form: what is filled in and why, what is fixed."""

from carrel_hub.console import policy_notes
from carrel_hub.console.forms import Form
from carrel_hub.console.policy_notes import PolicyNote
from carrel_schema.governance.policies import Bound, EffectivePolicy, EffectiveRule


def bound(value: object, *, scope: str = "platform", message: str = "ask Grace") -> Bound:
    return Bound(value=value, policy="small", scope=scope, message=message)


def notes(**rules: EffectiveRule) -> dict[str, PolicyNote]:
    """The notes of a training's form; ``__`` stands for a dot."""
    found = {name.replace("__", "."): rule for name, rule in rules.items()}
    return policy_notes.notes_of("training", EffectivePolicy(project="vision", rules=found))


def test_a_default_is_filled_in_with_its_reason() -> None:
    found = notes(assets__compute=EffectiveRule(default=bound("half", scope="project/vision")))
    assert found == {
        "compute": PolicyNote(
            text="Filled in with half, says policy `small` of project/vision.",
            first="half",
            scope="project/vision",
        )
    }


def test_of_several_data_sources_each_is_on_a_line() -> None:
    found = notes(assets__data_sources=EffectiveRule(default=bound(["cells", "nuclei"])))
    assert found["data"].first == "cells\nnuclei"
    assert found["data"].text == "Filled in with cells, nuclei, says policy `small` of platform."


def test_bounds_follow_the_default_and_carry_the_message() -> None:
    found = notes(gpus=EffectiveRule(default=bound(1.0), max=bound(2.0)))
    assert found["gpus"].first == "1"
    assert found["gpus"].text == (
        "Filled in with 1, says policy `small` of platform. "
        "At most 2, says policy `small` of platform. Ask Grace."
    )


def test_a_locked_field_is_fixed_and_filled_in_again() -> None:
    found = notes(
        assets__environment=EffectiveRule(locked=bound("torch"), default=bound("other")),
        assets__compute=EffectiveRule(default=bound("half")),
    )
    assert found["environment-asset"].locked
    assert found["environment-asset"].text == (
        "Fixed at torch, says policy `small` of platform. Ask Grace."
    )
    assert policy_notes.locked_scopes(found) == {"environment-asset": "platform"}
    new, sent = Form({}), Form({"environment-asset": "mine", "compute": ""})
    policy_notes.fill(new, found)
    policy_notes.fill_locked(sent, found)
    assert new.values == {"environment-asset": "torch", "compute": "half"}
    assert sent.values == {"environment-asset": "torch", "compute": ""}


def test_fields_that_the_form_does_not_have_get_no_note() -> None:
    assert notes(assets__nothing=EffectiveRule(default=bound("half"))) == {}
