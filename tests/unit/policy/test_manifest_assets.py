"""Assets in manifests: what they say is filled in where its author says nothing."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.assets import AssetRefused
from carrel_scheduler.policy.manifest_defaults import fill_assets, fill_defaults, unsaid
from carrel_scheduler.policy.manifest_rules import manifest_rules
from carrel_scheduler.policy.workload_policy import ScopedPolicy, merge
from carrel_schema.governance.policies import FieldRule
from carrel_schema.kinds import KINDS
from carrel_schema.objects import Meta, Workload, WorkloadSpec
from carrel_schema.scopes import PLATFORM, Scope, scopes_over
from carrel_schema.sections import Assets
from unit.policy.test_workload_policy import VISION, policy

ADA = Scope("user", "ada")


def asset(kind: str, name: str, scope: Scope = PLATFORM, **content: Any) -> ScopedRecord:
    text = msgspec.Raw(msgspec.json.encode(content))
    return ScopedRecord(kind=f"asset-{kind}", name=name, scope=scope, content=text)


RECORDS = [
    asset("environment", "torch", fields={"image": "torch:1", "environment": {"A": "1"}}),
    asset("compute", "half", fields={"gpus": 0.5, "cpu_millicores": 300, "gpu_types": ["A100"]}),
    asset("compute", "room", fields={"gpu_memory_bytes": 2**33}),
    asset("compute", "half", scope=ADA, fields={"gpus": 2}),
    asset("data-source", "words", data={"kind": "folder", "source": "/w", "destination": "/w"}),
    asset("data-source", "lib", data={"kind": "git", "source": "https://h/x", "destination": "x"}),
    asset("data-source", "pictures", data={"kind": "s3", "source": "s3://b/p"}),
]
DEFAULTS = policy(
    "usual",
    assets__environment=FieldRule(default="torch"),
    assets__compute=FieldRule(default="half"),
    assets__data_sources=FieldRule(default=["words", "lib", "pictures"]),
)


def filled(
    given: dict[str, Any], *policies: ScopedPolicy, **fields: Any
) -> tuple[WorkloadSpec, Any]:
    work = Workload(meta=Meta(name="a", project="vision"), spec=WorkloadSpec(**fields))
    rules, scopes = merge(policies, KINDS), scopes_over(project="vision", user="ada")
    after = fill_assets(work, given, RECORDS, scopes, rules)
    fill_defaults(work, after, rules)
    return work.spec, after


def test_defaults_of_policies_bring_what_their_assets_say() -> None:
    cores = policy("cores", cpu_millicores=FieldRule(default=900), gpus=FieldRule(default=4))
    spec, given = filled({"environment": {"A": "0"}}, DEFAULTS, cores, environment={"A": "0"})
    assert spec.assets == Assets(
        environment="torch", compute="half", data_sources=["words", "lib", "pictures"]
    )
    assert (spec.resources.gpu_milli, spec.resources.cpu_milli) == (500, 300)
    assert (spec.image, spec.gpu_types) == ("torch:1", ["A100"])
    assert spec.environment == {"A": "0", "DATA_PICTURES": "s3://b/p"}
    assert (spec.volumes, spec.read_only) == ([("/w", "/w")], ["/w"])
    assert [one.destination for one in spec.repositories] == ["x"]
    assert given["resources"]["gpus"] == 0.5


def test_what_its_author_names_counts_and_what_he_says_most() -> None:
    own = Assets(compute="half")
    said = {"resources": {"cpu": "200m"}, "assets": {"compute": "half"}}
    spec, _ = filled(said, assets=own)
    assert (spec.resources.gpu_milli, spec.resources.cpu_milli) == (2000, 100), "ada's own"
    locked = policy("lock", VISION, assets__compute=FieldRule(default="half", locked=True))
    assert filled(said, locked, assets=own)[0].resources.gpu_milli == 500, "the policy's"
    sized, _ = filled({"resources": {"gpus": 1}}, DEFAULTS)
    assert sized.resources.gpu_milli == 0, "left as its author wrote it, which is not read here"


def test_who_asks_for_gpus_one_way_takes_no_other_from_an_asset() -> None:
    assert filled({}, assets=Assets(compute="room"))[0].resources.gpu_memory_mib == 8192
    said = {"resources": {"gpus": 1}}
    assert filled(said, assets=Assets(compute="room"))[0].resources.gpu_memory_mib == 0


def test_an_asset_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AssetRefused, match=r"assets\.compute is `none`: one of `half`, `room` is"):
        filled({}, assets=Assets(compute="none"))
    wrong = policy("usual", assets__compute=FieldRule(default="none"))
    with pytest.raises(AssetRefused, match="named by policy `usual` of platform"):
        filled({}, wrong)


def test_a_required_asset_is_asked_for_where_there_are_none() -> None:
    rule = policy("p", assets__compute=FieldRule(required=True))
    work = Workload(meta=Meta(name="a", project="vision"), spec=WorkloadSpec())
    assert [one.field for one in unsaid(work, {}, merge([rule], KINDS))] == ["assets.compute"]
    (made,) = manifest_rules([rule])
    assert (made.path, made.section) == (["assets", "compute"], False)
