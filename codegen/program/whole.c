/* SPDX-License-Identifier: Apache-2.0 */
/* The program of a graph before its chains were split: which step of it a node belongs to, and how
 * calls of the split graph get the bits of its calls. */
#include "codegen/program/calls_internal.h"

#include "codegen/kernel/contract.h"
#include "ir/view.h"
#include "runtime/lib/ul_winograd.h"

#include <string.h>

void ul_whole_init(struct ul_whole *whole, struct ul_arena *arena, const struct ul_program *program)
{
    whole->program = program;
    whole->steps = UL_NEW_ARRAY(arena, uint32_t, program->graph->node_count);
    memset(whole->steps, 0xFF, program->graph->node_count * sizeof *whole->steps);
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (program->steps[s].kind == UL_STEP_KERNEL || program->steps[s].kind == UL_STEP_CALL)
            whole->steps[program->steps[s].node] = s;
    }
}

bool ul_node_is_piece(const struct ul_graph *graph, ul_node_id node)
{
    return ul_node_find_attr(&graph->nodes[node], "ul_piece_of") != NULL;
}

uint32_t ul_whole_step(const struct ul_whole *whole, const struct ul_graph *graph, ul_node_id node)
{
    int64_t origin = ul_node_get_int(&graph->nodes[node], "ul_piece_of", (int64_t)node);
    if (whole == NULL || origin < 0 || origin >= whole->program->graph->node_count)
        return UL_NONE;
    return whole->steps[origin];
}

bool ul_whole_has_orders(const struct ul_whole *whole, const struct ul_graph *graph,
                         ul_node_id node, uint32_t orders)
{
    uint32_t at = ul_whole_step(whole, graph, node);
    if (at == UL_NONE)
        return orders == 0;
    const struct ul_program_step *first = &whole->program->steps[at], *step = first;
    for (uint32_t i = 0; step->kind == UL_STEP_CALL && i < first->other_count; i++)
        step = first->others[i].kind == UL_STEP_KERNEL ? &first->others[i] : step;
    return step->kind == UL_STEP_KERNEL &&
           whole->program->kernels[step->kernel].sum_orders == orders &&
           (orders & (orders - 1)) == 0 && orders != UL_CONTRACT_LOOSE;
}

const struct ul_call *ul_whole_call(const struct ul_whole *whole, const struct ul_graph *graph,
                                    ul_node_id node)
{
    uint32_t step = ul_whole_step(whole, graph, node);
    if (step == UL_NONE || whole->program->steps[step].kind != UL_STEP_CALL)
        return NULL;
    return &whole->program->calls[whole->program->steps[step].kernel];
}

bool ul_whole_is_faster(const struct ul_whole *whole, const struct ul_graph *graph, ul_node_id node)
{
    uint32_t at = ul_whole_step(whole, graph, node);
    if (at == UL_NONE)
        return false;
    const struct ul_program_step *step = &whole->program->steps[at];
    for (uint32_t i = 0; i < step->other_count; i++) {
        if (step->others[i].kind == UL_STEP_CALL &&
            ul_call_is_winograd(&whole->program->calls[step->others[i].kernel]))
            return true;
    }
    return false;
}

bool ul_piece_cut_tiles(const struct ul_graph *graph, ul_node_id node, struct ul_call *call)
{
    uint32_t count = 0;
    const int64_t *at = ul_node_get_ints(&graph->nodes[node], "ul_piece_at", &count);
    if (!ul_node_is_piece(graph, node))
        return true;
    if (count != 2 || at[0] < 0 || at[0] == 1 || at[0] > 3)
        return false;
    if (at[0] >= 2)
        call->tile_begin[at[0] - 2] = at[1] % 2;
    return true;
}

/* Where a piece begins in the whole, in elements. */
static int64_t offset_of(const struct ul_graph *graph, ul_node_id node,
                         const struct ul_program *whole, const struct ul_program_step *step)
{
    uint32_t count = 0;
    const int64_t *at = ul_node_get_ints(&graph->nodes[node], "ul_piece_at", &count);
    const struct ul_value *result = &whole->graph->values[step->views[UL_CALL_DST]];
    UL_ASSERT(count == 0 || (count == 2 && at[0] < result->type.rank));
    return count == 0 ? 0 : at[1] * result->view.strides[at[0]];
}

bool ul_whole_answer(const struct ul_whole *whole, const struct ul_target_library *library,
                     const struct ul_graph *graph, ul_node_id node, bool unproven,
                     struct ul_group_call *call)
{
    const struct ul_call *of = ul_whole_call(whole, graph, node);
    if (of == NULL)
        return false;
    if (library->chosen_at_start) /* nor does the call of the whole promise bits */
        return library->answer(library->context, call, false);
    struct ul_group_call requested = *call;
    if (ul_call_is_winograd(of) && ul_node_is_piece(graph, node)) {
        struct ul_call cut = call->call;
        return ul_piece_cut_tiles(graph, node, &cut) &&
               library->answer(library->context, call, true) && ul_winograd_supports(&call->call);
    }
    if (!ul_node_is_piece(graph, node) &&
        library->answer(library->context, &requested, of->pack != NULL) &&
        (ul_call_is_winograd(of) || memcmp(&requested.call, of, sizeof *of) == 0)) {
        *call = requested;
        return true;
    }
    if (library->answer_piece == NULL)
        return false;
    const struct ul_program_step *step = &whole->program->steps[ul_whole_step(whole, graph, node)];
    struct ul_piece piece = {.whole = of,
                             .whole_product_count = step->work.flop_count / 2,
                             .offset = offset_of(graph, node, whole->program, step),
                             .unproven = unproven};
    return library->answer_piece(library->context, &piece, call);
}
