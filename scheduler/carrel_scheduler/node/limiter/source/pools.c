/* Pools and graphs keep memory that is not in use: a pool is charged what its allocations need or what
 * it has reserved of the GPU, whichever is more. The memory of the alloc nodes of executable graphs is
 * charged like one more pool of the GPU, from the instantiation on: launches are not intercepted.
 *
 * What a pool reserves is asked of the driver when it grows, when it is empty, when memory runs out (the
 * pools are then trimmed first) and when somebody asks how much is left. A captured allocation is a node
 * of a graph and takes nothing by itself. Everything here holds the lock of the table.
 */
#include "driver.h"
#include "table.h"
#include "usage.h"

#define POOLS 256

static struct pool {
    CUpool handle; /* NULL: of the graphs of a device */
    CUdevice device;
    int gpu;
    enum { FREE, LIVE, DESTROYED } state;
    uint64_t used, charged;
} pools[POOLS];

static struct pool *find_pool(CUpool handle, CUdevice device)
{
    struct pool *unused = NULL;

    for (struct pool *pool = pools; pool < pools + POOLS; pool++) {
        if (pool->state == LIVE && pool->handle == handle && (handle || pool->device == device))
            return pool;
        if (pool->state == FREE && !unused)
            unused = pool;
    }
    if (unused)
        *unused = (struct pool){.handle = handle, .device = device, .gpu = gpu_of_device(device), .state = LIVE};
    return unused;
}

static uint64_t reserved(const struct pool *pool)
{
    uint64_t bytes = 0;
    CUresult result = CUDA_NOT_FOUND;

    if (pool->handle && REAL(cuMemPoolGetAttribute))
        result = REAL(cuMemPoolGetAttribute)(pool->handle, POOL_RESERVED, &bytes);
    else if (!pool->handle && REAL(cuDeviceGetGraphMemAttribute))
        result = REAL(cuDeviceGetGraphMemAttribute)(pool->device, GRAPH_RESERVED, &bytes);
    return result == CUDA_SUCCESS ? bytes : 0;
}

static void settle(struct pool *pool)
{
    uint64_t held = pool->state == LIVE ? reserved(pool) : 0;

    held = held > pool->used ? held : pool->used;
    if (held > pool->charged)
        usage_add(pool->gpu, held - pool->charged);
    else
        usage_subtract(pool->gpu, pool->charged - held);
    pool->charged = held;
    if (pool->state == DESTROYED && !pool->used)
        pool->state = FREE;
}

static void settle_all(int gpu, bool trim)
{
    for (struct pool *pool = pools; pool < pools + POOLS; pool++) {
        if (pool->state == FREE || pool->gpu != gpu)
            continue;
        if (trim && pool->state == LIVE && pool->handle && REAL(cuMemPoolTrimTo))
            REAL(cuMemPoolTrimTo)(pool->handle, 0);
        else if (trim && !pool->handle && REAL(cuDeviceGraphMemTrim))
            REAL(cuDeviceGraphMemTrim)(pool->device);
        settle(pool);
    }
}

static bool reserve_locked(int gpu, uint64_t bytes)
{
    if (usage_reserve(gpu, bytes))
        return true;
    settle_all(gpu, false);
    if (usage_reserve(gpu, bytes))
        return true;
    settle_all(gpu, true);
    return usage_reserve(gpu, bytes);
}

bool reserve_or_trim(int gpu, uint64_t bytes)
{
    bool granted = usage_reserve(gpu, bytes);

    if (!granted) {
        table_lock();
        granted = reserve_locked(gpu, bytes);
        table_unlock();
    }
    return granted;
}

void settle_pools(int gpu)
{
    table_lock();
    settle_all(gpu, false);
    table_unlock();
}

void pool_freed(uint64_t number, uint64_t bytes)
{
    struct pool *pool = &pools[number];

    pool->used -= bytes < pool->used ? bytes : pool->used;
    if (!pool->used)
        settle(pool);
}

/* Make room in a pool for more; false leaves what is in use as it was. */
static bool extend(struct pool *pool, uint64_t bytes)
{
    uint64_t needed;

    if (__builtin_add_overflow(pool->used, bytes, &needed))
        return false;
    while (pool->charged < needed) { /* again when trimming the pools settled this one meanwhile */
        uint64_t missing = needed - pool->charged;
        if (!reserve_locked(pool->gpu, missing))
            return false;
        pool->charged += missing;
    }
    pool->used = needed;
    return true;
}

static bool capturing(CUstream stream)
{
    int status = 0;

    return REAL(cuStreamIsCapturing) && REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status;
}

/* After an allocation: whether what the pool reserved for it fits, too. It is undone when not. */
static bool accept(struct pool *pool, CUdeviceptr address, uint64_t bytes, CUstream stream, cuMemFreeAsync_function *release)
{
    uint64_t held = reserved(pool);
    struct entry removed;

    if (held <= pool->charged)
        return true;
    if (reserve_locked(pool->gpu, held - pool->charged)) {
        pool->charged = held;
        return true;
    }
    if (release && release(address, stream) == CUDA_SUCCESS && table_remove(POOLED, address, &removed)) {
        pool->used -= bytes;
        if (REAL(cuStreamSynchronize))
            REAL(cuStreamSynchronize)(stream);
        settle_all(pool->gpu, true);
    }
    return false;
}

/* An allocation of `bytes` from a pool, whose driver call is `call`. */
#define ALLOCATE_FROM(pool_handle, device, call, release)                                                       \
    do {                                                                                                        \
        struct pool *pool;                                                                                      \
        CUresult result = CUDA_OUT_OF_MEMORY;                                                                   \
        if (capturing(stream))                                                                                  \
            return call;                                                                                        \
        table_lock();                                                                                           \
        pool = find_pool(pool_handle, device);                                                                  \
        if (pool && pool->gpu == UNLIMITED) {                                                                   \
            result = call;                                                                                      \
        } else if (pool && extend(pool, bytes)) {                                                               \
            result = call;                                                                                      \
            if (result != CUDA_SUCCESS) {                                                                       \
                pool->used -= bytes;                                                                            \
                settle(pool);                                                                                   \
            } else if (table_add((struct entry){.key = *address, .size = bytes, .owner = (uint64_t)(pool - pools), \
                                                .gpu = pool->gpu, .kind = POOLED}) &&                           \
                       !accept(pool, *address, bytes, stream, release)) {                                       \
                result = CUDA_OUT_OF_MEMORY;                                                                    \
            }                                                                                                   \
        }                                                                                                       \
        table_unlock();                                                                                         \
        return result;                                                                                          \
    } while (0)

/* The pool and device that an allocation takes without naming them. */
static bool current_pool(CUpool *pool, CUdevice *device)
{
    return REAL(cuCtxGetDevice) && REAL(cuCtxGetDevice)(device) == CUDA_SUCCESS && REAL(cuDeviceGetMemPool) &&
           REAL(cuDeviceGetMemPool)(pool, *device) == CUDA_SUCCESS && *pool;
}

#define ALLOCATING_ASYNC(name, release)                                                                         \
    EXPORTED CUresult name(CUdeviceptr *address, size_t bytes, CUstream stream)                                 \
    {                                                                                                           \
        CUpool handle = NULL;                                                                                   \
        CUdevice device = 0;                                                                                    \
        if (!REAL(name))                                                                                        \
            return CUDA_NOT_FOUND;                                                                              \
        if (!current_pool(&handle, &device))                                                                    \
            return REAL(name)(address, bytes, stream);                                                          \
        ALLOCATE_FROM(handle, device, REAL(name)(address, bytes, stream), REAL(release));                       \
    }

#define ALLOCATING_FROM_POOL(name, release)                                                                     \
    EXPORTED CUresult name(CUdeviceptr *address, size_t bytes, CUpool handle, CUstream stream)                  \
    {                                                                                                           \
        if (!REAL(name))                                                                                        \
            return CUDA_NOT_FOUND;                                                                              \
        if (!handle)                                                                                            \
            return REAL(name)(address, bytes, handle, stream);                                                  \
        ALLOCATE_FROM(handle, -1, REAL(name)(address, bytes, handle, stream), REAL(release));                   \
    }

ALLOCATING_ASYNC(cuMemAllocAsync, cuMemFreeAsync)
ALLOCATING_ASYNC(cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz)
ALLOCATING_FROM_POOL(cuMemAllocFromPoolAsync, cuMemFreeAsync)
ALLOCATING_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz)

static CUresult release_async(cuMemFreeAsync_function *real, CUdeviceptr address, CUstream stream)
{
    struct entry removed;
    CUresult result;

    if (!real)
        return CUDA_NOT_FOUND;
    if (capturing(stream))
        return real(address, stream);
    table_lock(); /* as in cuMemFree */
    result = real(address, stream);
    if (result == CUDA_SUCCESS) {
        if (table_remove(POOLED, address, &removed))
            pool_freed(removed.owner, removed.size);
        else if (table_remove(ADDRESS, address, &removed))
            usage_subtract(removed.gpu, removed.size);
    }
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    return release_async(REAL(cuMemFreeAsync), address, stream);
}

EXPORTED CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return release_async(REAL(cuMemFreeAsync_ptsz), address, stream);
}

EXPORTED CUresult cuMemPoolCreate(CUpool *pool, const CUpoolProps *props)
{
    struct pool *made;
    CUresult result;

    if (!REAL(cuMemPoolCreate))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemPoolCreate)(pool, props);
    if (result == CUDA_SUCCESS && (made = find_pool(*pool, props->location.id)) && props->location.type != LOCATION_DEVICE)
        made->gpu = UNLIMITED; /* in the memory of the machine */
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemPoolDestroy(CUpool handle)
{
    CUresult result;

    if (!REAL(cuMemPoolDestroy))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemPoolDestroy)(handle);
    for (struct pool *pool = pools; result == CUDA_SUCCESS && pool < pools + POOLS; pool++)
        if (pool->state == LIVE && pool->handle && pool->handle == handle) {
            pool->state = DESTROYED; /* its allocations live on until they are freed */
            settle(pool);
        }
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemPoolTrimTo(CUpool handle, size_t keep)
{
    CUresult result;

    if (!REAL(cuMemPoolTrimTo))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemPoolTrimTo)(handle, keep);
    for (struct pool *pool = pools; result == CUDA_SUCCESS && pool < pools + POOLS; pool++)
        if (pool->state == LIVE && pool->handle && pool->handle == handle)
            settle(pool);
    table_unlock();
    return result;
}

bool graph_memory_taken(CUdevice device, uint64_t bytes)
{
    struct pool *pool = find_pool(NULL, device);

    return pool && extend(pool, bytes);
}

void graph_memory_freed(CUdevice device, uint64_t bytes)
{
    struct pool *pool = find_pool(NULL, device);

    if (pool) {
        pool->used -= bytes;
        settle(pool);
    }
}

EXPORTED CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result;

    if (!REAL(cuDeviceGraphMemTrim))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuDeviceGraphMemTrim)(device);
    for (struct pool *pool = pools; result == CUDA_SUCCESS && pool < pools + POOLS; pool++)
        if (pool->state == LIVE && !pool->handle && pool->device == device)
            settle(pool);
    table_unlock();
    return result;
}
