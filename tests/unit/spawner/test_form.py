"""The start form: only one's own projects, what is free, accessible fields."""

from html.parser import HTMLParser

from typing_extensions import override

from carrel.models import (
    Device,
    InteractiveLimits,
    Node,
    Project,
    ProjectUse,
    QuotaAmounts,
    Reason,
    Workload,
    WorkloadStatus,
)
from carrel_schema.governance.policies import Bound, EffectivePolicy, EffectiveRule
from carrel_spawner.choices import form
from carrel_spawner.choices.form import Supply
from carrel_spawner.options import Most, Sizes, WorkspaceChoices, WorkspaceProfile

USE = ProjectUse(gpus_allocated=3, gpus_borrowed=1, gpus_waiting=5)
VISION = Project(name="vision", quota=QuotaAmounts(gpus=4), use=USE)
NODE = Node(
    name="n1", gpu_milli=4000, gpu_allocated_milli=1000, largest_free_gpus=3,
    cpu_milli=8000, cpu_allocated_milli=1500, memory_bytes=16 * 1024**3,
    devices=[Device(index=index, simulated=True) for index in range(4)],
)  # fmt: skip
SUPPLY = Supply([VISION], [NODE])


class Fields(HTMLParser):
    """Form fields and labels."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: dict[str, str] = {}
        self.labels: set[str] = set()
        self.described: set[str] = set()
        self.options: list[str] = []
        self.feed(html)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("input", "select", "textarea"):
            self.ids[found.get("name") or ""] = found.get("id") or ""
            self.described.add(found.get("aria-describedby") or "")
        elif tag == "label":
            self.labels.add(found.get("for") or "")
        elif tag == "option":
            self.options.append(found.get("value") or "")


def render(**changes: object) -> str:
    given: dict[str, object] = {"last": {}, "offer": WorkspaceChoices()} | changes
    return form.render("ada", ["vision"], SUPPLY, **given)  # type: ignore[arg-type]


def test_every_field_has_its_label_and_its_help() -> None:
    html = render()
    fields = Fields(html)
    sizes = {"project", "gpus", "gpu_memory_gib", "cpu", "memory_gib"}
    assert set(fields.ids) == sizes | {"environment", "volumes"}
    assert set(fields.ids.values()) <= fields.labels
    assert all(f'id="{one}"' in html for one in fields.described)


def test_only_ones_own_projects_are_offered() -> None:
    supply = Supply([VISION, Project(name="speech")], [NODE])
    html = form.render("ada", ["vision"], supply, last={}, offer=WorkspaceChoices())
    assert Fields(html).options == ["vision"]
    assert "speech" not in html


def test_what_is_free_and_what_is_left() -> None:
    html = render()
    assert "2 of 4 guaranteed GPUs in use, 2 left · 1 borrowed · 5 pending" in html
    assert "3 of 4 simulated GPUs are free now; 1 more is borrowed and given back" in html
    assert "A workspace may start with up to 2 GPUs now: it is never preempted" in html
    assert "6.5 cores free now." in html
    assert "16 GiB free now." in html


def test_the_last_choice_is_offered_again_where_it_is_allowed() -> None:
    assert 'value="2"' in render(last={"project": "vision", "gpus": 2})
    assert 'value="2"' not in render(
        last={"project": "gone", "gpus": 2}, offer=WorkspaceChoices(Sizes(0, 1, 4))
    )


def test_what_was_refused_for_good_is_not_offered_again() -> None:
    wanted = {"project": "vision", "gpus": 5, "cpu": 2.5}
    html = render(last=wanted, offer=WorkspaceChoices(Sizes(1, 1, 4)))
    assert 'value="5"' not in html
    assert 'value="2.5"' in html


def test_no_more_gpus_can_be_typed_than_a_project_is_guaranteed() -> None:
    small = Project(name="vision", quota=QuotaAmounts(gpus=2))
    supply = Supply([small, Project(name="speech", quota=QuotaAmounts(gpus=3))], [NODE])
    both = form.render("ada", ["vision", "speech"], supply, last={}, offer=WorkspaceChoices())
    assert 'max="3" step="0.01"' in both
    one = form.render("ada", ["vision"], supply, last={}, offer=WorkspaceChoices())
    assert 'max="2" step="0.01"' in one
    free = Supply([small, Project(name="open", quota=QuotaAmounts(gpus=None))], [NODE])
    assert 'max="4" step="0.01"' in form.render(
        "ada", ["vision", "open"], free, last={}, offer=WorkspaceChoices()
    )


def test_a_full_guarantee_and_the_limits_of_time_are_said_before_the_start() -> None:
    limits = InteractiveLimits(time_limit_seconds=28_800, idle_timeout_seconds=3600)
    full = Project(
        name="vision",
        quota=QuotaAmounts(gpus=2),
        use=ProjectUse(gpus_allocated=2),
        interactive=limits,
    )
    html = form.render("ada", ["vision"], Supply([full], [NODE]), last={}, offer=WorkspaceChoices())
    assert "A workspace may start with no GPU now" in html
    assert "It is stopped after 8 h." in html
    assert "It is stopped when nobody has used it for 1 h." in html


def test_no_project_says_how_to_get_one() -> None:
    html = form.render("ada", [], SUPPLY, last={}, offer=WorkspaceChoices())
    assert "carrel project add-user PROJECT ada" in html
    assert not Fields(html).ids
    assert "data-carrel-no-project" in html
    assert "data-carrel-no-project" not in render()


def test_trouble_is_a_sentence_and_the_form_stays() -> None:
    html = form.render(
        "ada",
        ["vision"],
        Supply(trouble="The scheduler sleeps."),
        last={},
        offer=WorkspaceChoices(),
    )
    assert "The scheduler sleeps." in html
    assert "gpus" in Fields(html).ids


def test_a_place_in_the_queue_is_shown_with_the_way_out() -> None:
    status = WorkloadStatus(
        queue_position=3, reason=Reason(token="", sentence="Two are before you.")
    )
    waiting = Workload(name="w", project="vision", status=status)
    html = render(waiting=waiting, queue_url="/leave")
    assert "at place 3" in html
    assert "Two are before you." in html
    assert 'formaction="/leave"' in html


def test_the_kinds_of_workspaces_and_the_most_that_is_allowed() -> None:
    offer = WorkspaceChoices(
        most=Most(gpus=1, cpu=4, memory_gib=8),
        profiles=[
            WorkspaceProfile("plain", "Plain"),
            WorkspaceProfile("big", "Big <one>", "With everything"),
        ],
    )
    html = render(offer=offer, last={"profile": "big"})
    assert '<option value="big" selected>Big &lt;one&gt;</option>' in html
    assert "With everything" in html
    assert 'max="1" step="0.01"' in html
    assert 'max="4" step="0.1"' in html
    assert 'max="8" step="0.25"' in html
    assert "Kind of workspace" not in render()


def test_rules_of_policies_stand_beside_their_project() -> None:
    def bound(value: float, message: str = "") -> Bound:
        return Bound(value=value, policy="desks", scope="project/vision", message=message)

    rules = {
        "gpus": EffectiveRule(max=bound(1.0, "ask Grace")),
        "memory_bytes": EffectiveRule(locked=bound(8 * 2**30)),
        "image": EffectiveRule(required=bound(1.0)),
    }
    supply = Supply([VISION], [NODE], {"vision": EffectivePolicy(project="vision", rules=rules)})
    html = form.render("ada", ["vision"], supply, last={}, offer=WorkspaceChoices())
    assert "At most 1 GPUs, says policy <code>desks</code> of project/vision. ask Grace." in html
    assert "Exactly 8 GiB, says policy <code>desks</code> of project/vision." in html
