/* SPDX-License-Identifier: Apache-2.0 */
/* Partial execution: computes a chain of steps in pieces, one after the other, so that the large
 * values between its ends never exist whole.
 *
 * Problem: the first layers of a network for images hold a few values that are many times larger
 * than all others, and no order of steps makes them smaller. Method: what is asked for (the option
 * --split, or what the driver tries under a budget) names a chain, an axis and a number of pieces;
 * split_chain.c finds the chain, split_needed.c what each piece needs, split_build.c makes the
 * pieces. It is the last pass, since groups and views are what a piece copies.
 * Left undone: values of the chain that are also needed outside; pieces of pieces. */
#include "passes/memory/split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum ul_status fail(struct ul_pass *pass, const char *text)
{
    return ul_diag_set(pass->diag, UL_USAGE,
                       "%s: expected FIRST..LAST:AXIS:COUNT, names of nodes or of what they make, "
                       "batch or rows or an axis, and 2 pieces or more",
                       ul_quote(pass->scratch, text));
}

/* Names may hold dots: the two are told apart at the first place that gives two known names. */
static bool find_ends(struct ul_pass *pass, const char *names, struct ul_split *split)
{
    char *copy = ul_arena_copy_string(pass->scratch, names);
    for (char *at = strstr(copy, ".."); at != NULL; at = strstr(at + 1, "..")) {
        *at = '\0';
        split->first = ul_edit_find_node(pass->graph, copy);
        split->last = ul_edit_find_node(pass->graph, at + 2);
        *at = '.';
        if (split->first != UL_NONE && split->last != UL_NONE)
            return true;
    }
    return false;
}

/* Reads from the end, since names may hold colons. */
static enum ul_status read_split(struct ul_pass *pass, const char *text, struct ul_split *split)
{
    *split = (struct ul_split){.text = text};
    char *names = ul_arena_copy_string(pass->scratch, text);
    char *count = strrchr(names, ':');
    if (count == NULL)
        return fail(pass, text);
    *count++ = '\0';
    char *axis = strrchr(names, ':');
    if (axis == NULL)
        return fail(pass, text);
    *axis++ = '\0';
    char *end;
    errno = 0;
    split->axis = axis;
    split->piece_count = strtoll(count, &end, 10);
    if (end == count || *end != '\0' || errno != 0 || split->piece_count < 2 ||
        split->piece_count > UL_LIMIT_NODE_INPUTS)
        return fail(pass, text);
    if (!find_ends(pass, names, split))
        return ul_diag_set(pass->diag, UL_USAGE,
                           "%s: the model has no two nodes of these names after simplification",
                           ul_quote(pass->scratch, text));
    return UL_OK;
}

enum ul_status ul_pass_split(struct ul_pass *pass)
{
    for (uint32_t i = 0; i < pass->options->split_count; i++) {
        struct ul_split split;
        struct ul_split_chain chain;
        UL_TRY(read_split(pass, pass->options->splits[i], &split));
        ul_split_cut_ends(pass->graph, &split);
        UL_TRY(ul_split_find_chain(pass, &split, &chain));
        UL_TRY(ul_split_set_axis(pass, &chain));
        UL_TRY(ul_split_build(pass, &chain));
    }
    return UL_OK;
}
