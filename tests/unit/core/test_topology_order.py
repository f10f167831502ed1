"""Small clusters at random, compared with the plain reading of the rules of topology."""

from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.core.gangs import Level
from carrel_scheduler.core.requests import HOST
from unit.core.racks import KEYS, all_of, array, cluster, nodes, tried

LABEL = st.sampled_from(["-", "x", "y"])
PATHS = st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=6)
LEVELS = [
    Level(required, preferred)
    for required in ("", "zone", "rack", HOST)
    for preferred in ("", "zone", "rack", HOST)
]
Path = tuple[str, ...]


def path_of(labels: Path, slot: int, depth: int) -> Path | None:
    """The domain of a node at a depth (0 zone, 1 rack, 2 host), by its path."""
    if depth == 2:
        return (*(("~", "~") if "-" in labels else labels), f"n{slot}")
    return None if "-" in labels[: depth + 1] else labels[: depth + 1]


def plain_order(paths: list[Path], counts: list[int], need: int, level: Level) -> list[list[int]]:
    """Candidates by the words of the rule."""
    depths = [*KEYS, HOST]
    top = depths.index(level.required) if level.required else -1
    deepest = depths.index(level.preferred) if level.preferred else top
    found: list[list[int]] = []
    for depth in range(max(top, deepest), max(top, 0) - 1, -1):
        domains: dict[Path, list[int]] = {}
        for slot, labels in enumerate(paths):
            path = path_of(labels, slot, depth)
            if path and (top < 0 or path_of(labels, slot, top)):
                domains.setdefault(path, []).append(slot)

        def key(path: Path) -> tuple[tuple[bool, int, str], ...]:
            return tuple(
                (
                    path[d] == "~",
                    0
                    if path[d] == "~"
                    else sum(
                        counts[slot]
                        for slot, labels in enumerate(paths)
                        if path_of(labels, slot, d) == path[: d + 1]
                    ),
                    path[d],
                )
                for d in range(len(path))
            )

        ordered = [domains[path] for path in sorted(domains, key=key)]
        found += [each for each in ordered if sum(counts[slot] for slot in each) >= need]
    if top < 0 and sum(counts) >= need:
        found.append(list(range(len(paths))))
    return [each for place, each in enumerate(found) if each not in found[:place]]


@given(paths=PATHS, level=st.sampled_from(LEVELS), need=st.integers(1, 8), data=st.data())
def test_candidates_are_those_of_the_rule_in_its_order(
    paths: list[Path], level: Level, need: int, data: st.DataObject
) -> None:
    counts = data.draw(st.lists(st.integers(0, 4), min_size=len(paths), max_size=len(paths)))
    topologies = cluster(*("/".join(path) for path in paths))
    expected = plain_order(paths, counts, need, level)
    assert tried(topologies, level, counts, need) == expected
    proof = topologies.impossible(level, all_of(counts), array(counts), need)
    assert (proof is None) == bool(expected)


@given(paths=PATHS, level=st.sampled_from(LEVELS), need=st.integers(1, 8), data=st.data())
def test_running_tasks_lose_no_set_that_they_allow(
    paths: list[Path], level: Level, need: int, data: st.DataObject
) -> None:
    size = len(paths)
    counts = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    home = data.draw(st.integers(0, size - 1))
    topologies = cluster(*("/".join(path) for path in paths))
    found = tried(topologies, level, counts, need, nodes(home, size=size))
    free = tried(topologies, level, counts, need)
    if level.required:
        around = topologies.domains(level.required, size)
        free = [s for s in free if around[home] >= 0 and around[s[0]] == around[home]]
    assert sorted(found) == sorted(free)
    at_home = [home in each for each in found]
    assert at_home == sorted(at_home, reverse=True)


@given(paths=PATHS, need=st.integers(1, 9), data=st.data())
def test_filling_by_score_uses_the_fewest_domains_of_a_zone(
    paths: list[Path], need: int, data: st.DataObject
) -> None:
    size = len(paths)
    counts = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    topologies = cluster(*("/".join(("x", rack.replace("-", "z"))) for _, rack in paths))
    scores = topologies.node_scores(
        Level(preferred="rack"), all_of(counts), array(counts), need
    ).tolist()
    rooms: dict[int, int] = {}
    for score, room in zip(scores, counts, strict=True):
        rooms[score] = rooms.get(score, 0) + room
    if sum(counts) < need:
        return

    def used(order: list[int]) -> int:
        left, number = need, 0
        for room in order:
            if left > 0:
                left, number = left - room, number + 1
        return number

    by_score = [rooms[score] for score in sorted(rooms, reverse=True)]
    assert used(by_score) == used(sorted(rooms.values(), reverse=True))
