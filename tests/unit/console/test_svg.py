"""The builder of pictures, and the states' words and icons."""

from carrel_hub.console.pictures.states import STATES, badge, state_of
from carrel_hub.console.pictures.svg import element, percent, shared_definitions
from unit.console import svgtree

HOSTILE = "\"><script>alert('x')</script>&"


def test_elements_escape_texts_and_attributes() -> None:
    made = element("text", HOSTILE, class_=HOSTILE, aria_label=HOSTILE, fill=None, x=1.5)
    root = svgtree.parse(made)
    assert root.text == HOSTILE
    assert root.attrib == {"class": HOSTILE, "aria-label": HOSTILE, "x": "1.5"}


def test_percentages_stay_inside() -> None:
    assert percent(1, 3) == "33.33%"
    assert percent(5, 4) == "100%"
    assert percent(-1, 4) == "0%"
    assert percent(1, 0) == "0%"


def test_the_hatch_is_defined() -> None:
    root = svgtree.parse(shared_definitions())
    assert [one.get("id") for one in root.iter("pattern")] == ["hatch"]


def test_every_state_has_its_own_word_and_an_icon() -> None:
    assert len({state.word for state in STATES.values()}) == len(STATES)
    for phase, state in STATES.items():
        root = svgtree.parse(badge(phase))
        assert state.word in svgtree.words(root)
        assert state.tone in root.get("class", "")
        assert root.find("svg/path") is not None
    assert state_of("dancing").word == "dancing"
