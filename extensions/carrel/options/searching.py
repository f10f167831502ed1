"""Options of experiments."""

from typing import Final

from carrel.options import search_space, values
from carrel.options.option import Option, Surface, of_field

GROUP: Final = "Experiments"
EXPERIMENT: Final = frozenset({"experiment"})
SPACE: Final = values.OptionValue(search_space.parse, "NAME=SPACE", "object")

EXPERIMENTS: Final = (
    Option("experiment", "Try configurations of the command and keep the best.", GROUP,
           kinds=EXPERIMENT, surfaces=Surface.CLI),
    Option("param", "A hyperparameter: lr=log:1e-5..1e-1, layers=int:1..4, drop=0.0..0.5:0.1, "
           "opt=adam,sgd; may be repeated.", GROUP, SPACE, ("experiment.parameters",), EXPERIMENT,
           many="mapping"),
    *(of_field(name.replace("_", "-"), GROUP, f"experiment.{name}", kinds=EXPERIMENT)
      for name in ("completions", "parallelism", "metric", "direction", "sampler", "pruner", "seed",
                   "max_failed_trials", "trial_process")),
)  # fmt: skip
