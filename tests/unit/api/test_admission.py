"""What can never run is refused at submission."""

from types import SimpleNamespace
from typing import Any

import pytest

from carrel_scheduler.api.services.changes import changed
from carrel_scheduler.core.mig import MODELS, counted_gpu_milli
from carrel_scheduler.workloads.admission import NotAdmitted, admit, find_share
from carrel_scheduler.workloads.state.shape import held_by
from carrel_schema.objects import Meta, ReasonInfo, Resources, Workload, WorkloadSpec


def asks(priority: str | int = "") -> Workload:
    resources = Resources(gpu_milli=3000, cpu_milli=2000, memory_bytes=5, mig_profile="3g.40gb")
    spec = WorkloadSpec(priority=priority, resources=resources)
    return Workload(meta=Meta(name="a"), spec=spec)


def says(reason: ReasonInfo | None) -> Any:
    return SimpleNamespace(
        never=lambda workload: reason,
        unsupported_field=lambda workload: None,
        mig_model=lambda: "",
        only_instances=lambda: False,
    )


@pytest.mark.parametrize("priority", ["", 0, 77, "train", "very-high"])
def test_what_can_run_is_admitted(priority: str | int) -> None:
    admit(asks(priority), says(None))


def test_an_unknown_priority_is_refused_before_the_scheduler_is_asked() -> None:
    with pytest.raises(NotAdmitted) as refused:
        admit(asks("urgent"), None)  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.field) == ("unknown_priority", "priority")
    assert "`train`" in refused.value.expected


@pytest.mark.parametrize(
    ("token", "resource", "code", "field", "value"),
    [
        ("NeverFits", "gpu", "never_fits", "gpus", 3.0),
        ("OverLimit", "cpu", "limit_never_met", "cpu_millicores", 2000),
        ("NeverFits", "nvidia.com/mig-3g.40gb", "never_fits", "mig_profile", "3g.40gb"),
        ("SomethingNew", "", "never_fits", "gpus", 3.0),
    ],
)
def test_the_binding_fact_is_named(
    token: str, resource: str, code: str, field: str, value: object
) -> None:
    reason = ReasonInfo(token=token, sentence="No.", help="Less.", data={"resource": resource})
    with pytest.raises(NotAdmitted) as refused:
        admit(asks(), says(reason))
    found = refused.value
    assert (found.code, found.field, found.value) == (code, field, value)
    assert (found.detail, found.expected) == ("No.", "Less.")


@pytest.mark.parametrize("token", ["NonPreemptibleBeyondQuota", "OverQuotaOff", "QuotaUsed"])
def test_what_a_larger_guarantee_would_admit_waits(token: str) -> None:
    admit(asks(), says(ReasonInfo(token=token, data={"resource": "gpu"})))


@pytest.mark.parametrize(
    ("asked", "profile"),
    [
        (Resources(gpu_milli=250), "2g.20gb"),
        (Resources(gpu_milli=100, gpu_memory_mib=9000), "1g.10gb"),
        (Resources(gpu_memory_mib=30_000), "3g.40gb"),
        (Resources(gpu_milli=1000), ""),
        (Resources(mig_profile="1g.10gb"), "1g.10gb"),
    ],
)
def test_a_part_of_a_gpu_is_an_instance_where_gpus_are_divided(
    asked: Resources, profile: str
) -> None:
    live = says(None)
    live.mig_model = lambda: "H100-80GB"
    spec = WorkloadSpec(resources=asked)
    admit(Workload(meta=Meta(name="a"), spec=spec), live)
    assert spec.resources.mig_profile == profile
    if profile:
        assert (spec.resources.gpu_milli, spec.resources.gpu_memory_mib) == (0, 0)
    else:
        assert spec.resources == asked


@pytest.mark.parametrize("model", MODELS)
def test_an_instance_is_recorded_as_the_part_that_the_core_books(model: str) -> None:
    """`1g.10gb` is a quarter of an A100 with 40 GB and an eighth of one with 80 GB."""
    live = says(None)
    live.mig_model = lambda: model
    for profile in MODELS[model].profiles.values():
        spec = WorkloadSpec(resources=Resources(mig_profile=profile.name))
        find_share(spec, live)
        assert spec.resources.mig_profile == profile.name
        assert counted_gpu_milli(spec.resources) == profile.milli
        assert held_by(spec, range(3)).gpu_milli == 3 * profile.milli


def test_what_part_an_instance_was_is_forgotten_with_it() -> None:
    live = says(None)
    live.mig_model = lambda: "A100-40GB"
    spec = WorkloadSpec(resources=Resources(mig_profile="1g.10gb"))
    find_share(spec, live)
    assert counted_gpu_milli(spec.resources) == 250
    after = changed(spec, {"gpus": 1}, live)
    assert counted_gpu_milli(after.resources) == 1000
    after = changed(spec, {"gpus": 0.1}, live)
    assert (after.resources.mig_profile, counted_gpu_milli(after.resources)) == ("1g.5gb", 125)
