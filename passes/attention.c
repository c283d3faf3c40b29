/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: its gradient reads the result of attention where a call of the library then computes
 * it.
 *
 *      sums = sum of g Y                        sums = sum of g Y
 *      dq, dk, dv = gradient(.., g, sums)       dq, dk, dv = gradient(.., g, sums, Y)
 *
 * Problem: the library forms the sums of queries from the result by itself, and writes slopes of
 * all scores into its scratch; our own kernels need neither. Y lives a step longer for the call,
 * and the scratch is planned whatever runs. Method: a gradient gets Y where no plan grows by that.
 * The graph and the target alone decide, as in pass tiles: what is live at that step must be far
 * below the peak of a plan that keeps the forward pass, and what the step touches far below what
 * the neediest step touches, which is the peak of a plan that keeps almost nothing. A program that
 * trains has one way to run a step, so that a budget changes no bit. Plans of small budgets are
 * found by a search: with less room beside the calls those of BERT and GPT-2 took more. Left
 * undone: gradients of attention that is in a loop. */
#include "ir/geometry.h"
#include "ir/op.h"
#include "ir/rewrite.h"
#include "ir/view.h"
#include "passes/steps.h"

enum {
    PEAK_PART = 4, /* of the largest live sum, which stays free beside the call */
    NEEDY_PART = 4 /* of the bytes of the neediest step: the most that the call may touch */
};

struct attention {
    struct ul_pass *pass;
    struct ul_steps steps;      /* before any call; persistent values have no bytes */
    struct ul_step_peaks peaks; /* of other steps */
};

static bool is_asked(const struct ul_node *node)
{
    return node->op == UL_OP_AttentionGradient && node->input_count == UL_ATTENTION_GIVEN_RESULT &&
           node->inputs[UL_ATTENTION_GIVEN_SUMS] != UL_NONE;
}

/* Gives the result of the attention that made the norms, or UL_NONE. */
static ul_value_id find_result(const struct ul_graph *graph, const struct ul_node *gradient)
{
    const struct ul_value *norms = &graph->values[gradient->inputs[UL_ATTENTION_GIVEN_NORMS]];
    if (norms->kind != UL_VALUE_NODE || graph->nodes[norms->producer].op != UL_OP_FusedAttention)
        return UL_NONE;
    return graph->nodes[norms->producer].outputs[0];
}

/* Finds the peaks among steps that stay as they are. */
static void find_peaks(struct attention *attention)
{
    const struct ul_graph *graph = attention->pass->graph;
    struct ul_steps *steps = &attention->steps;
    ul_steps_init(steps, graph, NULL, NULL, attention->pass->scratch);
    ul_steps_drop_persistent(steps);
    bool *is_asked_for = UL_NEW_ARRAY(attention->pass->scratch, bool, steps->step_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (is_asked(&graph->nodes[n]) && steps->step_of[n] != UL_NONE)
            is_asked_for[steps->step_of[n]] = true;
    }
    attention->peaks = ul_steps_find_peaks(steps, is_asked_for);
}

/* Whether a step may take so many bytes more in every plan. */
static bool has_room(const struct attention *attention, uint32_t step, uint64_t more_bytes)
{
    uint64_t most_bytes = attention->peaks.peak_bytes - attention->peaks.peak_bytes / PEAK_PART;
    return ul_live_bytes(attention->peaks.live, step) + more_bytes <= most_bytes &&
           ul_steps_touched_bytes(&attention->steps, step) + more_bytes <=
               attention->peaks.needy_bytes / NEEDY_PART;
}

/* Gives the gradient the result, or takes it back where no call or no room comes of it. */
static void try_call(struct attention *attention, ul_node_id id)
{
    const struct ul_passes_options *options = attention->pass->options;
    struct ul_graph *graph = attention->pass->graph;
    ul_value_id result = find_result(graph, &graph->nodes[id]);
    uint32_t step = attention->steps.step_of[id];
    uint64_t scratch_bytes = 0;
    if (result == UL_NONE || step == UL_NONE || attention->steps.steps[step].node_count != 1)
        return;
    ul_graph_add_input(graph, id, result);
    if (!options->is_call(options->library, graph, &id, 1, attention->steps.escapes,
                          &scratch_bytes) ||
        !has_room(attention, step, scratch_bytes + ul_value_bytes(graph, result)))
        graph->nodes[id].input_count--;
    UL_ASSERT(graph->nodes[id].input_count <= UL_ATTENTION_GRADIENT_INPUTS);
}

enum ul_status ul_pass_attention(struct ul_pass *pass)
{
    struct attention attention = {.pass = pass};
    const struct ul_block *block = &pass->graph->blocks[0];
    bool is_found = false;
    for (uint32_t i = 0; i < block->node_count; i++)
        is_found = is_found || is_asked(&pass->graph->nodes[block->nodes[i]]);
    if (!is_found || pass->options->is_call == NULL)
        return UL_OK;
    find_peaks(&attention);
    for (uint32_t i = 0; i < block->node_count; i++) {
        if (is_asked(&pass->graph->nodes[block->nodes[i]]))
            try_call(&attention, block->nodes[i]);
    }
    return UL_OK;
}
