/* What the driver takes for the contexts of this process: charged to the part of the task when one is
 * made, given back when it ends. No call tells it, so it is measured, as NVML sees the GPU before and
 * after: by the process that is listed anew, of several the smallest; where none is listed, by the
 * memory that is in use since, less what the task has allocated meanwhile. The processes of a task make
 * their contexts one after the other, so that they do not measure each other. What other tasks take in
 * that moment may count, too, so no context counts as more than MOST; without NVML none counts.
 *
 * A context is never refused: what does not fit is felt by the next allocation.
 */
#include <pthread.h>
#include <string.h>

#include "driver.h"
#include "table.h"
#include "usage.h"

#define MOST (1ULL << 30)
#define LISTED 128
#define UNKNOWN UINT64_MAX

struct view {
    bool known;
    uint64_t used, accounted; /* of the GPU; by the task */
    unsigned count;
    nvmlProcess processes[LISTED];
};

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void lock(void)
{
    pthread_mutex_lock(&one_at_a_time);
}

static void unlock(void)
{
    pthread_mutex_unlock(&one_at_a_time);
}

static void begin(void)
{
    pthread_atfork(lock, unlock, unlock);
}

/* What NVML says of a GPU now. A session is begun, as the program may have none, and never ended: sessions
 * are counted, and the program's own goes on. */
static void look(int gpu, struct view *view)
{
    nvmlDevice device;
    nvmlMemory memory;
    uint64_t limit;

    view->known = false;
    view->count = 0;
    if (!REAL(nvmlInit_v2) || REAL(nvmlInit_v2)() != 0)
        return;
    if (REAL(nvmlDeviceGetHandleByUUID) && REAL(nvmlDeviceGetHandleByUUID)(usage_uuid(gpu), &device) == 0 &&
        REAL(nvmlDeviceGetMemoryInfo) && REAL(nvmlDeviceGetMemoryInfo)(device, &memory) == 0) {
        unsigned count = LISTED;
        usage_read(gpu, &limit, &view->accounted);
        view->used = memory.used;
        view->known = true;
        if (REAL(nvmlDeviceGetComputeRunningProcesses_v3) &&
            REAL(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, view->processes) == 0)
            view->count = count;
    }
}

static uint64_t memory_of(const struct view *view, unsigned pid)
{
    for (unsigned at = 0; at < view->count; at++)
        if (view->processes[at].pid == pid)
            return view->processes[at].memory;
    return UNKNOWN;
}

static uint64_t smaller(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static uint64_t taken(const struct view *before, const struct view *after)
{
    uint64_t listed = UNKNOWN, grown, own;

    if (!before->known || !after->known)
        return 0;
    grown = after->used - smaller(before->used, after->used);
    own = after->accounted - smaller(before->accounted, after->accounted);
    for (unsigned at = 0; at < after->count; at++)
        if (memory_of(before, after->processes[at].pid) == UNKNOWN)
            listed = smaller(listed, after->processes[at].memory);
    if (listed != UNKNOWN)
        return smaller(listed, MOST);
    return smaller(grown - smaller(own, grown), MOST);
}

struct making {
    int gpu;
    struct view before;
};

static void make(struct making *making, CUdevice device)
{
    pthread_once(&once, begin);
    making->gpu = gpu_of_device(device);
    if (making->gpu == UNLIMITED)
        return;
    lock();
    usage_lock_contexts();
    look(making->gpu, &making->before);
}

static void made(struct making *making, CUresult result, CUcontext context)
{
    static struct view after;
    uint64_t bytes;

    if (making->gpu == UNLIMITED)
        return;
    if (result == CUDA_SUCCESS) {
        look(making->gpu, &after);
        bytes = taken(&making->before, &after);
        usage_add(making->gpu, bytes);
        table_lock();
        table_add((struct entry){.key = (uint64_t)context, .size = bytes, .owner = (uint64_t)context,
                                 .gpu = making->gpu, .kind = CONTEXT});
        table_unlock();
    }
    usage_unlock_contexts();
    unlock();
}

#define CREATING(name, arguments, ...)                                                                          \
    EXPORTED CUresult name arguments                                                                            \
    {                                                                                                           \
        struct making making;                                                                                   \
        if (!REAL(name))                                                                                        \
            return CUDA_NOT_FOUND;                                                                              \
        make(&making, device);                                                                                  \
        CUresult result = REAL(name)(__VA_ARGS__);                                                              \
        made(&making, result, result == CUDA_SUCCESS ? *context : NULL);                                        \
        return result;                                                                                          \
    }

CREATING(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), context, flags, device)
CREATING(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device), context,
         affinity, count, flags, device)
CREATING(cuCtxCreate_v4, (CUcontext *context, void *params, unsigned flags, CUdevice device), context, params, flags,
         device)

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    cuDevicePrimaryCtxGetState_function *get_state = REAL(cuDevicePrimaryCtxGetState);
    cuDevicePrimaryCtxRetain_function *real = REAL(cuDevicePrimaryCtxRetain);
    struct making making;
    unsigned flags;
    int active = 0;

    if (!real)
        return CUDA_NOT_FOUND;
    if (!get_state || get_state(device, &flags, &active) != CUDA_SUCCESS || active)
        return real(context, device);
    make(&making, device);
    CUresult result = real(context, device);
    made(&making, result, result == CUDA_SUCCESS ? *context : NULL);
    return result;
}
