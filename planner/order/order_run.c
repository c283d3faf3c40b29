/* The methods of order, on each part of a graph by itself.
 *
 * Problem: an order of every node once with the least peak, and a proof where there is one.
 * Method: a node that every other one comes before or after is a waist: all orders pass through
 * the same set there, so what lies between two waists is a problem of its own, and the peak is the
 * largest of theirs. Every part starts from the published order; then the part with the largest
 * peak is worked on, by ever more costly methods, until none is above what is proven. Parts whose
 * published order is good enough keep it. */
#include "planner/order/order.h"
#include "planner/order/order_internal.h"

#include <string.h>

enum { WORK_PER_NODE = 1 << 14 };
static const uint64_t default_work = (uint64_t)1 << 28;
static const char published_name[] = "published order";

struct segment {
    struct ul_order_core core;
    uint32_t begin;            /* its first position */
    uint32_t *order;           /* the best, of the core's nodes */
    uint64_t first_peak_bytes; /* of the published order */
    uint64_t peak_bytes;
    uint64_t lower_bytes;
    const char *method;
};

/* The limits of all, while a method has its turn within lower ones. */
struct turn {
    uint64_t work_limit;
    double deadline_seconds;
};

struct runner {
    struct ul_arena scratch;
    struct ul_order_run *run;
    struct ul_effort effort;
    struct ul_order_core core;
    struct segment *segments;
    uint32_t segment_count, segment_capacity;
    uint64_t lower_bytes; /* of all orders, so far */
};

/* ---- Parts ---- */

/* Marks the positions where all orders have the same set done: before and after each waist. A
 * node is one if every earlier one has a user no later than it (so that a path leads there), and
 * every later one an input no earlier. */
static void waists_find(struct runner *r, uint8_t *waist)
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

static void segment_add(struct runner *r, struct ul_order_slicer *slicer, uint32_t begin,
                        uint32_t end, const uint64_t *before_bytes)
{
    UL_ASSERT(begin < end && end <= r->core.node_count);
    UL_GROW(&r->scratch, r->segments, r->segment_count, r->segment_capacity);
    struct segment *segment = &r->segments[r->segment_count++];
    segment->begin = begin;
    segment->method = published_name;
    ul_order_slice(&r->scratch, slicer, begin, end, before_bytes[begin], &segment->core);
    segment->order = UL_NEW_ARRAY(&r->scratch, uint32_t, end - begin);
    for (uint32_t i = 0; i < end - begin; i++)
        segment->order[i] = i;
    segment->peak_bytes =
        ul_order_core_profile(&r->scratch, &segment->core, segment->order, NULL, NULL);
    segment->first_peak_bytes = segment->peak_bytes;
}

static void segments_make(struct runner *r)
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
        segment_add(r, &slicer, begin, i, before_bytes);
        begin = i;
    }
    UL_ASSERT(begin == n);
}

/* ---- Methods ---- */

static bool wants(const struct runner *r, enum ul_plan_order method)
{
    return r->run->method == UL_ORDER_BEST || r->run->method == method;
}

static uint64_t enough_bytes(const struct runner *r)
{
    return r->lower_bytes > r->run->enough_bytes ? r->lower_bytes : r->run->enough_bytes;
}

static bool open_segment(const struct runner *r, const struct segment *segment)
{
    return segment->peak_bytes > enough_bytes(r);
}

static void segment_offer(struct segment *segment, const uint32_t *order, const char *method)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t peak = ul_order_core_profile(&scratch, &segment->core, order, NULL, NULL);
    if (peak < segment->peak_bytes) {
        segment->peak_bytes = peak;
        segment->method = method;
        memcpy(segment->order, order, segment->core.node_count * sizeof *order);
    }
    ul_arena_done(&scratch);
}

/* An order of the reversed core, read from its end, is one of the part's. */
static void segment_offer_reversed(struct segment *segment, uint32_t *order, const char *method)
{
    uint32_t n = segment->core.node_count;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t node = order[i];
        order[i] = order[n - 1 - i];
        order[n - 1 - i] = node;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = n - 1 - order[i];
    segment_offer(segment, order, method);
}

static void segment_greedy(struct runner *r, struct segment *segment)
{
    struct ul_arena scratch;
    struct ul_order_core reversed;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, segment->core.node_count);
    r->effort.work += segment->core.pred_first[segment->core.node_count];
    if (wants(r, UL_ORDER_GREEDY)) {
        ul_order_greedy(&scratch, &segment->core, order);
        segment_offer(segment, order, "greedy");
        ul_order_core_reverse(&scratch, &segment->core, &reversed);
        ul_order_greedy(&scratch, &reversed, order);
        segment_offer_reversed(segment, order, "greedy, backwards");
    }
    if (wants(r, UL_ORDER_DFS)) {
        ul_order_depth_first(&scratch, &segment->core, order);
        segment_offer(segment, order, "depth-first");
    }
    ul_arena_done(&scratch);
}

/* Exact search with at most this many states, either way. */
static void segment_exact(struct runner *r, struct segment *segment, uint32_t state_limit,
                          bool backwards)
{
    struct ul_arena scratch;
    struct ul_order_core reversed;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, segment->core.node_count);
    if (r->lower_bytes > segment->lower_bytes)
        segment->lower_bytes = r->lower_bytes;
    if (backwards)
        ul_order_core_reverse(&scratch, &segment->core, &reversed);
    enum ul_order_outcome outcome =
        ul_order_downsets(&scratch, backwards ? &reversed : &segment->core, &r->effort, state_limit,
                          segment->peak_bytes, &segment->lower_bytes, order);
    if (outcome == UL_ORDER_IMPROVED && backwards)
        segment_offer_reversed(segment, order, "search over downsets");
    else if (outcome == UL_ORDER_IMPROVED)
        segment_offer(segment, order, "search over downsets");
    if (segment->lower_bytes > r->lower_bytes)
        r->lower_bytes = segment->lower_bytes;
    ul_arena_done(&scratch);
}

/* The cross-check, only where it is asked for. */
static void segment_ilp(struct runner *r, struct segment *segment)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order =
        ul_arena_copy(&scratch, segment->order, segment->core.node_count * sizeof *segment->order);
    if (r->lower_bytes > segment->lower_bytes)
        segment->lower_bytes = r->lower_bytes;
    ul_order_ilp(&scratch, &segment->core, &r->effort, segment->peak_bytes, &segment->lower_bytes,
                 order);
    segment_offer(segment, order, "integer program");
    if (segment->lower_bytes > r->lower_bytes)
        r->lower_bytes = segment->lower_bytes;
    ul_arena_done(&scratch);
}

static enum ul_order_outcome segment_beam(struct runner *r, struct segment *segment, uint32_t width,
                                          bool backwards)
{
    UL_ASSERT(width > 0);
    struct ul_arena scratch;
    struct ul_order_core reversed;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, segment->core.node_count);
    struct ul_order_beam_options options = {.width = width, .upper_bytes = segment->peak_bytes};
    if (backwards)
        ul_order_core_reverse(&scratch, &segment->core, &reversed);
    enum ul_order_outcome outcome = ul_order_beam(&scratch, backwards ? &reversed : &segment->core,
                                                  &r->effort, &options, order);
    if (outcome == UL_ORDER_IMPROVED && backwards)
        segment_offer_reversed(segment, order, "beam, backwards");
    else if (outcome == UL_ORDER_IMPROVED)
        segment_offer(segment, order, "beam");
    ul_arena_done(&scratch);
    return outcome;
}

/* Gives what follows one of `share` parts of the work and the time that are left. */
static struct turn turn_begin(struct runner *r, uint32_t share)
{
    UL_ASSERT(share > 0);
    struct ul_effort *e = &r->effort;
    struct turn whole = {.work_limit = e->work_limit, .deadline_seconds = e->deadline_seconds};
    e->work_limit = e->work + (e->work_limit - e->work) / share;
    if (e->deadline_seconds > 0) {
        double now = ul_clock_seconds();
        e->deadline_seconds = now + (e->deadline_seconds - now) / share;
    }
    return whole;
}

static void turn_end(struct runner *r, struct turn whole)
{
    r->effort.work_limit = whole.work_limit;
    r->effort.deadline_seconds = whole.deadline_seconds;
    r->effort.stopped_by_time = false; /* of the turn; the next look at the clock tells */
}

static void segment_windows(struct runner *r, struct segment *segment, uint32_t share)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order =
        ul_arena_copy(&scratch, segment->order, segment->core.node_count * sizeof *segment->order);
    uint64_t peak_bytes = segment->peak_bytes;
    struct turn whole = turn_begin(r, share);
    ul_order_windows(&segment->core, &r->effort, enough_bytes(r), order, &peak_bytes);
    turn_end(r, whole);
    segment_offer(segment, order, "windows");
    ul_arena_done(&scratch);
}

/* States that an exact search of the part may take: sets of large cores are large. */
static uint32_t states_max(const struct segment *segment, uint32_t wanted)
{
    enum { MEMORY_BYTES = 1 << 27, STATE_BYTES = 96 };
    uint32_t max = MEMORY_BYTES / (segment->core.node_count / 8 + STATE_BYTES);
    return wanted < max ? wanted : max;
}

/* Backwards for no more than forwards took, as long as it pays. */
static bool segment_beams(struct runner *r, struct segment *segment, uint32_t width,
                          bool *backwards_pays)
{
    uint64_t before = r->effort.work;
    if (segment_beam(r, segment, width, false) == UL_ORDER_PROVEN)
        return false;
    if (*backwards_pays && open_segment(r, segment) && !ul_effort_spent(&r->effort)) {
        uint64_t limit = r->effort.work_limit;
        uint64_t max = r->effort.work + (r->effort.work - before);
        r->effort.work_limit = max < limit ? max : limit;
        *backwards_pays = segment_beam(r, segment, width, true) == UL_ORDER_IMPROVED;
        r->effort.work_limit = limit;
    }
    return true;
}

/* One round, each method with the effort of its turn; whether another may help. */
static bool segment_round(struct runner *r, struct segment *segment, uint32_t states,
                          uint32_t width, bool *backwards_pays)
{
    enum { EXACT_SHARE = 8, BEAM_SHARE = 4 };
    for (int backwards = 0; backwards < 2 && wants(r, UL_ORDER_DP); backwards++) {
        struct turn whole = turn_begin(r, r->run->method == UL_ORDER_DP ? 1 : EXACT_SHARE);
        if (open_segment(r, segment) && !ul_effort_spent(&r->effort))
            segment_exact(r, segment, states_max(segment, states), backwards != 0);
        turn_end(r, whole);
    }
    bool more = open_segment(r, segment) && !ul_effort_spent(&r->effort);
    if (more && wants(r, UL_ORDER_BEAM)) {
        struct turn whole = turn_begin(r, r->run->method == UL_ORDER_BEAM ? 1 : BEAM_SHARE);
        more = segment_beams(r, segment, width, backwards_pays);
        turn_end(r, whole);
    }
    return more && open_segment(r, segment) && !ul_effort_spent(&r->effort);
}

static void segment_search(struct runner *r, struct segment *segment)
{
    enum { FIRST_STATES = 1 << 12, MAX_STATES = 1 << 20, FIRST_WIDTH = 8, FIRST_ROUNDS = 2 };
    bool backwards_pays = true;
    uint32_t width = FIRST_WIDTH;
    uint32_t rounds = 0;
    if (r->run->method == UL_ORDER_ILP)
        segment_ilp(r, segment);
    for (uint32_t states = FIRST_STATES; states <= MAX_STATES; states *= 4) {
        if (!segment_round(r, segment, states, width, &backwards_pays))
            return;
        bool costly = r->effort.work > r->effort.work_limit / 8;
        if ((++rounds >= FIRST_ROUNDS || costly) && wants(r, UL_ORDER_SEARCH))
            segment_windows(r, segment, 3);
        width *= 4;
    }
    if (wants(r, UL_ORDER_SEARCH) && open_segment(r, segment))
        segment_windows(r, segment, 1);
}

/* ---- The whole ---- */

static struct segment *largest_segment(struct runner *r)
{
    struct segment *largest = NULL;
    for (uint32_t i = 0; i < r->segment_count; i++) {
        if (largest == NULL || r->segments[i].peak_bytes > largest->peak_bytes)
            largest = &r->segments[i];
    }
    return largest;
}

/* Every part that the peak allows keeps its published order. */
static void result_make(struct runner *r)
{
    const struct segment *largest = largest_segment(r);
    uint32_t n = r->core.node_count;
    uint32_t *order = UL_NEW_ARRAY(&r->scratch, uint32_t, n);
    uint64_t first_peak_bytes = 0;
    for (uint32_t p = 0; p < r->segment_count; p++) {
        struct segment *segment = &r->segments[p];
        bool keep = segment->first_peak_bytes <= largest->peak_bytes;
        if (segment->first_peak_bytes > first_peak_bytes) {
            first_peak_bytes = segment->first_peak_bytes;
            r->run->method_name = keep ? published_name : segment->method;
        }
        for (uint32_t i = 0; i < segment->core.node_count; i++)
            order[segment->begin + i] = segment->core.nodes[keep ? i : segment->order[i]];
    }
    ul_order_core_expand(&r->scratch, r->run->graph, &r->core, order, r->run->order);
}

static void segments_search(struct runner *r)
{
    for (uint32_t i = 0; i < r->segment_count; i++) {
        if (r->segments[i].peak_bytes > enough_bytes(r))
            segment_greedy(r, &r->segments[i]);
    }
    for (uint32_t i = 0; i < r->segment_count; i++) {
        struct segment *segment = largest_segment(r);
        if (!open_segment(r, segment) || ul_effort_spent(&r->effort))
            return;
        if (r->run->method == UL_ORDER_ILP)
            segment_ilp(r, segment);
        else
            segment_search(r, segment);
        if (open_segment(r, segment))
            return; /* the peak stays here, whatever the others do */
    }
}

void ul_order_run(struct ul_arena *arena, struct ul_order_run *run)
{
    struct runner r = {.run = run, .lower_bytes = run->lower_bytes};
    uint32_t n = run->graph->node_count;
    uint64_t cost;
    r.effort.work_limit =
        run->work_limit != 0 ? run->work_limit : default_work + (uint64_t)n * WORK_PER_NODE;
    r.effort.deadline_seconds = run->deadline_seconds;
    ul_arena_init(&r.scratch);
    run->order = ul_arena_copy(arena, run->graph->order, n * sizeof *run->order);
    run->method_name = published_name;
    bool valid = ul_solve_replay(run->graph, run->order, n, &run->peak_bytes, &cost);
    UL_ASSERT(valid);
    ul_order_core_make(&r.scratch, run->graph, run->graph->order, &r.core);
    segments_make(&r);
    if (r.segment_count > 0 && run->method != UL_ORDER_FILE) {
        uint64_t published = run->peak_bytes;
        segments_search(&r);
        result_make(&r);
        valid = ul_solve_replay(run->graph, run->order, n, &run->peak_bytes, &cost);
        UL_ASSERT(valid && run->peak_bytes <= published);
        if (run->peak_bytes < published && run->method_name == published_name)
            run->method_name = "published order, sources late";
    }
    run->lower_bytes = r.lower_bytes;
    run->work = r.effort.work;
    run->stopped_by_time =
        run->peak_bytes > r.lower_bytes && ul_effort_spent(&r.effort) && r.effort.stopped_by_time;
    ul_arena_done(&r.scratch);
}
