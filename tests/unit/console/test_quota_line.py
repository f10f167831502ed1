"""The quota line: to scale, hatched where borrowed, and its text."""

import pytest

from carrel.models import Amounts, Department, Project, ProjectUse, QuotaAmounts
from carrel_hub.console.pictures.quota_line import in_all, quota_line, quota_text, scale_of
from unit.console import svgtree


def project(
    allocated: float,
    borrowed: float,
    waiting: float,
    quota: float | None = 4,
    limit: float | None = None,
) -> Project:
    return Project(
        name="vision",
        color=3,
        quota=QuotaAmounts(gpus=quota),
        limit=Amounts(gpus=limit),
        use=ProjectUse(gpus_allocated=allocated, gpus_borrowed=borrowed, gpus_waiting=waiting),
    )


def test_a_department_is_one_line_for_all_its_projects() -> None:
    """Borrowed is what goes beyond its own guarantee, not beyond theirs."""
    science = Department(name="science", quota=QuotaAmounts(gpus=4))
    line = in_all(science, [project(3, 2, 1), project(2, 0, 1)])
    assert quota_text(line) == "4 of 4 guaranteed · 1 borrowed · 2 pending"
    assert quota_text(in_all(science, [project(3, 2, 0)])) == "3 of 4 guaranteed"
    assert "p-other" in quota_line(line)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (project(5, 2, 5), "3 of 4 guaranteed · 2 borrowed · 5 pending"),
        (project(3, 0, 0), "3 of 4 guaranteed"),
        (project(0, 0, 0), "0 of 4 guaranteed"),
        (project(2, 2, 0, quota=0), "nothing guaranteed · 2 borrowed"),
        (project(2, 0, 0, quota=None), "2 used, everything guaranteed"),
        (project(0.5, 0, 0.25), "0.5 of 4 guaranteed · 0.25 pending"),
    ],
)
def test_quota_text(shown: Project, text: str) -> None:
    assert quota_text(shown) == text


def test_quota_line_is_to_scale_and_hatches_only_what_is_borrowed() -> None:
    root = svgtree.parse(quota_line(project(5, 2, 3, limit=6)))
    whole = scale_of(project(5, 2, 3))
    assert whole == 8
    (hatched,) = svgtree.with_class(root, "hatched")
    assert (hatched.get("fill"), hatched.get("x"), hatched.get("width")) == (
        "url(#hatch)",
        "37.5%",
        "25%",
    )
    (waiting,) = svgtree.with_class(root, "quota-waiting")
    assert (waiting.get("x"), waiting.get("width")) == ("62.5%", "37.5%")
    (guarantee,) = svgtree.with_class(root, "quota-guarantee")
    assert guarantee.get("x1") == "50%"
    (limit,) = svgtree.with_class(root, "quota-limit")
    assert limit.get("x1") == "75%"
    assert "p3" in root[0].get("class", "")
    assert svgtree.words(root).startswith("vision: 3 of 4 guaranteed")


def test_nothing_borrowed_is_not_hatched() -> None:
    root = svgtree.parse(quota_line(project(3, 0, 0)))
    assert svgtree.with_class(root, "hatched") == []
    assert svgtree.with_class(root, "quota-waiting") == []


def test_a_long_queue_leaves_the_bar_readable_and_its_outline_open() -> None:
    root = svgtree.parse(quota_line(project(4, 0, 500)))
    (used,) = svgtree.with_class(root, "quota-used")
    assert used.get("width") == "40%"
    (waiting,) = svgtree.with_class(root, "quota-waiting")
    assert "quota-open" in waiting.get("class", "")
    assert waiting.get("width") == "60%"


def test_several_lines_share_a_scale() -> None:
    root = svgtree.parse(quota_line(project(4, 0, 0), scale=16))
    (used,) = svgtree.with_class(root, "quota-used")
    assert used.get("width") == "25%"
