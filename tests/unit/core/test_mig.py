"""MIG: tables, starts, kept instances, packing, and whom to evict."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.core import mig
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    InstanceRemoved,
    Outcome,
    TaskPlaced,
    TaskReleased,
    WorkloadRemoved,
)
from carrel_scheduler.core.mig import InstanceUser
from carrel_scheduler.core.plan import Removal
from carrel_scheduler.core.state import State
from carrel_scheduler.core.views import node_views
from unit.core.situations import asking, node, queue, state_of, training

A100 = mig.model_of("A100-40GB")
EVERY = [(model, profile) for model in mig.MODELS.values() for profile in model.profiles.values()]
masks = st.integers(0, 255)
profiles = st.sampled_from(EVERY)


def most_by_search(places: tuple[int, ...], free: int) -> int:
    return max(
        (1 + most_by_search(places, free & ~bits) for bits in places if bits & free == bits),
        default=0,
    )


def layouts(model: mig.Model) -> set[frozenset[tuple[str, int]]]:
    """Every set of instances that may exist together on a device, without media engines."""
    found = {frozenset[tuple[str, int]]()}
    grow = list(found)
    while grow:
        layout = grow.pop()
        used = sum(bits for _, bits in layout)
        for profile in model.profiles.values():
            for bits in profile.places:
                larger = layout | {(profile.name, bits)}
                if not profile.media and not bits & used and larger not in found:
                    found.add(larger)
                    grow.append(larger)
    return found


def test_the_five_standard_profiles_have_as_many_layouts_as_were_counted_on_real_cards() -> None:
    standard = {name for name in A100.profiles if not name.endswith("+me") and name != "1g.10gb"}
    counted = [one for one in layouts(A100) if {name for name, _ in one} <= standard]
    maximal = [one for one in counted if not any(one < other for other in counted)]
    multisets = {tuple(sorted(name for name, _ in one)) for one in maximal}
    assert (len(maximal), len(multisets)) == (19, 14)


@pytest.mark.parametrize("model", mig.MODELS.values(), ids=lambda model: model.name)
def test_disjoint_slots_never_use_more_compute_slices_than_there_are(model: mig.Model) -> None:
    for layout in layouts(model):
        assert sum(model.profiles[name].compute for name, _ in layout) <= model.compute


@pytest.mark.parametrize(("model", "profile"), EVERY)
def test_every_place_lies_on_the_device(model: mig.Model, profile: mig.Profile) -> None:
    assert profile.milli == 1000 // model.slots * profile.size
    for start, bits in zip(profile.starts, profile.places, strict=True):
        assert bits & ~model.full == 0
        assert bits.bit_count() == profile.size
        assert mig.slots_of(model, profile.name, start) == bits


def test_the_starts_of_the_a100_are_those_of_the_user_guide() -> None:
    starts = {name: profile.starts for name, profile in A100.profiles.items()}
    assert starts == {
        "1g.5gb": (0, 1, 2, 3, 4, 5, 6),
        "1g.5gb+me": (0, 1, 2, 3, 4, 5, 6),
        "1g.10gb": (0, 2, 4, 6),
        "2g.10gb": (0, 2, 4),
        "3g.20gb": (0, 4),
        "4g.20gb": (0,),
        "7g.40gb": (0,),
    }


def test_models_of_four_slots_count_a_quarter_for_each() -> None:
    a30 = mig.model_of("A30-24GB")
    assert (a30.full, a30.profiles["2g.12gb"].milli) == (0b1111, 500)
    assert (A100.full, A100.profiles["3g.20gb"].milli) == (255, 500)
    assert mig.full_slots("A30-24GB") == 0b1111


def test_what_is_unknown_or_illegal_is_refused_by_name() -> None:
    with pytest.raises(InvalidEvent, match="unknown_mig_model"):
        mig.model_of("A100")
    with pytest.raises(InvalidEvent, match="unknown_mig_profile"):
        mig.slots_of(A100, "2g.20gb", 0)
    with pytest.raises(InvalidEvent, match="illegal_mig_start"):
        mig.slots_of(A100, "3g.20gb", 2)
    assert mig.has_profile("A100-80GB", "2g.20gb")
    assert not mig.has_profile("A100-40GB", "2g.20gb")
    assert not mig.has_profile("", "2g.20gb")


def test_every_model_has_a_number_of_its_own() -> None:
    codes = [mig.model_code(name) for name in mig.MODELS]
    assert codes == list(range(1, len(codes) + 1))
    assert mig.model_code("") == 0


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (1, "1g.5gb"),
        (4864, "1g.5gb"),
        (4865, "1g.10gb"),
        (9537, "1g.10gb"),
        (9857, "3g.20gb"),
        (19969, "7g.40gb"),
    ],
)
def test_memory_gets_the_smallest_profile_that_leaves_most_to_others(
    memory: int, expected: str
) -> None:
    profile = mig.smallest_profile(A100, memory)
    assert profile is not None
    assert profile.name == expected


def test_more_memory_than_the_device_has_gets_no_profile() -> None:
    assert mig.smallest_profile(A100, 40193) is None


@given(profiles, masks)
def test_the_count_is_the_most_that_any_order_of_placing_reaches(
    which: tuple[mig.Model, mig.Profile], free: int
) -> None:
    model, profile = which
    free &= model.full
    most = most_by_search(profile.places, free)
    assert mig.fitting(profile)[free] == (min(most, 1) if profile.media else most)


@given(profiles, masks)
def test_placing_again_and_again_reaches_the_count(
    which: tuple[mig.Model, mig.Profile], free: int
) -> None:
    model, profile = which
    free &= model.full
    expected, placed = mig.fitting(profile)[free], 0
    while (found := mig.place(model, profile, free, media_used=placed > 0)) is not None:
        assert found.bits & free == found.bits
        free &= ~found.bits
        placed += 1
    assert placed == expected


def test_small_instances_keep_away_from_the_room_of_large_ones() -> None:
    free, bits = A100.full, []
    for name in ("1g.5gb", "1g.5gb", "2g.10gb"):
        found = mig.place(A100, A100.profiles[name], free)
        assert found is not None
        bits.append(found.bits)
        free &= ~found.bits
    assert bits == [1 << 6, 1 << 5, 0b1100]
    assert mig.fitting(A100.profiles["1g.10gb"])[free] == 1


def test_the_chosen_start_leaves_at_least_as_much_as_any_other() -> None:
    def value(free: int) -> int:
        plain = [p for p in A100.profiles.values() if not p.media]
        return sum(most_by_search(p.places, free) * p.size for p in plain)

    for profile in A100.profiles.values():
        for free in range(0, 256, 7):
            found = mig.place(A100, profile, free)
            fits = [bits for bits in profile.places if bits & free == bits]
            if found is None:
                assert not fits
            else:
                assert found.bits == max(fits, key=lambda b: (value(free & ~b), b))


def test_a_kept_instance_of_the_same_profile_is_used_wherever_it_lies() -> None:
    warm = [("2g.10gb", 0b11), ("1g.5gb", 1 << 6)]
    found = mig.place(A100, A100.profiles["2g.10gb"], A100.full, warm)
    assert found == mig.Placement(0b11, reused=True, removed=())


def test_free_room_comes_before_the_removal_of_kept_instances() -> None:
    warm = [("1g.5gb", 1 << 6), ("1g.10gb", 0b110000)]
    found = mig.place(A100, A100.profiles["2g.10gb"], A100.full, warm)
    assert found is not None
    assert (found.bits, found.removed) == (0b1100, ())


def test_as_few_kept_instances_as_possible_are_removed() -> None:
    warm = [("1g.5gb", 1 << 6), ("1g.5gb", 1 << 4), ("2g.10gb", 0b1100)]
    found = mig.place(A100, A100.profiles["3g.20gb"], A100.full, warm)
    assert found is not None
    assert (found.bits, found.removed) == (0b1111, (("2g.10gb", 0b1100),))


def test_equal_slots_of_another_profile_are_no_reason_to_keep_the_instance() -> None:
    warm = [("1g.10gb", 0b11)]
    assert mig.removals(warm, A100.profiles["2g.10gb"], 0b11) == tuple(warm)
    assert mig.removals(warm, A100.profiles["1g.10gb"], 0b11) == ()


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize(
    ("profile", "slots"), [("3g.20gb", 0b11110000), ("2g.10gb", 0b1100), ("1g.5gb", 0b100)]
)
def test_an_instance_that_nobody_uses_any_more_is_used_again(
    profile: str, slots: int, device: int
) -> None:
    asks = asking(0, mig_profile=profile)
    state = state_of(
        *(node("m", 2, mig_model="A100-40GB"), queue("a", 2), training("was", "a", request=asks)),
        TaskPlaced("was", 0, "m", (device,), 1.0, slots),
        TaskReleased("was", 0, Outcome.SUCCEEDED, 2.0),
        *(WorkloadRemoved("was"), training("next", "a", request=asks)),
    )
    plan = decide(state, 10.0)
    assert [(one.devices, one.slots) for one in plan.bindings] == [((device,), slots)]
    assert plan.removals == ()


@pytest.mark.parametrize("device", [0, 1])
def test_only_a_kept_instance_in_the_way_of_a_start_is_removed(device: int) -> None:
    kept = {"4g.20gb": 0b1111, "1g.5gb": 1 << 4, "1g.10gb": 0b11000000}
    state = state_of(
        *(node("m", 2, mig_model="A100-40GB"), queue("a", 2), training("whole", "a")),
        TaskPlaced("whole", 0, "m", (1 - device,), 1.0),
        *(training(name, "a", request=asking(0, mig_profile=name)) for name in kept),
        *(TaskPlaced(name, 0, "m", (device,), 1.0, bits) for name, bits in kept.items()),
        *(TaskReleased(name, 0, Outcome.SUCCEEDED, 2.0) for name in kept),
        *(WorkloadRemoved(name) for name in kept),
        training("next", "a", request=asking(0, mig_profile="2g.10gb")),
    )
    plan = decide(state, 10.0)
    assert [(one.devices, one.slots) for one in plan.bindings] == [((device,), 0b110000)]
    assert plan.removals == (Removal("m", device, 1 << 4),)


def kept_on(state: State) -> tuple[tuple[str, int], ...]:
    """The instances that nobody uses on the only device."""
    return node_views(state)[0].devices[0].warm


def test_an_instance_is_kept_only_while_nobody_uses_it() -> None:
    asks = asking(0, mig_profile="2g.10gb")
    state = state_of(
        *(node("m", 1, mig_model="A100-40GB"), queue("a", 2), training("was", "a", request=asks)),
        *(TaskPlaced("was", 0, "m", (0,), 1.0, 0b1100), training("next", "a", request=asks)),
    )
    assert kept_on(state) == ()
    state.apply(TaskReleased("was", 0, Outcome.SUCCEEDED, 2.0))
    assert kept_on(state) == (("2g.10gb", 0b1100),)
    state.apply(TaskPlaced("next", 0, "m", (0,), 3.0, 0b1100))
    assert kept_on(state) == ()


def test_of_several_kept_instances_the_one_that_is_gone_is_forgotten() -> None:
    kept = {"4g.20gb": 0b1111, "1g.5gb": 1 << 4, "1g.10gb": 0b11000000}
    state = state_of(
        *(node("m", 1, mig_model="A100-40GB"), queue("a", 2)),
        *(training(name, "a", request=asking(0, mig_profile=name)) for name in kept),
        *(TaskPlaced(name, 0, "m", (0,), 1.0, bits) for name, bits in kept.items()),
        *(TaskReleased(name, 0, Outcome.SUCCEEDED, 2.0) for name in kept),
        InstanceRemoved("m", 0, 1 << 4),
    )
    assert sorted(kept_on(state)) == [("1g.10gb", 0b11000000), ("4g.20gb", 0b1111)]


def test_media_engines_exist_once() -> None:
    media = A100.profiles["1g.5gb+me"]
    assert mig.place(A100, media, A100.full, media_used=True) is None
    kept = [("1g.5gb+me", 1)]
    assert mig.removals(kept, media, 1 << 6) == tuple(kept)
    assert mig.removals(kept, A100.profiles["1g.5gb"], 1 << 6) == ()


def _union(bits: tuple[int, ...]) -> int:
    union = 0
    for one in bits:
        union |= one
    return union


def test_equal_instances_are_counted_over_devices() -> None:
    assert mig.count(A100.profiles["2g.10gb"], [255, 0b1111, 0b11110]) == 3 + 2 + 1


def test_a_large_instance_needs_exactly_the_one_gone_that_stands_in_its_way() -> None:
    trainings = [InstanceUser(0b11 << start, 10, start, evictable=True) for start in (0, 2, 4)]
    found = mig.cheapest_clearing(A100.profiles["3g.20gb"], [(0b11000000, trainings)])
    assert found is not None
    assert (found.device, found.bits) == (0, 0b11110000)
    assert [victim.bits for victim in found.victims] == [0b110000]


def test_who_may_not_be_evicted_and_slots_of_nobody_stay() -> None:
    profile = A100.profiles["3g.20gb"]
    kept = InstanceUser(0b110000, 0, 0, evictable=False)
    cheap = InstanceUser(0b11, 50, 1, evictable=True)
    found = mig.cheapest_clearing(profile, [(0b11001100, [kept, cheap])])
    assert found is not None
    assert (found.bits, found.victims, found.cost) == (0b1111, (cheap,), 50)
    assert mig.cheapest_clearing(profile, [(0b11000100, [kept, cheap])]) is None


def test_equal_costs_fall_to_fewer_victims_and_then_to_those_who_give_way_first() -> None:
    profile = A100.profiles["2g.10gb"]
    two = [InstanceUser(1, 5, 0, evictable=True), InstanceUser(2, 5, 1, evictable=True)]
    one = [
        InstanceUser(0b1100, 10, 3, evictable=True),
        InstanceUser(0b110000, 10, 2, evictable=True),
    ]
    found = mig.cheapest_clearing(profile, [(0, [*two, *one])])
    assert found is not None
    assert [victim.order for victim in found.victims] == [2]


def test_the_lowest_device_and_the_highest_start_are_cleared_when_all_else_is_equal() -> None:
    whole = [InstanceUser(255, 7, 0, evictable=True)]
    found = mig.cheapest_clearing(A100.profiles["3g.20gb"], [(0, whole), (0, whole)])
    assert found is not None
    assert (found.device, found.bits) == (0, 0b11110000)


def test_an_instance_with_the_media_engines_gives_them_up() -> None:
    holder = InstanceUser(1, 5, 0, evictable=True, media=True)
    found = mig.cheapest_clearing(A100.profiles["1g.5gb+me"], [(0b11111110, [holder])])
    assert found is not None
    assert found.victims == (holder,)
    found = mig.cheapest_clearing(A100.profiles["1g.5gb"], [(0b11111110, [holder])])
    assert found is not None
    assert found.victims == ()


@given(st.sampled_from(sorted(A100.profiles)), st.integers(0, 10_000))
def test_clearing_finds_the_cheapest_of_all_sets_of_victims(name: str, seed: int) -> None:
    draw = random.Random(seed)
    profile = A100.profiles[name]
    devices: list[tuple[int, list[InstanceUser]]] = []
    order = itertools.count()
    for _ in range(draw.randint(1, 3)):
        free = A100.full
        occupants: list[InstanceUser] = []
        for other in draw.choices(sorted(A100.profiles), k=draw.randint(0, 5)):
            kind = A100.profiles[other]
            spot = draw.choice(kind.places)
            if spot & ~free or (kind.media and any(o.media for o in occupants)):
                continue
            free &= ~spot
            evictable = draw.random() < 0.8
            cost = draw.randint(0, 9)
            occupants.append(InstanceUser(spot, cost, next(order), evictable, kind.media))
        devices.append((free & draw.randint(0, 255), occupants))
    found = mig.cheapest_clearing(profile, devices)
    best = min(
        (
            sum(o.cost for o in gone)
            for free, occupants in devices
            for size in range(len(occupants) + 1)
            for gone in itertools.combinations(occupants, size)
            if all(o.evictable for o in gone)
            and not (profile.media and any(o.media for o in occupants if o not in gone))
            and mig.place(A100, profile, free | _union(tuple(o.bits for o in gone)))
        ),
        default=None,
    )
    assert (None if found is None else found.cost) == best


@pytest.mark.parametrize(
    ("name", "profiles"),
    [
        ("A100-40GB", "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
        ("A100-80GB", "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        ("H100-80GB", "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        ("H100-94GB", "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
        ("H200-141GB", "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
        ("GH200-144GB", "1g.18gb 1g.18gb+me 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb"),
        ("B200-180GB", "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
        ("GB200-186GB", "1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),
        ("B300-269GB", "1g.34gb 1g.34gb+me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb"),
        ("GB300-278GB", "1g.35gb 1g.35gb+me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb"),
        ("A30-24GB", "1g.6gb 2g.12gb 4g.24gb 1g.6gb+me 2g.12gb+me"),
        ("RTX-PRO-6000-96GB", "1g.24gb 2g.48gb 4g.96gb"),
    ],
)
def test_profiles_are_called_as_the_maker_calls_them(name: str, profiles: str) -> None:
    model = mig.model_of(name)
    assert list(model.profiles) == profiles.split()
    for profile in model.profiles.values():
        assert profile.compute == int(profile.name.partition("g.")[0])
        assert profile.media == profile.name.endswith("+me")
        assert profile.milli == 1000 * profile.size // model.slots
        gigabytes = int(profile.name.partition(".")[2].partition("gb")[0])
        assert 0.85 < profile.memory_mib / (1024 * gigabytes) <= 1
    assert set(mig.MODELS) >= {name}
    assert len(mig.MODELS) == 12


@pytest.mark.parametrize(
    ("model", "milli", "profile"),
    [
        ("A100-80GB", 1, "1g.10gb"),
        ("A100-80GB", 125, "1g.10gb"),
        ("A100-80GB", 126, "2g.20gb"),
        ("A100-80GB", 500, "4g.40gb"),
        ("A100-80GB", 501, "7g.80gb"),
        ("A30-24GB", 250, "1g.6gb"),
        ("A30-24GB", 999, "4g.24gb"),
    ],
)
def test_the_profile_of_a_share(model: str, milli: int, profile: str) -> None:
    found = mig.profile_of_share(mig.model_of(model), milli)
    assert found.name == profile
    assert found.milli >= milli


@pytest.mark.parametrize("model", mig.MODELS.values(), ids=lambda model: model.name)
def test_one_profile_is_the_whole_device(model: mig.Model) -> None:
    whole = mig.whole_device(model)
    assert whole.places == (model.full,)
    assert whole.milli == 1000


OFFERED = ("1g.10gb", "1g.10gb.me", "2g.20gb", "3g.40gb", "4g.40gb")


@pytest.mark.parametrize(
    ("offered", "milli", "found"),
    [
        (OFFERED, 100, "1g.10gb"),
        (OFFERED, 126, "2g.20gb"),
        (OFFERED, 500, "4g.40gb"),
        (OFFERED, 501, "4g.40gb"),
        ((*OFFERED, "7g.80gb"), 501, "7g.80gb"),
        (("1g.10gb.me", "1g.10gb+me", "strange"), 100, ""),
        ((), 100, ""),
    ],
)
def test_of_offered_profiles_the_smallest_that_is_enough_else_the_largest(
    offered: tuple[str, ...], milli: int, found: str
) -> None:
    assert mig.named_profile(offered, milli) == found
    assert mig.named_profile(offered[::-1], milli) == found
