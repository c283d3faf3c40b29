/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the statements of a kernel that threads share.
 *
 * Problem: starting threads on a statement and waiting for all of them takes microseconds, so work
 * is shared as far out as it can be, but a loop of few rounds leaves threads without work. Method:
 * from the outside in, a statement is shared when every thread gets UL_REGION_MIN_NS of work; a
 * loop takes in the loop directly inside it as long as its shares are uneven, and the last loop of
 * a nest is cut into pieces. Where the shares stay uneven, the statements inside are tried, and the
 * faster choice wins.
 *
 *     for i < 3: for j < 1000: y = ...      items = 3 x 6 pieces of 176, over 4 threads
 *
 * The lowering marks independent iterations (UL_FOR_PARALLEL). Even so, a loop is not shared when
 * it sets an outer variable, or stores to a place that does not depend on it and that other
 * statements use. Such a place that no other statement uses is private to each thread. */
#include "codegen/kernel/threads.h"

#include "codegen/kernel/contract.h"
#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

#include <string.h>

/* A test that wants regions everywhere sets these, and UL_REGION_NS, to next to nothing. */
#ifndef UL_REGION_MIN_NS
#define UL_REGION_MIN_NS 8000.0 /* of work for each thread of a region */
#define UL_REGION_MIN_PIECE 64  /* rounds of a loop in one of its pieces */
#endif

enum {
    PIECE = 16,                 /* a piece is a multiple of it: whole vectors, whole lines */
    MAX_PRIVATE_BYTES = 1 << 24 /* of all threads together */
};

struct chooser {
    const struct ul_kernel *kernel;
    struct ul_arena *arena;
    struct ul_arena scratch; /* for one question */
    struct ul_threads *threads;
};

static double speed_up(int64_t items, uint32_t shares)
{
    UL_ASSERT(items > 0 && shares > 0);
    int64_t longest = (items + shares - 1) / shares;
    return (double)items / (double)longest;
}

/* Whether threads may share the loops of the region; sets what they need of their own. */
static bool can_share(struct chooser *chooser, struct ul_region *region)
{
    UL_ASSERT(region->level_count > 0 && region->shares > 1);
    const struct ul_kernel *kernel = chooser->kernel;
    struct ul_touched inside, everywhere;
    uint64_t private_bytes = 0;
    ul_touch_loops(&inside, kernel, region->levels, region->counts, region->level_count,
                   chooser->arena);
    ul_touch_kernel(&everywhere, kernel, &chooser->scratch);
    region->is_private = inside.is_private;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (!inside.is_private[i])
            continue;
        if (buffer->role == UL_BUFFER_OUTPUT || inside.uses[i] != everywhere.uses[i])
            return false;
        private_bytes = ul_size_add_or_die(private_bytes, ul_buffer_bytes(buffer));
    }
    return !inside.sets_outside && private_bytes <= MAX_PRIVATE_BYTES / region->shares;
}

/* ---- Loops taken together ---- */

/* Cuts the last level, whose rounds are short, into as many pieces as make the shares even. */
static void cut_last(struct ul_region *region)
{
    UL_ASSERT(region->level_count > 0);
    uint32_t last = region->level_count - 1;
    int64_t count = region->counts[last], outer = 1;
    for (uint32_t i = 0; i < last; i++)
        outer *= region->counts[i];
    for (int64_t pieces = 1; pieces <= region->shares; pieces++) {
        int64_t piece = (count + pieces - 1) / pieces;
        piece = (piece + PIECE - 1) / PIECE * PIECE;
        if (pieces > 1 && piece < UL_REGION_MIN_PIECE)
            return;
        region->piece = piece;
        region->item_count = outer * ((count + piece - 1) / piece);
        if (ul_share_is_even(region->item_count, region->shares))
            return;
    }
}

/* The loop at `id` and as many loops inside it as it takes; false: not even one. */
static bool collect_loops(const struct ul_kernel *kernel, ul_ks id, struct ul_region *region)
{
    enum { MANY = 8 }; /* items for each thread: even enough, whatever their number */
    int64_t count;
    region->item_count = 1;
    region->piece = 1;
    while (id != UL_NONE && region->level_count < UL_REGION_LEVELS &&
           ul_kx_is_int(kernel, kernel->stmts[id].value, &count) && count > 0 &&
           count <= INT32_MAX && region->item_count * count <= INT32_MAX) {
        region->levels[region->level_count] = id;
        region->counts[region->level_count++] = count;
        if (!ul_ks_holds_loop(kernel, kernel->stmts[id].body)) {
            cut_last(region);
            break;
        }
        region->item_count *= count;
        if (ul_share_is_even(region->item_count, region->shares) ||
            region->item_count >= MANY * (int64_t)region->shares)
            break;
        id = ul_only_loop(kernel, kernel->stmts[id].body);
    }
    return region->item_count > 1;
}

/* ---- The choice ---- */

static uint32_t parts_for(const struct chooser *chooser, double ns)
{
    double shares = ns / UL_REGION_MIN_NS;
    return shares >= (double)chooser->threads->count ? chooser->threads->count : (uint32_t)shares;
}

static double choose_list(struct chooser *chooser, ul_ks first);

static void drop_regions(struct chooser *chooser, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = chooser->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &chooser->kernel->stmts[id];
        chooser->threads->regions[id] = NULL;
        drop_regions(chooser, stmt->body);
        drop_regions(chooser, stmt->orelse);
    }
}

static void set_region(struct chooser *chooser, ul_ks id, const struct ul_region *region)
{
    UL_ASSERT(chooser->threads->regions[id] == NULL && region->item_count > 0);
    chooser->threads->regions[id] = ul_arena_copy(chooser->arena, region, sizeof *region);
}

static double choose_contraction(struct chooser *chooser, ul_ks id, double ns)
{
    const struct ul_kernel *kernel = chooser->kernel;
    const struct ul_contraction *contraction = &kernel->contractions[kernel->stmts[id].contraction];
    struct ul_region region = {.shares = parts_for(chooser, ns), .piece = 1};
    if (region.shares < 2)
        return ns;
    region.item_count = ul_contract_items(kernel, contraction, region.shares);
    double shared_ns = ns / speed_up(region.item_count, region.shares) + UL_REGION_NS;
    if (shared_ns >= ns)
        return ns;
    set_region(chooser, id, &region);
    return shared_ns;
}

static double rounds_of(const struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    return stmt->kind == UL_KS_FOR ? (double)kernel->vars[stmt->var].high + 1 : 1;
}

static double choose_loop(struct chooser *chooser, ul_ks id, double ns)
{
    const struct ul_kernel *kernel = chooser->kernel;
    const struct ul_ks_data *stmt = &kernel->stmts[id];
    struct ul_region region = {.shares = parts_for(chooser, ns)};
    bool can = region.shares >= 2 && stmt->kind == UL_KS_FOR &&
               (stmt->flags & UL_FOR_PARALLEL) != 0 && collect_loops(kernel, id, &region) &&
               can_share(chooser, &region);
    double shared_ns = can ? ns / speed_up(region.item_count, region.shares) + UL_REGION_NS : ns;
    if (!can || !ul_share_is_even(region.item_count, region.shares)) {
        double inner_ns = rounds_of(kernel, stmt) * choose_list(chooser, stmt->body) +
                          choose_list(chooser, stmt->orelse);
        if (inner_ns <= shared_ns)
            return inner_ns;
        drop_regions(chooser, stmt->body);
        drop_regions(chooser, stmt->orelse);
    }
    if (!can || shared_ns >= ns)
        return ns;
    set_region(chooser, id, &region);
    return shared_ns;
}

/* Nanoseconds of one round of the list, with the regions that were chosen in it. */
static double choose_list(struct chooser *chooser, ul_ks first)
{
    double total_ns = 0;
    for (ul_ks id = first; id != UL_NONE; id = chooser->kernel->stmts[id].next) {
        enum ul_ks_kind kind = chooser->kernel->stmts[id].kind;
        double ns = ul_statement_ns(chooser->kernel, id, &chooser->scratch);
        ul_arena_reset(&chooser->scratch);
        if (ns < 2 * UL_REGION_MIN_NS)
            total_ns += ns;
        else if (kind == UL_KS_CONTRACT)
            total_ns += choose_contraction(chooser, id, ns);
        else
            total_ns += choose_loop(chooser, id, ns);
    }
    return total_ns;
}

static void note_region(struct ul_threads *threads, const struct ul_kernel *kernel,
                        const struct ul_region *region)
{
    threads->shares = region->shares > threads->shares ? region->shares : threads->shares;
    for (uint32_t i = 0; i < kernel->buffer_count && region->is_private != NULL; i++)
        threads->is_private[i] = threads->is_private[i] || region->is_private[i];
}

void ul_threads_init(struct ul_threads *threads, const struct ul_kernel *kernel, uint32_t count,
                     struct ul_arena *arena)
{
    struct chooser chooser = {.kernel = kernel, .arena = arena, .threads = threads};
    *threads = (struct ul_threads){.count = count, .shares = 1};
    threads->regions = UL_NEW_ARRAY(arena, const struct ul_region *, kernel->stmt_count);
    threads->is_private = UL_NEW_ARRAY(arena, bool, kernel->buffer_count);
    if (count <= 1)
        return;
    ul_arena_init(&chooser.scratch);
    choose_list(&chooser, kernel->first);
    ul_arena_done(&chooser.scratch);
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        if (threads->regions[id] != NULL)
            note_region(threads, kernel, threads->regions[id]);
    }
    UL_ASSERT(threads->shares >= 1 && threads->shares <= (count > 1 ? count : 1));
}
