"""Names of modules and public classes are made of the glossary's terms and of plain English words.

The plain words are listed beside this test. A new word belongs there if every engineer knows it
with the meaning that it has in the name; a term of the trade belongs in ``docs/glossary.md``.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("hub", "spawner", "scheduler", "extensions")
ENDINGS = ("", "s", "es", "d", "ed", "r", "er", "or", "ing", "ion", "able")


def _rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return rows[2:]


def _terms() -> set[str]:
    return {word for row in _rows() for word in re.findall(r"[a-z]+", row[0].lower())}


def _plain_words() -> set[str]:
    return set((Path(__file__).parent / "plain_words.txt").read_text().split())


def _names() -> Iterator[tuple[str, str]]:
    """Each module, package and public class, with where it stands."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            where = file.relative_to(ROOT)
            for part in where.with_suffix("").parts[1:]:
                yield part, str(where)
            for node in ast.parse(file.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, f"{where}, class {node.name}"


def _words(name: str) -> list[str]:
    if name.islower() or "_" in name:
        return re.findall(r"[a-z]+", name)
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", name)]


def _stems(word: str) -> Iterator[str]:
    """What the word may be a form of: queued, queues and queueing are forms of queue."""
    for ending in ENDINGS:
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            yield from (stem, stem + "e", stem + "y")
            if stem[-2:-1] == stem[-1:]:
                yield stem[:-1]


def test_names_are_made_of_terms_and_plain_words() -> None:
    known = _terms() | _plain_words()
    unknown = {
        f"{word} ({where})"
        for name, where in _names()
        for word in _words(name)
        if known.isdisjoint(_stems(word))
    }
    assert not unknown, "neither in docs/glossary.md nor in plain_words.txt: " + ", ".join(
        sorted(unknown)
    )


def test_no_plain_word_is_listed_in_vain() -> None:
    used = {stem for name, _ in _names() for word in _words(name) for stem in _stems(word)}
    needless = sorted((_plain_words() - used) | (_plain_words() & _terms()))
    assert not needless, "no name is made of them, or they are terms: " + " ".join(needless)


def test_the_glossary_is_sorted_and_whole() -> None:
    rows = _rows()
    terms = [row[0].lower() for row in rows]
    assert terms == sorted(terms, key=lambda term: term.replace("-", " "))
    assert len(terms) == len(set(terms))
    assert all(len(row) == 3 and all(row) for row in rows)
