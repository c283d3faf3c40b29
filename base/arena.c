/* SPDX-License-Identifier: Apache-2.0 */
/* A region allocator: blocks double up to a ceiling, big requests get a block of their own. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK_BYTES = 64 * 1024, MAX_BLOCK_BYTES = 4 * 1024 * 1024, UNIT_BYTES = 16 };

struct ul_arena_block {
    struct ul_arena_block *next;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t padding; /* keeps the payload aligned to UNIT_BYTES */
};

static uint64_t fail_countdown;

void ul_arena_fail_after(uint64_t block_count)
{
    fail_countdown = block_count;
}

static void *block_request(uint64_t size_bytes)
{
    bool fail = fail_countdown != 0 && --fail_countdown == 0;
    void *memory = fail || size_bytes > SIZE_MAX ? NULL : calloc(1, (size_t)size_bytes);
    if (memory == NULL)
        ul_memory_fail(size_bytes);
    return memory;
}

static struct ul_arena_block *block_new(struct ul_arena *arena, uint64_t wanted_bytes)
{
    uint64_t capacity = FIRST_BLOCK_BYTES;
    if (arena->blocks != NULL)
        capacity = arena->blocks->capacity_bytes * 2;
    if (capacity > MAX_BLOCK_BYTES)
        capacity = MAX_BLOCK_BYTES;
    if (capacity < wanted_bytes)
        capacity = wanted_bytes;
    struct ul_arena_block *block =
        block_request(ul_size_add_or_die(capacity, sizeof(struct ul_arena_block)));
    block->capacity_bytes = capacity;
    arena->reserved_bytes += capacity;
    return block;
}

void ul_arena_init(struct ul_arena *arena)
{
    memset(arena, 0, sizeof *arena);
}

void ul_arena_done(struct ul_arena *arena)
{
    struct ul_arena_block *block = arena->blocks;
    while (block != NULL) {
        struct ul_arena_block *next = block->next;
        free(block);
        block = next;
    }
    ul_arena_init(arena);
}

void ul_arena_reset(struct ul_arena *arena)
{
    struct ul_arena_block *kept = arena->blocks;
    if (kept == NULL)
        return;
    arena->blocks = kept->next;
    ul_arena_done(arena);
    memset(kept + 1, 0, (size_t)kept->used_bytes);
    kept->used_bytes = 0;
    kept->next = NULL;
    arena->blocks = kept;
    arena->reserved_bytes = kept->capacity_bytes;
}

void *ul_arena_alloc(struct ul_arena *arena, uint64_t size_bytes)
{
    uint64_t wanted = ul_size_align_or_die(size_bytes == 0 ? 1 : size_bytes, UNIT_BYTES);
    struct ul_arena_block *block = arena->blocks;
    if (block == NULL || block->capacity_bytes - block->used_bytes < wanted) {
        struct ul_arena_block *fresh = block_new(arena, wanted);
        if (block != NULL && wanted > MAX_BLOCK_BYTES / 4) {
            /* A big request gets its own block after the current one, which stays in use. */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            arena->blocks = fresh;
        }
        block = fresh;
    }
    void *memory = (unsigned char *)(block + 1) + block->used_bytes;
    block->used_bytes += wanted;
    arena->used_bytes += wanted;
    return memory;
}

void *ul_arena_copy(struct ul_arena *arena, const void *data, uint64_t size_bytes)
{
    void *copy = ul_arena_alloc(arena, size_bytes);
    if (size_bytes > 0)
        memcpy(copy, data, (size_t)size_bytes);
    return copy;
}

char *ul_arena_copy_string(struct ul_arena *arena, const char *text)
{
    return ul_arena_copy(arena, text, strlen(text) + 1);
}

char *ul_arena_printf(struct ul_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    UL_ASSERT(length >= 0);
    char *text = ul_arena_alloc(arena, (uint64_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void *ul_arena_grow(struct ul_arena *arena, const void *old, size_t element_bytes, uint32_t count,
                    uint32_t *capacity)
{
    UL_ASSERT(*capacity <= UINT32_MAX / 2);
    uint32_t wanted = *capacity < 8 ? 8 : *capacity * 2;
    void *fresh = ul_arena_alloc(arena, ul_size_mul_or_die(element_bytes, wanted));
    if (count > 0)
        memcpy(fresh, old, element_bytes * count);
    *capacity = wanted;
    return fresh;
}
