/* What this process holds: an open-addressing hash table of allocations, in memory of its own.
 *
 * Keys are what the driver calls a thing: an address, a handle, a graph. Things of different kinds may
 * have equal keys. The table grows by doubling and asks the kernel for memory, never malloc. Its lock is
 * held by the callers (table_lock), so that an entry and what it is charged change together.
 */
#ifndef CARREL_GPU_LIMIT_TABLE_H
#define CARREL_GPU_LIMIT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

enum kind {
    NOTHING,
    ADDRESS, /* cuMemAlloc and its like; owner: the context */
    POOLED,  /* from a pool; owner: the pool's number */
    ARRAY,   /* arrays and mipmapped arrays; owner: the context */
    HANDLE,  /* of the virtual memory API; owner: the block that it means */
    MAPPING, /* of a block to an address; owner: the block */
    BLOCK,   /* physical memory of the virtual memory API; freed without handles and mappings */
    GRAPH,   /* an executable graph with memory of its own */
    CONTEXT, /* what the driver took for a context; owner: the context */
};

struct entry {
    uint64_t key;
    uint64_t size; /* bytes */
    uint64_t owner;
    int32_t gpu;
    uint16_t kind;
    uint16_t references; /* of a block: handles and mappings */
};

void table_lock(void);
void table_unlock(void);

/* The entry, or NULL; valid until the next change of the table. */
struct entry *table_find(enum kind kind, uint64_t key);

/* False when there is no memory left. An entry of the same kind and key is replaced. */
bool table_add(struct entry entry);

/* Remove it and write it to `removed`; false when there is none. */
bool table_remove(enum kind kind, uint64_t key, struct entry *removed);

/* The next entry from position *at on, or NULL; adding and removing begin anew. */
struct entry *table_next(uint64_t *at);

#endif
