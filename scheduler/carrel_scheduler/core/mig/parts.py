"""What part of a GPU an instance is, by the name of its profile alone.

Where somebody else divides the GPUs, the model of a GPU is not always known; its profiles are. Of
models that share a name the smallest part counts. A profile of no known model counts by the
instance's compute slices, as on models with eight memory slots; a compute instance counts as its
slices of the instance that it is in.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from carrel_scheduler.core.mig.models import MEDIA, MODELS
from carrel_scheduler.core.resources import MILLI

FORM: Final = "(([1-7])c[.])?(([1-7])g[.][1-9][0-9]*gb)([.+-][a-z.]+)?"
"""How a profile is written."""
_NAME: Final = re.compile(FORM)
_BY_COMPUTE: Final[Mapping[int, int]] = MappingProxyType({1: 125, 2: 250, 3: 500, 4: 500, 7: 1000})
EXPECTED: Final = "a MIG profile as nodes offer it, such as `1g.10gb`"


def _parts() -> Mapping[str, int]:
    found: dict[str, int] = {}
    for model in MODELS.values():
        for name, profile in model.profiles.items():
            if not name.endswith(MEDIA):
                found[name] = min(found.get(name, profile.milli), profile.milli)
    return MappingProxyType(found)


_PARTS: Final = _parts()


def is_profile(name: str) -> bool:
    """Whether it reads like a profile: ``1g.10gb``, ``1g.10gb.me``, ``1c.3g.20gb``."""
    return _NAME.fullmatch(name) is not None


@lru_cache(maxsize=1024)
def milli_of_profile(name: str) -> int:
    """Thousandths of a GPU that one instance counts as; what reads like no profile: a whole GPU."""
    found = _NAME.fullmatch(name)
    if found is None:
        return MILLI
    _, of_compute, profile, slices, _ = found.groups()
    whole = _PARTS.get(profile, _BY_COMPUTE.get(int(slices), MILLI))
    return -(-whole * int(of_compute) // int(slices)) if of_compute else whole
