"""What a member of one project tries against members of another: names, servers, pages, jobs."""

import base64
import html
import os
from urllib.parse import urlsplit

import pytest
import requests

from attacks.person import Person, raw_exchange
from carrel.errors import ApiError
from e2e.stack import Stack, until

SECRET_NAME = "merger-with-initech"
SCRIPT = "<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def secret_job(grace: Person) -> str:
    """A job of Grace whose name tells something, and that waits or runs while others look."""
    made = grace.submit(["sleep", "600"], name=SECRET_NAME, labels={"plan": "buy"})
    grace.running(made)
    return made.name


@pytest.mark.parametrize(
    "path",
    [
        "/queue",
        "/nodes",
        "/workloads",
        "/workloads?project=vision",
        "/usage?by=workload",
        "/projects",
        "/whoami",
    ],
)
def test_lists_do_not_tell_names_of_foreign_work(ada: Person, secret_job: str, path: str) -> None:
    answer = ada.api("GET", path)
    assert answer.status_code == 200, answer.text
    assert secret_job not in answer.text


def test_events_do_not_tell_of_foreign_work(ada: Person, grace: Person, secret_job: str) -> None:
    with requests.get(
        f"{ada.stack.url}/services/carrel/api/v1/events",
        headers={"Authorization": f"Bearer {ada.token}"},
        stream=True,
        timeout=30,
    ) as stream:
        grace.ended(grace.submit(["true"], name=f"{SECRET_NAME}-2"))
        mine = ada.submit(["true"])
        heard = ""
        for piece in stream.iter_content(chunk_size=None):
            heard += piece.decode()
            if mine.name in heard:
                break
    assert SECRET_NAME not in heard


def test_a_refusal_does_not_tell_whether_a_foreign_name_is_taken(
    ada: Person, secret_job: str
) -> None:
    there = ada.api("GET", f"/workloads/speech/{secret_job}")
    not_there = ada.api("GET", "/workloads/speech/no-such-job")
    assert there.status_code == not_there.status_code
    assert there.text.replace(secret_job, "X") == not_there.text.replace("no-such-job", "X")


@pytest.mark.parametrize("page", ["", "cluster", "queue", "jobs"])
def test_pages_do_not_tell_names_of_foreign_work(
    ada: Person, stack: Stack, secret_job: str, page: str
) -> None:
    answer = ada.session.get(f"{stack.url}/services/console/{page}", timeout=30)
    assert answer.status_code == 200
    assert secret_job not in answer.text


def test_a_foreign_checkpoint_cannot_be_continued_from(ada: Person, secret_job: str) -> None:
    with pytest.raises(ApiError) as refused:
        ada.submit(["true"], continue_from=secret_job)
    assert refused.value.status in (400, 403, 404, 422)


def test_curves_of_foreign_jobs_cannot_be_shown(ada: Person, secret_job: str) -> None:
    for named in (secret_job, f"speech/{secret_job}", f"../speech/{secret_job}"):
        answer = ada.api(
            "POST",
            "/workloads",
            json={
                "kind": "tensorboard",
                "name": "peek",
                "project": "vision",
                "tensorboard": {"jobs": [named]},
            },
        )
        assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "grace"},
        {"server_name": "x"},
        {"port": 22},
        {"hold_for_claim": True},
        {"external": True},
        {"uid": 0},
        {"account": "root"},
        {"owner": {"kind": "Experiment", "name": "x", "uid": "y"}},
        {"resource_version": 1},
        {"status": {"phase": "running"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_fields_of_the_platform_are_not_settable(ada: Person, fields: dict[str, object]) -> None:
    with pytest.raises(ApiError) as refused:
        ada.submit(["true"], **fields)
    assert refused.value.status in (400, 403, 422)


def test_one_foreign_item_spoils_a_batch(ada: Person) -> None:
    """Nothing of the batch reaches the other project."""
    items = [
        {"kind": "training", "name": f"mixed-{p}", "project": p, "command": ["true"]}
        for p in ("vision", "speech")
    ]
    answer = ada.api("POST", "/workloads:batch", json={"items": items})
    assert "mixed-speech" not in answer.text or answer.status_code >= 400 or "403" in answer.text
    assert ada.api("GET", "/workloads/speech/mixed-speech").status_code == 404


def test_the_hub_starts_no_server_for_others(ada: Person) -> None:
    assert ada.hub("POST", "/users/grace/server").status_code in (403, 404)
    assert ada.hub("POST", "/users/grace/tokens", {"note": "x"}).status_code in (403, 404)
    assert ada.hub("GET", "/users").status_code in (200, 403)
    assert ada.hub("PATCH", "/users/ada", {"admin": True}).status_code in (403, 404)
    assert ada.hub("POST", "/groups/carrel-admins/users", {"users": ["ada"]}).status_code in (
        403,
        404,
    )
    assert not ada.client.whoami().admin


@pytest.mark.parametrize(
    "scopes",
    [["admin:users"], ["custom:carrel:admin"], ["custom:carrel:spawn"], ["proxy"], ["shutdown"]],
    ids=str,
)
def test_nobody_makes_a_token_with_more_rights_than_their_own(
    ada: Person, scopes: list[str]
) -> None:
    made = ada.hub("POST", "/users/ada/tokens", {"note": "x", "scopes": scopes})
    if made.status_code == 201:
        assert not set(made.json()["scopes"]) & set(scopes)
    else:
        assert made.status_code in (400, 403)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/hub/api/users/ada/tokens"),
        ("POST", "/hub/api/users/ada/server"),
        ("DELETE", "/hub/api/users/ada"),
        ("POST", "/services/console/jobs/vision/x/delete"),
        ("POST", "/services/console/new-project"),
        ("POST", "/services/console/submit"),
    ],
)
def test_a_form_of_another_page_changes_nothing(
    admin: Person, stack: Stack, method: str, path: str
) -> None:
    """Such a request carries the visitor's cookies, and not the value that only our pages know."""
    admin.session.get(f"{stack.url}/services/console/", timeout=30)
    answer = admin.session.request(
        method,
        f"{stack.url}{path}",
        data='{"note": "x"}' if "/hub/api/" in path else {"note": "x", "name": "x"},
        headers={"Origin": "http://evil.example", "Referer": "http://evil.example/"},
        allow_redirects=False,
        timeout=30,
    )
    assert answer.status_code in (403, 405), answer.text[:300]


@pytest.mark.parametrize(
    "path", ["/services/console/events", "/services/carrel/api/v1/workloads/vision/x/exec"]
)
def test_a_websocket_of_another_page_is_refused(admin: Person, stack: Stack, path: str) -> None:
    admin.session.get(f"{stack.url}/services/console/", timeout=30)
    cookies = "; ".join(f"{one.name}={one.value}" for one in admin.session.cookies)
    key = base64.b64encode(os.urandom(16)).decode()
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {urlsplit(stack.url).netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Origin: http://evil.example\r\nCookie: {cookies}\r\n\r\n"
    )
    answer = raw_exchange(stack.url, request.encode(), seconds=5)
    assert b" 101 " not in answer.split(b"\r\n")[0], answer[:200]


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["echo", SCRIPT]},
        {"command": ["true"], "environment": {"A": SCRIPT}},
        {"command": ["true"], "files": {"a.html": SCRIPT}},
        {"command": ["no-such-program-" + SCRIPT]},
    ],
    ids=["command", "environment", "files", "not found"],
)
def test_what_a_job_is_called_with_is_shown_as_text(
    ada: Person, admin: Person, stack: Stack, fields: dict[str, object]
) -> None:
    command = fields.pop("command")
    assert isinstance(command, list)
    made = ada.ended(ada.submit(command, **fields))
    page = admin.session.get(f"{stack.url}/services/console/jobs/vision/{made.name}", timeout=30)
    assert page.status_code == 200
    assert SCRIPT not in page.text
    assert html.escape("<script>") not in SCRIPT


def test_a_page_allows_no_script_but_its_own(admin: Person, stack: Stack) -> None:
    page = admin.session.get(f"{stack.url}/services/console/", timeout=30)
    policy = page.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy


def test_hundreds_of_jobs_of_one_person_keep_nobody_else_waiting(
    ada: Person, grace: Person
) -> None:
    items = [
        {
            "kind": "training",
            "name": f"flood-{number}",
            "project": "vision",
            "command": ["sleep", "600"],
            "gpus": 4,
        }
        for number in range(500)
    ]
    assert ada.api("POST", "/workloads:batch", json={"items": items}).status_code < 300
    try:
        made = grace.submit(["true"], gpus=1)
        assert grace.ended(made, seconds=60).status.phase == "succeeded"
    finally:
        for number in range(500):
            ada.api("DELETE", f"/workloads/vision/flood-{number}")
    until(
        lambda: not ada.client.list_workloads(project="vision", phases=["pending"]),
        seconds=120,
        why="the flood is gone",
    )


def test_libraries_named_by_a_job_are_not_loaded_by_root(ada: Person, stack: Stack) -> None:
    """Variables that make programs load code apply to the job's own process, as its own account."""
    program = "import os, sys; open('seen', 'w').write(str(os.getuid())); print('uid', os.getuid())"
    phase, said = ada.run(
        ["python", "-c", "print('ran')"],
        files={"sitecustomize.py": program},
        environment={"PYTHONPATH": "$(CARREL_TASK_DIR)", "PYTHONSTARTUP": "/nowhere"},
    )
    assert phase == "succeeded", said
    assert "uid 0" not in said


@pytest.mark.parametrize("working_dir", ["/root", "/etc/../root", "/proc/1/root", "relative"])
def test_a_working_folder_that_is_closed_to_the_account_is_refused(
    ada: Person, working_dir: str
) -> None:
    job = {
        "kind": "training",
        "name": f"in-{working_dir.strip('/').replace('/', '-').replace('.', '')}",
        "project": "vision",
        "command": ["sh", "-c", "ls; echo in $PWD"],
        "working_dir": working_dir,
        "backoff_limit": 0,
    }
    answer = ada.api("POST", "/workloads", json=job)
    if answer.status_code == 201:
        made = ada.client.get_workload("vision", str(job["name"]))
        assert ada.ended(made).status.phase == "failed", ada.logs(made)
    else:
        assert answer.status_code in (400, 422), answer.text


def test_environments_of_processes_of_others_cannot_be_read(ada: Person, secret_job: str) -> None:
    program = """
import glob
for name in glob.glob('/proc/[0-9]*/environ'):
    try:
        text = open(name, 'rb').read()
    except OSError:
        continue
    if b'grace' in text or b'JUPYTERHUB_CRYPT_KEY' in text or b'CONFIGPROXY' in text:
        print('read', name)
"""
    phase, said = ada.python(program)
    assert phase == "succeeded", said
    assert "read" not in said
