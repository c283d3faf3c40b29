/* The methods of order, on each part of a graph by itself.
 *
 * Problem: an order of every node once with the least peak, and a proof where there is one.
 * Method: a node that every other one comes before or after is a waist: all orders pass through
 * the same set there, so what lies between two waists is a problem of its own, and the peak is the
 * largest of theirs. Every part starts from the published order; then the method that is asked for
 * works on the parts. Parts whose published order is good enough keep it. */
#include "planner/model/method.h"
#include "planner/order/order.h"
#include "planner/order/order_internal.h"

#include <string.h>

enum { WORK_PER_NODE = 1 << 14 };
static const uint64_t default_work = (uint64_t)1 << 28;

/* ---- Parts ---- */

/* Marks the positions where all orders have the same set done: before and after each waist. A
 * node is one if every earlier one has a user no later than it (so that a path leads there), and
 * every later one an input no earlier. */
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
    part->peak_bytes = ul_order_core_profile(&r->scratch, &part->core, part->order, NULL, NULL);
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
    ul_order_core_profile(&r->scratch, &r->core, order, before_bytes, NULL);
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

/* ---- The whole ---- */

/* Every part that the peak allows keeps its published order. */
static void result_make(struct ul_order_runner *r)
{
    const struct ul_order_part *largest = ul_order_largest_part(r);
    uint32_t n = r->core.node_count;
    uint32_t *order = UL_NEW_ARRAY(&r->scratch, uint32_t, n);
    uint64_t first_peak_bytes = 0;
    for (uint32_t p = 0; p < r->part_count; p++) {
        struct ul_order_part *part = &r->parts[p];
        bool keep = part->first_peak_bytes <= largest->peak_bytes;
        if (part->first_peak_bytes > first_peak_bytes) {
            first_peak_bytes = part->first_peak_bytes;
            r->run->method_name = keep ? ul_order_published : part->method;
        }
        for (uint32_t i = 0; i < part->core.node_count; i++)
            order[part->begin + i] = part->core.nodes[keep ? i : part->order[i]];
    }
    ul_order_core_expand(&r->scratch, r->run->graph, &r->core, order, r->run->order);
}

void ul_order_run(struct ul_arena *arena, struct ul_order_run *run)
{
#define RUN(constant, name, run, ...) run,
    static ul_order_method *const methods[] = {UL_ORDER_METHODS(RUN)};
#undef RUN
    UL_ASSERT(run->method < UL_ORDER_COUNT);
    struct ul_order_runner r = {.run = run, .lower_bytes = run->lower_bytes};
    uint32_t n = run->graph->node_count;
    uint64_t cost;
    r.effort.work_limit =
        run->work_limit != 0 ? run->work_limit : default_work + (uint64_t)n * WORK_PER_NODE;
    r.effort.deadline_seconds = run->deadline_seconds;
    ul_arena_init(&r.scratch);
    run->order = ul_arena_copy(arena, run->graph->order, n * sizeof *run->order);
    run->method_name = ul_order_published;
    run->why_not = NULL;
    bool valid = ul_solve_replay(run->graph, run->order, n, &run->peak_bytes, &cost);
    UL_ASSERT(valid);
    ul_order_core_make(&r.scratch, run->graph, run->graph->order, &r.core);
    parts_make(&r);
    methods[run->method](&r);
    if (r.part_count > 0) {
        uint64_t published = run->peak_bytes;
        result_make(&r);
        valid = ul_solve_replay(run->graph, run->order, n, &run->peak_bytes, &cost);
        UL_ASSERT(valid && run->peak_bytes <= published);
        if (run->peak_bytes < published && run->method_name == ul_order_published)
            run->method_name = run->method == UL_ORDER_BEST
                                   ? "published order, sources late"
                                   : ul_method_get(UL_METHOD_ORDER, run->method)->keeps_file;
    }
    run->lower_bytes = r.lower_bytes;
    run->work = r.effort.work;
    run->stopped_by_time =
        run->peak_bytes > r.lower_bytes && ul_effort_spent(&r.effort) && r.effort.stopped_by_time;
    ul_arena_done(&r.scratch);
}
