/* The virtual memory API: physical memory is a block, which handles and mappings keep. The driver frees
 * it when the last of them is gone, and so is what is charged for it. Imported handles belong to whoever
 * exported them and are charged there.
 */
#include "driver.h"
#include "table.h"
#include "usage.h"

static uint64_t last_block; /* under the lock of the table */

static void drop_reference(uint64_t block)
{
    struct entry *found = table_find(BLOCK, block), removed;

    if (found && --found->references == 0) {
        table_remove(BLOCK, block, &removed);
        usage_subtract(removed.gpu, removed.size);
    }
}

/* One more handle of a block, or one more reference of a handle. */
static void add_handle(uint64_t handle, uint64_t block)
{
    struct entry *found = table_find(HANDLE, handle), *owner = table_find(BLOCK, block);

    if (!owner)
        return;
    owner->references++;
    if (found)
        found->references++;
    else
        table_add((struct entry){.key = handle, .owner = block, .kind = HANDLE, .references = 1});
}

EXPORTED CUresult cuMemCreate(CUhandle *handle, size_t bytes, const CUallocationProp *prop, unsigned long long flags)
{
    cuMemCreate_function *real = REAL(cuMemCreate);
    int gpu = prop && prop->location.type == LOCATION_DEVICE ? gpu_of_device(prop->location.id) : UNLIMITED;
    CUresult result;

    if (!real)
        return CUDA_NOT_FOUND;
    if (!reserve_or_trim(gpu, bytes))
        return CUDA_OUT_OF_MEMORY;
    table_lock();
    result = real(handle, bytes, prop, flags);
    if (result != CUDA_SUCCESS) {
        usage_subtract(gpu, bytes);
    } else if (gpu != UNLIMITED) {
        table_add((struct entry){.key = ++last_block, .size = bytes, .gpu = gpu, .kind = BLOCK});
        add_handle(*handle, last_block);
    }
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemRelease(CUhandle handle)
{
    struct entry *found, removed;
    CUresult result;

    if (!REAL(cuMemRelease))
        return CUDA_NOT_FOUND;
    table_lock(); /* as in cuMemFree */
    result = REAL(cuMemRelease)(handle);
    found = result == CUDA_SUCCESS ? table_find(HANDLE, handle) : NULL;
    if (found) {
        uint64_t block = found->owner;
        if (--found->references == 0)
            table_remove(HANDLE, handle, &removed);
        drop_reference(block);
    }
    table_unlock();
    return result;
}

static struct entry *mapping_around(uint64_t address)
{
    struct entry *found = table_find(MAPPING, address);
    uint64_t at = 0;

    while (!found && (found = table_next(&at)))
        if (found->kind != MAPPING || address < found->key || address - found->key >= found->size)
            found = NULL;
        else
            break;
    return found;
}

EXPORTED CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address)
{
    struct entry *mapping;
    CUresult result;

    if (!REAL(cuMemRetainAllocationHandle))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemRetainAllocationHandle)(handle, address);
    mapping = result == CUDA_SUCCESS ? mapping_around((uint64_t)address) : NULL;
    if (mapping)
        add_handle(*handle, mapping->owner);
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *shared, int type)
{
    struct entry *known;
    CUresult result;

    if (!REAL(cuMemImportFromShareableHandle))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    known = result == CUDA_SUCCESS ? table_find(HANDLE, *handle) : NULL;
    if (known) /* its own, which a driver may answer with the same handle */
        add_handle(*handle, known->owner);
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags)
{
    struct entry *found, *block;
    CUresult result;

    if (!REAL(cuMemMap))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    found = result == CUDA_SUCCESS ? table_find(HANDLE, handle) : NULL;
    block = found ? table_find(BLOCK, found->owner) : NULL;
    if (block) {
        uint64_t key = block->key;
        block->references++;
        table_add((struct entry){.key = address, .size = bytes, .owner = key, .kind = MAPPING});
    }
    table_unlock();
    return result;
}

EXPORTED CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct entry removed;
    CUresult result;
    uint64_t done = 0;

    if (!REAL(cuMemUnmap))
        return CUDA_NOT_FOUND;
    table_lock();
    result = REAL(cuMemUnmap)(address, bytes);
    while (result == CUDA_SUCCESS && done < bytes && table_remove(MAPPING, address + done, &removed)) {
        drop_reference(removed.owner);
        done += removed.size; /* a range may hold several mappings, one after the other */
    }
    table_unlock();
    return result;
}
