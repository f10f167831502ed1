"""Optuna's distributions, samplers and pruners for a search space.

* A sampler is made anew for each trial, seeded by experiment and number: a scheduler that was
  killed in between draws what it would have drawn.
* ``DistinctSampler`` wraps every sampler that may repeat itself: in a finite space each
  configuration is tried once.
* A grid is Optuna's own, whose trial n is the n-th configuration of a shuffled list.

Importing this takes long (Optuna): done in a thread, when the first study is opened.
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import (
    BaseSampler,
    CmaEsSampler,
    GridSampler,
    RandomSampler,
    TPESampler,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from carrel_schema.sections import ExperimentSpec, Parameter

TRIES: Final = 20
MOST_LISTED: Final = 100_000
Space = Mapping[str, BaseDistribution]
Key = tuple[float, ...]


def distribution(parameter: Parameter) -> BaseDistribution:
    """A parameter as an Optuna distribution; ``high`` is lowered to a value on the steps."""
    if parameter.type == "categorical":
        return CategoricalDistribution(parameter.choices)
    low, high = parameter.low or 0.0, parameter.high or 0.0
    if parameter.step is not None:
        high = _reachable(low, high, parameter.step)
    if parameter.type == "int":
        step = 1 if parameter.step is None else int(parameter.step)
        return IntDistribution(int(low), int(high), log=parameter.log, step=step)
    return FloatDistribution(low, high, log=parameter.log, step=parameter.step)


def _reachable(low: float, high: float, step: float) -> float:
    first, last, by = Decimal(str(low)), Decimal(str(high)), Decimal(str(step))
    return float(first + (last - first) // by * by)


def count(one: BaseDistribution) -> float:
    """The number of values of a parameter; infinity when they cannot be counted."""
    if isinstance(one, CategoricalDistribution):
        return len(one.choices)
    if isinstance(one, IntDistribution):
        return (one.high - one.low) // one.step + 1
    if isinstance(one, FloatDistribution) and (one.step is not None or one.single()):
        return 1.0 if one.step is None else round((one.high - one.low) / one.step) + 1
    return math.inf


def values(one: BaseDistribution) -> Sequence[Any]:
    """All values of a parameter with few values."""
    if isinstance(one, CategoricalDistribution):
        return one.choices
    if isinstance(one, IntDistribution):
        return range(one.low, one.high + 1, one.step)
    if isinstance(one, FloatDistribution):
        step = one.step or 0.0
        return [min(one.high, one.low + place * step) for place in range(int(count(one)))]
    raise TypeError(type(one).__name__)


def size(space: Space) -> float:
    """The number of configurations; infinity when they cannot be counted."""
    return math.prod(count(one) for one in space.values())


def key(space: Space, parameters: Mapping[str, Any]) -> Key:
    """The key of a configuration."""
    return tuple(space[name].to_internal_repr(parameters[name]) for name in sorted(space))


class Grid(GridSampler):
    """Optuna's grid sampler for trials that are requested one by one."""

    @override
    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """No effect: there is no loop to stop; the controller sees that the grid is exhausted."""


class DistinctSampler(BaseSampler):
    """A sampler that skips the configurations that were made before."""

    def __init__(self, inner: BaseSampler, space: Space, made: set[Key], seed: int) -> None:
        self._inner, self._space, self._made = inner, space, made
        self._chance = random.Random(seed)  # noqa: S311 - a seeded draw, no secret
        self._size = size(space)

    @override
    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    @override
    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return dict(self._space)

    @override
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        drawn = self._draw(study, trial)
        for _ in range(TRIES):
            if key(self._space, drawn) not in self._made:
                return drawn
            drawn = self._draw(study, trial)
        return drawn if self._size > MOST_LISTED else self._left()

    @override
    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def _draw(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        together = self._inner.infer_relative_search_space(study, trial)
        drawn = self._inner.sample_relative(study, trial, together)
        for name, one in self._space.items():
            if name not in drawn:
                drawn[name] = self._one(study, trial, name, one)
        return drawn

    def _one(self, study: Study, trial: FrozenTrial, name: str, one: BaseDistribution) -> Any:
        if one.single():
            return values(one)[0]
        return self._inner.sample_independent(study, trial, name, one)

    def _left(self) -> dict[str, Any]:
        """A configuration that was never drawn; the caller knows that there are some."""
        names = sorted(self._space)
        listed = (values(self._space[name]) for name in names)
        left = [
            found
            for row in itertools.product(*listed)
            if key(self._space, found := dict(zip(names, row, strict=True))) not in self._made
        ]
        return self._chance.choice(left)


def sampler(
    spec: ExperimentSpec, space: Space, number: int, seed: int, made: set[Key]
) -> BaseSampler:
    """The sampler of one trial."""
    if spec.sampler == "grid":
        return Grid({name: list(values(one)) for name, one in space.items()}, seed % 2**32)
    drawn = random.Random(f"{seed}/{number}").randrange(2**32)  # noqa: S311 - no secret
    inner: BaseSampler
    if spec.sampler == "random":
        inner = RandomSampler(seed=drawn)
    elif spec.sampler == "cmaes":
        inner = CmaEsSampler(
            seed=drawn,
            warn_independent_sampling=False,
            independent_sampler=RandomSampler(seed=drawn),
        )
    else:
        inner = TPESampler(seed=drawn)
    return DistinctSampler(inner, space, made, drawn) if space else inner


def pruner(spec: ExperimentSpec) -> BasePruner:
    """The pruner of an experiment."""
    if spec.pruner == "median":
        return MedianPruner()
    return HyperbandPruner() if spec.pruner == "hyperband" else NopPruner()
