/* Limits of device memory by control group, as NVIDIA's driver has them from release 615 on.
 *
 * A limit belongs to a folder of the cgroup2 file system and a device. It is kept by the path that
 * `/proc/PID/cgroup` has for the processes in that folder, and counts them and those of the folders
 * below. Who removes the folder removes the limit: a folder of the same name is another one (inode).
 */
#ifndef CARREL_TEST_GPU_LIMITS_H
#define CARREL_TEST_GPU_LIMITS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#include "state.h"

#define CGROUP2 0x63677270L
#define GPU_NO_LIMIT UINT64_MAX

/* The control group of the calling process; empty where it has none of version 2. */
static inline void gpu_own_group(char *group)
{
    char line[GPU_GROUP + 64];
    FILE *file = fopen("/proc/self/cgroup", "re");

    *group = 0;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "0::/", 4)) {
            line[strcspn(line, "\n")] = 0;
            snprintf(group, GPU_GROUP, "%.*s", GPU_GROUP - 1, line + 3);
        }
    if (file)
        fclose(file);
}

static inline bool gpu_is_group(const char *path)
{
    struct statfs found;
    return statfs(path, &found) == 0 && found.f_type == CGROUP2;
}

/* The control group of a folder and its inode; false where the folder is none of the cgroup2 file system. */
static inline bool gpu_group_of(const char *path, char *group, uint64_t *inode)
{
    char folder[4096], above[4096], *last;
    struct stat found;
    size_t length;

    if (!realpath(path, folder) || !gpu_is_group(folder) || stat(folder, &found) || !S_ISDIR(found.st_mode))
        return false;
    strcpy(above, folder);
    do {
        length = strlen(above); /* of the highest folder so far that is one of the file system */
        last = strrchr(above, '/');
        *last = 0;
    } while (*above && gpu_is_group(above));
    snprintf(group, GPU_GROUP, "%.*s", GPU_GROUP - 1, folder[length] ? folder + length : "/");
    *inode = found.st_ino;
    return true;
}

static inline bool gpu_within(const char *group, const char *above)
{
    size_t length = strlen(above);
    return !strcmp(above, "/") || (!strncmp(group, above, length) && (!group[length] || group[length] == '/'));
}

/* Memory of a device that the processes of a group hold. */
static inline uint64_t gpu_group_used(const struct gpu_state *state, int device, const char *group)
{
    uint64_t used = 0;

    for (int slot = 0; slot < GPU_PROCESSES; slot++)
        if (state->processes[slot].pid && *state->processes[slot].group && gpu_within(state->processes[slot].group, group))
            used += state->processes[slot].use[device].memory_used;
    return used;
}

/* What a group may still take of a device; `total` becomes the smallest limit that holds for it. */
static inline uint64_t gpu_group_room(const struct gpu_state *state, int device, const char *group, uint64_t *total)
{
    uint64_t room = GPU_NO_LIMIT;

    for (int at = 0; *group && at < GPU_LIMITS; at++) {
        const struct gpu_limit *limit = &state->limits[at];
        uint64_t used, left;
        if (!limit->inode || limit->device != (uint32_t)device || limit->hard == GPU_NO_LIMIT || !gpu_within(group, limit->group))
            continue;
        used = gpu_group_used(state, device, limit->group);
        left = used < limit->hard ? limit->hard - used : 0;
        room = left < room ? left : room;
        *total = limit->hard < *total ? limit->hard : *total;
    }
    return room;
}

#endif
