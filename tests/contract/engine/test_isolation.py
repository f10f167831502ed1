"""Users' tasks are kept apart where we may switch accounts; where not, they share ours."""

import asyncio
import os
import stat
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from carrel_scheduler.engines.contract import EngineError, TaskId, TaskPhase
from carrel_scheduler.engines.local.accounts import BLOCKS
from carrel_schema.governance.people import PosixIdentity
from contract.engine.local_engines import AS_ROOT, LocalEngines
from contract.engine_tasks import a_task, output, run, wait_for_output

# What an ordinary person's engine does, run as one: by root through an engine of root's.
ORDINARY = """
    import asyncio, os, sys, tempfile
    from pathlib import Path
    from carrel_scheduler.engines.contract import LogRequest, TaskId, TaskSpec
    from carrel_scheduler.engines.local.engine import LocalEngine

    async def main():
        assert os.getuid() != 0
        with tempfile.TemporaryDirectory() as folder:
            engine = LocalEngine(Path(folder) / "state", "desk")
            users, _ = await engine.isolation()
            print(users)
            for user in ("ada", "grace"):
                stream = engine.watch()
                script = ("bash", "-c", "id -u; echo $USER; touch ~/seen; ls ~; exec sleep 0.1")
                await engine.start(TaskSpec(id=TaskId(user, 0, 0), name="t", project="p",
                    user=user, node="desk", command=script, memory_mib=256))
                while (await anext(stream)).phase != "ended":
                    pass
                print(b"".join([piece async for piece in engine.logs(user, LogRequest())]).split())
            await engine.close()
        print(os.getuid())

    asyncio.run(main())
"""


async def test_an_ordinary_account_is_shared_by_all_and_says_so(engines: LocalEngines) -> None:
    program = textwrap.dedent(ORDINARY)
    if AS_ROOT:
        engine = await engines.open()
        task = a_task(engines, "exec python ordinary.py", files={"ordinary.py": program})
        ended = await run(engine, task)
        said = (await output(engine, task)).decode()
        assert ended.exit_code == 0, said
    else:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
        )
        said = (await child.communicate())[0].decode()
    first, ada, grace, uid = said.splitlines()
    assert first.startswith("All users' work runs under your account")
    assert ada == f"[b'{uid}', b'ada', b'seen']"
    assert grace == f"[b'{uid}', b'grace', b'seen']"


async def test_a_task_runs_as_its_user(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "id -u; id -G; whoami; echo $HOME; stat -c %u . ~; umask")
    await run(engine, task)
    uid, groups, name, home, here_of, home_of, mask = (await output(engine, task)).decode().split()
    if not AS_ROOT:
        assert int(uid) == os.getuid()
        return
    assert BLOCKS.start <= int(uid) < BLOCKS.stop
    assert groups == uid
    assert (name, home) == ("ada", str(engines.root / "homes" / "ada"))
    assert here_of == home_of == uid
    assert mask == "0022"


async def test_a_task_runs_under_numbers_of_the_directory(engines: LocalEngines) -> None:
    if not AS_ROOT:
        return  # an ordinary account is shared whatever the directory says
    engine = await engines.open()
    posix = PosixIdentity(uid=420_001, gid=430_001, gids=(430_002, 27))
    script = "id -u; id -g; id -G; whoami; touch made; stat -c %u:%g made ~; echo ready; sleep 600"
    task = a_task(engines, script, posix=posix)
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    said = (await output(engine, task)).decode().splitlines()
    assert said[:4] == ["420001", "430001", "430001 430002", "ada"]
    assert said[4:6] == ["420001:430001", "420001:430001"]
    beside = await engine.exec(task.id, ["bash", "-c", "id -u; id -G"])
    told = b""
    while piece := await beside.read():
        told += piece
    assert told.split() == [b"420001", b"430001", b"430002"]
    other = a_task(engines, "id -u; cat ~ada/made", uid="w2", user="grace")
    assert (await run(engine, other)).exit_code != 0
    twin = a_task(engines, "true", uid="w3", posix=PosixIdentity(uid=420_009, gid=430_001))
    with pytest.raises(EngineError, match="belongs to the number 420001 of before"):
        await engine.start(twin)


async def test_users_cannot_read_each_other_or_the_state(engines: LocalEngines) -> None:
    """As root: nothing of another user or of the engine is even to be seen."""
    engine = await engines.open()
    victim = a_task(engines, "echo secret | tee ~/diary /tmp/diary diary; sleep 600", uid="victim")
    await engine.start(victim)
    await wait_for_output(engine, victim, b"secret")
    root = engines.root
    wanted = [
        root / "homes" / "ada" / "diary",
        root / "tasks" / "victim" / "0-0" / "work" / "diary",
        root / "tasks" / "victim" / "0-0" / "log" / "00000000.out",
        root / "tasks" / "victim" / "0-0" / "task.json",
        root / "accounts" / "uids.json",
        Path("/tmp/diary"),
        Path(f"/proc/{(await engine.list())[0].pid}/environ"),
        Path(f"/proc/{(await engine.list())[0].pid}/root/tmp/diary"),
    ]
    script = "; ".join(f'cat {path} && echo "READ {path}"' for path in wanted)
    spy = a_task(engines, f"{script}; ls {root}/homes {root}/tasks", uid="spy", user="mallory")
    await run(engine, spy)
    said = (await output(engine, spy)).decode()
    if not AS_ROOT:
        assert "READ" in said, "a shared account is shared, and nothing else is promised"
        return
    assert "READ" not in said
    assert f"{root}/homes:\nmallory\n" in said
    assert f"{root}/tasks:\nspy" in said
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "accounts" / "uids.json").stat().st_mode) == 0o600


async def test_a_tasks_tmp_goes_with_it(engines: LocalEngines) -> None:
    engine = await engines.open()
    await run(engine, a_task(engines, "head -c 100000 /dev/zero > /tmp/carrel-left-by-a-test"))
    assert Path("/tmp/carrel-left-by-a-test").exists() != AS_ROOT
    Path("/tmp/carrel-left-by-a-test").unlink(missing_ok=True)
    assert not (engines.folder() / "tmp").exists()


@pytest.mark.root
async def test_nothing_of_the_machine_can_be_changed(engines: LocalEngines, tmp_path: Path) -> None:
    """The interpreter is shown read-only; root's own folders stay closed; sudo gains nothing."""
    closed = tmp_path / "closed-too"
    closed.mkdir(mode=0o700)
    (closed / "key").write_text("secret")
    script = (
        f"[ $(id -u) = {os.getuid()} ] || touch {sys.prefix}/x {sys.base_prefix}/x;"
        f"cat {closed}/key; ls /root/.ssh;"
        "grep -E 'NoNewPrivs|CapEff|CapBnd' /proc/self/status; mount -t tmpfs x ~ ;"
        "python -c 'import carrel_scheduler, sys; print(sys.prefix)'"
    )
    task = a_task(engines, script)
    engine = await engines.open()
    await run(engine, task)
    said = (await output(engine, task)).decode()
    assert said.splitlines()[-1] == sys.prefix
    if not AS_ROOT:
        own = Path("/proc/self/status").read_text().splitlines()
        assert next(line for line in own if line.startswith("CapEff")) in said
        return
    assert "NoNewPrivs:\t1" in said
    assert "CapEff:\t0000000000000000" in said
    assert "secret" not in said
    assert not Path(sys.prefix, "x").exists()
    assert not Path(sys.base_prefix, "x").exists()


@pytest.mark.parametrize("user", ["root", "daemon", "nobody", "../x", "a/b", "", "-rf", "x" * 65])
async def test_names_that_are_no_users_run_nothing(engines: LocalEngines, user: str) -> None:
    engine = await engines.open()
    shared_name = not AS_ROOT and user in ("root", "daemon", "nobody")
    if shared_name:
        task = a_task(engines, "id -u", user=user)
        await run(engine, task)
        assert await output(engine, task) == b"%d\n" % os.getuid()
        return
    with pytest.raises(EngineError, match="user="):
        await engine.start(a_task(engines, "true", user=user))
    assert await engine.list() == []


async def test_a_users_folders_are_the_same_in_every_task(engines: LocalEngines) -> None:
    engine = await engines.open()
    first = a_task(engines, "echo mine > ~/notes; mkdir -p ~/work/deep; echo $HOME")
    await run(engine, first)
    home = Path((await output(engine, first)).decode().strip())
    task = a_task(
        engines,
        "pwd; cat ~/notes; cat /tmp/left; cat $CARREL_TASK_DIR/notebooks/notes",
        attempt=1,
        working_dir=str(home / "work"),
        volumes=((str(home), "notebooks"),),
    )
    ended = await run(engine, task)
    assert ended.phase is TaskPhase.ENDED
    said = (await output(engine, task)).decode()
    assert said.startswith(f"{home}/work\nmine\n")
    assert said.endswith("mine\n")


async def test_folders_that_a_user_cannot_reach_are_not_lent(
    engines: LocalEngines, tmp_path: Path
) -> None:
    """Root could show any folder to anybody; a volume must be the user's own to ask for."""
    closed = tmp_path / "others"
    closed.mkdir(mode=0o700)
    (closed / "data").mkdir(mode=0o755)
    engine = await engines.open()
    await run(engine, a_task(engines, f"ln -s {closed}/data ~/link"))
    link = engines.root / "homes" / "ada" / "link"
    for source in (closed / "data", link):
        for fields in ({"volumes": ((str(source), "d"),)}, {"working_dir": str(source)}):
            task = a_task(engines, "true", attempt=1, **fields)
            if AS_ROOT:
                with pytest.raises(EngineError, match="may not read"):
                    await engine.start(task)


async def test_large_shared_memory_is_the_tasks_own(engines: LocalEngines) -> None:
    """As root, also where nobody asks; others use the machine's."""
    engine = await engines.open()
    script = "df -m --output=size /dev/shm | tail -1; echo batch > $N; cat $N; ls /dev/shm; rm $N"
    name = f"/dev/shm/{engines.root.parent.parent.name}"
    task = a_task(engines, script, memory_mib=256, environment={"N": name})
    ended = await run(engine, task)
    said = (await output(engine, task)).decode().split()
    assert ended.exit_code == 0, said
    assert "batch" in said
    if AS_ROOT:
        assert said == ["256", "batch", Path(name).name]


async def test_open_folders_can_be_mounted(engines: LocalEngines, tmp_path: Path) -> None:
    """Also below /tmp, where each task else has a folder of its own."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    (shared / "data.txt").write_text("rows\n")
    engine = await engines.open()
    task = a_task(engines, "cat set/data.txt; pwd", volumes=((str(shared), "set"),))
    await run(engine, task)
    assert (await output(engine, task)).decode().startswith("rows\n")
    if AS_ROOT:
        shared.chmod(0o777)
        only_read = a_task(
            engines,
            f"cat set/data.txt; touch set/new || touch {shared}/new || echo kept",
            attempt=1,
            volumes=((str(shared), "set"),),
            read_only=(str(shared),),
        )
        await run(engine, only_read)
        said = (await output(engine, only_read)).decode()
        assert "rows\n" in said
        assert said.endswith("kept\n")
        assert not (shared / "new").exists()


async def test_a_volume_may_hold_the_state_folder(engines: LocalEngines, tmp_path: Path) -> None:
    """Whoever keeps the state in their home can mount that home."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    engines.root.parent.chmod(0o755)
    (tmp_path / "thesis.txt").write_text("words\n")
    engine = await engines.open()
    task = a_task(
        engines,
        f"cat all/thesis.txt here; touch ~/h $CARREL_CHECKPOINT_DIR/c w; ls -A {engines.root}",
        volumes=((str(tmp_path), "all"),),
        files={"here": "mine\n"},
    )
    ended = await run(engine, task)
    said = (await output(engine, task)).decode()
    assert ended.exit_code == 0, (ended, said)
    seen = said.splitlines()
    assert seen[:2] == ["words", "mine"]
    if AS_ROOT:
        assert seen[2:] == ["checkpoints", "homes", "tasks"]


async def test_the_state_folder_may_lie_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    engines = LocalEngines(tmp_path / "link" / "state")
    engine = await engines.open()
    first = a_task(engines, "echo mine > ~/notes; echo $HOME")
    await run(engine, first)
    home = (await output(engine, first)).decode().strip()
    task = a_task(engines, "pwd; cat d/notes", attempt=1, volumes=((home, "d"),))
    await run(engine, task)
    said = (await output(engine, task)).decode()
    assert said.endswith("\nmine\n")
    await engines.clean()


async def test_a_member_of_a_gang_knows_the_others_names_and_its_folder_by_another_path(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    other = "$CARREL_TASK_DIR/../../7-0/work/note"
    plain = a_task(engines, f"getent hosts train-1; echo here > note; cat {other}")
    task = msgspec.structs.replace(
        plain,
        hosts=(("127.0.0.9", "train-1"),),
        seen_as=TaskId(plain.id.workload_uid, 7, 0),
    )
    await run(engine, task)
    said = (await output(engine, task)).decode().split()
    if AS_ROOT:
        assert said == ["127.0.0.9", "train-1", "here"]
    else:
        assert "127.0.0.9" not in said
