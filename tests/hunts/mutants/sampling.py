"""Samples of mutants, the same for the same seed.

A module is drawn by its number of lines, then one of its places that has not been drawn, then one
of the faults there: many ways to change one comparison do not make it weigh more.
"""

import random
from fnmatch import fnmatch
from pathlib import Path

from hunts.mutants.making import Mutant, Site, mutant, sites


def modules(core: Path, pattern: str) -> list[str]:
    """Paths below the core that match, in order; ``actions/allocate.py`` is one."""
    found = (path.relative_to(core).as_posix() for path in sorted(core.rglob("*.py")))
    return [
        module for module in found if fnmatch(module, pattern) or fnmatch(module, f"{pattern}.py")
    ]


def sample(core: Path, pattern: str, size: int, seed: int) -> list[Mutant]:
    """So many mutants of the matching modules, or one of every place when there are fewer."""
    dice = random.Random(seed)
    places = {name: found for name in modules(core, pattern) if (found := sites(core, name))}
    lines = {name: len((core / name).read_text(encoding="utf-8").splitlines()) for name in places}
    chosen: list[Mutant] = []
    while places and len(chosen) < size:
        name = dice.choices(list(places), [lines[name] for name in places])[0]
        drawn = _draw(dice, core, places[name])
        if drawn is not None:
            chosen.append(drawn)
        if not places[name]:
            del places[name]
    return sorted(chosen, key=lambda one: (one.module, one.line, one.operator, one.occurrence))


def _draw(dice: random.Random, core: Path, left: list[Site]) -> Mutant | None:
    """Draw a mutant of a place, and take the place off the list."""
    place = left.pop(dice.randrange(len(left)))
    faults = list(place.faults)
    dice.shuffle(faults)
    made = (mutant(core, place, fault) for fault in faults)
    return next((one for one in made if one is not None), None)
