/* SPDX-License-Identifier: Apache-2.0 */
/* Phases that run as one launch, whose blocks wait for each other between them.
 *
 * Problem: a step of a recurrent cell is a few microseconds of work, as long as a launch takes, and
 * reads all recurrent weights again. Method: where a device's multiprocessors can hold these in
 * their shared memory, the loop over steps is inside one launch, and so are the phases around it:
 *
 *     a launch:  h = h0 |meet| gates = W x |meet| for step: { unit: R h ... |meet| } Y_h = h
 *     block b:   its units' rows of R are read once, in the first step
 *
 * Each warp has the same units in every step. Phases keep their form, except for the number of
 * blocks and threads, which is the same for all: no more blocks than the device has
 * multiprocessors, so that all run at once. A product of whole matrices is inside where it has a
 * few tiles for each block, else it is a launch of its own before. Phases follow one another in a
 * block, so their shared memory overlaps. The program asks the device whether it holds the blocks,
 * and launches phase by phase where it does not, or where the device refuses the launch. Left
 * undone: weights in registers; phases of blocks that share an item. */
#include "codegen/device/grid.h"
#include "ir/kernel_build.h"

enum {
    THREADS = 256,
    ITEMS = 4,       /* of a block, at least: fewer blocks meet sooner */
    TILES = 4,       /* of a block, at most, where a product is inside */
    ROUNDS = 16,     /* of a thread, at most, in phases around the loop */
    RESERVED = 1024, /* bytes of a block's shared memory that the system needs */
    ALIGN = 128
};

struct gatherer {
    const struct ul_kernel *kernel;
    const struct ul_profile_device *device;
    struct ul_grid *grid;
    struct ul_arena *arena;
    const ul_ks *definitions; /* by variable: its LET, or UL_NONE */
};

static const struct ul_contraction *contraction_of(const struct gatherer *g, ul_ks id)
{
    return &g->kernel->contractions[g->kernel->stmts[id].contraction];
}

/* ---- What a block holds ---- */

/* Whether the value is the same in every round of the loops around the phase's items. */
static bool is_of_item(const struct gatherer *g, const struct ul_phase *phase, ul_kx id)
{
    const struct ul_kx_data *expr = &g->kernel->exprs[id];
    uint32_t operands[] = {expr->a, expr->b, expr->c};
    if (expr->op == UL_KX_LOAD || expr->op == UL_KX_INDEX)
        return false;
    if (expr->op == UL_KX_VAR) {
        for (uint32_t i = 0; i < phase->items.count; i++)
            if (g->kernel->stmts[phase->items.loops[i]].var == expr->var)
                return true;
        return g->definitions[expr->var] != UL_NONE &&
               is_of_item(g, phase, g->kernel->stmts[g->definitions[expr->var]].value);
    }
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op); i++)
        if (!is_of_item(g, phase, operands[i]))
            return false;
    return true;
}

static bool is_constant(const struct gatherer *g, uint32_t buffer)
{
    const struct ul_kernel *kernel = g->kernel;
    for (uint32_t i = 0; i < kernel->buffer_count; i++)
        if (kernel->buffers[i].role == UL_BUFFER_OUTPUT && ul_may_alias(kernel, buffer, i))
            return false;
    return kernel->buffers[buffer].role == UL_BUFFER_INPUT;
}

/* The only contraction of an item of a warp's phase, whose first operand a block can hold. */
static bool find_held(const struct gatherer *g, struct ul_phase *phase)
{
    uint32_t count = 0;
    phase->held = UL_NONE;
    for (ul_ks id = phase->first; id != phase->end; id = g->kernel->stmts[id].next) {
        if (g->kernel->stmts[id].kind != UL_KS_CONTRACT)
            continue;
        const struct ul_contraction *c = contraction_of(g, id);
        phase->held = id;
        phase->held_bytes = ul_contract_device_held_bytes(g->kernel, c, g->device);
        if (count++ > 0 || phase->held_bytes == 0 || !is_constant(g, c->a.buffer) ||
            !is_of_item(g, phase, c->a.at.base))
            return false;
    }
    return count == 1;
}

/* ---- Which phases may be together ---- */

static void share(struct ul_together *together, uint64_t bytes)
{
    together->shared_bytes = bytes > together->shared_bytes ? bytes : together->shared_bytes;
}

static bool is_thread_each(const struct ul_phase *phase)
{
    return phase->kind == UL_PHASE_EACH && phase->items.count > 0 && !phase->has_own;
}

static ul_ks tiled(const struct gatherer *g, const struct ul_phase *phase)
{
    ul_ks id = phase->first;
    while (g->kernel->stmts[id].kind != UL_KS_CONTRACT)
        id = g->kernel->stmts[id].next;
    return id;
}

/* Threads of a block and shared memory that the phase needs; false: it cannot be inside. */
static bool can_gather(const struct gatherer *g, struct ul_phase *phase,
                       struct ul_together *together)
{
    struct ul_contract_grid grid;
    phase->held = UL_NONE;
    if (phase->block_count == 0 || is_thread_each(phase))
        return true;
    if (phase->kind == UL_PHASE_TEAM && !phase->has_own) {
        if (phase->is_loose)
            return true;
        int64_t blocks = (phase->items.total + ITEMS - 1) / ITEMS;
        together->block_count = blocks > together->block_count ? blocks : together->block_count;
        return phase->items.count > 0 && phase->team == UL_WARP && find_held(g, phase);
    }
    if (phase->kind != UL_PHASE_TILES || contraction_of(g, tiled(g, phase))->attend != NULL)
        return false;
    ul_contract_device_grid(g->kernel, contraction_of(g, tiled(g, phase)), g->device, &grid);
    int64_t tiles = grid.tile_count * phase->items.total;
    bool is_first = together->block_threads == 0;
    if (is_first)
        together->block_threads = grid.threads;
    int64_t blocks = (tiles + TILES - 1) / TILES;
    together->block_count = blocks > together->block_count ? blocks : together->block_count;
    share(together, grid.shared_bytes);
    return tiles <= TILES * (int64_t)g->device->processors &&
           together->block_threads == grid.threads;
}

/* Places what warps hold; false where a block cannot hold that much. */
static bool place_held(const struct gatherer *g, struct ul_together *together)
{
    int64_t warps = together->block_threads / UL_WARP;
    uint64_t held = 0;
    for (uint32_t i = 0; i < together->end - together->first; i++) {
        struct ul_phase *phase = &together->phases[i];
        share(together, phase->shared_bytes * (uint64_t)warps);
        if (phase->held == UL_NONE)
            continue;
        /* A block's items are the first ones of its warps, then their second ones. */
        int64_t items = (phase->items.total + together->block_count - 1) / together->block_count;
        phase->held_items = (items + warps - 1) / warps;
        phase->held_offset_bytes = held;
        uint64_t bytes = ul_size_mul_or_die(phase->held_bytes, (uint64_t)items);
        held = ul_size_align_or_die(ul_size_add_or_die(held, bytes), ALIGN);
    }
    together->held_bytes = held;
    /* Arrays that a kernel declares have at most what every device offers. */
    return held > 0 && together->shared_bytes <= g->device->shared_bytes &&
           held + together->shared_bytes + RESERVED * (uint64_t)2 <= g->device->max_shared_bytes;
}

static bool has_hosts_of(const struct ul_phase *phase, const struct ul_phase *other, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (phase->host_count <= i || phase->hosts[i] != other->hosts[i])
            return false;
    return true;
}

/* Whether the phase is directly around the loop, and small. */
static bool stands_around(const struct ul_phase *phase, const struct ul_phase *inner,
                          const struct ul_together *together)
{
    int64_t threads = together->block_count * together->block_threads;
    return phase->host_count == together->host_count &&
           has_hosts_of(phase, inner, together->host_count) && is_thread_each(phase) &&
           phase->items.total / phase->items.vector <= ROUNDS * threads;
}

/* Adds the phases directly around the loop of phases [first, end). */
static void extend(const struct gatherer *g, struct ul_together *together)
{
    const struct ul_phase *inner = &g->grid->phases[together->first];
    const struct ul_phase *phases = g->grid->phases;
    uint32_t count = g->grid->together_count;
    uint32_t begin = count > 0 ? g->grid->together[count - 1].end : 0;
    while (together->first > begin && stands_around(&phases[together->first - 1], inner, together))
        together->first--;
    while (together->end < g->grid->phase_count &&
           stands_around(&phases[together->end], inner, together))
        together->end++;
    while (phases[together->first].joined_count == 0) /* never a part of a launch */
        together->first++;
    while (together->end < g->grid->phase_count && phases[together->end].joined_count == 0)
        together->end--;
}

/* Whether all phases of the loop at `level` around phase `first` can be one launch. */
static bool try_loop(const struct gatherer *g, uint32_t first, uint32_t level,
                     struct ul_together *together)
{
    const struct ul_phase *phases = g->grid->phases;
    *together = (struct ul_together){.first = first, .end = first, .host_count = level};
    while (together->end < g->grid->phase_count &&
           has_hosts_of(&phases[together->end], &phases[first], level + 1))
        together->end++;
    uint32_t count = together->end - first;
    together->phases = ul_arena_copy(g->arena, &phases[first], count * sizeof *phases);
    for (uint32_t i = 0; i < count; i++)
        if (!can_gather(g, &together->phases[i], together))
            return false;
    int64_t processors = g->device->processors;
    if (together->block_threads == 0)
        together->block_threads = THREADS;
    if (together->block_count > processors)
        together->block_count = processors;
    if (place_held(g, together))
        return true;
    together->block_count = processors;
    return place_held(g, together);
}

/* Sets the phases as they run in the launch. */
static void set_phases(const struct gatherer *g, struct ul_together *together, uint32_t loop_first)
{
    const struct ul_phase *inner = together->phases;
    uint32_t inner_count = together->end - loop_first;
    extend(g, together);
    uint32_t count = together->end - together->first;
    together->phases =
        ul_arena_copy(g->arena, &g->grid->phases[together->first], count * sizeof *inner);
    for (uint32_t i = 0; i < count; i++) {
        struct ul_phase *phase = &together->phases[i];
        uint32_t at = together->first + i;
        phase->held = UL_NONE;
        if (at >= loop_first && at < loop_first + inner_count)
            *phase = inner[at - loop_first];
        phase->block_threads = together->block_threads;
        phase->block_count = phase->block_count > 0 ? together->block_count : 0;
        phase->first_block = 0;
    }
}

void ul_grid_gather(struct ul_grid *grid, const struct ul_kernel *kernel,
                    const struct ul_profile_device *device, struct ul_arena *arena)
{
    struct gatherer g = {.kernel = kernel, .device = device, .grid = grid, .arena = arena};
    g.definitions = ul_grid_definitions(kernel, arena);
    for (uint32_t first = 0; first < grid->phase_count;) {
        struct ul_together together = {.end = first + 1};
        const struct ul_phase *phase = &grid->phases[first];
        bool found = false;
        for (uint32_t level = 0; !found && level < phase->host_count; level++)
            found = (kernel->stmts[phase->hosts[level]].flags & UL_FOR_LAUNCHED) != 0 &&
                    !(first > 0 && has_hosts_of(phase - 1, phase, level + 1)) &&
                    try_loop(&g, first, level, &together);
        if (found) {
            set_phases(&g, &together, first);
            UL_GROW(arena, grid->together, grid->together_count, grid->together_capacity);
            grid->together[grid->together_count++] = together;
        }
        first = found ? together.end : first + 1;
    }
}

const struct ul_together *ul_grid_find_together(const struct ul_grid *grid, uint32_t phase)
{
    for (uint32_t i = 0; i < grid->together_count; i++)
        if (phase >= grid->together[i].first && phase < grid->together[i].end)
            return &grid->together[i];
    return NULL;
}
