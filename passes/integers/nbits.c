/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a few bits are read as they are packed.
 *
 * Problem: a weight of 4 bits in front of a DequantizeLinear takes a byte an element, and products
 * would read it as floats: eight times what the model stores. Method: where a product or a Gather
 * reads a dequantized constant, it becomes the operator that computes from packed weights:
 *
 *      MatMul(x, DequantizeLinear(w [k n]))       ->   MatMulNBits(x, w' [n, blocks, bytes])
 *      Gather(DequantizeLinear(w), i)             ->   GatherBlockQuantized(w', i)
 *
 *      MatMul(x, Cast(w f16 [k n]))               ->   MatMulNBits(x, w' f16 [n, 1, k])
 *
 * Transposes and Casts in between are read through. Scales may be of blocks along any axis, of each
 * index of one, or of all: `scale_k` numbers along k and `scale_n` along n have one. Where that is
 * blocks along k, bytes of weights are cut as these are. A constant with axes of a batch is a
 * product for each of its matrices, one that stands first is multiplied transposed, and what Gemm
 * does after its product are nodes after it. Signed weights are shifted by half their range,
 * which zero points take up; floats of 4 and 8 bits stay the codes that they are. And scales and
 * zero points of all MatMulNBits are turned, [n, blocks] to [blocks, n]: kernels go along n.
 * Where rows of a table are columns of a product, as of tied embeddings, a Gather reads what the
 * product does; codes have their own copy on targets whose products lay them out in panels.
 *
 * Left undone: Gathers of rows that end within a byte, and more than MAX_MATRICES matrices. */
#include "ir/build.h"
#include "ir/geometry.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/rewrite.h"
#include "passes/integers/nbits_internal.h"

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

/* Turns the tables of a MatMulNBits that the model has. */
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

/* What was made from a constant whose every row is a column of a product. */
struct rows {
    ul_value_id sources[3], inputs[4]; /* those of DequantizeLinear; those of MatMulNBits */
    int64_t zero;
};

struct packing {
    struct ul_arena *scratch;
    struct ul_rewrite rewrite;
    const uint32_t *uses; /* per value that was there before */
    bool casts;           /* constants in front of Casts are read packed too */
    bool turns;           /* kernels of ours want columns side by side */
    struct rows *rows;
    uint32_t row_count, row_capacity;
    bool shares_codes; /* with a Gather: the product does not want the codes in another order */
    bool loads;        /* products of floats are kernels that load constants as they are stored */
    bool for_bytes;    /* of codes, only the ends are needed */
};

enum { MAX_MATRICES = 256 }; /* there is a step for each */

/* A product with a constant: MatMul(a, b), MatMul(b, a), or Gemm(a, b, bias). */
struct product {
    struct ul_nbits_source source;
    struct ul_build build;
    struct packing *packing;
    uint32_t rank;             /* of the constant */
    uint32_t k_axis, n_axis;   /* of the codes */
    int64_t at[UL_LIMIT_RANK]; /* of a code; along other axes, those of the current matrix */
    int64_t depth, columns, block, blocks;
    int64_t scale_k, scale_n; /* how many codes of the matrix, side by side, have one scale */
    bool is_one;              /* one scale for all of a matrix */
    bool is_left;             /* the constant is the first operand */
    ul_value_id a, bias;
    uint64_t codes_hash; /* 0: not made yet */
};

static bool is_vector_of(const struct ul_graph *graph, ul_value_id value, int64_t count)
{
    const struct ul_type *type = &graph->values[value].type;
    return type->rank == 1 && type->dims[0] == count;
}

/* Blocks of bytes are the scales' blocks where these lie along k and end with a byte, the last one
 * too; else a column is one block. */
static void find_blocks(struct product *product)
{
    const struct ul_nbits_source *source = &product->source;
    const struct ul_type *codes = &source->codes->type;
    product->depth = codes->dims[product->k_axis];
    product->columns = codes->dims[product->n_axis];
    product->scale_k = source->span[product->k_axis];
    product->scale_n = source->span[product->n_axis];
    product->is_one = product->scale_k == product->depth && product->scale_n == product->columns;
    if (product->is_one)
        product->scale_n = 1;
    bool ends = product->scale_k * source->bits % 8 == 0 &&
                product->depth % product->scale_k == 0 && source->bits < 16;
    product->block = product->scale_n == 1 && ends ? product->scale_k : product->depth;
    product->blocks = product->depth / product->block;
}

/* How many matrices the constant holds; more than MAX_MATRICES means at least so many. */
static int64_t count_matrices(const struct product *product)
{
    int64_t count = 1;
    for (uint32_t d = 0; d + 2 < product->rank && count <= MAX_MATRICES; d++)
        count *= product->source.codes->type.dims[product->source.axes[d]];
    return count;
}

/* Reads what a node multiplies. False: not by a constant that is read packed. */
static bool read_product(const struct ul_graph *graph, const struct ul_node *node,
                         struct product *product)
{
    bool is_gemm = node->op == UL_OP_Gemm;
    if (node->op != UL_OP_MatMul && !is_gemm)
        return false;
    product->is_left = false;
    if (!ul_nbits_source_read(graph, node->inputs[1], &product->source)) {
        product->is_left = true;
        if (is_gemm || !ul_nbits_source_read(graph, node->inputs[0], &product->source))
            return false;
    }
    const struct ul_nbits_source *source = &product->source;
    product->a = node->inputs[product->is_left ? 1 : 0];
    product->rank = source->codes->type.rank;
    product->bias = is_gemm && node->input_count > 2 ? node->inputs[2] : UL_NONE;
    const struct ul_type *a = &graph->values[product->a].type;
    if (product->rank < 2 || !ul_nbits_is_float(a->dtype) || ul_type_elements(a) == 0 ||
        (a->rank < 2 && (a->rank == 0 || product->rank > 2)) ||
        count_matrices(product) > MAX_MATRICES)
        return false;
    bool turned = product->is_left || (is_gemm && ul_node_get_int(node, "transB", 0) != 0);
    product->k_axis = source->axes[product->rank - (turned ? 1 : 2)];
    product->n_axis = source->axes[product->rank - (turned ? 2 : 1)];
    find_blocks(product);
    return true;
}

/* Sets the place among the codes to element (k, n) of the current matrix. */
static const int64_t *place(struct product *product, int64_t k, int64_t n)
{
    product->at[product->k_axis] = k;
    product->at[product->n_axis] = n;
    return product->at;
}

/* Where only bytes are asked for, so many columns at each end are packed, which is more than passes
 * look at. */
enum { END_COLUMNS = 64 };

static ul_value_id pack_codes(struct ul_graph *graph, struct product *product)
{
    bool has_middle = product->packing->for_bytes && product->columns > 3 * END_COLUMNS;
    const struct ul_nbits_source *source = &product->source;
    struct ul_nbits_packer packer = ul_nbits_packer_new(graph, product->columns * product->blocks,
                                                        product->block, source->bits);
    for (int64_t n = 0; n < product->columns; n++) {
        uint64_t first = ul_nbits_source_code(source, place(product, 0, n));
        if (has_middle && n == END_COLUMNS) {
            if (product->codes_hash == 0)
                product->codes_hash = ul_nbits_hash(source->codes, 0);
            ul_nbits_mark(product->codes_hash + first,
                          packer.bytes + n * product->blocks * packer.row_bytes, 1);
            n = product->columns - END_COLUMNS;
            first = ul_nbits_source_code(source, place(product, 0, n));
        }
        uint64_t next = ul_nbits_source_code(source, place(product, 1, n));
        int64_t step = (int64_t)(next - first);
        for (int64_t b = 0; b < product->blocks; b++)
            ul_nbits_pack_run(source, source->codes, first + (uint64_t)(b * product->block * step),
                              step, product->block,
                              packer.bytes + (n * product->blocks + b) * packer.row_bytes);
    }
    const int64_t dims[] = {product->columns, product->blocks,
                            source->bits == 16 ? product->block : packer.row_bytes};
    return ul_nbits_add_weight(graph, source->inputs[0], source->packed, 3, dims, packer.bytes);
}

/* The dimensions of scales, [k, n]. */
static void find_table(const struct product *product, int64_t dims[2])
{
    dims[0] = (product->depth - 1) / product->scale_k + 1;
    dims[1] = (product->columns - 1) / product->scale_n + 1;
}

/* The place of scale (k, n) among all. */
static uint64_t find_scale(struct product *product, int64_t k, int64_t n)
{
    return ul_nbits_source_scale(&product->source,
                                 place(product, k * product->scale_k, n * product->scale_n));
}

static ul_value_id pack_scales(struct ul_graph *graph, struct product *product)
{
    const struct ul_nbits_source *source = &product->source;
    int64_t dims[2];
    find_table(product, dims);
    if (source->scales == NULL) {
        struct ul_type type = ul_type_make(UL_F32, 2, dims);
        return ul_graph_add_weight(graph, graph->values[source->inputs[0]].name,
                                   ul_tensor_new_splat(graph->arena, &type, &(float){1}));
    }
    enum ul_dtype dtype = source->scales->type.dtype;
    uint64_t size = ul_dtype_get(dtype)->size_bytes;
    if (product->is_one) { /* one for all stays one number */
        struct ul_type type = ul_type_make(dtype, 2, dims);
        unsigned char element[sizeof(double)];
        ul_tensor_read(source->scales, find_scale(product, 0, 0), 1, element);
        return ul_graph_add_weight(graph, graph->values[source->inputs[1]].name,
                                   ul_tensor_new_splat(graph->arena, &type, element));
    }
    unsigned char *bytes = ul_arena_alloc(graph->arena, (uint64_t)(dims[0] * dims[1]) * size);
    for (int64_t k = 0; k < dims[0]; k++)
        for (int64_t n = 0; n < dims[1]; n++)
            ul_tensor_read(source->scales, find_scale(product, k, n), 1,
                           bytes + (uint64_t)(k * dims[1] + n) * size);
    return ul_nbits_add_weight(graph, source->inputs[1], dtype, 2, dims, bytes);
}

/* Packs the zero points; or gives UL_NONE and the one that all have. */
static ul_value_id pack_zeros(struct ul_graph *graph, struct product *product, int64_t *all)
{
    const struct ul_nbits_source *source = &product->source;
    double number = 0;
    *all = source->shift;
    if (source->zeros == NULL)
        return UL_NONE;
    if (product->is_one || ul_graph_get_number(graph, source->inputs[2], &number)) {
        *all = ul_nbits_source_entry(source, source->zeros, find_scale(product, 0, 0));
        return UL_NONE;
    }
    int64_t dims[2];
    find_table(product, dims);
    struct ul_nbits_packer packer = ul_nbits_packer_new(graph, dims[0], dims[1], source->bits);
    for (int64_t k = 0; k < dims[0]; k++)
        for (int64_t n = 0; n < dims[1]; n++)
            ul_nbits_packer_put(
                &packer, k, n,
                ul_nbits_source_entry(source, source->zeros, find_scale(product, k, n)));
    dims[1] = packer.row_bytes;
    return ul_nbits_add_weight(graph, source->inputs[2], UL_U8, 2, dims, packer.bytes);
}

/* Notes whether rows of the constant are columns of the product, so that a Gather finds them
 * there. */
static void note_rows(const struct product *product, const ul_value_id *inputs, int64_t zero)
{
    struct packing *packing = product->packing;
    const struct ul_nbits_source *source = &product->source;
    if (product->rank != 2 || product->n_axis != 0 || product->is_one || product->scale_n != 1 ||
        product->scale_k != product->block || product->depth * source->bits % 8 != 0)
        return;
    UL_GROW(packing->scratch, packing->rows, packing->row_count, packing->row_capacity);
    struct rows *rows = &packing->rows[packing->row_count++];
    *rows = (struct rows){.zero = zero};
    memcpy(rows->sources, source->inputs, sizeof rows->sources);
    memcpy(rows->inputs, inputs, sizeof rows->inputs);
}

/* a times the current matrix. */
static ul_value_id multiply(struct product *product, ul_value_id a)
{
    struct ul_graph *graph = product->build.graph;
    struct ul_type type = graph->values[a].type;
    int64_t zero;
    ul_value_id inputs[6] = {a, UL_NONE, UL_NONE, UL_NONE, UL_NONE, product->bias};
    inputs[UL_NBITS_B] = pack_codes(graph, product);
    inputs[UL_NBITS_SCALES] = pack_scales(graph, product);
    inputs[UL_NBITS_ZEROS] = pack_zeros(graph, product, &zero);
    UL_ASSERT(zero >= 0 && zero <= 255);
    note_rows(product, inputs, zero);
    type.dims[type.rank - 1] = product->columns;
    ul_value_id made = ul_build_value(&product->build, UL_OP_MatMulNBits, inputs, 6, &type);
    ul_node_id id = graph->values[made].producer;
    ul_node_set_int(graph, id, "K", product->depth);
    ul_node_set_int(graph, id, "N", product->columns);
    ul_node_set_int(graph, id, "bits", product->source.bits);
    ul_node_set_int(graph, id, "block_size", product->block);
    ul_node_set_int(graph, id, "by_block", 1);
    ul_node_set_int(graph, id, "zero", zero);
    if (product->scale_k != product->block || product->scale_n != 1) {
        ul_node_set_int(graph, id, "scale_k", product->scale_k);
        ul_node_set_int(graph, id, "scale_n", product->scale_n);
    }
    if (product->source.is_e2m1)
        ul_node_set_int(graph, id, "e2m1", 1);
    return made;
}

/* a, which has all dimensions of the result, times the matrices along axis d of the constant and
 * the later axes: a product for each. */
static ul_value_id multiply_along(struct product *product, ul_value_id a, uint32_t d)
{
    struct ul_graph *graph = product->build.graph;
    while (d + 2 < product->rank && product->source.codes->type.dims[product->source.axes[d]] == 1)
        d++;
    if (d + 2 >= product->rank)
        return multiply(product, a);
    const struct ul_type type = graph->values[a].type;
    uint32_t own = product->source.axes[d], axis = type.rank - product->rank + d;
    int64_t count = product->source.codes->type.dims[own];
    UL_ASSERT(type.rank >= product->rank && (type.dims[axis] == 1 || type.dims[axis] == count));
    ul_value_id *parts = UL_NEW_ARRAY(graph->arena, ul_value_id, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        ul_value_id part = a;
        if (type.dims[axis] != 1)
            part = ul_build_slice(&product->build, a, axis, i, i + 1);
        product->at[own] = i;
        parts[i] = multiply_along(product, part, d + 1);
    }
    struct ul_type whole = graph->values[parts[0]].type;
    whole.dims[axis] = count;
    return ul_build_concat(&product->build, parts, (uint32_t)count, axis, &whole);
}

static ul_value_id swap_last(struct ul_build *build, ul_value_id value)
{
    const struct ul_type *type = &build->graph->values[value].type;
    int64_t perm[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < type->rank; d++)
        perm[d] = d + 2 < type->rank ? d : 2 * type->rank - 3 - d;
    return type->rank < 2 ? value : ul_build_transpose(build, value, perm);
}

static ul_value_id scale_by(struct ul_build *build, ul_value_id value, double factor)
{
    struct ul_graph *graph = build->graph;
    const struct ul_type type = graph->values[value].type;
    if (factor == 1)
        return value;
    const ul_value_id factors[] = {value,
                                   ul_build_number(graph, build->name, type.dtype, 0, factor)};
    return ul_build_value(build, UL_OP_Mul, factors, 2, &type);
}

/* Does what Gemm does after its product. */
static ul_value_id finish_gemm(struct product *product, ul_value_id y, double alpha, double beta,
                               ul_value_id bias)
{
    struct ul_graph *graph = product->build.graph;
    y = scale_by(&product->build, y, alpha);
    if (bias == UL_NONE || product->bias != UL_NONE || beta == 0)
        return y;
    const struct ul_type type = graph->values[y].type;
    const ul_value_id terms[] = {y, scale_by(&product->build, bias, beta)};
    return ul_build_value(&product->build, UL_OP_Add, terms, 2, &type);
}

/* The product's own kernel unpacks codes of a byte as it loads them, where the target's products
 * are such kernels: another form would gain nothing. */
static bool is_loaded_as_stored(const struct product *product, const struct ul_node *node)
{
    const struct ul_nbits_source *source = &product->source;
    if (!product->packing->loads || source->bits < 8)
        return false;
    return ul_nbits_is_cast(source) ||
           (!source->is_float && source->node->op == UL_OP_Dequantize &&
            source->node->outputs[0] == node->inputs[product->is_left ? 0 : 1]);
}

/* A kernel that loads the constant as it is stored does better than the target's product of packed
 * ones, whose panels would fill up columns or words of k. */
static bool is_better_loaded(const struct product *product)
{
    enum { COLUMNS = 16, FILLED_PART = 100, WORD_BITS = 32 };
    const struct ul_nbits_source *source = &product->source;
    int64_t filled = (product->columns + COLUMNS - 1) / COLUMNS * COLUMNS - product->columns;
    if (!ul_nbits_is_cast(source) || source->bits < 8 || product->packing->shares_codes)
        return false;
    return filled * FILLED_PART > product->columns || product->scale_n != 1 ||
           product->scale_k != product->block ||
           (source->bits == 16 ? product->block != product->depth
                               : product->block * source->bits % WORD_BITS != 0);
}

static bool pack_product(struct packing *packing, ul_node_id id)
{
    struct ul_graph *graph = packing->rewrite.graph;
    const struct ul_node *node = &graph->nodes[id];
    struct product product = {.packing = packing};
    if (!read_product(graph, node, &product) ||
        (ul_nbits_is_cast(&product.source) && !packing->casts))
        return false;
    if (is_loaded_as_stored(&product, node) || is_better_loaded(&product)) {
        if (ul_nbits_is_alone(graph, &product.source, node->inputs[product.is_left ? 0 : 1],
                              packing->uses))
            ul_node_set_int(graph, id, UL_NBITS_LOADS, 1);
        return packing->turns && !product.is_left &&
               ul_nbits_turn(graph, id, &product.source, packing->uses);
    }
    bool is_gemm = node->op == UL_OP_Gemm;
    double alpha = is_gemm ? ul_node_get_float(node, "alpha", 1) : 1;
    double beta = is_gemm ? ul_node_get_float(node, "beta", 1) : 1;
    bool turns = product.is_left || (is_gemm && ul_node_get_int(node, "transA", 0) != 0);
    ul_value_id output = node->outputs[0], bias = product.bias, a = product.a;
    if (bias != UL_NONE && (alpha != 1 || beta != 1 || !is_vector_of(graph, bias, product.columns)))
        product.bias = UL_NONE;
    product.build = ul_build_before(graph, id);
    a = turns ? swap_last(&product.build, a) : a;
    struct ul_type wide = graph->values[a].type;
    if (wide.rank > 1 && wide.rank < product.rank) {
        uint32_t more = product.rank - wide.rank;
        memmove(wide.dims + more, wide.dims, wide.rank * sizeof *wide.dims);
        for (uint32_t d = 0; d < more; d++)
            wide.dims[d] = 1;
        a = ul_build_reshape(&product.build, a, product.rank, wide.dims);
    }
    ul_value_id y = multiply_along(&product, a, 0);
    y = product.is_left ? swap_last(&product.build, y) : y;
    y = finish_gemm(&product, y, alpha, beta, bias);
    UL_ASSERT(ul_type_equal(&graph->values[y].type, &graph->values[output].type));
    bool is_named = ul_rewrite_forward(&packing->rewrite, output, y);
    UL_ASSERT(is_named);
    ul_graph_remove_node(graph, id);
    return true;
}

/* Turns the weights of a convolution that come through a Transpose. */
static void turn_filters(struct packing *packing, ul_node_id id)
{
    struct ul_graph *graph = packing->rewrite.graph;
    const struct ul_node *node = &graph->nodes[id];
    struct ul_nbits_source source;
    if (packing->casts && (ul_op_get(node->op)->flags & UL_OP_CONVOLVES) != 0 &&
        ul_nbits_source_read(graph, node->inputs[1], &source) && source.bits >= 8)
        (void)ul_nbits_turn(graph, id, &source, packing->uses);
}

/* ---- tables ---- */

/* Packs all elements along the last axis; each row begins a new byte. */
static ul_value_id pack_rows(struct ul_graph *graph, const struct ul_nbits_source *source,
                             const struct ul_tensor *tensor, ul_value_id like)
{
    struct ul_type type = tensor->type;
    int64_t count = type.dims[type.rank - 1];
    int64_t rows = (int64_t)ul_type_elements(&type) / count;
    struct ul_nbits_packer packer = ul_nbits_packer_new(graph, rows, count, source->bits);
    for (int64_t r = 0; r < rows; r++)
        ul_nbits_pack_run(source, tensor, (uint64_t)(r * count), 1, count,
                          packer.bytes + r * packer.row_bytes);
    type.dims[type.rank - 1] = packer.row_bytes;
    return ul_nbits_add_weight(graph, like, source->packed, type.rank, type.dims, packer.bytes);
}

/* Scales or zero points with a dimension for each axis of the codes. */
static ul_value_id widen(struct ul_graph *graph, const struct ul_nbits_source *source,
                         ul_value_id value)
{
    const struct ul_tensor *tensor = graph->values[value].tensor;
    struct ul_type type = source->codes->type;
    type.dtype = tensor->type.dtype;
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = ul_nbits_source_scales(source, d);
    if (ul_type_equal(&type, &tensor->type))
        return value;
    struct ul_tensor *wide = ul_arena_copy(graph->arena, tensor, sizeof *tensor);
    wide->type = type;
    return ul_graph_add_weight(graph, graph->values[value].name, wide);
}

/* A scale of 1, where there is none. */
static ul_value_id add_ones(struct ul_graph *graph, const struct ul_nbits_source *source)
{
    struct ul_type type = source->codes->type;
    type.dtype = UL_F32;
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = 1;
    return ul_graph_add_weight(graph, graph->values[source->inputs[0]].name,
                               ul_tensor_new_splat(graph->arena, &type, &(float){1}));
}

/* The axis of the codes that blocks lie along; where that has one scale, a block is as long as
 * it. */
static uint32_t find_block_axis(const struct ul_nbits_source *source)
{
    for (uint32_t d = 0; d < source->codes->type.rank; d++) {
        if (source->span[d] != 1 && ul_nbits_source_scales(source, d) != 1)
            return d;
    }
    for (uint32_t d = source->codes->type.rank; d-- > 0;) {
        if (source->span[d] != 1)
            return d;
    }
    return 0;
}

/* The table, its scales and zero points, and `zero`, as a product of the same constant has them.
 * False: there is none. */
static bool find_rows(const struct packing *packing, struct ul_build *build,
                      const struct ul_nbits_source *source, ul_value_id inputs[4], int64_t *zero)
{
    for (uint32_t i = 0; i < packing->row_count; i++) {
        const struct rows *rows = &packing->rows[i];
        if (memcmp(rows->sources, source->inputs, sizeof rows->sources) != 0)
            continue;
        const struct ul_type *codes = &source->codes->type;
        const int64_t dims[] = {codes->dims[0], codes->dims[1] * source->bits / 8};
        UL_ASSERT(codes->rank == 2);
        inputs[0] = packing->shares_codes
                        ? ul_build_reshape(build, rows->inputs[UL_NBITS_B], 2, dims)
                        : pack_rows(build->graph, source, source->codes, source->inputs[0]);
        inputs[2] = rows->inputs[UL_NBITS_SCALES];
        inputs[3] = rows->inputs[UL_NBITS_ZEROS];
        *zero = rows->zero;
        return true;
    }
    return false;
}

static void pack_inputs(struct ul_graph *graph, const struct ul_nbits_source *source,
                        ul_value_id inputs[4])
{
    inputs[0] = pack_rows(graph, source, source->codes, source->inputs[0]);
    inputs[2] =
        source->scales == NULL ? add_ones(graph, source) : widen(graph, source, source->inputs[1]);
    if (source->zeros != NULL) {
        ul_value_id zeros = widen(graph, source, source->inputs[2]);
        inputs[3] = pack_rows(graph, source, graph->values[zeros].tensor, zeros);
    }
}

/* Rows of the codes along one of their axes. */
static ul_value_id gather(const struct packing *packing, struct ul_build *build,
                          const struct ul_nbits_source *source, ul_value_id rows, uint32_t axis)
{
    struct ul_graph *graph = build->graph;
    const struct ul_type *codes = &source->codes->type, *indices = &graph->values[rows].type;
    uint32_t along = find_block_axis(source);
    struct ul_type type = {.dtype = source->scales == NULL ? UL_F32 : source->scales->type.dtype};
    for (uint32_t d = 0; d < codes->rank; d++) {
        for (uint32_t i = 0; d == axis && i < indices->rank; i++)
            type.dims[type.rank++] = indices->dims[i];
        if (d != axis)
            type.dims[type.rank++] = codes->dims[d];
    }
    ul_value_id inputs[4] = {UL_NONE, rows, UL_NONE, UL_NONE};
    int64_t zero = source->shift;
    bool is_shared = find_rows(packing, build, source, inputs, &zero);
    if (!is_shared)
        pack_inputs(graph, source, inputs);
    ul_value_id made = ul_build_value(build, UL_OP_GatherBlockQuantized, inputs, 4, &type);
    ul_node_id id = graph->values[made].producer;
    ul_node_set_int(graph, id, "gather_axis", axis);
    ul_node_set_int(graph, id, "quantize_axis", along);
    ul_node_set_int(graph, id, "bits", source->bits);
    ul_node_set_int(graph, id, "block_size", source->span[along]);
    ul_node_set_int(graph, id, "zero", zero);
    if (is_shared)
        ul_node_set_int(graph, id, "by_block", 1);
    if (source->is_e2m1)
        ul_node_set_int(graph, id, "e2m1", 1);
    return made;
}

/* Puts what was gathered along an axis of the codes into the order of axes that its readers
 * want. */
static ul_value_id turn_gathered(struct ul_build *build, const struct ul_nbits_source *source,
                                 ul_value_id made, uint32_t axis, uint32_t index_rank)
{
    uint32_t rank = source->codes->type.rank, count = 0;
    int64_t perm[UL_LIMIT_RANK];
    bool moves = false;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t own = source->axes[d];
        moves = moves || own != d;
        for (uint32_t i = 0; own == axis && i < index_rank; i++)
            perm[count++] = axis + i;
        if (own != axis)
            perm[count++] = own < axis ? own : own + index_rank - 1;
    }
    return moves ? ul_build_transpose(build, made, perm) : made;
}

/* Rows of floats of 16 bits, before they are widened. */
static ul_value_id gather_halves(struct ul_build *build, const struct ul_nbits_source *source,
                                 ul_value_id rows, uint32_t axis)
{
    struct ul_graph *graph = build->graph;
    const struct ul_type *codes = &source->codes->type, *indices = &graph->values[rows].type;
    struct ul_type type = {.dtype = codes->dtype};
    for (uint32_t d = 0; d < codes->rank; d++) {
        for (uint32_t i = 0; d == axis && i < indices->rank; i++)
            type.dims[type.rank++] = indices->dims[i];
        if (d != axis)
            type.dims[type.rank++] = codes->dims[d];
    }
    const ul_value_id inputs[] = {source->inputs[0], rows};
    ul_value_id made = ul_build_value(build, UL_OP_Gather, inputs, 2, &type);
    ul_node_set_int(graph, graph->values[made].producer, "axis", axis);
    return made;
}

/* The Gather reads the stored constant and a Cast widens its rows alone: no table has to be packed,
 * unless its axes have another order than the constant's. */
static bool is_gathered_as_stored(const struct packing *packing,
                                  const struct ul_nbits_source *source)
{
    bool moves = false;
    for (uint32_t d = 0; d < source->codes->type.rank; d++)
        moves = moves || source->axes[d] != d;
    if (!ul_nbits_is_cast(source))
        return false;
    return !packing->casts ||
           (source->bits >= 8 && (!moves || (source->bits == 16 && source->scales != NULL)));
}

static bool pack_table(struct packing *packing, ul_node_id id)
{
    struct ul_graph *graph = packing->rewrite.graph;
    const struct ul_node *node = &graph->nodes[id];
    struct ul_nbits_source source;
    if (node->op != UL_OP_Gather || !ul_nbits_source_read(graph, node->inputs[0], &source))
        return false;
    const struct ul_type *codes = &source.codes->type;
    if (codes->rank == 0 || codes->dims[codes->rank - 1] * source.bits % 8 != 0 ||
        is_gathered_as_stored(packing, &source))
        return false;
    ul_value_id rows = node->inputs[1], output = node->outputs[0];
    int64_t axis = ul_node_get_int(node, "axis", 0);
    uint32_t own = source.axes[axis < 0 ? axis + codes->rank : axis];
    struct ul_build build = ul_build_before(graph, id);
    ul_value_id y = source.bits == 16 ? gather_halves(&build, &source, rows, own)
                                      : gather(packing, &build, &source, rows, own);
    y = turn_gathered(&build, &source, y, own, graph->values[rows].type.rank);
    const struct ul_type type = graph->values[output].type;
    if (graph->values[y].type.dtype != type.dtype) {
        y = ul_build_value(&build, UL_OP_Cast, &y, 1, &type);
        ul_node_set_int(graph, graph->values[y].producer, "to", (int64_t)type.dtype);
    }
    UL_ASSERT(ul_type_equal(&graph->values[y].type, &type));
    bool is_named = ul_rewrite_forward(&packing->rewrite, output, y);
    UL_ASSERT(is_named);
    ul_graph_remove_node(graph, id);
    return true;
}

enum ul_status ul_pass_nbits(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_node_list all = ul_edit_all_nodes(graph, pass->scratch);
    enum ul_dtype asked = pass->options->precision;
    struct packing packing = {
        .scratch = pass->scratch,
        .uses = ul_graph_count_uses(graph, pass->scratch),
        .casts = pass->options->training == NULL && (asked == UL_DTYPE_NONE || asked == UL_F32),
        .turns = !pass->traits->memory_is_separate && pass->options->training == NULL,
        .shares_codes = !pass->traits->panels_of_codes,
        .for_bytes = pass->options->for_bytes,
        .loads = !pass->traits->panels_of_codes && pass->options->is_call == NULL};
    ul_rewrite_init(&packing.rewrite, graph, pass->scratch);
    for (uint32_t n = 0; n < all.count; n++) {
        if (graph->nodes[all.nodes[n]].op == UL_OP_MatMulNBits)
            turn_tables(pass, all.nodes[n]);
        else if (!pack_product(&packing, all.nodes[n]))
            turn_filters(&packing, all.nodes[n]);
    }
    for (uint32_t n = 0; n < all.count; n++) /* of products that are known */
        (void)pack_table(&packing, all.nodes[n]);
    ul_rewrite_apply(&packing.rewrite);
    ul_graph_sweep(graph);
    return UL_OK;
}
