/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow constants that a product reads across their rows are stored the other way round.
 *
 * Problem: kernels of ours widen a constant of 8 or 16 bits as they load it, columns side by side;
 * where k lies side by side (Gemm's transB, a Transpose), a product of one row would load every
 * element by itself, and a Transpose of the widened constant takes memory and time in every run.
 * Method: where only the product reads the constant, it is turned now, and so is what scales it:
 *
 *      MatMul(x, Transpose(Cast(w [n k])))     ->   MatMul(x, Cast(w' [k n]))
 *      Gemm(x, Dequantize(w [n k])) {transB}   ->   Gemm(x, Dequantize(w' [k n]))
 *      Conv(x, Transpose(Cast(w [3 3 c o])))   ->   Conv(x, Cast(w' [o c 3 3]))
 *
 * Left undone: scales of blocks along one axis for each index of another; constants on the left. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/integers/nbits_internal.h"

struct turning {
    struct ul_build build;
    const struct ul_nbits_source *source;
    uint32_t axes[UL_LIMIT_RANK]; /* axes of the stored codes, in the order that is wanted */
    struct ul_type type;          /* f32, turned so */
};

bool ul_nbits_is_alone(const struct ul_graph *graph, const struct ul_nbits_source *source,
                       ul_value_id value, const uint32_t *uses)
{
    while (graph->values[value].kind == UL_VALUE_NODE) {
        const struct ul_node *node = &graph->nodes[graph->values[value].producer];
        if (uses[value] != 1)
            return false;
        uint32_t at = node->op == UL_OP_Mul && node->inputs[1] != source->inputs[1] ? 1 : 0;
        value = node->inputs[at];
    }
    return value == source->inputs[0] && uses[value] == 1;
}

static uint32_t count_scaled_axes(const struct ul_nbits_source *source)
{
    uint32_t count = 0;
    for (uint32_t d = 0; d < source->codes->type.rank; d++)
        count += ul_nbits_source_scales(source, d) > 1;
    return count;
}

static ul_value_id turn_codes(struct turning *turning)
{
    struct ul_graph *graph = turning->build.graph;
    const struct ul_nbits_source *source = turning->source;
    struct ul_type type = turning->type;
    int64_t at[UL_LIMIT_RANK] = {0};
    type.dtype = source->codes->type.dtype;
    uint64_t size = ul_dtype_get(type.dtype)->size_bytes, count = ul_type_elements(&type);
    unsigned char *bytes = ul_arena_alloc(graph->arena, count * size);
    for (uint64_t i = 0; i < count; i++) {
        ul_tensor_read(source->codes, ul_nbits_source_code(source, at), 1, bytes + i * size);
        for (uint32_t d = type.rank; d-- > 0;) {
            uint32_t own = turning->axes[d];
            if (++at[own] < type.dims[d])
                break;
            at[own] = 0;
        }
    }
    return ul_nbits_add_weight(graph, source->inputs[0], type.dtype, type.rank, type.dims, bytes);
}

/* Turns scales or zero points, which have only one axis longer than 1, so that they broadcast. */
static ul_value_id turn_table(struct turning *turning, ul_value_id value)
{
    struct ul_graph *graph = turning->build.graph;
    struct ul_tensor *turned =
        ul_arena_copy(graph->arena, graph->values[value].tensor, sizeof *turned);
    turned->type.rank = turning->type.rank;
    for (uint32_t d = 0; d < turning->type.rank; d++)
        turned->type.dims[d] = ul_nbits_source_scales(turning->source, turning->axes[d]);
    return ul_graph_add_weight(graph, graph->values[value].name, turned);
}

ul_value_id ul_nbits_widen(struct ul_build *build, const struct ul_nbits_source *source,
                           const struct ul_type *type, const ul_value_id *inputs)
{
    UL_ASSERT(source->node == NULL || source->node->op != UL_OP_DequantizeLinear);
    if (source->node != NULL && source->node->op == UL_OP_Dequantize)
        return ul_build_value(build, UL_OP_Dequantize, inputs, source->zeros != NULL ? 3 : 2, type);
    ul_value_id factors[2] = {ul_build_value(build, UL_OP_Cast, inputs, 1, type), inputs[1]};
    ul_node_set_int(build->graph, build->graph->values[factors[0]].producer, "to",
                    (int64_t)type->dtype);
    return source->node == NULL ? factors[0] : ul_build_value(build, UL_OP_Mul, factors, 2, type);
}

static ul_value_id widen(struct turning *turning, ul_value_id codes)
{
    const struct ul_nbits_source *source = turning->source;
    ul_value_id inputs[3] = {codes, UL_NONE, UL_NONE};
    for (uint32_t i = 1; i < 3 && source->node != NULL; i++)
        inputs[i] = source->inputs[i] == UL_NONE ? UL_NONE : turn_table(turning, source->inputs[i]);
    return ul_nbits_widen(&turning->build, source, &turning->type, inputs);
}

/* Nothing has to be turned: columns lie side by side already, or the axes of a convolution's
 * weights have the order that it reads. */
static bool is_in_order(const struct turning *turning, const struct ul_node *node)
{
    uint32_t rank = turning->type.rank;
    if ((ul_op_get(node->op)->flags & UL_OP_CONVOLVES) == 0)
        return turning->axes[rank - 1] == rank - 1;
    for (uint32_t d = 0; d < rank; d++) {
        if (turning->axes[d] != d)
            return false;
    }
    return true;
}

bool ul_nbits_turn(struct ul_graph *graph, ul_node_id id, const struct ul_nbits_source *source,
                   const uint32_t *uses)
{
    const struct ul_node *node = &graph->nodes[id];
    struct turning turning = {.source = source, .type = graph->values[node->inputs[1]].type};
    uint32_t rank = turning.type.rank;
    bool is_across = node->op == UL_OP_Gemm && ul_node_get_int(node, "transB", 0) != 0;
    for (uint32_t d = 0; d < rank; d++)
        turning.axes[d] = source->axes[is_across ? rank - 1 - d : d];
    if (rank < 2 || source->codes->data == NULL || is_in_order(&turning, node) ||
        turning.type.dtype != UL_F32 || count_scaled_axes(source) > 1 ||
        !ul_nbits_is_alone(graph, source, node->inputs[1], uses) ||
        (source->node != NULL && source->node->op == UL_OP_DequantizeLinear))
        return false;
    for (uint32_t d = 0; d < rank; d++)
        turning.type.dims[d] = source->codes->type.dims[turning.axes[d]];
    turning.build = ul_build_before(graph, id);
    graph->nodes[id].inputs[1] = widen(&turning, turn_codes(&turning));
    if (is_across)
        ul_node_set_int(graph, id, "transB", 0);
    return true;
}
