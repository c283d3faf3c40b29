/* SPDX-License-Identifier: Apache-2.0 */
/* Every array of an arena moves whenever an element is added (from 64 on, at each 64th part), and
 * the place that it left is filled with what is no index, pointer or number of anything: an
 * expression or a pointer that outlives a growth ends the program or changes what it prints, and
 * not by luck of the number of elements. A write to such a place is found when the arena is reset.
 *
 *     graph->values[add_value(graph)]    the base may be read before the call moves the array
 *
 * Linked into a program with --wrap for the functions below. With the address sanitizer a place
 * that was left is freed, so that it names the expression. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum { FILL = 0xdb };

struct array {
    struct array *next, **link; /* in the list of its arena */
    size_t size_bytes;
    bool left;                 /* nobody may touch its elements any more */
    unsigned char magic[7];    /* right in front of the elements: MAGIC */
    unsigned char elements[1]; /* as many as fit into size_bytes */
};

static const unsigned char MAGIC[7] = "moving";

/* The arrays of each arena that has some. */
static struct region {
    const struct ul_arena *arena; /* NULL: of none */
    struct array *arrays;
} regions[64];

void __real_ul_arena_reset(struct ul_arena *arena);
void __real_ul_arena_done(struct ul_arena *arena);
void *__wrap_ul_arena_grow(struct ul_arena *arena, const void *old, size_t element_bytes,
                           uint32_t count, uint32_t *capacity);
void __wrap_ul_arena_reset(struct ul_arena *arena);
void __wrap_ul_arena_done(struct ul_arena *arena);

static struct region *find_region(const struct ul_arena *arena)
{
    for (uint32_t i = 0; i < sizeof regions / sizeof *regions; i++)
        if (regions[i].arena == arena)
            return &regions[i];
    return NULL;
}

static void *new_array(const struct ul_arena *arena, size_t size_bytes)
{
    struct region *region = find_region(arena);
    if (region == NULL)
        region = find_region(NULL);
    UL_ASSERT(region != NULL);
    region->arena = arena;
    struct array *array = calloc(1, offsetof(struct array, elements) + size_bytes);
    UL_ASSERT(array != NULL && offsetof(struct array, elements) % 16 == 0);
    *array =
        (struct array){.next = region->arrays, .link = &region->arrays, .size_bytes = size_bytes};
    memcpy(array->magic, MAGIC, sizeof MAGIC);
    if (array->next != NULL)
        array->next->link = &array->next;
    region->arrays = array;
    return array->elements;
}

static void drop(struct array *array)
{
    for (size_t i = 0; array->left && i < array->size_bytes; i++) {
        if (array->elements[i] == FILL)
            continue;
        fputs("moving: an array was written to after it had moved\n", stderr);
        abort();
    }
    *array->link = array->next;
    if (array->next != NULL)
        array->next->link = array->link;
    free(array);
}

static void leave(void *elements)
{
    struct array *array =
        (struct array *)(void *)((unsigned char *)elements - offsetof(struct array, elements));
    if (memcmp(array->magic, MAGIC, sizeof MAGIC) != 0)
        return; /* an array of one size, which the arena made */
#ifdef __SANITIZE_ADDRESS__
    drop(array);
#else
    array->left = true;
    memset(array->elements, FILL, array->size_bytes);
#endif
}

static void drop_all(const struct ul_arena *arena)
{
    struct region *region = find_region(arena);
    if (region == NULL)
        return;
    while (region->arrays != NULL)
        drop(region->arrays);
    region->arena = NULL;
}

void __wrap_ul_arena_reset(struct ul_arena *arena)
{
    drop_all(arena);
    __real_ul_arena_reset(arena);
}

void __wrap_ul_arena_done(struct ul_arena *arena)
{
    drop_all(arena);
    __real_ul_arena_done(arena);
}

void *__wrap_ul_arena_grow(struct ul_arena *arena, const void *old, size_t element_bytes,
                           uint32_t count, uint32_t *capacity)
{
    uint32_t wanted = count + 1 + count / 64;
    void *fresh = new_array(arena, element_bytes * wanted);
    if (count > 0)
        memcpy(fresh, old, element_bytes * count);
    if (old != NULL)
        leave((void *)(uintptr_t)old);
    *capacity = wanted;
    return fresh;
}
