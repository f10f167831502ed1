/* libcuda.so.1 for machines without a GPU: it keeps account of memory and does nothing else.
 *
 * It behaves like the driver where a program can tell by memory: contexts take context_bytes, pools
 * reserve pieces of 32 MiB and give them back when a stream is synchronised or the pool is trimmed,
 * physical memory of the virtual memory API lives as long as a handle or a mapping of it, executable
 * graphs hold the memory of their alloc nodes. Device addresses are numbers and cannot be used.
 * What is not written here is CUDA_ERROR_NOT_SUPPORTED by absence: cuGetProcAddress does not find it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "limits.h"

#define API __attribute__((visibility("default"))) int
#define MIB (1024ULL * 1024)
#define CHUNK (32 * MIB)

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, BAD_DEVICE = 101, NO_CONTEXT = 201, BAD_HANDLE = 400, NOT_FOUND = 500, UNAVAILABLE = 46 };
enum thing { FREE, MEMORY, POOLED, PHYSICAL, ARRAY, POOL, GRAPH, EXEC, CONTEXT, STREAM };

struct object {
    enum thing thing;
    int device;
    uint64_t bytes;      /* memory of the device that it holds; of a pool: reserved */
    uint64_t used;       /* of a pool: by allocations; of an object in a pool: its size */
    uint64_t address;    /* where it is mapped or begins */
    uint64_t mapped;     /* bytes of a mapping */
    struct object *owner; /* context, pool, graph */
    int handles, mappings;
    bool capturing, destroyed;
};

#define OBJECTS 65536
static struct object objects[OBJECTS];
static struct object *end = objects + 1; /* behind the last one in use so far */
static struct gpu_state *state;
static int descriptor, slot = -1;
static uint64_t next_address = 0x7f0000000000ULL;
static struct object *primary[GPU_DEVICES];
static int primary_retained[GPU_DEVICES];
static struct object *default_pool[GPU_DEVICES], *current_pool[GPU_DEVICES];
static uint64_t graph_reserved[GPU_DEVICES];
static __thread struct object *stack[32];
static __thread int depth;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#define LOCKED __attribute__((cleanup(unlock))) int locked = pthread_mutex_lock(&mutex)
static void unlock(int *locked) { if (*locked == 0) pthread_mutex_unlock(&mutex); }

static struct object *make(enum thing thing, int device)
{
    for (struct object *object = objects + 1; object < objects + OBJECTS; object++)
        if (object->thing == FREE) {
            *object = (struct object){.thing = thing, .device = device};
            end = object < end ? end : object + 1;
            return object;
        }
    return NULL;
}

static struct object *known(void *handle, enum thing thing)
{
    struct object *object = handle;
    return object > objects && object < objects + OBJECTS && object->thing == thing ? object : NULL;
}

static struct object *at_address(enum thing thing, uint64_t address)
{
    for (struct object *object = objects; object < end; object++)
        if (object->thing == thing && object->address == address)
            return object;
    return NULL;
}

static void drop_slot(int which)
{
    for (int device = 0; device < GPU_DEVICES; device++)
        __atomic_sub_fetch(&state->devices[device].memory_used, state->processes[which].use[device].memory_used, __ATOMIC_RELAXED);
    memset(&state->processes[which], 0, sizeof state->processes[which]);
}

/* Lock the file's registration byte, free slots of processes that ended, take one. */
static void register_process(void)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GPU_STATE_LOCKS - 1, .l_len = 1};

    fcntl(descriptor, F_SETLKW, &all);
    for (int at = 0; at < GPU_PROCESSES; at++) {
        struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GPU_STATE_LOCKS + at, .l_len = 1};
        struct gpu_process *process = &state->processes[at];
        if (process->listed || at == slot)
            continue;
        if (process->pid) {
            struct flock test = own;
            if (fcntl(descriptor, F_GETLK, &test) == 0 && test.l_type == F_UNLCK)
                drop_slot(at);
        }
        if (slot < 0 && !process->pid && fcntl(descriptor, F_SETLK, &own) == 0) {
            slot = at;
            process->pid = (uint32_t)getpid();
            for (int device = 0; device < GPU_DEVICES; device++)
                process->use[device].gpu_instance = 0xffffffffu;
        }
    }
    all.l_type = F_UNLCK;
    fcntl(descriptor, F_SETLK, &all);
}

static void forked(void)
{
    state = NULL; /* as of the real driver: the child has to initialise it anew */
    slot = -1;
    depth = 0;
    memset(objects, 0, sizeof objects);
    end = objects + 1;
    memset(primary, 0, sizeof primary);
    memset(primary_retained, 0, sizeof primary_retained);
    memset(default_pool, 0, sizeof default_pool);
    memset(current_pool, 0, sizeof current_pool);
    pthread_mutex_init(&mutex, NULL);
}

static void wait_like_the_driver(void)
{
    struct timespec now, end;

    if (!state->allocation_ns)
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)state->allocation_ns;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

/* One process after the other: a limit counts what several hold. */
static void lock_limits(short type)
{
    struct flock all = {.l_type = type, .l_whence = SEEK_SET, .l_start = GPU_STATE_LOCKS - 2, .l_len = 1};
    fcntl(descriptor, F_SETLKW, &all);
}

static bool take_unlimited(int device, uint64_t bytes)
{
    struct gpu_device *found = &state->devices[device];
    uint64_t used = __atomic_load_n(&found->memory_used, __ATOMIC_RELAXED), room = found->memory_total - found->memory_reserved;

    while (bytes <= room && used <= room - bytes)
        if (__atomic_compare_exchange_n(&found->memory_used, &used, used + bytes, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            __atomic_add_fetch(&state->processes[slot].use[device].memory_used, bytes, __ATOMIC_RELAXED);
            return true;
        }
    return false;
}

static bool take(int device, uint64_t bytes)
{
    uint64_t total = GPU_NO_LIMIT;

    gpu_own_group(state->processes[slot].group);
    for (int round = 0; round < 2; round++) {
        bool taken;
        lock_limits(F_WRLCK);
        taken = gpu_group_room(state, device, state->processes[slot].group, &total) >= bytes && take_unlimited(device, bytes);
        lock_limits(F_UNLCK);
        if (taken)
            return true;
        register_process(); /* frees what processes that ended held */
    }
    return false;
}

static void give(int device, uint64_t bytes)
{
    __atomic_sub_fetch(&state->devices[device].memory_used, bytes, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&state->processes[slot].use[device].memory_used, bytes, __ATOMIC_RELAXED);
}

/* What every allocation begins with: its call is counted, delayed and failed as the test wants. */
static int allocation(int device)
{
    uint32_t left = __atomic_load_n(&state->fail_allocations, __ATOMIC_RELAXED);

    __atomic_add_fetch(&state->processes[slot].allocations, 1, __ATOMIC_RELAXED);
    wait_like_the_driver();
    if (state->devices[device].lost)
        return UNAVAILABLE;
    while (left)
        if (__atomic_compare_exchange_n(&state->fail_allocations, &left, left - 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return OUT_OF_MEMORY;
    return OK;
}

static struct object *context(void) { return state && depth ? stack[depth - 1] : NULL; }

API cuInit(unsigned flags)
{
    static bool prepared;
    LOCKED;

    if (flags)
        return INVALID;
    if (!state && !(state = gpu_state_map(&descriptor)))
        return 100; /* no device */
    register_process();
    if (!prepared)
        pthread_atfork(NULL, NULL, forked);
    prepared = true;
    return slot < 0 ? OUT_OF_MEMORY : OK;
}

API cuDriverGetVersion(int *version) { *version = state ? (int)state->driver_version : 13000; return OK; }
API cuDeviceGetCount(int *count) { if (!state) return NOT_INITIALIZED; *count = (int)state->device_count; return OK; }
static bool bad(int device) { return device < 0 || device >= (int)state->device_count; }
API cuDeviceGet(int *device, int ordinal) { if (!state) return NOT_INITIALIZED; if (bad(ordinal)) return BAD_DEVICE; *device = ordinal; return OK; }

API cuDeviceGetName(char *name, int length, int device)
{
    if (!state) return NOT_INITIALIZED;
    if (bad(device)) return BAD_DEVICE;
    snprintf(name, (size_t)length, "%s", state->devices[device].name);
    return OK;
}

API cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    if (!state) return NOT_INITIALIZED;
    if (bad(device)) return BAD_DEVICE;
    *bytes = state->devices[device].memory_total;
    return OK;
}

API cuDeviceGetUuid(unsigned char *uuid, int device)
{
    const char *text;
    int at = 0;

    if (!state) return NOT_INITIALIZED;
    if (bad(device)) return BAD_DEVICE;
    text = state->devices[device].uuid + 4;
    while (at < 16 && *text) {
        if (*text == '-') { text++; continue; }
        sscanf(text, "%2hhx", &uuid[at++]);
        text += 2;
    }
    return OK;
}
API cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

static struct object *new_context(int device)
{
    struct object *made;
    uint64_t bytes = state->devices[device].context_bytes;

    if (!take(device, bytes))
        return NULL;
    made = make(CONTEXT, device);
    made->bytes = bytes;
    state->processes[slot].use[device].contexts = 1;
    return made;
}

static void end_context(struct object *ended)
{
    for (struct object *object = objects; object < end; object++)
        if ((object->thing == MEMORY || object->thing == ARRAY) && object->owner == ended) {
            give(object->device, object->bytes);
            object->thing = FREE;
        }
    give(ended->device, ended->bytes);
    ended->thing = FREE;
}

API cuCtxCreate_v2(struct object **made, unsigned flags, int device)
{
    LOCKED;
    (void)flags;
    if (!state) return NOT_INITIALIZED;
    if (bad(device)) return BAD_DEVICE;
    if (depth == 32 || !(*made = new_context(device))) return OUT_OF_MEMORY;
    stack[depth++] = *made;
    return OK;
}
API cuCtxDestroy_v2(struct object *ended)
{
    LOCKED;
    if (!known(ended, CONTEXT)) return NO_CONTEXT;
    if (context() == ended) depth--;
    end_context(ended);
    return OK;
}
API cuCtxGetCurrent(struct object **found) { *found = context(); return state ? OK : NOT_INITIALIZED; }
API cuCtxSetCurrent(struct object *wanted) { if (!state) return NOT_INITIALIZED; depth = wanted ? 1 : 0; stack[0] = wanted; return OK; }
API cuCtxPushCurrent_v2(struct object *wanted) { if (depth == 32) return INVALID; stack[depth++] = wanted; return OK; }
API cuCtxPopCurrent_v2(struct object **found) { if (!depth) return NO_CONTEXT; *found = stack[--depth]; return OK; }
API cuCtxGetDevice(int *device) { if (!context()) return state ? NO_CONTEXT : NOT_INITIALIZED; *device = context()->device; return OK; }
API cuDevicePrimaryCtxRetain(struct object **found, int device)
{
    LOCKED;
    if (!state) return NOT_INITIALIZED;
    if (bad(device)) return BAD_DEVICE;
    if (!primary[device] && !(primary[device] = new_context(device))) return OUT_OF_MEMORY;
    primary_retained[device]++;
    *found = primary[device];
    return OK;
}
API cuDevicePrimaryCtxReset_v2(int device)
{
    LOCKED;
    if (!state) return NOT_INITIALIZED;
    if (primary[device]) end_context(primary[device]);
    primary[device] = NULL;
    primary_retained[device] = 0;
    return OK;
}
API cuDevicePrimaryCtxRelease_v2(int device)
{
    if (!state || !primary_retained[device]) return NO_CONTEXT;
    return --primary_retained[device] ? OK : cuDevicePrimaryCtxReset_v2(device);
}
API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    if (!state) return NOT_INITIALIZED;
    *flags = 0;
    *active = primary[device] != NULL;
    return OK;
}

static uint64_t addresses(uint64_t bytes)
{
    uint64_t address = next_address;
    next_address += (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB) + 2 * MIB;
    return address;
}

static int hold(enum thing thing, uint64_t bytes, struct object **made)
{
    struct object *where = context();
    int refused;

    if (!where) return state ? NO_CONTEXT : NOT_INITIALIZED;
    if (!bytes) return INVALID;
    if ((refused = allocation(where->device))) return refused;
    if (!take(where->device, bytes)) return OUT_OF_MEMORY;
    *made = make(thing, where->device);
    (*made)->bytes = bytes;
    (*made)->owner = where;
    (*made)->address = addresses(bytes);
    return OK;
}

API cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    struct object *made;
    LOCKED;
    int result = hold(MEMORY, (bytes + 511) / 512 * 512, &made);
    if (!result) *address = made->address;
    return result;
}
API cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags) { return flags == 1 || flags == 2 ? cuMemAlloc_v2(address, bytes) : INVALID; }
API cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(address, *pitch * height);
}
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags) { (void)flags; *address = malloc(bytes); return *address ? OK : OUT_OF_MEMORY; }
API cuMemFreeHost(void *address) { free(address); return OK; }

static struct object *find_memory(uint64_t address)
{
    struct object *found = at_address(MEMORY, address);
    return found ? found : at_address(POOLED, address);
}

/* A pool gives back whole pieces that nothing uses, but for `keep`. */
static void trim(struct object *pool, uint64_t keep)
{
    uint64_t needed = (pool->used + CHUNK - 1) / CHUNK * CHUNK;

    keep = needed > keep ? needed : (keep + CHUNK - 1) / CHUNK * CHUNK;
    if (pool->bytes > keep) {
        give(pool->device, pool->bytes - keep);
        pool->bytes = keep;
    }
    if (pool->destroyed && !pool->used)
        pool->thing = FREE;
}

static void free_memory(struct object *found)
{
    if (found->thing == POOLED)
        found->owner->used -= found->used;
    else
        give(found->device, found->bytes);
    found->thing = FREE;
}

API cuMemFree_v2(uint64_t address)
{
    LOCKED;
    struct object *found = find_memory(address), *pool;
    if (!found) return INVALID;
    wait_like_the_driver();
    pool = found->thing == POOLED ? found->owner : NULL;
    free_memory(found);
    if (pool) trim(pool, 0);
    return OK;
}

API cuMemGetInfo_v2(size_t *left, size_t *total)
{
    struct gpu_device *device;
    uint64_t all, room;
    if (!context()) return NO_CONTEXT;
    device = &state->devices[context()->device];
    all = device->memory_total;
    room = gpu_group_room(state, context()->device, state->processes[slot].group, &all);
    *total = all;
    *left = device->memory_total - device->memory_reserved - __atomic_load_n(&device->memory_used, __ATOMIC_RELAXED);
    if (room < *left) *left = room;
    return OK;
}

struct array { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
API cuArray3DCreate_v2(struct object **made, const struct array3d *asked)
{
    static const int sizes[] = {[1] = 1, [2] = 2, [3] = 4, [8] = 1, [9] = 2, [10] = 4, [16] = 2, [32] = 4};
    LOCKED;
    return hold(ARRAY, asked->width * (asked->height ? asked->height : 1) * (asked->depth ? asked->depth : 1) * asked->channels * (unsigned)sizes[asked->format & 63], made);
}
API cuArrayCreate_v2(struct object **made, const struct array *asked)
{
    struct array3d all = {asked->width, asked->height, 0, asked->format, asked->channels, 0};
    return cuArray3DCreate_v2(made, &all);
}
API cuMipmappedArrayCreate(struct object **made, const struct array3d *asked, unsigned levels) { (void)levels; return cuArray3DCreate_v2(made, asked); }
API cuArrayDestroy(struct object *array)
{
    LOCKED;
    if (!known(array, ARRAY)) return BAD_HANDLE;
    free_memory(array);
    return OK;
}
API cuMipmappedArrayDestroy(struct object *array) { return cuArrayDestroy(array); }

struct location { int type, id; };
struct pool_props { int type, handles; struct location location; void *security; size_t max_size; unsigned char reserved[56]; };
API cuMemPoolCreate(struct object **made, const struct pool_props *props)
{
    LOCKED;
    if (!state) return NOT_INITIALIZED;
    *made = make(POOL, props->location.type == 1 ? props->location.id : 0);
    return OK;
}
API cuMemPoolDestroy(struct object *pool)
{
    LOCKED;
    if (!known(pool, POOL)) return BAD_HANDLE;
    pool->destroyed = true;
    trim(pool, 0);
    return OK;
}
API cuMemPoolTrimTo(struct object *pool, size_t keep) { LOCKED; if (!known(pool, POOL)) return BAD_HANDLE; trim(pool, keep); return OK; }
API cuDeviceGetDefaultMemPool(struct object **pool, int device)
{
    LOCKED;
    if (!state) return NOT_INITIALIZED;
    if (!default_pool[device]) default_pool[device] = make(POOL, device);
    *pool = default_pool[device];
    return OK;
}
API cuDeviceGetMemPool(struct object **pool, int device)
{
    int result = cuDeviceGetDefaultMemPool(pool, device);
    if (!result && current_pool[device]) *pool = current_pool[device];
    return result;
}
API cuDeviceSetMemPool(int device, struct object *pool) { current_pool[device] = pool; return OK; }
API cuMemPoolGetAttribute(struct object *pool, int attribute, uint64_t *value)
{
    LOCKED;
    if (!known(pool, POOL)) return BAD_HANDLE;
    if (attribute != 5 && attribute != 7) return INVALID;
    *value = attribute == 5 ? pool->bytes : pool->used;
    return OK;
}

struct alloc_node { struct pool_props pool; const void *access; size_t access_count, bytes; uint64_t address; };
API cuGraphCreate(struct object **graph, unsigned flags) { LOCKED; if (flags) return INVALID; *graph = make(GRAPH, 0); return OK; }
API cuGraphDestroy(struct object *graph)
{
    LOCKED;
    for (struct object *object = objects; object < end; object++)
        if (object->owner == graph && object->thing == MEMORY && object->handles) object->thing = FREE;
    graph->thing = FREE;
    return OK;
}
API cuGraphAddMemAllocNode(struct object **node, struct object *graph, const void *before, size_t count, struct alloc_node *params)
{
    LOCKED;
    (void)before, (void)count;
    if (!known(graph, GRAPH)) return BAD_HANDLE;
    *node = make(MEMORY, params->pool.location.id);
    (*node)->owner = graph;
    (*node)->handles = 10; /* the type of the node */
    (*node)->used = params->bytes;
    params->address = (*node)->address = addresses(params->bytes);
    return OK;
}
static bool node_of(const struct object *object, const struct object *graph) { return object->thing == MEMORY && object->handles == 10 && object->owner == graph; }
API cuGraphGetNodes(struct object *graph, struct object **nodes, size_t *count)
{
    size_t found = 0;
    LOCKED;
    for (struct object *object = objects; object < end; object++)
        if (node_of(object, graph)) {
            if (nodes && found < *count) nodes[found] = object;
            found++;
        }
    *count = found;
    return OK;
}
API cuGraphNodeGetType(struct object *node, int *type) { *type = node->handles; return OK; }
API cuGraphMemAllocNodeGetParams(struct object *node, struct alloc_node *params)
{
    memset(params, 0, sizeof *params);
    params->pool.location = (struct location){1, node->device};
    params->bytes = node->used;
    params->address = node->address;
    return OK;
}
API cuGraphInstantiateWithFlags(struct object **exec, struct object *graph, unsigned long long flags)
{
    LOCKED;
    (void)flags;
    if (!known(graph, GRAPH)) return BAD_HANDLE;
    *exec = make(EXEC, graph->device);
    (*exec)->owner = graph;
    return OK;
}
API cuGraphInstantiateWithParams(struct object **exec, struct object *graph, void *params) { (void)params; return cuGraphInstantiateWithFlags(exec, graph, 0); }
API cuGraphLaunch(struct object *exec, struct object *stream)
{
    LOCKED;
    (void)stream;
    if (!known(exec, EXEC)) return BAD_HANDLE;
    __atomic_add_fetch(&state->processes[slot].launches, 1, __ATOMIC_RELAXED);
    for (struct object *object = objects; object < end; object++)
        if (!exec->bytes && node_of(object, exec->owner)) {
            if (!take(object->device, object->used)) return OUT_OF_MEMORY;
            graph_reserved[object->device] += object->used;
        }
    exec->bytes = 1; /* launched */
    return OK;
}
API cuGraphExecDestroy(struct object *exec) { LOCKED; if (!known(exec, EXEC)) return BAD_HANDLE; exec->thing = FREE; return OK; }
API cuDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value) { if (attribute != 2) return INVALID; *value = graph_reserved[device]; return OK; }
API cuDeviceGraphMemTrim(int device)
{
    LOCKED;
    for (struct object *object = objects; object < end; object++)
        if (object->thing == EXEC) return OK; /* all in use */
    give(device, graph_reserved[device]);
    graph_reserved[device] = 0;
    return OK;
}

API cuStreamCreate(struct object **stream, unsigned flags) { LOCKED; (void)flags; *stream = make(STREAM, 0); return OK; }
API cuStreamDestroy_v2(struct object *stream) { LOCKED; if (known(stream, STREAM)) stream->thing = FREE; return OK; }
API cuStreamBeginCapture_v2(struct object *stream, int mode) { (void)mode; if (!known(stream, STREAM)) return INVALID; stream->capturing = true; stream->owner = NULL; return cuGraphCreate(&stream->owner, 0); }
API cuStreamEndCapture(struct object *stream, struct object **graph) { stream->capturing = false; *graph = stream->owner; return OK; }
API cuStreamIsCapturing(struct object *stream, int *status) { *status = known(stream, STREAM) && stream->capturing; return OK; }
API cuStreamSynchronize(struct object *stream)
{
    LOCKED;
    if (stream && stream->capturing) return 900;
    for (struct object *object = objects; object < end; object++)
        if (object->thing == POOL) trim(object, 0);
    return OK;
}
API cuCtxSynchronize(void) { return cuStreamSynchronize(NULL); }

API cuMemAllocFromPoolAsync(uint64_t *address, size_t bytes, struct object *pool, struct object *stream)
{
    struct object *made;
    uint64_t needed;
    int refused;

    if (stream && stream->capturing) {
        struct alloc_node node = {.bytes = bytes, .pool.location = {1, pool->device}};
        int result = cuGraphAddMemAllocNode(&made, stream->owner, NULL, 0, &node);
        *address = node.address;
        return result;
    }
    LOCKED;
    if (!known(pool, POOL) || !bytes) return INVALID;
    if ((refused = allocation(pool->device))) return refused;
    needed = (pool->used + bytes + CHUNK - 1) / CHUNK * CHUNK;
    if (needed > pool->bytes) {
        if (!take(pool->device, needed - pool->bytes)) return OUT_OF_MEMORY;
        pool->bytes = needed;
    }
    made = make(POOLED, pool->device);
    made->owner = pool;
    made->used = bytes;
    pool->used += bytes;
    *address = made->address = addresses(bytes);
    return OK;
}
API cuMemAllocAsync(uint64_t *address, size_t bytes, struct object *stream)
{
    struct object *pool;
    if (!context()) return NO_CONTEXT;
    return cuDeviceGetMemPool(&pool, context()->device) ? INVALID : cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}
API cuMemFreeAsync(uint64_t address, struct object *stream)
{
    LOCKED;
    struct object *found = find_memory(address);
    (void)stream;
    if (!found) return INVALID;
    wait_like_the_driver();
    free_memory(found);
    return OK;
}
API cuMemAllocAsync_ptsz(uint64_t *address, size_t bytes, struct object *stream) { return cuMemAllocAsync(address, bytes, stream); }
API cuMemFreeAsync_ptsz(uint64_t address, struct object *stream) { return cuMemFreeAsync(address, stream); }

struct allocation_prop { int type, handles; struct location location; void *security; unsigned char flags[8]; };
static void free_physical(struct object *block) { if (!block->handles && !block->mappings) { give(block->device, block->bytes); block->thing = FREE; } }
API cuMemCreate(struct object **handle, size_t bytes, const struct allocation_prop *prop, unsigned long long flags)
{
    int refused;
    LOCKED;
    (void)flags;
    if (!state) return NOT_INITIALIZED;
    if (bad(prop->location.id)) return BAD_DEVICE;
    if (bytes % (2 * MIB)) return INVALID;
    if ((refused = allocation(prop->location.id))) return refused;
    if (!take(prop->location.id, bytes)) return OUT_OF_MEMORY;
    *handle = make(PHYSICAL, prop->location.id);
    (*handle)->bytes = bytes;
    (*handle)->handles = 1;
    return OK;
}
API cuMemRelease(struct object *handle)
{
    LOCKED;
    if (!known(handle, PHYSICAL) || !handle->handles) return BAD_HANDLE;
    handle->handles--;
    free_physical(handle);
    return OK;
}
API cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted, unsigned long long flags)
{
    LOCKED;
    (void)alignment, (void)wanted, (void)flags;
    *address = addresses(bytes);
    return OK;
}
API cuMemAddressFree(uint64_t address, size_t bytes) { (void)address, (void)bytes; return OK; }
API cuMemMap(uint64_t address, size_t bytes, size_t offset, struct object *handle, unsigned long long flags)
{
    struct object *mapping;
    LOCKED;
    (void)offset, (void)flags;
    if (!known(handle, PHYSICAL)) return BAD_HANDLE;
    mapping = make(STREAM, handle->device); /* a mapping holds no memory itself */
    mapping->owner = handle;
    mapping->address = address;
    mapping->mapped = bytes;
    handle->mappings++;
    return OK;
}
API cuMemUnmap(uint64_t address, size_t bytes)
{
    LOCKED;
    for (struct object *object = objects; object < end; object++)
        if (object->thing == STREAM && object->mapped && object->address >= address && object->address < address + bytes) {
            object->owner->mappings--;
            free_physical(object->owner);
            *object = (struct object){0};
        }
    return OK;
}
API cuMemSetAccess(uint64_t address, size_t bytes, const void *access, size_t count) { (void)address, (void)bytes, (void)access, (void)count; return OK; }
API cuMemRetainAllocationHandle(struct object **handle, void *address)
{
    LOCKED;
    for (struct object *object = objects; object < end; object++)
        if (object->thing == STREAM && object->mapped && (uint64_t)address - object->address < object->mapped) {
            *handle = object->owner;
            object->owner->handles++;
            return OK;
        }
    return INVALID;
}
API cuMemExportToShareableHandle(void *shared, struct object *handle, int type, unsigned long long flags) { (void)type, (void)flags; *(struct object **)shared = handle; return OK; }
API cuMemImportFromShareableHandle(struct object **handle, void *shared, int type)
{
    LOCKED;
    (void)type;
    *handle = shared;
    if (!known(*handle, PHYSICAL)) return BAD_HANDLE;
    (*handle)->handles++;
    return OK;
}

struct ipc { uint64_t address, bytes; char rest[48]; };
API cuIpcGetMemHandle(struct ipc *handle, uint64_t address)
{
    LOCKED;
    struct object *found = at_address(MEMORY, address);
    if (!found) return INVALID;
    *handle = (struct ipc){.address = address, .bytes = found->bytes};
    return OK;
}
API cuIpcOpenMemHandle_v2(uint64_t *address, struct ipc handle, unsigned flags) { (void)flags; *address = handle.address; return context() ? OK : NO_CONTEXT; }
API cuIpcCloseMemHandle(uint64_t address) { (void)address; return OK; }

API cuModuleLoadData(void **module, const void *image) { (void)image; *module = (void *)1; return OK; }
API cuModuleGetFunction(void **function, void *module, const char *name) { (void)module, (void)name; *function = (void *)1; return OK; }
API cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)params, (void)extra;
    if (!context()) return NO_CONTEXT;
    __atomic_add_fetch(&state->processes[slot].launches, 1, __ATOMIC_RELAXED);
    return OK;
}

/* What this library exports; dlsym itself may be a limiter's, which would answer with its own. */
static void *exported(const char *name)
{
    static void *(*lookup)(void *, const char *);

    if (!lookup)
        lookup = (void *(*)(void *, const char *))dlvsym(dlopen("libc.so.6", RTLD_LAZY), "dlsym", "GLIBC_2.34");
    if (!lookup)
        lookup = (void *(*)(void *, const char *))dlvsym(dlopen("libdl.so.2", RTLD_LAZY), "dlsym", "GLIBC_2.2.5");
    return lookup(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
}

/* As of the real driver: the newest variant that a version of CUDA knows, per-thread streams by flag. */
static void *newest(const char *name, int version, uint64_t flags)
{
    static const char *const endings[] = {"_v2", "", NULL};
    char full[128];
    void *found = NULL;

    if (!strcmp(name, "cuGetProcAddress") && version < 12000)
        return exported(name);
    for (int at = 0; !found && endings[at]; at++) {
        if (flags & 2) {
            snprintf(full, sizeof full, "%s%s_ptsz", name, endings[at]);
            found = exported(full);
        }
        if (!found) {
            snprintf(full, sizeof full, "%s%s", name, endings[at]);
            found = exported(full);
        }
    }
    return found;
}
API cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    *found = newest(name, version, flags);
    if (status) *status = *found ? 0 : 1;
    return *found ? OK : NOT_FOUND;
}
API cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) { return cuGetProcAddress_v2(name, found, version, flags, NULL); }
