/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes that options leave open within a range: those of --dim by their names, those of --shape
 * by input and axis. */
#include "compile/options/size_list.h"

#include "compile/compile.h"

#include <ctype.h>
#include <string.h>

/* ---- the list ---- */

struct list {
    struct ul_arena *arena;
    struct ul_program_size *items;
    uint32_t count, capacity;
};

/* Words that C, C++ or their headers use for something else; none of them has a capital. */
static const char *const taken[] = {
    "alignas",  "alignof",      "and",      "asm",       "assert",    "auto",      "bitand",
    "bitor",    "bool",         "break",    "case",      "catch",     "char",      "class",
    "compl",    "concept",      "const",    "consteval", "constexpr", "constinit", "continue",
    "decltype", "default",      "delete",   "do",        "double",    "else",      "enum",
    "errno",    "explicit",     "export",   "extern",    "false",     "float",     "for",
    "friend",   "goto",         "if",       "inline",    "int",       "linux",     "long",
    "mutable",  "new",          "noexcept", "not",       "nullptr",   "operator",  "or",
    "private",  "protected",    "public",   "register",  "requires",  "restrict",  "return",
    "short",    "signed",       "sizeof",   "static",    "struct",    "switch",    "template",
    "this",     "thread_local", "throw",    "true",      "try",       "typedef",   "typeid",
    "typename", "typeof",       "union",    "unix",      "unsigned",  "using",     "virtual",
    "void",     "volatile",     "while",    "xor"};

/* A name may be a member of a struct: small letters, or one capital, and no word of the language.
 * A complex number's I is a macro. */
static bool is_identifier(const char *name)
{
    enum { MAX_LENGTH = 32 };
    size_t length = strlen(name);
    if (length == 0 || length > MAX_LENGTH || strstr(name, "__") != NULL ||
        strncmp(name, "ul_", 3) == 0 || strncmp(name, "std", 3) == 0 ||
        strncmp(name, "co_", 3) == 0)
        return false;
    if (length == 1)
        return isalpha((unsigned char)name[0]) && name[0] != 'I';
    for (size_t i = 0; i < length; i++)
        if (!islower((unsigned char)name[i]) &&
            (i == 0 || !(isdigit((unsigned char)name[i]) || name[i] == '_')))
            return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(name, taken[i]) == 0)
            return false;
    return strcmp(name + length - 2, "_t") != 0 && strcmp(name + length - 2, "eq") != 0 &&
           (length < 5 || strcmp(name + length - 5, "_cast") != 0);
}

static const char *identifier(const struct list *list, const char *name)
{
    bool is_free = is_identifier(name);
    for (uint32_t i = 0; i < list->count; i++)
        is_free = is_free && strcmp(list->items[i].identifier, name) != 0;
    return is_free ? name : ul_arena_printf(list->arena, "size_%u", list->count);
}

static void add(struct list *list, const char *name, const struct ul_named_size *from, uint32_t d)
{
    UL_GROW(list->arena, list->items, list->count, list->capacity);
    list->items[list->count] = (struct ul_program_size){.name = name,
                                                        .identifier = identifier(list, name),
                                                        .low = from->dims[d] - from->spans[d],
                                                        .high = from->dims[d],
                                                        .step = from->steps[d]};
    if (from->value_count > 0) {
        list->items[list->count].low = from->values[0];
        list->items[list->count].step = 1;
        list->items[list->count].value_count = from->value_count;
        list->items[list->count].values = from->values;
    }
    list->count++;
}

static void add_all(struct list *list, const struct ul_named_sizes *named, bool has_axes)
{
    for (uint32_t i = 0; i < named->count; i++) {
        const struct ul_named_size *item = &named->items[i];
        for (uint32_t d = 0; d < item->rank; d++)
            if (item->spans[d] > 0 || item->value_count > 0)
                add(list,
                    has_axes ? ul_arena_printf(list->arena, "%s_%u", item->name, d) : item->name,
                    item, d);
    }
}

void ul_size_list(struct ul_compile *compile, struct ul_program_size **sizes, uint32_t *count)
{
    struct list list = {.arena = &compile->keep};
    add_all(&list, &compile->options.dims, false);
    add_all(&list, &compile->options.shapes, true);
    *sizes = list.items;
    *count = list.count;
}

/* ---- a point ---- */

static void set_all(struct ul_arena *arena, struct ul_named_sizes *named, const int64_t **point)
{
    named->items = ul_arena_copy(arena, named->items, named->count * sizeof *named->items);
    named->capacity = named->count;
    for (uint32_t i = 0; i < named->count; i++)
        for (uint32_t d = 0; d < named->items[i].rank; d++) {
            if (named->items[i].spans[d] > 0 || named->items[i].value_count > 0)
                named->items[i].dims[d] = *(*point)++;
            named->items[i].spans[d] = named->items[i].steps[d] = named->items[i].value_count = 0;
        }
}

void ul_size_set(struct ul_compile *compile, const int64_t *point)
{
    set_all(&compile->keep, &compile->options.dims, &point);
    set_all(&compile->keep, &compile->options.shapes, &point);
}

/* ---- pieces ---- */

bool ul_size_piece_has(const struct ul_program_size *piece, uint32_t size_count,
                       const int64_t *point)
{
    for (uint32_t s = 0; s < size_count; s++)
        if (point[s] < piece[s].low || point[s] > piece[s].high)
            return false;
    return true;
}

void ul_size_piece_nearest(const struct ul_program_size *piece, uint32_t size_count,
                           const int64_t *point, int64_t *nearest)
{
    for (uint32_t s = 0; s < size_count; s++)
        nearest[s] = point[s] < piece[s].low    ? piece[s].low
                     : point[s] > piece[s].high ? piece[s].high
                                                : point[s];
    UL_ASSERT(ul_size_piece_has(piece, size_count, nearest));
}
