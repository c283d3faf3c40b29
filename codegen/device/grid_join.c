/* SPDX-License-Identifier: Apache-2.0 */
/* Phases that share a launch. A launch takes as long as some hundred thousand elements do, and an
 * operator like Concat is a phase for each operand:
 *
 *     for i < 53, j < 5376: y[5376 i + j]          = a[5376 i + j]       blocks [0, 279)
 *     for i < 3, j < 5376:  y[5376 i + j + 284928] = b[5376 i + j]       blocks [279, 295)
 *
 * Method: a phase joins the one before it where both have a thread for each item, and neither
 * touches what the other writes. Stores to one buffer do not overlap if their ranges do not, or
 * their ranges modulo a factor of an index, as above, or where operands alternate within each row.
 * Left undone: phases of teams, and phases with others between them. */
#include "codegen/device/grid.h"

#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

enum { MAX_JOINED = 16 };

struct joiner {
    const struct ul_kernel *kernel;
    struct ul_grid *grid;
    struct ul_arena *arena;
    const ul_ks *definitions; /* by variable: its LET, or UL_NONE */
};

/* ---- Where stores go ---- */

/* The range of the rest modulo `modulus` (0: of everything); false where it wraps around. */
static bool range_of(const struct ul_grid_index *a, int64_t modulus, int64_t *low, int64_t *high)
{
    UL_ASSERT(modulus >= 0);
    *low = *high = a->constant;
    for (uint32_t i = 0; i < a->count; i++) {
        int64_t reach = a->factors[i] * a->highs[i];
        if (modulus != 0 && a->factors[i] % modulus == 0)
            continue;
        if (__builtin_add_overflow(reach < 0 ? *low : *high, reach, reach < 0 ? low : high))
            return false;
    }
    if (modulus == 0)
        return true;
    if (*low < 0 || *low / modulus != *high / modulus)
        return false;
    *low %= modulus;
    *high %= modulus;
    return true;
}

static bool are_apart_modulo(const struct ul_grid_index *a, const struct ul_grid_index *b,
                             int64_t modulus)
{
    int64_t low_a, high_a, low_b, high_b;
    return range_of(a, modulus, &low_a, &high_a) && range_of(b, modulus, &low_b, &high_b) &&
           (high_a < low_b || high_b < low_a);
}

static bool are_apart(const struct joiner *j, ul_kx x, ul_kx y)
{
    struct ul_grid_index a = ul_grid_index_of(j->kernel, j->definitions, x);
    struct ul_grid_index b = ul_grid_index_of(j->kernel, j->definitions, y);
    if (!a.is_known || !b.is_known)
        return false;
    if (are_apart_modulo(&a, &b, 0))
        return true;
    for (uint32_t i = 0; i < a.count; i++) {
        if (a.factors[i] > 1 && are_apart_modulo(&a, &b, a.factors[i]))
            return true;
    }
    return false;
}

/* ---- Phases ---- */

/* Whether the statement list from `id` to `end` stores nowhere that `store` writes, and loads
 * nothing of it. */
static bool avoids(const struct joiner *j, ul_ks id, ul_ks end, const struct ul_ks_data *store)
{
    struct ul_mentions loads;
    for (; id != end; id = j->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &j->kernel->stmts[id];
        ul_mentions_init(&loads, j->kernel, NULL, j->arena);
        ul_mention_expr(&loads, stmt->value);
        ul_mention_expr(&loads, stmt->index);
        for (uint32_t i = 0; i < j->kernel->buffer_count; i++) {
            if (loads.buffers[i] && ul_may_alias(j->kernel, i, store->buffer))
                return false;
        }
        if (stmt->kind == UL_KS_CONTRACT)
            return false;
        if (stmt->kind == UL_KS_STORE && ul_may_alias(j->kernel, stmt->buffer, store->buffer) &&
            (stmt->buffer != store->buffer || !are_apart(j, stmt->index, store->index)))
            return false;
        if (!avoids(j, stmt->body, UL_NONE, store) || !avoids(j, stmt->orelse, UL_NONE, store))
            return false;
    }
    return true;
}

/* Whether the phase avoids everything that a statement list stores. */
static bool avoids_list(const struct joiner *j, const struct ul_phase *phase, ul_ks id, ul_ks end)
{
    for (; id != end; id = j->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &j->kernel->stmts[id];
        bool is_own =
            stmt->kind == UL_KS_STORE && j->kernel->buffers[stmt->buffer].role == UL_BUFFER_LOCAL;
        if (stmt->kind == UL_KS_CONTRACT ||
            (stmt->kind == UL_KS_STORE && !is_own && !avoids(j, phase->first, phase->end, stmt)) ||
            !avoids_list(j, phase, stmt->body, UL_NONE) ||
            !avoids_list(j, phase, stmt->orelse, UL_NONE))
            return false;
    }
    return true;
}

static bool is_joinable(const struct ul_phase *phase)
{
    return phase->kind == UL_PHASE_EACH && phase->items.count > 0 && phase->block_count > 0 &&
           !phase->has_own;
}

static bool can_join(const struct joiner *j, uint32_t first, uint32_t number)
{
    UL_ASSERT(first < number && number < j->grid->phase_count);
    const struct ul_phase *phase = &j->grid->phases[number];
    const struct ul_phase *leader = &j->grid->phases[first];
    if (!is_joinable(phase) || !is_joinable(leader) || number - first == MAX_JOINED ||
        phase->host_count != leader->host_count)
        return false;
    for (uint32_t i = 0; i < phase->host_count; i++) {
        if (phase->hosts[i] != leader->hosts[i])
            return false;
    }
    for (uint32_t i = first; i < number; i++) {
        const struct ul_phase *other = &j->grid->phases[i];
        if (!avoids_list(j, phase, other->first, other->end) ||
            !avoids_list(j, other, phase->first, phase->end))
            return false;
    }
    return true;
}

uint32_t ul_grid_max_threads(const struct ul_phase *phases, uint32_t count)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < count; i++)
        threads = phases[i].block_threads > threads ? phases[i].block_threads : threads;
    UL_ASSERT(threads > 0);
    return threads;
}

/* The number of blocks of that many threads for the work of a phase. */
static int64_t blocks_of(const struct ul_phase *phase, uint32_t threads)
{
    int64_t all = phase->block_count * phase->block_threads;
    if (phase->group_row == 0)
        return (all + threads - 1) / threads;
    int64_t rows = ul_nest_items(&phase->items) / phase->group_row;
    int64_t each = threads / phase->group_width;
    UL_ASSERT(threads % phase->group_width == 0);
    return (rows + each - 1) / each * (phase->group_row / phase->group_width);
}

int64_t ul_grid_set_blocks(struct ul_phase *phases, uint32_t count, uint32_t threads, int64_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        phases[i].block_count = blocks_of(&phases[i], threads);
        phases[i].block_threads = threads;
        phases[i].first_block = first;
        first += phases[i].block_count;
    }
    return first;
}

void ul_grid_join(struct ul_grid *grid, const struct ul_kernel *kernel, struct ul_arena *arena)
{
    struct joiner j = {.kernel = kernel, .grid = grid, .arena = arena};
    j.definitions = ul_grid_definitions(kernel, arena);
    for (uint32_t first = 0; first < grid->phase_count;) {
        uint32_t end = first + 1;
        while (end < grid->phase_count && can_join(&j, first, end))
            end++;
        grid->phases[first].joined_count = end - first;
        if (end - first > 1)
            ul_grid_set_blocks(&grid->phases[first], end - first,
                               ul_grid_max_threads(&grid->phases[first], end - first), 0);
        first = end;
    }
}
