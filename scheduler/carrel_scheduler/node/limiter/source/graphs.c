/* Executable graphs: the memory of their alloc nodes is charged from the instantiation to the end of the
 * executable graph, whether or not nodes could share it. That is more than the driver may take, never
 * less, and leaves launches alone. What the driver keeps for later graphs is asked of it like the
 * reserve of a pool (pools.c).
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "driver.h"
#include "table.h"
#include "usage.h"

struct memory {
    uint64_t bytes[USAGE_GPUS];
    CUdevice devices[USAGE_GPUS];
};

/* Sum up what the alloc nodes of a graph ask of each GPU with a limit. */
static void measure(CUgraph graph, struct memory *memory)
{
    CUallocNodeParams params;
    CUgraphNode *nodes;
    size_t count = 0, size;
    int type, gpu;

    if (!REAL(cuGraphGetNodes) || !REAL(cuGraphNodeGetType) || !REAL(cuGraphMemAllocNodeGetParams) ||
        REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    size = count * sizeof *nodes;
    nodes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return;
    if (REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t at = 0; at < count; at++)
            if (REAL(cuGraphNodeGetType)(nodes[at], &type) == CUDA_SUCCESS && type == NODE_MEM_ALLOC &&
                REAL(cuGraphMemAllocNodeGetParams)(nodes[at], &params) == CUDA_SUCCESS &&
                (gpu = gpu_of_device(params.pool.location.id)) != UNLIMITED) {
                memory->bytes[gpu] += params.bytes;
                memory->devices[gpu] = params.pool.location.id;
            }
    munmap(nodes, size);
}

static uint64_t key_of(CUgraphExec exec, int gpu)
{
    return (uint64_t)exec * USAGE_GPUS + (uint64_t)gpu;
}

static void give_back(const struct memory *memory, int below)
{
    for (int gpu = 0; gpu < below; gpu++)
        if (memory->bytes[gpu])
            graph_memory_freed(memory->devices[gpu], memory->bytes[gpu]);
}

static bool take(const struct memory *memory)
{
    for (int gpu = 0; gpu < USAGE_GPUS; gpu++)
        if (memory->bytes[gpu] && !graph_memory_taken(memory->devices[gpu], memory->bytes[gpu])) {
            give_back(memory, gpu);
            return false;
        }
    return true;
}

#define INSTANTIATING(name, arguments, ...)                                                                     \
    EXPORTED CUresult name arguments                                                                            \
    {                                                                                                           \
        struct memory memory = {0};                                                                             \
        CUresult result = CUDA_OUT_OF_MEMORY;                                                                   \
        if (!REAL(name))                                                                                        \
            return CUDA_NOT_FOUND;                                                                              \
        measure(graph, &memory);                                                                                \
        table_lock();                                                                                           \
        if (take(&memory)) {                                                                                    \
            result = REAL(name)(__VA_ARGS__);                                                                   \
            if (result != CUDA_SUCCESS)                                                                         \
                give_back(&memory, USAGE_GPUS);                                                                 \
            else                                                                                                \
                for (int gpu = 0; gpu < USAGE_GPUS; gpu++)                                                      \
                    if (memory.bytes[gpu])                                                                      \
                        table_add((struct entry){.key = key_of(*exec, gpu), .size = memory.bytes[gpu],          \
                                                 .owner = (uint64_t)memory.devices[gpu], .kind = GRAPH});       \
        }                                                                                                       \
        table_unlock();                                                                                         \
        return result;                                                                                          \
    }

INSTANTIATING(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size), exec,
              graph, node, log, size)
INSTANTIATING(cuGraphInstantiate_v2, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size),
              exec, graph, node, log, size)
INSTANTIATING(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), exec, graph,
              flags)
INSTANTIATING(cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph, void *params), exec, graph, params)
INSTANTIATING(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *exec, CUgraph graph, void *params), exec, graph, params)

EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct entry removed;
    CUresult result;

    if (!REAL(cuGraphExecDestroy))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuGraphExecDestroy)(exec);
    for (int gpu = 0; result == CUDA_SUCCESS && gpu < USAGE_GPUS; gpu++)
        if (table_remove(GRAPH, key_of(exec, gpu), &removed))
            graph_memory_freed((CUdevice)removed.owner, removed.size);
    table_unlock();
    return result;
}
