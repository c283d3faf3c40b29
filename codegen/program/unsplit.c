/* SPDX-License-Identifier: Apache-2.0 */
/* The program of a graph before its chains were split: which step of it a node belongs to, and how
 * calls of the split graph get the bits of its calls. */
#include "codegen/program/calls_internal.h"

#include "codegen/kernel/contract.h"
#include "ir/view.h"

#include <string.h>

void ul_unsplit_init(struct ul_unsplit *unsplit, struct ul_arena *arena,
                     const struct ul_program *program)
{
    unsplit->program = program;
    unsplit->steps = UL_NEW_ARRAY(arena, uint32_t, program->graph->node_count);
    memset(unsplit->steps, 0xFF, program->graph->node_count * sizeof *unsplit->steps);
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (program->steps[s].kind == UL_STEP_KERNEL || program->steps[s].kind == UL_STEP_CALL)
            unsplit->steps[program->steps[s].node] = s;
    }
}

bool ul_node_is_piece(const struct ul_graph *graph, ul_node_id node)
{
    return ul_node_find_attr(&graph->nodes[node], "ul_piece_of") != NULL;
}

uint32_t ul_unsplit_step(const struct ul_unsplit *unsplit, const struct ul_graph *graph,
                         ul_node_id node)
{
    int64_t origin = ul_node_get_int(&graph->nodes[node], "ul_piece_of", (int64_t)node);
    if (unsplit == NULL || origin < 0 || origin >= unsplit->program->graph->node_count)
        return UL_NONE;
    return unsplit->steps[origin];
}

bool ul_unsplit_has_orders(const struct ul_unsplit *unsplit, const struct ul_graph *graph,
                           ul_node_id node, uint32_t orders)
{
    uint32_t at = ul_unsplit_step(unsplit, graph, node);
    if (at == UL_NONE)
        return orders == 0;
    const struct ul_program_step *first = &unsplit->program->steps[at], *step = first;
    for (uint32_t i = 0; step->kind == UL_STEP_CALL && i < first->alternative_count; i++)
        step = first->alternatives[i].kind == UL_STEP_KERNEL ? &first->alternatives[i] : step;
    return step->kind == UL_STEP_KERNEL &&
           unsplit->program->kernels[step->kernel].sum_orders == orders &&
           (orders & (orders - 1)) == 0 && orders != UL_CONTRACT_LOOSE;
}

const struct ul_program_call *ul_unsplit_call(const struct ul_unsplit *unsplit,
                                              const struct ul_graph *graph, ul_node_id node)
{
    uint32_t step = ul_unsplit_step(unsplit, graph, node);
    if (step == UL_NONE || unsplit->program->steps[step].kind != UL_STEP_CALL)
        return NULL;
    return &unsplit->program->calls[unsplit->program->steps[step].kernel];
}

bool ul_unsplit_has_other(const struct ul_unsplit *unsplit, const struct ul_graph *graph,
                          ul_node_id node, const struct ul_target_library *library)
{
    uint32_t at = ul_unsplit_step(unsplit, graph, node);
    if (at == UL_NONE)
        return false;
    const struct ul_program_step *step = &unsplit->program->steps[at];
    for (uint32_t i = 0; i < step->alternative_count; i++) {
        if (step->alternatives[i].kind == UL_STEP_CALL &&
            unsplit->program->calls[step->alternatives[i].kernel].library == library)
            return true;
    }
    return false;
}

/* Where a piece begins in the whole, in elements. */
static int64_t offset_of(const struct ul_graph *graph, ul_node_id node,
                         const struct ul_program *unsplit, const struct ul_program_step *step)
{
    uint32_t count = 0;
    const int64_t *at = ul_node_get_ints(&graph->nodes[node], "ul_piece_at", &count);
    const struct ul_value *result = &unsplit->graph->values[step->views[UL_CALL_DST]];
    UL_ASSERT(count == 0 || (count == 2 && at[0] < result->type.rank));
    return count == 0 ? 0 : at[1] * result->view.strides[at[0]];
}

/* Calls that differ in where equal layouts of their weights lie are the same. */
static bool is_same(const struct ul_call *a, const struct ul_call *b)
{
    struct ul_call copy = *a;
    if (a->pack != NULL && b->pack != NULL && memcmp(a->pack, b->pack, sizeof *a->pack) == 0)
        copy.pack = b->pack;
    return memcmp(&copy, b, sizeof copy) == 0;
}

bool ul_unsplit_answer(const struct ul_unsplit *unsplit, const struct ul_target_library *library,
                       const struct ul_graph *graph, ul_node_id node, bool unproven,
                       struct ul_group_call *call)
{
    const struct ul_program_call *of = ul_unsplit_call(unsplit, graph, node);
    if (of == NULL)
        return false;
    if (of->library->chosen_at_start) /* nor does the whole call promise bits */
        return library->chosen_at_start && library->answer(library->context, call, false);
    if (of->library != library)
        return false;
    struct ul_group_call requested = *call;
    if (!ul_node_is_piece(graph, node) && library->answer != NULL &&
        library->answer(library->context, &requested, of->call->pack != NULL) &&
        is_same(&requested.call, of->call)) {
        *call = requested;
        return true;
    }
    if (library->answer_piece == NULL)
        return false;
    const struct ul_program_step *step =
        &unsplit->program->steps[ul_unsplit_step(unsplit, graph, node)];
    struct ul_piece piece = {.unsplit = of->call,
                             .unsplit_product_count = step->work.flop_count / 2,
                             .offset = offset_of(graph, node, unsplit->program, step),
                             .unproven = unproven,
                             .graph = graph,
                             .node = node};
    return library->answer_piece(library->context, &piece, call);
}
