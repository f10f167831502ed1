/* libnvidia-ml.so.1 for machines without a GPU: what the real `pynvml` calls, answered from state.h.
 *
 * Calls that change something exist for MIG and for limits of memory only. A handle points at a device or at one of its MIG instances. A device that is
 * lost fails every call with GPU_IS_LOST, as the real driver does; its handle can still be had. Layouts
 * of structures and numbers are those of nvml.h.
 */
#include "limits.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23
};
#define EVENT_XID 0x8ULL
#define HANDLES (GPU_DEVICES * (GPU_MIGS + 1))
#define SETS 16

struct handle { int device; int mig; };
struct event_set { int used; uint64_t types[GPU_DEVICES]; uint64_t seen[GPU_DEVICES]; };

static struct gpu_state *state;
static int descriptor = -1;
static struct handle handles[HANDLES];
static struct event_set sets[SETS];

struct pci { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned int version; unsigned long long total, reserved, free, used; };
struct rates { unsigned int gpu, memory; };
struct process { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; };
struct sample { unsigned int pid; unsigned long long at; unsigned int sm, memory, encoder, decoder; };
struct event { struct handle *device; unsigned long long type, data; unsigned int gpu, compute; };
struct attributes { unsigned int sms, copy, decode, encode, jpeg, ofa, gpu_slices, compute_slices;
                    unsigned long long memory_mb; };

static int device_of(const struct handle *handle, struct gpu_device **device)
{
    if (!state)
        return UNINITIALIZED;
    if (handle < handles || handle >= handles + HANDLES || handle->device >= (int)state->device_count)
        return INVALID_ARGUMENT;
    *device = &state->devices[handle->device];
    return (*device)->lost ? GPU_IS_LOST : SUCCESS;
}

#define DEVICE(handle) \
    struct gpu_device *device; \
    int found = device_of(handle, &device); \
    if (found) return found

/* A divided device tells nobody but privileged accounts of all of it. */
#define WHOLE(handle) \
    DEVICE(handle); \
    if (state->unprivileged && device->mig_mode && handle->mig < 0) return NO_PERMISSION

static int text(char *target, unsigned int length, const char *source)
{
    if (strlen(source) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(target, source);
    return SUCCESS;
}

EXPORT int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    if (!state)
        state = gpu_state_map(&descriptor);
    for (int i = 0; i < HANDLES; i++)
        handles[i] = (struct handle){i % GPU_DEVICES, i / GPU_DEVICES - 1};
    return state ? SUCCESS : DRIVER_NOT_LOADED;
}
EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlShutdown(void)
{
    int before = state ? SUCCESS : UNINITIALIZED;
    state = NULL; /* stays mapped: the next session may be about another file */
    memset(sets, 0, sizeof sets);
    return before;
}

EXPORT const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    default: return "Unknown Error";
    }
}

EXPORT int nvmlSystemGetDriverVersion(char *target, unsigned int length)
{
    return state ? text(target, length, state->driver) : UNINITIALIZED;
}
EXPORT int nvmlSystemGetNVMLVersion(char *target, unsigned int length)
{
    char version[48];
    if (!state)
        return UNINITIALIZED;
    snprintf(version, sizeof version, "13.%s", state->driver);
    return text(target, length, version);
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = state ? (int)state->driver_version : 0;
    return state ? SUCCESS : UNINITIALIZED;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = state ? state->device_count : 0;
    return state ? SUCCESS : UNINITIALIZED;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct handle **handle)
{
    if (!state)
        return UNINITIALIZED;
    if (index >= state->device_count)
        return INVALID_ARGUMENT;
    *handle = &handles[index];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **handle)
{
    for (unsigned int i = 0; state && i < HANDLES; i++) {
        const struct gpu_device *device = &state->devices[handles[i].device];
        const char *own = handles[i].mig < 0 ? device->uuid : device->migs[handles[i].mig].uuid;
        if (handles[i].device < (int)state->device_count && *own && !strcmp(own, uuid)) {
            *handle = &handles[i];
            return SUCCESS;
        }
    }
    return state ? NOT_FOUND : UNINITIALIZED;
}
EXPORT int nvmlDeviceGetIndex(const struct handle *handle, unsigned int *index)
{
    DEVICE(handle);
    *index = handle->mig < 0 ? handle->device : handle->mig;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetUUID(const struct handle *handle, char *target, unsigned int length)
{
    DEVICE(handle);
    return text(target, length, handle->mig < 0 ? device->uuid : device->migs[handle->mig].uuid);
}
EXPORT int nvmlDeviceGetName(const struct handle *handle, char *target, unsigned int length)
{
    char name[128];
    DEVICE(handle);
    if (handle->mig < 0)
        return text(target, length, device->name);
    snprintf(name, sizeof name, "%s MIG %s", device->name, device->migs[handle->mig].name);
    return text(target, length, name);
}

static void fill_pci(struct pci *pci, const char *bus_id)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", bus_id);
    sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->legacy, sizeof pci->legacy, "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
}
EXPORT int nvmlDeviceGetPciInfo_v3(const struct handle *handle, struct pci *pci)
{
    DEVICE(handle);
    fill_pci(pci, device->bus_id);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetNumaNodeId(const struct handle *handle, unsigned int *node)
{
    DEVICE(handle);
    if (device->numa_node < 0)
        return NOT_SUPPORTED;
    *node = (unsigned int)device->numa_node;
    return SUCCESS;
}

static void amounts(const struct gpu_device *device, int mig, struct memory *into)
{
    into->total = mig < 0 ? device->memory_total : device->migs[mig].memory_total;
    into->used = mig < 0 ? __atomic_load_n(&device->memory_used, __ATOMIC_RELAXED) : device->migs[mig].memory_used;
    into->free = into->total > into->used ? into->total - into->used : 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(const struct handle *handle, struct memory *memory)
{
    WHOLE(handle);
    amounts(device, handle->mig, memory);
    if (handle->mig < 0) { /* version 1 counts what the driver keeps as used */
        memory->used += device->memory_reserved;
        memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    }
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(const struct handle *handle, struct memory_v2 *memory)
{
    struct memory first;
    WHOLE(handle);
    if (memory->version != 0x02000028)
        return INVALID_ARGUMENT;
    amounts(device, handle->mig, &first);
    memory->total = first.total;
    memory->used = first.used;
    memory->reserved = handle->mig < 0 ? device->memory_reserved : 0;
    memory->free = memory->total > memory->used + memory->reserved
                       ? memory->total - memory->used - memory->reserved : 0;
    return SUCCESS;
}

#define PAGE (2ULL << 20)
struct set_limits { const char *name_space; unsigned long long soft, hard; };
struct get_limits { const char *name_space; unsigned long long soft, hard, used; };

/* The entry of a group's limit of a device; what was of a removed folder of that name is free again. */
static struct gpu_limit *limit_of(const char *group, uint64_t inode, int device)
{
    struct gpu_limit *found = NULL;

    for (struct gpu_limit *limit = state->limits; limit < state->limits + GPU_LIMITS; limit++) {
        if (limit->inode && limit->inode != inode && limit->device == (uint32_t)device && !strcmp(limit->group, group))
            memset(limit, 0, sizeof *limit);
        if (limit->inode == inode && limit->device == (uint32_t)device && !strcmp(limit->group, group))
            return limit;
    }
    for (struct gpu_limit *limit = state->limits; !found && limit < state->limits + GPU_LIMITS; limit++)
        if (!limit->inode)
            found = limit;
    if (found) {
        *found = (struct gpu_limit){inode, 0, GPU_NO_LIMIT, (uint32_t)device, 0, ""};
        strcpy(found->group, group);
    }
    return found;
}

static int find_limit(const struct handle *handle, const char *path, struct gpu_limit **limit)
{
    char group[GPU_GROUP];
    uint64_t inode;
    DEVICE(handle);
    if (state->limits_answer)
        return (int)state->limits_answer;
    if (handle->mig >= 0 || device->mig_mode)
        return NOT_SUPPORTED;
    if (!path || !gpu_group_of(path, group, &inode))
        return INVALID_ARGUMENT;
    *limit = limit_of(group, inode, handle->device);
    return *limit ? SUCCESS : INSUFFICIENT_RESOURCES;
}
EXPORT int nvmlDeviceSetMemoryLimits_v1(const struct handle *handle, const struct set_limits *limits)
{
    struct gpu_limit *limit;
    int failed = find_limit(handle, limits->name_space, &limit);
    if (failed)
        return failed;
    if (geteuid())
        return NO_PERMISSION;
    if (limits->soft > limits->hard)
        return INVALID_ARGUMENT;
    limit->soft = limits->soft;
    /* A driver may keep limits in pages, and one of the whole device as none. */
    limit->hard = limits->hard >= state->devices[handle->device].memory_total ? GPU_NO_LIMIT
                                                                              : limits->hard / PAGE * PAGE;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryLimits_v1(const struct handle *handle, struct get_limits *limits)
{
    struct gpu_limit *limit;
    int failed = find_limit(handle, limits->name_space, &limit);
    if (failed)
        return failed;
    limits->soft = limit->soft;
    limits->hard = limit->hard;
    limits->used = gpu_group_used(state, handle->device, limit->group);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(const struct handle *handle, struct rates *rates)
{
    DEVICE(handle);
    if (device->no_counters || device->mig_mode)
        return NOT_SUPPORTED;
    rates->gpu = device->utilization_gpu;
    rates->memory = device->utilization_memory;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetPowerUsage(const struct handle *handle, unsigned int *milliwatts)
{
    DEVICE(handle);
    *milliwatts = device->power_mw;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(const struct handle *handle, unsigned int *milliwatts)
{
    DEVICE(handle);
    *milliwatts = device->power_limit_mw;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetTemperature(const struct handle *handle, int sensor, unsigned int *celsius)
{
    DEVICE(handle);
    *celsius = device->temperature_c;
    return sensor ? INVALID_ARGUMENT : SUCCESS;
}
static int reasons_of(const struct handle *handle, unsigned long long *reasons)
{
    DEVICE(handle);
    *reasons = device->throttle_reasons;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(const struct handle *handle, unsigned long long *reasons)
{
    return reasons_of(handle, reasons);
}
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(const struct handle *handle, unsigned long long *reasons)
{
    return reasons_of(handle, reasons);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const struct handle *handle, unsigned int *count,
                                                   struct process *infos)
{
    unsigned int there = 0, room = *count;
    WHOLE(handle);
    for (int slot = 0; slot < GPU_PROCESSES; slot++) {
        const struct gpu_process_use *use = &state->processes[slot].use[handle->device];
        int pid = use->contexts ? gpu_state_owner(state, descriptor, slot, -1) : 0;
        if (!pid || (handle->mig >= 0 && use->gpu_instance != device->migs[handle->mig].gpu_instance))
            continue;
        if (infos && there < room)
            infos[there] = (struct process){(unsigned int)pid, use->memory_used, use->gpu_instance, 0xffffffff};
        there++;
    }
    *count = there;
    return there > (infos ? room : 0) ? INSUFFICIENT_SIZE : SUCCESS;
}
EXPORT int nvmlDeviceGetProcessUtilization(const struct handle *handle, struct sample *samples,
                                           unsigned int *count, unsigned long long since)
{
    unsigned int there = 0, room = *count;
    DEVICE(handle);
    if (device->no_counters || device->mig_mode)
        return NOT_SUPPORTED;
    for (int slot = 0; slot < GPU_PROCESSES; slot++) {
        const struct gpu_process_use *use = &state->processes[slot].use[handle->device];
        int pid = use->sampled_us > since ? gpu_state_owner(state, descriptor, slot, -1) : 0;
        if (!pid)
            continue;
        if (samples && there < room)
            samples[there] = (struct sample){(unsigned int)pid, use->sampled_us, use->sm_percent,
                                             use->memory_percent, use->encoder_percent, use->decoder_percent};
        there++;
    }
    *count = there;
    if (!there)
        return NOT_FOUND;
    return samples && there <= room ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetNvLinkState(const struct handle *handle, unsigned int link, unsigned int *active)
{
    DEVICE(handle);
    if (link >= GPU_LINKS)
        return INVALID_ARGUMENT;
    if (!*device->links[link].remote_bus_id)
        return NOT_SUPPORTED;
    *active = device->links[link].active;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct handle *handle, unsigned int link, struct pci *pci)
{
    DEVICE(handle);
    if (link >= GPU_LINKS)
        return INVALID_ARGUMENT;
    if (!*device->links[link].remote_bus_id)
        return NOT_SUPPORTED;
    fill_pci(pci, device->links[link].remote_bus_id);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const struct handle *handle, unsigned int link, unsigned int *type)
{
    DEVICE(handle);
    if (link >= GPU_LINKS)
        return INVALID_ARGUMENT;
    if (!*device->links[link].remote_bus_id)
        return NOT_SUPPORTED;
    *type = device->links[link].remote_type;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetEccMode(const struct handle *handle, unsigned int *current, unsigned int *pending)
{
    DEVICE(handle);
    *current = *pending = device->ecc_enabled;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetTotalEccErrors(const struct handle *handle, int type, int counter, unsigned long long *count)
{
    DEVICE(handle);
    if (!device->ecc_enabled)
        return NOT_SUPPORTED;
    if (type == 0)
        *count = counter ? device->ecc_corrected_total : device->ecc_corrected;
    else
        *count = counter ? device->ecc_uncorrected_total : device->ecc_uncorrected;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetRemappedRows(const struct handle *handle, unsigned int *correctable,
                                     unsigned int *uncorrectable, unsigned int *pending, unsigned int *failed)
{
    DEVICE(handle);
    *correctable = device->remapped_correctable;
    *uncorrectable = device->remapped_uncorrectable;
    *pending = device->remap_pending;
    *failed = device->remap_failed;
    return SUCCESS;
}

static int no_mig(const struct gpu_device *device) { return strstr(device->name, "T4") != NULL; }

EXPORT int nvmlDeviceGetMigMode(const struct handle *handle, unsigned int *current, unsigned int *pending)
{
    DEVICE(handle);
    if (no_mig(device))
        return NOT_SUPPORTED;
    *current = device->mig_mode;
    *pending = device->mig_pending;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(const struct handle *handle, unsigned int *count)
{
    DEVICE(handle);
    *count = GPU_MIGS;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(const struct handle *handle, unsigned int index,
                                               struct handle **mig)
{
    DEVICE(handle);
    if (!device->mig_mode || handle->mig >= 0)
        return NOT_SUPPORTED;
    if (index >= GPU_MIGS)
        return INVALID_ARGUMENT;
    if (!device->migs[index].present || device->migs[index].incomplete)
        return NOT_FOUND;
    *mig = &handles[GPU_DEVICES * (index + 1) + handle->device];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(const struct handle *mig, struct handle **handle)
{
    DEVICE(mig);
    *handle = &handles[mig->device];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetGpuInstanceId(const struct handle *handle, unsigned int *id)
{
    DEVICE(handle);
    if (handle->mig < 0)
        return NOT_SUPPORTED;
    *id = device->migs[handle->mig].gpu_instance;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetComputeInstanceId(const struct handle *handle, unsigned int *id)
{
    DEVICE(handle);
    if (handle->mig < 0)
        return NOT_SUPPORTED;
    *id = device->migs[handle->mig].compute_instance;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetAttributes_v2(const struct handle *handle, struct attributes *attributes)
{
    const struct gpu_mig *mig;
    DEVICE(handle);
    if (handle->mig < 0)
        return NOT_SUPPORTED;
    mig = &device->migs[handle->mig];
    memset(attributes, 0, sizeof *attributes);
    attributes->gpu_slices = attributes->compute_slices = mig->compute_slices;
    attributes->memory_mb = mig->memory_total >> 20;
    return SUCCESS;
}

/* Instances of a divided GPU: the profiles of an H100 with 80 GB, by the numbers of nvml.h. A GPU instance and
 * its one compute instance have the same handle, their entry in the state. */
struct profile { unsigned int number, id, slices, size, starts, most; const char *name; unsigned long long mb; };
static const struct profile profiles[] = {
    {0, 19, 1, 1, 0x7f, 7, "1g.10gb", 9984},   {7, 20, 1, 1, 0x7f, 1, "1g.10gb+me", 9984},
    {9, 15, 1, 2, 0x55, 4, "1g.20gb", 20096},  {1, 14, 2, 2, 0x15, 3, "2g.20gb", 20096},
    {2, 9, 3, 4, 0x11, 2, "3g.40gb", 40448},   {3, 5, 4, 4, 0x01, 1, "4g.40gb", 40448},
    {4, 0, 7, 8, 0x01, 1, "7g.80gb", 81152},
};
#define PROFILES (sizeof profiles / sizeof *profiles)
struct profile_info { unsigned int version, id, p2p, slices, instances, sms, copy, decode, encode, jpeg, ofa;
                      unsigned long long memory_mb; char name[96]; };
struct placement { unsigned int start, size; };
struct instance_info { struct handle *device; unsigned int id, profile; struct placement placement; };
struct compute_profile { unsigned int id, slices, instances, sms, copy, decode, encode, jpeg, ofa; };

static const struct profile *profile_of(unsigned int id)
{
    for (unsigned int i = 0; i < PROFILES; i++)
        if (profiles[i].id == id)
            return &profiles[i];
    return NULL;
}
static struct gpu_device *owner_of(const struct gpu_mig *one, int *index)
{
    for (int i = 0; state && i < (int)state->device_count; i++)
        if (one >= state->devices[i].migs && one < state->devices[i].migs + GPU_MIGS)
            return *index = i, &state->devices[i];
    return NULL;
}
static int busy(int device, const struct gpu_mig *one)
{
    for (int slot = 0; slot < GPU_PROCESSES; slot++) {
        const struct gpu_process_use *use = &state->processes[slot].use[device];
        if (use->contexts && use->gpu_instance == one->gpu_instance && gpu_state_owner(state, descriptor, slot, -1))
            return 1;
    }
    return 0;
}

EXPORT int nvmlDeviceSetMigMode(const struct handle *handle, unsigned int mode, int *activation)
{
    DEVICE(handle);
    if (no_mig(device))
        return NOT_SUPPORTED;
    device->mig_pending = mode;
    if (!device->mig_needs_reset)
        device->mig_mode = mode;
    *activation = SUCCESS;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetGpuInstanceProfileInfoV(const struct handle *handle, unsigned int number,
                                                struct profile_info *info)
{
    DEVICE(handle);
    for (unsigned int i = 0; i < PROFILES; i++) {
        if (profiles[i].number != number || no_mig(device))
            continue;
        info->id = profiles[i].id;
        info->slices = profiles[i].slices;
        info->instances = profiles[i].most;
        info->memory_mb = profiles[i].mb;
        snprintf(info->name, sizeof info->name, "MIG %s", profiles[i].name);
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetGpuInstances(const struct handle *handle, unsigned int id, struct gpu_mig **instances,
                                     unsigned int *count)
{
    DEVICE(handle);
    if (!device->mig_mode)
        return NOT_SUPPORTED;
    *count = 0;
    for (int i = 0; i < GPU_MIGS; i++)
        if (device->migs[i].present && device->migs[i].profile == id)
            instances[(*count)++] = &device->migs[i];
    return SUCCESS;
}
EXPORT int nvmlGpuInstanceGetInfo(const struct gpu_mig *one, struct instance_info *info)
{
    int index = 0;
    if (!owner_of(one, &index) || !one->present)
        return NOT_FOUND;
    *info = (struct instance_info){&handles[index], one->gpu_instance, one->profile, {one->start, one->size}};
    return SUCCESS;
}
static int lies_free(const struct gpu_device *device, const struct placement *at)
{
    for (int i = 0; i < GPU_MIGS; i++) {
        const struct gpu_mig *one = &device->migs[i];
        if (one->present && one->start < at->start + at->size && at->start < one->start + one->size)
            return 0;
    }
    return 1;
}
EXPORT int nvmlDeviceCreateGpuInstanceWithPlacement(const struct handle *handle, unsigned int id,
                                                    const struct placement *at, struct gpu_mig **instance)
{
    const struct profile *profile = profile_of(id);
    DEVICE(handle);
    if (!device->mig_mode)
        return NOT_SUPPORTED;
    if (!profile || at->size != profile->size || at->start > 7 || !(profile->starts >> at->start & 1))
        return INVALID_ARGUMENT;
    if (!lies_free(device, at))
        return INSUFFICIENT_RESOURCES;
    for (unsigned int i = 0; i < GPU_MIGS; i++) {
        struct gpu_mig *one = &device->migs[i];
        struct timespec now;
        if (one->present)
            continue;
        clock_gettime(CLOCK_REALTIME, &now);
        *one = (struct gpu_mig){.present = 1, .gpu_instance = i + 1, .profile = id, .start = at->start,
                                .size = at->size, .compute_slices = profile->slices, .incomplete = 1,
                                .memory_total = profile->mb << 20};
        snprintf(one->uuid, sizeof one->uuid, "MIG-%d-%u-%llx", handle->device, i,
                 (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec);
        snprintf(one->name, sizeof one->name, "%s", profile->name);
        *instance = one;
        return SUCCESS;
    }
    return INSUFFICIENT_RESOURCES;
}
EXPORT int nvmlGpuInstanceDestroy(struct gpu_mig *one)
{
    int index = 0;
    if (!owner_of(one, &index) || !one->present)
        return NOT_FOUND;
    if (!one->incomplete || busy(index, one))
        return IN_USE;
    memset(one, 0, sizeof *one);
    return SUCCESS;
}
EXPORT int nvmlGpuInstanceGetComputeInstanceProfileInfo(const struct gpu_mig *one, unsigned int number,
                                                        unsigned int engine, struct compute_profile *info)
{
    static const unsigned int slices[] = {1, 2, 3, 4, 7};
    if (engine || number >= sizeof slices / sizeof *slices || slices[number] > one->compute_slices)
        return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->id = number;
    info->slices = slices[number];
    info->instances = one->compute_slices / slices[number];
    return SUCCESS;
}
EXPORT int nvmlGpuInstanceCreateComputeInstance(struct gpu_mig *one, unsigned int id, struct gpu_mig **instance)
{
    int index = 0;
    struct gpu_device *device = owner_of(one, &index);
    (void)id;
    if (!device || !one->present)
        return NOT_FOUND;
    if (!one->incomplete || device->mig_failures) {
        device->mig_failures -= device->mig_failures > 0;
        return INSUFFICIENT_RESOURCES;
    }
    one->incomplete = 0;
    *instance = one;
    return SUCCESS;
}
EXPORT int nvmlGpuInstanceGetComputeInstances(struct gpu_mig *one, unsigned int id, struct gpu_mig **instances,
                                              unsigned int *count)
{
    static const unsigned int slices[] = {1, 2, 3, 4, 7};
    *count = one->present && !one->incomplete && id < 5 && slices[id] == one->compute_slices;
    if (*count)
        *instances = one;
    return SUCCESS;
}
struct compute_info { struct handle *device; struct gpu_mig *gpu_instance; unsigned int id, profile;
                      struct placement placement; };
EXPORT int nvmlComputeInstanceGetInfo_v2(struct gpu_mig *one, struct compute_info *info)
{
    int index = 0;
    struct gpu_device *device = owner_of(one, &index);
    if (!device || !one->present || one->incomplete)
        return NOT_FOUND;
    *info = (struct compute_info){&handles[GPU_DEVICES * (one - device->migs + 1) + index], one,
                                  one->compute_instance, 0, {0, one->compute_slices}};
    return SUCCESS;
}
EXPORT int nvmlComputeInstanceDestroy(struct gpu_mig *one)
{
    int index = 0;
    if (!owner_of(one, &index) || !one->present || one->incomplete)
        return NOT_FOUND;
    if (busy(index, one))
        return IN_USE;
    one->incomplete = 1;
    return SUCCESS;
}

EXPORT int nvmlEventSetCreate(struct event_set **set)
{
    for (int i = 0; state && i < SETS; i++) {
        if (!sets[i].used) {
            memset(&sets[i], 0, sizeof sets[i]);
            sets[i].used = 1;
            *set = &sets[i];
            return SUCCESS;
        }
    }
    return state ? INSUFFICIENT_SIZE : UNINITIALIZED;
}
EXPORT int nvmlEventSetFree(struct event_set *set)
{
    set->used = 0;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetSupportedEventTypes(const struct handle *handle, unsigned long long *types)
{
    DEVICE(handle);
    *types = EVENT_XID;
    return SUCCESS;
}
EXPORT int nvmlDeviceRegisterEvents(const struct handle *handle, unsigned long long types, struct event_set *set)
{
    DEVICE(handle);
    set->types[handle->device] = types;
    set->seen[handle->device] = device->xids_written; /* what came before is not told */
    return SUCCESS;
}
static int next_xid(struct event_set *set, struct event *event)
{
    for (unsigned int i = 0; i < state->device_count; i++) {
        const struct gpu_device *device = &state->devices[i];
        if (!(set->types[i] & EVENT_XID) || set->seen[i] >= device->xids_written)
            continue;
        if (device->xids_written - set->seen[i] > GPU_XIDS)
            set->seen[i] = device->xids_written - GPU_XIDS;
        const struct gpu_xid *xid = &device->xids[set->seen[i]++ % GPU_XIDS];
        *event = (struct event){&handles[i], EVENT_XID, xid->code, xid->gpu_instance, xid->compute_instance};
        return SUCCESS;
    }
    return TIMEOUT;
}
EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned int milliseconds)
{
    const struct timespec pause = {0, 1000000};
    if (!state)
        return UNINITIALIZED;
    for (;; milliseconds--) {
        if (next_xid(set, event) == SUCCESS)
            return SUCCESS;
        if (!milliseconds)
            return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}
