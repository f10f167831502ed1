"""Environment, files, names and folders of a task."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskSpec
from carrel_scheduler.engines.local import environment as surroundings
from carrel_scheduler.engines.local import task_folder, task_state
from carrel_scheduler.engines.local.accounts import Account
from carrel_scheduler.engines.local.environment import device_environment, task_environment
from carrel_scheduler.engines.local.shim.job import ShimTask
from carrel_scheduler.engines.local.task_state import StateLayout, remove_tree, write_whole

ADA = Account(name="ada", uid=61184, gid=61184, home=Path("/homes/ada"), shared=False, listed=False)


def spec(**fields: Any) -> TaskSpec:
    known = {"name": "train-7", "project": "vision", "user": "ada", "node": "desk"}
    return TaskSpec(id=TaskId("w1", 0, 0), **{**known, **fields})


def environment(task: TaskSpec, *, cpu_limited: bool = False) -> dict[str, str]:
    return task_environment(
        task, ADA, work=Path("/w"), checkpoints=Path("/c"), cpu_limited=cpu_limited
    )


def test_what_identifies_a_task_cannot_be_forged() -> None:
    forged = dict.fromkeys(
        ("HOME", "USER", "CUDA_VISIBLE_DEVICES", "CARREL_TASK_ID", "CARREL_CHECKPOINT_DIR"), "x"
    )
    found = environment(spec(environment=forged, secret_environment=forged, devices=(1,)))
    assert (found["HOME"], found["USER"]) == ("/homes/ada", "ada")
    assert (found["CUDA_VISIBLE_DEVICES"], found["CARREL_TASK_ID"]) == ("1", "w1-0-0")
    assert found["CARREL_CHECKPOINT_DIR"] == "/c"


def test_defaults_give_way() -> None:
    found = environment(
        spec(environment={"PATH": "/mine", "OMP_NUM_THREADS": "7"}, cpu_limit_milli=1500),
        cpu_limited=True,
    )
    assert (found["PATH"], found["OMP_NUM_THREADS"]) == ("/mine", "7")
    assert environment(spec(cpu_limit_milli=1500), cpu_limited=True)["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in environment(spec(cpu_limit_milli=1500))


def test_nothing_of_our_own_environment_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "ours")
    assert "ours" not in environment(spec()).values()


def test_devices_by_uuid_or_by_number_or_none() -> None:
    real = device_environment(spec(devices=(0, 3), device_uuids=("GPU-a", "GPU-d")))
    assert set(real.values()) == {"GPU-a,GPU-d"}
    assert set(device_environment(spec(devices=(0, 3))).values()) == {"0,3"}
    assert device_environment(spec()) == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_impossible_variables_are_named(name: str) -> None:
    with pytest.raises(EngineError, match="environment"):
        environment(spec(environment={name: "x"}))


@pytest.mark.parametrize("name", ["", ".", "..", "/x", "a/../../x", "a\0b"])
def test_files_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineError, match="files="):
        task_folder.write_files(tmp_path, {name: ""})
    assert list(tmp_path.iterdir()) == []


def test_files_are_written_as_they_are_and_never_over_each_other(tmp_path: Path) -> None:
    task_folder.write_files(tmp_path, {"a/b.txt": "ü\r\n"})
    assert (tmp_path / "a" / "b.txt").read_bytes() == "ü\r\n".encode()
    with pytest.raises(EngineError, match=r"b\.txt"):
        task_folder.write_files(tmp_path, {"a/b.txt": "other"})


def test_volumes_become_links_without_root_unless_they_stay_where_they_are(tmp_path: Path) -> None:
    volumes = [("/data", "set/data"), ("/same", "/same")]
    task_folder.place_volumes(tmp_path, volumes, (), linked=True)
    assert (tmp_path / "set" / "data").readlink() == Path("/data")
    assert not (tmp_path / "same").exists()
    with pytest.raises(EngineError, match=r"volumes='/mnt/abs'.* 'mnt/abs', a name"):
        task_folder.place_volumes(tmp_path, [("/abs", "/mnt/abs")], (), linked=True)


@pytest.mark.parametrize("places", [["../data"], ["a", "a/b"], ["a/b", "a"], ["x"], ["x/y"]])
def test_places_of_volumes_lie_beside_each_other(tmp_path: Path, places: list[str]) -> None:
    """One inside another would be made inside the user's own folder."""
    (tmp_path / "data").mkdir()
    volumes = [(str(tmp_path / "data"), place) for place in places]
    with pytest.raises(EngineError, match="volumes="):
        task_folder.place_volumes(tmp_path, volumes, ["x"], linked=True)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert list((tmp_path / "data").iterdir()) == []


def test_a_folder_of_ours_is_never_what_a_link_leads_to(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    (tmp_path / "w1").symlink_to(foreign)
    with pytest.raises(EngineError, match="is no folder"):
        task_folder.make_folder(tmp_path, "w1", 0o755, None)
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o700
    made = task_folder.make_folder(tmp_path, "w2", 0o755, None)
    assert stat.S_IMODE(made.stat().st_mode) == 0o755


def test_unlisted_accounts_get_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwd, group = tmp_path / "etc-passwd", tmp_path / "etc-group"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh")
    group.write_text("root:x:0:\n")
    monkeypatch.setattr(surroundings, "PASSWD", passwd)
    monkeypatch.setattr(surroundings, "GROUP", group)
    (copy, shown_at), (groups, _) = surroundings.account_files(ADA, tmp_path)
    assert shown_at == passwd
    assert copy.read_text() == (
        "root:x:0:0::/root:/bin/sh\nada:x:61184:61184::/homes/ada:/bin/bash\n"
    )
    assert groups.read_text() == "root:x:0:\nada:x:61184:\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o644
    listed = Account(name="l", uid=1000, gid=1000, home=Path("/"), shared=False, listed=True)
    assert surroundings.account_files(listed, tmp_path) == []


@pytest.mark.parametrize("uid", ["", ".", "..", "../x", "a/b", "-a", "x" * 129])
def test_workloads_are_folders_of_ours_only(tmp_path: Path, uid: str) -> None:
    with pytest.raises(EngineError, match="workload_uid"):
        StateLayout(tmp_path).workload(uid)


def test_folders_are_closed_and_strangers_in_them_ignored(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path / "state")
    layout.make()
    for name in ("0-0", "3-12", "x", "1-2-3", "-1-0", "1-"):
        (layout.tasks / "w-1" / name).mkdir(parents=True)
    assert sorted(layout.recorded()) == [TaskId("w-1", 0, 0), TaskId("w-1", 3, 12)]
    assert list(layout.attempts("unknown")) == []
    assert stat.S_IMODE(layout.root.stat().st_mode) == 0o700
    with pytest.raises(EngineError, match="count from 0"):
        layout.task(TaskId("w-1", -1, 0))


def test_an_unusable_state_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=str(tmp_path / "file")):
        StateLayout(tmp_path / "file" / "state").make()


def test_sweeping_leaves_what_may_still_be_in_the_making(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path)
    layout.make()
    for place in (layout.building, layout.trash):
        (place / "old" / "deep").mkdir(parents=True)
        (place / "new").mkdir()
        os.utime(place / "old", (1000, 1000))
        os.utime(place / "new", (5000, 5000))
    layout.sweep(5100)
    assert [path.name for path in layout.building.iterdir()] == ["new"]
    assert [path.name for path in layout.trash.iterdir()] == ["new"]


def test_discarding_what_is_gone_is_no_error(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path)
    layout.make()
    layout.discard(tmp_path / "nothing")
    remove_tree(tmp_path / "nothing")


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for content in (b"one", b"two"):
        write_whole(path, content, mode=0o640, sync=True)
        assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_job_travels_in_memory() -> None:
    job = ShimTask(
        task_id="w1-0-0",
        folder="/f",
        command=["echo", "ü"],
        environment={"A": "b"},
        working_dir="/w",
        masks=["/root"],
        binds=[("/a", "/b", True)],
        volumes=[("volumes", "/data", "", True)],
        sandbox=(7, 8),
    )
    assert vars(ShimTask.from_memory(job.to_memory())) == vars(job)


def test_a_lock_is_held_until_every_copy_of_it_is_closed(tmp_path: Path) -> None:
    assert not task_state.Lock.held(tmp_path)
    lock = task_state.Lock.take(tmp_path)
    copy = os.dup(lock)
    os.close(lock)
    assert task_state.Lock.held(tmp_path)
    os.close(copy)
    assert not task_state.Lock.held(tmp_path)
    with pytest.raises(FileExistsError):
        task_state.Lock.take(tmp_path)
