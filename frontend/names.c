/* SPDX-License-Identifier: Apache-2.0 */
/* A map from names to numbers: open addressing with a 64-bit FNV-1a hash. Nothing iterates over the
 * map, so only speed depends on the hash. */
#include "frontend/frontend_internal.h"

#include <string.h>

static uint64_t hash_of(const char *key)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const unsigned char *at = (const unsigned char *)key; *at != 0; at++)
        hash = (hash ^ *at) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

/* The slot of a key, or the free slot where it belongs. */
static uint32_t slot_of(const struct ul_names *names, const char *key)
{
    uint32_t mask = names->capacity - 1;
    uint32_t slot = (uint32_t)hash_of(key) & mask;
    while (names->keys[slot] != NULL && strcmp(names->keys[slot], key) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

static void enlarge(struct ul_names *names)
{
    struct ul_names old = *names;
    names->capacity = old.capacity == 0 ? 16 : old.capacity * 2;
    names->keys = UL_NEW_ARRAY(names->arena, const char *, names->capacity);
    names->values = UL_NEW_ARRAY(names->arena, uint32_t, names->capacity);
    UL_ASSERT(names->count < names->capacity);
    for (uint32_t i = 0; i < old.capacity; i++) {
        if (old.keys[i] == NULL)
            continue;
        uint32_t slot = slot_of(names, old.keys[i]);
        names->keys[slot] = old.keys[i];
        names->values[slot] = old.values[i];
    }
}

void ul_names_init(struct ul_names *names, struct ul_arena *arena)
{
    memset(names, 0, sizeof *names);
    names->arena = arena;
}

uint32_t ul_names_find(const struct ul_names *names, const char *key)
{
    if (names->capacity == 0)
        return UL_NONE;
    uint32_t slot = slot_of(names, key);
    return names->keys[slot] == NULL ? UL_NONE : names->values[slot];
}

bool ul_names_add(struct ul_names *names, const char *key, uint32_t value)
{
    UL_ASSERT(names->arena != NULL && value != UL_NONE);
    if (names->count * 2 >= names->capacity)
        enlarge(names);
    uint32_t slot = slot_of(names, key);
    if (names->keys[slot] != NULL)
        return false;
    names->keys[slot] = key;
    names->values[slot] = value;
    names->count++;
    return true;
}
