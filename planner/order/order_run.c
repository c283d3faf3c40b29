/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the methods of order on each part of a graph.
 *
 * Problem: an order of every node once with the minimum peak, and a proof where there is one.
 * Method: a node is a waist if every other node comes before or after it in all orders. All orders
 * pass through the same set there, so the part between two waists is a problem of its own, and the
 * peak is the largest of theirs. Every part starts from the published order. Then the method that
 * is named works on the parts, or all methods in turn: cheap ones on every part that is too large,
 * the others on the part with the largest peak, in rounds that cost ever more, until no peak is
 * above what is proven. Parts whose published order is good enough keep it. A named method that
 * makes orders from nothing orders every part, and its orders are kept even if they are worse. */
#include "planner/model/method.h"
#include "planner/order/order.h"
#include "planner/order/order_internal.h"

#include <string.h>

enum { WORK_PER_NODE = 1 << 14 };

/* ---- Parts ---- */

/* Marks the positions where all orders have the same set done: before and after each waist. A node
 * is one if every earlier one has a user no later than it (so that a path leads there), and every
 * later one an input no earlier. */
static void waists_find(struct ul_order_runner *r, uint8_t *waist)
{
    const struct ul_order_core *c = &r->core;
    uint32_t n = c->node_count;
    uint32_t *first_succ = UL_NEW_ARRAY(&r->scratch, uint32_t, n);
    uint32_t *last_pred = UL_NEW_ARRAY(&r->scratch, uint32_t, n); /* + 1 */
    memset(first_succ, 0xFF, n * sizeof *first_succ);
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t k = c->pred_first[v]; k < c->pred_first[v + 1]; k++) {
            uint32_t u = c->preds[k];
            first_succ[u] = v < first_succ[u] ? v : first_succ[u];
            last_pred[v] = u + 1 > last_pred[v] ? u + 1 : last_pred[v];
        }
    }
    uint32_t *later = UL_NEW_ARRAY(&r->scratch, uint32_t, (uint64_t)n + 1);
    later[n] = UINT32_MAX;
    for (uint32_t v = n; v-- > 0;)
        later[v] = last_pred[v] < later[v + 1] ? last_pred[v] : later[v + 1];
    uint32_t earlier = 0;
    for (uint32_t v = 0; v < n; v++) {
        if (earlier <= v && later[v + 1] >= v + 1)
            waist[v] = waist[v + 1] = 1;
        earlier = first_succ[v] > earlier ? first_succ[v] : earlier;
    }
}

static void part_add(struct ul_order_runner *r, struct ul_order_slicer *slicer, uint32_t begin,
                     uint32_t end, const uint64_t *before_bytes)
{
    UL_ASSERT(begin < end && end <= r->core.node_count);
    UL_GROW(&r->scratch, r->parts, r->part_count, r->part_capacity);
    struct ul_order_part *part = &r->parts[r->part_count++];
    part->begin = begin;
    part->method = ul_order_published;
    ul_order_slice(&r->scratch, slicer, begin, end, before_bytes[begin], &part->core);
    part->order = UL_NEW_ARRAY(&r->scratch, uint32_t, end - begin);
    for (uint32_t i = 0; i < end - begin; i++)
        part->order[i] = i;
    part->peak_bytes = ul_order_core_peak(&r->scratch, &part->core, part->order, NULL, NULL);
    part->first_peak_bytes = part->peak_bytes;
}

static void parts_make(struct ul_order_runner *r)
{
    uint32_t n = r->core.node_count;
    uint8_t *waist = ul_arena_alloc(&r->scratch, (uint64_t)n + 1);
    uint32_t *order = UL_NEW_ARRAY(&r->scratch, uint32_t, n);
    uint64_t *before_bytes = UL_NEW_ARRAY(&r->scratch, uint64_t, n);
    struct ul_order_slicer slicer;
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    ul_order_core_peak(&r->scratch, &r->core, order, before_bytes, NULL);
    ul_order_slicer_init(&r->scratch, &r->core, order, &slicer);
    waists_find(r, waist);
    waist[n] = 1;
    uint32_t begin = 0;
    for (uint32_t i = 1; i <= n; i++) {
        if (!waist[i])
            continue;
        part_add(r, &slicer, begin, i, before_bytes);
        begin = i;
    }
    UL_ASSERT(begin == n);
}

/* ---- Methods ---- */

#define WORD(constant, name, ...) {UL_TURN_NONE, NULL},
#define ROW(constant, name, run, turns, ...) {turns, run},
static const struct {
    unsigned turns;
    ul_order_method *run;
} rows[] = {UL_ORDER_METHODS(WORD, ROW)};
#undef ROW
#undef WORD

/* Whether the row runs in this turn: all that join, or the one that is named, which may have no
 * turn. */
static bool row_joins(const struct ul_order_runner *r, uint32_t row, enum ul_method_turn turn)
{
    unsigned turns = rows[row].turns;
    UL_ASSERT(turn == UL_TURN_FIRST || turn == UL_TURN_SEARCH);
    if (!r->is_named)
        return (turns & turn) != 0;
    return row == r->run->method && (turn == UL_TURN_FIRST) == ((turns & UL_TURN_FIRST) != 0);
}

static struct ul_order_part *largest_part(const struct ul_order_runner *r)
{
    struct ul_order_part *largest = NULL;
    for (uint32_t i = 0; i < r->part_count; i++) {
        if (largest == NULL || r->parts[i].peak_bytes > largest->peak_bytes)
            largest = &r->parts[i];
    }
    return largest;
}

static const char out_of_work[] =
    "it is out of work, or the graph is too large for it, before it finds or proves an order";

/* The part in the order of the method that is named, even if that is worse than the published
 * order. */
static void part_own(struct ul_order_runner *r, struct ul_order_part *part)
{
    part->peak_bytes = UINT64_MAX;
    rows[r->run->method].run(r, part, 0);
    part->is_own = part->peak_bytes != UINT64_MAX;
    if (part->is_own)
        return;
    part->peak_bytes = part->first_peak_bytes;
    r->run->why_not = out_of_work;
}

/* Whether the part gets what comes next: a method that is named is asked at least once. */
static bool is_asked(const struct ul_order_runner *r, const struct ul_order_part *part,
                     uint32_t round)
{
    return (r->is_named && round == 0) ||
           (ul_order_is_open(r, part) && !ul_effort_spent(&r->run->effort));
}

/* Runs the cheap methods on every part that is too large. */
static void cheap_run(struct ul_order_runner *r)
{
    for (uint32_t i = 0; i < r->part_count; i++) {
        struct ul_order_part *part = &r->parts[i];
        if (!ul_order_is_open(r, part))
            continue;
        r->run->effort.work += part->core.pred_first[part->core.node_count];
        for (uint32_t m = 0; m < UL_ORDER_COUNT; m++) {
            if (row_joins(r, m, UL_TURN_FIRST))
                rows[m].run(r, part, 0);
        }
    }
}

static void part_search(struct ul_order_runner *r, struct ul_order_part *part)
{
    for (uint32_t round = 0; round <= UL_ORDER_ROUNDS; round++) {
        for (uint32_t m = 0; m < UL_ORDER_COUNT; m++) {
            if (!row_joins(r, m, UL_TURN_SEARCH))
                continue;
            if (!is_asked(r, part, round) || !rows[m].run(r, part, round))
                return;
        }
    }
}

/* Works on the part with the largest peak, again and again. */
static void largest_first(struct ul_order_runner *r)
{
    for (uint32_t i = 0; i < r->part_count; i++) {
        struct ul_order_part *part = largest_part(r);
        if (!is_asked(r, part, i))
            return;
        part_search(r, part);
        if (ul_order_is_open(r, part))
            return; /* the peak stays here, whatever the others do */
    }
}

/* A method that is named for its proof, and neither proves nor finds anything, says so. */
static void methods_run(struct ul_order_runner *r)
{
    bool makes_own = r->is_named && (rows[r->run->method].turns & UL_TURN_OWN) != 0;
    for (uint32_t i = 0; i < r->part_count && makes_own; i++)
        part_own(r, &r->parts[i]);
    if (!makes_own)
        cheap_run(r);
    largest_first(r);
    const struct ul_order_part *part = largest_part(r);
    if (r->is_named && part != NULL && !part->is_proven && part->method == ul_order_published &&
        ul_method_get(UL_METHOD_ORDER, r->run->method)->proves != NULL)
        r->run->why_not = out_of_work;
}

/* ---- The whole ---- */

/* Every part keeps its published order if the peak allows it. */
static void result_make(struct ul_order_runner *r)
{
    const struct ul_order_part *largest = largest_part(r);
    uint32_t n = r->core.node_count;
    uint32_t *order = UL_NEW_ARRAY(&r->scratch, uint32_t, n);
    uint64_t first_peak_bytes = 0;
    for (uint32_t p = 0; p < r->part_count; p++) {
        struct ul_order_part *part = &r->parts[p];
        bool keep = part->first_peak_bytes <= largest->peak_bytes && !part->is_own;
        if (part->first_peak_bytes > first_peak_bytes) {
            first_peak_bytes = part->first_peak_bytes;
            r->run->method_name = keep ? ul_order_published : part->method;
        }
        for (uint32_t i = 0; i < part->core.node_count; i++)
            order[part->begin + i] = part->core.nodes[keep ? i : part->order[i]];
    }
    ul_order_core_expand(&r->scratch, r->run->graph, &r->core, order, r->run->order);
}

/* The name of the order's method where no part has one. */
static void result_name(const struct ul_order_runner *r, uint64_t published_bytes)
{
    struct ul_order_run *run = r->run;
    UL_ASSERT(r->is_named || run->peak_bytes <= published_bytes);
    if (run->method_name != ul_order_published)
        return;
    if (r->is_named)
        run->method_name = ul_method_get(UL_METHOD_ORDER, run->method)->keeps_file;
    else if (run->peak_bytes < published_bytes)
        run->method_name = "file: published order, sources late";
}

static void parts_run(struct ul_order_run *run)
{
    struct ul_order_runner r = {
        .run = run, .lower_bytes = run->lower_bytes, .is_named = run->method != UL_ORDER_BEST};
    uint32_t n = run->graph->node_count;
    uint64_t cost, published_bytes = run->peak_bytes;
    ul_arena_init(&r.scratch);
    ul_order_core_make(&r.scratch, run->graph, run->graph->order, &r.core);
    parts_make(&r);
    methods_run(&r);
    if (r.part_count > 0) {
        result_make(&r);
        bool valid = ul_solve_replay(run->graph, run->order, n, &run->peak_bytes, &cost);
        UL_ASSERT(valid);
    }
    result_name(&r, published_bytes);
    run->lower_bytes = r.lower_bytes;
    run->stopped_by_time = run->peak_bytes > r.lower_bytes && ul_effort_spent(&run->effort) &&
                           run->effort.stopped_by_time;
    ul_arena_done(&r.scratch);
}

void ul_order_run(struct ul_arena *arena, struct ul_order_run *run)
{
    UL_ASSERT(run->method < UL_ORDER_COUNT);
    uint32_t n = run->graph->node_count;
    uint64_t cost;
    if (run->effort.work_limit == 0)
        run->effort.work_limit = UL_WORK_GRAPH_ORDER + (uint64_t)n * WORK_PER_NODE;
    run->order = ul_arena_copy(arena, run->graph->order, n * sizeof *run->order);
    run->method_name = ul_order_published;
    run->why_not = NULL;
    bool valid = ul_solve_replay(run->graph, run->order, n, &run->peak_bytes, &cost);
    UL_ASSERT(valid);
    if (run->method != UL_ORDER_FILE)
        parts_run(run);
}
