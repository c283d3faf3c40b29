/* SPDX-License-Identifier: Apache-2.0 */
/* Packs within a capacity by repair, for instances that are too large for backtracking, or of a
 * form unsuited to it.
 *
 * Problem: is there a packing whose highest end is at most the capacity? Method: buffers within the
 * capacity stay, the others wait. Again and again the largest waiting buffer goes where it costs
 * least, and the buffers that it collides with there have to wait in turn:
 *
 *     capacity  ---------------------
 *                 ####     ^ waits
 *               bbb            cc
 *               bbb aaaaaa     cc       its cost at an offset: the weights of those in the way
 *
 * A buffer's weight is its size times one more than the number of its waits: a buffer that is hard
 * to place becomes expensive to move (the breakout rule of Morris, AAAI 1993). The minimum cost is
 * at the bottom or the top, or directly above or below a placed slab; two sweeps over the intervals
 * of offsets that placed slabs forbid find it.
 *
 * If anchored, the buffers of the largest section are stacked without a gap and never move, in the
 * order of the packing from which the repair starts, or by their lifetimes, so that the free space
 * before the peak, or after it, is in one piece:
 *
 *     by begin      ccc            by end  ccc
 *                 bbbbbbb                  bbbbb
 *               aaaaaaaaaa               aaaaaaaaaa
 *
 * Where one section is much fuller than all others this solves the instance at once. An anchor that
 * leaves no place for a buffer, or none for two that displace each other, is released: from then on
 * its buffers move like all others.
 *
 * Left undone: it proves nothing. Pinned buffers never move. */
#include "planner/pack/pack_internal.h"

#include <stdlib.h>
#include <string.h>

/* A buffer costs at most SIZE_STEPS * MAX_WAITS, a fixed one more than all others together. */
enum { SIZE_STEPS = 1 << 10, MAX_WAITS = 1 << 14 };
/* A buffer that had to wait this often has no place next to the anchored ones. */
enum { ANCHOR_WAITS = 64 };
static const uint64_t fixed_weight = (uint64_t)1 << 48;

struct block {
    int64_t lower, upper; /* offsets strictly between collide with the buffer */
    uint64_t weight;
    uint32_t buffer;
};

struct fixed_slab {
    uint32_t begin, end;
    int64_t lower, upper; /* bytes of the arena */
};

struct ul_pack_repair {
    struct ul_arena *arena;
    const struct ul_pack_problem *problem;
    struct ul_pack_placed placed;
    int64_t capacity;
    uint64_t *offset_bytes;
    uint64_t *weight;  /* by buffer: for each time that it waits */
    uint32_t *waited;  /* by buffer: times, at least 1 */
    uint32_t *by_size; /* buffers, the largest first */
    uint32_t *size_rank;
    uint32_t *waiting; /* a tree over size ranks: how many wait */
    uint32_t leaf_count;
    struct block *blocks; /* of the buffer that is being placed */
    uint32_t block_count, block_capacity;
    struct ul_pack_edge *lowers, *uppers, *spare;
    uint32_t edge_capacity;
    bool *fixed; /* by buffer: pinned or anchored; these are not among the placed */
    struct fixed_slab *fixed_slabs; /* of these, by their lowest bytes */
    uint32_t fixed_slab_count;
    bool anchored;
    bool hopeless;
};

/* ---- Waiting buffers ---- */

static void waiting_change(struct ul_pack_repair *r, uint32_t buffer, bool waits)
{
    UL_ASSERT((r->waiting[r->leaf_count + r->size_rank[buffer]] == 0) == waits);
    for (uint32_t node = r->leaf_count + r->size_rank[buffer]; node > 0; node /= 2)
        r->waiting[node] += waits ? 1 : UINT32_MAX;
}

static uint32_t waiting_largest(const struct ul_pack_repair *r)
{
    UL_ASSERT(r->waiting[1] > 0);
    uint32_t node = 1;
    while (node < r->leaf_count)
        node = r->waiting[2 * node] > 0 ? 2 * node : 2 * node + 1;
    return r->by_size[node - r->leaf_count];
}

/* ---- The cheapest offset ---- */

static void block_push(struct ul_pack_repair *r, struct block block)
{
    UL_GROW(r->arena, r->blocks, r->block_count, r->block_capacity);
    r->blocks[r->block_count++] = block;
}

static struct block block_of(const struct ul_pack_repair *r, const struct ul_pack_slab *query,
                             const struct ul_pack_slab *placed)
{
    int64_t at = (int64_t)r->offset_bytes[placed->buffer];
    return (struct block){.lower = at + (int64_t)placed->lower_bytes - (int64_t)query->upper_bytes,
                          .upper = at + (int64_t)placed->upper_bytes - (int64_t)query->lower_bytes,
                          .weight = r->weight[placed->buffer] * r->waited[placed->buffer],
                          .buffer = placed->buffer};
}

/* Adds fixed buffers, each run of them as one block. */
static void blocks_add_fixed(struct ul_pack_repair *r, const struct ul_pack_slab *query)
{
    int64_t above = (int64_t)query->lower_bytes, below = (int64_t)query->upper_bytes;
    struct block run = {.weight = fixed_weight, .buffer = UL_PLAN_NONE};
    for (uint32_t i = 0; i < r->fixed_slab_count; i++) {
        const struct fixed_slab *slab = &r->fixed_slabs[i];
        if (slab->begin >= query->end || query->begin >= slab->end)
            continue;
        int64_t lower = slab->lower - below, upper = slab->upper - above;
        if (run.lower < run.upper && lower < run.upper) {
            run.upper = upper > run.upper ? upper : run.upper;
            continue;
        }
        if (run.lower < run.upper)
            block_push(r, run);
        run.lower = lower;
        run.upper = upper;
    }
    if (run.lower < run.upper)
        block_push(r, run);
}

/* The obstacles of a buffer, wherever it goes. */
static void blocks_make(struct ul_pack_repair *r, uint32_t buffer)
{
    const struct ul_pack_problem *problem = r->problem;
    r->block_count = 0;
    for (uint32_t p = problem->slab_first[buffer]; p < problem->slab_first[buffer + 1]; p++) {
        const struct ul_pack_slab *query = &problem->slabs[p];
        blocks_add_fixed(r, query);
        ul_pack_placed_find(&r->placed, query);
        for (uint32_t i = 0; i < r->placed.found_count; i++) {
            struct block block = block_of(r, query, &problem->slabs[r->placed.found[i]]);
            if (block.lower < block.upper)
                block_push(r, block);
        }
    }
}

static void edges_make(struct ul_pack_repair *r)
{
    if (r->block_count > r->edge_capacity) {
        r->edge_capacity = r->block_capacity;
        r->lowers = UL_NEW_ARRAY(r->arena, struct ul_pack_edge, r->edge_capacity);
        r->uppers = UL_NEW_ARRAY(r->arena, struct ul_pack_edge, r->edge_capacity);
        r->spare = UL_NEW_ARRAY(r->arena, struct ul_pack_edge, r->edge_capacity);
    }
    for (uint32_t i = 0; i < r->block_count; i++) {
        const struct block *block = &r->blocks[i];
        r->lowers[i] = (struct ul_pack_edge){block->lower, block->weight};
        r->uppers[i] = (struct ul_pack_edge){block->upper, block->weight};
    }
    ul_pack_edges_sort(r->lowers, r->spare, r->block_count);
    ul_pack_edges_sort(r->uppers, r->spare, r->block_count);
}

struct choice {
    int64_t offset;
    uint64_t cost;
};

/* A sweep upward: `offset` never decreases. */
struct sweep {
    uint32_t lower, upper; /* edges passed */
    uint64_t cost;
};

static void sweep_to(const struct ul_pack_repair *r, struct sweep *sweep, int64_t offset,
                     struct choice *best)
{
    for (; sweep->lower < r->block_count && r->lowers[sweep->lower].offset < offset; sweep->lower++)
        sweep->cost += r->lowers[sweep->lower].value;
    for (; sweep->upper < r->block_count && r->uppers[sweep->upper].offset <= offset;
         sweep->upper++)
        sweep->cost -= r->uppers[sweep->upper].value;
    if (sweep->cost < best->cost || (sweep->cost == best->cost && offset < best->offset))
        *best = (struct choice){offset, sweep->cost};
}

/* Tries offsets directly above each block, then directly below each. */
static struct choice offset_choose(struct ul_pack_repair *r, uint32_t buffer)
{
    const struct ul_pack_buffer *at = &r->problem->buffers[buffer];
    int64_t alignment = at->alignment_bytes > 1 ? (int64_t)at->alignment_bytes : 1;
    int64_t top = r->capacity - (int64_t)at->size_bytes;
    top -= top % alignment;
    struct choice best = {0, UINT64_MAX};
    struct sweep sweep = {0};
    sweep_to(r, &sweep, 0, &best);
    for (uint32_t i = 0; i < r->block_count; i++) {
        int64_t offset = r->uppers[i].offset;
        if (offset <= 0)
            continue;
        offset += (alignment - offset % alignment) % alignment;
        if (offset > top)
            break;
        sweep_to(r, &sweep, offset, &best);
    }
    sweep = (struct sweep){0};
    for (uint32_t i = 0; i < r->block_count && r->lowers[i].offset < top; i++) {
        if (r->lowers[i].offset > 0)
            sweep_to(r, &sweep, r->lowers[i].offset - r->lowers[i].offset % alignment, &best);
    }
    sweep_to(r, &sweep, top, &best);
    UL_ASSERT(best.offset % alignment == 0);
    return best;
}

/* ---- Fixed buffers ---- */

static void fixed_gather(struct ul_pack_repair *r)
{
    const struct ul_pack_problem *problem = r->problem;
    uint32_t slabs = problem->slab_first[problem->buffer_count];
    struct ul_pack_edge *found = UL_NEW_ARRAY(r->arena, struct ul_pack_edge, slabs);
    uint32_t count = 0;
    for (uint32_t p = 0; p < slabs; p++) {
        const struct ul_pack_slab *slab = &problem->slabs[p];
        if (r->fixed[slab->buffer])
            found[count++] = (struct ul_pack_edge){
                (int64_t)(r->offset_bytes[slab->buffer] + slab->lower_bytes), p};
    }
    ul_pack_edges_sort(found, UL_NEW_ARRAY(r->arena, struct ul_pack_edge, count), count);
    r->fixed_slabs = UL_NEW_ARRAY(r->arena, struct fixed_slab, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_pack_slab *slab = &problem->slabs[found[i].value];
        int64_t height = (int64_t)(slab->upper_bytes - slab->lower_bytes);
        r->fixed_slabs[i] =
            (struct fixed_slab){slab->begin, slab->end, found[i].offset, found[i].offset + height};
    }
    r->fixed_slab_count = count;
}

/* Releases anchored buffers; pinned ones stay. */
static void anchor_release(struct ul_pack_repair *r)
{
    UL_ASSERT(r->anchored);
    for (uint32_t b = 0; b < r->problem->buffer_count; b++) {
        if (!r->fixed[b] || r->problem->buffers[b].pinned)
            continue;
        r->fixed[b] = false;
        ul_pack_placed_add(&r->placed, b);
    }
    fixed_gather(r);
    r->anchored = false;
}

/* ---- Moves ---- */

/* The cheapest place, while the anchor holds and without it. */
static struct choice place_choose(struct ul_pack_repair *r, uint32_t buffer, uint64_t *work)
{
    while (true) {
        blocks_make(r, buffer);
        edges_make(r);
        struct choice choice = offset_choose(r, buffer);
        *work += 8 * (uint64_t)r->block_count + 32;
        bool holds = choice.cost < fixed_weight && r->waited[buffer] < ANCHOR_WAITS;
        if (!r->anchored || holds)
            return choice;
        anchor_release(r);
    }
}

static void place(struct ul_pack_repair *r, uint32_t buffer, uint64_t *work)
{
    UL_ASSERT(r->waiting[r->leaf_count + r->size_rank[buffer]] == 1);
    struct choice choice = place_choose(r, buffer, work);
    if (choice.cost >= fixed_weight) {
        r->hopeless = true;
        return;
    }
    for (uint32_t i = 0; i < r->block_count; i++) {
        const struct block *block = &r->blocks[i];
        uint32_t in_the_way = block->buffer;
        if (choice.offset <= block->lower || choice.offset >= block->upper ||
            r->waiting[r->leaf_count + r->size_rank[in_the_way]] > 0)
            continue;
        ul_pack_placed_remove(&r->placed, in_the_way);
        waiting_change(r, in_the_way, true);
        r->waited[in_the_way] += r->waited[in_the_way] < MAX_WAITS;
    }
    r->offset_bytes[buffer] = (uint64_t)choice.offset;
    ul_pack_placed_add(&r->placed, buffer);
    waiting_change(r, buffer, false);
}

enum ul_pack_outcome ul_pack_repair_run(struct ul_pack_repair *repair, uint64_t work,
                                        uint64_t *used)
{
    uint64_t done = 0;
    while (repair->waiting[1] > 0 && done < work && !repair->hopeless)
        place(repair, waiting_largest(repair), &done);
    *used += done;
    if (repair->hopeless)
        return UL_PACK_REFUTED;
    return repair->waiting[1] == 0 ? UL_PACK_FOUND : UL_PACK_OPEN;
}

const uint64_t *ul_pack_repair_offsets(const struct ul_pack_repair *repair)
{
    UL_ASSERT(repair->waiting[1] == 0);
    return repair->offset_bytes;
}

static void sizes_rank(struct ul_pack_repair *r)
{
    uint32_t count = r->problem->buffer_count;
    struct ul_pack_edge *keys = UL_NEW_ARRAY(r->arena, struct ul_pack_edge, count);
    struct ul_pack_edge *spare = UL_NEW_ARRAY(r->arena, struct ul_pack_edge, count);
    uint64_t largest = 1;
    for (uint32_t b = 0; b < count; b++) {
        uint64_t size = r->problem->buffers[b].size_bytes;
        keys[b] = (struct ul_pack_edge){-(int64_t)size, b};
        largest = size > largest ? size : largest;
    }
    ul_pack_edges_sort(keys, spare, count);
    uint64_t step = (largest + SIZE_STEPS - 1) / SIZE_STEPS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t b = (uint32_t)keys[i].value;
        r->by_size[i] = b;
        r->size_rank[b] = i;
        r->weight[b] = 1 + r->problem->buffers[b].size_bytes / step;
        r->waited[b] = 1;
    }
}

/* ---- The anchor ---- */

struct layer {
    uint64_t rank; /* ascending */
    uint64_t offset;
    uint32_t buffer, slab;
};

static int layer_compare(const void *a, const void *b)
{
    const struct layer *x = a;
    const struct layer *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Buffers further down have lower ranks. */
static uint64_t layer_rank(const struct ul_pack_buffer *buffer, enum ul_pack_anchor anchor)
{
    switch (anchor) {
    case UL_PACK_BY_BEGIN:
        return buffer->begin;
    case UL_PACK_BY_END:
        return UINT32_MAX - buffer->end;
    case UL_PACK_BY_LIFETIME:
        return UINT32_MAX - (buffer->end - buffer->begin);
    case UL_PACK_AS_STARTED:
    case UL_PACK_UNANCHORED:
    case UL_PACK_ANCHORS:
        break;
    }
    return 0;
}

static struct layer *layers_make(const struct ul_pack_repair *r, enum ul_pack_anchor anchor,
                                 uint32_t *count)
{
    const struct ul_pack_problem *problem = r->problem;
    struct layer *layers = UL_NEW_ARRAY(r->arena, struct layer, problem->buffer_count);
    *count = 0;
    for (uint32_t p = 0; p < problem->slab_first[problem->buffer_count]; p++) {
        const struct ul_pack_slab *slab = &problem->slabs[p];
        if (slab->begin > problem->peak_time || problem->peak_time >= slab->end)
            continue;
        layers[(*count)++] =
            (struct layer){layer_rank(&problem->buffers[slab->buffer], anchor),
                           r->offset_bytes[slab->buffer] + slab->lower_bytes, slab->buffer, p};
    }
    if (*count > 0)
        qsort(layers, *count, sizeof *layers, layer_compare);
    return layers;
}

/* Stacks the buffers that are live at the peak. Bytes lost to alignment or windows stay free; if
 * the stack does not fit then, the repair is hopeless. */
static void peak_anchor(struct ul_pack_repair *r, enum ul_pack_anchor anchor)
{
    const struct ul_pack_problem *problem = r->problem;
    uint32_t count;
    const struct layer *layers = layers_make(r, anchor, &count);
    uint64_t top = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_pack_slab *slab = &problem->slabs[layers[i].slab];
        const struct ul_pack_buffer *buffer = &problem->buffers[slab->buffer];
        uint64_t offset = top > slab->lower_bytes ? top - slab->lower_bytes : 0;
        uint64_t rest = buffer->alignment_bytes > 1 ? offset % buffer->alignment_bytes : 0;
        offset += rest > 0 ? buffer->alignment_bytes - rest : 0;
        if (buffer->pinned)
            r->hopeless = r->hopeless || buffer->offset_bytes < offset;
        else
            r->offset_bytes[slab->buffer] = offset;
        r->fixed[slab->buffer] = true;
        top = r->offset_bytes[slab->buffer] + slab->upper_bytes;
        r->hopeless = r->hopeless ||
                      r->offset_bytes[slab->buffer] + buffer->size_bytes > (uint64_t)r->capacity;
    }
}

/* Whether it overlaps something placed: buffers stacked by their windows at the peak can collide
 * where the windows are wider. */
static bool lies_on_placed(struct ul_pack_repair *r, uint32_t buffer)
{
    int64_t offset = (int64_t)r->offset_bytes[buffer];
    blocks_make(r, buffer);
    for (uint32_t i = 0; i < r->block_count; i++) {
        if (r->blocks[i].lower < offset && offset < r->blocks[i].upper)
            return true;
    }
    return false;
}

/* Places the buffers that stay in place; the others wait. */
static void start_make(struct ul_pack_repair *r, enum ul_pack_anchor anchor)
{
    const struct ul_pack_problem *problem = r->problem;
    for (uint32_t b = 0; b < problem->buffer_count; b++)
        r->fixed[b] = problem->buffers[b].pinned;
    if (anchor != UL_PACK_UNANCHORED)
        peak_anchor(r, anchor);
    for (uint32_t b = 0; b < problem->buffer_count && !r->hopeless; b++) {
        if (anchor == UL_PACK_UNANCHORED || !r->fixed[b])
            continue;
        r->hopeless = lies_on_placed(r, b);
        ul_pack_placed_add(&r->placed, b);
    }
    for (uint32_t b = 0; b < problem->buffer_count; b++) {
        uint64_t size = problem->buffers[b].size_bytes;
        uint64_t end = r->offset_bytes[b] + size;
        bool stays = anchor == UL_PACK_UNANCHORED && end <= (uint64_t)r->capacity;
        r->hopeless = r->hopeless || size > (uint64_t)r->capacity ||
                      (r->fixed[b] && end > (uint64_t)r->capacity);
        if (r->fixed[b])
            ul_pack_placed_remove(&r->placed, b);
        else if (stays)
            ul_pack_placed_add(&r->placed, b);
        else
            waiting_change(r, b, true);
    }
    fixed_gather(r);
    r->anchored = anchor != UL_PACK_UNANCHORED;
}

struct ul_pack_repair *ul_pack_repair_new(struct ul_arena *arena,
                                          const struct ul_pack_problem *problem,
                                          uint64_t capacity_bytes, const uint64_t *start_bytes,
                                          enum ul_pack_anchor anchor)
{
    UL_ASSERT(capacity_bytes <= INT64_MAX && start_bytes != NULL && anchor < UL_PACK_ANCHORS);
    uint32_t count = problem->buffer_count;
    struct ul_pack_repair *r = UL_NEW(arena, struct ul_pack_repair);
    r->arena = arena;
    r->problem = problem;
    r->capacity = (int64_t)capacity_bytes;
    r->offset_bytes = ul_arena_copy(arena, start_bytes, sizeof *start_bytes * count);
    r->weight = UL_NEW_ARRAY(arena, uint64_t, count);
    r->waited = UL_NEW_ARRAY(arena, uint32_t, count);
    r->by_size = UL_NEW_ARRAY(arena, uint32_t, count);
    r->size_rank = UL_NEW_ARRAY(arena, uint32_t, count);
    r->fixed = UL_NEW_ARRAY(arena, bool, count);
    sizes_rank(r);
    for (r->leaf_count = 1; r->leaf_count < count; r->leaf_count *= 2)
        continue;
    r->waiting = UL_NEW_ARRAY(arena, uint32_t, 2 * (uint64_t)r->leaf_count);
    ul_pack_placed_init(&r->placed, arena, problem);
    start_make(r, anchor);
    return r;
}
