"""All processes of a task share one limit, however they end."""

import json
import os
import signal
import subprocess
from typing import Any

from carrel_scheduler.node.limiter.folder import read_usage
from gpu_driver.limited import LimitedTask
from gpu_driver.state import MIB, GpuState


def heard(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def end(process: "subprocess.Popen[str]") -> None:
    process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_memory_of_a_killed_process_comes_back(task: LimitedTask, gpus: GpuState) -> None:
    holder = task.start("cuda = Cuda()\ntell(bool(cuda.alloc(1000)))\nwait()")
    assert heard(holder) is True
    script = "cuda = Cuda()\ntell([bool(cuda.alloc(100)), cuda.info()[0]])"
    assert task.run(script) == [False, 24]
    survivor = task.start(
        "cuda = Cuda()\ncuda.alloc(8)\ntell(0)\nwait()\ntell(bool(cuda.alloc(1000)))"
    )
    heard(survivor)
    assert read_usage(task.folder / "usage")[0] == 1008
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=30)
    assert survivor.communicate("\n", timeout=30)[0].strip() == "true"
    assert task.run("cuda = Cuda()\ntell([bool(cuda.alloc(1024)), cuda.info()[0]])") == [True, 0]
    assert task.run("tell(Cuda().info()[0])") == 1024


def test_processes_that_race_for_the_last_bytes_get_exactly_the_limit(task: LimitedTask) -> None:
    task.limit(4096)
    script = """
        cuda = Cuda()
        tell("ready")
        wait()
        got = 0
        while cuda.alloc(8):
            got += 8
        tell(got)
        wait()
    """
    racers = [task.start(script) for _ in range(8)]
    assert [heard(racer) for racer in racers] == ["ready"] * 8
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    got = [heard(racer) for racer in racers]
    assert sum(got) == 4096
    for racer in racers:
        end(racer)


def test_a_process_that_is_killed_amid_its_allocations_leaves_the_sums_right(
    task: LimitedTask,
) -> None:
    script = """
        cuda = Cuda()
        tell("ready")
        while True:
            cuda.free(cuda.alloc(100))
    """
    bystander = task.start("cuda = Cuda()\ncuda.alloc(24)\ntell(0)\nwait()\ntell(cuda.info()[0])")
    heard(bystander)
    for _ in range(20):
        victim = task.start(script)
        heard(victim)
        victim.kill()
        victim.communicate(timeout=30)
        assert task.run("cuda = Cuda()\ntell([cuda.info()[0], bool(cuda.alloc(1000))])") == [
            1000,
            True,
        ]
    assert bystander.communicate("\n", timeout=30)[0].strip() == "1000"


def test_a_lock_whose_holder_was_killed_is_taken_over_and_the_sums_are_made_anew(
    task: LimitedTask,
) -> None:
    """The holder damages a sum and is killed before it can leave."""
    script = """
        cuda = Cuda()
        cuda.alloc(100)
        fd = next(one for one in map(int, os.listdir("/proc/self/fd"))
                  if os.path.realpath(f"/proc/self/fd/{one}").endswith("/usage"))
        import mmap, signal
        view = mmap.mmap(os.dup(fd), 0)
        lock = ctypes.c_char.from_buffer(view, 16)
        assert ctypes.CDLL(None).pthread_mutex_lock(byref(lock)) == 0
        view[128:136] = bytes(8)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    keeper = task.start(
        "cuda = Cuda()\ncuda.alloc(24)\ntell(0)\nwait()\n"
        "tell([bool(cuda.alloc(1010)), bool(cuda.alloc(1000))])"
    )
    heard(keeper)
    victim = task.start(script)
    victim.communicate(timeout=30)
    assert victim.returncode == -signal.SIGKILL
    assert json.loads(keeper.communicate("\n", timeout=30)[0]) == [False, True]


def test_a_forked_child_has_an_account_of_its_own(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        parent = cuda.alloc(600)
        hear, say = os.pipe()
        if os.fork() == 0:
            child = Cuda()
            first, second = child.alloc(400), child.alloc(100)
            os.write(say, bytes([bool(first), bool(second)]))
            os._exit(0)
        os.wait()
        tell([list(os.read(hear, 2)), cuda.info()[0], bool(cuda.alloc(424))])
    """
    assert task.run(script) == [[1, 0], 424, True]


def test_a_program_that_is_started_by_another_is_limited_too(task: LimitedTask) -> None:
    script = """
        import subprocess, sys
        cuda = Cuda()
        cuda.alloc(1000)
        inner = "from gpu_driver.program import *; tell(bool(Cuda().alloc(100)))"
        tell(json_of(subprocess.run([sys.executable, "-S", "-c", inner], capture_output=True)))
    """
    script = script.replace("json_of(", "(lambda done: done.stdout.decode().strip())(")
    assert task.run(script) == "false"


def test_threads_share_the_account_without_losing_a_byte(task: LimitedTask) -> None:
    script = """
        import threading
        cuda = Cuda()
        def work():
            cuda = here
            cuda.must("cuCtxSetCurrent", cuda.contexts[0])
            for _ in range(300):
                held = [cuda.alloc(1), cuda.get("cuMemAllocAsync", MIB, 0)]
                cuda.free(held[0])
                cuda.must("cuMemFreeAsync", held[1], 0)
        here = cuda
        threads = [threading.Thread(target=work) for _ in range(6)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        cuda.must("cuCtxSynchronize")
        tell(cuda.info()[0])
    """
    assert task.run(script) == 1024


def test_two_tasks_do_not_see_each_other(task: LimitedTask, gpus: GpuState) -> None:
    other = LimitedTask.beside(task, "other")
    holder = other.start("cuda = Cuda()\ntell(bool(cuda.alloc(1024)))\nwait()")
    assert heard(holder) is True
    assert task.run("cuda = Cuda()\ntell([cuda.info()[0], bool(cuda.alloc(1024))])") == [1024, True]
    assert gpus.layout.devices[0].memory_used >= 1024 * MIB
    end(holder)


def test_a_usage_file_that_cannot_be_used_allows_nothing(task: LimitedTask) -> None:
    os.truncate(task.folder / "usage", 100)
    assert task.run("tell(bool(Cuda().alloc(1)))") is False
    (task.folder / "usage").unlink()
    assert task.run("tell(bool(Cuda().alloc(1)))") is False


def test_limits_that_cannot_be_read_allow_nothing(task: LimitedTask) -> None:
    (task.folder / "limits").unlink()
    (task.folder / "limits").mkdir()
    assert task.run("tell([bool(Cuda().alloc(1)), Cuda(1).info()])") == [False, [0, 0]]


def test_a_program_without_limits_is_left_alone(task: LimitedTask) -> None:
    script = "cuda = Cuda()\ntell([bool(cuda.alloc(8000)), cuda.info()])"
    assert task.run(script, CARREL_GPU_LIMIT_FOLDER="/nonexistent") == [True, [8384, 16384]]


def test_more_processes_than_there_are_slots_do_not_wear_them_out(task: LimitedTask) -> None:
    """Slots of processes that ended are used again, and so is what they held."""
    script = """
        for _ in range(600):
            if os.fork() == 0:
                os._exit(0 if Cuda().alloc(1024) else 1)
            assert os.wait()[1] == 0
        tell("done")
    """
    assert task.run(script) == "done"
