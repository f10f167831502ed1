/* See table.h. Linear probing; removing closes the gap, so that no marks of removed entries are left. */
#define _GNU_SOURCE
#include "table.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_SIZE 1024

static struct {
    struct entry *entries;
    uint64_t size; /* a power of two, or 0 */
    uint64_t count;
} table;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void empty_in_child(void)
{
    /* The contexts of the parent do not work in a child, nor do its allocations. */
    if (table.entries)
        memset(table.entries, 0, table.size * sizeof *table.entries);
    table.count = 0;
    pthread_mutex_unlock(&mutex);
}

static void begin(void)
{
    pthread_atfork(table_lock, table_unlock, empty_in_child);
}

void table_lock(void)
{
    pthread_once(&once, begin);
    pthread_mutex_lock(&mutex);
}

void table_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static uint64_t home(enum kind kind, uint64_t key)
{
    return ((key ^ (uint64_t)kind << 56) * 0x9e3779b97f4a7c15ULL >> 20) & (table.size - 1);
}

static uint64_t position(enum kind kind, uint64_t key)
{
    uint64_t at = home(kind, key);

    while (table.entries[at].kind != NOTHING && (table.entries[at].key != key || table.entries[at].kind != kind))
        at = (at + 1) & (table.size - 1);
    return at;
}

static bool grow(void)
{
    struct entry *old = table.entries;
    uint64_t before = table.size, size = before ? before * 2 : FIRST_SIZE;
    void *memory = mmap(NULL, size * sizeof *old, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return false;
    table.entries = memory;
    table.size = size;
    for (uint64_t at = 0; at < before; at++)
        if (old[at].kind != NOTHING)
            table.entries[position(old[at].kind, old[at].key)] = old[at];
    if (old)
        munmap(old, before * sizeof *old);
    return true;
}

struct entry *table_find(enum kind kind, uint64_t key)
{
    struct entry *found = table.size ? &table.entries[position(kind, key)] : NULL;

    return found && found->kind != NOTHING ? found : NULL;
}

bool table_add(struct entry entry)
{
    struct entry *place;

    if (table.count * 4 >= table.size * 3 && !grow())
        return false;
    place = &table.entries[position(entry.kind, entry.key)];
    table.count += place->kind == NOTHING;
    *place = entry;
    return true;
}

bool table_remove(enum kind kind, uint64_t key, struct entry *removed)
{
    struct entry *found = table_find(kind, key);
    uint64_t gap, at, mask = table.size - 1;

    if (!found)
        return false;
    *removed = *found;
    gap = at = (uint64_t)(found - table.entries);
    for (;;) {
        at = (at + 1) & mask;
        if (table.entries[at].kind == NOTHING)
            break;
        if (((at - home(table.entries[at].kind, table.entries[at].key)) & mask) >= ((at - gap) & mask)) {
            table.entries[gap] = table.entries[at];
            gap = at;
        }
    }
    memset(&table.entries[gap], 0, sizeof table.entries[gap]);
    table.count--;
    return true;
}

struct entry *table_next(uint64_t *at)
{
    while (*at < table.size) {
        struct entry *entry = &table.entries[(*at)++];
        if (entry->kind != NOTHING)
            return entry;
    }
    return NULL;
}
