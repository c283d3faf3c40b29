/* Which statements of a kernel threads share.
 *
 * Problem: starting threads on a statement and waiting for all of them takes microseconds, so work
 * is shared as far out as it can be, but a loop of few rounds leaves threads without work. Method:
 * from the outside in, a statement is shared when every thread gets UL_REGION_LEAST_NS of work; a
 * loop takes in the loop right inside of it as long as its shares are uneven, and the last one of a
 * nest is cut into pieces. Where the shares stay uneven, what lies inside is tried, and the faster
 * way wins.
 *
 *     for i < 3: for j < 1000: y = ...      items = 3 x 6 pieces of 176, over 4 threads
 *
 * Which iterations are independent, the lowering knows (UL_FOR_PARALLEL); a loop is left alone all
 * the same when it sets a variable from outside, or stores to a place that does not depend on it
 * and that somebody else uses. Such a place that nobody else uses is private to each thread.
 */
#include "codegen/threads.h"

#include "codegen/contract.h"

#include <string.h>

/* A test that wants regions everywhere sets these, and UL_REGION_NS, to next to nothing. */
#ifndef UL_REGION_LEAST_NS
#define UL_REGION_LEAST_NS 8000.0 /* of work for each thread of a region */
#define UL_REGION_LEAST_PIECE 64  /* rounds of a loop in a piece of it */
#endif

enum {
    PIECE = 16,                  /* a piece is a multiple of it: whole vectors, whole lines */
    MOST_PRIVATE_BYTES = 1 << 24 /* of all threads together */
};

struct chooser {
    const struct ul_kernel *kernel;
    struct ul_arena *arena;
    struct ul_arena scratch; /* of one question */
    struct ul_threads *threads;
};

bool ul_share_is_even(int64_t items, uint32_t parts)
{
    int64_t longest = (items + parts - 1) / parts;
    return 10 * items >= 9 * longest * parts;
}

static double speed_up(int64_t items, uint32_t parts)
{
    int64_t longest = (items + parts - 1) / parts;
    return (double)items / (double)longest;
}

/* ---- What a loop touches ---- */

/* What stands inside of a statement, as far as sharing is concerned. */
struct touched {
    const struct ul_kernel *kernel;
    const struct ul_region *region;
    uint8_t *levels;   /* by variable: bit i, its value depends on level i */
    uint8_t all;       /* levels of more than one round */
    bool *is_declared; /* by variable: inside */
    bool *is_private;  /* by buffer: some store hits the same place in several iterations */
    uint32_t *uses;    /* by buffer: loads and stores */
    bool sets_outside; /* a variable that is declared outside */
    bool changed;
};

static uint8_t levels_of(struct touched *t, ul_kx id)
{
    if (id == UL_NONE)
        return 0;
    const struct ul_kx_data *expr = &t->kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        return t->levels[expr->var];
    if (ul_kx_operand_count(expr->op) == 0)
        return 0;
    uint8_t levels = levels_of(t, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        levels |= levels_of(t, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        levels |= levels_of(t, expr->c);
    return levels;
}

static void count_loads(struct touched *t, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &t->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD)
        t->uses[expr->var]++;
    count_loads(t, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        count_loads(t, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        count_loads(t, expr->c);
}

static void count_operand(struct touched *t, const struct ul_operand *operand)
{
    t->uses[operand->buffer]++;
    count_loads(t, operand->at.base);
    count_loads(t, operand->transform);
    for (uint32_t i = 0; i < operand->bound_count; i++)
        count_loads(t, operand->bounds[i].at.base);
}

/* The first statement list inside of a statement; the other one is its orelse. */
static ul_ks inside_of(const struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    return stmt->kind == UL_KS_CONTRACT ? kernel->contractions[stmt->contraction].epilogue
                                        : stmt->body;
}

/* Which variables depend on which levels; again until nothing changes, since values are carried
 * from round to round. */
static void find_levels(struct touched *t, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = t->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &t->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_SET) {
            uint8_t levels = t->levels[stmt->var] | levels_of(t, stmt->value);
            t->changed = t->changed || levels != t->levels[stmt->var];
            t->levels[stmt->var] = levels;
        }
        find_levels(t, inside_of(t->kernel, stmt));
        find_levels(t, stmt->orelse);
    }
}

static void touch_list(struct touched *t, ul_ks first);

static void touch(struct touched *t, ul_ks id)
{
    const struct ul_ks_data *stmt = &t->kernel->stmts[id];
    count_loads(t, stmt->value);
    count_loads(t, stmt->index);
    if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR)
        t->is_declared[stmt->var] = true;
    if (stmt->kind == UL_KS_SET && !t->is_declared[stmt->var])
        t->sets_outside = true;
    if (stmt->kind == UL_KS_STORE) {
        t->uses[stmt->buffer]++;
        if (levels_of(t, stmt->index) != t->all)
            t->is_private[stmt->buffer] = true;
    }
    if (stmt->kind == UL_KS_CONTRACT) {
        count_operand(t, &t->kernel->contractions[stmt->contraction].a);
        count_operand(t, &t->kernel->contractions[stmt->contraction].b);
    }
    touch_list(t, inside_of(t->kernel, stmt));
    touch_list(t, stmt->orelse);
}

static void touch_list(struct touched *t, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = t->kernel->stmts[id].next)
        touch(t, id);
}

static void touched_init(struct touched *t, const struct ul_kernel *kernel,
                         const struct ul_region *region, struct ul_arena *arena)
{
    *t = (struct touched){.kernel = kernel, .region = region};
    t->levels = UL_NEW_ARRAY(arena, uint8_t, kernel->var_count);
    t->is_declared = UL_NEW_ARRAY(arena, bool, kernel->var_count);
    t->is_private = UL_NEW_ARRAY(arena, bool, kernel->buffer_count);
    t->uses = UL_NEW_ARRAY(arena, uint32_t, kernel->buffer_count);
    for (uint32_t i = 0; i < region->level_count; i++) {
        uint8_t bit = region->counts[i] > 1 ? (uint8_t)(1u << i) : 0;
        t->levels[kernel->stmts[region->levels[i]].var] = bit;
        t->all |= bit;
    }
}

static uint64_t buffer_bytes(const struct ul_buffer *buffer)
{
    return ul_size_mul_or_die(buffer->element_count, ul_dtype_get(buffer->dtype)->size_bytes);
}

/* May threads share the loops of the region? Then sets what they need of their own. */
static bool can_share(struct chooser *chooser, struct ul_region *region)
{
    const struct ul_kernel *kernel = chooser->kernel;
    static const struct ul_region nothing = {.level_count = 0};
    struct touched inside, everywhere;
    uint64_t private_bytes = 0;
    touched_init(&inside, kernel, region, chooser->arena);
    touched_init(&everywhere, kernel, &nothing, &chooser->scratch);
    do {
        inside.changed = false;
        find_levels(&inside, kernel->stmts[region->levels[0]].body);
    } while (inside.changed);
    touch_list(&inside, kernel->stmts[region->levels[0]].body);
    touch_list(&everywhere, kernel->first);
    region->is_private = inside.is_private;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (!inside.is_private[i])
            continue;
        if (buffer->role == UL_BUFFER_OUTPUT || inside.uses[i] != everywhere.uses[i])
            return false;
        private_bytes = ul_size_add_or_die(private_bytes, buffer_bytes(buffer));
    }
    return !inside.sets_outside && private_bytes <= MOST_PRIVATE_BYTES / region->parts;
}

/* ---- Loops taken together ---- */

static bool is_index_only(const struct ul_kernel *kernel, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return expr->op != UL_KX_VAR || !kernel->vars[expr->var].is_mutable;
    if (expr->op == UL_KX_LOAD || expr->op == UL_KX_INDEX || !is_index_only(kernel, expr->a))
        return false;
    if (ul_kx_operand_count(expr->op) >= 2 && !is_index_only(kernel, expr->b))
        return false;
    return ul_kx_operand_count(expr->op) < 3 || is_index_only(kernel, expr->c);
}

/* The one loop that a list consists of, but for names of indexes before it, or UL_NONE. */
static ul_ks only_loop(const struct ul_kernel *kernel, ul_ks first)
{
    ul_ks id = first;
    while (id != UL_NONE && kernel->stmts[id].kind == UL_KS_LET &&
           is_index_only(kernel, kernel->stmts[id].value))
        id = kernel->stmts[id].next;
    bool is_loop = id != UL_NONE && kernel->stmts[id].kind == UL_KS_FOR &&
                   (kernel->stmts[id].flags & UL_FOR_PARALLEL) != 0 &&
                   kernel->stmts[id].next == UL_NONE;
    return is_loop ? id : UL_NONE;
}

/* Cuts the last level, whose rounds are short, into pieces: as many as make the shares even. */
static void cut_last(struct ul_region *region)
{
    uint32_t last = region->level_count - 1;
    int64_t count = region->counts[last], outer = 1;
    for (uint32_t i = 0; i < last; i++)
        outer *= region->counts[i];
    for (int64_t pieces = 1; pieces <= region->parts; pieces++) {
        int64_t piece = (count + pieces - 1) / pieces;
        piece = (piece + PIECE - 1) / PIECE * PIECE;
        if (pieces > 1 && piece < UL_REGION_LEAST_PIECE)
            return;
        region->piece = piece;
        region->item_count = outer * ((count + piece - 1) / piece);
        if (ul_share_is_even(region->item_count, region->parts))
            return;
    }
}

/* The loop at `id` and as many inside of it as it takes; false: not even one. */
static bool take_loops(const struct ul_kernel *kernel, ul_ks id, struct ul_region *region)
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
        if (ul_share_is_even(region->item_count, region->parts) ||
            region->item_count >= MANY * (int64_t)region->parts)
            break;
        id = only_loop(kernel, kernel->stmts[id].body);
    }
    return region->item_count > 1;
}

/* ---- The choice ---- */

static uint32_t parts_for(const struct chooser *chooser, double ns)
{
    double parts = ns / UL_REGION_LEAST_NS;
    return parts >= (double)chooser->threads->count ? chooser->threads->count : (uint32_t)parts;
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
    chooser->threads->regions[id] = ul_arena_copy(chooser->arena, region, sizeof *region);
}

static double choose_contraction(struct chooser *chooser, ul_ks id, double ns)
{
    const struct ul_kernel *kernel = chooser->kernel;
    const struct ul_contraction *contraction = &kernel->contractions[kernel->stmts[id].contraction];
    struct ul_region region = {.parts = parts_for(chooser, ns), .piece = 1};
    if (region.parts < 2)
        return ns;
    region.item_count = ul_contract_items(kernel, contraction, region.parts);
    double shared_ns = ns / speed_up(region.item_count, region.parts) + UL_REGION_NS;
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
    struct ul_region region = {.parts = parts_for(chooser, ns)};
    bool can = region.parts >= 2 && stmt->kind == UL_KS_FOR &&
               (stmt->flags & UL_FOR_PARALLEL) != 0 && take_loops(kernel, id, &region) &&
               can_share(chooser, &region);
    double shared_ns = can ? ns / speed_up(region.item_count, region.parts) + UL_REGION_NS : ns;
    if (!can || !ul_share_is_even(region.item_count, region.parts)) {
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
        if (ns < 2 * UL_REGION_LEAST_NS)
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
    threads->parts = region->parts > threads->parts ? region->parts : threads->parts;
    for (uint32_t i = 0; i < kernel->buffer_count && region->is_private != NULL; i++)
        threads->is_private[i] = threads->is_private[i] || region->is_private[i];
}

void ul_threads_init(struct ul_threads *threads, const struct ul_kernel *kernel, uint32_t count,
                     struct ul_arena *arena)
{
    struct chooser chooser = {.kernel = kernel, .arena = arena, .threads = threads};
    *threads = (struct ul_threads){.count = count, .parts = 1};
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
}
