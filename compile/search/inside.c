/* SPDX-License-Identifier: Apache-2.0 */
/* Light work inside products that a budget asks for: alternatives of a program that trains, in
 * which the backward pass computes some light results as it reads them (passes/memory/inside.c).
 *
 * Problem: choosing them is a search over programs, and each program has to be lowered and planned
 * to be judged. Method: the program with all of them inside shows how much more time each takes;
 * those whose kernels would form sums in another order are left out. The others are sorted by the
 * bytes saved for their time. The first quarter of them, and all, are alternatives, whose plans
 * join the ladder at small budgets; for larger ones recomputation takes less time. What is tried
 * does not depend on the budget.
 *
 *      bytes a nanosecond:    a 90   b 70   c 20   d 5            a            a, b, c, d */
#include "codegen/program/unsplit.h"
#include "compile/search/alternatives.h"
#include "ir/view.h"

#include <stdlib.h>

enum { PARTS = 4 }; /* the best 1/PARTS of them, then all */

/* A light result that could be computed inside. */
struct candidate {
    const char *name;
    double gain; /* bytes for each additional nanosecond */
    uint32_t index;
};

struct inside {
    struct ul_alternatives *alternatives;
    struct ul_arena arena; /* for the search, freed after it */
    struct ul_inside_sites found;
    struct ul_graph graph;      /* with all of them inside */
    struct ul_program *program; /* its program */
    struct ul_unsplit before, after;
    struct candidate *candidates; /* the best first */
    uint32_t count;
};

/* ---- Candidates ---- */

/* Builds the program with all candidates inside, whatever the order of its sums. */
static enum ul_status build_all(struct inside *inside)
{
    struct ul_compile *compile = inside->alternatives->compile;
    struct ul_program_options options = compile->program->options;
    struct ul_texts all = {.count = 0};
    for (uint32_t i = 0; i < inside->found.count; i++)
        ul_texts_add(&inside->arena, &all, inside->found.sites[i].name);
    ul_graph_copy(&inside->graph, &inside->arena, &compile->graph);
    UL_TRY(ul_compile_move_inside(compile, &inside->graph, &all, &compile->diag));
    UL_TRY(ul_program_build(&inside->arena, &inside->graph, &options, &inside->program,
                            &compile->diag));
    ul_unsplit_init(&inside->before, &inside->arena, compile->program);
    ul_unsplit_init(&inside->after, &inside->arena, inside->program);
    return UL_OK;
}

/* How much more time the readers take; false: one of them would form its sums in another order. */
static bool find_cost(const struct inside *inside, const struct ul_inside_site *site,
                      uint64_t *cost)
{
    const struct ul_program *after = inside->program;
    const struct ul_program *before = inside->before.program;
    *cost = 0;
    for (uint32_t r = 0; r < site->reader_count; r++) {
        ul_node_id last = ul_inside_last(&inside->graph, site->readers[r]);
        uint32_t from = ul_unsplit_step(&inside->before, &inside->graph, last);
        uint32_t to = ul_unsplit_step(&inside->after, &inside->graph, last);
        if (from == UL_NONE || to == UL_NONE || after->steps[to].kind != UL_STEP_KERNEL ||
            !ul_unsplit_has_orders(&inside->before, &inside->graph, last,
                                   after->kernels[after->steps[to].kernel].sum_orders))
            return false;
        uint64_t old = before->problem->steps[from].alternatives[0].cost;
        uint64_t new = after->problem->steps[to].alternatives[0].cost;
        *cost += new > old ? new - old : 0;
    }
    return true;
}

static int by_gain(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->gain != y->gain)
        return x->gain > y->gain ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static enum ul_status find_candidates(struct inside *inside)
{
    struct ul_compile *compile = inside->alternatives->compile;
    ul_compile_find_inside(compile, &inside->arena, &inside->found);
    if (inside->found.count == 0)
        return UL_OK;
    UL_TRY(build_all(inside));
    inside->candidates = UL_NEW_ARRAY(&inside->arena, struct candidate, inside->found.count);
    for (uint32_t i = 0; i < inside->found.count; i++) {
        const struct ul_inside_site *site = &inside->found.sites[i];
        uint64_t cost, bytes = ul_value_bytes(&compile->graph, site->value);
        if (find_cost(inside, site, &cost))
            inside->candidates[inside->count++] = (struct candidate){
                .name = site->name, .gain = (double)bytes / (double)(cost + 1), .index = i};
    }
    qsort(inside->candidates, inside->count, sizeof *inside->candidates, by_gain);
    return UL_OK;
}

/* ---- Alternatives ---- */

/* Tries the `count` best. */
static enum ul_status try_best(struct inside *inside, uint32_t count)
{
    struct ul_alternatives *alternatives = inside->alternatives;
    struct ul_alternative_form form = {.row_major = alternatives->items[0].form.row_major};
    UL_ASSERT(count > 0 && count <= inside->count);
    for (uint32_t i = 0; i < count; i++)
        ul_texts_add(&alternatives->compile->keep, &form.inside, inside->candidates[i].name);
    return ul_alternatives_add(alternatives, &form);
}

enum ul_status ul_alternatives_try_inside(struct ul_alternatives *alternatives)
{
    const struct ul_libraries *libraries = alternatives->compile->libraries;
    struct inside inside = {.alternatives = alternatives};
    if (libraries != NULL && !libraries->chosen_at_start)
        return UL_OK; /* products are its calls */
    ul_arena_init(&inside.arena);
    enum ul_status status = find_candidates(&inside);
    for (uint32_t part = PARTS; status == UL_OK && inside.count > 0 && part > 0; part /= PARTS) {
        uint32_t count = inside.count / part;
        status = try_best(&inside, count > 0 ? count : 1);
    }
    ul_arena_done(&inside.arena);
    return status;
}
