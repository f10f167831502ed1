"""Assets of a workspace: chosen by name, put together by the scheduler, checked before a start."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.models import Project, Volume, Workload, WorkloadSpec
from carrel.testing import FakeScheduler
from carrel_schema.governance.assets import AssetOut, DataSource
from carrel_schema.governance.policies import Bound, EffectivePolicy, EffectiveRule
from carrel_schema.sections import Assets as NamedAssets
from carrel_spawner import options
from carrel_spawner.choices import assets, form
from carrel_spawner.choices.form import Supply
from carrel_spawner.choices.option_checks import check, from_form
from carrel_spawner.kubernetes.manifests import CONTAINER, PodAdditions, complete_pod
from carrel_spawner.options import BadOption, ChosenAssets, Most, WorkspaceChoice, WorkspaceChoices
from carrel_spawner.watch import close_watch
from carrel_spawner.workspace import Launch, Workspace

ONE_MACHINE, CLUSTER = (
    WorkspaceChoices(most=Most(gpus=2)),
    WorkspaceChoices(most=Most(gpus=2), folders=False),
)
SMALL = AssetOut(type="compute", name="small", scope="platform", description="one GPU")
TORCH = AssetOut(type="environment", name="torch", scope="project/vision")
WORDS = AssetOut(
    type="data-source", name="words", scope="user/ada", data=DataSource(kind="folder", source="/w")
)
FOREIGN = AssetOut(type="compute", name="theirs", scope="project/speech")
OTHERS = AssetOut(type="compute", name="private", scope="user/grace")
ABOVE = AssetOut(type="compute", name="above", scope="department/science")
PROJECT = Project(name="vision", department="science")


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler({"ada": ["vision"]}, admins=["spawner"]) as running:
        yield running


@pytest.fixture
async def place(fake: FakeScheduler) -> AsyncIterator[Workspace]:
    async with AsyncClient(fake.url, fake.token("spawner")) as one:
        yield Workspace(one, "ada")
        await close_watch(one)


def chosen(offer: WorkspaceChoices = ONE_MACHINE, **fields: Any) -> WorkspaceChoice:
    return check({"project": "vision", **fields}, ["vision"], offer)


def drafted(**spec: Any) -> Workload:
    return Workload(name="w", project="vision", spec=WorkloadSpec(**spec))


def test_names_are_chosen_and_kept_for_the_next_start() -> None:
    asked: dict[str, Any] = {
        "environment_asset": "torch",
        "compute": "small",
        "data": ["words", "words"],
    }
    choice = chosen(**asked, gpus=2)
    assert choice.assets == ChosenAssets("torch", "small", ("words",))
    assert choice.sizes() == {"gpus": 2}, "what is said beside a compute resource wins over it"
    assert choice.options() == asked | {"project": "vision", "gpus": 2, "data": ["words"]}
    assert check(choice.options(), ["vision"], ONE_MACHINE) == choice
    assert len(chosen().sizes()) == 4
    assert chosen(data="a, b").assets.data == ("a", "b")


def test_the_forms_sizes_give_way_to_a_compute_resource() -> None:
    fields = {"gpus": ["1"], "cpu": ["2"], "compute": ["small"], "data": ["a", "", "b"]}
    assert from_form(fields) == {"compute": "small", "data": ["a", "b"]}
    assert from_form(fields | {"compute": [""]})["gpus"] == "1"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"compute": 5}, "compute"),
        ({"environment_asset": ["a"]}, "environment_asset"),
        ({"data": {"a": 1}}, "data"),
        ({"data": [""]}, "data"),
        ({"data": [f"d{number}" for number in range(33)]}, "data"),
    ],
)
def test_what_is_no_name_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(BadOption) as refused:
        chosen(**fields)
    assert refused.value.field == field


def test_a_cluster_offers_no_data_sources() -> None:
    with pytest.raises(BadOption, match=r"data is \['words'\]; .*the admin sets the volumes"):
        chosen(CLUSTER, data=["words"])
    found = assets.offered([WORDS, SMALL], [PROJECT], "ada", CLUSTER)
    assert list(found) == ["compute"]


def test_what_is_offered_is_what_the_users_work_may_name() -> None:
    everything = [SMALL, ABOVE, TORCH, WORDS, FOREIGN, OTHERS]
    found = assets.offered(everything, [PROJECT], "ada", ONE_MACHINE)
    names = {field: [one.name for one in shown] for field, shown in found.items()}
    assert names == {
        "compute": ["above", "small"], "environment_asset": ["torch"], "data": ["words"],
    }  # fmt: skip
    assert found["compute"][1].text == "small: one GPU (platform)"


def test_the_result_counts_with_its_sizes_and_folders() -> None:
    draft = drafted(
        gpus=1,
        cpu_millicores=3000,
        memory_bytes=2**33,
        volumes=[
            Volume(source="/own", destination="mine"),
            Volume(source="/data/w", read_only=True),
            Volume(source="/data/x", destination="/mnt/images"),
        ],
    )
    whole = assets.put_together(chosen(compute="small", data=["words"]), draft, ONE_MACHINE)
    assert (whole.gpus, whole.cpu, whole.memory_gib) == (1, 3.0, 8.0)
    assert [str(one) for one in whole.volumes] == [
        "/own:mine", "/data/w:w:ro", "/data/x:images",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("offer", "spec", "field", "right"),
    [
        (ONE_MACHINE, {"gpus": 3}, "compute", "at most 2 GPUs"),
        (ONE_MACHINE, {"gpus": 0.5, "gpu_devices": 3}, "compute", "at most 2 GPUs"),
        (ONE_MACHINE, {"memory_bytes": 2**60}, "compute", "GiB of memory"),
        (ONE_MACHINE, {"image": "torch:1"}, "environment_asset", "without an image"),
        (CLUSTER, {"gpus": 0.5, "gpu_devices": 2}, "compute", "without shares of several GPUs"),
        (CLUSTER, {"environment": {"A": "SECRET:s,k"}}, "environment_asset", "without secrets"),
    ],
)
def test_what_the_spawner_does_not_offer_is_not_had_by_an_asset_either(
    offer: WorkspaceChoices, spec: dict[str, Any], field: str, right: str
) -> None:
    choice = chosen(offer, compute="small", environment_asset="torch")
    with pytest.raises(BadOption, match=right) as refused:
        assets.put_together(choice, drafted(**spec), offer)
    assert refused.value.field == field


async def test_the_scheduler_is_asked_first_and_what_was_checked_is_asked_for(
    fake: FakeScheduler, place: Workspace
) -> None:
    choice = chosen(environment_asset="torch", compute="small", data=["words"])
    draft = await place.draft(choice)
    assert fake.workloads() == []
    assert draft.spec.assets == NamedAssets(
        environment="torch", compute="small", data_sources=["words"]
    )
    launch = Launch(["run"], {}, {}, 4711)
    await place.request(choice, launch, checked={"gpus": 1, "mig_profile": ""})
    made = fake.workload("vision", "workspace-ada")["spec"]
    assert (made["gpus"], made["command"], made["user"]) == (1, ["run"], "ada")
    assert "cpu_millicores" not in made
    assert made["assets"]["compute"] == "small"


async def test_a_turn_in_the_queue_keeps_what_assets_brought(
    fake: FakeScheduler, place: Workspace
) -> None:
    choice = chosen(data=["words"], environment_asset="torch", volumes="/own:mine")
    queued = await place.enqueue(choice)
    brought = [Volume(source="/own", destination="mine"), Volume(source="/w")]
    queued.spec.volumes, queued.spec.environment["A"] = brought, "1"
    again = chosen(claim=queued.name).queued_as(queued, ONE_MACHINE, "")
    assert again.assets == choice.assets
    assert [str(one) for one in again.volumes] == ["/own:mine"], "data sources bring theirs anew"
    assert [str(one) for one in assets.folders_of(queued)] == ["/own:mine", "/w:w"]
    fake.status("vision", "workspace-ada", phase="starting")
    claimed = await place.claim(queued, Launch(["run"], {"B": "2"}, {}, 4711))
    shown = claimed.spec.environment
    assert (shown["A"], shown["B"]) == ("1", "2")
    assert options.FOLDERS in shown


def test_a_pod_gets_the_image_and_the_variables_of_its_environment() -> None:
    container = SimpleNamespace(
        name=CONTAINER, image="hub:1", env=[], resources=None, volume_mounts=None, env_from=None
    )
    pod = SimpleNamespace(
        metadata=SimpleNamespace(labels=None), spec=SimpleNamespace(containers=[container])
    )
    additions = PodAdditions({}, chosen(CLUSTER), "nvidia.com/gpu", 30, "secret")
    complete_pod(pod, replace(additions, image="torch:1", environment={"A": "1"}))
    assert container.image == "torch:1"
    assert {"name": "A", "value": "1"} in container.env
    container.resources, container.env = None, []
    complete_pod(pod, additions)
    assert container.image == "torch:1", "without an image that of KubeSpawner stays"


class Fields(HTMLParser):
    """Names and values of the form's fields, and what is chosen in them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.values: dict[str, list[str]] = {}
        self.marked: set[str] = set()
        self._select = ""
        self.feed(html)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        name, value = found.get("name") or "", found.get("value") or ""
        self._select = name if tag == "select" else self._select
        if tag == "option":
            self.values.setdefault(self._select, []).append(value)
        elif tag == "input" and found.get("type") == "checkbox":
            self.values.setdefault(name, []).append(value)
        if "selected" in found or "checked" in found:
            self.marked.add(value)


def test_the_form_offers_them_and_says_what_policies_allow() -> None:
    allowed = Bound(value=["small"], policy="sizes", scope="platform", message="")
    rules = {"assets.compute": EffectiveRule(allowed=allowed, required=allowed)}
    policy = EffectivePolicy(project="vision", kind="workspace", rules=rules)
    supply = Supply([PROJECT], [], {"vision": policy}, [SMALL, TORCH, WORDS, FOREIGN])
    last = {"project": "vision", "compute": "small", "data": ["words"]}
    html = form.render("ada", ["vision"], supply, last=last, offer=ONE_MACHINE)
    fields = Fields(html)
    assert fields.values["compute"] == ["", "small"]
    assert fields.values["environment_asset"] == ["", "torch"]
    assert fields.values["data"] == ["words"]
    assert {"small", "words"} <= fields.marked
    assert "The compute resource is one of small, says" in html
    assert "The compute resource has to be chosen, says" in html
    bare = form.render("ada", ["vision"], Supply([PROJECT]), last={}, offer=ONE_MACHINE)
    assert "environment_asset" not in Fields(bare).values


@pytest.mark.parametrize(
    ("offered", "fields"),
    [
        ([SMALL], {"compute"}),
        ([TORCH], {"environment_asset"}),
        ([WORDS], {"data"}),
        ([SMALL, WORDS], {"compute", "data"}),
        ([], set()),
    ],
)
def test_the_form_has_the_fields_that_there_are_assets_for(
    offered: list[AssetOut], fields: set[str]
) -> None:
    supply = Supply([PROJECT], [], {}, offered)
    html = form.render("ada", ["vision"], supply, last={}, offer=ONE_MACHINE)
    assert {"compute", "environment_asset", "data"} & Fields(html).values.keys() == fields
