/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a run launches of a kernel, on the phases that are printed, and what it
 * should not launch: tests compare these figures, so that a change for the worse shows without a
 * device. */
#include "codegen/device/grid.h"
#include "codegen/program/program.h"
#include "ir/kernel_build.h"

/* ---- Launches ---- */

/* The value of an expression of the host in some round of its loops: constructors fold it. */
static ul_kx in_round(struct ul_kernel *kernel, ul_kx id, const int64_t *rounds)
{
    struct ul_kx_data expr = kernel->exprs[id];
    uint32_t count = ul_kx_operand_count(expr.op);
    if (expr.op == UL_KX_VAR)
        return ul_kx_index_const(kernel, rounds[expr.var]);
    if (count == 0)
        return id;
    UL_ASSERT(count <= 2 && expr.op != UL_KX_CAST); /* all of it is i64: grid.c */
    ul_kx a = in_round(kernel, expr.a, rounds);
    return count == 1 ? ul_kx_unary(kernel, expr.op, a)
                      : ul_kx_binary(kernel, expr.op, a, in_round(kernel, expr.b, rounds));
}

/* How often a phase is launched, by its loops on the host from number `level` on. */
static uint64_t repeats(struct ul_kernel *kernel, const struct ul_phase *phase, uint32_t level,
                        int64_t *rounds)
{
    int64_t count;
    uint64_t sum = 0;
    if (level == phase->host_count)
        return 1;
    const struct ul_ks_data loop = kernel->stmts[phase->hosts[level]];
    bool is_known = ul_kx_is_int(kernel, in_round(kernel, loop.value, rounds), &count);
    UL_ASSERT(is_known); /* grid.c takes no others for the host */
    if (level + 1 == phase->host_count)
        return count > 0 ? (uint64_t)count : 0;
    for (int64_t r = 0; r < count; r++) {
        rounds[loop.var] = r;
        sum += repeats(kernel, phase, level + 1, rounds);
    }
    return sum;
}

static uint64_t count_launches(const struct ul_kernel *kernel, const struct ul_grid *grid,
                               struct ul_arena *arena)
{
    struct ul_kernel *copy = NULL;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < grid->phase_count; i++) {
        struct ul_phase phase = grid->phases[i];
        const struct ul_together *together = ul_grid_find_together(grid, i);
        if (together != NULL ? i != together->first : !ul_phase_is_launched(&phase))
            continue;
        if (together != NULL)
            phase.host_count = together->host_count;
        if (phase.host_count > 0 && copy == NULL)
            copy = ul_kernel_copy(kernel, arena);
        sum += phase.host_count == 0
                   ? 1
                   : repeats(copy, &phase, 0, UL_NEW_ARRAY(arena, int64_t, kernel->var_count));
    }
    return sum;
}

/* The number of blocks of threads in the widest launch. */
static uint64_t count_blocks(const struct ul_grid *grid)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < grid->phase_count; i++) {
        const struct ul_phase *phase = &grid->phases[i];
        const struct ul_together *together = ul_grid_find_together(grid, i);
        if (together != NULL) {
            most = together->block_count > most ? together->block_count : most;
        } else if (ul_phase_is_launched(phase)) {
            const struct ul_phase *last = &phase[phase->joined_count - 1];
            int64_t blocks = last->first_block + last->block_count;
            if (phase->group_row > 0) /* larger blocks than such items would have alone */
                blocks = blocks * phase->block_threads / 128;
            most = blocks > most ? blocks : most;
        }
    }
    return (uint64_t)most;
}

/* ---- Contractions ---- */

static bool is_half(const struct ul_kernel *kernel, const struct ul_operand *operand)
{
    enum ul_dtype dtype = ul_operand_dtype(kernel, operand);
    return ul_dtype_is_half(dtype);
}

/* Operations for each element that a tile reads: the fraction of the peak depends on it. */
static double reuse_of(const struct ul_work_tile *tile)
{
    double sides = (double)(tile->rows + tile->columns) * (double)tile->element_bytes;
    return (double)tile->rows * (double)tile->columns / sides;
}

/* Notes the tile of a contraction on tensor cores, and whether it should be on them and is not. */
static void count_contraction(const struct ul_kernel *kernel,
                              const struct ul_contraction *contraction,
                              const struct ul_profile_device *device, struct ul_arena *arena,
                              struct ul_kernel_printed *printed)
{
    struct ul_contract_device_plan plan;
    if (contraction->attend != NULL)
        return;
    ul_contract_device_plan_init(&plan, kernel, contraction, device, arena);
    bool is_of_halves = is_half(kernel, &contraction->a) || is_half(kernel, &contraction->b);
    if (is_of_halves && plan.form == UL_CONTRACT_DEVICE_TILE)
        printed->scalar_count++;
    if (plan.form != UL_CONTRACT_DEVICE_MMA)
        return;
    struct ul_work_tile tile = {.rows = (uint64_t)plan.tile.m,
                                .columns = (uint64_t)plan.tile.n,
                                .element_bytes = plan.is_bytes ? 1 : 2};
    if (printed->tile.rows == 0 || reuse_of(&tile) < reuse_of(&printed->tile))
        printed->tile = tile;
}

static void count_contractions(const struct ul_kernel *kernel, ul_ks first,
                               const struct ul_profile_device *device, struct ul_arena *arena,
                               struct ul_kernel_printed *printed)
{
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_CONTRACT)
            count_contraction(kernel, &kernel->contractions[stmt->contraction], device, arena,
                              printed);
        else if (stmt->kind == UL_KS_FOR || stmt->kind == UL_KS_IF)
            count_contractions(kernel, stmt->body, device, arena, printed);
        if (stmt->kind == UL_KS_IF)
            count_contractions(kernel, stmt->orelse, device, arena, printed);
    }
}

/* ---- Identities ---- */

/* The expression that a name stands for. */
static ul_kx unnamed(const struct ul_kernel *kernel, const ul_kx *named, ul_kx id)
{
    while (kernel->exprs[id].op == UL_KX_VAR && named[kernel->exprs[id].var] != UL_NONE)
        id = named[kernel->exprs[id].var];
    return id;
}

static bool moves_unchanged(const struct ul_kernel *kernel, const struct ul_ks_data *store,
                            const ul_kx *named)
{
    const struct ul_kx_data *load = &kernel->exprs[unnamed(kernel, named, store->value)];
    return load->op == UL_KX_LOAD && kernel->buffers[store->buffer].role == UL_BUFFER_OUTPUT &&
           kernel->buffers[load->var].role == UL_BUFFER_INPUT &&
           kernel->buffers[load->var].dtype == kernel->buffers[store->buffer].dtype &&
           unnamed(kernel, named, load->a) == unnamed(kernel, named, store->index);
}

/* Whether a list of statements only stores what it loads, at the same place. */
static bool is_identity(const struct ul_kernel *kernel, ul_ks first, ul_kx *named)
{
    bool is = first != UL_NONE;
    for (ul_ks id = first; is && id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_FOR)
            is = is_identity(kernel, stmt->body, named);
        else if (stmt->kind == UL_KS_STORE)
            is = moves_unchanged(kernel, stmt, named);
        else
            is = stmt->kind == UL_KS_LET;
        if (stmt->kind == UL_KS_LET)
            named[stmt->var] = stmt->value;
    }
    return is;
}

void ul_grid_count(const struct ul_kernel *kernel, const struct ul_grid *grid,
                   const struct ul_profile_device *device, struct ul_kernel_printed *printed)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    ul_kx *named = UL_NEW_ARRAY(&arena, ul_kx, kernel->var_count);
    for (uint32_t v = 0; v < kernel->var_count; v++)
        named[v] = UL_NONE;
    printed->launch_count = count_launches(kernel, grid, &arena);
    printed->block_count = count_blocks(grid);
    printed->meets = grid->together_count > 0;
    printed->followed_count = 0;
    for (uint32_t i = 0; i < grid->phase_count; i++)
        printed->followed_count += grid->phases[i].is_followed;
    printed->counter_words = ul_grid_counter_words(grid);
    printed->scalar_count = 0;
    printed->tile = (struct ul_work_tile){.rows = 0};
    count_contractions(kernel, kernel->first, device, &arena, printed);
    printed->is_identity = is_identity(kernel, kernel->first, named);
    UL_ASSERT(printed->scalar_count <= kernel->contraction_count);
    ul_arena_done(&arena);
}
