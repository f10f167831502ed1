/* The state of the GPUs of the test drivers, in one file that every process maps.
 *
 * libcuda.so.1 (cuda.c) and libnvidia-ml.so.1 of this folder are drivers for machines without a GPU.
 * Both map the file named by CARREL_TEST_GPU_STATE and keep no other state: memory that one process
 * allocates through libcuda.so.1 is seen by all processes through both libraries. Tests write the file
 * with state.py, whose ctypes structures mirror this header; a file of another size is refused.
 *
 * Amounts are bytes unless the name says otherwise. Fields of several processes change by atomic
 * operations; everything else is written by tests only.
 *
 * A process owns one slot. It is alive as long as it holds a POSIX record lock on the byte
 * GPU_STATE_LOCKS + slot: the kernel releases the lock when the process ends in whatever way, and
 * F_GETLK translates the owner's number into the PID namespace of the reader. Slots with `listed`
 * belong to no process: tests make them to fill the lists. POSIX locks are dropped when any descriptor
 * of the file is closed, so a library opens the file once and never closes it.
 */
#ifndef CARREL_TEST_GPU_STATE_H
#define CARREL_TEST_GPU_STATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPU_STATE_MAGIC 0x5550474c45525243ULL /* "CRRELGPU" */
#define GPU_STATE_VERSION 2
#define GPU_STATE_LOCKS 0x40000000L /* offset of the first lock byte, beyond the end of the file */
#define GPU_DEVICES 16
#define GPU_PROCESSES 256
#define GPU_LINKS 18
#define GPU_MIGS 8
#define GPU_XIDS 32
#define GPU_LIMITS 64
#define GPU_GROUP 192

struct gpu_link {
    uint32_t active;           /* 1: the link is up */
    uint32_t remote_type;      /* NVML: 0 GPU, 2 switch */
    uint32_t version;          /* NVLink version */
    uint32_t errors;           /* CRC errors so far */
    char remote_bus_id[32];    /* "00000000:07:00.0"; empty: the link does not exist */
};

struct gpu_mig {
    uint32_t present;
    uint32_t gpu_instance;
    uint32_t compute_instance;
    uint32_t profile;          /* profile id of the GPU instance: 19 for 1g */
    uint32_t start;            /* first memory slice */
    uint32_t size;             /* number of memory slices */
    uint32_t compute_slices;
    uint32_t incomplete;       /* 1: has no compute instance, so that there is no MIG device */
    uint64_t memory_total;
    uint64_t memory_used;
    char uuid[48];             /* "MIG-..." */
    char name[32];             /* "1g.10gb" */
};

struct gpu_xid {
    uint32_t code;
    uint32_t gpu_instance;     /* 0xffffffff: none */
    uint32_t compute_instance; /* 0xffffffff: none */
    uint32_t reserved;
};

struct gpu_device {
    char uuid[48];             /* "GPU-..." */
    char name[64];
    char bus_id[32];           /* "00000000:07:00.0" */
    uint64_t memory_total;
    uint64_t memory_reserved;  /* by the driver itself; NVML v2 reports it apart */
    uint64_t memory_used;      /* of all processes, context_bytes and listed slots included (atomic) */
    uint64_t context_bytes;    /* what a context takes of the memory of the device */
    uint32_t lost;             /* 1: every call fails with GPU_IS_LOST / CUDA_ERROR_DEVICE_UNAVAILABLE */
    uint32_t no_counters;      /* 1: utilisation is NOT_SUPPORTED */
    uint32_t utilization_gpu;  /* per cent */
    uint32_t utilization_memory; /* per cent */
    uint32_t power_mw;
    uint32_t power_limit_mw;
    uint32_t temperature_c;
    uint32_t fan_percent;
    uint32_t clock_sm_mhz;
    uint32_t clock_memory_mhz;
    uint32_t compute_major;
    uint32_t compute_minor;
    int32_t numa_node;         /* -1: unknown */
    uint32_t ecc_enabled;
    uint64_t throttle_reasons; /* NVML's bits */
    uint64_t ecc_corrected;    /* volatile counters */
    uint64_t ecc_uncorrected;
    uint64_t ecc_corrected_total; /* aggregate counters */
    uint64_t ecc_uncorrected_total;
    uint32_t remapped_correctable;
    uint32_t remapped_uncorrectable;
    uint32_t remap_pending;
    uint32_t remap_failed;
    uint32_t mig_mode;         /* 1: divided */
    uint32_t mig_pending;      /* the mode after the next reset */
    uint32_t mig_needs_reset;  /* 1: another mode begins with the next reset only */
    uint32_t mig_failures;     /* so many of the next calls that create a compute instance fail */
    uint64_t xids_written;     /* entry i is at xids[i % GPU_XIDS] */
    struct gpu_xid xids[GPU_XIDS];
    struct gpu_link links[GPU_LINKS];
    struct gpu_mig migs[GPU_MIGS];
};

struct gpu_process_use {
    uint64_t memory_used;      /* context included (atomic) */
    uint64_t sampled_us;       /* when the utilisation was seen, microseconds since 1970; 0: no sample */
    uint32_t sm_percent;
    uint32_t memory_percent;
    uint32_t encoder_percent;
    uint32_t decoder_percent;
    uint32_t gpu_instance;     /* 0xffffffff: none */
    uint32_t contexts;         /* 1: has a context on the device, so that it is listed */
};

struct gpu_process {
    uint32_t pid;              /* as the process itself sees it; 0: the slot is free (atomic) */
    uint32_t listed;           /* 1: made by a test, belongs to no process */
    uint64_t launches;         /* kernels started (atomic) */
    uint64_t allocations;      /* calls of allocating functions (atomic) */
    char group[GPU_GROUP];     /* its control group of version 2; empty: none */
    struct gpu_process_use use[GPU_DEVICES];
};

struct gpu_limit {             /* limits.h */
    uint64_t inode;            /* of the folder of the group; 0: the entry is free */
    uint64_t soft;
    uint64_t hard;             /* 2**64 - 1: none */
    uint32_t device;
    uint32_t reserved;
    char group[GPU_GROUP];
};

struct gpu_state {
    uint64_t magic;
    uint32_t version;
    uint32_t size;             /* sizeof(struct gpu_state) */
    uint32_t device_count;
    uint32_t driver_version;   /* CUDA: 13000 for 13.0 */
    char driver[32];           /* NVML: "580.95.05" */
    uint64_t allocation_ns;    /* how long a call that allocates or frees takes; 0: no delay */
    uint32_t fail_allocations; /* so many of the next allocations fail with error 2 (atomic) */
    uint32_t unprivileged;     /* of a divided device, processes and memory are told by instance only */
    uint32_t limits_answer;    /* NVML's answer to calls about limits: 0: it has such; 3: it does not */
    uint32_t reserved;
    struct gpu_device devices[GPU_DEVICES];
    struct gpu_process processes[GPU_PROCESSES];
    struct gpu_limit limits[GPU_LIMITS];
};

/* The mapped state and its descriptor, or NULL. Never unmapped and never closed. */
static inline struct gpu_state *gpu_state_map(int *descriptor)
{
    const char *path = getenv("CARREL_TEST_GPU_STATE");
    struct stat found;
    struct gpu_state *state;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &found) || found.st_size != (off_t)sizeof(struct gpu_state))
        return NULL;
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED || state->magic != GPU_STATE_MAGIC || state->size != sizeof *state)
        return NULL;
    *descriptor = fd;
    return state;
}

/* The process of a slot as the caller's PID namespace numbers it: > 0, or 0 when the slot's process has
 * ended or the caller cannot see it. `mine` is the caller's own slot or -1 (F_GETLK does not report
 * locks of the caller). */
static inline int gpu_state_owner(const struct gpu_state *state, int descriptor, int slot, int mine)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GPU_STATE_LOCKS + slot, .l_len = 1};

    if (state->processes[slot].pid == 0)
        return 0;
    if (state->processes[slot].listed)
        return (int)state->processes[slot].pid;
    if (slot == mine || (int)state->processes[slot].pid == getpid())
        return getpid();
    if (fcntl(descriptor, F_GETLK, &lock) || lock.l_type == F_UNLCK)
        return 0;
    return lock.l_pid > 0 ? lock.l_pid : 0;
}

#endif
