"""The MIG profiles of each GPU model: memory slots, compute slices, legal starts, memory.

Geometry as in NVIDIA's MIG user guide: most models have 8 memory slots and 7 compute slices, the
smaller ones 4 and 4. The last memory slot has no compute slice of its own, so instances of one
slot never start there. Memory is as measured, else understated by the profile's name.

An instance counts as its part of the memory slots. Where another operator divides the GPUs, only
profile names are known: it then counts as the smallest part that models with this profile name give
it (``milli_of_profile``).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Protocol

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.resources import MILLI

MEDIA: Final = "+me"
"""The suffix of profiles with the media engines."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A kind of MIG instance on one model.

    Attributes:
        name: as in ``nvidia-smi``, such as ``2g.10gb``.
        size: memory slots it occupies; compute: compute slices.
        starts: first slots where it may lie, ascending.
        memory_mib: memory of an instance.
        media: has the media engines, which exist once per device.
        milli: thousandths of a GPU that an instance counts as.
    """

    name: str
    size: int
    compute: int
    starts: tuple[int, ...]
    memory_mib: int
    media: bool
    milli: int

    @property
    def places(self) -> tuple[int, ...]:
        """The slots, as bits, that an instance occupies at each of its possible starts."""
        return tuple(((1 << self.size) - 1) << start for start in self.starts)


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A GPU model that supports MIG.

    Attributes:
        slots: memory slots of a device; compute: its compute slices.
        profiles: by name.
    """

    name: str
    slots: int
    compute: int
    profiles: Mapping[str, Profile]

    @property
    def full(self) -> int:
        """All memory slots as bits."""
        return (1 << self.slots) - 1


_LOW_MIB_PER_GB: Final = {1: 900}
"""MiB of a slot that each GB in a profile's name is worth at least, by size in slots."""
_MIB_PER_GB: Final = 940


def _model(
    name: str, compute: int, slots: int, rows: list[tuple[str, int, int, range, int]]
) -> Model:
    profiles = {}
    for profile, size, slices, starts, mib in rows:
        gigabytes = int(profile.split(".")[1].split("gb")[0])
        profiles[profile] = Profile(
            name=profile,
            size=size,
            compute=slices,
            starts=tuple(starts),
            memory_mib=mib or gigabytes * _LOW_MIB_PER_GB.get(size, _MIB_PER_GB),
            media=profile.endswith(MEDIA),
            milli=MILLI // slots * size,
        )
    return Model(name, slots, compute, MappingProxyType(profiles))


def _of_eight(
    name: str, gb: tuple[int, int, int, int], mib: tuple[int, int, int, int] = (0, 0, 0, 0)
) -> Model:
    """A model of 8 slots; GB in the names and measured MiB for 1, 2, 4 and 8 slots."""
    return _model(
        name,
        7,
        8,
        [
            (f"1g.{gb[0]}gb", 1, 1, range(7), mib[0]),
            (f"1g.{gb[0]}gb+me", 1, 1, range(7), mib[0]),
            (f"1g.{gb[1]}gb", 2, 1, range(0, 8, 2), mib[1]),
            (f"2g.{gb[1]}gb", 2, 2, range(0, 6, 2), mib[1]),
            (f"3g.{gb[2]}gb", 4, 3, range(0, 8, 4), mib[2]),
            (f"4g.{gb[2]}gb", 4, 4, range(1), mib[2]),
            (f"7g.{gb[3]}gb", 8, 7, range(1), mib[3]),
        ],
    )


def _of_four(name: str, gb: tuple[int, int, int], *, media: bool) -> Model:
    """A model of 4 slots; GB in the names for 1, 2 and 4 slots."""
    rows = [
        (f"1g.{gb[0]}gb", 1, 1, range(4), 0),
        (f"2g.{gb[1]}gb", 2, 2, range(0, 4, 2), 0),
        (f"4g.{gb[2]}gb", 4, 4, range(1), 0),
    ]
    if media:
        rows += [
            (f"1g.{gb[0]}gb+me", 1, 1, range(4), 0),
            (f"2g.{gb[1]}gb+me", 2, 2, range(0, 4, 2), 0),
        ]
    return _model(name, 4, 4, rows)


MODELS: Final[Mapping[str, Model]] = MappingProxyType(
    {
        model.name: model
        for model in (
            _of_eight("A100-40GB", (5, 10, 20, 40), (4864, 9856, 19968, 40192)),
            _of_eight("A100-80GB", (10, 20, 40, 80), (9856, 19968, 40192, 80384)),
            _of_eight("H100-80GB", (10, 20, 40, 80), (9984, 20090, 40448, 81152)),
            _of_eight("H100-94GB", (12, 24, 47, 94)),
            _of_eight("H200-141GB", (18, 35, 71, 141)),
            _of_eight("GH200-144GB", (18, 36, 72, 144)),
            _of_eight("B200-180GB", (23, 45, 90, 180)),
            _of_eight("GB200-186GB", (23, 47, 93, 186)),
            _of_eight("B300-269GB", (34, 67, 135, 269)),
            _of_eight("GB300-278GB", (35, 70, 139, 278)),
            _of_four("A30-24GB", (6, 12, 24), media=True),
            _of_four("RTX-PRO-6000-96GB", (24, 48, 96), media=False),
        )
    }
)

_CODES: Final = {name: code for code, name in enumerate(MODELS, 1)}


def model_of(name: str) -> Model:
    """The model of this name.

    Raises:
        InvalidEvent: ``unknown_mig_model``.
    """
    model = MODELS.get(name)
    if model is None:
        raise InvalidEvent("unknown_mig_model", "mig_model", name, f"one of {', '.join(MODELS)}")
    return model


def model_code(name: str) -> int:
    """A number from 1 for a model, for columns over nodes; 0 for the empty name.

    Raises:
        InvalidEvent: ``unknown_mig_model``.
    """
    return _CODES[model_of(name).name] if name else 0


def full_slots(name: str) -> int:
    """All memory slots of a device of this model as bits; ``InvalidEvent`` when unknown."""
    return model_of(name).full


def has_profile(name: str, profile: str) -> bool:
    """Whether a model, by name, has a profile; the empty name has none."""
    model = MODELS.get(name)
    return model is not None and profile in model.profiles


def slots_of(model: Model, profile: str, start: int) -> int:
    """The memory slots, as bits, of an instance of a profile at a start.

    Raises:
        InvalidEvent: ``unknown_mig_profile`` or ``illegal_mig_start``.
    """
    kind = model.profiles.get(profile)
    if kind is None:
        expected = f"a profile of {model.name}: {', '.join(model.profiles)}"
        raise InvalidEvent("unknown_mig_profile", "mig_profile", profile, expected)
    if start not in kind.starts:
        expected = f"one of the starts of {profile} on {model.name}: {kind.starts}"
        raise InvalidEvent("illegal_mig_start", "start", start, expected)
    return ((1 << kind.size) - 1) << start


def smallest_profile(model: Model, memory_mib: int) -> Profile | None:
    """The profile with at least so much memory that leaves the most to others.

    Fewest memory slots, then fewest compute slices; never one with media engines.
    """
    enough = [p for p in model.profiles.values() if p.memory_mib >= memory_mib and not p.media]
    return min(enough, key=lambda p: (p.size, p.compute), default=None)


def whole_device(model: Model) -> Profile:
    """The profile that takes a whole device."""
    return max(model.profiles.values(), key=lambda p: (p.size, p.compute, not p.media))


def profile_of_share(model: Model, milli: int) -> Profile:
    """The smallest profile that is at least so many thousandths of a device.

    Fewest memory slots, then most compute slices; never one with media engines.
    """
    enough = [p for p in model.profiles.values() if p.milli >= milli and not p.media]
    return min(enough, key=lambda p: (p.size, -p.compute))


FORM: Final = "(([1-7])c[.])?(([1-7])g[.][1-9][0-9]*gb)([.+-][a-z.]+)?"
"""The pattern of a profile's name."""
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
    """Whether a text has the form of a profile: ``1g.10gb``, ``1g.10gb.me``, ``1c.3g.20gb``."""
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


def named_profile(profiles: Iterable[str], milli: int) -> str:
    """The smallest of these profiles, by name, that is so many thousandths of a GPU.

    Of equal ones that with most compute slices; where none is so large the largest. Never one with
    media engines; empty without any.
    """
    sizes = {
        name: (milli_of_profile(name), int(found[4]))
        for name in profiles
        if (found := _NAME.fullmatch(name)) is not None and found[5] is None
    }
    enough = [name for name, (part, _) in sizes.items() if part >= milli]
    if enough:
        return min(enough, key=lambda name: (sizes[name][0], -sizes[name][1]))
    return max(sizes, key=lambda name: sizes[name], default="")


class GpuRequest(Protocol):
    """The GPU part of one task's request."""

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs; with a share, of each of ``gpu_devices`` GPUs."""
        ...

    @property
    def gpu_devices(self) -> int:
        """The number of GPUs on which the task has its share."""
        ...

    @property
    def mig_profile(self) -> str:
        """The profile of the task's MIG instance; empty without one."""
        ...

    @property
    def mig_milli(self) -> int:
        """The part of a GPU that its instance is, where that is not what the name tells; else 0."""
        ...


def instance_milli(asked: GpuRequest) -> int:
    """Thousandths of a GPU that its MIG instance counts as; 0 where it has none."""
    if not asked.mig_profile:
        return 0
    return asked.mig_milli or milli_of_profile(asked.mig_profile)


def counted_gpu_milli(asked: GpuRequest) -> int:
    """Thousandths of GPUs that a task counts for against its project's quota."""
    milli = asked.gpu_milli
    whole = milli * asked.gpu_devices if milli < MILLI else milli
    return whole + instance_milli(asked)


def unnamed_milli(profile: Profile) -> int:
    """``GpuRequest.mig_milli`` of an instance: 0 where the profile's name gives the same."""
    return profile.milli if profile.milli != milli_of_profile(profile.name) else 0
