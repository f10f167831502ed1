"""Policies about manifests: which rules the API server is given, and what is filled in."""

import re
from typing import Any

import pytest

from carrel_scheduler.policy.manifest_defaults import fill_defaults, unsaid
from carrel_scheduler.policy.manifest_rules import manifest_path, manifest_rules
from carrel_scheduler.policy.workload_policy import hint_of, merge
from carrel_schema import constraints
from carrel_schema.governance.policies import FieldRule, ManifestRule
from carrel_schema.kinds import KINDS
from carrel_schema.objects import Meta, Workload, WorkloadSpec
from carrel_schema.sections import ExperimentSpec
from carrel_schema.wire import WorkloadCreate
from unit.policy.test_workload_policy import VISION, policy


def the_rule(*given: Any, kind: str = "trainings") -> ManifestRule:
    """The one rule that is made of these policies for a kind."""
    (found,) = (one for one in manifest_rules(given) if kind in one.kinds)
    return found


def test_every_field_that_rules_are_about_has_a_place() -> None:
    for name in constraints.fields(WorkloadCreate):
        if hint_of(name) is not None:
            assert manifest_path(name)
    assert manifest_path("environment.HTTP_PROXY") == ("environment", "HTTP_PROXY")
    assert manifest_path("experiment.max_trials") == ("experiment", "maxTrials")
    assert manifest_path("gpu_memory_bytes") == ("resources", "gpuMemory")
    assert manifest_path("labels.cost-center") == ("labels", "cost-center")
    assert manifest_path("time_limit_seconds") == ("timeLimitSeconds",)


def test_a_rule_says_where_what_and_who() -> None:
    wide = policy("wide", gpus=FieldRule(max=8))
    small = policy("small", VISION, gpus=FieldRule(max=4, message="ask Grace"))
    made = the_rule(wide, small)
    assert (made.field, made.path, made.max) == ("spec.resources.gpus", ["resources", "gpus"], 4)
    assert made.max_said == "it should be at most 4 (policy `small` of project/vision): ask Grace"
    assert not made.bounded
    assert {"schedules/notebook", "schedules/training"} <= set(made.kinds)
    assert not {"workspaces", "trials", "replicas"} & set(made.kinds)


def test_amounts_are_said_as_in_manifests() -> None:
    rule = policy("p", cpu_millicores=FieldRule(max=1500), memory_bytes=FieldRule(min=2**31))
    cpu, memory = manifest_rules([rule])
    assert (cpu.max, cpu.quantity, cpu.path) == ("1500m", True, ["resources", "cpu"])
    assert (memory.min, memory.path) == ("2Gi", ["resources", "memory"])
    assert 'at least "2Gi"' in memory.min_said


def test_what_is_unlimited_when_left_out_has_to_be_said_unless_there_is_a_default() -> None:
    assert the_rule(policy("p", time_limit_seconds=FieldRule(max=60))).bounded
    assert not the_rule(policy("p", time_limit_seconds=FieldRule(max=60, default=30))).bounded


def test_a_lock_hides_what_else_is_said_of_its_field() -> None:
    lock = policy("lock", priority=FieldRule(default="train", locked=True))
    made = the_rule(lock, policy("p", VISION, priority=FieldRule(allowed=["low"])))
    assert (made.locked, made.patterns, made.allowed_said) == ("train", [], "")
    assert "`lock` of platform" in made.locked_said


def test_required_with_a_default_is_filled_in_not_asked_for() -> None:
    assert the_rule(policy("p", image=FieldRule(required=True))).required_said
    with_default = policy("p", image=FieldRule(required=True, default="registry.example.org/a"))
    assert not [one for one in manifest_rules([with_default]) if one.required_said]


def test_kinds_have_their_own_rules_and_schedules_those_of_their_runs() -> None:
    rules = manifest_rules(
        [
            policy("t", kinds=["training"], gpus=FieldRule(max=2)),
            policy("s", kinds=["schedule"], image=FieldRule(required=True)),
        ]
    )
    assert {tuple(one.kinds): one.field for one in rules} == {
        ("trainings", "schedules/training"): "spec.resources.gpus",
        ("schedules/notebook", "schedules/training"): "spec.image",
    }


@pytest.mark.parametrize(
    ("text", "fits", "other"),
    [
        ("registry.example.org/*", "registry.example.org/a/b:1", "registryXexample.org/a"),
        ("*a*b*c", "xaybzc", "xaybz"),
        ("v?", "v1", "v12"),
        ("a b-c", "a b-c", "a bxc"),
    ],
)
def test_patterns_are_of_the_form_that_api_servers_take(text: str, fits: str, other: str) -> None:
    (pattern,) = the_rule(policy("p", image=FieldRule(allowed=[text]))).patterns
    assert "?=" not in pattern
    assert r"\Z" not in pattern
    assert re.search(pattern, fits)
    assert not re.search(pattern, other)


def test_sets_of_characters_are_left_to_the_scheduler() -> None:
    assert the_rule(policy("p", image=FieldRule(allowed=["v[12]"]))).patterns == [""]


def workload(kind: Any = "training", **fields: Any) -> Workload:
    meta = Meta(name="a", project="vision", labels={"team": "red"})
    return Workload(meta=meta, spec=WorkloadSpec(kind=kind, **fields))


def test_what_is_left_out_is_filled_in() -> None:
    rules = merge(
        [
            policy(
                "p",
                gpus=FieldRule(default=2),
                cpu_millicores=FieldRule(default=1500),
                time_limit_seconds=FieldRule(default=3600),
                image=FieldRule(default="mine"),
                priority=FieldRule(default="low", locked=True),
                environment__MODE=FieldRule(default="batch"),
                labels__cost=FieldRule(default="a1"),
                labels__team=FieldRule(default="blue"),
                experiment__parallelism=FieldRule(default=3),
                volumes=FieldRule(default=[{"source": "words", "read_only": True}]),
            )
        ],
        KINDS,
    )
    work = workload(image="own")
    given = fill_defaults(work, {"image": "own", "timeLimitSeconds": None}, rules)
    spec = work.spec
    assert (spec.image, spec.priority, spec.time_limit_seconds) == ("own", "low", 3600.0)
    assert (spec.resources.gpu_milli, spec.resources.cpu_milli) == (2000, 1500)
    assert spec.environment == {"MODE": "batch"}
    assert work.meta.labels == {"team": "red", "cost": "a1"}
    assert (spec.volumes, spec.read_only) == ([("words", "")], ["words"])
    assert given["resources"] == {"gpus": 2, "cpu": 1500}
    assert spec.experiment is None
    assert "experiment" not in given
    search = workload("experiment", experiment=ExperimentSpec())
    fill_defaults(search, {"experiment": {}}, rules)
    assert search.spec.experiment is not None
    assert search.spec.experiment.parallelism == 3


def test_what_has_to_be_said_is_missed() -> None:
    wanted = policy(
        "p",
        image=FieldRule(required=True),
        labels__cost=FieldRule(required=True),
        experiment__parallelism=FieldRule(required=True),
    )
    rules = merge([wanted], KINDS)
    found = unsaid(workload(), {"image": ""}, rules)
    assert [one.field for one in found] == ["image", "labels.cost"]
    assert unsaid(workload(image="x"), {"image": "x"}, {"image": rules["image"]}) == []
