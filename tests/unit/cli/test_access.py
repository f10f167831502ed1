"""``carrel access`` and ``carrel role``."""

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_a_role_is_given_listed_and_taken(run: Run, fake: FakeScheduler) -> None:
    given = run("access", "grant", "ada", "viewer", "--scope", "project/vision", user="root")
    assert given.out == "ada is viewer in project/vision (rule-1).\n"
    group = ("group:auditors", "viewer", "--scope", "platform")
    assert "auditors is viewer in platform" in run("access", "grant", *group, user="root").out
    listed = run("access", "list", user="root").out
    assert "user   ada       viewer  project/vision  root      rule-1" in listed
    assert "group  auditors  viewer  platform" in listed
    assert "auditors" not in run("access", "list", user="ada").out
    taken = run("access", "revoke", "ada", "viewer", user="root")
    assert taken.out == "ada is no viewer in project/vision any more.\n"
    assert run("access", "revoke", "rule-2", user="root").code == 0
    assert fake.access_rules == []


def test_what_cannot_be_is_told(run: Run) -> None:
    wrong = run("access", "grant", "team:x", "viewer", "--scope", "platform", user="root")
    assert (wrong.code, "USER, group:NAME or sa:NAME" in wrong.err) == (2, True)
    none = run("access", "revoke", "ada", "viewer", user="root")
    assert (none.code, "no rule that gives ada the role viewer" in none.err) == (2, True)
    for scope in ("platform", "project/vision"):
        run("access", "grant", "bea", "viewer", "--scope", scope, user="root")
    twice = run("access", "revoke", "bea", "viewer", user="root")
    assert "platform, project/vision; say which with --scope" in twice.err
    unknown = run("role", "describe", "emperor")
    assert (unknown.code, "ml-engineer" in unknown.err) == (2, True)


def test_roles_and_permissions_are_told(run: Run) -> None:
    assert "viewer" in run("role", "list").out
    told = run("role", "describe", "ml-engineer").out
    assert "inference:create" in told
    assert "workloads:create" not in told
    assert run("access", "can-i", "projects:create", user="root").out == "yes\n"
    no = run("access", "can-i", "projects:create", user="ada")
    assert (no.code, no.out.startswith("no: roles with projects:create are editor")) == (1, True)
