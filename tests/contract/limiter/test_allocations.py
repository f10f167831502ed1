"""Every way to get memory of a GPU ends at the limit of the task, and gives back what is freed."""

import pytest

from gpu_driver.limited import LimitedTask
from gpu_driver.state import MIB, GpuState

ALLOCATE = {
    "linear": ('get("cuMemAlloc_v2", 256 * MIB)', "cuMemFree_v2"),
    "managed": ('get("cuMemAllocManaged", 256 * MIB, 1)', "cuMemFree_v2"),
    "pitch": (
        'get("cuMemAllocPitch_v2", byref(c_size_t()), MIB, 256, 4)',
        "cuMemFree_v2",
    ),
    "array": (
        'get("cuArrayCreate_v2", byref(ArrayDescriptor(8192, 8192, 0x20 | 1 << 32)))',
        "cuArrayDestroy",
    ),
    "array of 3 dimensions": (
        'get("cuArray3DCreate_v2", byref(ArrayDescriptor(1024, 1024, 64, 0x20, 1)))',
        "cuArrayDestroy",
    ),
    "async": ('get("cuMemAllocAsync", 256 * MIB, 0)', "cuMemFree_v2"),
    "async, per thread": ('get("cuMemAllocAsync_ptsz", 256 * MIB, 0)', "cuMemFree_v2"),
    "from a pool": ('get("cuMemAllocFromPoolAsync", 256 * MIB, pool, 0)', "cuMemFree_v2"),
    "physical": ("create(256)", "cuMemRelease"),
}


@pytest.mark.parametrize("by_proc_address", [False, True])
@pytest.mark.parametrize("way", ALLOCATE)
def test_each_allocator_ends_at_the_limit(
    task: LimitedTask, gpus: GpuState, way: str, by_proc_address: bool
) -> None:
    allocate, free = ALLOCATE[way]
    script = f"""
        cuda = Cuda(by_proc_address={by_proc_address})
        pool = cuda.get("cuMemPoolCreate", byref(PoolProps(1, 0, Location(1, 0))))
        held, refused = [], 0
        for _ in range(5):
            try:
                got = cuda.{allocate}
            except AssertionError as error:
                refused = error.args[0][1]
            else:
                held += [got] if got else []
                refused = 0 if got else 2
        full = cuda.info()
        for one in held:
            cuda.must({free!r}, one)
        tell([len(held), refused, full, cuda.info()])
    """
    assert task.run(script) == [4, 2, [0, 1024], [1024, 1024]]
    assert gpus.layout.devices[1].memory_used == 0


def test_a_failure_of_the_driver_is_passed_on_and_costs_nothing(
    task: LimitedTask, gpus: GpuState
) -> None:
    gpus.layout.fail_allocations = 1
    script = """
        cuda = Cuda()
        first, second = cuda.alloc(1024), cuda.alloc(1024)
        tell([bool(first), bool(second), cuda.call("cuMemFree_v2", 12345)])
    """
    assert task.run(script) == [False, True, 1]


def test_memory_of_the_virtual_memory_api_counts_until_the_last_handle_and_mapping(
    task: LimitedTask, gpus: GpuState
) -> None:
    script = """
        cuda = Cuda()
        free = lambda: cuda.info()[0]
        handle = cuda.create(512)
        address = cuda.get("cuMemAddressReserve", 1024 * MIB, 0, 0, 0)
        cuda.must("cuMemMap", address, 256 * MIB, 0, handle, 0)
        cuda.must("cuMemMap", address + 256 * MIB, 256 * MIB, 0, handle, 0)
        seen = [free()]
        cuda.must("cuMemRelease", handle)
        seen += [free(), cuda.create(600)]
        again = cuda.get("cuMemRetainAllocationHandle", address + MIB)
        cuda.must("cuMemUnmap", address, 512 * MIB)
        seen += [free()]
        shared = cuda.get("cuMemExportToShareableHandle", again, 1, 0)
        imported = cuda.get("cuMemImportFromShareableHandle", shared, 1)
        cuda.must("cuMemRelease", again)
        seen += [free()]
        cuda.must("cuMemRelease", imported)
        tell([*seen, free()])
    """
    assert task.run(script) == [512, 512, 0, 512, 512, 1024]
    assert gpus.layout.devices[0].memory_used == 0


def test_the_virtual_memory_api_charges_the_device_that_is_named(task: LimitedTask) -> None:
    task.limit(512, 256)
    script = """
        cuda = Cuda(0, 1)  # the second is current
        tell([bool(cuda.create(512, 0)), bool(cuda.create(256, 1)), bool(cuda.create(2, 1)),
              bool(cuda.create(2, 0)), bool(cuda.alloc(1))])
    """
    assert task.run(script) == [True, True, False, False, False]


def test_several_gpus_have_limits_of_their_own_and_others_none(task: LimitedTask) -> None:
    script = """
        cuda = Cuda(1, 0)
        here = [bool(cuda.alloc(1000)), bool(cuda.alloc(100)), cuda.info()]
        cuda.must("cuCtxSetCurrent", cuda.contexts[0])
        tell([here, bool(cuda.alloc(8000)), cuda.info()])
    """
    assert task.run(script) == [[True, False, [24, 1024]], True, [8384, 16384]]


def test_a_pool_counts_with_what_it_reserves(task: LimitedTask, gpus: GpuState) -> None:
    script = """
        cuda = Cuda()
        one = cuda.get("cuMemAllocAsync", MIB, 0)
        seen = [cuda.info()[0]]
        cuda.must("cuMemFreeAsync", one, 0)  # in order of the stream: the pool still has it
        seen += [cuda.info()[0]]
        cuda.must("cuCtxSynchronize")
        tell([*seen, cuda.info()[0]])
    """
    assert task.run(script) == [1024 - 32, 1024 - 32, 1024]


def test_unused_pieces_of_pools_are_given_back_before_an_allocation_fails(
    task: LimitedTask,
) -> None:
    script = """
        cuda = Cuda()
        cuda.must("cuMemFreeAsync", cuda.get("cuMemAllocAsync", 1000 * MIB, 0), 0)
        tell([cuda.info()[0], bool(cuda.alloc(1024)), cuda.info()[0]])
    """
    assert task.run(script) == [0, True, 0]


def test_a_pool_that_reserves_more_than_is_left_is_refused(
    task: LimitedTask, gpus: GpuState
) -> None:
    script = """
        cuda = Cuda()
        cuda.alloc(1000)
        small = c_uint64()
        refused = cuda.call("cuMemAllocAsync", byref(small), MIB, 0)  # the pool takes 32 MiB
        tell([refused, cuda.info()[0], bool(cuda.alloc(24))])
    """
    assert task.run(script) == [2, 24, True]


def test_a_destroyed_pool_counts_until_its_last_allocation_is_freed(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        pool = cuda.get("cuMemPoolCreate", byref(PoolProps(1, 0, Location(1, 0))))
        one = cuda.get("cuMemAllocFromPoolAsync", 64 * MIB, pool, 0)
        cuda.must("cuMemPoolDestroy", pool)
        seen = cuda.info()[0]
        cuda.must("cuMemFree_v2", one)
        tell([seen, cuda.info()[0]])
    """
    assert task.run(script) == [960, 1024]


GRAPH = """
    cuda = Cuda()
    graph = cuda.get("cuGraphCreate", 0)
    for mib in (300, 300):
        node = AllocNode(PoolProps(1, 0, Location(1, 0)), None, 0, mib * MIB)
        cuda.get("cuGraphAddMemAllocNode", graph, None, 0, byref(node))
    def instantiate():
        made = c_uint64()
        result = cuda.call("cuGraphInstantiateWithFlags", byref(made), graph, 0)
        return result, made.value
"""


def test_graphs_count_with_their_allocations_from_the_instantiation_on(task: LimitedTask) -> None:
    script = f"""{GRAPH}
    result, made = instantiate()
    seen = [result, cuda.info()[0], instantiate()[0]]
    cuda.must("cuGraphLaunch", made, 0)
    seen += [cuda.info()[0]]
    cuda.must("cuGraphExecDestroy", made)
    seen += [cuda.info()[0]]  # the driver keeps the memory for the next graph
    cuda.must("cuDeviceGraphMemTrim", 0)
    tell([*seen, cuda.info()[0]])
    """
    assert task.run(script) == [0, 424, 2, 424, 424, 1024]


def test_a_captured_allocation_counts_in_its_graph(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        stream, graph, made = cuda.get("cuStreamCreate", 0), c_uint64(), c_uint64()
        cuda.must("cuStreamBeginCapture_v2", stream, 0)
        cuda.get("cuMemAllocAsync", 2000 * MIB, stream)
        cuda.must("cuStreamEndCapture", stream, byref(graph))
        free = cuda.info()[0]
        tell([free, cuda.call("cuGraphInstantiateWithParams", byref(made), graph, None)])
    """
    assert task.run(script) == [1024, 2]


def test_memory_of_another_process_is_not_counted_twice(task: LimitedTask) -> None:
    holder = task.start(
        """
        cuda = Cuda()
        address, handle = cuda.alloc(500), (ctypes.c_char * 64)()
        cuda.must("cuIpcGetMemHandle", handle, address)
        tell(list(bytes(handle)))
        wait()
        """
    )
    assert holder.stdout is not None
    handle = holder.stdout.readline().strip()
    script = f"""
        class Handle(ctypes.Structure):
            _fields_ = (("bytes", ctypes.c_char * 64),)
        cuda, address = Cuda(), c_uint64()
        seen = [cuda.info()[0]]
        handle = Handle.from_buffer_copy(bytes({handle}))
        cuda.must("cuIpcOpenMemHandle_v2", byref(address), handle, 1)
        seen += [cuda.info()[0]]
        cuda.must("cuIpcCloseMemHandle", address.value)
        tell([*seen, cuda.info()[0]])
    """
    assert task.run(script) == [524, 524, 524]
    holder.communicate("\n", timeout=30)


def test_the_end_of_a_context_frees_what_was_allocated_in_it(
    task: LimitedTask, gpus: GpuState
) -> None:
    script = """
        cuda = Cuda(0, 0)  # two contexts of one device
        cuda.alloc(300)
        cuda.must("cuCtxDestroy_v2", cuda.contexts[1])
        cuda.must("cuCtxSetCurrent", cuda.contexts[0])
        seen = [cuda.info()[0]]
        primary = cuda.get("cuDevicePrimaryCtxRetain", 0)
        cuda.must("cuCtxSetCurrent", primary)
        cuda.alloc(200)
        cuda.get("cuDevicePrimaryCtxRetain", 0)
        cuda.must("cuDevicePrimaryCtxRelease_v2", 0)
        seen += [cuda.info()[0]]
        cuda.must("cuDevicePrimaryCtxRelease_v2", 0)
        cuda.must("cuCtxSetCurrent", cuda.contexts[0])
        tell([*seen, cuda.info()[0]])
    """
    assert task.run(script) == [1024, 824, 1024]
    assert gpus.layout.devices[0].memory_used == 0


def test_memory_of_the_machine_is_not_counted(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        host = c_void_p()
        cuda.must("cuMemHostAlloc", byref(host), 8 * MIB, 0)
        pool = cuda.get("cuMemPoolCreate", byref(PoolProps(1, 0, Location(2, 0))))
        cuda.get("cuMemAllocFromPoolAsync", 4000 * MIB, pool, 0)
        tell(cuda.info()[0])
    """
    assert task.run(script) == 1024


def test_impossible_sizes_fail_and_leave_the_account_right(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        huge, pitch, got = 2**64 - 1, c_size_t(), c_uint64()
        results = [
            cuda.call("cuMemAlloc_v2", byref(got), huge),
            cuda.call("cuMemAllocPitch_v2", byref(got), byref(pitch), huge, huge, 4),
            cuda.call("cuMemAllocAsync", byref(got), huge, 0),
            cuda.call("cuArray3DCreate_v2", byref(got),
                      byref(ArrayDescriptor(2**40, 2**40, 2**40, 0x20, 4))),
        ]
        tell([results, cuda.info()[0]])
    """
    assert task.run(script) == [[2, 2, 2, 2], 1024]


def test_the_slice_is_what_every_query_shows(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        cuda.alloc(24)
        tell([cuda.info(), cuda.get("cuDeviceTotalMem_v2", 0), cuda.get("cuDeviceTotalMem_v2", 1)])
    """
    assert task.run(script) == [[1000, 1024], 1024 * MIB, 16384 * MIB]


def test_what_the_driver_takes_besides_counts_when_the_agent_tells_it(task: LimitedTask) -> None:
    script = """
        cuda = Cuda()
        tell([cuda.info(), bool(cuda.alloc(725)), bool(cuda.alloc(724))])
    """
    task.overhead(300)
    assert task.run(script) == [[724, 1024], False, True]
