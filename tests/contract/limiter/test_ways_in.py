"""Programs reach the driver in several ways; all of them lead through the limiter."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from gpu_driver.build import build
from gpu_driver.limited import LimitedTask
from gpu_driver.state import GpuState

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdint.h>
int cuInit(unsigned), cuCtxCreate_v2(void *, unsigned, int), cuMemAlloc_v2(uint64_t *, uint64_t);
typedef int allocate(uint64_t *, uint64_t);
typedef int address(const char *, void **, int, uint64_t, int *);
int main(int count, char **words)
{
    void *context, *handle, *found = NULL;
    uint64_t got;
    allocate *call = NULL;
    char way = count > 1 ? words[1][0] : 'd';
    if (way == 'd') { call = cuMemAlloc_v2; cuInit(0); cuCtxCreate_v2(&context, 0, 0); }
    else {
        handle = way == 'n' ? RTLD_NEXT : way == 'g' ? RTLD_DEFAULT
               : dlopen(words[2], RTLD_NOW | (way == 'b' ? RTLD_DEEPBIND : 0));
        ((int (*)(unsigned))dlsym(handle, "cuInit"))(0);
        ((int (*)(void *, unsigned, int))dlsym(handle, "cuCtxCreate_v2"))(&context, 0, 0);
        if (way == 'p') {
            address *ask = dlsym(handle, "cuGetProcAddress_v2"), *again;
            ask("cuGetProcAddress", (void **)&again, 12000, 0, NULL); /* as the runtime does */
            again("cuMemAlloc", &found, 3020, 0, NULL);
            call = found;
        } else call = dlsym(handle, "cuMemAlloc_v2");
    }
    printf("%d %d\n", call(&got, 1000 << 20), call(&got, 100 << 20));
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, drivers: Path) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PROGRAM)
    return build(folder / "program.c", folder / "program", f"{drivers}/libcuda.so.1", "-ldl")


@pytest.mark.parametrize("way", ["direct", "next", "global", "opened", "bound deeply", "proc"])
def test_a_program_in_c_is_limited(
    task: LimitedTask, program: Path, drivers: Path, way: str
) -> None:
    done = subprocess.run(
        [program, way, drivers / "libcuda.so.1"],
        env=task.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2", "0"] or done.stdout.split() == ["0", "2"]


@pytest.mark.parametrize("version", [11030, 12000, 13000])
def test_proc_address_answers_with_itself_and_with_limited_functions(
    task: LimitedTask, version: int
) -> None:
    script = f"""
        cuda = Cuda(version={version})
        names = ["cuGetProcAddress", "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemAllocAsync"]
        def library(address):
            for line in open("/proc/self/maps"):
                low, high = (int(one, 16) for one in line.split()[0].split("-"))
                if low <= address < high:
                    return line.split()[-1].rpartition("/")[2]
        tell([library(cuda.address(name)) for name in [*names, "cuLaunchKernel", "cuStreamCreate"]])
    """
    assert task.run(script) == ["libcarrel_gpu_limit.so"] * 5 + ["libcuda.so.1"] * 2


def test_streams_of_their_own_for_each_thread_are_limited(task: LimitedTask) -> None:
    script = """
        cuda = Cuda(by_proc_address=True, flags=2)
        got = c_uint64()
        tell([cuda.call("cuMemAllocAsync", byref(got), 1000 * MIB, 0),
              cuda.call("cuMemAllocAsync", byref(got), 100 * MIB, 0)])
    """
    assert task.run(script) == [0, 2]


def test_a_name_that_the_driver_does_not_have_is_not_found(task: LimitedTask) -> None:
    script = """
        library = ctypes.CDLL("libcuda.so.1")
        found = c_void_p()
        status = library.cuGetProcAddress_v2(b"cuNothing", byref(found), 12000, c_uint64(0), None)
        tell([status, hasattr(library, "cuGraphInstantiateWithParams_ptsz")])
    """
    assert task.run(script) == [500, False]


def test_launches_and_copies_are_not_intercepted(
    task: LimitedTask, limiter: Path, gpus: GpuState
) -> None:
    exported = subprocess.run(
        ["nm", "--dynamic", "--defined-only", limiter], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in exported.splitlines()}
    assert "cuMemAlloc_v2" in names
    assert not [name for name in names if re.search("Launch|Memcpy|Memset|Peer|Attribute", name)]
    assert {name[:2] for name in names} <= {"cu", "nv", "dl"}
    script = """
        cuda = Cuda()
        for _ in range(10):
            cuda.must("cuLaunchKernel", 1, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        tell(os.getpid())
        wait()
    """
    process = task.start(script)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    launches = [one.launches for one in gpus.layout.processes if one.pid == pid]
    process.communicate("\n", timeout=30)
    assert launches == [10]


WRAPPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
int getppid(void) { return 1000000 + ((int (*)(void))dlsym(RTLD_NEXT, "getppid"))(); }
"""
WRAPPED = r"""
#include <stdio.h>
int getppid(void);
int main(void) { return printf("%d\n", getppid()) < 0; }
"""


def test_the_next_symbol_is_that_after_the_caller(task: LimitedTask, tmp_path: Path) -> None:
    """A lookup that is passed on keeps its caller, or this library would find itself for ever."""
    (tmp_path / "wrapper.c").write_text(WRAPPER)
    (tmp_path / "wrapped.c").write_text(WRAPPED)
    wrapper = build(tmp_path / "wrapper.c", tmp_path / "libwrapper.so", "-ldl")
    program = build(tmp_path / "wrapped.c", tmp_path / "wrapped", str(wrapper))
    done = subprocess.run(
        [program], env=task.environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 1000000 + os.getpid()
