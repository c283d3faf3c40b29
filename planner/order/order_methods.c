/* The methods of order: each on the parts of a graph, and all in turn.
 *
 * Cheap ones run on every part that is too large; the others on the part with the largest peak,
 * until none is above what is proven. In turn each gets a share of the effort, in rounds that cost
 * ever more; a method that is named has all of it. */
#include "planner/order/order.h"
#include "planner/order/order_internal.h"

#include <string.h>

enum { FIRST_STATES = 1 << 12, FIRST_WIDTH = 8, ROUNDS = 5 };

const char ul_order_published[] = "published order";

/* The limits of all, while a method has its turn within lower ones. */
struct turn {
    uint64_t work_limit;
    double deadline_seconds;
};

/* ---- Offers ---- */

static uint64_t enough_bytes(const struct ul_order_runner *r)
{
    return r->lower_bytes > r->run->enough_bytes ? r->lower_bytes : r->run->enough_bytes;
}

static bool is_open(const struct ul_order_runner *r, const struct ul_order_part *part)
{
    return part->peak_bytes > enough_bytes(r);
}

static void part_offer(struct ul_order_part *part, const uint32_t *order, const char *method)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t peak = ul_order_core_profile(&scratch, &part->core, order, NULL, NULL);
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
    part_offer_reversed(part, order, "greedy, backwards");
    ul_arena_done(&scratch);
}

static void part_depth_first(struct ul_order_part *part)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, part->core.node_count);
    ul_order_depth_first(&scratch, &part->core, order);
    part_offer(part, order, "depth-first");
    ul_arena_done(&scratch);
}

/* Exact search with at most this many states, either way. */
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
        ul_order_downsets(&scratch, backwards ? &reversed : &part->core, &r->effort, state_limit,
                          part->peak_bytes, &part->lower_bytes, order);
    if (outcome == UL_ORDER_IMPROVED && backwards)
        part_offer_reversed(part, order, "search over downsets");
    else if (outcome == UL_ORDER_IMPROVED)
        part_offer(part, order, "search over downsets");
    if (part->lower_bytes > r->lower_bytes)
        r->lower_bytes = part->lower_bytes;
    ul_arena_done(&scratch);
}

/* The cross-check, only where it is named. */
static void part_ilp(struct ul_order_runner *r, struct ul_order_part *part)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order =
        ul_arena_copy(&scratch, part->order, part->core.node_count * sizeof *part->order);
    if (r->lower_bytes > part->lower_bytes)
        part->lower_bytes = r->lower_bytes;
    ul_order_ilp(&scratch, &part->core, &r->effort, part->peak_bytes, &part->lower_bytes, order);
    part_offer(part, order, "integer program");
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
    enum ul_order_outcome outcome =
        ul_order_beam(&scratch, backwards ? &reversed : &part->core, &r->effort, &options, order);
    if (outcome == UL_ORDER_IMPROVED && backwards)
        part_offer_reversed(part, order, "beam, backwards");
    else if (outcome == UL_ORDER_IMPROVED)
        part_offer(part, order, "beam");
    ul_arena_done(&scratch);
    return outcome;
}

/* Gives what follows one of `share` parts of the work and the time that are left. */
static struct turn turn_begin(struct ul_order_runner *r, uint32_t share)
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

static void turn_end(struct ul_order_runner *r, struct turn whole)
{
    r->effort.work_limit = whole.work_limit;
    r->effort.deadline_seconds = whole.deadline_seconds;
    r->effort.stopped_by_time = false; /* of the turn; the next look at the clock tells */
}

static void part_windows(struct ul_order_runner *r, struct ul_order_part *part, uint32_t share)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t *order =
        ul_arena_copy(&scratch, part->order, part->core.node_count * sizeof *part->order);
    uint64_t peak_bytes = part->peak_bytes;
    struct turn whole = turn_begin(r, share);
    ul_order_windows(&part->core, &r->effort, enough_bytes(r), order, &peak_bytes);
    turn_end(r, whole);
    part_offer(part, order, "windows");
    ul_arena_done(&scratch);
}

/* States that an exact search of the part may take: sets of large cores are large. */
static uint32_t states_max(const struct ul_order_part *part, uint32_t wanted)
{
    enum { MEMORY_BYTES = 1 << 27, STATE_BYTES = 96 };
    uint32_t max = MEMORY_BYTES / (part->core.node_count / 8 + STATE_BYTES);
    return wanted < max ? wanted : max;
}

/* Backwards for no more than forwards took, as long as it pays. */
static bool part_beams(struct ul_order_runner *r, struct ul_order_part *part, uint32_t width,
                       bool *backwards_pays)
{
    uint64_t before = r->effort.work;
    if (part_beam(r, part, width, false) == UL_ORDER_PROVEN)
        return false;
    if (*backwards_pays && is_open(r, part) && !ul_effort_spent(&r->effort)) {
        uint64_t limit = r->effort.work_limit;
        uint64_t max = r->effort.work + (r->effort.work - before);
        r->effort.work_limit = max < limit ? max : limit;
        *backwards_pays = part_beam(r, part, width, true) == UL_ORDER_IMPROVED;
        r->effort.work_limit = limit;
    }
    return true;
}

/* ---- Rounds ---- */

/* Whether more effort on the part may help. */
static bool is_worth(struct ul_order_runner *r, const struct ul_order_part *part)
{
    return is_open(r, part) && !ul_effort_spent(&r->effort);
}

/* Both ways, each with its share of the effort. */
static void exact_round(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round,
                        uint32_t share)
{
    UL_ASSERT(round < ROUNDS);
    for (int backwards = 0; backwards < 2; backwards++) {
        struct turn whole = turn_begin(r, share);
        if (is_worth(r, part))
            part_exact(r, part, states_max(part, (uint32_t)FIRST_STATES << 2 * round),
                       backwards != 0);
        turn_end(r, whole);
    }
}

/* Whether another round, of a wider beam, may help. */
static bool beam_round(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round,
                       uint32_t share, bool *backwards_pays)
{
    UL_ASSERT(round < ROUNDS);
    struct turn whole = turn_begin(r, share);
    bool more = part_beams(r, part, (uint32_t)FIRST_WIDTH << 2 * round, backwards_pays);
    turn_end(r, whole);
    return more;
}

/* Not in the first round, unless that was costly. */
static void windows_round(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round)
{
    bool costly = r->effort.work > r->effort.work_limit / 8;
    if (round > 0 || costly)
        part_windows(r, part, 3);
}

typedef void part_method(struct ul_order_runner *r, struct ul_order_part *part);

static void part_dp(struct ul_order_runner *r, struct ul_order_part *part)
{
    for (uint32_t round = 0; round < ROUNDS && is_worth(r, part); round++)
        exact_round(r, part, round, 1);
}

static void part_beam_alone(struct ul_order_runner *r, struct ul_order_part *part)
{
    bool backwards_pays = true;
    for (uint32_t round = 0; round < ROUNDS && is_worth(r, part); round++) {
        if (!beam_round(r, part, round, 1, &backwards_pays))
            return;
    }
}

static void part_search(struct ul_order_runner *r, struct ul_order_part *part)
{
    for (uint32_t round = 0; round < ROUNDS && is_worth(r, part); round++)
        windows_round(r, part, round);
    if (is_worth(r, part))
        part_windows(r, part, 1);
}

static void part_best(struct ul_order_runner *r, struct ul_order_part *part)
{
    enum { EXACT_SHARE = 8, BEAM_SHARE = 4 };
    bool backwards_pays = true;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        exact_round(r, part, round, EXACT_SHARE);
        if (!is_worth(r, part) || !beam_round(r, part, round, BEAM_SHARE, &backwards_pays) ||
            !is_worth(r, part))
            return;
        windows_round(r, part, round);
    }
    if (is_open(r, part))
        part_windows(r, part, 1);
}

/* ---- The rows ---- */

struct ul_order_part *ul_order_largest_part(const struct ul_order_runner *r)
{
    struct ul_order_part *largest = NULL;
    for (uint32_t i = 0; i < r->part_count; i++) {
        if (largest == NULL || r->parts[i].peak_bytes > largest->peak_bytes)
            largest = &r->parts[i];
    }
    return largest;
}

/* The part with the largest peak, again and again. */
static void largest_first(struct ul_order_runner *r, part_method *method)
{
    for (uint32_t i = 0; i < r->part_count; i++) {
        struct ul_order_part *part = ul_order_largest_part(r);
        if (!is_worth(r, part))
            return;
        method(r, part);
        if (is_open(r, part))
            return; /* the peak stays here, whatever the others do */
    }
}

/* Looks at every part that is too large with what is cheap. */
static void cheap_run(struct ul_order_runner *r, bool greedy, bool depth_first)
{
    for (uint32_t i = 0; i < r->part_count; i++) {
        struct ul_order_part *part = &r->parts[i];
        if (!is_open(r, part))
            continue;
        r->effort.work += part->core.pred_first[part->core.node_count];
        if (greedy)
            part_greedy(part);
        if (depth_first)
            part_depth_first(part);
    }
}

void ul_order_run_file(struct ul_order_runner *r)
{
    r->part_count = 0; /* so that not even sources move */
}

void ul_order_run_greedy(struct ul_order_runner *r)
{
    cheap_run(r, true, false);
}

void ul_order_run_dfs(struct ul_order_runner *r)
{
    cheap_run(r, false, true);
}

/* Where a method settles nothing and finds nothing, it says why. */
static void refuse_unsettled(struct ul_order_runner *r, const char *why_not)
{
    const struct ul_order_part *part = ul_order_largest_part(r);
    if (part != NULL && is_open(r, part) && part->method == ul_order_published)
        r->run->why_not = why_not;
}

void ul_order_run_dp(struct ul_order_runner *r)
{
    largest_first(r, part_dp);
    refuse_unsettled(r, "it is out of work or states before it finds or proves an order");
}

void ul_order_run_beam(struct ul_order_runner *r)
{
    largest_first(r, part_beam_alone);
}

void ul_order_run_search(struct ul_order_runner *r)
{
    largest_first(r, part_search);
}

void ul_order_run_ilp(struct ul_order_runner *r)
{
    largest_first(r, part_ilp);
    refuse_unsettled(r, "its programs are too large, or not solved within their work");
}

void ul_order_run_best(struct ul_order_runner *r)
{
    cheap_run(r, true, true);
    largest_first(r, part_best);
}
