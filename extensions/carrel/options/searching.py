"""Options of experiments."""

from functools import partial
from typing import Final

from carrel.options import search_space, values
from carrel.options.option import Option, Surface

GROUP: Final = "Experiments"
EXPERIMENT: Final = frozenset({"experiment"})
SPACE: Final = values.Value(search_space.parse, "NAME=SPACE", "object")
whole = partial(values.whole, 1)

EXPERIMENTS: Final = (
    Option("experiment", "Try configurations of the command and keep the best.", GROUP,
           kinds=EXPERIMENT, surfaces=Surface.CLI),
    Option("param", "A hyperparameter: lr=log:1e-5..1e-1, layers=int:1..4, drop=0.0..0.5:0.1, "
           "opt=adam,sgd; may be repeated.", GROUP, SPACE, ("experiment.parameters",), EXPERIMENT,
           many="mapping"),
    Option("completions", "How many trials in all.", GROUP, whole(100_000),
           ("experiment.completions",), EXPERIMENT, default=10),
    Option("parallelism", "How many trials at once.", GROUP, whole(1000),
           ("experiment.parallelism",), EXPERIMENT, default=1),
    Option("metric", "The reported value that counts.", GROUP, values.text("NAME"),
           ("experiment.metric",), EXPERIMENT, default="objective"),
    Option("direction", "Whether less or more of it is better.", GROUP,
           values.choice("minimize", "maximize"), ("experiment.direction",), EXPERIMENT,
           default="minimize"),
    Option("sampler", "How configurations are chosen.", GROUP,
           values.choice("tpe", "random", "grid", "cmaes"), ("experiment.sampler",), EXPERIMENT,
           default="tpe"),
    Option("pruner", "What ends trials early that look bad.", GROUP,
           values.choice("none", "median", "hyperband"), ("experiment.pruner",), EXPERIMENT,
           default="none"),
    Option("seed", "Of the sampler: the same seed, the same configurations.", GROUP,
           values.whole(0, 2**32 - 1), ("experiment.seed",), EXPERIMENT),
    Option("max-failed-trials", "The experiment ends when more have crashed.", GROUP,
           values.whole(0, 100_000), ("experiment.max_failed_trials",), EXPERIMENT, default=3),
)  # fmt: skip
