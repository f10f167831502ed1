"""Workload policies: merged along scopes, applied to requests, never loosened below."""

from typing import Any

import pytest

from carrel_scheduler.policy.workload_policy import (
    ScopedPolicy,
    apply,
    check_rule,
    conflicts,
    merge,
    violations,
)
from carrel_schema.governance.policies import FieldRule, PolicyFields
from carrel_schema.scopes import PLATFORM, Scope
from carrel_schema.sections import ExperimentSpec
from carrel_schema.wire import WorkloadCreate

LAB, VISION = Scope("department", "lab"), Scope("project", "vision")


def policy(
    name: str, scope: Scope = PLATFORM, kinds: list[Any] | None = None, **rules: FieldRule
) -> ScopedPolicy:
    named = {path.replace("__", "."): rule for path, rule in rules.items()}
    return ScopedPolicy(name, scope, PolicyFields(kinds=kinds or [], rules=named))


def request(**fields: Any) -> WorkloadCreate:
    return WorkloadCreate(project="vision", name="a", **fields, given=frozenset(fields))


def sentences(policies: list[ScopedPolicy], work: WorkloadCreate) -> list[str]:
    rules = merge(policies, [work.kind])
    return [one.sentence for one in violations(rules, apply(rules, work))]


def test_the_tightest_bound_counts_and_names_its_policy() -> None:
    policies = [
        policy("wide", gpus=FieldRule(max=8)),
        policy("small", VISION, gpus=FieldRule(max=4, message="ask Grace")),
    ]
    assert sentences(policies, request(gpus=4.0)) == []
    assert sentences(policies, request(gpus=5.0)) == [
        "`gpus` is 5; it should be at most 4 (policy `small` of project/vision): ask Grace"
    ]
    looser = [policies[0], policy("loose", VISION, gpus=FieldRule(max=16))]
    assert "at most 8 (policy `wide` of platform)" in sentences(looser, request(gpus=9.0))[0]


def test_all_breaches_are_told_together() -> None:
    rules = policy(
        "p",
        gpus=FieldRule(max=1),
        memory_bytes=FieldRule(min=2**31),
        image=FieldRule(allowed=["registry.example.org/*"]),
        time_limit_seconds=FieldRule(max=3600),
    )
    found = sentences([rules], request(gpus=2.0, image="docker.io/evil"))
    assert len(found) == 4
    assert (
        "`time_limit_seconds` is not given; it should be at most 3600 (policy `p` of platform)"
        in found
    )
    fine = request(
        gpus=1.0, memory_bytes=2**31, image="registry.example.org/torch:2", time_limit_seconds=60.0
    )
    assert sentences([rules], fine) == []


def test_a_default_of_the_narrowest_scope_fills_what_is_not_said() -> None:
    policies = [
        policy("wide", cpu_millicores=FieldRule(default=500)),
        policy("narrow", VISION, cpu_millicores=FieldRule(default=2000)),
    ]
    rules = merge(policies, ["training"])
    assert apply(rules, request()).cpu_millicores == 2000
    assert apply(rules, request(cpu_millicores=700)).cpu_millicores == 700


def test_a_locked_field_is_its_default_and_nothing_else() -> None:
    policies = [
        policy("wide", preemptible=FieldRule(default=True, locked=True)),
        policy("narrow", VISION, preemptible=FieldRule(default=False)),
    ]
    rules = merge(policies, ["training"])
    assert apply(rules, request()).preemptible is True
    assert sentences(policies, request(preemptible=False)) == [
        "`preemptible` is false; it should be true (policy `wide` of platform)"
    ]


def test_entries_of_mappings_and_fields_of_sections_have_rules() -> None:
    policies = [
        policy(
            "p",
            environment__HTTP_PROXY=FieldRule(default="http://proxy", locked=True),
            labels__cost=FieldRule(required=True),
            experiment__parallelism=FieldRule(default=2, max=4),
        )
    ]
    rules = merge(policies, ["training", "experiment"])
    plain = apply(rules, request(labels={"cost": "a"}))
    assert plain.environment == {"HTTP_PROXY": "http://proxy"}
    assert violations(rules, plain) == []
    assert [one.field for one in violations(rules, request())] == [
        "environment.HTTP_PROXY",
        "labels.cost",
    ]
    section = ExperimentSpec(metric="loss", parallelism=8)
    work = apply(rules, request(kind="experiment", experiment=section, labels={"cost": "a"}))
    assert [one.field for one in violations(rules, work)] == ["experiment.parallelism"]


def test_a_policy_of_other_kinds_says_nothing() -> None:
    rules = merge([policy("p", kinds=["workspace"], gpus=FieldRule(max=0))], ["training"])
    assert rules == {}


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        (FieldRule(max=9), "gpus.max"),
        (FieldRule(min=10, max=4), "gpus.min"),
        (FieldRule(default=9), "gpus.default"),
    ],
)
def test_a_narrower_policy_loosens_nothing(rule: FieldRule, where: str) -> None:
    wider = [policy("wide", gpus=FieldRule(max=8))]
    ((found, _, right),) = conflicts(policy("narrow", VISION, gpus=rule), wider)
    assert (found, "policy `wide` of platform" in right) == (where, True)
    assert conflicts(policy("narrow", VISION, gpus=FieldRule(max=8)), wider) == []


def test_narrower_allowed_values_are_among_the_wider_ones() -> None:
    wider = [policy("wide", LAB, image=FieldRule(allowed=["reg/*", "base"]))]
    narrow = policy("narrow", VISION, image=FieldRule(allowed=["reg/torch", "other"]))
    assert [one[:2] for one in conflicts(narrow, wider)] == [("image.allowed", "other")]


@pytest.mark.parametrize(
    ("path", "rule", "part"),
    [
        ("gpuz", FieldRule(max=1), ""),
        ("project", FieldRule(default="x"), ""),
        ("experiment", FieldRule(required=True), ""),
        ("image", FieldRule(max=3), "max"),
        ("gpus", FieldRule(min=3, max=1), "min"),
        ("gpus", FieldRule(locked=True), "default"),
        ("gpus", FieldRule(), ""),
        ("gpus", FieldRule(default=4, max=2), "default"),
    ],
)
def test_rules_that_make_no_sense(path: str, rule: FieldRule, part: str) -> None:
    wrong = check_rule(path, rule)
    assert wrong is not None
    assert wrong[0] == part


@pytest.mark.parametrize("path", ["gpus", "experiment.parallelism", "environment.A_B", "image"])
def test_rules_that_do(path: str) -> None:
    assert check_rule(path, FieldRule(required=True)) is None
