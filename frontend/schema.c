/* SPDX-License-Identifier: Apache-2.0 */
/* Which attributes an operator has in which of its versions.
 *
 * An attribute that no version of an operator knows would be read by nobody, and the model computed
 * without it. So it is an error, as in onnx.checker and onnxruntime.
 *
 * A row's text is a list of NAME:KIND[@[FIRST]-[LAST]], separated by blanks: the operator sets of
 * the domain that know the attribute; all of them where none are given. */
#include "frontend/frontend_internal.h"

#include <stdlib.h>
#include <string.h>

static const struct schema {
    const char *domain;
    const char *op;
    const char *attributes;
} table[] = {
#define UL_SCHEMA(domain, op, attributes) {domain, op, attributes},
#include "frontend/schemas.def"
#undef UL_SCHEMA
};

/* By AttributeProto.type: the names of types in the table and in messages. */
static const struct {
    const char *name;
    const char *text;
} kinds[] = {{"", ""},
             {"float", "a float"},
             {"int", "an integer"},
             {"string", "a string"},
             {"tensor", "a tensor"},
             {"graph", "a graph"},
             {"floats", "a list of floats"},
             {"ints", "a list of integers"},
             {"strings", "a list of strings"},
             {"tensors", "a list of tensors"},
             {"graphs", "a list of graphs"},
             {"sparse", "a sparse tensor"},
             {"", ""},
             {"type", "a type"}};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static const struct schema *find_schema(const char *domain, const char *op)
{
    size_t begin = 0, end = sizeof table / sizeof *table;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        int order = strcmp(table[middle].domain, domain);
        if (order == 0)
            order = strcmp(table[middle].op, op);
        if (order == 0)
            return &table[middle];
        if (order < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return NULL;
}

struct piece {
    int kind;
    int64_t first, last;
};

/* Finds the next piece of the text that has the name; false where there is none. */
static bool next_piece(const char **text, const char *name, struct piece *piece)
{
    size_t length = strlen(name);
    while (**text != '\0') {
        const char *at = *text;
        *text += strcspn(at, " ");
        *text += strspn(*text, " ");
        if (strncmp(at, name, length) != 0 || at[length] != ':')
            continue;
        at += length + 1;
        size_t kind_length = strcspn(at, "@ ");
        *piece = (struct piece){.last = INT64_MAX};
        while (piece->kind < KIND_COUNT && (strlen(kinds[piece->kind].name) != kind_length ||
                                            strncmp(kinds[piece->kind].name, at, kind_length) != 0))
            piece->kind++;
        UL_ASSERT(piece->kind < KIND_COUNT);
        at += kind_length;
        if (*at != '@')
            return true;
        char *end = NULL;
        piece->first = at[1] == '-' ? 0 : strtoll(at + 1, &end, 10);
        at = at[1] == '-' ? at + 1 : end;
        UL_ASSERT(*at == '-');
        if (at[1] >= '0' && at[1] <= '9')
            piece->last = strtoll(at + 1, NULL, 10);
        return true;
    }
    return false;
}

/* "up to 6", "2 to 10", "28 and newer". */
static const char *sets_text(struct ul_arena *arena, const struct piece *piece)
{
    if (piece->first == 0)
        return ul_arena_printf(arena, "up to %lld", (long long)piece->last);
    if (piece->last == INT64_MAX)
        return ul_arena_printf(arena, "%lld and newer", (long long)piece->first);
    return ul_arena_printf(arena, "%lld to %lld", (long long)piece->first, (long long)piece->last);
}

const char *ul_schema_wrong(const struct ul_old_node *node, const char *name, int type)
{
    const struct schema *schema = find_schema(node->domain, node->op);
    struct ul_arena *scratch = node->builder->scratch;
    struct piece piece;
    const char *elsewhere = NULL;
    if (schema == NULL || node->version == 0)
        return NULL;
    for (const char *text = schema->attributes; next_piece(&text, name, &piece);) {
        bool holds = piece.first <= node->version && node->version <= piece.last;
        if (holds && (type == piece.kind || type <= 0 || type >= KIND_COUNT))
            return NULL; /* the caller says more about a type that does not exist */
        if (holds)
            return ul_arena_printf(scratch, "is %s, not %s", kinds[type].text,
                                   kinds[piece.kind].text);
        elsewhere = sets_text(scratch, &piece);
    }
    const char *set = ul_arena_printf(scratch, "operator set %lld%s%s", (long long)node->version,
                                      node->domain[0] == '\0' ? "" : " of ", node->domain);
    if (elsewhere != NULL)
        return ul_arena_printf(scratch,
                               "is none that %s has in %s, but in %s; export the model again, or "
                               "without the attribute",
                               node->op, set, elsewhere);
    return ul_arena_printf(scratch,
                           "is none that %s has in %s or any other; export the model "
                           "without it",
                           node->op, set);
}
