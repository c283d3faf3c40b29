/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of a kernel on a graphics processor.
 *
 * Problem: a launch takes microseconds, threads number a hundred thousand, and threads of different
 * blocks cannot wait for each other. Method: the kernel's list is cut into phases wherever only
 * buffers cross. A nest of independent loops at its head gives the items, and the statements inside
 * it decide how many threads share one. Where an item consists of loops over the same lanes, and no
 * lane reads what another one wrote, the lanes are items too:
 *
 *     for i: for lane: m[lane] = ...        a thread for each i and lane, m a register
 *            for r: for lane: m[lane] = max(m[lane], x[i, r, lane])
 *
 * Otherwise a warp or a block runs an item together, with barriers. A loop whose rounds depend on
 * each other runs on the host where a round is worth launches of its own, else inside one team. */
#include "codegen/device/grid.h"

#include "codegen/kernel/threads.h"
#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"
#include "planner/model/problem.h"

#include <string.h>

enum {
    BLOCK = 128,      /* threads of a block whose threads are independent */
    MAX_BLOCK = 1024, /* of a block that shares an item */
    FEW_ITEMS = 8,    /* for a processor: with fewer, an item is worth more than a warp */
    MAX_TEAMS = 2,    /* for a processor, with scratch of their own */
    MAX_BLOCKS = 64,  /* of a launch, for a processor; more items take turns */
    MAX_SHARED_BYTES = 32 << 10, /* of a block */
    MAX_OWN_BYTES = 4 << 20,     /* of scratch of all teams */
    MAX_LAUNCHES = 1 << 16,      /* from loops on the host */
    FEW_ROUNDS = 64,             /* which each lane may repeat for itself */
    LONG_ROUNDS = 512            /* of a thread: then smaller blocks pay off */
};

/* Nanoseconds on a core of the default profile for each cycle that a launch takes: the least that a
 * round on the host must be worth. */
#define HOST_ROUND_NS 4.0

/* A test that wants vectors everywhere sets it to 0. */
#ifndef UL_VECTOR_MIN_THREADS
#define UL_VECTOR_MIN_THREADS 120 /* for each processor; fewer leave the device half empty */
#endif

struct builder {
    ul_attend_grid_fn *attend_grid;
    const struct ul_kernel *kernel;
    const bool *used;
    const struct ul_profile_device *device;
    struct ul_arena *arena;
    struct ul_arena scratch;
    struct ul_grid *grid;
    struct ul_touched everywhere;
    uint32_t host_count;
    ul_ks hosts[UL_GRID_HOSTS];
    int64_t launches; /* rounds of these */
};

static int64_t for_all(const struct builder *b, int64_t each)
{
    return each * b->device->processors;
}

static const struct ul_ks_data *stmt_get(const struct builder *b, ul_ks id)
{
    return &b->kernel->stmts[id];
}

/* ---- Nests ---- */

static bool add_loop(const struct builder *b, struct ul_nest *nest, ul_ks id)
{
    int64_t count;
    if (nest->count == UL_GRID_LEVELS || !ul_kx_is_int(b->kernel, stmt_get(b, id)->value, &count) ||
        count < 0 || __builtin_mul_overflow(nest->total, count, &nest->total))
        return false;
    nest->loops[nest->count] = id;
    nest->rounds[nest->count++] = count;
    return true;
}

/* What the rounds of the nest leave: false where they cannot run at the same time. Sets in `own`
 * the buffers that each round needs for itself. */
static bool can_spread(struct builder *b, const struct ul_nest *nest, bool *own)
{
    struct ul_touched inside;
    ul_touch_loops(&inside, b->kernel, nest->loops, nest->rounds, nest->count, &b->scratch);
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &b->kernel->buffers[i];
        own[i] = inside.uses[i] > 0 && (buffer->role == UL_BUFFER_LOCAL || inside.is_private[i]);
        if (own[i] && (buffer->role == UL_BUFFER_OUTPUT || inside.uses[i] != b->everywhere.uses[i]))
            return false;
    }
    return !inside.sets_outside;
}

/* The loop at `id`, and the loops directly inside it as far as all can be spread. */
static bool collect_items(struct builder *b, ul_ks id, struct ul_nest *nest, bool *own)
{
    bool *tried = UL_NEW_ARRAY(&b->scratch, bool, b->kernel->buffer_count);
    *nest = (struct ul_nest){.total = 1, .shift = UL_NONE, .vector = 1};
    while (id != UL_NONE && (stmt_get(b, id)->flags & UL_FOR_PARALLEL) != 0) {
        struct ul_nest longer = *nest;
        if (!add_loop(b, &longer, id) || !can_spread(b, &longer, tried))
            break;
        *nest = longer;
        memcpy(own, tried, b->kernel->buffer_count * sizeof *own);
        id = ul_only_loop(b->kernel, stmt_get(b, id)->body);
    }
    return nest->count > 0;
}

/* ---- How a team runs statements ---- */

/* Whether a team may share the loop. Arrays that each round has for itself are the thread's own. */
static bool can_stride(struct builder *b, const struct ul_nest *nest)
{
    bool *own = UL_NEW_ARRAY(&b->scratch, bool, b->kernel->buffer_count);
    struct ul_touched inside;
    ul_touch_loops(&inside, b->kernel, nest->loops, nest->rounds, nest->count, &b->scratch);
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &b->kernel->buffers[i];
        own[i] = inside.is_private[i];
        if (own[i] && (buffer->role != UL_BUFFER_LOCAL || inside.uses[i] != b->everywhere.uses[i]))
            return false;
    }
    return !inside.sets_outside;
}

static struct ul_nest one_loop(const struct builder *b, ul_ks id)
{
    const struct ul_ks_data *stmt = stmt_get(b, id);
    struct ul_nest nest = {.count = 1, .loops = {id}, .shift = UL_NONE, .vector = 1};
    if (!ul_kx_is_int(b->kernel, stmt->value, &nest.total))
        nest.total = b->kernel->vars[stmt->var].high + 1;
    nest.rounds[0] = nest.total;
    return nest;
}

static bool is_shareable(struct builder *b, ul_ks id)
{
    const struct ul_ks_data *stmt = stmt_get(b, id);
    if (stmt->kind == UL_KS_CONTRACT)
        return true;
    if (stmt->kind != UL_KS_FOR || (stmt->flags & UL_FOR_PARALLEL) == 0)
        return false;
    struct ul_nest nest = one_loop(b, id);
    return can_stride(b, &nest);
}

/* Whether there is anything for threads to share. */
static bool has_work(struct builder *b, ul_ks first, ul_ks end)
{
    for (ul_ks id = first; id != end; id = stmt_get(b, id)->next) {
        if (is_shareable(b, id) || has_work(b, stmt_get(b, id)->body, UL_NONE) ||
            has_work(b, stmt_get(b, id)->orelse, UL_NONE))
            return true;
    }
    return false;
}

static bool stores(const struct builder *b, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(b, id)->next) {
        if (stmt_get(b, id)->kind == UL_KS_STORE || stores(b, stmt_get(b, id)->body) ||
            stores(b, stmt_get(b, id)->orelse))
            return true;
    }
    return false;
}

/* The loop and the loops directly inside it, as far as a team can share all. */
static struct ul_nest collect_strided(struct builder *b, ul_ks id)
{
    struct ul_nest nest = one_loop(b, id);
    int64_t count;
    if (!ul_kx_is_int(b->kernel, stmt_get(b, id)->value, &count))
        return nest;
    for (;;) {
        struct ul_nest longer = nest;
        id = ul_only_loop(b->kernel, stmt_get(b, id)->body);
        if (id == UL_NONE || !add_loop(b, &longer, id) || !can_stride(b, &longer))
            return nest;
        nest = longer;
    }
}

/* The most rounds that threads can share at once; `lanes`: only those of innermost loops. */
static int64_t max_rounds(struct builder *b, ul_ks first, ul_ks end, bool lanes)
{
    int64_t max = 0;
    for (ul_ks id = first; id != end; id = stmt_get(b, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(b, id);
        int64_t inner = max_rounds(b, stmt->body, UL_NONE, lanes);
        int64_t other = max_rounds(b, stmt->orelse, UL_NONE, lanes);
        inner = inner > other ? inner : other;
        if (stmt->kind == UL_KS_CONTRACT) {
            const struct ul_contraction *c = &b->kernel->contractions[stmt->contraction];
            inner = 1;
            for (uint32_t i = 0; i < c->m_count + c->n_count; i++)
                inner = inner > INT32_MAX ? inner : inner * c->extents[i];
        } else if (is_shareable(b, id) && (!lanes || inner == 0)) {
            int64_t total = collect_strided(b, id).total;
            inner = total > inner ? total : inner;
        }
        max = inner > max ? inner : max;
    }
    return max;
}

static void set_all(struct builder *b, struct ul_phase *phase, ul_ks first, enum ul_team_mode mode)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(b, id)->next) {
        phase->modes[id] = (uint8_t)mode;
        set_all(b, phase, ul_ks_inside(b->kernel, stmt_get(b, id)), mode);
        set_all(b, phase, stmt_get(b, id)->orelse, mode);
    }
}

static void set_strided(struct builder *b, struct ul_phase *phase, ul_ks id,
                        const struct ul_nest *nest)
{
    UL_ASSERT(nest->count > 0 && phase->nests[id] == NULL);
    phase->modes[id] = UL_TEAM_STRIDED;
    phase->nests[id] = ul_arena_copy(b->arena, nest, sizeof *nest);
}

static void set_mode(struct builder *b, struct ul_phase *phase, ul_ks id, bool lanes);

static void set_modes(struct builder *b, struct ul_phase *phase, ul_ks first, ul_ks end, bool lanes)
{
    for (ul_ks id = first; id != end; id = stmt_get(b, id)->next)
        set_mode(b, phase, id, lanes);
}

static void set_mode(struct builder *b, struct ul_phase *phase, ul_ks id, bool lanes)
{
    const struct ul_ks_data *stmt = stmt_get(b, id);
    phase->modes[id] = UL_TEAM_ALIKE;
    if (stmt->kind == UL_KS_CONTRACT) {
        phase->modes[id] = UL_TEAM_STRIDED;
    } else if (stmt->kind == UL_KS_FOR) {
        bool inner = has_work(b, stmt->body, UL_NONE);
        if (is_shareable(b, id)) {
            struct ul_nest nest = lanes ? one_loop(b, id) : collect_strided(b, id);
            ul_ks last = nest.loops[nest.count - 1];
            bool is_leaf = !has_work(b, stmt_get(b, last)->body, UL_NONE);
            if (is_leaf || (!lanes && nest.total >= phase->team)) {
                set_strided(b, phase, id, &nest);
                return;
            }
        }
        if (inner || !stores(b, stmt->body)) {
            set_modes(b, phase, stmt->body, UL_NONE, lanes);
        } else {
            phase->modes[id] = UL_TEAM_FIRST;
            set_all(b, phase, stmt->body, UL_TEAM_FIRST);
        }
    } else if (stmt->kind == UL_KS_IF) {
        set_modes(b, phase, stmt->body, UL_NONE, lanes);
        set_modes(b, phase, stmt->orelse, UL_NONE, lanes);
    }
}

/* ---- Places of buffers ---- */

static bool used_in(struct builder *b, const struct ul_phase *phase, uint32_t buffer)
{
    struct ul_mentions mentions;
    ul_mentions_init(&mentions, b->kernel, b->used, &b->scratch);
    ul_mention_list(&mentions, phase->first, phase->end);
    return mentions.buffers[buffer];
}

/* Whether only the rounds of one strided loop use the array. */
static bool is_of_one_thread(struct builder *b, const struct ul_phase *phase, uint32_t buffer)
{
    for (ul_ks id = 0; id < b->kernel->stmt_count; id++) {
        if (phase->nests[id] == NULL)
            continue;
        struct ul_touched inside;
        const struct ul_nest *nest = phase->nests[id];
        ul_touch_loops(&inside, b->kernel, nest->loops, nest->rounds, nest->count, &b->scratch);
        if (inside.uses[buffer] > 0 && inside.uses[buffer] == b->everywhere.uses[buffer])
            return true;
    }
    return false;
}

static void set_places(struct builder *b, struct ul_phase *phase, const bool *own)
{
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        enum ul_buffer_role role = b->kernel->buffers[i].role;
        phase->places[i] = UL_PLACE_ARENA;
        if (role == UL_BUFFER_SCRATCH && own != NULL && own[i])
            phase->places[i] = UL_PLACE_OWN;
        if (role == UL_BUFFER_LOCAL)
            phase->places[i] = phase->kind != UL_PHASE_TEAM || is_of_one_thread(b, phase, i)
                                   ? UL_PLACE_THREAD
                                   : UL_PLACE_SHARED;
    }
}

/* Places arrays of one kind one after the other from 0 on; returns the bytes. */
static uint64_t place_arrays(struct builder *b, struct ul_phase *phase, enum ul_grid_place place,
                             uint64_t align_bytes)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &b->kernel->buffers[i];
        bool is_array = buffer->role == UL_BUFFER_SCRATCH || buffer->role == UL_BUFFER_LOCAL;
        if (!is_array || phase->places[i] != place || !used_in(b, phase, i))
            continue;
        phase->offsets_bytes[i] = total;
        total =
            ul_size_align_or_die(ul_size_add_or_die(total, ul_buffer_bytes(buffer)), align_bytes);
    }
    return total;
}

static void move_to_scratch(struct builder *b, struct ul_phase *phase)
{
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        if (phase->places[i] == UL_PLACE_SHARED)
            phase->places[i] = UL_PLACE_OWN;
    }
}

/* ---- Phases ---- */

static struct ul_phase *phase_add(struct builder *b, enum ul_phase_kind kind, ul_ks first,
                                  ul_ks end)
{
    UL_ASSERT(first != end);
    struct ul_grid *grid = b->grid;
    UL_GROW(b->arena, grid->phases, grid->phase_count, grid->phase_capacity);
    struct ul_phase *phase = &grid->phases[grid->phase_count++];
    *phase = (struct ul_phase){.kind = kind,
                               .host_count = b->host_count,
                               .top_first = first,
                               .top_end = end,
                               .items = {.total = 1, .shift = UL_NONE, .vector = 1},
                               .first = first,
                               .end = end,
                               .team = 1};
    memcpy(phase->hosts, b->hosts, sizeof b->hosts);
    phase->offsets_bytes = UL_NEW_ARRAY(b->arena, uint64_t, b->kernel->buffer_count);
    phase->places = UL_NEW_ARRAY(b->arena, uint8_t, b->kernel->buffer_count);
    phase->modes = UL_NEW_ARRAY(b->arena, uint8_t, b->kernel->stmt_count);
    phase->nests = UL_NEW_ARRAY(b->arena, struct ul_nest *, b->kernel->stmt_count);
    phase->folds = UL_NEW_ARRAY(b->arena, struct ul_grid_fold *, b->kernel->stmt_count);
    phase->is_folded = UL_NEW_ARRAY(b->arena, bool, b->kernel->buffer_count);
    phase->barriers = UL_NEW_ARRAY(b->arena, bool, b->kernel->stmt_count);
    return phase;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Rounds of loops that each thread of a team repeats for itself, at most. */
static double repeated_rounds(struct builder *b, ul_ks first, ul_ks end)
{
    double rounds = 0;
    for (ul_ks id = first; id != end; id = stmt_get(b, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(b, id);
        if (has_work(b, id, stmt->next))
            continue;
        double inner =
            repeated_rounds(b, stmt->body, UL_NONE) + repeated_rounds(b, stmt->orelse, UL_NONE) + 1;
        rounds += stmt->kind == UL_KS_FOR ? inner * (double)(b->kernel->vars[stmt->var].high + 1)
                                          : inner - 1;
    }
    return rounds;
}

/* Threads of a block whose threads are independent: fewer where a few threads have long sums, so
 * that more multiprocessors have a block. */
static int64_t each_block(struct builder *b, const struct ul_phase *phase, int64_t items)
{
    int64_t threads = BLOCK;
    if (phase->has_own || repeated_rounds(b, phase->first, phase->end) < LONG_ROUNDS)
        return threads;
    while (threads > UL_WARP && ceil_div(items, threads) < b->device->processors)
        threads /= 2;
    return threads;
}

/* Sets the number of blocks and their threads; with scratch of their own, at most as many teams as
 * may have it. */
static void set_launch(struct builder *b, struct ul_phase *phase)
{
    int64_t teams = ul_nest_items(&phase->items);
    bool alone = phase->kind == UL_PHASE_TEAM && !phase->is_loose && phase->team > UL_WARP;
    if (phase->own_bytes > 0) {
        int64_t max = for_all(b, MAX_TEAMS) * (alone                          ? 1
                                               : phase->kind == UL_PHASE_TEAM ? 4
                                                                              : BLOCK);
        int64_t fit = (int64_t)(MAX_OWN_BYTES / phase->own_bytes);
        max = fit < max ? fit : max;
        max = max < 1 ? 1 : max;
        teams = teams < max ? teams : max;
        phase->has_own = true;
    }
    int64_t in_block = alone ? 1 : phase->kind == UL_PHASE_TEAM && !phase->is_loose ? 4 : BLOCK;
    if (phase->kind == UL_PHASE_EACH)
        in_block = each_block(b, phase, teams);
    while (!alone && phase->shared_bytes > 0 && in_block > 1 &&
           (uint64_t)in_block * phase->shared_bytes > MAX_SHARED_BYTES)
        in_block /= 2;
    if (phase->is_loose) { /* threads rather than teams fill blocks */
        phase->block_threads = BLOCK;
        phase->block_count = ceil_div(teams * phase->team, BLOCK);
    } else {
        in_block = in_block < teams ? in_block : teams;
        if (phase->has_own) /* whole blocks */
            teams -= teams % in_block;
        phase->block_threads = (uint32_t)(in_block * phase->team);
        phase->block_count = ceil_div(teams, in_block);
    }
    if (phase->block_count > for_all(b, MAX_BLOCKS))
        phase->block_count = for_all(b, MAX_BLOCKS);
    UL_ASSERT(phase->block_threads > 0 && phase->block_threads <= MAX_BLOCK);
    UL_ASSERT(phase->block_count > 0 && phase->own_bytes % UL_PLAN_ALIGN_BYTES == 0);
}

static void place_phase(struct builder *b, struct ul_phase *phase)
{
    uint64_t shared = place_arrays(b, phase, UL_PLACE_SHARED, 16);
    if (shared > MAX_SHARED_BYTES) {
        move_to_scratch(b, phase);
        shared = 0;
    }
    phase->shared_bytes = (uint32_t)shared;
    phase->own_bytes = place_arrays(b, phase, UL_PLACE_OWN, UL_PLAN_ALIGN_BYTES);
    set_launch(b, phase);
}

static bool any_mode(const struct builder *b, const struct ul_phase *phase, enum ul_team_mode mode)
{
    for (ul_ks id = 0; id < b->kernel->stmt_count; id++) {
        if (phase->modes[id] == (uint8_t)mode)
            return true;
    }
    return false;
}

static bool any_barrier(const struct builder *b, const struct ul_phase *phase)
{
    for (ul_ks id = 0; id < b->kernel->stmt_count; id++) {
        if (phase->barriers[id])
            return true;
    }
    return false;
}

static bool any_place(const struct builder *b, const struct ul_phase *phase,
                      enum ul_grid_place place)
{
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        if (phase->places[i] == (uint8_t)place)
            return true;
    }
    return false;
}

/* `low`, where a loop in lanes touches array[low + round], and the array has one element for each
 * lane. */
static ul_kx find_shift(struct builder *b, const struct ul_phase *phase, ul_kx id, uint32_t var)
{
    if (id == UL_NONE)
        return UL_NONE;
    const struct ul_kx_data *expr = &b->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return UL_NONE;
    if (expr->op == UL_KX_LOAD && b->kernel->buffers[expr->var].role == UL_BUFFER_LOCAL &&
        b->kernel->buffers[expr->var].element_count <= (uint64_t)phase->team) {
        const struct ul_kx_data *index = &b->kernel->exprs[expr->a];
        const struct ul_kx_data *right = &b->kernel->exprs[index->b];
        if (index->op == UL_KX_ADD && right->op == UL_KX_VAR && right->var == var)
            return index->a;
    }
    ul_kx found = find_shift(b, phase, expr->a, var);
    if (found == UL_NONE && ul_kx_operand_count(expr->op) >= 2)
        found = find_shift(b, phase, expr->b, var);
    if (found == UL_NONE && ul_kx_operand_count(expr->op) == 3)
        found = find_shift(b, phase, expr->c, var);
    return found;
}

static void find_shifts(struct builder *b, struct ul_phase *phase)
{
    for (ul_ks id = 0; id < b->kernel->stmt_count; id++) {
        struct ul_nest *nest = phase->nests[id];
        if (nest == NULL || nest->count != 1)
            continue;
        const struct ul_ks_data *loop = stmt_get(b, nest->loops[0]);
        for (ul_ks k = loop->body; k != UL_NONE && nest->shift == UL_NONE; k = stmt_get(b, k)->next)
            nest->shift = find_shift(b, phase, stmt_get(b, k)->value, loop->var);
    }
}

/* Tries lanes as items of their own: nothing is shared, and there is no barrier. */
static bool try_loose(struct builder *b, struct ul_phase *phase, const bool *own)
{
    int64_t lanes = max_rounds(b, phase->first, phase->end, true);
    int64_t threads;
    if (lanes < 2 || __builtin_mul_overflow(lanes, phase->items.total, &threads) ||
        threads > INT64_MAX / BLOCK)
        return false;
    if (lanes > UL_WARP && repeated_rounds(b, phase->first, phase->end) > FEW_ROUNDS)
        return false;
    phase->kind = UL_PHASE_TEAM;
    phase->is_loose = true;
    phase->team = lanes;
    memset(phase->nests, 0, b->kernel->stmt_count * sizeof(struct ul_nest *));
    set_modes(b, phase, phase->first, phase->end, true);
    find_shifts(b, phase);
    set_places(b, phase, own);
    ul_grid_find_barriers(phase, b->kernel, &b->scratch);
    return !any_barrier(b, phase) && !any_place(b, phase, UL_PLACE_SHARED) &&
           !any_place(b, phase, UL_PLACE_OWN) && !any_mode(b, phase, UL_TEAM_FIRST);
}

/* Threads that share an item: enough for its longest loop, fewer where there are many items; as
 * many as there are partial results, which are then in registers. */
static int64_t team_of(struct builder *b, const struct ul_phase *phase)
{
    int64_t width = ul_grid_fold_width(b->kernel, phase->first, phase->end);
    int64_t max = max_rounds(b, phase->first, phase->end, false);
    int64_t team = UL_WARP;
    int64_t limit = phase->items.total >= for_all(b, FEW_ITEMS) ? UL_WARP : MAX_BLOCK;
    if (width >= UL_WARP && width <= MAX_BLOCK)
        return width;
    if (phase->items.total >= for_all(b, MAX_TEAMS) && limit > 256)
        limit = 256;
    while (team < limit && 2 * team < max)
        team *= 2;
    return team;
}

/* Elements at once, where each thread has several rounds of a loop that the team shares. */
static void set_team_vectors(struct builder *b, struct ul_phase *phase)
{
    for (ul_ks id = 0; id < b->kernel->stmt_count; id++) {
        struct ul_nest *nest = phase->nests[id];
        int64_t count;
        if (nest != NULL && nest->total > phase->team &&
            ul_kx_is_int(b->kernel, stmt_get(b, nest->loops[0])->value, &count))
            *nest = ul_grid_vector(nest, b->kernel, phase->team, b->arena);
    }
}

static void set_team(struct builder *b, struct ul_phase *phase, const bool *own, bool with_folds)
{
    memset(phase->barriers, 0, b->kernel->stmt_count * sizeof *phase->barriers);
    memset(phase->modes, 0, b->kernel->stmt_count * sizeof *phase->modes);
    memset(phase->nests, 0, b->kernel->stmt_count * sizeof(struct ul_nest *));
    memset(phase->folds, 0, b->kernel->stmt_count * sizeof(struct ul_grid_fold *));
    memset(phase->is_folded, 0, b->kernel->buffer_count * sizeof *phase->is_folded);
    set_modes(b, phase, phase->first, phase->end, false);
    set_team_vectors(b, phase);
    if (with_folds)
        ul_grid_find_folds(phase, b->kernel, b->everywhere.uses, b->arena);
    set_places(b, phase, own);
    ul_grid_find_barriers(phase, b->kernel, &b->scratch);
}

static void make_team(struct builder *b, struct ul_phase *phase, const bool *own)
{
    bool in_registers = true;
    phase->kind = UL_PHASE_TEAM;
    phase->is_loose = false;
    phase->team = team_of(b, phase);
    set_team(b, phase, own, true);
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++)
        in_registers = in_registers &&
                       (!phase->is_folded[i] || phase->places[i] == (uint8_t)UL_PLACE_REGISTER);
    if (!in_registers)
        set_team(b, phase, own, false);
    UL_ASSERT(phase->team >= UL_WARP && phase->team <= MAX_BLOCK);
}

/* Elements at once, where enough threads are left to fill the device. */
static void set_item_vector(struct builder *b, struct ul_phase *phase)
{
    if (phase->items.count == 0)
        return;
    int64_t min_items = for_all(b, UL_VECTOR_MIN_THREADS);
    phase->items = ul_grid_vector_items(&phase->items, b->kernel, min_items, b->arena);
    ul_grid_slide(&phase->items, b->kernel, min_items / 2, b->arena);
}

/* How the statements of an item are run. */
static void make_items(struct builder *b, struct ul_phase *phase, const bool *own)
{
    if (phase->items.total == 0)
        return; /* no block */
    if (!has_work(b, phase->first, phase->end)) {
        phase->kind = UL_PHASE_EACH;
        set_places(b, phase, own);
        set_item_vector(b, phase);
    } else if (!try_loose(b, phase, own)) {
        make_team(b, phase, own);
    }
    place_phase(b, phase);
}

/* The contraction that is all that the list holds apart from names, or UL_NONE. */
static ul_ks only_contraction(const struct builder *b, ul_ks first)
{
    ul_ks id = first;
    while (id != UL_NONE && stmt_get(b, id)->kind == UL_KS_LET &&
           ul_is_index_only(b->kernel, stmt_get(b, id)->value))
        id = stmt_get(b, id)->next;
    bool is_one = id != UL_NONE && stmt_get(b, id)->kind == UL_KS_CONTRACT &&
                  stmt_get(b, id)->next == UL_NONE;
    return is_one ? id : UL_NONE;
}

static void make_tiles(struct builder *b, struct ul_phase *phase, ul_ks contraction)
{
    struct ul_contract_grid grid;
    const struct ul_contraction *c =
        &b->kernel->contractions[stmt_get(b, contraction)->contraction];
    if (c->attend != NULL)
        b->attend_grid(b->kernel, c->attend, b->device, &grid);
    else
        ul_contract_device_grid(b->kernel, c, b->device, &grid);
    phase->kind = UL_PHASE_TILES;
    UL_ASSERT(grid.threads >= UL_WARP && grid.threads <= MAX_BLOCK);
    phase->block_threads = grid.threads;
    set_places(b, phase, NULL);
    if (__builtin_mul_overflow(grid.tile_count, phase->items.total, &phase->block_count))
        phase->block_count = for_all(b, MAX_BLOCKS);
    if (phase->block_count > for_all(b, MAX_BLOCKS))
        phase->block_count = for_all(b, MAX_BLOCKS);
}

/* Adds the phase of the statements [first, end), which only buffers tie to others. */
static void add_phase(struct builder *b, ul_ks first, ul_ks end)
{
    bool *own = UL_NEW_ARRAY(b->arena, bool, b->kernel->buffer_count);
    struct ul_phase *phase = phase_add(b, UL_PHASE_EACH, first, end);
    bool is_one = stmt_get(b, first)->next == end;
    if (is_one && stmt_get(b, first)->kind == UL_KS_CONTRACT) {
        make_tiles(b, phase, first);
        return;
    }
    if (is_one && stmt_get(b, first)->kind == UL_KS_FOR &&
        collect_items(b, first, &phase->items, own)) {
        phase->first = stmt_get(b, phase->items.loops[phase->items.count - 1])->body;
        phase->end = UL_NONE;
        ul_ks contraction = only_contraction(b, phase->first);
        bool has_local = false;
        for (uint32_t i = 0; i < b->kernel->buffer_count; i++)
            has_local = has_local || own[i];
        if (contraction != UL_NONE && !has_local) {
            make_tiles(b, phase, contraction);
            return;
        }
    } else {
        own = NULL;
        phase->items = (struct ul_nest){.total = 1, .shift = UL_NONE, .vector = 1};
    }
    make_items(b, phase, own);
}

/* ---- Lists on the host ---- */

/* Whether a name's value may be computed again later: it uses only other names, and inputs that no
 * output can overlap. */
static bool is_constant(const struct builder *b, ul_kx id)
{
    const struct ul_kernel *kernel = b->kernel;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        return b->grid->is_name[expr->var];
    if (ul_kx_operand_count(expr->op) == 0)
        return true;
    for (uint32_t i = 0; expr->op == UL_KX_LOAD && i < kernel->buffer_count; i++) {
        if (kernel->buffers[expr->var].role != UL_BUFFER_INPUT ||
            (kernel->buffers[i].role == UL_BUFFER_OUTPUT && ul_may_alias(kernel, expr->var, i)))
            return false;
    }
    if (!is_constant(b, expr->a))
        return false;
    if (ul_kx_operand_count(expr->op) >= 2 && !is_constant(b, expr->b))
        return false;
    return ul_kx_operand_count(expr->op) < 3 || is_constant(b, expr->c);
}

/* Statements are numbered in the order of their making: a name comes after its parts. */
static void find_names(struct builder *b)
{
    b->grid->is_name = UL_NEW_ARRAY(b->arena, bool, b->kernel->var_count);
    for (ul_ks id = 0; id < b->kernel->stmt_count; id++) {
        const struct ul_ks_data *stmt = stmt_get(b, id);
        if (stmt->kind == UL_KS_FOR || (stmt->kind == UL_KS_LET && is_constant(b, stmt->value)))
            b->grid->is_name[stmt->var] = true;
    }
}

/* The statement after the last one from `first` on to which `id` is tied: by a variable that it
 * declares, or by an array that would be lost. */
static ul_ks tied_until(struct builder *b, ul_ks id)
{
    const struct ul_ks_data *stmt = stmt_get(b, id);
    struct ul_mentions here;
    ul_mentions_init(&here, b->kernel, b->used, &b->scratch);
    ul_mention(&here, id);
    bool declares =
        (stmt->kind == UL_KS_LET && !b->grid->is_name[stmt->var]) || stmt->kind == UL_KS_VAR;
    ul_ks until = stmt->next;
    for (ul_ks later = stmt->next; later != UL_NONE; later = stmt_get(b, later)->next) {
        struct ul_mentions there;
        ul_mentions_init(&there, b->kernel, b->used, &b->scratch);
        ul_mention(&there, later);
        bool tied = declares && there.vars[stmt->var];
        for (uint32_t i = 0; i < b->kernel->buffer_count; i++)
            tied = tied || (b->kernel->buffers[i].role == UL_BUFFER_LOCAL && here.buffers[i] &&
                            there.buffers[i]);
        until = tied ? stmt_get(b, later)->next : until;
    }
    return until;
}

static bool is_before(const struct builder *b, ul_ks a, ul_ks end)
{
    for (ul_ks id = a; id != UL_NONE; id = stmt_get(b, id)->next) {
        if (stmt_get(b, id)->next == end)
            return true;
    }
    return false;
}

/* The end of the group that begins with `first`: everything that is tied together. */
static ul_ks group_end(struct builder *b, ul_ks first)
{
    ul_ks end = stmt_get(b, first)->next;
    for (ul_ks id = first; id != end; id = stmt_get(b, id)->next) {
        ul_ks until = tied_until(b, id);
        if (end != UL_NONE && is_before(b, end, until))
            end = until;
    }
    UL_ASSERT(end == UL_NONE || end != first);
    return end;
}

static bool has_break(const struct builder *b, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(b, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(b, id);
        if (stmt->kind == UL_KS_BREAK ||
            (stmt->kind == UL_KS_IF && (has_break(b, stmt->body) || has_break(b, stmt->orelse))))
            return true;
    }
    return false;
}

/* Whether the host can compute it: from numbers and the variables of its loops only. */
static bool is_known_to_host(const struct builder *b, ul_kx id)
{
    const struct ul_kx_data *expr = &b->kernel->exprs[id];
    uint32_t operands[] = {expr->a, expr->b, expr->c};
    if (expr->dtype != UL_I64 || expr->op == UL_KX_LOAD || expr->op == UL_KX_INDEX)
        return false;
    for (uint32_t i = 0; expr->op == UL_KX_VAR && i < b->host_count; i++)
        if (stmt_get(b, b->hosts[i])->var == expr->var)
            return true;
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op); i++)
        if (!is_known_to_host(b, operands[i]))
            return false;
    return expr->op != UL_KX_VAR;
}

/* Whether the loop runs on the host. */
static bool is_host_loop(struct builder *b, ul_ks id)
{
    const struct ul_ks_data *stmt = stmt_get(b, id);
    int64_t count, launches;
    if (stmt->kind != UL_KS_FOR || b->host_count == UL_GRID_HOSTS)
        return false;
    if (!ul_kx_is_int(b->kernel, stmt->value, &count))
        count = b->kernel->vars[stmt->var].high + 1;
    if (!is_known_to_host(b, stmt->value) || has_break(b, stmt->body) ||
        !has_work(b, stmt->body, UL_NONE) ||
        __builtin_mul_overflow(b->launches, count, &launches) || launches > MAX_LAUNCHES)
        return false;
    struct ul_nest nest = one_loop(b, id);
    struct ul_touched inside;
    ul_touch_loops(&inside, b->kernel, nest.loops, nest.rounds, 1, &b->scratch);
    if (inside.sets_outside)
        return false;
    if (count <= 1 || (stmt->flags & UL_FOR_LAUNCHED) != 0)
        return true;
    return ul_statement_ns(b->kernel, id, &b->scratch) / (double)count >=
           HOST_ROUND_NS * b->device->launch_cycles;
}

static void cut_list(struct builder *b, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE;) {
        const struct ul_ks_data *stmt = stmt_get(b, id);
        bool *own = UL_NEW_ARRAY(&b->scratch, bool, b->kernel->buffer_count);
        struct ul_nest nest;
        ul_ks end = group_end(b, id);
        bool is_one = end == stmt->next;
        bool defines = stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR;
        if (is_one && defines) { /* a name, or a variable that nothing reads */
            id = end;
            continue;
        }
        bool is_items = is_one && stmt->kind == UL_KS_FOR && collect_items(b, id, &nest, own);
        if (is_one && !is_items && is_host_loop(b, id)) {
            int64_t count = b->kernel->vars[stmt->var].high + 1, outer = b->launches;
            UL_ASSERT(b->host_count < UL_GRID_HOSTS);
            b->hosts[b->host_count++] = id;
            b->launches *= count > 0 ? count : 1;
            cut_list(b, stmt->body);
            b->host_count--;
            b->launches = outer;
        } else {
            add_phase(b, id, end);
        }
        id = end;
    }
}

/* Places scratch that all phases share, then the scratch of each team. */
static void place_scratch(struct builder *b)
{
    struct ul_grid *grid = b->grid;
    uint64_t *offsets = UL_NEW_ARRAY(b->arena, uint64_t, b->kernel->buffer_count);
    uint64_t total = 0, own = 0;
    for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &b->kernel->buffers[i];
        bool is_shared = false;
        for (uint32_t p = 0; p < grid->phase_count; p++)
            is_shared = is_shared || (grid->phases[p].places[i] == UL_PLACE_ARENA &&
                                      used_in(b, &grid->phases[p], i));
        if (buffer->role != UL_BUFFER_SCRATCH || !is_shared)
            continue;
        offsets[i] = total;
        total = ul_size_align_or_die(ul_size_add_or_die(total, ul_buffer_bytes(buffer)),
                                     UL_PLAN_ALIGN_BYTES);
    }
    for (uint32_t p = 0; p < grid->phase_count; p++) {
        struct ul_phase *phase = &grid->phases[p];
        for (uint32_t i = 0; i < b->kernel->buffer_count; i++) {
            if (b->kernel->buffers[i].role == UL_BUFFER_SCRATCH &&
                phase->places[i] == UL_PLACE_ARENA)
                phase->offsets_bytes[i] = offsets[i];
        }
        uint64_t teams = (uint64_t)phase->block_count *
                         (phase->block_threads / (uint64_t)(phase->has_own ? phase->team : 1));
        uint64_t bytes = phase->has_own ? ul_size_mul_or_die(phase->own_bytes, teams) : 0;
        own = bytes > own ? bytes : own;
    }
    grid->own_offset_bytes = total;
    UL_ASSERT(total % UL_PLAN_ALIGN_BYTES == 0);
    grid->scratch_bytes = ul_size_add_or_die(total, own);
}

void ul_grid_init(struct ul_grid *grid, const struct ul_kernel *kernel, const bool *used,
                  const struct ul_profile_device *device, ul_attend_grid_fn *attend_grid,
                  struct ul_arena *arena)
{
    struct builder b = {.kernel = kernel,
                        .used = used,
                        .device = device,
                        .attend_grid = attend_grid,
                        .arena = arena,
                        .grid = grid,
                        .launches = 1};
    *grid = (struct ul_grid){.phase_count = 0};
    ul_arena_init(&b.scratch);
    ul_touch_kernel(&b.everywhere, kernel, &b.scratch);
    find_names(&b);
    cut_list(&b, kernel->first);
    place_scratch(&b);
    ul_grid_join(grid, kernel, &b.scratch);
    ul_grid_gather(grid, kernel, device, arena);
    ul_grid_follow(grid, kernel, used, device, arena);
    ul_arena_done(&b.scratch);
    UL_ASSERT(b.host_count == 0 && b.launches == 1);
}
