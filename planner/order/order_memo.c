/* SPDX-License-Identifier: Apache-2.0 */
/* Remembers the results of runs.
 *
 * Problem: a compile searches orders for many programs of one model, and most of their graphs, or
 * of the graphs inside their loops, are the same to the byte. Method: a run without a deadline
 * depends only on its graph and its limits, so their hash finds its result. Left undone: parts of
 * graphs that are equal; results are looked up one by one. */
#include "planner/order/order.h"

#include <string.h>

struct result {
    char key[65];
    struct ul_order_run run; /* its graph is gone */
};

struct ul_order_memo {
    struct ul_arena *arena;
    struct result *results;
    uint32_t count, capacity;
};

struct ul_order_memo *ul_order_memo_new(struct ul_arena *arena)
{
    struct ul_order_memo *memo = UL_NEW(arena, struct ul_order_memo);
    memo->arena = arena;
    return memo;
}

static void put(struct ul_text *text, const void *items, uint64_t count, size_t size_bytes)
{
    uint64_t length = items != NULL ? count * size_bytes : 0;
    ul_text_put_bytes(text, &length, sizeof length);
    if (length > 0)
        ul_text_put_bytes(text, items, length);
}

/* The hash of everything that a run depends on. */
static void key_make(const struct ul_order_run *run, char key[65])
{
    const struct ul_solve_graph *graph = run->graph;
    uint32_t n = graph->node_count;
    const uint64_t numbers[] = {n,
                                graph->base_bytes,
                                run->method,
                                run->enough_bytes,
                                run->lower_bytes,
                                run->effort.work,
                                run->effort.work_limit,
                                run->effort.seed};
    struct ul_arena scratch;
    struct ul_text text;
    ul_arena_init(&scratch);
    ul_text_init(&text, &scratch);
    put(&text, numbers, sizeof numbers / sizeof *numbers, sizeof *numbers);
    put(&text, graph->size_bytes, n, sizeof *graph->size_bytes);
    put(&text, graph->working_bytes, n, sizeof *graph->working_bytes);
    put(&text, graph->in_place, n, sizeof *graph->in_place);
    put(&text, graph->order, n, sizeof *graph->order);
    put(&text, graph->input_first, (uint64_t)n + 1, sizeof *graph->input_first);
    put(&text, graph->inputs, graph->input_first[n], sizeof *graph->inputs);
    ul_hash_hex(text.data, text.length, key);
    ul_arena_done(&scratch);
}

static const struct result *find(const struct ul_order_memo *memo, const char key[65])
{
    for (uint32_t i = 0; i < memo->count; i++)
        if (strcmp(memo->results[i].key, key) == 0)
            return &memo->results[i];
    return NULL;
}

static void add(struct ul_order_memo *memo, const char key[65], const struct ul_order_run *run)
{
    UL_GROW(memo->arena, memo->results, memo->count, memo->capacity);
    struct result *result = &memo->results[memo->count++];
    memcpy(result->key, key, sizeof result->key);
    result->run = *run;
    result->run.graph = NULL;
    result->run.order =
        ul_arena_copy(memo->arena, run->order, run->graph->node_count * sizeof *run->order);
}

void ul_order_memo_run(struct ul_order_memo *memo, struct ul_arena *arena, struct ul_order_run *run)
{
    const struct ul_solve_graph *graph = run->graph;
    char key[65];
    if (memo == NULL || run->effort.deadline_seconds != 0) {
        ul_order_run(arena, run);
        return;
    }
    key_make(run, key);
    const struct result *known = find(memo, key);
    if (known == NULL) {
        ul_order_run(arena, run);
        add(memo, key, run);
        return;
    }
    *run = known->run;
    run->graph = graph;
    run->order = ul_arena_copy(arena, run->order, graph->node_count * sizeof *run->order);
}
