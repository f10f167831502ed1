"""Volumes at paths of the machine that a user chose: they are there, and leave no trace."""

from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import EngineError
from contract.engine.local_engines import AS_ROOT, LocalEngines
from contract.engine_tasks import a_task, output, run

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not AS_ROOT, reason="an ordinary account mounts nothing"),
]
ABSENT = "/carrel-test-of-volumes"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that every account can read and write."""
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o755)
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "set.txt").write_text("numbers\n")
    return folder


@pytest.mark.parametrize("place", [ABSENT, f"{ABSENT}/deep/er", "/mnt", f"/srv{ABSENT}/x"])
async def test_a_volume_is_where_it_was_asked_for(
    engines: LocalEngines, data: Path, place: str
) -> None:
    engine = await engines.open()
    script = f"cat {place}/set.txt; pwd; touch {place}/written; ls -A / > all"
    task = a_task(engines, script, volumes=((str(data), place),), working_dir=place)
    assert (await run(engine, task)).exit_code == 0
    assert (await output(engine, task)).decode() == f"numbers\n{place}\n"
    assert (data / "written").exists(), "it is the folder itself"
    seen = (data / "all").read_text().split()
    assert {path.name for path in Path("/").iterdir()} <= {*seen}, "the rest of / stays"
    assert not Path(ABSENT).exists(), "nothing is made on the machine"
    assert not Path(f"/srv{ABSENT}").exists()


async def test_a_volume_that_is_only_to_be_read(engines: LocalEngines, data: Path) -> None:
    engine = await engines.open()
    task = a_task(
        engines,
        f"cat {ABSENT}/set.txt; touch {ABSENT}/x",
        volumes=((str(data), ABSENT),),
        read_only=(str(data),),
    )
    assert (await run(engine, task)).exit_code == 1
    assert "Read-only file system" in (await output(engine, task)).decode()


@pytest.mark.parametrize("place", ["/usr", "/etc", "/proc/x", "/dev/x", "/bin"])
async def test_the_programs_of_a_task_are_not_covered(
    engines: LocalEngines, data: Path, place: str
) -> None:
    engine = await engines.open()
    with pytest.raises(EngineError, match=rf"^volumes='{place}': holds what programs need"):
        await engine.start(a_task(engines, "true", volumes=((str(data), place),)))


async def test_root_makes_no_mount_point_where_others_can_exchange_it(
    engines: LocalEngines, data: Path
) -> None:
    engine = await engines.open()
    home = engines.root / "homes" / "ada"
    await run(engine, a_task(engines, "ln -s /etc ~/there"))
    for number, place in enumerate((f"{home}/new", f"{home}/there/new", f"{ABSENT}/a/../../x")):
        task = a_task(engines, "true", uid=f"r{number}", volumes=((str(data), place),))
        with pytest.raises(EngineError, match=r"^volumes="):
            await engine.start(task)
    assert not (home / "new").exists()
