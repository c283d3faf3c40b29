/* SPDX-License-Identifier: Apache-2.0 */
/* Has calls of the library form more than our own kernels do: a GELU beside what it is of, and
 * gradients, with bytes that our own kernels do not need.
 *
 * Attention:
 *      sums = sum of g Y                        sums = sum of g Y
 *      dq, dk, dv = gradient(.., g, sums)       dq, dk, dv = gradient(.., g, sums, Y)
 * The library forms the sums of queries from the result by itself, and writes slopes of all scores
 * into its scratch. Y lives a step longer for the call, and the scratch is planned whatever runs.
 *
 * ReLU, after a product:
 *      dy = dz w^T                              dy = dz w^T
 *      dx = y <= 0 ? 0 : dy                     dx = y <= 0 ? 0 : dy     {ul_has_room}
 * The library forms dx at once from bits, which the call writes into its scratch
 * (codegen/program/slopes.c).
 *
 * GELU by tanh, after a product:
 *      x = a w;  y = gelu(x)                    x, y = product(a, w)     {ul_keeps}
 *      y' = gelu(x);  dw2 = y'^T dz             y' = gelu(x);  dw2 = y'^T dz
 * The library forms y from sums before they are rounded, and y' is formed from x, so that both have
 * other bits. No plan takes one for the other: only the forward pass reads y, and the backward pass
 * reads what pass tiles has made again. Both are one step, which a budget may run again.
 *
 * Method: gradients are formed so where no plan grows by that. The graph and the target alone
 * decide, as in pass tiles: what is live at that step must be far below the peak of a plan that
 * keeps the forward pass, and what the step touches far below what the neediest step touches, which
 * is the peak of a plan that keeps almost nothing. A program that trains has one way to run a step,
 * so that a budget changes no bit. Plans of small budgets are found by a search: with less room
 * beside the calls those of BERT and GPT-2 took more. Left undone: gradients in a loop; GELUs whose
 * result the backward pass reads too. */
#include "ir/geometry.h"
#include "ir/gradient.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/rewrite.h"
#include "ir/view.h"
#include "passes/shared/steps.h"

enum {
    PEAK_PART = 4, /* of the largest live sum: stays free beside the call */
    NEEDY_PART = 4 /* of the bytes of the neediest step: the most that the call may touch */
};

struct library {
    struct ul_pass *pass;
    struct ul_steps steps;      /* before any call; persistent values have no bytes */
    struct ul_step_peaks peaks; /* of the other steps */
};

static bool is_attention(const struct ul_node *node)
{
    return node->op == UL_OP_AttentionGradient && node->input_count == UL_ATTENTION_GIVEN_RESULT &&
           node->inputs[UL_ATTENTION_GIVEN_SUMS] != UL_NONE;
}

/* The result of the attention that made the norms, or UL_NONE. */
static ul_value_id find_result(const struct ul_graph *graph, const struct ul_node *gradient)
{
    const struct ul_value *norms = &graph->values[gradient->inputs[UL_ATTENTION_GIVEN_NORMS]];
    if (norms->kind != UL_VALUE_NODE || graph->nodes[norms->producer].op != UL_OP_FusedAttention)
        return UL_NONE;
    return graph->nodes[norms->producer].outputs[0];
}

/* The product, of 16 bits, in front of a ReLU's gradient; or UL_NONE. */
static ul_node_id find_product(const struct library *library, ul_node_id id)
{
    const struct ul_graph *graph = library->pass->graph;
    const struct ul_node *node = &graph->nodes[id];
    uint32_t input;
    if (library->pass->traits->mask_align_bits == 0 || node->op != UL_OP_Gradient ||
        ul_gradient_row(node, &input) != ul_op_get(UL_OP_Relu) || ul_gradient_has_mask(graph, node))
        return UL_NONE;
    const struct ul_value *value = &graph->values[graph->values[node->inputs[0]].view.base];
    bool is_product = value->kind == UL_VALUE_NODE && value->type.rank > 1 &&
                      ul_dtype_is_half(value->storage) &&
                      (ul_op_get(graph->nodes[value->producer].op)->flags & UL_OP_MULTIPLIES) != 0;
    return is_product ? value->producer : UL_NONE;
}

/* The node at whose step the library takes more, or UL_NONE. */
static ul_node_id find_asked(const struct library *library, ul_node_id id)
{
    return is_attention(&library->pass->graph->nodes[id]) ? id : find_product(library, id);
}

/* Finds the peaks among steps that stay as they are. */
static void find_peaks(struct library *library)
{
    const struct ul_graph *graph = library->pass->graph;
    struct ul_steps *steps = &library->steps;
    ul_steps_init(steps, graph, NULL, NULL, library->pass->scratch);
    ul_steps_drop_persistent(steps);
    bool *is_asked_for = UL_NEW_ARRAY(library->pass->scratch, bool, steps->step_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        ul_node_id asked = find_asked(library, n);
        if (asked != UL_NONE && steps->step_of[asked] != UL_NONE)
            is_asked_for[steps->step_of[asked]] = true;
    }
    library->peaks = ul_steps_find_peaks(steps, is_asked_for);
}

/* Whether a step may take so many more bytes in every plan. */
static bool has_room(const struct library *library, uint32_t step, uint64_t more_bytes)
{
    uint64_t most_bytes = library->peaks.peak_bytes - library->peaks.peak_bytes / PEAK_PART;
    return ul_live_bytes(library->peaks.live, step) + more_bytes <= most_bytes &&
           ul_steps_touched_bytes(&library->steps, step) + more_bytes <=
               library->peaks.needy_bytes / NEEDY_PART;
}

/* Gives the result to the gradient, and takes it back where that makes no call or has no room. */
static void try_attention(struct library *library, ul_node_id id)
{
    const struct ul_passes_options *options = library->pass->options;
    struct ul_graph *graph = library->pass->graph;
    ul_value_id result = find_result(graph, &graph->nodes[id]);
    uint32_t step = library->steps.step_of[id];
    uint64_t scratch_bytes = 0;
    if (result == UL_NONE || step == UL_NONE || library->steps.steps[step].node_count != 1)
        return;
    ul_graph_add_input(graph, id, result);
    if (!options->is_call(options->library, graph, &id, 1, library->steps.escapes,
                          &scratch_bytes) ||
        !has_room(library, step, scratch_bytes + ul_value_bytes(graph, result)))
        graph->nodes[id].input_count--;
    UL_ASSERT(graph->nodes[id].input_count <= UL_ATTENTION_GRADIENT_INPUTS);
}

/* Whether a node of the backward pass reads the value, or may. */
static bool is_read_backwards(const struct ul_graph *graph, ul_value_id base)
{
    bool is_read = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; ul_edit_is_backward(graph, node) && i < node->input_count; i++)
            is_read = is_read || (node->inputs[i] != UL_NONE &&
                                  graph->values[node->inputs[i]].view.base == base);
    }
    return is_read;
}

/* Whether the node is a GELU right behind the product of 16 bits that it is of, both steps by
 * themselves. */
static bool is_behind_product(const struct ul_graph *graph, ul_node_id before, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id], *product = &graph->nodes[before];
    return node->op == UL_OP_Gelu && node->group == UL_NONE && product->group == UL_NONE &&
           !ul_edit_is_backward(graph, node) && product->outputs[0] == node->inputs[0] &&
           (ul_op_get(product->op)->flags & UL_OP_MULTIPLIES) != 0 &&
           ul_dtype_is_half(graph->values[node->inputs[0]].storage) &&
           ul_dtype_is_half(graph->values[node->outputs[0]].storage);
}

/* Has the product's call make the GELU too, and takes it back where that is no call. */
static void try_gelu(struct ul_pass *pass, ul_node_id product, ul_node_id id)
{
    struct ul_graph *graph = pass->graph;
    const ul_node_id nodes[] = {product, id};
    if (!is_behind_product(graph, product, id) ||
        is_read_backwards(graph, graph->nodes[id].outputs[0]))
        return;
    ul_node_set_int(graph, id, "ul_keeps", 1);
    graph->nodes[product].group = graph->nodes[id].group = ul_edit_last_group(graph) + 1;
    if (pass->options->is_call(pass->options->library, graph, nodes, 2,
                               ul_graph_escapes(graph, pass->scratch), NULL))
        return;
    ul_node_remove_attr(graph, id, "ul_keeps");
    graph->nodes[product].group = graph->nodes[id].group = UL_NONE;
}

/* Says on a ReLU's gradient that there is room for its bits beside the product. */
static void try_mask(struct library *library, ul_node_id id, ul_node_id product)
{
    struct ul_graph *graph = library->pass->graph;
    const struct ul_type *type = &graph->values[graph->nodes[id].outputs[0]].type;
    const uint64_t byte_bits = 8, loss_bytes = 256, align = library->pass->traits->mask_align_bits;
    uint32_t step = library->steps.step_of[product];
    uint64_t columns = (uint64_t)type->dims[type->rank - 1];
    uint64_t rows = columns == 0 ? 0 : (uint64_t)ul_type_elements(type) / columns;
    uint64_t bytes = loss_bytes + rows * ((columns + align - 1) / align * align / byte_bits);
    if (step != UL_NONE && has_room(library, step, bytes))
        ul_node_set_int(graph, id, "ul_has_room", 1);
}

enum ul_status ul_pass_library(struct ul_pass *pass)
{
    struct library library = {.pass = pass};
    const struct ul_block *block = ul_graph_only_root(pass->graph);
    bool is_found = false;
    for (uint32_t i = 0; i < block->node_count; i++)
        is_found = is_found || find_asked(&library, block->nodes[i]) != UL_NONE;
    if (pass->options->is_call == NULL)
        return UL_OK;
    for (uint32_t i = 1; i < block->node_count; i++)
        try_gelu(pass, block->nodes[i - 1], block->nodes[i]);
    if (!is_found)
        return UL_OK;
    find_peaks(&library);
    for (uint32_t i = 0; i < block->node_count; i++) {
        ul_node_id id = block->nodes[i], asked = find_asked(&library, id);
        if (asked == id)
            try_attention(&library, id);
        else if (asked != UL_NONE)
            try_mask(&library, id, asked);
    }
    return UL_OK;
}
