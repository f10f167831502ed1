"""The parts of the core's benchmarks that judge: the baseline, the fairness index, the page."""

import json
from pathlib import Path

import pytest

from benchmarks import performance_page, static_quota
from benchmarks.decision_cases import borrowed, hard_no, improve, rearranged, steady
from benchmarks.decision_cases.cycle import Cluster
from benchmarks.decision_cases.loading import Listing, load
from benchmarks.decision_cases.timing import Times, figures, percentile
from benchmarks.fairness import fill, jain
from benchmarks.growth_plot import draw
from benchmarks.philly import TraceJob, quotas, read_jobs
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Find, OfferResult, unless_failed_before
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event
from carrel_scheduler.core.invariants.columns import indexes_equal_recount
from carrel_scheduler.core.preemption import preemptors
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo


def job(uid: str, cluster: str, arrival: float, duration: float, gpus: int = 1) -> TraceJob:
    return TraceJob(uid, cluster, arrival, duration, gpus)


def test_a_trace_is_read_in_the_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:00:10,60.0,1,60.0,b\n"
        "2017-10-09 07:00:00,30.0,8,240.0,a\n"
    )
    first, second = read_jobs(path)
    assert (first.cluster, first.arrival, first.gpus) == ("a", 0.0, 8)
    assert (second.cluster, second.arrival, second.duration) == ("b", 10.0, 60.0)


def test_quotas_follow_gpu_hours_and_make_the_whole() -> None:
    jobs = [job("1", "a", 0, 100, 2), job("2", "b", 0, 100), job("3", "c", 0, 33)]
    found = quotas(jobs, 10)
    assert sum(found.values()) == 10_000
    assert found["a"] == 2 * found["b"]
    assert static_quota.whole_quotas({"a": 9_990, "b": 5, "c": 5}) == {"a": 8, "b": 1, "c": 1}


def test_static_quota_lends_nothing() -> None:
    jobs = [job("1", "a", 0, 100), job("2", "a", 0, 100), job("3", "b", 150, 100)]
    found = static_quota.run(jobs, {"a": 1000, "b": 1000})
    assert (found.mean_wait_s, found.ended_at) == (100 / 3, 250)
    assert (found.in_use, found.held) == (0.5, 0.5)


def test_static_quota_fills_with_what_fits() -> None:
    jobs = [job("1", "a", 0, 10, 2), job("2", "a", 1, 10, 3), job("3", "a", 2, 5)]
    found = static_quota.run(jobs, {"a": 3000})
    assert found.mean_wait_s == (0 + 9 + 0) / 3
    assert found.ended_at == 20


def test_a_project_is_entitled_to_what_its_jobs_can_fill() -> None:
    assert [fill(room, (8,)) for room in (0, 3, 8, 20)] == [0, 0, 8, 8]
    assert [fill(room, (4, 2, 4, 1)) for room in (3, 5, 8, 9, 20)] == [3, 5, 8, 9, 11]


def test_jain_is_one_for_equals_and_the_part_of_one_for_one() -> None:
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_a_percentile_is_a_value_that_was_seen() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 0.99), percentile(values, 1.0)) == (100.0, 100.0)
    assert percentile(values, 0.5) == 51.0


def test_a_goal_is_judged_by_the_processors_time() -> None:
    busy, wall, _ = figures("x", Times(wall=[30.0], cpu=[9.0]), 10.0)
    assert (busy.met, busy.goal, wall.goal) == (True, "<= 10", "-")
    assert not figures("x", Times(wall=[30.0], cpu=[11.0]), 10.0)[0].met


@pytest.mark.parametrize("nodes", [60, 100, 1000])
def test_the_puzzle_falls_short_in_whole_nodes_only(nodes: int) -> None:
    listing = hard_no.puzzle(nodes).listing
    kept = sum(queue.quota.gpu_milli for queue in listing.queues if queue.parent == "department")
    assert (8 * nodes - kept // 1000) / 8 >= nodes // 2


@pytest.mark.parametrize(
    "listing",
    [
        borrowed.tight(20).listing,
        hard_no.nodes_short(20).listing,
        hard_no.budgets_short(20).listing,
        rearranged.scattered(20).listing,
        rearranged.idle_half(120).listing,
        rearranged.racks(30, whole=True).listing,
    ],
)
def test_the_clusters_are_possible(listing: Listing) -> None:
    state = State()
    load(state, listing)
    assert len(state.tasks.used()) == len(listing.placed)


def test_the_steady_state_is_what_it_says() -> None:
    listing = steady.listing(40, 1400)
    state = State()
    load(state, listing)
    free = int(state.nodes.free.devices.sum(dtype=int))
    assert len(listing.placed) == 1400
    assert 0.90 < 1 - free / (40 * 8000) < 0.96
    assert state.waiting.count == steady.WAITING
    assert len({job.request for job in listing.workloads[1400:]}) == steady.CLASSES


def test_a_tenth_would_move_to_a_type_of_which_nothing_is_free() -> None:
    listing, lasting = improve.full_type(40, 1400)
    cluster = Cluster(listing, lasting=lasting)
    assert len(cluster.state.improvable) == 140
    assert indexes_equal_recount(cluster.state) == []
    for event in cluster.changes():
        cluster.state.apply(event)
    plan = decide(cluster.state, cluster.now)
    assert plan.bindings
    assert not [one for one in plan.evictions if one.reason.token is Token.IMPROVED]
    full = [node.name for node in listing.nodes if node.name.startswith("full")]
    slots = [cluster.state.nodes.slots[name] for name in full]
    assert len(slots) == 4
    assert not cluster.state.nodes.free.devices[:, slots].any()


def test_the_page_tells_goals_and_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"figure": "100 nodes, tight budgets: processor time", "value": 1.5, "unit": "ms",
         "goal": "-", "met": True},
        {"figure": "1,000 nodes, tight budgets: processor time", "value": 9.0, "unit": "ms",
         "goal": "<= 8", "met": False},
    ]  # fmt: skip
    page = tmp_path / "performance.md"
    page.write_text(f"words\n{performance_page.BEGIN}\nold\n{performance_page.END}\nmore words\n")
    monkeypatch.setattr(performance_page, "PAGE", page)
    monkeypatch.setattr(performance_page, "PLOT", tmp_path / "growth.svg")
    kept: performance_page.Rows = json.loads(json.dumps({"reclaim": rows}))
    performance_page.write_page(kept)
    text = page.read_text()
    assert "| reclaim | 1,000 nodes, tight budgets: processor time | 9 ms | <= 8 | **no** |" in text
    assert "| reclaim, tight budgets | 1.50 | 9.00 |" in text
    assert text.startswith("words\n")
    assert text.endswith("more words\n")
    assert "old" not in text
    assert (tmp_path / "growth.svg").read_text().count("<circle") == 3


def test_a_plot_needs_points(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no line"):
        draw({}, tmp_path / "x.svg")


def test_a_cycle_of_a_small_cluster_searches_within_its_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search has fixed costs, so a small cluster affords hardly more of them than a large one."""
    cluster, pending, tried = Cluster(steady.listing(100, 3500)), list[Event](), 0
    searches: list[OfferResult] = []

    def counted(
        cycle: Cycle, name: str, job: JobInfo, step: tuple[int, ...], find: Find
    ) -> OfferResult:
        def noted(cycle: Cycle, job: JobInfo, step: tuple[int, ...]) -> OfferResult:
            searches.extend([find(cycle, job, step)] if name == "reclaim" else [])
            return searches[-1] if name == "reclaim" else find(cycle, job, step)

        return unless_failed_before(cycle, name, job, step, noted)

    monkeypatch.setattr(preemptors, "unless_failed_before", counted)
    for _ in range(8):
        for event in pending + cluster.changes():
            cluster.state.apply(event)
        searches.clear()
        pending = cluster.consequences(decide(cluster.state, cluster.now))
        tried += len(searches)
        assert sum(answer is OfferResult.NO for answer in searches) <= 4
    assert tried
