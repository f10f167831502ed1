/* What the processes of one task hold of the memory of its GPUs, in a file that all of them map.
 *
 * The folder of the limiter holds two files:
 *   limits   one line for each GPU: its UUID and the bytes that the task may hold of it. Only root can
 *            write it; a GPU without a line has no limit.
 *   usage    struct usage_file. The processes of the task write it, and the node agent writes `overhead`.
 *
 * A process owns one slot, and holds a POSIX record lock on one byte for it: the kernel releases the
 * lock when the process ends in whatever way, so the amounts of a process that was killed are taken back
 * by whoever needs them. The mutex is robust: when its owner is killed, the next one computes the sums
 * from the slots anew.
 */
#ifndef CARREL_GPU_LIMIT_USAGE_H
#define CARREL_GPU_LIMIT_USAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define USAGE_GPUS 16
#define USAGE_SLOTS 512
#define USAGE_MAGIC 0x3147504c52524143ULL
#define UNLIMITED (-1)

struct usage_slot {
    uint32_t pid; /* 0: free */
    uint32_t reserved;
    uint64_t used[USAGE_GPUS];
};

struct usage_file {
    uint64_t magic; /* 0: nobody has mapped it yet */
    uint64_t size;
    union {
        pthread_mutex_t mutex;
        char room[112];
    } lock;
    uint64_t used[USAGE_GPUS];     /* sums over the slots, bytes; in the order of the lines of limits */
    uint64_t overhead[USAGE_GPUS]; /* what the driver holds besides: contexts, code; from the agent */
    struct usage_slot slots[USAGE_SLOTS];
};

/* The line of a GPU in the file of limits, from 0, or UNLIMITED. */
int usage_find(const char *uuid);

/* The UUID in that line. */
const char *usage_uuid(int gpu);

/* One process of the task at a time; one that waits for long goes on all the same. */
void usage_lock_contexts(void);
void usage_unlock_contexts(void);

/* Whether the task may hold `bytes` more, which from then on it does. */
bool usage_reserve(int gpu, uint64_t bytes);

/* Record what the driver took or gave back of its own accord, beyond the limit if need be. */
void usage_add(int gpu, uint64_t bytes);
void usage_subtract(int gpu, uint64_t bytes);

/* The limit and what is held, at most the limit. */
void usage_read(int gpu, uint64_t *limit, uint64_t *used);

#endif
