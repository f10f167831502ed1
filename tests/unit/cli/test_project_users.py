"""The most GPUs of each user of a project, from a shell."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_the_limit_of_users_is_set_shown_and_taken_away(run: Run, fake: FakeScheduler) -> None:
    update = ("project", "update", "vision", "--max-gpus-per-user")
    assert run(*update, "1.5", user="root").code == 0
    assert fake.project("vision")["max_gpus_per_user"] == 1.5
    shown = run("project", "describe", "vision").out.splitlines()
    assert ["GPUs", "of", "each", "user:", "1.5"] in [line.split() for line in shown]
    assert run(*update, "none", user="root").code == 0
    assert fake.project("vision")["max_gpus_per_user"] is None
    wrong = run(*update, "few", user="root")
    assert "'few' is no number; write one, or" in " ".join(wrong.err.replace("│", "").split())


def test_the_order_of_users_is_set_and_shown(run: Run, fake: FakeScheduler) -> None:
    update = ("project", "update", "vision", "--user-order")
    assert run(*update, "fair-share", user="root").code == 0
    assert fake.project("vision")["user_order"] == "fair-share"
    assert "fair-share" in run("project", "describe", "vision").out
    wrong = run(*update, "fair", user="root")
    assert "'fair': write submission or fair-share" in " ".join(wrong.err.replace("│", "").split())


def test_several_projects_are_changed_together(run: Run, fake: FakeScheduler) -> None:
    both = ("project", "update", "vision", "speech", "--rank", "3")
    told = run(*both, "--dry-run", user="root").out
    assert told.startswith("Nothing was changed in vision, speech.")
    assert fake.project("vision")["rank"] == 0
    done = run(*both, user="root")
    assert "Project vision updated successfully." in done.out
    assert [fake.project(name)["rank"] for name in ("vision", "speech")] == [3, 3]
    assert ("POST", "/project-changes") in fake.requests
