/* SPDX-License-Identifier: Apache-2.0 */
/* Describes in words what target cuda does with a kernel: its phases in the order of their
 * launches, each with its statements, in the form of the kernel after it is rewritten for a
 * device. */
#include "codegen/cuda/attend_cuda.h"
#include "codegen/cuda/contract_cuda_internal.h"
#include "codegen/cuda/cuda.h"
#include "codegen/device/grid.h"
#include "codegen/kernel/print_expr.h"
#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <inttypes.h>

struct schedule {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    const struct ul_profile_device *device;
    const bool *used; /* by variable: something reads it */
    const struct ul_phase *phase;
};

/* " v0, v1" */
static void put_loops(const struct schedule *schedule, const ul_ks *loops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(schedule->text, "%s v%u", i == 0 ? "" : ",",
                       (unsigned)schedule->kernel->stmts[loops[i]].var);
}

static void put_vector(const struct schedule *schedule, const struct ul_nest *nest)
{
    if (nest->vector > 1)
        ul_text_printf(schedule->text, ", %u at once", (unsigned)nest->vector);
    if (nest->slide.count > 0)
        ul_text_printf(schedule->text, ", %u along v%u", (unsigned)nest->slide.count,
                       (unsigned)schedule->kernel->stmts[nest->loops[nest->slide.loop]].var);
}

/* ---- Contractions ---- */

static void put_reading(struct ul_text *text, const char *name,
                        const struct ul_contract_device_reading *reading)
{
    ul_text_printf(text, ", %s %d at once%s", name, reading->pack,
                   reading->along_k ? " along k" : "");
}

static void put_form(struct ul_text *text, const struct ul_contract_device_plan *plan)
{
    const struct ul_contract_device_tile *tile = &plan->tile;
    if (plan->is_bytes)
        ul_text_put(text, "words of four bytes, ");
    switch (plan->form) {
    case UL_CONTRACT_DEVICE_EACH:
        ul_text_put(text, "a thread a sum");
        break;
    case UL_CONTRACT_DEVICE_DOT:
        ul_text_printf(text, "a warp a sum, %d at a time, elements %d at once", plan->dot_sums,
                       plan->dot_pack);
        break;
    case UL_CONTRACT_DEVICE_TILE:
    case UL_CONTRACT_DEVICE_MMA:
        ul_text_printf(text, "tiles %d x %d x %d, %s %d x %d", tile->m, tile->n, tile->k,
                       plan->form == UL_CONTRACT_DEVICE_MMA ? "tensor cores, warps" : "threads",
                       tile->thread_m, tile->thread_n);
        if (tile->splits > 1)
            ul_text_printf(text, ", k in %d", tile->splits);
        put_reading(text, "a", &plan->a);
        put_reading(text, "b", &plan->b);
        break;
    }
}

static void put_contraction(const struct schedule *schedule, ul_ks id)
{
    const struct ul_kernel *kernel = schedule->kernel;
    const struct ul_contraction *contraction = &kernel->contractions[kernel->stmts[id].contraction];
    struct ul_contract_device_plan plan;
    struct ul_contract_grid grid;
    struct ul_arena arena;
    ul_text_put(schedule->text, "  # ");
    if (contraction->attend == NULL) {
        ul_arena_init(&arena);
        ul_contract_device_plan_init(&plan, kernel, contraction, schedule->device, &arena);
        ul_text_printf(schedule->text, "%" PRId64 " x %" PRId64 " sums of %" PRId64 ", ",
                       plan.base.m, plan.base.n, plan.base.k);
        put_form(schedule->text, &plan);
        ul_arena_done(&arena);
    } else {
        ul_text_put(schedule->text, contraction->attend->kind == UL_ATTEND_RESULT
                                        ? "attention by blocks of queries"
                                    : contraction->attend->is_turned
                                        ? "gradient of attention by blocks of keys"
                                        : "gradient of attention by blocks of queries");
    }
    if (schedule->phase->kind != UL_PHASE_TILES)
        return;
    ul_contract_cuda_grid(kernel, contraction, schedule->device, &grid);
    ul_text_printf(schedule->text, ", %" PRId64 " tiles by %u threads, %u bytes shared",
                   grid.tile_count, (unsigned)grid.threads, (unsigned)grid.shared_bytes);
}

/* ---- Statements ---- */

/* What follows a statement's line. */
static void put_note(void *context, struct ul_text *text, ul_ks id)
{
    const struct schedule *schedule = context;
    const struct ul_phase *phase = schedule->phase;
    if (schedule->kernel->stmts[id].kind == UL_KS_CONTRACT)
        put_contraction(schedule, id);
    if (phase->kind != UL_PHASE_TEAM)
        return;
    if (phase->barriers[id])
        ul_text_put(text, "  # behind a barrier");
    switch ((enum ul_team_mode)phase->modes[id]) {
    case UL_TEAM_ALIKE:
        break;
    case UL_TEAM_FIRST:
        ul_text_put(text, "  # thread 0");
        break;
    case UL_TEAM_STRIDED:
        ul_text_put(text, "  # shared");
        if (phase->nests[id] != NULL) {
            put_loops(schedule, phase->nests[id]->loops, phase->nests[id]->count);
            put_vector(schedule, phase->nests[id]);
        }
        break;
    case UL_TEAM_FOLD:
        ul_text_printf(text, "  # folds b%u, %" PRId64 " wide", (unsigned)phase->folds[id]->buffer,
                       phase->folds[id]->width);
        break;
    case UL_TEAM_NOTHING:
        ul_text_put(text, "  # in the fold");
        break;
    }
}

/* ---- Phases ---- */

static void put_places(const struct schedule *schedule)
{
    static const char *const places[] = {[UL_PLACE_ARENA] = NULL,
                                         [UL_PLACE_OWN] = "scratch of each team",
                                         [UL_PLACE_SHARED] = "shared memory",
                                         [UL_PLACE_THREAD] = "each thread",
                                         [UL_PLACE_REGISTER] = "a register"};
    const struct ul_kernel *kernel = schedule->kernel;
    struct ul_mentions mentions;
    ul_mentions_init(&mentions, kernel, schedule->used, schedule->text->arena);
    ul_mention_list(&mentions, schedule->phase->first, schedule->phase->end);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const char *place = places[schedule->phase->places[i]];
        bool is_array = kernel->buffers[i].role == UL_BUFFER_SCRATCH ||
                        kernel->buffers[i].role == UL_BUFFER_LOCAL;
        if (is_array && place != NULL && mentions.buffers[i])
            ul_text_printf(schedule->text, "; b%u in %s", (unsigned)i, place);
    }
}

static void put_team(const struct schedule *schedule)
{
    const struct ul_phase *phase = schedule->phase;
    if (phase->kind == UL_PHASE_EACH)
        ul_text_put(schedule->text, "; a thread an item");
    else if (phase->kind == UL_PHASE_TILES)
        ul_text_put(schedule->text, "; a block a tile");
    else
        ul_text_printf(schedule->text, "; a team of %" PRId64 " threads an item%s", phase->team,
                       phase->is_loose ? " without barriers" : "");
    if (phase->items.count > 0) {
        ul_text_printf(schedule->text, ", %" PRId64 " item%s of", phase->items.total,
                       ul_plural((uint64_t)phase->items.total));
        put_loops(schedule, phase->items.loops, phase->items.count);
        put_vector(schedule, &phase->items);
    }
}

static void put_phase(struct schedule *schedule, const struct ul_grid *grid, uint32_t number)
{
    const struct ul_phase *phase = schedule->phase = &grid->phases[number];
    const struct ul_kernel_notes notes = {.put = put_note, .context = schedule};
    struct ul_text *text = schedule->text;
    UL_ASSERT(phase->team >= 1 && phase->items.vector >= 1);
    ul_text_printf(text, "  phase %u: %" PRId64 " block%s of %u thread%s", (unsigned)number,
                   phase->block_count, ul_plural((uint64_t)phase->block_count),
                   (unsigned)phase->block_threads, ul_plural(phase->block_threads));
    if (number > 0 && phase[-1].is_followed)
        ul_text_printf(text, ", as the last blocks of %" PRId64 " group%s of the launch before",
                       ul_phase_groups(&phase[-1]),
                       ul_plural((uint64_t)ul_phase_groups(&phase[-1])));
    else if (phase->joined_count == 0)
        ul_text_printf(text, ", from %" PRId64 " on of the launch before", phase->first_block);
    if (phase->host_count > 0) {
        ul_text_put(text, ", for each round on the host of");
        put_loops(schedule, phase->hosts, phase->host_count);
    }
    put_team(schedule);
    if (phase->shared_bytes > 0)
        ul_text_printf(text, "; %u bytes shared", (unsigned)phase->shared_bytes);
    if (phase->own_bytes > 0)
        ul_text_printf(text, "; %" PRIu64 " bytes of scratch a team", phase->own_bytes);
    put_places(schedule);
    ul_text_put(text, "\n");
    ul_kernel_print_list(text, schedule->kernel, phase->first, phase->end, 2, &notes);
}

/* The line before the first of the phases; they follow in the form for a device that cannot run
 * them together. */
static void put_together(const struct schedule *schedule, const struct ul_together *together)
{
    ul_text_printf(schedule->text,
                   "  phases %u to %u: one launch of %" PRId64
                   " blocks of %u threads that wait for "
                   "each other; %" PRIu64 " bytes held by each\n",
                   (unsigned)together->first, (unsigned)together->end - 1, together->block_count,
                   (unsigned)together->block_threads, together->held_bytes);
}

void ul_schedule_print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                            const struct ul_profile_device *device)
{
    struct ul_expr_printer expr;
    struct ul_grid grid = {.phase_count = 0};
    kernel = ul_contract_device_open(ul_attend_cuda_rewrite(kernel, device, text->arena), device,
                                     text->arena);
    ul_expr_printer_init(&expr, text, kernel);
    ul_grid_init(&grid, kernel, expr.used, device, ul_attend_cuda_grid, text->arena);
    UL_ASSERT(device->processors > 0);
    struct schedule schedule = {
        .text = text, .kernel = kernel, .device = device, .used = expr.used};
    for (uint32_t i = 0; i < grid.phase_count; i++) {
        const struct ul_together *together = ul_grid_find_together(&grid, i);
        if (together != NULL && i == together->first)
            put_together(&schedule, together);
        put_phase(&schedule, &grid, i);
    }
}
