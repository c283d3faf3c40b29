/* SPDX-License-Identifier: Apache-2.0 */
/* Phases in the launch of the one before them.
 *
 * Problem: a long sum comes in parts, one for each thread or block, and adding the parts takes less
 * time than its launch. Method: blocks are counted as they end, and the last one continues. Where
 * only some blocks have parts of an output, these are a group with a counter of its own, and its
 * last block continues with the outputs of the group:
 *
 *     part    outputs  0 .. 127   128 .. 255   256 .. 383
 *       0              block 0    block 1      block 2
 *       1              block 3    block 4      block 5
 *                      group 0    group 1      group 2
 *
 * All parts are complete before one of them is read, and they are always added in the same order,
 * whichever block is the last. A phase follows where the last block of a group takes hardly longer
 * than a launch of its own: blocks get more threads or fewer outputs for that. Left undone: phases
 * of contractions, and more than one that follows. */
#include "codegen/device/grid.h"
#include "codegen/kernel/touch.h"
#include "codegen/program/program.h"
#include "ir/kernel_build.h"

enum {
    BLOCK = 128,       /* threads of a block that may get more */
    MAX_THREADS = 512, /* at most so many */
    MIN_WIDTH = 16,    /* neighbouring outputs, so that memory is read in whole sectors */
    MAX_BLOCKS = 1 << 14,
    ITEM_CYCLES = 300, /* of an item: its loads from the last cache, its stores */
    ROUND_CYCLES = 65, /* of a round of a loop: some of its loads overlap */
    LOAD_CYCLES = 10,  /* of a load among others */
    FOLD_CYCLES = 150
};

struct follower {
    const struct ul_kernel *kernel;
    const bool *used; /* variables that something reads */
    const struct ul_profile_device *device;
    struct ul_arena *arena;
    const ul_ks *definitions; /* by variable: its LET, or UL_NONE */
    struct ul_phase *lead, *next;
};

/* ---- Groups of blocks ---- */

int64_t ul_phase_groups(const struct ul_phase *phase)
{
    return phase->group_row > 0 ? phase->group_row / phase->group_width : 1;
}

uint32_t ul_phase_counter_bits(const struct ul_phase *phase)
{
    /* Where packs are not aligned, all blocks are one group. */
    int64_t groups = phase->items.vector > 1 ? 1 : ul_phase_groups(phase);
    int64_t blocks = phase->block_count / groups;
    return blocks < 1 << 4 ? 4 : blocks < 1 << 8 ? 8 : blocks < 1 << 16 ? 16 : 32;
}

/* Words of the run's state that count the blocks of all groups; 0: the phase is not followed. */
static uint32_t counter_words(const struct ul_phase *phase)
{
    int64_t bits = ul_phase_counter_bits(phase) * ul_phase_groups(phase);
    return phase->is_followed ? (uint32_t)((bits + 31) / 32) : 0;
}

uint32_t ul_grid_counter_words(const struct ul_grid *grid)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < grid->phase_count; i++) {
        uint32_t words = counter_words(&grid->phases[i]);
        most = words > most ? words : most;
    }
    return most;
}

uint32_t ul_phase_span(const struct ul_phase *phase)
{
    return phase->joined_count + (phase->is_followed ? 1 : 0);
}

/* ---- Dependences ---- */

static bool is_of_nest(const struct follower *f, const struct ul_nest *nest, int64_t row,
                       const struct ul_grid_index *index)
{
    int64_t below = 1;
    uint32_t found = 0, wanted = 0, others = 0;
    for (uint32_t i = nest->count; i-- > 0; below *= nest->rounds[i]) {
        if (below % row == 0 || nest->rounds[i] == 1)
            continue;
        wanted++;
        for (uint32_t t = 0; t < index->count; t++)
            found += index->vars[t] == f->kernel->stmts[nest->loops[i]].var &&
                     index->factors[t] == below;
    }
    for (uint32_t t = 0; t < index->count; t++)
        others += index->factors[t] % row != 0 && index->highs[t] > 0;
    return index->is_known && index->constant % row == 0 && found == wanted && others == wanted;
}

/* Whether each access to a buffer is, modulo a row, at the number of its item. */
static bool is_expr_in_rows(const struct follower *f, const struct ul_nest *nest, int64_t row,
                            const bool *buffers, ul_kx id)
{
    if (id == UL_NONE)
        return true;
    const struct ul_kx_data *expr = &f->kernel->exprs[id];
    uint32_t operands[] = {expr->a, expr->b, expr->c};
    if (expr->op == UL_KX_LOAD && buffers[expr->var]) {
        struct ul_grid_index index = ul_grid_index_of(f->kernel, f->definitions, expr->a);
        if (!is_of_nest(f, nest, row, &index))
            return false;
    }
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op); i++) {
        if (!is_expr_in_rows(f, nest, row, buffers, operands[i]))
            return false;
    }
    return true;
}

static bool is_list_in_rows(const struct follower *f, const struct ul_nest *nest, int64_t row,
                            const bool *buffers, ul_ks first, ul_ks end)
{
    for (ul_ks id = first; id != end; id = f->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &f->kernel->stmts[id];
        if (stmt->kind == UL_KS_STORE && buffers[stmt->buffer]) {
            struct ul_grid_index index = ul_grid_index_of(f->kernel, f->definitions, stmt->index);
            if (!is_of_nest(f, nest, row, &index))
                return false;
        }
        if (!is_expr_in_rows(f, nest, row, buffers, stmt->value) ||
            !is_expr_in_rows(f, nest, row, buffers, stmt->index) ||
            !is_list_in_rows(f, nest, row, buffers, stmt->body, UL_NONE) ||
            !is_list_in_rows(f, nest, row, buffers, stmt->orelse, UL_NONE))
            return false;
    }
    return true;
}

static void find_stores(const struct follower *f, ul_ks first, ul_ks end, bool *stores)
{
    for (ul_ks id = first; id != end; id = f->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &f->kernel->stmts[id];
        if (stmt->kind == UL_KS_STORE)
            stores[stmt->buffer] = true;
        find_stores(f, stmt->body, UL_NONE, stores);
        find_stores(f, stmt->orelse, UL_NONE, stores);
    }
}

/* Elements of a row of the phase's items: the inner loops with as many rounds as the next phase has
 * items. 0: there are none. */
static int64_t row_of(const struct follower *f)
{
    const struct ul_nest *items = &f->lead->items;
    int64_t row = 1;
    for (uint32_t i = items->count; i-- > 0 && row < f->next->items.total;)
        row *= items->rounds[i];
    return f->lead->kind == UL_PHASE_EACH && f->next->items.count > 0 && items->slide.count == 0 &&
                   row == f->next->items.total
               ? row
               : 0;
}

/* Finds the buffers that one phase stores to and the other touches, by their own names or by
 * another's. False: elements of the two do not correspond. */
static bool find_shared(const struct follower *f, const bool *stores, const bool *touches,
                        bool *shared)
{
    for (uint32_t i = 0; i < f->kernel->buffer_count; i++) {
        for (uint32_t k = 0; k < f->kernel->buffer_count; k++) {
            if (!stores[i] || !touches[k] || f->kernel->buffers[i].role == UL_BUFFER_LOCAL ||
                !ul_may_alias(f->kernel, i, k))
                continue;
            if (!ul_same_elements(f->kernel, i, k))
                return false;
            shared[i] = shared[k] = true;
        }
    }
    return true;
}

/* Whether an item of the next phase needs from this one only what is in its column, and touches
 * nothing that another column needs. */
static bool has_columns(const struct follower *f, int64_t row)
{
    const struct ul_phase *phases[2] = {f->lead, f->next};
    uint32_t count = f->kernel->buffer_count;
    bool *shared = UL_NEW_ARRAY(f->arena, bool, count);
    bool *stores[2];
    struct ul_mentions mentions[2];
    for (uint32_t i = 0; i < 2; i++) {
        stores[i] = UL_NEW_ARRAY(f->arena, bool, count);
        find_stores(f, phases[i]->top_first, phases[i]->top_end, stores[i]);
        ul_mentions_init(&mentions[i], f->kernel, f->used, f->arena);
        ul_mention_list(&mentions[i], phases[i]->top_first, phases[i]->top_end);
    }
    bool has = find_shared(f, stores[0], mentions[1].buffers, shared) &&
               find_shared(f, stores[1], mentions[0].buffers, shared);
    for (uint32_t i = 0; has && i < 2; i++)
        has = is_list_in_rows(f, &phases[i]->items, row, shared, phases[i]->top_first,
                              phases[i]->top_end);
    return has;
}

/* ---- Time of the last block ---- */

static double expr_cycles(const struct follower *f, ul_kx id)
{
    if (id == UL_NONE)
        return 0;
    const struct ul_kx_data *expr = &f->kernel->exprs[id];
    uint32_t operands[] = {expr->a, expr->b, expr->c};
    bool is_far = expr->op == UL_KX_LOAD && f->kernel->buffers[expr->var].role != UL_BUFFER_LOCAL;
    double cycles = is_far ? LOAD_CYCLES : 0;
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op); i++)
        cycles += expr_cycles(f, operands[i]);
    return cycles;
}

/* The cycles of an item's statements. Contractions have been refused before. */
static double list_cycles(const struct follower *f, ul_ks first, ul_ks end)
{
    const struct ul_phase *next = f->next;
    double cycles = 0;
    for (ul_ks id = first; id != end; id = f->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &f->kernel->stmts[id];
        uint8_t mode = next->kind == UL_PHASE_TEAM ? next->modes[id] : (uint8_t)UL_TEAM_ALIKE;
        if (mode == UL_TEAM_FOLD || mode == UL_TEAM_NOTHING) {
            cycles += mode == UL_TEAM_FOLD ? FOLD_CYCLES : 0;
            continue;
        }
        double inside = list_cycles(f, stmt->body, UL_NONE) + list_cycles(f, stmt->orelse, UL_NONE);
        if (stmt->kind == UL_KS_FOR) {
            int64_t rounds = f->kernel->vars[stmt->var].high + 1;
            if (mode == UL_TEAM_STRIDED && next->nests[id] != NULL)
                rounds = (next->nests[id]->total + next->team - 1) / next->team;
            inside = (double)rounds * (inside + (rounds > 1 ? ROUND_CYCLES : 0));
        }
        cycles += inside + expr_cycles(f, stmt->value);
    }
    return cycles;
}

/* Whether a block of that many threads takes hardly longer for these items of the next phase than a
 * launch takes for all of them. */
static bool is_quick(const struct follower *f, int64_t items, uint32_t threads)
{
    const struct ul_phase *next = f->next;
    int64_t teams = next->block_count * next->block_threads / next->team;
    int64_t more = ul_div_up(items, threads / next->team) - ul_div_up(next->items.total, teams);
    return (double)more * (ITEM_CYCLES + list_cycles(f, next->first, next->end)) <=
           (double)f->device->launch_cycles;
}

/* ---- Which phases follow ---- */

static bool has_contraction(const struct follower *f, ul_ks first, ul_ks end)
{
    for (ul_ks id = first; id != end; id = f->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &f->kernel->stmts[id];
        if (stmt->kind == UL_KS_CONTRACT || has_contraction(f, stmt->body, UL_NONE) ||
            has_contraction(f, stmt->orelse, UL_NONE))
            return true;
    }
    return false;
}

static bool is_plain(const struct ul_phase *phase)
{
    return phase->kind != UL_PHASE_TILES && phase->joined_count == 1 && phase->block_count > 0 &&
           phase->host_count == 0 && !phase->has_own;
}

/* Whether a block of the first phase can continue with the next one. */
static bool can_follow(const struct follower *f)
{
    const struct ul_phase *lead = f->lead, *next = f->next;
    if (!is_plain(lead) || !is_plain(next) || next->is_loose || next->shared_bytes > 0 ||
        next->items.vector > 1 || next->items.slide.count > 0 ||
        has_contraction(f, next->top_first, next->top_end))
        return false;
    return next->kind == UL_PHASE_EACH ||
           (next->team == UL_WARP && lead->block_threads % UL_WARP == 0);
}

static void set_group(struct ul_phase *lead, uint32_t threads, int64_t row, int64_t width)
{
    lead->group_row = row;
    lead->group_width = width;
    (void)ul_grid_set_blocks(lead, 1, threads, 0);
}

/* Whether larger blocks are still enough for all multiprocessors. */
static bool is_spread(const struct follower *f, const struct ul_phase *before)
{
    const struct ul_phase *lead = f->lead;
    return lead->block_threads == before->block_threads ||
           8 * lead->block_count >= 7 * (int64_t)f->device->processors;
}

/* Tries groups of columns, the widest that are quick, in blocks of that many threads. */
static bool try_groups(const struct follower *f, uint32_t threads, int64_t row)
{
    struct ul_phase *lead = f->lead, before = *lead;
    for (int64_t width = threads; width >= MIN_WIDTH; width /= 2) {
        if (row % width != 0 || !is_quick(f, width * lead->items.vector, threads))
            continue;
        set_group(lead, threads, row, width);
        lead->is_followed = true;
        if (counter_words(lead) <= UL_PROGRAM_COUNTER_WORDS && lead->block_count <= MAX_BLOCKS &&
            is_spread(f, &before))
            return true;
        *lead = before;
    }
    return false;
}

static void try_follow(const struct follower *f)
{
    struct ul_phase *lead = f->lead;
    int64_t row = row_of(f), total = f->next->items.total, vector = lead->items.vector;
    bool has_rows =
        row > 0 && row % vector == 0 && lead->block_threads % BLOCK == 0 && has_columns(f, row);
    uint32_t most = lead->kind == UL_PHASE_EACH && has_rows ? MAX_THREADS : lead->block_threads;
    for (uint32_t threads = lead->block_threads; threads <= most && !lead->is_followed;
         threads *= 2) {
        if (threads == lead->block_threads && is_quick(f, total, threads)) {
            lead->is_followed = true;
        } else if (has_rows) {
            lead->is_followed = try_groups(f, threads, row / vector);
        }
    }
    if (!lead->is_followed)
        return;
    f->next->joined_count = 0;
    UL_ASSERT(counter_words(lead) <= UL_PROGRAM_COUNTER_WORDS);
}

void ul_grid_follow(struct ul_grid *grid, const struct ul_kernel *kernel, const bool *used,
                    const struct ul_profile_device *device, struct ul_arena *arena)
{
    struct follower f = {.kernel = kernel, .used = used, .device = device, .arena = arena};
    f.definitions = ul_grid_definitions(kernel, arena);
    for (uint32_t i = 0; i + 1 < grid->phase_count; i++) {
        f.lead = &grid->phases[i];
        f.next = &grid->phases[i + 1];
        if (ul_grid_find_together(grid, i) == NULL && ul_grid_find_together(grid, i + 1) == NULL &&
            can_follow(&f))
            try_follow(&f);
    }
}
