/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that a model spells out with smaller ones.
 *
 *      ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add   ->  LayerNormalization
 *      Div Erf Add Mul Mul                                  ->  Gelu
 *      Slice Neg Slice Concat Mul Mul Add                   ->  FusedRotary
 *      MatMul Div Add Softmax MatMul                        ->  FusedAttention
 *
 * Problem: exporters write normalisations, activations and attention as chains; the one operator
 * reads its input fewer times, has fewer results in between, and can be a post-operation of a
 * library. Method: every node, the last ones first, is offered to the rows of text (pattern_rows.c)
 * and then to the recogniser of attention, which look back from it through what does not matter:
 * the order of factors, division for multiplication by the inverse, constants of any shape. Nothing
 * is rewritten where an inner value has another reader. What was read by the chain alone is left to
 * dce. A rewrite may keep operands alive for longer: where the live sum has grown at the end, all
 * is done again without those. Results may differ in the last digits, as sums are formed in another
 * order, and be finite where the parts overflow: numbers whose exponentials are infinite give NaN
 * by the parts of a Softmax without a maximum, and large or infinite ones give inf or NaN by those
 * of HardSwish; the operators give what the parts would with unbounded numbers. Left undone:
 * normalisation whose factors were multiplied out (x * a + (b - mean * a)). */
#include "ir/infer.h"
#include "ir/op.h"
#include "passes/patterns/pattern_internal.h"
#include "passes/shared/steps.h"

/* The first turn takes the rows of text, the second what their results make possible. */
enum { ROWS, ATTENTION, TURNS };

/* The types of the values are those that operators give for their operands. */
static bool types_hold(const struct ul_pattern *pattern, ul_node_id id)
{
    struct ul_graph *graph = pattern->graph;
    struct ul_diag diag = {0};
    ul_value_id output = graph->nodes[id].outputs[0];
    struct ul_value *value = &graph->values[output];
    struct ul_type type = value->type;
    const struct ul_tensor *tensor = value->tensor;
    bool holds = ul_node_infer(graph, id, pattern->pass->scratch, &diag) == UL_OK &&
                 ul_type_equal(&value->type, &type);
    value->type = type;
    value->tensor = tensor;
    return holds;
}

static bool recognise(struct ul_pattern *pattern, ul_node_id id, uint32_t turn)
{
    return turn == ATTENTION ? ul_pattern_attention(pattern, id) : ul_pattern_rows(pattern, id);
}

static void visit(struct ul_pattern *pattern, ul_node_id id, uint32_t turn)
{
    uint32_t first_new = pattern->graph->node_count;
    if (!recognise(pattern, id, turn))
        return;
    UL_ASSERT(types_hold(pattern, id));
    UL_ASSERT(ul_op_has_gradient(pattern->graph->nodes[id].op));
    for (ul_node_id n = first_new; n < pattern->graph->node_count; n++)
        UL_ASSERT(types_hold(pattern, n));
}

/* True when a rewrite was taken that may need more bytes. */
static bool rewrite(struct ul_pass *pass, bool only_less)
{
    struct ul_graph *graph = pass->graph;
    struct ul_pattern pattern = {.pass = pass, .graph = graph, .only_less = only_less};
    pattern.uses = ul_graph_count_uses(graph, pass->scratch);
    pattern.use_count = pattern.use_capacity = graph->value_count;
    ul_pattern_begin_rows(&pattern);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t b = 0; b < graph->block_count; b++) {
            if (!ul_graph_has_block(graph, b))
                continue;
            /* From the end, so that the longest chain is met first. */
            for (uint32_t n = graph->blocks[b].node_count; n-- > 0;)
                visit(&pattern, graph->blocks[b].nodes[n], turn);
        }
    }
    ul_graph_sweep(graph);
    return pattern.may_match_more;
}

/* The live sum that the passes to come would leave. */
static enum ul_status peak_of(const struct ul_pass *pass, const struct ul_graph *graph,
                              uint64_t *peak_bytes)
{
    struct ul_graph copy;
    UL_TRY(pass->dry_run(pass, graph, &copy));
    *peak_bytes = ul_steps_peak_bytes(&copy, pass->scratch);
    return UL_OK;
}

enum ul_status ul_pass_pattern(struct ul_pass *pass)
{
    struct ul_graph before;
    uint64_t before_bytes, after_bytes;
    ul_graph_copy(&before, pass->graph->arena, pass->graph);
    if (!rewrite(pass, false))
        return UL_OK;
    UL_TRY(peak_of(pass, &before, &before_bytes));
    UL_TRY(peak_of(pass, pass->graph, &after_bytes));
    if (after_bytes > before_bytes) {
        *pass->graph = before;
        (void)rewrite(pass, true);
    }
    return UL_OK;
}
