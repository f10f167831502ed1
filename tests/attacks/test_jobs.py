"""A program that runs as a job, with the token in its environment: what it is kept from."""

import json

from attacks.person import Person
from carrel.models import Workload
from e2e.stack import until

ASK = """
import json, os, sys, urllib.error, urllib.request
asks, answers = json.loads(sys.argv[1]), []
for method, path, body in asks:
    asked = urllib.request.Request(
        os.environ["CARREL_URL"] + path, None if body is None else json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["CARREL_TASK_TOKEN"],
         "Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            answers.append([answer.status, answer.read(2000).decode()])
    except urllib.error.HTTPError as error:
        answers.append([error.code, error.read(2000).decode()])
print("ANSWERS " + json.dumps(answers))
"""
BOMB = """
import sys
import carrel, carrel.errors
try:
    for number in range(3):
        carrel.submit([sys.executable, "-c", sys.argv[1], sys.argv[1]])
except carrel.errors.ApiError as error:
    print("REFUSED", error.code)
"""


def asked(person: Person, *asks: tuple[str, str, object]) -> list[tuple[int, str]]:
    """What the API answers to a job of this person."""
    phase, printed = person.run(["python", "-c", ASK, json.dumps(asks)], retries={"crash": 0})
    assert phase == "succeeded", printed
    line = next(one for one in printed.splitlines() if one.startswith("ANSWERS "))
    return [(status, text) for status, text in json.loads(line.removeprefix("ANSWERS "))]


def test_its_token_reaches_no_more_than_work_of_its_user(ada: Person, grace: Person) -> None:
    secret = grace.submit(["sleep", "600"], secret_environment={"KEY": "very-secret"})
    own = ada.submit(["sleep", "600"], secret_environment={"KEY": "very-secret"})
    workspace = ada.submit(["sleep", "600"], kind="workspace")
    api, new = "/api/v1", {"name": "x", "project": "speech", "command": ["id"]}
    answers = asked(
        ada,
        ("GET", f"{api}/workloads/speech/{secret.name}", None),
        ("DELETE", f"{api}/workloads/speech/{secret.name}", None),
        ("POST", f"{api}/workloads", new),
        ("DELETE", f"{api}/workloads/vision/{workspace.name}", None),
        ("GET", f"{api}/workloads/vision/{own.name}/exec?command=id", None),
        ("POST", f"{api}/workloads/vision/{own.name}/rerun", {"changes": {"command": ["env"]}}),
        ("PATCH", f"{api}/workloads/vision/{own.name}", {"labels": {"a": "b"}}),
        ("POST", f"{api}/workloads/vision/{own.name}/reports", {"step": 1}),
        ("PATCH", f"{api}/projects/vision", {"quota": {"gpus": 99}}),
        ("PUT", f"{api}/projects/vision/members/grace", None),
        ("GET", f"{api}/nodes", None),
        ("GET", f"{api}/faults", None),
        ("POST", f"{api}/workloads", {**new, "project": "vision", "user": "grace"}),
        ("POST", f"{api}/workloads", {**new, "project": "vision", "kind": "workspace"}),
    )
    assert [status for status, _ in answers] == [404, 404, 403, 404, *[403] * 10], answers
    seen = asked(
        ada,
        ("GET", f"{api}/workloads", None),
        ("GET", f"{api}/workloads/vision/{own.name}", None),
        ("DELETE", f"{api}/workloads/vision/{own.name}", None),
    )
    assert [status for status, _ in seen] == [200, 200, 202]
    assert "very-secret" not in str(seen)
    assert workspace.name not in seen[0][1]
    for person, made in ((grace, secret), (ada, workspace)):
        assert person.phase(made) in ("pending", "starting", "running")
        person.delete(made)


def test_a_job_that_submits_itself_comes_to_an_end(ada: Person) -> None:
    made = ada.submit(["python", "-c", BOMB, BOMB])
    ada.ended(made)
    until(
        lambda: all(one.at_rest for one in family(ada, made.uid)),
        seconds=120,
        why="all its descendants end",
    )
    deep = family(ada, made.uid)
    assert max(len(one.spec.ancestors) for one in deep) == 2
    assert len(deep) == 3 + 9
    last = next(one for one in deep if len(one.spec.ancestors) == 2)
    assert "REFUSED too_deep" in ada.logs(last)


def family(person: Person, uid: str) -> list[Workload]:
    """What a job and its children submitted."""
    found = person.client.list_workloads(person.project)
    return [one for one in found if uid in one.spec.ancestors]
