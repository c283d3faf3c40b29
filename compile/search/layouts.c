/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that a budget asks for: alternatives of the program in which some regions keep the layout
 * of the model.
 *
 * Problem: operands and results of convolutions are channels-last (passes/memory/layout.c), which
 * suits the library. Under a budget, kernels of ours replace some of its calls, and they may be
 * faster row-major; and results of convolutions are copied for the rest of the model, which another
 * layout avoids. A region has one layout, and a program is lowered for all regions at once, so
 * choosing a layout is choosing a program. Method: the program with all regions row-major is one
 * alternative. Its plan and that of the program itself are tried with ever fewer optional values,
 * by the bytes of a process. For a plan of one and a plan of the other of the same size, the costs
 * of steps are divided among the regions that they touch. The regions that cost less row-major make
 * an alternative, and its own plans show what that really saves:
 *
 *      plan:            conv1 library    conv2 ours    conv3 ours
 *      regions:       a                b             c            d     c, d row-major
 *
 * Alternatives in pieces are then tried in the layout of the last alternative. What is tried does
 * not depend on the memory that a budget bounds. */
#include "compile/search/alternatives.h"

enum {
    MAX_MIXED = 3,         /* plans that are compared for regions */
    MAX_PIECES = 3,        /* alternatives in pieces that are tried in another layout */
    MAX_KERNEL_REGIONS = 4 /* regions of one kernel; further ones get no share of its cost */
};

struct layouts {
    struct ul_alternatives *alternatives;
    struct ul_layout_regions regions; /* names NULL: there is no choice */
    struct ul_texts all;              /* their names */
    struct ul_texts last;             /* the row-major regions of the alternative tried last */
    uint32_t plain;                   /* the alternative with all regions row-major */
};

/* ---- Costs by region ---- */

struct touched {
    uint32_t count;
    uint32_t regions[MAX_KERNEL_REGIONS];
};

static void touch(struct touched *kernel, uint32_t region)
{
    bool is_full = kernel->count == MAX_KERNEL_REGIONS;
    if (!is_full && !ul_ids_have(kernel->regions, kernel->count, region))
        kernel->regions[kernel->count++] = region;
}

/* For each kernel the regions that its nodes read and write; values that a later pass has added
 * belong to none. */
static struct touched *find_touched(struct ul_arena *arena, const struct layouts *layouts,
                                    const struct ul_graph *graph)
{
    uint32_t value_count = layouts->alternatives->compile->before_layout.value_count;
    struct touched *touched = UL_NEW_ARRAY(arena, struct touched, 2 * (uint64_t)graph->node_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; i < node->input_count + node->output_count; i++) {
            ul_value_id value =
                i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
            if (value < value_count && layouts->regions.of_values[value] != UL_NONE)
                touch(&touched[ul_node_kernel(graph, n)], layouts->regions.of_values[value]);
        }
    }
    return touched;
}

/* For each region its share of the plan's cost. */
static uint64_t *share_costs(struct ul_arena *arena, const struct layouts *layouts,
                             const struct ul_program *program, const struct ul_plan *plan)
{
    const struct touched *touched = find_touched(arena, layouts, program->graph);
    uint64_t *shares = UL_NEW_ARRAY(arena, uint64_t, layouts->regions.count);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        const struct ul_program_step *step = &program->steps[at->step];
        if (at->kind != UL_PLAN_RUN || (step->kind != UL_STEP_KERNEL && step->kind != UL_STEP_CALL))
            continue;
        const struct touched *kernel = &touched[ul_node_kernel(program->graph, step->node)];
        uint64_t cost = program->problem->steps[at->step].alternatives[at->alternative].cost;
        for (uint32_t i = 0; i < kernel->count; i++)
            shares[kernel->regions[i]] += cost / kernel->count;
    }
    return shares;
}

/* ---- Alternatives ---- */

/* The cheapest plan of the ladder that takes no more than another plan, or its smallest. */
static const struct ul_plan_rung *rung_like(const struct ul_plan_ladder *ladder,
                                            const struct ul_plan_rung *rung)
{
    uint32_t at = 0;
    while (at + 1 < ladder->count && ul_rung_bytes(&ladder->rungs[at]) > ul_rung_bytes(rung))
        at++;
    return &ladder->rungs[at];
}

/* Plans an alternative with ever fewer optional values, by the bytes of its process. */
static enum ul_status spread(const struct ul_alternatives *alternatives, uint32_t index,
                             struct ul_plan_ladder *ladder)
{
    struct ul_compile *compile = alternatives->compile;
    const struct ul_program *program = alternatives->items[index].program;
    struct ul_plan_options planning = alternatives->planning;
    planning.overhead = ul_footprint_overhead(program, ul_compile_is_process(compile));
    return ul_ladder_spread(&compile->keep, program->problem, &planning,
                            &alternatives->items[index].plan, NULL, ladder, &compile->diag);
}

/* Tries the regions that cost less in the plan of the program with all regions row-major. */
static enum ul_status try_mixed(struct layouts *layouts, const struct ul_plan_rung *own,
                                const struct ul_plan_rung *plain)
{
    const struct ul_alternative *items = layouts->alternatives->items;
    struct ul_arena scratch;
    struct ul_alternative_form form = {.row_major = {.count = 0}};
    ul_arena_init(&scratch);
    const uint64_t *before = share_costs(&scratch, layouts, items[0].program, &own->plan);
    const uint64_t *after =
        share_costs(&scratch, layouts, items[layouts->plain].program, &plain->plan);
    for (uint32_t r = 0; r < layouts->regions.count; r++) {
        if (layouts->regions.names[r] != NULL && after[r] < before[r])
            ul_texts_add(&layouts->alternatives->compile->keep, &form.row_major,
                         layouts->regions.names[r]);
    }
    ul_arena_done(&scratch);
    if (form.row_major.count == 0)
        return UL_OK;
    uint32_t count = layouts->alternatives->count;
    UL_TRY(ul_alternatives_add(layouts->alternatives, &form));
    if (layouts->alternatives->count > count)
        layouts->last = form.row_major;
    return UL_OK;
}

/* Names regions that are not row-major anyway. */
static void find_regions(struct layouts *layouts)
{
    struct ul_compile *compile = layouts->alternatives->compile;
    struct ul_layout_regions *regions = &layouts->regions;
    ul_layout_find_regions(&compile->keep, &compile->before_layout, regions);
    bool *is_last = UL_NEW_ARRAY(&compile->keep, bool, regions->count);
    for (uint32_t v = 0; v < compile->before_layout.value_count; v++) {
        if (regions->of_values[v] != UL_NONE &&
            (compile->graph.values[v].flags & UL_VALUE_CHANNELS_LAST) != 0)
            is_last[regions->of_values[v]] = true;
    }
    for (uint32_t r = 0; r < regions->count; r++) {
        if (!is_last[r])
            regions->names[r] = NULL;
        if (regions->names[r] != NULL)
            ul_texts_add(&compile->keep, &layouts->all, regions->names[r]);
    }
}

enum ul_status ul_alternatives_try_layouts(struct ul_alternatives *alternatives)
{
    struct layouts layouts = {.alternatives = alternatives, .plain = alternatives->count};
    struct ul_plan_ladder own, plain;
    find_regions(&layouts);
    layouts.last = layouts.all;
    if (layouts.all.count == 0)
        return UL_OK;
    struct ul_alternative_form form = {.row_major = layouts.all};
    UL_TRY(ul_alternatives_add(alternatives, &form));
    if (alternatives->count == layouts.plain)
        return UL_OK;
    UL_TRY(spread(alternatives, 0, &own));
    UL_TRY(spread(alternatives, layouts.plain, &plain));
    for (uint32_t i = 1; i <= MAX_MIXED; i++) {
        const struct ul_plan_rung *rung = &own.rungs[(uint64_t)i * (own.count - 1) / MAX_MIXED];
        UL_TRY(try_mixed(&layouts, rung, rung_like(&plain, rung)));
    }
    uint32_t pieces =
        alternatives->front_count < MAX_PIECES ? alternatives->front_count : MAX_PIECES;
    form.row_major = layouts.last;
    for (uint32_t i = 0; i < pieces; i++) {
        form.splits = alternatives->items[alternatives->front[i]].form.splits;
        UL_TRY(ul_alternatives_add(alternatives, &form));
    }
    return UL_OK;
}
