/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of order, each for one part of a graph: a round in a share of the effort, or in all
 * of it where the method is named. */
#include "planner/order/order.h"
#include "planner/order/order_internal.h"

#include <string.h>

enum { FIRST_STATES = 1 << 12, FIRST_WIDTH = 8 };

const char ul_order_published[] = "file: published order";

/* ---- Offers ---- */

static uint64_t enough_bytes(const struct ul_order_runner *r)
{
    if (r->is_named || r->lower_bytes > r->run->enough_bytes)
        return r->lower_bytes;
    return r->run->enough_bytes;
}

bool ul_order_is_open(const struct ul_order_runner *r, const struct ul_order_part *part)
{
    return part->peak_bytes > enough_bytes(r);
}

static void part_offer(struct ul_order_part *part, const uint32_t *order, const char *method)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t peak = ul_order_core_peak(&scratch, &part->core, order, NULL, NULL);
    if (peak < part->peak_bytes) {
        part->peak_bytes = peak;
        part->method = method;
        memcpy(part->order, order, part->core.node_count * sizeof *order);
    }
    ul_arena_done(&scratch);
}

/* An order of the reversed core, read from its end, is one of the part's. */
static void part_offer_reversed(struct ul_order_part *part, uint32_t *order, const char *method)
{
    uint32_t n = part->core.node_count;
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t node = order[i];
        order[i] = order[n - 1 - i];
        order[n - 1 - i] = node;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = n - 1 - order[i];
    part_offer(part, order, method);
}

/* ---- Engines on a part ---- */

static void part_greedy(struct ul_order_part *part)
{
    struct ul_arena scratch;
    struct ul_order_core reversed;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, part->core.node_count);
    ul_order_greedy(&scratch, &part->core, order);
    part_offer(part, order, "greedy");
    ul_order_core_reverse(&scratch, &part->core, &reversed);
    ul_order_greedy(&scratch, &reversed, order);
    part_offer_reversed(part, order, "greedy: backwards");
    ul_arena_done(&scratch);
}

static void part_depth_first(struct ul_order_part *part)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, part->core.node_count);
    ul_order_depth_first(&scratch, &part->core, order);
    part_offer(part, order, "dfs: depth-first");
    ul_arena_done(&scratch);
}

/* Exact search with at most this many states, in either direction. */
static void part_exact(struct ul_order_runner *r, struct ul_order_part *part, uint32_t state_limit,
                       bool backwards)
{
    struct ul_arena scratch;
    struct ul_order_core reversed;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, part->core.node_count);
    if (r->lower_bytes > part->lower_bytes)
        part->lower_bytes = r->lower_bytes;
    if (backwards)
        ul_order_core_reverse(&scratch, &part->core, &reversed);
    enum ul_order_outcome outcome =
        ul_order_downsets(&scratch, backwards ? &reversed : &part->core, &r->run->effort,
                          state_limit, part->peak_bytes, &part->lower_bytes, order);
    if (outcome == UL_ORDER_IMPROVED && backwards)
        part_offer_reversed(part, order, "dp: search over downsets");
    else if (outcome == UL_ORDER_IMPROVED)
        part_offer(part, order, "dp: search over downsets");
    part->is_proven |= outcome != UL_ORDER_UNKNOWN;
    if (part->lower_bytes > r->lower_bytes)
        r->lower_bytes = part->lower_bytes;
    ul_arena_done(&scratch);
}

static void part_ilp(struct ul_order_runner *r, struct ul_order_part *part)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order =
        ul_arena_copy(&scratch, part->order, part->core.node_count * sizeof *part->order);
    if (r->lower_bytes > part->lower_bytes)
        part->lower_bytes = r->lower_bytes;
    part->is_proven |= ul_order_ilp(&scratch, &part->core, &r->run->effort, part->peak_bytes,
                                    &part->lower_bytes, order) != UL_ORDER_UNKNOWN;
    part_offer(part, order, "ilp: integer program");
    if (part->lower_bytes > r->lower_bytes)
        r->lower_bytes = part->lower_bytes;
    ul_arena_done(&scratch);
}

static enum ul_order_outcome part_beam(struct ul_order_runner *r, struct ul_order_part *part,
                                       uint32_t width, bool backwards)
{
    UL_ASSERT(width > 0);
    struct ul_arena scratch;
    struct ul_order_core reversed;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, part->core.node_count);
    struct ul_order_beam_options options = {.width = width, .upper_bytes = part->peak_bytes};
    if (backwards)
        ul_order_core_reverse(&scratch, &part->core, &reversed);
    enum ul_order_outcome outcome = ul_order_beam(&scratch, backwards ? &reversed : &part->core,
                                                  &r->run->effort, &options, order);
    if (outcome == UL_ORDER_IMPROVED && backwards)
        part_offer_reversed(part, order, "beam: backwards");
    else if (outcome == UL_ORDER_IMPROVED)
        part_offer(part, order, "beam");
    ul_arena_done(&scratch);
    return outcome;
}

static void part_anneal(struct ul_order_runner *r, struct ul_order_part *part, uint64_t work,
                        uint32_t round)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct ul_effort *effort = &r->run->effort;
    uint32_t *order =
        ul_arena_copy(&scratch, part->order, part->core.node_count * sizeof *part->order);
    uint64_t limit = effort->work_limit;
    uint64_t seed = effort->seed;
    for (uint32_t i = 0; i <= round; i++)
        seed = ul_seed_next(&seed);
    effort->work_limit = effort->work + work;
    ul_order_anneal(&part->core, effort, enough_bytes(r), seed, order);
    effort->work_limit = limit;
    part_offer(part, order, "anneal: nodes moved at random");
    ul_arena_done(&scratch);
}

static void part_windows(struct ul_order_runner *r, struct ul_order_part *part)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order =
        ul_arena_copy(&scratch, part->order, part->core.node_count * sizeof *part->order);
    uint64_t peak_bytes = part->peak_bytes;
    ul_order_windows(&part->core, &r->run->effort, enough_bytes(r), order, &peak_bytes);
    part_offer(part, order, "search: windows");
    ul_arena_done(&scratch);
}

/* States that an exact search of the part may take: sets of large cores are large. */
static uint32_t states_max(const struct ul_order_part *part, uint32_t wanted)
{
    enum { MEMORY_BYTES = 1 << 27, STATE_BYTES = 96 };
    uint32_t max = MEMORY_BYTES / (part->core.node_count / 8 + STATE_BYTES);
    return wanted < max ? wanted : max;
}

/* ---- Rounds ---- */

/* Whether more effort on the part may help. */
static bool is_worth(struct ul_order_runner *r, const struct ul_order_part *part)
{
    return ul_order_is_open(r, part) && !ul_effort_spent(&r->run->effort);
}

/* ---- The rows ---- */

bool ul_order_run_greedy(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    UL_ASSERT(round == 0);
    (void)r;
    part_greedy(part);
    return true;
}

bool ul_order_run_dfs(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    UL_ASSERT(round == 0);
    (void)r;
    part_depth_first(part);
    return true;
}

/* Both directions, each with its share of the effort. */
bool ul_order_run_dp(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    enum { SHARE = 8 };
    UL_ASSERT(round <= UL_ORDER_ROUNDS);
    for (int backwards = 0; backwards < 2 && round < UL_ORDER_ROUNDS; backwards++) {
        struct ul_effort_turn whole =
            ul_effort_begin_turn(&r->run->effort, r->is_named ? 1 : SHARE);
        bool is_asked = r->is_named && round == 0 && !part->is_proven;
        if (is_asked || is_worth(r, part))
            part_exact(r, part, states_max(part, (uint32_t)FIRST_STATES << 2 * round),
                       backwards != 0);
        ul_effort_end_turn(&r->run->effort, whole);
    }
    return true;
}

/* Backwards with no more work than forwards took, as long as it pays off. */
static bool part_beams(struct ul_order_runner *r, struct ul_order_part *part, uint32_t width)
{
    struct ul_effort *effort = &r->run->effort;
    uint64_t before = effort->work;
    if (part_beam(r, part, width, false) == UL_ORDER_PROVEN)
        return false;
    if (!part->backwards_fails && is_worth(r, part)) {
        uint64_t limit = effort->work_limit;
        uint64_t max = effort->work + (effort->work - before);
        effort->work_limit = max < limit ? max : limit;
        part->backwards_fails = part_beam(r, part, width, true) != UL_ORDER_IMPROVED;
        effort->work_limit = limit;
    }
    return true;
}

bool ul_order_run_beam(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    enum { SHARE = 4 };
    UL_ASSERT(round <= UL_ORDER_ROUNDS);
    if (round == UL_ORDER_ROUNDS)
        return true;
    struct ul_effort_turn whole = ul_effort_begin_turn(&r->run->effort, r->is_named ? 1 : SHARE);
    bool more = part_beams(r, part, (uint32_t)FIRST_WIDTH << 2 * round);
    ul_effort_end_turn(&r->run->effort, whole);
    return more;
}

/* A round has a quarter of the work of the next; the last leaves a quarter to the windows after it.
 * Cooling with too little work for the part's size finds nothing, and with more than enough nothing
 * new. */
bool ul_order_run_anneal(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    enum { LEAST_PER_NODE = 1 << 14, MOST_PER_NODE = 1 << 22 };
    UL_ASSERT(round <= UL_ORDER_ROUNDS);
    uint64_t n = part->core.node_count;
    const struct ul_effort *effort = &r->run->effort;
    uint64_t left = effort->work < effort->work_limit ? effort->work_limit - effort->work : 0;
    uint64_t work = r->is_named || round < UL_ORDER_ROUNDS ? left : left / 4 * 3;
    work >>= 2 * (UL_ORDER_ROUNDS - round);
    work = work < n * MOST_PER_NODE ? work : n * MOST_PER_NODE;
    if (work >= n * LEAST_PER_NODE)
        part_anneal(r, part, work, round);
    return true;
}

/* Not in the first round, unless that was costly, or the method is named; with no more work than
 * all before it took, but in the last round with all that is left. */
bool ul_order_run_search(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    enum { SHARE = 3 };
    UL_ASSERT(round <= UL_ORDER_ROUNDS);
    struct ul_effort *effort = &r->run->effort;
    bool costly = effort->work > effort->work_limit / 8;
    if (round == 0 && !costly && !r->is_named)
        return true;
    struct ul_effort_turn whole =
        ul_effort_begin_turn(effort, round == UL_ORDER_ROUNDS ? 1 : SHARE);
    uint64_t max = 2 * effort->work;
    if (round < UL_ORDER_ROUNDS && !r->is_named && max < effort->work_limit)
        effort->work_limit = max;
    part_windows(r, part);
    ul_effort_end_turn(effort, whole);
    return true;
}

/* The cross-check, only where it is named. */
bool ul_order_run_ilp(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    UL_ASSERT(round <= UL_ORDER_ROUNDS);
    if (round == 0)
        part_ilp(r, part);
    return true;
}
