"""What users try against root and against each other, from inside their tasks and by what they ask.

Without root all work is one account's, and none of this is promised.
"""

import asyncio
import contextlib
import sys
import textwrap
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import Engine, EngineError, TaskSpec
from carrel_scheduler.engines.local.cgroups import base_name, find_limiter
from contract.engine.local_engines import AS_ROOT, LocalEngines
from contract.engine_tasks import a_task, output, run, typed, wait_for_output

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not AS_ROOT, reason="tasks of one account are not kept apart"),
]

CHURN = """
import ctypes, os, subprocess, sys
mount, umount = ctypes.CDLL(None).mount, ctypes.CDLL(None).umount2
top = sys.argv[1]
subprocess.run(["mount", "--bind", top, top], check=True)
subprocess.run(["mount", "--make-shared", top], check=True)
folders = [os.fsencode(f"{top}/{number}") for number in range(40)]
for folder in folders:
    os.mkdir(folder)
while not os.path.exists(f"{top}/enough"):
    for folder in folders:
        mount(b"none", folder, b"tmpfs", 0, None)
    for folder in folders:
        umount(folder, 0)
subprocess.run(["umount", top], check=True)
"""


async def said(engine: Engine, task: TaskSpec) -> str:
    """What a task writes until it ends."""
    await run(engine, task)
    return (await output(engine, task)).decode()


def opened(folder: Path) -> None:
    """Let everybody pass on the way to a folder of a test."""
    for each in (folder, *folder.parents):
        if each.is_relative_to("/tmp") and each != Path("/tmp"):
            each.chmod(0o755)


async def test_nothing_is_made_inside_a_volume(engines: LocalEngines, tmp_path: Path) -> None:
    """Root made links in any folder that a user could name as a volume."""
    opened(tmp_path)
    packages = tmp_path / "site-packages"
    packages.mkdir(mode=0o755)
    (packages / "sub").mkdir()
    own = tmp_path / "x.pth"
    own.write_text("")
    engine = await engines.open()
    for second in ("a/sub/name", "a/sub", "a"):
        volumes = ((str(packages), "a"), (str(own), second))
        with pytest.raises(EngineError, match=r"^volumes="):
            await engine.start(a_task(engines, "true", volumes=volumes))
    assert [path.name for path in packages.rglob("*")] == ["sub"]


async def test_a_refusal_does_not_tell_what_lies_in_closed_folders(
    engines: LocalEngines, tmp_path: Path
) -> None:
    closed = tmp_path / "closed-too"
    closed.mkdir(mode=0o700)
    (closed / "there").mkdir()
    engine = await engines.open()
    words = []
    for name in ("there", "missing"):
        for fields in (
            {"volumes": ((str(closed / name), "d"),)},
            {"working_dir": str(closed / name)},
            {"checkpoint_dir": str(closed / name)},
        ):
            with pytest.raises(EngineError) as refusal:
                await engine.start(a_task(engines, "true", **fields))
            words.append(str(refusal.value).replace(name, "X"))
    assert words[:3] == words[3:]


async def test_descriptors_of_root_cannot_be_named(engines: LocalEngines) -> None:
    engine = await engines.open()
    for path in ("/proc/self/root", "/proc/self/cwd", "/proc/self/fd/0", "/proc/self/fd/3"):
        with pytest.raises(EngineError, match=r"^volumes="):
            await engine.start(a_task(engines, "true", volumes=((path, "d"),)))


async def test_a_volume_that_keeps_changing_lends_no_foreign_folder(
    engines: LocalEngines, tmp_path: Path
) -> None:
    """The name of a folder of one's own and of a link are exchanged all the time."""
    opened(tmp_path)
    foreign = tmp_path / "foreign"
    foreign.mkdir(mode=0o700)
    (foreign / "diary").write_text("secret")
    engine = await engines.open()
    exchange = f"""
        import ctypes, os
        os.chdir(os.path.expanduser("~"))
        os.mkdir("d"); os.symlink({str(foreign)!r}, "l"); print("ready", flush=True)
        libc = ctypes.CDLL(None)
        while True:
            libc.renameat2(-100, b"d", -100, b"l", 2)
    """
    swapper = a_task(engines, "exec python swap.py", files={"swap.py": textwrap.dedent(exchange)})
    await engine.start(swapper)
    await wait_for_output(engine, swapper, b"ready")
    volume = (str(engines.root / "homes" / "ada" / "d"), "d")
    for attempt in range(12):
        task = a_task(engines, "cat d/diary", uid=f"r{attempt}", volumes=(volume,))
        with contextlib.suppress(EngineError):  # refused is just as well
            assert "secret" not in await said(engine, task)
    assert [path.name for path in foreign.iterdir()] == ["diary"]


async def test_a_command_beside_a_task_joins_no_folders_that_the_task_made_up(
    engines: LocalEngines, tmp_path: Path
) -> None:
    """Root wrote to whatever the task had put in the place of the control group's file."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    victim.chmod(0o600)
    engine = await engines.open(user_namespaces=True)
    group = f"{base_name(engines.root)}/w1-0-0"
    made = textwrap.dedent(f"""
        mount -t tmpfs x /sys/fs/cgroup
        for name in cpu memory pids made; do
            mkdir -p /sys/fs/cgroup/$name/{group}
            ln -s {victim} /sys/fs/cgroup/$name/{group}/cgroup.procs
        done
        echo ready; exec sleep 600
    """)
    script = "unshare -Urm true && exec unshare -Urm bash made; echo ready; exec sleep 600"
    task = a_task(engines, script, files={"made": made}, memory_mib=256, cpu_milli=100)
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    seen = await typed(engine, task, "bash", "-c", "ls /sys/fs/cgroup; cat /proc/self/cgroup")
    assert victim.read_text() == "untouched"
    assert "made" not in seen.split()
    limited = find_limiter(engines.root).enforces
    assert str(task.id) in seen or not limited


async def test_a_command_beside_a_task_is_in_its_sandbox_and_ends_with_it(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo ready; until [ -e go ]; do sleep 0.05; done")
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    look = "for n in pid mnt ipc net; do readlink /proc/self/ns/$n; done"
    inside = (await typed(engine, task, "bash", "-c", look)).split()
    assert inside[0] != str(Path("/proc/self/ns/pid").readlink())
    pid = (await engine.list())[0].pid
    names = ("pid", "mnt", "ipc", "net")
    assert inside == [str(Path(f"/proc/{pid}/ns/{name}").readlink()) for name in names]
    session = await engine.exec(task.id, ("sleep", "600"))
    (engines.folder() / "work" / "go").touch()
    async with asyncio.timeout(60):
        while await session.read():
            pass
        assert await session.close() != 0


async def test_others_processes_are_not_to_be_seen(engines: LocalEngines) -> None:
    engine = await engines.open()
    victim = a_task(engines, "echo ready; exec sleep 600.5", uid="victim")
    await engine.start(victim)
    await wait_for_output(engine, victim, b"ready")
    spy = a_task(engines, "cat /proc/*/cmdline | tr '\\0' ' '", uid="spy", user="mallory")
    seen = await said(engine, spy)
    assert "600.5" not in seen
    assert "cat /proc/" in seen


async def test_a_task_has_only_so_many_processes(engines: LocalEngines) -> None:
    engine = await engines.open(most_processes=40)
    script = "for n in $(seq 60); do sleep 600 & done 2>&1; wait"
    seen = await said(engine, a_task(engines, f"timeout 20 bash -c '{script}'"))
    assert "Resource temporarily unavailable" in seen


async def test_devices_and_memory_segments_are_the_tasks_own(engines: LocalEngines) -> None:
    engine = await engines.open()
    left = a_task(engines, "ipcmk -M 4096 && touch /dev/shm/left && sleep 600", uid="left")
    await engine.start(left)
    await wait_for_output(engine, left, b"Shared memory id")
    look = a_task(engines, "ls -A /dev /dev/shm; ipcs -m | grep -c 0x || true", uid="look")
    seen = (await said(engine, look)).split()
    allowed = "console core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    assert set(seen) - {"/dev:", "/dev/shm:", "0"} <= set(allowed.split())
    assert seen[-1] == "0"
    assert not Path("/dev/shm/left").exists()


async def test_a_tasks_first_process_can_be_ended_by_nobody_inside(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "kill -9 1 2; kill -9 -1; echo on; exit 5")
    ended = await run(engine, task)
    assert ended.exit_code == 5 or ended.signal == 9
    task = a_task(engines, "kill -9 1 2; cat /proc/1/environ; exit 5", attempt=1)
    assert (await run(engine, task)).exit_code == 5
    assert (await output(engine, task)).count(b"not permitted") == 2


async def test_user_namespaces_are_closed(engines: LocalEngines) -> None:
    engine = await engines.open()
    clone3 = "import ctypes; print(ctypes.CDLL(None).syscall(435, 0, 0))"
    task = a_task(engines, f"unshare -U true; python -c '{clone3}'; echo ready; sleep 600")
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    seen = (await output(engine, task)).decode()
    assert "unshare failed: Operation not permitted" in seen
    assert "-1\n" in seen
    beside = await typed(engine, task, "unshare", "-U", "true")
    assert "Operation not permitted" in beside


async def test_a_path_cannot_tell_bubblewrap_anything(
    engines: LocalEngines, tmp_path: Path
) -> None:
    """What it is told is separated by NUL characters."""
    opened(tmp_path)
    engine = await engines.open()
    for path in (f"{tmp_path}\0--bind\0/root\0/tmp/root", "\0", "/tmp/\udcff\ud800"):
        with pytest.raises(EngineError):
            await engine.start(a_task(engines, "true", volumes=((path, ""),)))
        with pytest.raises(EngineError):
            await engine.start(a_task(engines, "true", working_dir=path))


async def test_a_volume_covers_no_folder_of_the_machine(
    engines: LocalEngines, tmp_path: Path
) -> None:
    """A link below /tmp and `..` behind it made another path of the machine a mount point."""
    opened(tmp_path)
    ups = len(tmp_path.parts)
    deep = tmp_path / "deep"
    (deep / "/".join(["x"] * ups)).mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep / "/".join(["x"] * ups))
    (deep / "etc").mkdir()
    (deep / "etc" / "made-up").touch()
    source = "/".join([str(tmp_path), "link", *[".."] * ups, "etc"])
    assert Path(source, "made-up").exists()
    engine = await engines.open()
    task = a_task(engines, "ls /etc", volumes=((source, ""),))
    seen = (await said(engine, task)).split()
    assert "passwd" in seen
    assert "made-up" not in seen


@pytest.mark.parametrize("source", ["/", "/proc", "/proc/sys", "/dev", "/dev/pts"])
async def test_the_machines_processes_are_no_volume(engines: LocalEngines, source: str) -> None:
    engine = await engines.open()
    with pytest.raises(EngineError, match="which tasks do not see"):
        await engine.start(a_task(engines, "true", volumes=((source, "d"),)))


async def test_mounts_that_come_and_go_meanwhile_do_not_matter(
    engines: LocalEngines, tmp_path: Path
) -> None:
    """Bubblewrap copies the machine's mounts one by one; a kubelet beside it unmounts volumes."""
    engine = await engines.open()
    mounts = tmp_path / "mounts"
    mounts.mkdir()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CHURN, str(mounts))
    try:
        for attempt in range(20):
            task = a_task(engines, "echo started", attempt=attempt)
            assert await said(engine, task) == "started\n"
    finally:
        (mounts / "enough").touch()
        assert await process.wait() == 0
