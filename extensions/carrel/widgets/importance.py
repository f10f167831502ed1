"""How much each parameter alone says about the result: a share of its variance. Pure.

Values of the result are ranked (one bad outlier would be all the variance otherwise), trials are
put into a few groups of equal size along a parameter (or one for each choice), and the share is
what lies between the groups' means of all that varies, less what chance alone would put there
(epsilon squared). Interactions of parameters are not seen; optuna's own tools read the study and
have finer measures.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

FEWEST: Final = 8
GROUPS: Final = 4


def importance(trials: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, float]:
    """The share (0 to 1) of the result's variance that each parameter explains, largest first.

    Args:
        trials: parameters and result of each completed trial.

    Returns:
        Empty with fewer than 8 trials, or when all results are the same.
    """
    if len(trials) < FEWEST:
        return {}
    ranks = _ranks([value for _, value in trials])
    shares: dict[str, float] = {}
    for name in dict.fromkeys(name for parameters, _ in trials for name in parameters):
        known = [(one[name], rank) for (one, _), rank in zip(trials, ranks, strict=True)
                 if name in one]  # fmt: skip
        if len(known) >= FEWEST:
            shares[name] = _explained(_grouped(known))
    if not any(shares.values()):
        return {}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in order of size; equal values share the mean of theirs."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _grouped(known: Sequence[tuple[Any, float]]) -> list[list[float]]:
    """The results by choice, or by quarters of a number's range in the order of its size."""
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool)
                  for value, _ in known)  # fmt: skip
    if not numeric or len({value for value, _ in known}) <= GROUPS:
        groups: dict[Any, list[float]] = {}
        for value, rank in known:
            groups.setdefault(str(value), []).append(rank)
        return list(groups.values())
    ordered = [rank for _, rank in sorted(known, key=lambda pair: pair[0])]
    size, left = divmod(len(ordered), GROUPS)
    ends = [index * size + min(index, left) for index in range(GROUPS + 1)]
    return [ordered[begin:end] for begin, end in pairwise(ends)]


def _explained(groups: Sequence[Sequence[float]]) -> float:
    """Epsilon squared, 0 where chance explains as much."""
    everything = [value for group in groups for value in group]
    count, kinds = len(everything), len(groups)
    if kinds < 2 or count <= kinds:
        return 0.0
    mean = sum(everything) / count
    total = sum((value - mean) ** 2 for value in everything)
    between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups)
    if total == 0:
        return 0.0
    by_chance = (kinds - 1) * (total - between) / (count - kinds)
    return round(max(0.0, (between - by_chance) / total), 3)
