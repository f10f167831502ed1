/* What programs are told of the memory of a GPU with a limit: its size is the limit, and in use is what
 * the task holds. Other GPUs are shown as they are.
 */
#include "driver.h"
#include "usage.h"

EXPORTED CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    CUresult result = REAL(cuMemGetInfo_v2) ? REAL(cuMemGetInfo_v2)(left, total) : CUDA_NOT_FOUND;
    int gpu = result == CUDA_SUCCESS ? gpu_of_device(-1) : UNLIMITED;
    uint64_t limit, used;

    if (gpu == UNLIMITED)
        return result;
    settle_pools(gpu);
    usage_read(gpu, &limit, &used);
    if (left && limit - used < *left)
        *left = limit - used;
    if (total && limit < *total)
        *total = limit;
    return result;
}

EXPORTED CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = REAL(cuDeviceTotalMem_v2) ? REAL(cuDeviceTotalMem_v2)(bytes, device) : CUDA_NOT_FOUND;
    int gpu = result == CUDA_SUCCESS ? gpu_of_device(device) : UNLIMITED;
    uint64_t limit, used;

    if (gpu == UNLIMITED)
        return result;
    usage_read(gpu, &limit, &used);
    if (limit < *bytes)
        *bytes = limit;
    return result;
}

static int gpu_of_nvml(nvmlDevice device)
{
    char uuid[96];

    if (!REAL(nvmlDeviceGetUUID) || REAL(nvmlDeviceGetUUID)(device, uuid, sizeof uuid) != 0)
        return UNLIMITED;
    return usage_find(uuid);
}

EXPORTED nvmlReturn nvmlDeviceGetMemoryInfo(nvmlDevice device, nvmlMemory *memory)
{
    nvmlReturn result =
        REAL(nvmlDeviceGetMemoryInfo) ? REAL(nvmlDeviceGetMemoryInfo)(device, memory) : NVML_FUNCTION_NOT_FOUND;
    int gpu = result == 0 ? gpu_of_nvml(device) : UNLIMITED;
    uint64_t limit, used;

    if (gpu == UNLIMITED)
        return result;
    usage_read(gpu, &limit, &used);
    *memory = (nvmlMemory){.total = limit, .free = limit - used, .used = used};
    return result;
}

EXPORTED nvmlReturn nvmlDeviceGetMemoryInfo_v2(nvmlDevice device, nvmlMemory_v2 *memory)
{
    nvmlReturn result =
        REAL(nvmlDeviceGetMemoryInfo_v2) ? REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory) : NVML_FUNCTION_NOT_FOUND;
    int gpu = result == 0 ? gpu_of_nvml(device) : UNLIMITED;
    uint64_t limit, used;

    if (gpu == UNLIMITED)
        return result;
    usage_read(gpu, &limit, &used);
    memory->total = limit;
    memory->reserved = 0;
    memory->free = limit - used;
    memory->used = used;
    return result;
}
