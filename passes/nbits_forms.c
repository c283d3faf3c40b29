/* Products with weights of a few bits that are no plain rows times one matrix, made of such:
 *
 *      MatMul(w, x)                  ->  Transpose(MatMul(Transpose(x), Transpose(w)))
 *      MatMul(x [e m k], w [e k n])  ->  Concat of MatMul(x[i], w[i])
 *      Gemm(x, w, c)                 ->  MatMul(x, w) * alpha + c * beta
 *
 * Movements of rows are views where their readers take views. Left undone: weights with several
 * axes of a batch, and more than MAX_MATRICES matrices. */
#include "ir/build.h"
#include "ir/op.h"
#include "passes/nbits_internal.h"

#include <string.h>

enum { MAX_MATRICES = 256 };

static ul_value_id add_matmul(struct ul_pass *pass, struct ul_build *build, ul_value_id a,
                              ul_value_id b, struct ul_node_list *made)
{
    const ul_value_id inputs[2] = {a, b};
    struct ul_graph *graph = pass->graph;
    struct ul_type type = graph->values[a].type;
    UL_ASSERT(graph->values[b].type.rank == 2 && type.rank > 0);
    type.dims[type.rank - 1] = graph->values[b].type.dims[1];
    ul_value_id value = ul_build_value(build, UL_OP_MatMul, inputs, 2, &type);
    UL_GROW(pass->scratch, made->nodes, made->count, made->capacity);
    made->nodes[made->count++] = graph->values[value].producer;
    return value;
}

/* The last two axes change places. */
static bool swaps(const struct ul_node *node, uint32_t rank)
{
    uint32_t count;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    bool is_swap = rank >= 2 && (perm != NULL || rank == 2);
    for (uint32_t d = 0; is_swap && perm != NULL && d < rank; d++)
        is_swap = perm[d] == (int64_t)(d + 2 < rank ? d : 2 * rank - 3 - d);
    return is_swap;
}

static ul_value_id swap(struct ul_build *build, ul_value_id value)
{
    uint32_t rank = build->graph->values[value].type.rank;
    int64_t perm[UL_LIMIT_RANK];
    UL_ASSERT(rank >= 2);
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = d + 2 < rank ? d : 2 * rank - 3 - d;
    return ul_build_transpose(build, value, perm);
}

/* What is read packed, directly or behind a change of its last two axes. */
static bool find_source(const struct ul_graph *graph, ul_value_id value,
                        struct ul_nbits_source *source, bool *is_swapped)
{
    const struct ul_value *info = &graph->values[value];
    *is_swapped = info->kind == UL_VALUE_NODE &&
                  graph->nodes[info->producer].op == UL_OP_Transpose &&
                  swaps(&graph->nodes[info->producer], info->type.rank);
    if (*is_swapped)
        value = graph->nodes[info->producer].inputs[0];
    return ul_nbits_source_read(graph, value, source);
}

static bool is_read_by_floats(const struct ul_graph *graph, ul_value_id value)
{
    enum ul_dtype dtype = graph->values[value].type.dtype;
    return dtype == UL_F32 || dtype == UL_F16 || dtype == UL_BF16;
}

/* ---- weights in front ---- */

static bool turn_left(struct ul_pass *pass, ul_node_id id, struct ul_node_list *made)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node node = graph->nodes[id];
    struct ul_nbits_source source;
    bool is_swapped;
    ul_value_id w = node.inputs[0], x = node.inputs[1];
    if (!find_source(graph, w, &source, &is_swapped) || source.rank != 2 ||
        graph->values[x].type.rank == 0 || !is_read_by_floats(graph, x))
        return false;
    struct ul_build build = ul_build_before(graph, id);
    bool is_vector = graph->values[x].type.rank == 1;
    ul_value_id turned =
        is_swapped ? graph->nodes[graph->values[w].producer].inputs[0] : swap(&build, w);
    ul_value_id y = add_matmul(pass, &build, is_vector ? x : swap(&build, x), turned, made);
    if (!is_vector)
        y = swap(&build, y);
    ul_node_become(graph, id, UL_OP_Identity, &y, 1);
    return true;
}

/* ---- several matrices ---- */

/* Matrix `at` of a constant along `axis`, whose other axes but the last two are 1. */
static ul_value_id slice_constant(struct ul_graph *graph, ul_value_id value,
                                  const struct ul_tensor *tensor, const int64_t *dims,
                                  uint32_t rank, uint32_t axis, int64_t at)
{
    const uint32_t inner_rank = rank - 2;
    int64_t step = dims[axis] == 1 ? 0 : 1;
    struct ul_type type = ul_type_make(tensor->type.dtype, 2, dims + inner_rank);
    uint64_t count = ul_type_elements(&type);
    unsigned char *bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&type) + 1);
    ul_tensor_read(tensor, (uint64_t)(at * step) * count, count, bytes);
    return ul_nbits_add_weight(graph, value, type.dtype, 2, type.dims, bytes);
}

/* The dequantized matrix `at`. */
static ul_value_id slice_source(struct ul_build *build, const struct ul_nbits_source *source,
                                uint32_t axis, int64_t at, enum ul_dtype dtype)
{
    struct ul_graph *graph = build->graph;
    const uint32_t rank = source->rank;
    const int64_t *dims = source->codes->type.dims, *scale_dims = source->scale_dims;
    ul_value_id inputs[3] = {
        slice_constant(graph, source->inputs[0], source->codes, dims, rank, axis, at),
        slice_constant(graph, source->inputs[1], source->scales, scale_dims, rank, axis, at),
        UL_NONE};
    if (source->zeros != NULL)
        inputs[2] =
            slice_constant(graph, source->inputs[2], source->zeros, scale_dims, rank, axis, at);
    bool has_blocks = source->block > 0;
    struct ul_type type = ul_type_make(dtype, 2, dims + rank - 2);
    ul_value_id value =
        ul_build_value(build, has_blocks ? UL_OP_DequantizeLinear : UL_OP_Dequantize, inputs,
                       inputs[2] == UL_NONE ? 2 : 3, &type);
    if (has_blocks) {
        ul_node_id id = graph->values[value].producer;
        ul_node_set_int(graph, id, "axis", (int64_t)(source->block_axis + 2 - rank));
        ul_node_set_int(graph, id, "block_size", source->block);
    }
    return value;
}

/* The only axis in front of the last two that is not 1; false: there are several. */
static bool find_batch(const struct ul_nbits_source *source, uint32_t *axis)
{
    const int64_t *dims = source->codes->type.dims;
    uint32_t count = 0;
    *axis = 0;
    for (uint32_t d = 0; d + 2 < source->rank; d++) {
        if (dims[d] == 1)
            continue;
        *axis = d;
        count++;
    }
    return count <= 1 && dims[*axis] <= MAX_MATRICES &&
           (source->block == 0 || source->block_axis + 2 >= source->rank);
}

static bool take_apart(struct ul_pass *pass, ul_node_id id, struct ul_node_list *made)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node node = graph->nodes[id];
    struct ul_nbits_source source;
    bool is_swapped;
    uint32_t axis;
    ul_value_id x = node.inputs[0], parts[MAX_MATRICES];
    const struct ul_type a = graph->values[x].type, y = graph->values[node.outputs[0]].type;
    if (!find_source(graph, node.inputs[1], &source, &is_swapped) || source.rank < 3 ||
        !find_batch(&source, &axis) || a.rank < 2 || !is_read_by_floats(graph, x))
        return false;
    enum ul_dtype dtype = graph->values[node.inputs[1]].type.dtype;
    uint32_t y_axis = y.rank - source.rank + axis;
    int64_t count = source.codes->type.dims[axis];
    uint32_t a_axis = a.rank + axis < source.rank ? UL_LIMIT_RANK : a.rank + axis - source.rank;
    bool has_own = a_axis < UL_LIMIT_RANK && a.dims[a_axis] == count && count > 1;
    struct ul_type part = y;
    part.dims[y_axis] = 1;
    struct ul_build build = ul_build_before(graph, id);
    for (int64_t i = 0; i < count; i++) {
        ul_value_id w = slice_source(&build, &source, axis, i, dtype);
        w = is_swapped ? swap(&build, w) : w;
        ul_value_id rows = has_own ? ul_build_slice(&build, x, a_axis, i, i + 1) : x;
        parts[i] =
            ul_build_reshape(&build, add_matmul(pass, &build, rows, w, made), part.rank, part.dims);
    }
    ul_value_id all = ul_build_concat(&build, parts, (uint32_t)count, y_axis, &y);
    ul_node_become(graph, id, UL_OP_Identity, &all, 1);
    return true;
}

/* ---- Gemm ---- */

static ul_value_id scale(struct ul_build *build, ul_value_id value, double factor)
{
    const struct ul_type type = build->graph->values[value].type;
    if (factor == 1)
        return value;
    const ul_value_id inputs[2] = {
        value, ul_build_number(build->graph, build->name, type.dtype, type.rank, factor)};
    return ul_build_value(build, UL_OP_Mul, inputs, 2, &type);
}

static bool spell_out(struct ul_pass *pass, ul_node_id id, struct ul_node_list *made)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node node = graph->nodes[id];
    struct ul_nbits_source source;
    bool is_swapped;
    ul_value_id x = node.inputs[0], w = node.inputs[1];
    ul_value_id c = node.input_count > 2 ? node.inputs[2] : UL_NONE;
    if (!find_source(graph, w, &source, &is_swapped) || source.rank != 2 ||
        !is_read_by_floats(graph, x))
        return false;
    struct ul_build build = ul_build_before(graph, id);
    if (ul_node_get_int(&node, "transA", 0) != 0)
        x = swap(&build, x);
    if (ul_node_get_int(&node, "transB", 0) != 0)
        w = is_swapped ? graph->nodes[graph->values[w].producer].inputs[0] : swap(&build, w);
    ul_value_id y = add_matmul(pass, &build, x, w, made);
    y = scale(&build, y, ul_node_get_float(&node, "alpha", 1));
    if (c == UL_NONE) {
        ul_node_become(graph, id, UL_OP_Identity, &y, 1);
        return true;
    }
    const ul_value_id terms[2] = {y, scale(&build, c, ul_node_get_float(&node, "beta", 1))};
    ul_node_become(graph, id, UL_OP_Add, terms, 2);
    return true;
}

bool ul_nbits_make_plain(struct ul_pass *pass, ul_node_id id, struct ul_node_list *made)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (node->op == UL_OP_Gemm)
        return spell_out(pass, id, made);
    if (node->op != UL_OP_MatMul)
        return false;
    return turn_left(pass, id, made) || take_apart(pass, id, made);
}
