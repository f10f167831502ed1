"""Sets of nodes for groups that lie together: worked examples, proofs, labels."""

from itertools import product

import numpy as np
import pytest

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import TopologySet
from carrel_scheduler.core.gangs import Level
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.core.topology.topology import Topologies
from unit.core.racks import RACK, all_of, array, cluster, nodes, sets, tried


class TestRequired:
    def test_all_tasks_in_one_rack_the_tightest(self) -> None:
        """T14: of two racks of two nodes, one partly used."""
        racks = cluster("a/r1", "a/r1", "a/r2", "a/r2")
        assert tried(racks, RACK, [1, 2, 2, 2], 3) == [[0, 1], [2, 3]]
        assert tried(racks, RACK, [0, 2, 2, 2], 3) == [[2, 3]]
        assert tried(racks, RACK, [0, 2, 0, 2], 3) == []

    def test_equal_racks_go_by_path(self) -> None:
        racks = cluster("a/r3", "a/r2", "a/r1")
        assert tried(racks, RACK, [1, 1, 1], 1) == [[2], [1], [0]]

    def test_racks_of_the_same_name_in_two_zones_are_two(self) -> None:
        racks = cluster("a/r1", "b/r1")
        assert tried(racks, RACK, [1, 1], 2) == []
        assert racks.domains("rack", 2).tolist() == [0, 1]

    def test_a_rack_of_the_tightest_zone_comes_first_even_if_wider_itself(self) -> None:
        racks = cluster("a/r1", "a/r2", "a/r3", "b/r4", "b/r4")
        assert tried(racks, RACK, [1] * 5, 1) == [[3, 4], [0], [1], [2]]

    def test_nodes_without_a_label_on_the_path_are_outside(self) -> None:
        racks = cluster("a/r1", "-/r1", "a/-", "a/r1")
        assert racks.domains("rack", 4).tolist() == [0, -1, -1, 0]
        assert racks.domains("zone", 4).tolist() == [0, -1, 0, 0]
        assert tried(racks, RACK, [1, 9, 9, 1], 2) == [[0, 3]]
        assert tried(racks, RACK, [1, 9, 9, 1], 3) == []

    def test_a_host_is_always_a_domain(self) -> None:
        racks = cluster("a/r1", "-/-", "a/r1")
        level = Level(required=HOST)
        assert tried(racks, level, [2, 3, 1], 2) == [[0], [1]]
        assert tried(cluster("-/-", "-/-"), level, [1, 2], 2) == [[1]]

    def test_equal_room_goes_where_less_is_free(self) -> None:
        racks = cluster("a/r1", "a/r2")
        found = racks.candidates(RACK, all_of([1, 1]), array([1, 1]), 1, free=array([3000, 2000]))
        assert sets(found) == [[1], [0]]

    def test_free_slots_and_closed_nodes_count_nothing(self) -> None:
        racks = cluster("a/r1", "a/r1", "a/r2")
        within = nodes(0, 2, size=5)
        found = racks.candidates(RACK, within, array([1, 5, 1, 9, 9]), 1)
        assert sets(found) == [[0], [2]]


class TestPreferred:
    def test_widens_from_preferred_to_everything(self) -> None:
        racks = cluster("a/r1", "a/r2", "b/r3", "b/r3")
        level = Level(preferred="rack")
        assert tried(racks, level, [1, 1, 1, 1], 2) == [[2, 3], [0, 1], [0, 1, 2, 3]]
        assert tried(racks, level, [1, 1, 1, 1], 4) == [[0, 1, 2, 3]]
        assert tried(racks, level, [1, 1, 1, 1], 5) == []

    def test_widens_no_further_than_required(self) -> None:
        racks = cluster("a/r1", "a/r2", "b/r3", "b/r4")
        level = Level(required="zone", preferred="rack")
        assert tried(racks, level, [1, 1, 2, 2], 2) == [[2], [3], [0, 1], [2, 3]]
        assert tried(racks, level, [1, 1, 2, 2], 5) == []

    def test_a_preference_coarser_than_what_is_required_changes_nothing(self) -> None:
        racks = cluster("a/r1", "a/r2", "b/r3", "b/r4")
        level = Level(required="rack", preferred="zone")
        assert tried(racks, level, [1, 1, 2, 2], 2) == tried(racks, RACK, [1, 1, 2, 2], 2)

    def test_everything_includes_nodes_outside_the_topology(self) -> None:
        racks = cluster("a/r1", "-/-")
        assert tried(racks, Level(preferred="rack"), [1, 1], 2) == [[0, 1]]

    def test_without_a_wish_everything_is_one_set(self) -> None:
        assert tried(cluster("a/r1", "b/r2"), Level(), [1, 1], 2) == [[0, 1]]
        assert tried(cluster("a/r1", "b/r2"), Level(), [1, 1], 3) == []


class TestPinned:
    RACKS = cluster("a/r1", "a/r1", "a/r2", "b/r3")

    def test_a_required_domain_in_use_is_the_only_one(self) -> None:
        running = nodes(0, size=4)
        assert tried(self.RACKS, RACK, [1, 1, 2, 1], 1, running) == [[0, 1]]
        assert tried(self.RACKS, RACK, [0, 0, 2, 1], 1, running) == []

    def test_inside_it_the_preferred_domain_in_use_comes_first(self) -> None:
        level = Level(required="zone", preferred="rack")
        assert tried(self.RACKS, level, [3, 3, 2, 1], 1, nodes(0, size=4)) == [
            [0, 1],
            [0, 1, 2],
            [2],
        ]

    def test_a_preferred_domain_in_use_comes_before_tighter_ones(self) -> None:
        level = Level(preferred="zone")
        assert tried(self.RACKS, level, [1, 1, 1, 1], 1, nodes(0, size=4)) == [
            [0, 1, 2],
            [0, 1, 2, 3],
            [3],
        ]

    def test_nothing_running_pins_nothing(self) -> None:
        none = nodes(size=4)
        assert tried(self.RACKS, RACK, [1] * 4, 1, none) == tried(self.RACKS, RACK, [1] * 4, 1)

    def test_the_proof_looks_at_the_domain_in_use_only(self) -> None:
        counts = array([1, 0, 5, 1])
        assert self.RACKS.impossible(RACK, all_of([0] * 4), counts, 2) is None
        proof = self.RACKS.impossible(RACK, all_of([0] * 4), counts, 2, nodes(0, size=4))
        assert proof == (1, 2)


class TestNested:
    def test_racks_of_segments_inside_the_zone_of_the_whole(self) -> None:
        racks = cluster("a/r1", "a/r2", "b/r3", "b/r4")
        counts = [0, 1, 1, 1]
        (zone,) = racks.candidates(Level(required="zone"), all_of(counts), array(counts), 2)
        inner = racks.candidates(RACK, zone, array(counts), 1)
        assert sets(inner) == [[2], [3]]

    def test_each_level_may_be_of_another_topology(self) -> None:
        racks = cluster("a/r1", "a/r2", "b/r3")
        racks.set_topology(TopologySet("power", ("feed",)))
        for slot, feed in enumerate("xyx"):
            racks.set_node(slot, f"n{slot}", (("zone", "a"), ("rack", "r"), ("feed", feed)))
        assert tried(racks, Level(required="feed"), [1, 1, 1], 2) == [[0, 2]]


class TestUnlike:
    def test_the_scarcest_resource_decides_what_is_tightest(self) -> None:
        racks = cluster("a/r1", "a/r2", "a/r3")
        free = np.array([[4000, 8000, 2000], [9000, 3000, 9000]], np.int64)
        found = racks.candidates_unlike(RACK, all_of([1] * 3), array([3000, 3000]), free)
        assert sets(found) == [[1], [0]]

    def test_what_is_not_asked_for_may_be_missing(self) -> None:
        racks = cluster("a/r1", "a/r2")
        free = np.array([[0, 0], [10, 20]], np.int64)
        assert sets(racks.candidates_unlike(RACK, all_of([1] * 2), array([0, 5]), free)) == [
            [0],
            [1],
        ]
        assert sets(racks.candidates_unlike(RACK, all_of([1] * 2), array([1, 5]), free)) == []

    def test_widens_like_equal_tasks(self) -> None:
        racks = cluster("a/r1", "a/r2", "b/r3")
        free = np.array([[4000, 4000, 4000]], np.int64)
        level = Level(preferred="rack")
        found = racks.candidates_unlike(level, all_of([1] * 3), array([9000]), free)
        assert sets(found) == [[0, 1, 2]]
        assert sets(racks.candidates_unlike(level, all_of([1] * 3), array([12001]), free)) == []

    def test_bytes_do_not_overflow(self) -> None:
        racks = cluster("a/r1", "a/r2")
        free = np.array([[2**50, 2**51]], np.int64)
        found = racks.candidates_unlike(RACK, all_of([1] * 2), array([2**49]), free)
        assert sets(found) == [[0], [1]]


class TestScores:
    PREFER = Level(preferred="rack")

    def first(self, paths: list[str], counts: list[int], need: int = 0, **more: Bools) -> list[int]:
        """Nodes in the order in which the scores fill them, best domain first."""
        scores = cluster(*paths).node_scores(
            self.PREFER, all_of(counts), array(counts), need, more.get("pinned")
        )
        order: list[int] = np.argsort(-scores, kind="stable").tolist()
        return order

    def test_the_rack_with_most_room_first(self) -> None:
        assert self.first(["a/r1", "a/r2", "a/r3"], [2, 5, 3]) == [1, 2, 0]

    def test_the_rest_goes_to_the_tightest_neighbour_that_holds_it(self) -> None:
        assert self.first(["a/r1", "a/r2", "a/r3", "a/r4"], [5, 4, 2, 1], need=7) == [0, 2, 1, 3]

    def test_but_not_to_a_farther_one(self) -> None:
        assert self.first(["a/r1", "a/r2", "b/r3"], [5, 4, 2], need=7) == [0, 1, 2]

    def test_equal_racks_in_reverse_order_of_the_sets(self) -> None:
        """Six tasks on two racks of four: the racks that sets would try last are filled first."""
        assert self.first(["a/r1", "a/r1", "a/r2", "a/r2"], [2, 2, 2, 2], need=6) == [2, 3, 0, 1]

    def test_the_rest_goes_to_the_next_of_equal_racks(self) -> None:
        paths = ["a/r1", "a/r1", "a/r2", "a/r2", "a/r3", "a/r3", "a/r4", "a/r4"]
        assert self.first(paths, [1] * 8, need=3)[:3] == [6, 7, 4]

    def test_where_tasks_run_already_comes_first(self) -> None:
        pinned = nodes(0, size=3)
        assert self.first(["a/r1", "a/r2", "a/r3"], [1, 5, 3], pinned=pinned) == [0, 1, 2]

    def test_nodes_outside_come_last(self) -> None:
        assert self.first(["-/-", "a/r1", "a/-"], [9, 1, 9]) == [1, 0, 2]

    @pytest.mark.parametrize(
        "level",
        [Level(), Level(required="rack"), Level(required="rack", preferred="zone")],
    )
    def test_no_finer_preference_no_scores(self, level: Level) -> None:
        racks = cluster("a/r1", "a/r2")
        assert racks.node_scores(level, all_of([1, 1]), array([1, 2])).tolist() == [0, 0]


class TestProof:
    def test_the_best_domain_and_what_is_needed(self) -> None:
        racks = cluster("a/r1", "a/r1", "a/r2")
        assert racks.impossible(RACK, all_of([1] * 3), array([1, 1, 3]), 4) == (3, 4)
        assert racks.impossible(RACK, all_of([1] * 3), array([1, 1, 3]), 3) is None

    def test_a_preference_never_makes_it_impossible(self) -> None:
        racks = cluster("a/r1", "a/r2")
        level = Level(preferred="rack")
        assert racks.impossible(level, all_of([1] * 2), array([1, 1]), 2) is None
        assert racks.impossible(level, all_of([1] * 2), array([1, 1]), 3) == (2, 3)


class TestLabels:
    def test_changed_labels_change_the_domains(self) -> None:
        racks = cluster("a/r1", "a/r1", "a/r2")
        assert tried(racks, RACK, [1, 1, 1], 2) == [[0, 1]]
        racks.set_node(1, "n1", (("zone", "a"), ("rack", "r2")))
        assert tried(racks, RACK, [1, 1, 1], 2) == [[1, 2]]
        racks.remove_node(2)
        assert tried(racks, RACK, [1, 1, 1], 1) == [[0], [1]]

    def test_other_changes_keep_them(self) -> None:
        racks = cluster("a/r1", "a/r1")
        before = racks.domains("rack", 2)
        racks.set_node(1, "n1", (("zone", "a"), ("rack", "r1"), ("owner", "x")))
        assert racks.domains("rack", 2) is before

    def test_a_copy_changes_by_itself(self) -> None:
        racks = cluster("a/r1", "a/r1")
        assert racks.domains("rack", 2).tolist() == [0, 0]
        other = racks.copy()
        other.set_node(1, "n1", (("zone", "a"), ("rack", "r2")))
        assert other.domains("rack", 2).tolist() == [0, 1]
        assert racks.domains("rack", 2).tolist() == [0, 0]

    def test_more_slots_than_before(self) -> None:
        racks = cluster("a/r1")
        assert racks.domains("rack", 1).tolist() == [0]
        racks.set_node(2, "n2", (("zone", "a"), ("rack", "r1")))
        assert racks.domains("rack", 4).tolist() == [0, -1, 0, -1]

    def test_a_key_of_no_topology_is_a_level_by_itself(self) -> None:
        racks = Topologies()
        for slot, room in enumerate(["x", "y", "x"]):
            racks.set_node(slot, f"n{slot}", (("room", room),))
        assert tried(racks, Level(required="room"), [1, 1, 1], 2) == [[0, 2]]
        assert racks.path("room", 1) == "y"

    def test_the_named_topology_is_asked(self) -> None:
        racks = cluster("a/r1", "b/r1")
        racks.set_topology(TopologySet("flat", ("rack",)))
        assert tried(racks, Level(required="rack", topology="flat"), [1, 1], 2) == [[0, 1]]
        assert tried(racks, Level(required="rack", topology="dc"), [1, 1], 2) == []

    def test_an_unknown_topology_holds_nothing(self) -> None:
        racks = cluster("a/r1")
        level = Level(required="rack", topology="other")
        assert tried(racks, level, [1], 1) == []
        assert racks.impossible(level, all_of([1]), array([1]), 1) == (0, 1)
        assert racks.domains("rack", 1, "other").tolist() == [-1]
        preferred = Level(preferred="rack", topology="other")
        assert tried(racks, preferred, [1], 1) == [[0]]
        assert racks.node_scores(preferred, all_of([1]), array([1])).tolist() == [0]

    def test_paths_for_people(self) -> None:
        racks = cluster("a/r1", "a/-")
        assert racks.path("rack", 0) == "a/r1"
        assert racks.path("zone", 1) == "a"
        assert racks.path("rack", 1) == ""
        assert racks.path(HOST, 1) == "n1"
        assert racks.path("rack", 7) == ""

    @pytest.mark.parametrize(
        ("levels", "code"),
        [(("a", "b", "a"), "level_twice"), ((HOST, "a"), "host_not_last")],
    )
    def test_levels_that_make_no_order_are_refused(
        self, levels: tuple[str, ...], code: str
    ) -> None:
        racks = Topologies()
        with pytest.raises(InvalidEvent) as caught:
            racks.set_topology(TopologySet("t", levels))
        assert (caught.value.code, caught.value.field) == (code, "levels")

    @pytest.mark.parametrize(
        ("level", "code", "field"),
        [
            (Level(required="rack", topology="other"), "unknown_topology", "topology"),
            (Level(required="row", topology="dc"), "unknown_level", "required"),
            (Level(preferred="row", topology="dc"), "unknown_level", "preferred"),
        ],
    )
    def test_wishes_that_name_nothing(self, level: Level, code: str, field: str) -> None:
        with pytest.raises(InvalidEvent) as caught:
            cluster("a/r1").check(level)
        assert (caught.value.code, caught.value.field) == (code, field)

    def test_wishes_that_name_what_exists(self) -> None:
        for required, preferred in product(("", "zone", HOST), ("", "rack", HOST)):
            cluster("a/r1").check(Level(required, preferred, "dc"))
        cluster("a/r1").check(Level("anything"))
