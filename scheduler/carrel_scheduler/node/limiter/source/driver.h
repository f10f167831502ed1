/* The part of the driver's interfaces that the limiter knows, and how it finds the real functions.
 *
 * INTERCEPTED functions are defined by the limiter under the driver's names. KNOWN ones are only called.
 * Nothing else of the driver is touched: no launches, copies, streams, peers or attributes of pointers.
 * REAL(name) is the driver's own function, or NULL when this driver has none.
 */
#ifndef CARREL_GPU_LIMIT_DRIVER_H
#define CARREL_GPU_LIMIT_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t CUhandle; /* of the virtual memory API */
typedef void *CUcontext, *CUstream, *CUarray, *CUmipmappedArray, *CUpool, *CUgraph, *CUgraphNode, *CUgraphExec;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { int type, id; } CUlocation;
typedef struct { int allocation_type, handle_types; CUlocation location; void *security; unsigned char flags[8]; } CUallocationProp;
typedef struct { int allocation_type, handle_types; CUlocation location; void *security; size_t max_size; unsigned char reserved[56]; } CUpoolProps;
typedef struct { size_t width, height; int format; unsigned channels; } CUarrayDescriptor;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUarray3dDescriptor;
typedef struct { CUpoolProps pool; const void *access; size_t access_count; size_t bytes; CUdeviceptr address; } CUallocNodeParams;
typedef int nvmlReturn;
typedef void *nvmlDevice;
typedef struct { unsigned long long total, free, used; } nvmlMemory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } nvmlProcess;

enum { CUDA_SUCCESS = 0, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_FOUND = 500, NVML_FUNCTION_NOT_FOUND = 13 };
enum { LOCATION_DEVICE = 1, NODE_MEM_ALLOC = 10, POOL_RESERVED = 5, GRAPH_RESERVED = 2 };

#define INTERCEPTED(F) \
    F(cuGetProcAddress, (const char *name, void **found, int version, uint64_t flags)) \
    F(cuGetProcAddress_v2, (const char *name, void **found, int version, uint64_t flags, int *status)) \
    F(cuGetProcAddress_v2_ptsz, (const char *name, void **found, int version, uint64_t flags, int *status)) \
    F(cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes)) \
    F(cuMemAllocPitch_v2, (CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)) \
    F(cuMemAllocManaged, (CUdeviceptr *address, size_t bytes, unsigned flags)) \
    F(cuMemFree_v2, (CUdeviceptr address)) \
    F(cuArrayCreate_v2, (CUarray *array, const CUarrayDescriptor *asked)) \
    F(cuArray3DCreate_v2, (CUarray *array, const CUarray3dDescriptor *asked)) \
    F(cuArrayDestroy, (CUarray array)) \
    F(cuMipmappedArrayCreate, (CUmipmappedArray *array, const CUarray3dDescriptor *asked, unsigned levels)) \
    F(cuMipmappedArrayDestroy, (CUmipmappedArray array)) \
    F(cuMemAllocAsync, (CUdeviceptr *address, size_t bytes, CUstream stream)) \
    F(cuMemAllocAsync_ptsz, (CUdeviceptr *address, size_t bytes, CUstream stream)) \
    F(cuMemAllocFromPoolAsync, (CUdeviceptr *address, size_t bytes, CUpool pool, CUstream stream)) \
    F(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *address, size_t bytes, CUpool pool, CUstream stream)) \
    F(cuMemFreeAsync, (CUdeviceptr address, CUstream stream)) \
    F(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream)) \
    F(cuMemPoolCreate, (CUpool *pool, const CUpoolProps *props)) \
    F(cuMemPoolDestroy, (CUpool pool)) \
    F(cuMemPoolTrimTo, (CUpool pool, size_t keep)) \
    F(cuMemCreate, (CUhandle *handle, size_t bytes, const CUallocationProp *prop, unsigned long long flags)) \
    F(cuMemRelease, (CUhandle handle)) \
    F(cuMemRetainAllocationHandle, (CUhandle *handle, void *address)) \
    F(cuMemImportFromShareableHandle, (CUhandle *handle, void *shared, int type)) \
    F(cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags)) \
    F(cuMemUnmap, (CUdeviceptr address, size_t bytes)) \
    F(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)) \
    F(cuGraphInstantiate_v2, (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)) \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
    F(cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph, void *params)) \
    F(cuGraphInstantiateWithParams_ptsz, (CUgraphExec *exec, CUgraph graph, void *params)) \
    F(cuGraphExecDestroy, (CUgraphExec exec)) \
    F(cuDeviceGraphMemTrim, (CUdevice device)) \
    F(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device)) \
    F(cuCtxCreate_v3, (CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device)) \
    F(cuCtxCreate_v4, (CUcontext *context, void *params, unsigned flags, CUdevice device)) \
    F(cuCtxDestroy_v2, (CUcontext context)) \
    F(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    F(cuDevicePrimaryCtxReset_v2, (CUdevice device)) \
    F(cuMemGetInfo_v2, (size_t *left, size_t *total)) \
    F(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))

#define INTERCEPTED_NVML(F) \
    F(nvmlDeviceGetMemoryInfo, (nvmlDevice device, nvmlMemory *memory)) \
    F(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice device, nvmlMemory_v2 *memory))

#define KNOWN(F) \
    F(cuCtxGetCurrent, (CUcontext *context)) \
    F(cuCtxGetDevice, (CUdevice *device)) \
    F(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
    F(cuDeviceGetMemPool, (CUpool *pool, CUdevice device)) \
    F(cuDeviceGetGraphMemAttribute, (CUdevice device, int attribute, void *value)) \
    F(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active)) \
    F(cuMemPoolGetAttribute, (CUpool pool, int attribute, void *value)) \
    F(cuStreamIsCapturing, (CUstream stream, int *status)) \
    F(cuStreamSynchronize, (CUstream stream)) \
    F(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
    F(cuGraphNodeGetType, (CUgraphNode node, int *type)) \
    F(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUallocNodeParams *params))

#define KNOWN_NVML(F) \
    F(nvmlDeviceGetUUID, (nvmlDevice device, char *uuid, unsigned length)) \
    F(nvmlInit_v2, (void)) \
    F(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice *device)) \
    F(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice device, unsigned *count, nvmlProcess *processes))

#define DECLARE_INTERCEPTED(name, arguments) EXPORTED CUresult name arguments;
#define DECLARE_TYPE(name, arguments) typedef CUresult name##_function arguments;
#define NUMBER(name, arguments) NUMBER_##name,

INTERCEPTED(DECLARE_INTERCEPTED)
INTERCEPTED_NVML(DECLARE_INTERCEPTED)
INTERCEPTED(DECLARE_TYPE)
INTERCEPTED_NVML(DECLARE_TYPE)
KNOWN(DECLARE_TYPE)
KNOWN_NVML(DECLARE_TYPE)
enum { INTERCEPTED(NUMBER) INTERCEPTED_NVML(NUMBER) INTERCEPTED_COUNT, FIRST_KNOWN = INTERCEPTED_COUNT - 1, KNOWN(NUMBER) KNOWN_NVML(NUMBER) SYMBOLS };

#define REAL(name) ((name##_function *)real_function(NUMBER_##name))

void *real_function(int number);

/* The line of limits of a device, or UNLIMITED: by its ordinal, or by that of the current context (-1 as
 * device). */
int gpu_of_device(CUdevice device);

/* pools.c. Reserve memory of a GPU; when it does not fit, give back first what pools hold unused. */
bool reserve_or_trim(int gpu, uint64_t bytes);

/* Charge what pools and graphs of a GPU really hold now. */
void settle_pools(int gpu);

/* An address that came from a pool was freed. Call with the lock of the table. */
void pool_freed(uint64_t pool, uint64_t bytes);

/* The memory of graphs of a device. Call with the lock of the table. */
bool graph_memory_taken(CUdevice device, uint64_t bytes);
void graph_memory_freed(CUdevice device, uint64_t bytes);

#endif
