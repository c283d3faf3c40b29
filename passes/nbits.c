/* Weights of a few bits are read as they are packed.
 *
 * Problem: a weight of 4 bits in front of a DequantizeLinear takes a byte an element, and products
 * of it would have it as floats: eight times what the model stores. Method: where a product or a
 * Gather reads a dequantized constant, it becomes the operator that computes from packed weights:
 *
 *      MatMul(x, DequantizeLinear(w [k n]))       ->   MatMulNBits(x, w' [n, blocks, bytes])
 *      Gather(DequantizeLinear(w), i)             ->   GatherBlockQuantized(w', i)
 *
 * Blocks run along k; a scale for each column, or for all, is a block that is as long as k. Scales
 * of each k, or of blocks along n, are a table of their own form (`along`). Signed weights are
 * shifted by half their range, which zero points take up; floats of 4 and 8 bits stay the codes
 * that they are. And scales and zero points of all MatMulNBits are turned, [n, blocks] to [blocks,
 * n]: kernels go along n. Products of other forms are made plain first (nbits_forms.c).
 *
 * Left undone: blocks along k that end within a byte; tables of more than two axes, or with rows
 * that do. */
#include "ir/build.h"
#include "ir/geometry.h"
#include "ir/op.h"
#include "passes/nbits_internal.h"

#include <string.h>

/* ---- packed constants ---- */

static uint32_t get_bits(const unsigned char *bytes, int64_t row_bytes, int64_t bits, int64_t row,
                         int64_t at)
{
    int64_t bit = at * bits;
    const unsigned char *place = bytes + row * row_bytes + bit / 8;
    uint32_t word = place[0];
    if (bit % 8 + bits > 8)
        word |= (uint32_t)place[1] << 8;
    return word >> bit % 8 & ((1u << bits) - 1);
}

/* The bytes of a constant, row-major. */
static unsigned char *read_bytes(const struct ul_pass *pass, const struct ul_tensor *tensor)
{
    unsigned char *bytes = ul_arena_alloc(pass->scratch, ul_type_bytes(&tensor->type) + 1);
    ul_tensor_read(tensor, 0, ul_type_elements(&tensor->type), bytes);
    return bytes;
}

/* ---- by blocks ---- */

static ul_value_id turn_numbers(const struct ul_pass *pass, ul_value_id value, int64_t columns,
                                int64_t blocks)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_tensor *tensor = graph->values[value].tensor;
    uint64_t size = ul_dtype_get(tensor->type.dtype)->size_bytes;
    const unsigned char *from = read_bytes(pass, tensor);
    unsigned char *to = ul_arena_alloc(graph->arena, ul_type_bytes(&tensor->type));
    for (int64_t n = 0; n < columns; n++)
        for (int64_t b = 0; b < blocks; b++)
            memcpy(to + (uint64_t)(b * columns + n) * size,
                   from + (uint64_t)(n * blocks + b) * size, size);
    const int64_t dims[] = {blocks, columns};
    return ul_nbits_add_weight(graph, value, tensor->type.dtype, 2, dims, to);
}

static ul_value_id turn_packed(const struct ul_pass *pass, ul_value_id value,
                               const struct ul_nbits *nbits)
{
    struct ul_graph *graph = pass->graph;
    const unsigned char *from = read_bytes(pass, graph->values[value].tensor);
    struct ul_nbits_packer packer =
        ul_nbits_packer_new(graph, nbits->block_count, nbits->columns, nbits->bits);
    int64_t row_bytes = (nbits->block_count * nbits->bits + 7) / 8;
    for (int64_t n = 0; n < nbits->columns; n++)
        for (int64_t b = 0; b < nbits->block_count; b++)
            ul_nbits_packer_put(&packer, b, n, get_bits(from, row_bytes, nbits->bits, n, b));
    const int64_t dims[] = {nbits->block_count, packer.row_bytes};
    return ul_nbits_add_weight(graph, value, UL_U8, 2, dims, packer.bytes);
}

/* Of a MatMulNBits as models have it. */
static void turn_tables(const struct ul_pass *pass, ul_node_id id)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_type *types[6] = {NULL};
    struct ul_nbits nbits;
    for (uint32_t i = 0; i < node->input_count; i++)
        types[i] = node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]].type;
    const char *wrong = ul_nbits_read(&nbits, node, types);
    UL_ASSERT(wrong == NULL);
    if (nbits.by_block)
        return;
    ul_value_id scales = node->inputs[UL_NBITS_SCALES], zeros = UL_NONE;
    bool has_zeros = types[UL_NBITS_ZEROS] != NULL;
    if (has_zeros)
        zeros = node->inputs[UL_NBITS_ZEROS];
    scales = turn_numbers(pass, scales, nbits.columns, nbits.block_count);
    if (has_zeros)
        zeros = nbits.zeros_packed ? turn_packed(pass, zeros, &nbits)
                                   : turn_numbers(pass, zeros, nbits.columns, nbits.block_count);
    graph->nodes[id].inputs[UL_NBITS_SCALES] = scales;
    if (has_zeros)
        graph->nodes[id].inputs[UL_NBITS_ZEROS] = zeros;
    ul_node_set_int(graph, id, "by_block", 1);
}

/* ---- products ---- */

/* A product with a matrix, of whose scales there are blocks along k, or, where `along` is not 0,
 * one for each k and so many columns. */
struct product {
    struct ul_nbits_source source;
    uint32_t k_axis, n_axis; /* of the codes */
    int64_t depth, columns, block, blocks, along;
    ul_value_id a, bias, weight;
};

static bool is_vector_of(const struct ul_graph *graph, ul_value_id value, int64_t count)
{
    const struct ul_type *type = &graph->values[value].type;
    return type->rank >= 1 && type->dims[type->rank - 1] == count &&
           ul_type_elements(type) == (uint64_t)count;
}

/* The matrix behind a value, and which of its axes is the first of the value. */
static bool find_matrix(const struct ul_graph *graph, ul_value_id value, struct product *product,
                        uint32_t *first_axis)
{
    const struct ul_value *info = &graph->values[value];
    *first_axis = 0;
    if (info->kind == UL_VALUE_NODE && info->type.rank == 2 &&
        graph->nodes[info->producer].op == UL_OP_Transpose) {
        const struct ul_node *turn = &graph->nodes[info->producer];
        uint32_t count;
        const int64_t *perm = ul_node_get_ints(turn, "perm", &count);
        if (perm != NULL && perm[0] == 0)
            return false;
        *first_axis = 1;
        value = turn->inputs[0];
    }
    product->weight = value;
    return ul_nbits_source_read(graph, value, &product->source) && product->source.rank == 2;
}

/* What a node multiplies, other than by a matrix that is read packed: false. */
static bool read_product(const struct ul_graph *graph, const struct ul_node *node,
                         struct product *product)
{
    uint32_t first;
    bool is_gemm = node->op == UL_OP_Gemm;
    *product = (struct product){.along = 0};
    if ((node->op != UL_OP_MatMul && !is_gemm) ||
        !find_matrix(graph, node->inputs[1], product, &first))
        return false;
    const struct ul_type *a = &graph->values[node->inputs[0]].type;
    const struct ul_type *codes = &product->source.codes->type;
    bool turned = is_gemm && ul_node_get_int(node, "transB", 0) != 0;
    product->k_axis = turned ? 1 - first : first;
    product->n_axis = 1 - product->k_axis;
    product->depth = codes->dims[product->k_axis];
    product->columns = codes->dims[product->n_axis];
    product->a = node->inputs[0];
    product->bias = is_gemm && node->input_count > 2 ? node->inputs[2] : UL_NONE;
    if (is_gemm &&
        (ul_node_get_int(node, "transA", 0) != 0 || ul_node_get_float(node, "alpha", 1) != 1 ||
         ul_node_get_float(node, "beta", 1) != 1))
        return false;
    return a->rank > 0 && (a->dtype == UL_F32 || a->dtype == UL_F16 || a->dtype == UL_BF16) &&
           (product->bias == UL_NONE || is_vector_of(graph, product->bias, product->columns));
}

/* Blocks along k that end with a byte, or are all of k; else scales for each k. */
static bool find_blocks(struct product *product)
{
    const struct ul_nbits_source *source = &product->source;
    bool follows_k = source->scale_dims[product->k_axis] > 1;
    bool follows_n = source->scale_dims[product->n_axis] > 1;
    bool has_blocks = source->block > 0 && source->block_axis == product->k_axis;
    product->block = product->depth;
    if (follows_k && has_blocks)
        product->block = source->block;
    else if (source->block > 0 && !has_blocks && follows_n)
        product->along = source->block;
    else if (follows_k)
        product->along = follows_n ? 1 : product->columns;
    product->blocks = (product->depth - 1) / product->block + 1;
    return product->blocks == 1 || product->block * source->bits % 8 == 0;
}

/* Scales and zero points: rows, and the numbers of one. */
static void find_table(const struct product *product, int64_t dims[2])
{
    dims[0] = product->along > 0 ? product->depth : product->blocks;
    dims[1] = product->along > 0 ? (product->columns - 1) / product->along + 1 : product->columns;
}

/* The scale in a row and column of the table. */
static uint64_t table_entry(const struct product *product, int64_t row, int64_t column)
{
    int64_t at[2];
    at[product->k_axis] = product->along > 0 ? row : row * product->block;
    at[product->n_axis] = product->along > 0 ? column * product->along : column;
    return ul_nbits_source_scale(&product->source, at);
}

static ul_value_id pack_codes(struct ul_graph *graph, const struct product *product)
{
    const struct ul_nbits_source *source = &product->source;
    int64_t at[2];
    struct ul_nbits_packer packer = ul_nbits_packer_new(graph, product->columns * product->blocks,
                                                        product->block, source->bits);
    for (int64_t n = 0; n < product->columns; n++)
        for (int64_t k = 0; k < product->depth; k++) {
            at[product->k_axis] = k;
            at[product->n_axis] = n;
            ul_nbits_packer_put(&packer, n * product->blocks + k / product->block,
                                k % product->block, ul_nbits_source_code(source, at));
        }
    const int64_t dims[] = {product->columns, product->blocks, packer.row_bytes};
    return ul_nbits_add_weight(graph, source->inputs[0], source->packed, 3, dims, packer.bytes);
}

static ul_value_id pack_scales(struct ul_graph *graph, const struct product *product)
{
    const struct ul_nbits_source *source = &product->source;
    enum ul_dtype dtype = source->scales->type.dtype;
    uint64_t size = ul_dtype_get(dtype)->size_bytes;
    int64_t dims[2];
    find_table(product, dims);
    if (ul_type_elements(&source->scales->type) == 1) { /* one for all stays one number */
        struct ul_type type = ul_type_make(dtype, 2, dims);
        unsigned char element[sizeof(double)];
        ul_tensor_read(source->scales, 0, 1, element);
        return ul_graph_add_weight(graph, graph->values[source->inputs[1]].name,
                                   ul_tensor_new_splat(graph->arena, &type, element));
    }
    unsigned char *bytes = ul_arena_alloc(graph->arena, (uint64_t)(dims[0] * dims[1]) * size);
    for (int64_t r = 0; r < dims[0]; r++)
        for (int64_t c = 0; c < dims[1]; c++)
            ul_tensor_read(source->scales, table_entry(product, r, c), 1,
                           bytes + (uint64_t)(r * dims[1] + c) * size);
    return ul_nbits_add_weight(graph, source->inputs[1], dtype, 2, dims, bytes);
}

/* The zero points packed, or UL_NONE and the one of all. */
static ul_value_id pack_zeros(struct ul_graph *graph, const struct product *product, int64_t *all)
{
    const struct ul_nbits_source *source = &product->source;
    double number = 0;
    int64_t dims[2];
    find_table(product, dims);
    *all = source->shift;
    if (source->zeros == NULL)
        return UL_NONE;
    if (ul_graph_get_number(graph, source->inputs[2], &number)) {
        *all = source->shift + (int64_t)number;
        return UL_NONE;
    }
    struct ul_nbits_packer packer = ul_nbits_packer_new(graph, dims[0], dims[1], source->bits);
    for (int64_t r = 0; r < dims[0]; r++)
        for (int64_t c = 0; c < dims[1]; c++)
            ul_nbits_packer_put(
                &packer, r, c,
                ul_nbits_source_entry(source, source->zeros, table_entry(product, r, c)));
    dims[1] = packer.row_bytes;
    return ul_nbits_add_weight(graph, source->inputs[2], UL_U8, 2, dims, packer.bytes);
}

static bool pack_product(const struct ul_pass *pass, ul_node_id id)
{
    struct ul_graph *graph = pass->graph;
    struct product product;
    int64_t zero;
    if (!read_product(graph, &graph->nodes[id], &product) || !find_blocks(&product))
        return false;
    ul_value_id inputs[6] = {product.a, UL_NONE, UL_NONE, UL_NONE, UL_NONE, product.bias};
    inputs[UL_NBITS_B] = pack_codes(graph, &product);
    inputs[UL_NBITS_SCALES] = pack_scales(graph, &product);
    inputs[UL_NBITS_ZEROS] = pack_zeros(graph, &product, &zero);
    UL_ASSERT(zero >= 0 && zero <= 255);
    ul_node_become(graph, id, UL_OP_MatMulNBits, inputs, 6);
    ul_node_set_int(graph, id, "K", product.depth);
    ul_node_set_int(graph, id, "N", product.columns);
    ul_node_set_int(graph, id, "bits", product.source.bits);
    ul_node_set_int(graph, id, "block_size", product.block);
    ul_node_set_int(graph, id, "by_block", 1);
    ul_node_set_int(graph, id, "zero", zero);
    if (product.along > 0)
        ul_node_set_int(graph, id, "along", product.along);
    if (product.source.is_e2m1)
        ul_node_set_int(graph, id, "e2m1", 1);
    return true;
}

/* ---- tables ---- */

/* All elements along the last axis packed, from a byte on. */
static ul_value_id pack_rows(struct ul_graph *graph, const struct ul_nbits_source *source,
                             const struct ul_tensor *tensor, ul_value_id like)
{
    int64_t rows = tensor->type.dims[0], count = tensor->type.dims[1];
    struct ul_nbits_packer packer = ul_nbits_packer_new(graph, rows, count, source->bits);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < count; i++)
            ul_nbits_packer_put(&packer, r, i,
                                ul_nbits_source_entry(source, tensor, (uint64_t)(r * count + i)));
    const int64_t dims[] = {rows, packer.row_bytes};
    return ul_nbits_add_weight(graph, like, source->packed, 2, dims, packer.bytes);
}

/* A vector of scales or zero points, or the one of all, as the matrix that stands for it. */
static ul_value_id widen(struct ul_graph *graph, const struct ul_nbits_source *source,
                         ul_value_id value)
{
    const struct ul_tensor *tensor = graph->values[value].tensor;
    struct ul_type type = ul_type_make(tensor->type.dtype, 2, source->scale_dims);
    if (ul_type_equal(&type, &tensor->type))
        return value;
    struct ul_tensor *wide = ul_arena_copy(graph->arena, tensor, sizeof *tensor);
    wide->type = type;
    return ul_graph_add_weight(graph, graph->values[value].name, wide);
}

static bool pack_table(const struct ul_pass *pass, ul_node_id id)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node *node = &graph->nodes[id];
    struct ul_nbits_source source;
    if (node->op != UL_OP_Gather || !ul_nbits_source_read(graph, node->inputs[0], &source) ||
        source.rank != 2 || source.codes->type.dims[1] * source.bits % 8 != 0 ||
        (source.block == 0 && source.scale_dims[0] > 1 && source.scale_dims[1] > 1))
        return false;
    int64_t axis = ul_node_get_int(node, "axis", 0);
    /* One scale for each index of an axis: blocks as long as the other axis. */
    uint32_t along = source.block > 0 ? source.block_axis : source.scale_dims[1] > 1 ? 0 : 1;
    int64_t block = source.block > 0 ? source.block : source.codes->type.dims[along];
    ul_value_id inputs[4] = {UL_NONE, node->inputs[1], UL_NONE, UL_NONE};
    inputs[0] = pack_rows(graph, &source, source.codes, source.inputs[0]);
    inputs[2] = widen(graph, &source, source.inputs[1]);
    if (source.zeros != NULL) {
        ul_value_id zeros = widen(graph, &source, source.inputs[2]);
        inputs[3] = pack_rows(graph, &source, graph->values[zeros].tensor, zeros);
    }
    ul_node_become(graph, id, UL_OP_GatherBlockQuantized, inputs, 4);
    ul_node_set_int(graph, id, "gather_axis", axis);
    ul_node_set_int(graph, id, "quantize_axis", along);
    ul_node_set_int(graph, id, "bits", source.bits);
    ul_node_set_int(graph, id, "block_size", block);
    ul_node_set_int(graph, id, "zero", source.shift);
    if (source.is_e2m1)
        ul_node_set_int(graph, id, "e2m1", 1);
    return true;
}

enum ul_status ul_pass_nbits(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_node_list all = ul_edit_all_nodes(graph, pass->scratch);
    for (uint32_t n = 0; n < all.count; n++) {
        ul_node_id id = all.nodes[n];
        struct ul_node_list plain = {0};
        if (graph->nodes[id].op == UL_OP_MatMulNBits)
            turn_tables(pass, id);
        else if (!pack_product(pass, id) && !pack_table(pass, id))
            (void)ul_nbits_make_plain(pass, id, &plain);
        for (uint32_t p = 0; p < plain.count; p++)
            (void)pack_product(pass, plain.nodes[p]);
    }
    return UL_OK;
}
