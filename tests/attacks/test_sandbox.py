"""What a member tries against root and the other accounts of the machine, through REST."""

import contextlib
import os
import re
import stat
from pathlib import Path

import pytest

from attacks.person import Person
from carrel.errors import ApiError
from e2e.stack import Stack

HANDED_OVER = {"tasks", "homes", "checkpoints", "events"}


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    """A folder of root's that everybody can look into."""
    for each in (tmp_path, *tmp_path.parents):
        if each.is_relative_to("/tmp") and each != Path("/tmp"):
            each.chmod(0o755)
    (tmp_path / "site-packages").mkdir(mode=0o755)
    (tmp_path / "mine.pth").write_text("import os")
    return tmp_path


def refusal(person: Person, **fields: object) -> str:
    """Why a job was refused, at once or at its start; empty when it ran."""
    try:
        made = person.submit(["true"], **fields)
    except ApiError as error:
        return str(error)
    ended = person.ended(made)
    if ended.status.phase == "succeeded":
        return ""
    return f"{ended.status.reason} {[task.message for task in ended.status.tasks]}"


def volume(source: Path | str, destination: str) -> dict[str, str]:
    return {"source": str(source), "destination": destination}


def test_a_volume_inside_a_volume_makes_nothing_in_it(ada: Person, rooms: Path) -> None:
    packages = rooms / "site-packages"
    inner = volume(rooms / "mine.pth", "a/sub/name.pth")
    assert refusal(ada, volumes=[volume(packages, "a"), inner])
    assert list(packages.iterdir()) == []


def test_a_workspaces_volumes_make_nothing_either(ada: Person, rooms: Path) -> None:
    packages = rooms / "site-packages"
    volumes = [volume(packages, "a"), volume(rooms / "mine.pth", "a/name.pth")]
    with contextlib.suppress(ApiError):  # refused is just as well
        ada.delete(ada.submit([], kind="workspace", volumes=volumes))
    assert list(packages.iterdir()) == []


@pytest.mark.parametrize("path", ["/proc/self/root", "/proc/self/fd/3", "/proc/self/cwd"])
def test_roots_own_descriptors_are_no_volumes(ada: Person, path: str) -> None:
    assert refusal(ada, volumes=[volume(path, "d")])


def test_closed_folders_tell_nothing_about_what_is_in_them(ada: Person, rooms: Path) -> None:
    closed = rooms / "closed"
    closed.mkdir(mode=0o700)
    (closed / "there").mkdir()
    there, missing = (
        refusal(ada, volumes=[volume(closed / name, "d")]) for name in ("there", "missing")
    )
    reasons = [re.findall(r"volumes='[^']*': ([^.\"]*)", text) for text in (there, missing)]
    assert reasons[0]
    assert reasons[0] == reasons[1]


def test_other_peoples_processes_are_hidden(ada: Person, grace: Person) -> None:
    victim = grace.submit(["sleep", "600.25"])
    grace.running(victim)
    _, seen = ada.run(["bash", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -0 -1"])
    assert "600.25" not in seen
    assert grace.phase(victim) == "running"


def test_a_fork_bomb_ends_at_its_own_limit(ada: Person) -> None:
    look = """
        while IFS=: read -r _ names path; do
            case ",$names," in
                *,pids,*) cat "/sys/fs/cgroup/pids$path/pids.max";;
                ,,) cat "/sys/fs/cgroup$path/pids.max";;
            esac
        done < /proc/self/cgroup
    """
    _, seen = ada.run(["bash", "-c", look])
    assert "4096" in seen


def test_devices_of_the_machine_are_not_there(ada: Person) -> None:
    _, seen = ada.run(["bash", "-c", "ls -1 /dev; ls -A /dev/shm /dev/pts"])
    allowed = "console core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    extra = "/dev/shm: /dev/pts:"
    assert set(seen.split()) <= {*allowed.split(), *extra.split()}


def test_shared_memory_leads_to_nobody(ada: Person, grace: Person) -> None:
    leave = (
        "echo private > /dev/shm/left; chmod 666 /dev/shm/left; ipcmk -M 4096 -p 0666; sleep 600"
    )
    left = grace.submit(["bash", "-c", leave])
    grace.running(left)
    _, seen = ada.run(["bash", "-c", "cat /dev/shm/left; ipcs -m"])
    assert "private" not in seen
    assert "0x" not in seen


def test_the_parts_files_are_closed(stack: Stack) -> None:
    """Also where a folder around them would keep everybody out."""
    modes = dict[Path, int]()
    for folder, _, names in os.walk(stack.state_dir):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):  # the parts go on meanwhile
                modes[path] = path.lstat().st_mode
    files = {path for path, mode in modes.items() if stat.S_ISREG(mode)}
    own = {path for path in files if not HANDED_OVER & set(path.parts)}
    databases = [path for path in own if ".sqlite" in path.name or path.suffix == ".db"]
    assert databases
    assert [str(path) for path in databases if stat.S_IMODE(modes[path]) & 0o077] == []
