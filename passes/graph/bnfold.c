/* SPDX-License-Identifier: Apache-2.0 */
/* BatchNormalization, and products and sums with one constant per channel, multiplied into the
 * weights of the Conv, ConvTranspose or Gemm before them:
 *
 *      (W * x + c) * a + b  =  (a W) * x + (a c + b)
 *
 * The new weights are computed in double and take the place of the old ones, so the stored bytes
 * do not grow; weights that something else reads stay as they are. So do those whose products could
 * leave the range of floats, and sums with a number so large that it may be there to round:
 * x + 12582912 - 12582912 is the nearest whole number. A BatchNormalization with
 * constants that finds no such node before it becomes a Mul and an Add, which fuse with anything.
 * Factors after a MatMul, its bias and Transposes: bnfold_product.c.
 * Left undone: factors in front of a Conv; types other than f32 and f64. */
#include "ir/op_names.h"
#include "passes/graph/bnfold_internal.h"

#include <math.h>
#include <string.h>

struct bnfold {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_rewrite rewrite;
    uint32_t *uses; /* of what existed at the start */
};

/* y = a[c] * x + b[c] over channels c of axis 1. */
struct affine {
    ul_value_id x;
    uint32_t count;
    double *a, *b;
};

static bool affine_init(struct bnfold *bnfold, struct affine *affine, ul_value_id x)
{
    const struct ul_type *type = &bnfold->graph->values[x].type;
    if (type->rank < 2 || !ul_dtype_is_wide(type->dtype) || type->dims[1] < 1 ||
        type->dims[1] > UINT32_MAX)
        return false;
    affine->x = x;
    affine->count = (uint32_t)type->dims[1];
    affine->a = UL_NEW_ARRAY(bnfold->pass->scratch, double, affine->count);
    affine->b = UL_NEW_ARRAY(bnfold->pass->scratch, double, affine->count);
    return true;
}

static bool affine_of_batchnorm(struct bnfold *bnfold, const struct ul_node *node,
                                struct affine *affine)
{
    const struct ul_tensor *constants[4];
    if (node->output_count != 1 || ul_node_get_int(node, "training_mode", 0) != 0 ||
        !affine_init(bnfold, affine, node->inputs[0]))
        return false;
    for (uint32_t i = 0; i < 4; i++) {
        constants[i] = ul_graph_get_constant(bnfold->graph, node->inputs[1 + i]);
        if (constants[i] == NULL || ul_type_elements(&constants[i]->type) != affine->count)
            return false;
    }
    double epsilon = ul_node_get_float(node, "epsilon", 1e-5);
    for (uint32_t c = 0; c < affine->count; c++) {
        double scale = ul_tensor_get_float(constants[0], c);
        double variance = ul_tensor_get_float(constants[3], c);
        affine->a[c] = scale / sqrt(variance + epsilon);
        affine->b[c] = ul_tensor_get_float(constants[1], c) -
                       ul_tensor_get_float(constants[2], c) * affine->a[c];
    }
    return true;
}

/* One number, or one per channel of axis 1 of a tensor of `rank` dimensions. */
static bool is_per_channel(const struct ul_tensor *tensor, uint32_t rank, uint32_t channels)
{
    uint64_t elements = ul_type_elements(&tensor->type);
    if (elements == 1)
        return tensor->type.rank <= rank;
    uint32_t axis = tensor->type.rank - (rank - 1); /* where axis 1 falls when aligned right */
    return tensor->type.rank <= rank && tensor->type.rank + 1 >= rank && elements == channels &&
           tensor->type.dims[axis] == channels;
}

static bool affine_of_arithmetic(struct bnfold *bnfold, const struct ul_node *node,
                                 struct affine *affine)
{
    const struct ul_graph *graph = bnfold->graph;
    bool commutes = node->op == UL_OP_Mul || node->op == UL_OP_Add;
    const struct ul_tensor *constant = ul_graph_get_constant(graph, node->inputs[1]);
    uint32_t other = 0;
    if (constant == NULL && commutes) {
        constant = ul_graph_get_constant(graph, node->inputs[0]);
        other = 1;
    }
    if (constant == NULL || !affine_init(bnfold, affine, node->inputs[other]) ||
        !ul_type_equal(&graph->values[affine->x].type, &graph->values[node->outputs[0]].type) ||
        !is_per_channel(constant, graph->values[affine->x].type.rank, affine->count))
        return false;
    for (uint32_t c = 0; c < affine->count; c++) {
        double number =
            ul_tensor_get_float(constant, ul_type_elements(&constant->type) == 1 ? 0 : c);
        bool factor = node->op == UL_OP_Mul || node->op == UL_OP_Div;
        affine->a[c] = node->op == UL_OP_Mul ? number : node->op == UL_OP_Div ? 1 / number : 1;
        affine->b[c] = factor ? 0 : node->op == UL_OP_Sub ? -number : number;
    }
    return true;
}

static bool affine_of(struct bnfold *bnfold, const struct ul_node *node, struct affine *affine)
{
    switch ((int)node->op) {
    case UL_OP_BatchNormalization:
        return affine_of_batchnorm(bnfold, node, affine);
    case UL_OP_Mul:
    case UL_OP_Div:
    case UL_OP_Add:
    case UL_OP_Sub:
        return affine_of_arithmetic(bnfold, node, affine);
    default:
        return false;
    }
}

/* ---- The node before it ---- */

static uint32_t weight_channel(const struct ul_graph *graph, const struct ul_node *node,
                               uint64_t element)
{
    const struct ul_type *type = &graph->values[node->inputs[1]].type;
    uint64_t first = (uint64_t)type->dims[0];
    uint64_t second = (uint64_t)type->dims[1];
    uint64_t inner = ul_type_elements(type) / (first * second);
    if (node->op == UL_OP_Gemm)
        return (uint32_t)(ul_node_get_int(node, "transB", 0) != 0 ? element / second
                                                                  : element % second);
    if (node->op == UL_OP_Conv)
        return (uint32_t)(element / (second * inner));
    uint64_t groups = (uint64_t)ul_node_get_int(node, "group", 1);
    uint64_t group = element / (inner * second) / (first / groups);
    return (uint32_t)(group * second + element / inner % second);
}

/* Weights stay in range, and a sum loses hardly anything of what is added to it. */
static bool is_moderate(const struct affine *affine, bool is_sum)
{
    const double max_factor = 0x1p64;
    const double max_term = 4096;
    for (uint32_t c = 0; c < affine->count; c++) {
        if (!(fabs(affine->a[c]) <= max_factor) || (is_sum && !(fabs(affine->b[c]) <= max_term)))
            return false;
    }
    return true;
}

/* Its weights are constants that nothing else reads, its bias is absent or one per channel. */
static bool can_absorb(const struct bnfold *bnfold, const struct ul_node *node,
                       const struct affine *affine)
{
    const struct ul_graph *graph = bnfold->graph;
    if (node == NULL ||
        (node->op != UL_OP_Conv && node->op != UL_OP_ConvTranspose && node->op != UL_OP_Gemm) ||
        affine->x >= bnfold->rewrite.known_count || bnfold->uses[affine->x] != 1)
        return false;
    ul_value_id weight = node->inputs[1];
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, weight);
    if (tensor == NULL || weight >= bnfold->rewrite.known_count || bnfold->uses[weight] != 1 ||
        tensor->type.rank < 2 || tensor->type.dtype != graph->values[affine->x].type.dtype ||
        ul_type_elements(&tensor->type) == 0)
        return false;
    if (node->input_count < 3 || node->inputs[2] == UL_NONE)
        return true;
    const struct ul_tensor *bias = ul_graph_get_constant(graph, node->inputs[2]);
    if (bias == NULL)
        return false;
    uint64_t elements = ul_type_elements(&bias->type);
    uint32_t rank = bias->type.rank;
    return elements == 1 || (elements == affine->count && rank >= 1 &&
                             bias->type.dims[rank - 1] == (int64_t)affine->count);
}

/* out[i] = in[i] * a for `count` elements, in double; f32 has a loop of its own, since networks
 * have tens of millions of weights. */
static void scale_run(enum ul_dtype dtype, const unsigned char *in, size_t in_step, double a,
                      uint64_t count, unsigned char *out)
{
    size_t size_bytes = ul_dtype_get(dtype)->size_bytes;
    for (uint64_t i = 0; dtype == UL_F32 && i < count; i++) {
        float x;
        memcpy(&x, in + i * in_step, sizeof x);
        x = (float)((double)x * a);
        memcpy(out + i * sizeof x, &x, sizeof x);
    }
    for (uint64_t i = 0; dtype != UL_F32 && i < count; i++)
        ul_element_put_float(out + i * size_bytes, dtype,
                             ul_element_get_float(in + i * in_step, dtype) * a);
}

static void scale_weight(struct bnfold *bnfold, struct ul_node *node, const struct affine *affine)
{
    struct ul_graph *graph = bnfold->graph;
    struct ul_value *value = &graph->values[node->inputs[1]];
    const struct ul_tensor *old = value->tensor;
    size_t size_bytes = ul_dtype_get(old->type.dtype)->size_bytes;
    uint64_t count = ul_type_elements(&old->type);
    unsigned char *data = ul_arena_alloc(graph->arena, ul_type_bytes(&old->type));
    const unsigned char *in = old->data != NULL ? old->data : old->splat;
    size_t in_step = old->data != NULL ? size_bytes : 0;
    /* Elements of one kernel window, or row, belong to one channel. */
    uint64_t run = 1;
    if (node->op != UL_OP_Gemm)
        run = count / (uint64_t)(old->type.dims[0] * old->type.dims[1]);
    else if (ul_node_get_int(node, "transB", 0) != 0)
        run = (uint64_t)old->type.dims[1];
    UL_ASSERT(run > 0 && count % run == 0);
    for (uint64_t i = 0; i < count; i += run) {
        uint32_t channel = weight_channel(graph, node, i);
        UL_ASSERT(channel < affine->count);
        scale_run(old->type.dtype, in + i * in_step, in_step, affine->a[channel], run,
                  data + i * size_bytes);
    }
    value->tensor = ul_edit_tensor(graph, &old->type, data);
}

static void scale_bias(struct bnfold *bnfold, ul_node_id id, const struct affine *affine)
{
    struct ul_graph *graph = bnfold->graph;
    struct ul_node *node = &graph->nodes[id];
    bool has_bias = node->input_count > 2 && node->inputs[2] != UL_NONE;
    const struct ul_tensor *bias = has_bias ? graph->values[node->inputs[2]].tensor : NULL;
    double beta = node->op == UL_OP_Gemm ? ul_node_get_float(node, "beta", 1) : 1;
    double *numbers = UL_NEW_ARRAY(bnfold->pass->scratch, double, affine->count);
    bool all_zero = true;
    for (uint32_t c = 0; c < affine->count; c++) {
        uint64_t at = has_bias && ul_type_elements(&bias->type) > 1 ? c : 0;
        double old = has_bias ? beta * ul_tensor_get_float(bias, at) : 0;
        numbers[c] = affine->a[c] * old + affine->b[c];
        all_zero = all_zero && numbers[c] == 0;
    }
    if (all_zero && !has_bias)
        return;
    const char *name = ul_arena_printf(graph->arena, "%s.bias", node->name);
    enum ul_dtype dtype = graph->values[affine->x].type.dtype;
    ul_value_id weight = ul_edit_add_numbers(graph, name, dtype, numbers, affine->count, 1);
    node = &graph->nodes[id];
    if (node->input_count < 3) {
        ul_value_id *inputs = UL_NEW_ARRAY(graph->arena, ul_value_id, 3);
        memcpy(inputs, node->inputs, node->input_count * sizeof *inputs);
        node->inputs = inputs;
        node->input_count = 3;
    }
    node->inputs[2] = weight;
    if (node->op == UL_OP_Gemm)
        ul_node_set_float(graph, id, "beta", 1);
}

/* Weights that a model has in f16 must not become infinite there, nor may the largest of a channel
 * lose digits. */
static bool keeps_f16(const struct bnfold *bnfold, const struct ul_node *node,
                      const struct affine *affine)
{
    const struct ul_graph *graph = bnfold->graph;
    if (graph->values[node->inputs[1]].declared != UL_F16)
        return true;
    const struct ul_tensor *weight = ul_graph_get_constant(graph, node->inputs[1]);
    double *largest = UL_NEW_ARRAY(bnfold->pass->scratch, double, affine->count);
    for (uint64_t i = 0; i < ul_type_elements(&weight->type); i++) {
        uint32_t channel = weight_channel(graph, node, i);
        largest[channel] = fmax(largest[channel], fabs(ul_tensor_get_float(weight, i)));
    }
    for (uint32_t c = 0; c < affine->count; c++) {
        double most = largest[c] * fabs(affine->a[c]);
        if (!(most <= UL_BNFOLD_MOST_F16) || (most > 0 && most < UL_BNFOLD_LEAST_F16))
            return false;
    }
    return true;
}

static bool absorb(struct bnfold *bnfold, ul_node_id id, const struct affine *affine)
{
    struct ul_graph *graph = bnfold->graph;
    ul_value_id y = graph->nodes[id].outputs[0];
    const struct ul_node *target = ul_graph_maker(graph, affine->x);
    ul_op_id op = graph->nodes[id].op;
    if (!can_absorb(bnfold, target, affine) ||
        !is_moderate(affine, op == UL_OP_Add || op == UL_OP_Sub) ||
        !keeps_f16(bnfold, target, affine) || !ul_rewrite_forward(&bnfold->rewrite, y, affine->x))
        return false;
    ul_node_id target_id = graph->values[affine->x].producer;
    scale_weight(bnfold, &graph->nodes[target_id], affine);
    scale_bias(bnfold, target_id, affine);
    bnfold->uses[affine->x] = bnfold->uses[y];
    ul_graph_remove_node(graph, id);
    return true;
}

/* BatchNormalization -> Mul, Add. The Mul takes its place in the list, the Add comes after it. */
static void expand(struct bnfold *bnfold, ul_block_id block, uint32_t at, ul_node_id id,
                   const struct affine *affine)
{
    struct ul_graph *graph = bnfold->graph;
    struct ul_type type = graph->values[affine->x].type;
    const char *name = graph->nodes[id].name;
    UL_ASSERT(type.rank >= 2 && type.dims[1] == (int64_t)affine->count);
    ul_value_id a = ul_edit_add_numbers(graph, ul_arena_printf(graph->arena, "%s.scale", name),
                                        type.dtype, affine->a, affine->count, type.rank - 1);
    ul_value_id b = ul_edit_add_numbers(graph, ul_arena_printf(graph->arena, "%s.shift", name),
                                        type.dtype, affine->b, affine->count, type.rank - 1);
    struct ul_build build =
        ul_build_at(graph, block, at, ul_arena_printf(graph->arena, "%s.mul", name));
    const ul_value_id factors[2] = {affine->x, a};
    const ul_value_id terms[2] = {ul_build_value(&build, UL_OP_Mul, factors, 2, &type), b};
    graph->nodes[graph->values[terms[0]].producer].source = graph->nodes[id].source;
    ul_node_become(graph, id, UL_OP_Add, terms, 2);
}

/* A factor after a product: bnfold_product.c. */
static bool scale_product(struct bnfold *bnfold, ul_node_id id)
{
    ul_value_id y = bnfold->graph->nodes[id].outputs[0];
    struct ul_scaled_product found = {.uses = bnfold->uses,
                                      .known_count = bnfold->rewrite.known_count};
    if (!ul_bnfold_find_product(bnfold->pass, id, &found) ||
        !ul_rewrite_forward(&bnfold->rewrite, y, found.x))
        return false;
    ul_bnfold_scale_product(bnfold->graph, &found);
    bnfold->uses[found.x] = bnfold->uses[y];
    ul_graph_remove_node(bnfold->graph, id);
    return true;
}

static void fold_block(struct bnfold *bnfold, ul_block_id block_id)
{
    struct ul_graph *graph = bnfold->graph;
    for (uint32_t at = 0; at < graph->blocks[block_id].node_count; at++) {
        ul_node_id id = graph->blocks[block_id].nodes[at];
        struct affine affine;
        ul_rewrite_inputs(&bnfold->rewrite, id);
        for (uint32_t b = 0; b < graph->nodes[id].block_count; b++)
            fold_block(bnfold, graph->nodes[id].blocks[b]);
        if (scale_product(bnfold, id) || !affine_of(bnfold, &graph->nodes[id], &affine) ||
            absorb(bnfold, id, &affine))
            continue;
        if (graph->nodes[id].op == UL_OP_BatchNormalization) {
            expand(bnfold, block_id, at, id, &affine);
            at++;
        }
    }
}

enum ul_status ul_pass_bnfold(struct ul_pass *pass)
{
    struct bnfold bnfold = {.pass = pass, .graph = pass->graph};
    ul_rewrite_init(&bnfold.rewrite, pass->graph, pass->scratch);
    bnfold.uses = ul_graph_count_uses(pass->graph, pass->scratch);
    fold_block(&bnfold, 0);
    ul_rewrite_apply(&bnfold.rewrite);
    ul_graph_sweep(pass->graph);
    return UL_OK;
}
