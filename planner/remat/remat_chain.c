/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints on a chain of blocks, by dynamic programming.
 *
 * Problem: the first part of a graph runs through blocks, each of which hands one value to the
 * next, and the second part reads the blocks' values in the opposite order, as a training step
 * does. Which blocks keep their values, and which run again when the second part reaches them?
 *
 *     forward    | block 0 | block 1 | block 2 | ... |      cuts between blocks
 *     backward   |   ... reads 2 | reads 1   | reads 0 |    turn(c): what is before cut c is due
 *
 * Method: a block is held (its values that backward reads are kept), or belongs to a segment of
 * blocks [a, b) that keeps only the value at cut b and runs again as a whole at turn(b). While
 * backward is between turn(b) and turn(a), the values that the blocks before a keep, K(a), are
 * alive, and the segment's own; so a segment's peaks are K(a) plus numbers that follow from those
 * of [a + 1, b) in one operation. Over the cuts, the pairs (K, cost) that no other dominates are
 * carried; there are few, since bytes are sums of a few sizes. After Chen et al., "Training
 * Deep Nets with Sublinear Memory Cost" (2016), and Kusumoto et al., "A Graph Theoretic Framework
 * of Recomputation" (NeurIPS 2019), with exact peaks.
 * Cuts are the places that a single value crosses. Values that reach far (skip connections) can be
 * left out of the count and are then always kept; several reaches are tried.
 * Left undone: segments that run again in parts or more than once (Beaumont et al., "Optimal
 * checkpointing for heterogeneous chains", 2019); outputs made in place count in full. Where the
 * graph is not such a chain, nothing is found. */
#include "planner/remat/remat.h"
#include "planner/remat/remat_stages.h"

#include <string.h>

enum { PAIR_WORK = 1 << 27, PAIRS_MAX = 1 << 16, PAIRS_MIN = 64 };

/* The bytes that are kept before a cut, and the cost of what was run again for it. */
struct pair {
    uint64_t kept_bytes;
    uint64_t cost;
    uint32_t from; /* the cut before */
    uint32_t from_pair;
    bool rerun; /* the blocks in between run again */
};

struct block {
    uint32_t first, end;            /* positions */
    uint64_t cross_bytes;           /* of the value that crosses the cut at `end` */
    uint64_t saved_bytes;           /* of all that backward reads */
    uint64_t rerun_cost, last_cost; /* the whole block; with the crossing value kept */
    bool rerun_barred, last_barred;
    /* Peaks of the block's own values and of those that live whatever is chosen. */
    uint64_t held_peak;    /* forward, held */
    uint64_t forward_peak; /* forward, values dropped; without the value that came across the cut,
                              since it is kept */
    uint64_t through_peak; /* the same with that value */
    uint64_t backward_peak;
    uint64_t rerun_peak, last_peak; /* run again: as an inner block, as the last one */
    uint64_t turn_bytes; /* live whatever is chosen when the segment that ends here runs again */
};

struct chain {
    struct ul_remat *remat;
    const struct ul_solve_graph *graph;
    struct ul_arena *arena;
    const uint32_t *order; /* nodes are named by their positions in it */
    struct ul_stages stages;
    uint32_t turn;           /* the stage in which backward begins */
    uint32_t *forward_last;  /* by forward node: its last reader before `turn`, or itself */
    uint32_t *backward_last; /* and its last reader from there on, or 0 */
    bool *always;            /* by forward node: kept whatever is chosen */
    uint64_t *fixed_bytes; /* by stage: live whatever is chosen; from `turn` on with the stage's own
                              value and working bytes */
    uint64_t *between_bytes; /* by stage from `turn` on: the same just before it begins */
    uint32_t *turns; /* by position up to `turn`, as a cut: the first backward stage that reads what
                        is before it and does not cross it */
    uint8_t *runs;   /* by node: it is among those that run again */
    uint32_t *read_last; /* the last node among these that reads it, or 0 */
    struct block *blocks;
    uint32_t block_count;
    struct pair **pairs; /* by cut, sorted by kept_bytes */
    uint32_t *pair_counts;
    struct pair *buckets;
    uint32_t bucket_count;
    bool exact; /* no pair was given up */
};

static bool crosses(const struct chain *c, uint32_t i, uint32_t cut)
{
    return i < cut && c->forward_last[i] >= cut;
}

static void lasts_find(struct chain *c)
{
    const struct ul_stages *s = &c->stages;
    c->forward_last = UL_NEW_ARRAY(c->arena, uint32_t, c->turn);
    c->backward_last = UL_NEW_ARRAY(c->arena, uint32_t, c->turn);
    for (uint32_t i = 0; i < c->turn; i++) {
        c->forward_last[i] = i;
        for (uint32_t e = s->reader_first[i]; e < s->reader_first[i + 1]; e++) {
            if (s->readers[e] < c->turn)
                c->forward_last[i] = s->readers[e];
            else
                c->backward_last[i] = s->readers[e];
        }
    }
}

/* The stage after which a value that is always kept is gone: no rerun may need it later. */
static uint32_t always_last(struct chain *c, uint32_t i, uint32_t last)
{
    const struct ul_stages *s = &c->stages;
    for (uint32_t e = s->reader_first[i]; e < s->reader_first[i + 1]; e++) {
        uint32_t reader = s->readers[e];
        uint32_t turn = reader < c->turn ? c->turns[reader + 1] : 0;
        if (turn > last && turn < s->count) {
            last = turn;
            c->exact = false;
        }
    }
    return last;
}

static void fixed_find(struct chain *c)
{
    const struct ul_stages *s = &c->stages;
    c->fixed_bytes = UL_NEW_ARRAY(c->arena, uint64_t, (uint64_t)s->count + 1);
    c->between_bytes = UL_NEW_ARRAY(c->arena, uint64_t, s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        if (i < c->turn && !c->always[i])
            continue;
        uint32_t readers = s->reader_first[i + 1] - s->reader_first[i];
        uint32_t last = readers > 0 ? s->readers[s->reader_first[i + 1] - 1] : i;
        if (i < c->turn)
            last = always_last(c, i, last);
        c->fixed_bytes[i] += s->size_bytes[i];
        c->fixed_bytes[last + 1] -= s->size_bytes[i];
    }
    uint64_t live = c->graph->base_bytes; /* differences wrap around, their sums do not */
    for (uint32_t t = 0; t < s->count; t++) {
        live += c->fixed_bytes[t];
        c->fixed_bytes[t] = live + s->working_bytes[t];
        c->between_bytes[t] = live - (t >= c->turn ? s->size_bytes[t] : 0);
    }
}

/* The minimum over all cuts after each value's last forward reader. */
static void turns_find(struct chain *c)
{
    const struct ul_stages *s = &c->stages;
    c->turns = UL_NEW_ARRAY(c->arena, uint32_t, (uint64_t)c->turn + 1);
    for (uint32_t p = 0; p <= c->turn; p++)
        c->turns[p] = s->count;
    for (uint32_t t = s->count; t-- > c->turn;) {
        for (uint32_t e = s->input_first[t]; e < s->input_first[t + 1]; e++) {
            uint32_t i = s->inputs[e];
            if (i < c->turn && !c->always[i])
                c->turns[c->forward_last[i] + 1] = t;
        }
    }
    for (uint32_t p = 1; p <= c->turn; p++) {
        if (c->turns[p] > c->turns[p - 1])
            c->turns[p] = c->turns[p - 1];
    }
    c->turns[c->turn] = c->turn;
}

/* Marks the positions that can be cut: one value crosses, another than at the cut before, and
 * backward reads it until it turns to what is before; and nothing after the cut is read any more
 * from then on. */
static void waists_find(struct chain *c, bool *cut)
{
    uint64_t *crossing = UL_NEW_ARRAY(c->arena, uint64_t, (uint64_t)c->turn + 2);
    uint64_t *names = UL_NEW_ARRAY(c->arena, uint64_t, (uint64_t)c->turn + 2); /* their sum */
    for (uint32_t i = 0; i < c->turn; i++) {
        if (c->always[i])
            continue;
        crossing[i + 1]++;
        crossing[c->forward_last[i] + 1]--;
        names[i + 1] += i;
        names[c->forward_last[i] + 1] -= i;
    }
    uint64_t newest = UINT64_MAX;
    for (uint32_t p = 1; p < c->turn; p++) {
        crossing[p] += crossing[p - 1];
        names[p] += names[p - 1];
        if (crossing[p] != 1 || names[p] == newest)
            continue;
        uint32_t last = c->backward_last[names[p]];
        cut[p] = last != 0 && last + 1 >= c->turns[p];
        newest = cut[p] ? names[p] : newest;
    }
    uint32_t latest = 0; /* backward reader of what is after it */
    for (uint32_t p = c->turn; p-- > 0;) {
        if (!c->always[p] && c->backward_last[p] > latest)
            latest = c->backward_last[p];
        cut[p] = cut[p] && latest < c->turns[p];
    }
    cut[0] = cut[c->turn] = true;
}

/* Marks what runs again in the block if the value that crosses its end does (`whole`), or is kept.
 * Sets the cost; true if something there may not run again. */
static bool runs_mark(struct chain *c, const struct block *b, bool whole, uint64_t *cost)
{
    const struct ul_stages *s = &c->stages;
    bool barred = false;
    *cost = 0;
    for (uint32_t i = b->first; i < b->end; i++)
        c->read_last[i] = 0;
    for (uint32_t i = b->end; i-- > b->first;) {
        c->runs[i] = !c->always[i] && (c->backward_last[i] != 0 || c->read_last[i] != 0) &&
                     (whole || !crosses(c, i, b->end));
        if (!c->runs[i])
            continue;
        *cost += s->cost[i];
        barred |= c->graph->run_once != NULL && c->graph->run_once[c->order[i]];
        for (uint32_t e = s->input_first[i]; e < s->input_first[i + 1]; e++) {
            uint32_t from = s->inputs[e];
            if (from >= b->first && c->read_last[from] == 0)
                c->read_last[from] = i;
        }
    }
    return barred;
}

/* The largest sum of the block's own values while the marked nodes run; values of others are live
 * as long as backward or the block needs them. */
static uint64_t runs_peak(const struct chain *c, const struct block *b)
{
    const struct ul_stages *s = &c->stages;
    uint32_t turn = c->turns[b->end];
    uint64_t peak = 0, live = 0;
    for (uint32_t i = b->first; i < b->end; i++) {
        bool kept = !c->runs[i] && !c->always[i] && crosses(c, i, b->end);
        if (kept && (c->backward_last[i] >= turn || c->read_last[i] != 0))
            live += s->size_bytes[i];
    }
    for (uint32_t r = b->first; r < b->end; r++) {
        if (!c->runs[r])
            continue;
        live += s->size_bytes[r];
        peak = ul_size_max(peak, live + s->working_bytes[r]);
        for (uint32_t e = s->input_first[r]; e < s->input_first[r + 1]; e++) {
            uint32_t i = s->inputs[e];
            if (i < b->first || c->always[i] || c->read_last[i] != r)
                continue;
            if (c->backward_last[i] == 0 || (!c->runs[i] && c->backward_last[i] < turn))
                live -= s->size_bytes[i];
        }
    }
    return peak;
}

enum pass { PASS_HELD, PASS_DROPPED, PASS_THROUGH };

/* The largest sum in forward: held values stay, and the value that crosses the block's first cut
 * counts only in PASS_THROUGH. */
static uint64_t forward_peak(const struct chain *c, const struct block *b, enum pass pass)
{
    const struct ul_stages *s = &c->stages;
    uint64_t peak = 0, live = 0;
    if (pass == PASS_THROUGH)
        live = b[-1].cross_bytes;
    for (uint32_t t = b->first; t < b->end; t++) {
        live += c->always[t] ? 0 : s->size_bytes[t];
        peak = ul_size_max(peak, live + c->fixed_bytes[t]);
        bool own_dies = c->forward_last[t] == t && !c->always[t];
        if (own_dies && !(pass == PASS_HELD && c->backward_last[t] != 0))
            live -= s->size_bytes[t];
        for (uint32_t e = s->input_first[t]; e < s->input_first[t + 1]; e++) {
            uint32_t i = s->inputs[e];
            if (c->always[i] || c->forward_last[i] != t || (i < b->first && pass != PASS_THROUGH))
                continue;
            if (i < b->first || pass != PASS_HELD || c->backward_last[i] == 0)
                live -= s->size_bytes[i];
        }
    }
    return peak;
}

/* The largest sum while backward is at this block, all of whose values are live. */
static uint64_t backward_peak(const struct chain *c, const struct block *b)
{
    const struct ul_stages *s = &c->stages;
    uint64_t peak = 0, live = 0;
    uint32_t begin = c->turns[b->end];
    for (uint32_t i = b->first; i < b->end; i++)
        live += !c->always[i] && c->backward_last[i] >= begin ? s->size_bytes[i] : 0;
    for (uint32_t t = begin; t < c->turns[b->first]; t++) {
        peak = ul_size_max(peak, live + c->fixed_bytes[t]);
        for (uint32_t e = s->input_first[t]; e < s->input_first[t + 1]; e++) {
            uint32_t i = s->inputs[e];
            if (i >= b->first && i < b->end && !c->always[i] && c->backward_last[i] == t)
                live -= s->size_bytes[i];
        }
    }
    return peak;
}

static void block_measure(struct chain *c, struct block *b)
{
    const struct ul_stages *s = &c->stages;
    for (uint32_t i = b->first; i < b->end; i++) {
        if (c->always[i])
            continue;
        b->cross_bytes += crosses(c, i, b->end) ? s->size_bytes[i] : 0;
        b->saved_bytes += c->backward_last[i] != 0 ? s->size_bytes[i] : 0;
    }
    b->rerun_barred = runs_mark(c, b, true, &b->rerun_cost);
    b->rerun_peak = runs_peak(c, b);
    b->last_barred = runs_mark(c, b, false, &b->last_cost);
    b->last_peak = runs_peak(c, b);
    b->held_peak = forward_peak(c, b, PASS_HELD);
    b->forward_peak = forward_peak(c, b, PASS_DROPPED);
    b->through_peak = b > c->blocks ? forward_peak(c, b, PASS_THROUGH) : b->forward_peak;
    b->backward_peak = backward_peak(c, b);
    if (c->turns[b->end] < s->count)
        b->turn_bytes = c->between_bytes[c->turns[b->end]];
}

static void blocks_make(struct chain *c)
{
    bool *cut = UL_NEW_ARRAY(c->arena, bool, (uint64_t)c->turn + 1);
    waists_find(c, cut);
    c->blocks = UL_NEW_ARRAY(c->arena, struct block, c->turn);
    c->block_count = 0;
    uint32_t first = 0;
    for (uint32_t p = 1; p <= c->turn; p++) {
        if (!cut[p])
            continue;
        c->blocks[c->block_count++] = (struct block){.first = first, .end = p};
        first = p;
    }
    if (c->block_count < 2)
        return;
    for (uint32_t b = 0; b < c->block_count; b++)
        block_measure(c, &c->blocks[b]);
}

static void pair_offer(struct chain *c, const struct pair *pair)
{
    double share = (double)pair->kept_bytes / ((double)c->remat->budget_bytes + 1);
    uint32_t bucket = (uint32_t)(share * c->bucket_count);
    /* From 2^53 bytes on, a fraction just below one may be rounded up to it. */
    bucket = bucket < c->bucket_count ? bucket : c->bucket_count - 1;
    struct pair *known = &c->buckets[bucket];
    if (known->from != UL_PLAN_NONE) {
        if (known->kept_bytes <= pair->kept_bytes && known->cost <= pair->cost)
            return;
        if (known->kept_bytes < pair->kept_bytes || known->cost < pair->cost)
            c->exact = false;
        if (known->cost < pair->cost)
            return;
    }
    *known = *pair;
}

/* All pairs of a cut that leave room for `peak_bytes` continue, with more kept and at more cost. */
static void pairs_extend(struct chain *c, uint32_t from, uint64_t peak_bytes, uint64_t kept_bytes,
                         uint64_t cost, bool rerun)
{
    uint64_t budget = c->remat->budget_bytes;
    for (uint32_t i = 0; i < c->pair_counts[from]; i++) {
        struct pair pair = {c->pairs[from][i].kept_bytes, c->pairs[from][i].cost + cost, from, i,
                            rerun};
        if (pair.kept_bytes + peak_bytes > budget || pair.kept_bytes + kept_bytes > budget)
            break;
        pair.kept_bytes += kept_bytes;
        pair_offer(c, &pair);
    }
}

/* Every way to end a part of the chain at cut `b`. */
static void cut_reach(struct chain *c, uint32_t b)
{
    const struct block *last = &c->blocks[b - 1];
    uint64_t budget = c->remat->budget_bytes;
    pairs_extend(c, b - 1, ul_size_max(last->held_peak, last->backward_peak), last->saved_bytes, 0,
                 false);
    uint64_t cost = last->last_cost, rerun = last->last_peak, through = 0;
    uint64_t backward = last->backward_peak;
    bool barred = last->last_barred;
    for (uint32_t a = b; a-- > 0;) {
        const struct block *block = &c->blocks[a];
        if (a + 1 < b) {
            cost += block->rerun_cost;
            barred |= block->rerun_barred;
            rerun = ul_size_max(block->rerun_peak, block->saved_bytes + rerun);
            through = ul_size_max(through, block[1].through_peak);
            backward = ul_size_max(block->backward_peak, block->saved_bytes + backward);
        }
        uint64_t peak = ul_size_max(backward, ul_size_max(block->forward_peak, through));
        peak = ul_size_max(peak, last->turn_bytes + rerun);
        if (barred || peak > budget)
            return;
        pairs_extend(c, a, peak, last->cross_bytes, cost, true);
    }
}

/* The pairs of the buckets that no other dominates become those of the cut. */
static void cut_close(struct chain *c, uint32_t b)
{
    uint32_t count = 0;
    uint64_t cheapest = UINT64_MAX;
    for (uint32_t i = 0; i < c->bucket_count; i++) {
        if (c->buckets[i].from == UL_PLAN_NONE || c->buckets[i].cost >= cheapest)
            continue;
        cheapest = c->buckets[i].cost;
        c->buckets[count++] = c->buckets[i];
    }
    c->pairs[b] = ul_arena_copy(c->arena, c->buckets, count * sizeof *c->buckets);
    c->pair_counts[b] = count;
}

static bool chain_search(struct chain *c)
{
    uint64_t max = PAIR_WORK / ((uint64_t)c->block_count * c->block_count) + PAIRS_MIN;
    c->bucket_count = max < PAIRS_MAX ? (uint32_t)max : PAIRS_MAX;
    c->buckets = UL_NEW_ARRAY(c->arena, struct pair, c->bucket_count);
    c->pairs = UL_NEW_ARRAY(c->arena, struct pair *, (uint64_t)c->block_count + 1);
    c->pair_counts = UL_NEW_ARRAY(c->arena, uint32_t, (uint64_t)c->block_count + 1);
    c->pairs[0] = UL_NEW(c->arena, struct pair);
    c->pair_counts[0] = 1;
    for (uint32_t b = 1; b <= c->block_count; b++) {
        for (uint32_t i = 0; i < c->bucket_count; i++)
            c->buckets[i].from = UL_PLAN_NONE;
        cut_reach(c, b);
        cut_close(c, b);
    }
    return c->pair_counts[c->block_count] > 0;
}

/* Writes the blocks [a, b) again, without the value kept at their end. */
static uint32_t segment_put(struct chain *c, uint32_t a, uint32_t b, uint32_t *sequence)
{
    uint32_t count = 0;
    for (uint32_t k = a; k < b; k++) {
        uint64_t cost;
        runs_mark(c, &c->blocks[k], k + 1 < b, &cost);
        for (uint32_t i = c->blocks[k].first; i < c->blocks[k].end; i++) {
            if (c->runs[i])
                sequence[count++] = c->order[i];
        }
    }
    return count;
}

/* Writes the cheapest way through the chain as a sequence; every node runs at most twice. */
static uint32_t chain_read(struct chain *c, uint32_t *sequence, uint64_t *cost)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < c->turn; t++)
        sequence[count++] = c->order[t];
    uint32_t stage = c->turn;
    uint32_t b = c->block_count;
    uint32_t at = c->pair_counts[b] - 1; /* keeps most, costs least */
    *cost = c->pairs[b][at].cost;
    while (b > 0) {
        const struct pair *pair = &c->pairs[b][at];
        for (; stage < c->turns[c->blocks[b - 1].end]; stage++)
            sequence[count++] = c->order[stage];
        if (pair->rerun)
            count += segment_put(c, pair->from, b, sequence + count);
        b = pair->from;
        at = pair->from_pair;
    }
    for (; stage < c->stages.count; stage++)
        sequence[count++] = c->order[stage];
    return count;
}

static void chain_offer(struct chain *c, bool whole)
{
    struct ul_remat *remat = c->remat;
    uint32_t *sequence = UL_NEW_ARRAY(c->arena, uint32_t, 2 * (uint64_t)c->stages.count);
    uint64_t extra, peak, cost;
    uint32_t count = chain_read(c, sequence, &extra);
    bool valid = ul_solve_replay(c->graph, sequence, count, &peak, &cost);
    UL_ASSERT(valid && peak <= remat->budget_bytes);
    if (cost > remat->cost || count > remat->capacity)
        return;
    bool proven = whole && c->exact && c->graph->in_place == NULL;
    if (proven)
        remat->proven_within = ul_method_get(UL_METHOD_REMAT, UL_REMAT_CHAIN)->proves;
    if (cost == remat->cost)
        return;
    if (!proven) /* an earlier proof was about a more expensive sequence */
        remat->proven_within = NULL;
    memcpy(remat->sequence, sequence, count * sizeof *sequence);
    remat->count = count;
    remat->cost = cost;
    remat->found_how = "checkpoints on a chain of blocks";
}

/* Values that reach over more than `reach` stages are always kept. False if there are none. */
static bool always_find(struct chain *c, uint32_t reach)
{
    bool any = false;
    memset(c->always, 0, c->turn * sizeof *c->always);
    for (uint32_t i = 0; i < c->turn; i++) {
        c->always[i] = c->forward_last[i] - i > reach;
        any |= c->always[i];
    }
    return any;
}

/* The stage where most values wait for a reader: when backward begins, all of forward's do. */
static uint32_t widest_stage(const struct chain *c)
{
    const struct ul_stages *s = &c->stages;
    uint32_t *ends = UL_NEW_ARRAY(c->arena, uint32_t, (uint64_t)s->count + 1);
    uint32_t waiting = 0, max = 0, widest = 0;
    for (uint32_t t = 0; t < s->count; t++) {
        waiting -= ends[t];
        if (waiting > max) {
            max = waiting;
            widest = t;
        }
        uint32_t readers = s->reader_first[t + 1] - s->reader_first[t];
        if (readers > 0) {
            ends[s->readers[s->reader_first[t + 1] - 1] + 1]++;
            waiting++;
        }
    }
    return widest;
}

/* False if no cuts make it a chain. */
static bool turn_try(struct chain *c, uint32_t turn)
{
    bool is_chain = false;
    c->turn = turn;
    lasts_find(c);
    c->always = UL_NEW_ARRAY(c->arena, bool, turn);
    bool whole = true;
    for (uint32_t reach = turn; reach > 2; reach /= 2) {
        if (!always_find(c, reach) && !whole)
            continue;
        c->exact = true;
        turns_find(c);
        fixed_find(c);
        blocks_make(c);
        is_chain = is_chain || c->block_count > 1;
        if (c->block_count > 1 && chain_search(c))
            chain_offer(c, whole);
        whole = false;
    }
    return is_chain;
}

/* Offers the best checkpoints on the chain of blocks in `order`; false if there is no chain. */
static bool order_try(struct ul_remat *remat, const uint32_t *order)
{
    UL_ASSERT(order != NULL);
    const struct ul_solve_graph *graph = remat->graph;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct chain c = {.remat = remat, .graph = graph, .arena = &scratch, .order = order};
    ul_stages_init(&scratch, graph, order, &c.stages);
    c.runs = ul_arena_alloc(&scratch, c.stages.count);
    c.read_last = UL_NEW_ARRAY(&scratch, uint32_t, c.stages.count);
    uint32_t widest = widest_stage(&c);
    bool is_chain = c.stages.gap < c.stages.count && turn_try(&c, c.stages.gap);
    if (widest != c.stages.gap)
        is_chain = turn_try(&c, widest) || is_chain;
    ul_arena_done(&scratch);
    return is_chain;
}

bool ul_remat_run_chain(struct ul_remat *remat, const struct ul_remat_orders *orders,
                        enum ul_method_turn turn)
{
    UL_ASSERT(orders->count > 0);
    bool is_chain = false;
    for (uint32_t i = 0; i < orders->count; i++)
        is_chain = order_try(remat, orders->orders[i]) || is_chain;
    if (turn == UL_TURN_NONE && remat->cost == UINT64_MAX)
        remat->why_not = is_chain ? "no checkpoints on its chain of blocks are small enough"
                                  : "its graph is no chain of blocks that are read again in the "
                                    "opposite order";
    return false;
}
