"""Where tasks may run: labels, taints, node lists, forms of GPU requests, and changes of nodes."""

from carrel_scheduler.core.requests import ANYWHERE, HOST, NodeConstraint, Request
from unit.core.clusters import Cluster, cluster, node


def names(world: Cluster, where: NodeConstraint = ANYWHERE, **request: object) -> str:
    asked = Request(where=where, **request)  # type: ignore[arg-type]
    mask = world.eligible.of(asked)
    return "".join(sorted(world.nodes.names[slot] for slot in mask.nonzero()[0].tolist()))


def wants(key: str, *values: str) -> NodeConstraint:
    return NodeConstraint(labels=((key, frozenset(values)),))


def test_all_required_labels_must_match() -> None:
    world = cluster(
        node("a", labels=(("gpu", "h100"), ("zone", "1"))),
        node("b", labels=(("gpu", "a100"), ("zone", "1"))),
        node("c", labels=(("gpu", "h100"),)),
    )
    assert names(world) == "abc"
    assert names(world, wants("gpu", "h100")) == "ac"
    assert names(world, wants("gpu", "h100", "a100")) == "abc"
    assert names(world, wants("gpu", "v100")) == ""
    both = NodeConstraint(labels=(("gpu", frozenset({"h100"})), ("zone", frozenset({"1"}))))
    assert names(world, both) == "a"


def test_the_host_is_a_label_too() -> None:
    world = cluster(node("a"), node("b", labels=((HOST, "a"),)))
    assert names(world, wants(HOST, "a", "unknown")) == "a"
    assert names(world, NodeConstraint(nodes=frozenset({"b", "unknown"}))) == "b"
    assert names(world, NodeConstraint(nodes=frozenset())) == ""


def test_taints_keep_away_who_does_not_tolerate_all_of_them() -> None:
    world = cluster(
        node("a"),
        node("b", taints=frozenset({"team=x"})),
        node("c", taints=frozenset({"team=x", "old"})),
    )

    def tolerating(*tolerations: str) -> str:
        return names(world, NodeConstraint(tolerations=frozenset(tolerations)))

    assert tolerating() == "a"
    assert tolerating("team=x") == "ab"
    assert tolerating("team") == "ab"
    assert tolerating("team=y", "old") == "a"
    assert tolerating("team", "old") == "abc"
    assert tolerating("*") == "abc"


def test_closed_nodes_are_left_out_also_for_tasks_without_needs() -> None:
    world = cluster(node("a"), node("b", schedulable=False), node("c", draining=True))
    assert names(world) == "a"
    assert sorted(world.eligible.ever(Request()).nonzero()[0].tolist()) == [0, 1, 2]


def test_gpu_facts_decide_by_form() -> None:
    world = cluster(
        node("a", gpu_memory_mib=80_000), node("m", mig_model="A100-80GB"), node("u"), node("n", 0)
    )
    assert names(world, gpus=1) == "amnu"
    assert names(world, share_milli=500) == "anu"
    assert names(world, gpu_memory_mib=10_000) == "am"
    assert names(world, gpu_memory_mib=10_000, devices=2) == "a"
    assert names(world, mig_profile="1g.10gb") == "m"
    assert names(world, mig_profile="1g.5gb") == ""


def test_wishes_are_counted() -> None:
    world = cluster(node("a", labels=(("x", "1"), ("y", "1"))), node("b", labels=(("y", "1"),)))
    both = NodeConstraint(preferred=(("x", frozenset({"1"})), ("y", frozenset({"1"}))))
    wishes = world.eligible.preferred(both)
    assert wishes is not None
    assert wishes[: len(world.nodes.slots)].tolist() == [2, 1]
    assert world.eligible.preferred(NodeConstraint()) is None
    last = NodeConstraint(preferred=both.preferred, avoided=frozenset({"a", "gone"}))
    wishes = world.eligible.preferred(last)
    assert wishes is not None
    assert wishes[: len(world.nodes.slots)].tolist() == [-1, 1]


def test_masks_follow_changes_of_nodes() -> None:
    world = cluster(node("a", labels=(("x", "1"),)))
    wish = wants("x", "1")
    assert names(world, wish) == "a"
    world.nodes.set(node("b", labels=(("x", "1"),)))
    assert names(world, wish) == "ab"
    world.nodes.set(node("a", labels=(("x", "2"),)))
    assert names(world, wish) == "b"
    world.nodes.set(node("b", labels=(("x", "1"),), taints=frozenset({"t"})))
    assert names(world, wish) == ""
    world.nodes.drop("b")
    world.nodes.set(node("c", labels=(("x", "1"),)))
    assert names(world, wish) == "c"


def test_equal_conditions_share_a_key_whatever_the_amounts() -> None:
    eligible = cluster(node("a")).eligible
    assert eligible.key(Request(gpus=1)) == eligible.key(Request(gpus=4, cpu_milli=9))
    assert eligible.key(Request(share_milli=100)) == eligible.key(Request(share_milli=200))
    assert eligible.key(Request(gpu_memory_mib=1)) != eligible.key(Request(share_milli=1))
    assert eligible.key(Request(gpus=1)) != eligible.key(Request(where=wants("x", "1")))
