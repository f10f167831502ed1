/* Allocations that hold memory until they are freed: linear, pitched and managed memory, arrays, and the
 * physical memory of the virtual memory API. Each reserves its bytes, calls the driver, and gives the
 * reservation back when the driver fails. An address that is not known is left to the driver.
 */
#include <string.h>

#include "driver.h"
#include "table.h"
#include "usage.h"

#define GRAIN 512 /* the driver hands out memory in pieces of this size */

static uint64_t rounded(uint64_t bytes)
{
    return bytes > UINT64_MAX - GRAIN ? bytes : (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static uint64_t current_context(void)
{
    CUcontext context = NULL;

    if (REAL(cuCtxGetCurrent))
        REAL(cuCtxGetCurrent)(&context);
    return (uint64_t)context;
}

/* Record what was allocated, or give it back when it was not. */
static CUresult settle(CUresult result, enum kind kind, uint64_t key, uint64_t bytes, int gpu)
{
    if (gpu == UNLIMITED)
        return result;
    if (result != CUDA_SUCCESS) {
        usage_subtract(gpu, bytes);
        return result;
    }
    table_lock();
    table_add((struct entry){.key = key, .size = bytes, .owner = current_context(), .gpu = gpu, .kind = kind});
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    cuMemAlloc_v2_function *real = REAL(cuMemAlloc_v2);
    int gpu = gpu_of_device(-1);

    if (!real)
        return CUDA_NOT_FOUND;
    if (!reserve_or_trim(gpu, rounded(bytes)))
        return CUDA_OUT_OF_MEMORY;
    CUresult result = real(address, bytes);
    return settle(result, ADDRESS, result ? 0 : *address, rounded(bytes), gpu);
}

EXPORTED CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    cuMemAllocManaged_function *real = REAL(cuMemAllocManaged);
    int gpu = gpu_of_device(-1);

    if (!real)
        return CUDA_NOT_FOUND;
    if (!reserve_or_trim(gpu, rounded(bytes)))
        return CUDA_OUT_OF_MEMORY;
    CUresult result = real(address, bytes, flags);
    return settle(result, ADDRESS, result ? 0 : *address, rounded(bytes), gpu);
}

EXPORTED CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    cuMemAllocPitch_v2_function *real = REAL(cuMemAllocPitch_v2);
    int gpu = gpu_of_device(-1);
    uint64_t asked, taken;

    if (!real)
        return CUDA_NOT_FOUND;
    if (__builtin_mul_overflow(rounded(width), (uint64_t)height, &asked) || !reserve_or_trim(gpu, asked))
        return CUDA_OUT_OF_MEMORY;
    CUresult result = real(address, pitch, width, height, element);
    taken = result ? asked : *pitch * height;
    if (taken > asked)
        usage_add(gpu, taken - asked);
    else
        usage_subtract(gpu, asked - taken);
    return settle(result, ADDRESS, result ? 0 : *address, taken, gpu);
}

static void credit(enum kind kind, uint64_t key)
{
    struct entry removed;

    table_lock();
    if (table_remove(kind, key, &removed))
        usage_subtract(removed.gpu, removed.size);
    table_unlock();
}

EXPORTED CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct entry removed;
    CUresult result;

    if (!REAL(cuMemFree_v2))
        return CUDA_NOT_FOUND;
    /* Under the lock: as soon as it is free, another thread may get the same address. */
    table_lock();
    result = REAL(cuMemFree_v2)(address);
    if (result == CUDA_SUCCESS) {
        if (table_remove(ADDRESS, address, &removed))
            usage_subtract(removed.gpu, removed.size);
        else if (table_remove(POOLED, address, &removed))
            pool_freed(removed.owner, removed.size);
    }
    table_unlock();
    return result;
}

/* Bytes of one element of an array, upwards; formats of later drivers count as the largest. */
static uint64_t element_bytes(int format, unsigned channels)
{
    switch (format) {
    case 0x01: case 0x08: return channels;                        /* 8 bits */
    case 0x02: case 0x09: case 0x10: return 2ULL * channels;      /* 16 bits and half */
    case 0x03: case 0x0a: case 0x20: return 4ULL * channels;      /* 32 bits and float */
    case 0xb0: return 2;                                          /* NV12 */
    default: break;
    }
    if (format >= 0x91 && format <= 0x9e)
        return 1; /* block compression */
    if (format >= 0xc0 && format <= 0xcb) {
        static const unsigned char sizes[] = {1, 2, 4, 2, 4, 8};
        return sizes[(format - 0xc0) % 6];
    }
    return 16;
}

static uint64_t array_bytes(const CUarray3dDescriptor *asked, unsigned levels)
{
    enum { DEFERRED_OR_SPARSE = 0x40 | 0x80, LAYERED_OR_CUBE = 0x01 | 0x04 };
    uint64_t width = asked->width, height = asked->height ? asked->height : 1, depth = asked->depth ? asked->depth : 1;
    uint64_t sum = 0;

    if (asked->flags & DEFERRED_OR_SPARSE)
        return 0; /* memory is mapped to it later */
    for (unsigned level = 0; level < levels; level++) {
        uint64_t bytes;
        if (__builtin_mul_overflow(width, height, &bytes) || __builtin_mul_overflow(bytes, depth, &bytes) ||
            __builtin_mul_overflow(bytes, element_bytes(asked->format, asked->channels), &bytes) ||
            __builtin_add_overflow(sum, rounded(bytes), &sum))
            return UINT64_MAX;
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : 1;
        if (!(asked->flags & LAYERED_OR_CUBE))
            depth = depth > 1 ? depth / 2 : 1;
    }
    return sum;
}

EXPORTED CUresult cuArrayCreate_v2(CUarray *array, const CUarrayDescriptor *asked)
{
    cuArrayCreate_v2_function *real = REAL(cuArrayCreate_v2);
    int gpu = gpu_of_device(-1);
    uint64_t bytes = 0;

    if (!real)
        return CUDA_NOT_FOUND;
    if (asked)
        bytes = array_bytes(&(CUarray3dDescriptor){asked->width, asked->height, 0, asked->format, asked->channels, 0}, 1);
    if (!reserve_or_trim(gpu, bytes))
        return CUDA_OUT_OF_MEMORY;
    CUresult result = real(array, asked);
    return settle(result, ARRAY, result ? 0 : (uint64_t)*array, bytes, gpu);
}

EXPORTED CUresult cuArray3DCreate_v2(CUarray *array, const CUarray3dDescriptor *asked)
{
    cuArray3DCreate_v2_function *real = REAL(cuArray3DCreate_v2);
    int gpu = gpu_of_device(-1);
    uint64_t bytes = asked ? array_bytes(asked, 1) : 0;

    if (!real)
        return CUDA_NOT_FOUND;
    if (!reserve_or_trim(gpu, bytes))
        return CUDA_OUT_OF_MEMORY;
    CUresult result = real(array, asked);
    return settle(result, ARRAY, result ? 0 : (uint64_t)*array, bytes, gpu);
}

EXPORTED CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUarray3dDescriptor *asked, unsigned levels)
{
    cuMipmappedArrayCreate_function *real = REAL(cuMipmappedArrayCreate);
    int gpu = gpu_of_device(-1);
    uint64_t bytes = asked ? array_bytes(asked, levels < 64 ? levels : 64) : 0;

    if (!real)
        return CUDA_NOT_FOUND;
    if (!reserve_or_trim(gpu, bytes))
        return CUDA_OUT_OF_MEMORY;
    CUresult result = real(array, asked, levels);
    return settle(result, ARRAY, result ? 0 : (uint64_t)*array, bytes, gpu);
}

EXPORTED CUresult cuArrayDestroy(CUarray array)
{
    CUresult result = REAL(cuArrayDestroy) ? REAL(cuArrayDestroy)(array) : CUDA_NOT_FOUND;

    if (result == CUDA_SUCCESS)
        credit(ARRAY, (uint64_t)array);
    return result;
}

EXPORTED CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    CUresult result = REAL(cuMipmappedArrayDestroy) ? REAL(cuMipmappedArrayDestroy)(array) : CUDA_NOT_FOUND;

    if (result == CUDA_SUCCESS)
        credit(ARRAY, (uint64_t)array);
    return result;
}

/* With a context everything goes that was allocated in it, but for the virtual memory API and pools. */
static void context_ended(uint64_t context)
{
    struct entry *entry, removed;
    uint64_t at = 0;

    table_lock();
    while ((entry = table_next(&at)))
        if ((entry->kind == ADDRESS || entry->kind == ARRAY || entry->kind == CONTEXT) && entry->owner == context) {
            table_remove(entry->kind, entry->key, &removed);
            usage_subtract(removed.gpu, removed.size);
            at = 0;
        }
    table_unlock();
}

EXPORTED CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult result = REAL(cuCtxDestroy_v2) ? REAL(cuCtxDestroy_v2)(context) : CUDA_NOT_FOUND;

    if (result == CUDA_SUCCESS)
        context_ended((uint64_t)context);
    return result;
}

/* End or release the primary context of a device; what was in it goes when it is not active any more. */
static CUresult primary_ended(cuDevicePrimaryCtxReset_v2_function *real, CUdevice device)
{
    cuDevicePrimaryCtxRetain_function *retain = REAL(cuDevicePrimaryCtxRetain);
    cuDevicePrimaryCtxGetState_function *get_state = REAL(cuDevicePrimaryCtxGetState);
    CUcontext context = NULL;
    unsigned flags;
    int active = 0;

    if (!real)
        return CUDA_NOT_FOUND;
    if (get_state && retain && get_state(device, &flags, &active) == CUDA_SUCCESS && active &&
        retain(&context, device) == CUDA_SUCCESS) /* only to learn which one it is */
        REAL(cuDevicePrimaryCtxRelease_v2)(device);
    CUresult result = real(device);
    if (result == CUDA_SUCCESS && context && get_state(device, &flags, &active) == CUDA_SUCCESS && !active)
        context_ended((uint64_t)context);
    return result;
}

EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return primary_ended(REAL(cuDevicePrimaryCtxRelease_v2), device);
}

EXPORTED CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return primary_ended(REAL(cuDevicePrimaryCtxReset_v2), device);
}
