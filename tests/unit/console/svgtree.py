"""Reading pictures back: they are well-formed XML, or the test fails."""

from xml.etree import ElementTree as ET


def parse(markup: str) -> ET.Element:
    """The tree of a picture or of a piece of HTML that is also XML."""
    return ET.fromstring(markup)


def classes(root: ET.Element) -> list[str]:
    """The classes of all elements, in order."""
    return [element.get("class", "") for element in root.iter()]


def with_class(root: ET.Element, name: str) -> list[ET.Element]:
    """The elements that carry this class."""
    return [one for one in root.iter() if name in one.get("class", "").split()]


def words(root: ET.Element) -> str:
    """The text, blanks squeezed."""
    return " ".join(" ".join(root.itertext()).split())
