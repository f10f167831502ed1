/* See usage.h. Everything here is called in programs of users: it allocates nothing, starts nothing and
 * writes only to the usage file and, when that cannot be used, one line to standard error. */
#define _GNU_SOURCE
#include "usage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef CARREL_GPU_FOLDER
#define CARREL_GPU_FOLDER "/dev/carrel-gpu"
#endif
#define LOCKS 0x40000000L      /* offset of the lock byte of slot 0, beyond the end of the file */
#define CREATION (LOCKS - 1)   /* lock byte of whoever prepares the file */
#define CONTEXTS (LOCKS - 2)   /* lock byte of whoever makes a context */
#define CONTEXT_TRIES 100      /* a tenth of a second each */
#define LOWEST_DESCRIPTOR 512  /* programs that close the descriptors they know leave this one alone */

#ifndef CARREL_SOURCES
#define CARREL_SOURCES ""
#endif
__attribute__((used)) static const char sources[] = CARREL_SOURCES; /* by which library.py knows a current one */

static struct {
    int count; /* of limits; 0: this program has none */
    bool unreadable; /* there are limits, but not for us to read */
    char uuids[USAGE_GPUS][64];
    uint64_t limits[USAGE_GPUS];
    struct usage_file *file; /* NULL with a count: the file cannot be used, and nothing is allowed */
    int descriptor;
    int slot; /* of this process, -1 before its first allocation */
} state = {.slot = -1};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complain(const char *path, const char *reason)
{
    dprintf(2, "carrel: GPU memory cannot be allocated: %s: %s\n", path, reason);
}

/* Lock (F_WRLCK) or unlock (F_UNLCK) a byte; with F_SETLKW waits for it. */
static int lock_byte(int command, int type, long offset)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
    int done;

    do
        done = fcntl(state.descriptor, command, &lock);
    while (done && errno == EINTR);
    return done;
}

static bool ended(int slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKS + slot, .l_len = 1};

    return slot != state.slot && fcntl(state.descriptor, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

static void sum_up(struct usage_file *file)
{
    for (int gpu = 0; gpu < USAGE_GPUS; gpu++) {
        uint64_t sum = 0;
        for (int slot = 0; slot < USAGE_SLOTS; slot++)
            sum += file->slots[slot].pid ? file->slots[slot].used[gpu] : 0;
        file->used[gpu] = sum;
    }
}

static bool enter(struct usage_file *file)
{
    int found = pthread_mutex_lock(&file->lock.mutex);

    if (found == EOWNERDEAD) {
        sum_up(file);
        found = pthread_mutex_consistent(&file->lock.mutex);
    }
    return found == 0;
}

static void leave(struct usage_file *file)
{
    pthread_mutex_unlock(&file->lock.mutex);
}

static void release_slot(struct usage_file *file, int slot)
{
    memset(&file->slots[slot], 0, sizeof file->slots[slot]);
    sum_up(file);
}

static void release_ended(struct usage_file *file)
{
    for (int slot = 0; slot < USAGE_SLOTS; slot++)
        if (file->slots[slot].pid && ended(slot))
            release_slot(file, slot);
}

static bool own_slot(struct usage_file *file)
{
    for (int slot = 0; state.slot < 0 && slot < USAGE_SLOTS; slot++) {
        if (file->slots[slot].pid && !ended(slot))
            continue;
        if (lock_byte(F_SETLK, F_WRLCK, LOCKS + slot))
            continue;
        if (file->slots[slot].pid)
            release_slot(file, slot);
        file->slots[slot].pid = (uint32_t)getpid();
        state.slot = slot;
    }
    return state.slot >= 0;
}

static bool prepare(struct usage_file *file)
{
    pthread_mutexattr_t how;
    bool good;

    if (lock_byte(F_SETLKW, F_WRLCK, CREATION))
        return false;
    if (file->magic == 0) {
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&file->lock.mutex, &how);
        file->size = sizeof *file;
        __atomic_store_n(&file->magic, USAGE_MAGIC, __ATOMIC_RELEASE);
    }
    good = file->magic == USAGE_MAGIC && file->size == sizeof *file;
    lock_byte(F_SETLK, F_UNLCK, CREATION);
    return good;
}

static void map_usage(const char *path)
{
    struct stat facts;
    struct usage_file *file;
    int low = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (low < 0) {
        complain(path, strerror(errno));
        return;
    }
    state.descriptor = fcntl(low, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
    if (state.descriptor < 0)
        state.descriptor = low;
    else
        close(low);
    if (fstat(state.descriptor, &facts) || facts.st_size != (off_t)sizeof *file) {
        complain(path, "it has another size than this version of the library expects");
        return;
    }
    file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, state.descriptor, 0);
    if (file == MAP_FAILED)
        complain(path, strerror(errno));
    else if (!prepare(file))
        complain(path, "it is damaged");
    else
        state.file = file;
}

/* Whether there is a file of limits. One that cannot be read allows nothing on any GPU. */
static bool read_limits(const char *path)
{
    char text[USAGE_GPUS * 96 + 1], *line = text, *rest;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
        return false;
    length = read(descriptor, text, sizeof text - 1);
    if (length < 0) {
        complain(path, strerror(errno));
        state.unreadable = true;
        state.count = 1;
    }
    if (descriptor >= 0)
        close(descriptor);
    text[length < 0 ? 0 : length] = 0;
    while (state.count < USAGE_GPUS && (line = strtok_r(line, "\n", &rest))) {
        int at = state.count;
        if (sscanf(line, "%63s %" SCNu64, state.uuids[at], &state.limits[at]) == 2)
            state.count++;
        line = NULL;
    }
    return true;
}

static void forget_parent(void)
{
    state.slot = -1; /* locks and contexts are the parent's */
}

static void begin(void)
{
    char path[4096];
    const char *folder = CARREL_GPU_FOLDER;

    snprintf(path, sizeof path, "%s/limits", folder);
    if (!read_limits(path)) {
        folder = getenv("CARREL_GPU_LIMIT_FOLDER"); /* where tasks have no file system of their own */
        if (!folder)
            return;
        snprintf(path, sizeof path, "%s/limits", folder);
        if (!read_limits(path))
            return;
    }
    pthread_atfork(NULL, NULL, forget_parent);
    snprintf(path, sizeof path, "%s/usage", folder);
    if (!state.unreadable)
        map_usage(path);
}

int usage_find(const char *uuid)
{
    pthread_once(&once, begin);
    for (int gpu = 0; gpu < state.count; gpu++)
        if (state.unreadable || strcmp(state.uuids[gpu], uuid) == 0)
            return gpu;
    return UNLIMITED;
}

const char *usage_uuid(int gpu)
{
    return state.uuids[gpu];
}

void usage_lock_contexts(void)
{
    for (int tries = 0; state.file && tries < CONTEXT_TRIES && lock_byte(F_SETLK, F_WRLCK, CONTEXTS); tries++)
        usleep(100000);
}

void usage_unlock_contexts(void)
{
    if (state.file)
        lock_byte(F_SETLK, F_UNLCK, CONTEXTS);
}

static bool fits(const struct usage_file *file, int gpu, uint64_t bytes)
{
    uint64_t limit = state.limits[gpu], taken = file->used[gpu] + file->overhead[gpu];

    return taken <= limit && bytes <= limit - taken;
}

static void record(struct usage_file *file, int gpu, uint64_t bytes)
{
    file->slots[state.slot].used[gpu] += bytes;
    file->used[gpu] += bytes;
}

bool usage_reserve(int gpu, uint64_t bytes)
{
    struct usage_file *file = state.file;
    bool granted = false;

    if (gpu == UNLIMITED)
        return true;
    if (!file || !enter(file))
        return false;
    if (own_slot(file)) {
        if (!fits(file, gpu, bytes))
            release_ended(file);
        granted = fits(file, gpu, bytes);
        if (granted)
            record(file, gpu, bytes);
    }
    leave(file);
    return granted;
}

void usage_add(int gpu, uint64_t bytes)
{
    struct usage_file *file = state.file;

    if (gpu == UNLIMITED || !file || !enter(file))
        return;
    if (own_slot(file))
        record(file, gpu, bytes);
    leave(file);
}

void usage_subtract(int gpu, uint64_t bytes)
{
    struct usage_file *file = state.file;
    uint64_t *held;

    if (gpu == UNLIMITED || !file || !enter(file))
        return;
    if (state.slot >= 0) {
        held = &file->slots[state.slot].used[gpu];
        bytes = bytes < *held ? bytes : *held;
        *held -= bytes;
        file->used[gpu] -= bytes < file->used[gpu] ? bytes : file->used[gpu];
    }
    leave(file);
}

void usage_read(int gpu, uint64_t *limit, uint64_t *used)
{
    struct usage_file *file = state.file;
    uint64_t taken = state.limits[gpu];

    *limit = state.limits[gpu];
    if (file && enter(file)) {
        release_ended(file);
        taken = file->used[gpu] + file->overhead[gpu];
        leave(file);
    }
    *used = taken < *limit ? taken : *limit;
}
