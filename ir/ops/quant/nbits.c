/* SPDX-License-Identifier: Apache-2.0 */
/* MatMulNBits of com.microsoft: products with weights of a few bits.
 *
 * The contraction reads the bytes as they lie. Its k is cut into blocks, bytes (of odd bits: runs
 * of 8 weights, which end at a byte), and weights of a byte, so that the byte's index is affine:
 *
 *      k = block * block_size + byte * (8 / bits) + part
 *      b(k, n) = (((byte >> part * bits) & mask) - zero) * scale
 *
 * Beside what com.microsoft has there are attributes that passes set: `zero`, the zero point of
 * all weights; `e2m1`, where the four bits are a float; and `by_block`, where scales and zero
 * points are transposed, [blocks, N], as columns side by side want them. Such may be of other
 * blocks than the bytes: one for `scale_k` weights of a column, where all of k is one block of
 * bytes, and one for `scale_n` columns; and `round_to`, the 16 bits that what is multiplied is
 * rounded to. Weights may be floats of 16 bits, [N, 1, K] of their own type, of one block.
 *
 * MatMulNBitsGradient is the gradient of A: that of the product times the transposed weights, which
 * it reads as the product does. No weight is ever a float in memory, but for the tile that is
 * multiplied. */
#include "ir/ops/quant/nbits.h"
#include "ir/geometry.h"
#include "ir/gradient.h"
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/op_names.h"
#include "ir/ops/check.h"

#include <math.h>

/* ---- shapes ---- */

static bool is_table(const struct ul_type *type, int64_t rows, int64_t columns)
{
    bool flat = type->rank == 1 && columns != 0 && type->dims[0] / columns == rows &&
                type->dims[0] % columns == 0;
    return flat || (type->rank == 2 && type->dims[0] == rows && type->dims[1] == columns);
}

/* Whether a number is missing, or outside these bounds. */
static bool is_outside(const struct ul_node *node, const char *name, int64_t *value)
{
    *value = ul_node_get_int(node, name, 0);
    return *value < 1 || *value > UL_LIMIT_DIM;
}

static const char *read_attributes(struct ul_nbits *nbits, const struct ul_node *node)
{
    if (is_outside(node, "K", &nbits->depth) || is_outside(node, "N", &nbits->columns))
        return "K and N must be there, and positive";
    nbits->bits = ul_node_get_int(node, "bits", 4);
    bool is_half = ul_dtype_is_half(nbits->dtype);
    if ((nbits->bits < 2 || nbits->bits > 8) && !is_half)
        return "bits must be 2 to 8";
    if (is_half && nbits->bits != 16)
        return "floats of 16 bits have 16 bits";
    if (is_outside(node, "block_size", &nbits->block))
        return "block_size must be there, and positive";
    nbits->block_count = (nbits->depth - 1) / nbits->block + 1;
    int64_t used = nbits->block_count == 1 ? nbits->depth : nbits->block;
    nbits->block_bytes = is_half ? nbits->block : (nbits->block * nbits->bits + 7) / 8;
    if (is_half && (nbits->block_count != 1 || nbits->block != nbits->depth))
        return "floats of 16 bits are of one block";
    if (nbits->block_count > 1 && used * nbits->bits % 8 != 0)
        return "a block must fill whole bytes";
    nbits->is_e2m1 = ul_node_get_int(node, "e2m1", 0) != 0;
    if (nbits->is_e2m1 && nbits->bits != 4)
        return "e2m1 has 4 bits";
    nbits->by_block = ul_node_get_int(node, "by_block", 0) != 0;
    nbits->in_bytes = ul_node_get_int(node, "accuracy_level", 0) == 4;
    nbits->scale_k = ul_node_get_int(node, "scale_k", nbits->block);
    nbits->scale_n = ul_node_get_int(node, "scale_n", 1);
    if (nbits->scale_k != nbits->block || nbits->scale_n != 1) {
        if (!nbits->by_block || nbits->scale_k < 1 || nbits->scale_n < 1 ||
            (nbits->scale_k != nbits->block && nbits->block_count != 1))
            return "scale_k and scale_n must be positive, of one block and with by_block";
    }
    nbits->scale_rows = nbits->block_count;
    if (nbits->scale_k != nbits->block)
        nbits->scale_rows = (nbits->depth - 1) / nbits->scale_k + 1;
    nbits->scale_columns = (nbits->columns - 1) / nbits->scale_n + 1;
    nbits->zero = ul_node_get_int(node, "zero", (int64_t)1 << (nbits->bits - 1));
    return nbits->zero < 0 || nbits->zero > 255 ? "zero must be 0 to 255" : NULL;
}

/* The number of bytes in a row of packed zero points. */
static int64_t zero_bytes(const struct ul_nbits *nbits)
{
    return ((nbits->by_block ? nbits->scale_columns : nbits->block_count) * nbits->bits + 7) / 8;
}

static bool is_block_table(const struct ul_nbits *nbits, const struct ul_type *type, int64_t row)
{
    return is_table(type, nbits->by_block ? nbits->scale_rows : nbits->columns, row);
}

static const char *read_zeros(struct ul_nbits *nbits, const struct ul_type *zeros)
{
    if (zeros == NULL)
        return NULL;
    nbits->zeros_packed = zeros->dtype == UL_U8;
    if (!nbits->zeros_packed && (UL_CHECK_FLOATS >> zeros->dtype & 1u) == 0)
        return "zero points must be packed in u8, or floats";
    int64_t numbers = nbits->by_block ? nbits->scale_columns : nbits->block_count;
    return is_block_table(nbits, zeros, nbits->zeros_packed ? zero_bytes(nbits) : numbers)
               ? NULL
               : "zero_points must be [N, blocks], or, in u8, [N, bytes of the packed points of a "
                 "column]";
}

const char *ul_nbits_read(struct ul_nbits *nbits, const struct ul_node *node,
                          const struct ul_type *const types[6])
{
    const struct ul_type *a = types[UL_NBITS_A], *b = types[UL_NBITS_B];
    const struct ul_type *groups = types[UL_NBITS_GROUPS], *bias = types[UL_NBITS_BIAS];
    *nbits = (struct ul_nbits){.dtype = b->dtype};
    const char *wrong = read_attributes(nbits, node);
    if (wrong != NULL)
        return wrong;
    bool is_turned = node->op == UL_OP_MatMulNBitsGradient;
    if (a->rank == 0 || a->dims[a->rank - 1] != (is_turned ? nbits->columns : nbits->depth))
        return is_turned ? "the last dimension of the gradient must be N"
                         : "the last dimension of A must be K";
    if (b->rank != 3 || b->dims[0] != nbits->columns || b->dims[1] != nbits->block_count ||
        b->dims[2] != nbits->block_bytes)
        return "B must be [N, K / block_size rounded up, bytes of a packed block]";
    if (!is_block_table(nbits, types[UL_NBITS_SCALES],
                        nbits->by_block ? nbits->scale_columns : nbits->block_count))
        return "scales must be [N, K / block_size rounded up]";
    if (groups != NULL && (groups->rank != 1 || groups->dims[0] < nbits->depth))
        return "g_idx must have a number for each of K";
    if (bias != NULL && (bias->rank != 1 || bias->dims[0] != nbits->columns))
        return "bias must be [N]";
    return read_zeros(nbits, types[UL_NBITS_ZEROS]);
}

/* A scale that is not a number spoils everything that it is multiplied by; 0 is what a block of
 * zeros has. */
static enum ul_status check_scales(const struct ul_infer *infer, uint32_t input)
{
    const struct ul_tensor *scales = ul_infer_tensor(infer, input);
    uint64_t count = scales == NULL ? 0 : ul_type_elements(&scales->type);
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(ul_tensor_get_float(scales, i)))
            return ul_infer_invalid(infer, "scale %llu is no finite number", (unsigned long long)i);
    return UL_OK;
}

enum ul_status ul_nbits_check_scales(const struct ul_infer *infer, uint32_t input)
{
    UL_TRY(ul_check_dtype(infer, input, UL_CHECK_FLOATS & ~UL_CHECK_BIT(UL_F64)));
    return check_scales(infer, input);
}

static enum ul_status check_types(const struct ul_infer *infer)
{
    const struct ul_type *b = ul_infer_input(infer, UL_NBITS_B);
    UL_TRY(ul_check_dtype(infer, UL_NBITS_A, UL_CHECK_FLOATS));
    UL_TRY(ul_check_dtype(infer, UL_NBITS_B,
                          UL_CHECK_BIT(UL_U8) | UL_CHECK_BIT(UL_F16) | UL_CHECK_BIT(UL_BF16) |
                              UL_SET_FLOAT8));
    UL_TRY(ul_check_dtype(infer, UL_NBITS_GROUPS, UL_CHECK_BIT(UL_I32)));
    UL_TRY(ul_check_dtype(infer, UL_NBITS_BIAS, UL_CHECK_FLOATS));
    if ((UL_SET_FLOAT8 >> b->dtype & 1u) != 0 && ul_node_get_int(infer->node, "bits", 4) != 8)
        return ul_infer_invalid(infer, "floats of 8 bits have 8 bits");
    return ul_nbits_check_scales(infer, UL_NBITS_SCALES);
}

/* A group is a block, so groups must be known where the numbers are. */
static enum ul_status check_groups(const struct ul_infer *infer, const struct ul_nbits *nbits)
{
    const struct ul_tensor *groups = ul_infer_tensor(infer, UL_NBITS_GROUPS);
    for (int64_t k = 0; groups != NULL && k < nbits->depth; k++) {
        int64_t group = ul_tensor_get_int(groups, (uint64_t)k);
        if (group < 0 || group >= nbits->block_count)
            return ul_infer_invalid(infer, "g_idx has %lld at %lld, of %lld groups",
                                    (long long)group, (long long)k, (long long)nbits->block_count);
    }
    return UL_OK;
}

static enum ul_status infer_product(struct ul_infer *infer, bool is_turned)
{
    const struct ul_type *types[6];
    for (uint32_t i = 0; i < 6; i++)
        types[i] = ul_infer_input(infer, i);
    struct ul_nbits nbits;
    UL_TRY(check_types(infer));
    for (uint32_t i = UL_NBITS_B; i <= UL_NBITS_GROUPS; i++)
        if (types[i] != NULL)
            UL_TRY(ul_require_constant(infer, i));
    const char *wrong = ul_nbits_read(&nbits, infer->node, types);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    UL_TRY(check_groups(infer, &nbits));
    struct ul_type type = *types[UL_NBITS_A];
    type.dims[type.rank - 1] = is_turned ? nbits.depth : nbits.columns;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_matmul_nbits(struct ul_infer *infer)
{
    return infer_product(infer, false);
}

enum ul_status ul_infer_matmul_nbits_gradient(struct ul_infer *infer)
{
    return infer_product(infer, true);
}

/* Gradients flow to the factor and to the bias; the weights are constants. */
enum ul_status ul_gradient_matmul_nbits(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    uint32_t count = node->input_count < UL_NBITS_BIAS ? node->input_count : UL_NBITS_BIAS;
    ul_value_id g = ul_gradient_of(gradient, 0), inputs[UL_NBITS_BIAS] = {g};
    for (uint32_t i = UL_NBITS_B; i < count; i++)
        inputs[i] = node->inputs[i];
    if (ul_gradient_wanted(gradient, UL_NBITS_BIAS))
        ul_gradient_give_broadcast(gradient, UL_NBITS_BIAS, g);
    if (!ul_gradient_wanted(gradient, UL_NBITS_A))
        return UL_OK;
    ul_node_id made = ul_gradient_begin_like(gradient, UL_OP_MatMulNBitsGradient, inputs, count, 1);
    ul_gradient_give(gradient, UL_NBITS_A, ul_build_infer(&gradient->build, made));
    return UL_OK;
}

/* ---- a weight ---- */

static ul_kx shift_right(struct ul_kernel *kernel, ul_kx value, ul_kx count, int64_t mask)
{
    value = ul_kx_cast(kernel, UL_U32, value);
    value = ul_kx_binary(kernel, UL_KX_SHR, value, ul_kx_cast(kernel, UL_U32, count));
    return ul_kx_binary(kernel, UL_KX_AND, value, ul_kx_int(kernel, UL_U32, mask));
}

ul_kx ul_nbits_part(struct ul_kernel *kernel, ul_kx byte, ul_kx part, int64_t bits)
{
    return shift_right(kernel, byte, ul_kx_muli(kernel, part, bits), ((int64_t)1 << bits) - 1);
}

/* sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their opposites */
ul_kx ul_nbits_e2m1(struct ul_kernel *kernel, ul_kx code)
{
    ul_kx seven = ul_kx_int(kernel, UL_U32, 7), four = ul_kx_int(kernel, UL_U32, 4);
    ul_kx size = ul_kx_binary(kernel, UL_KX_AND, code, seven);
    ul_kx half = ul_kx_float(kernel, UL_F32, 0.5);
    ul_kx small = ul_kx_binary(kernel, UL_KX_MUL, ul_kx_cast(kernel, UL_F32, size), half);
    ul_kx middle = ul_kx_binary(kernel, UL_KX_SUB, ul_kx_cast(kernel, UL_F32, size),
                                ul_kx_float(kernel, UL_F32, 2));
    ul_kx value = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_LE, size, four), small, middle);
    value = ul_kx_select(kernel, ul_kx_binary(kernel, UL_KX_EQ, size, seven),
                         ul_kx_float(kernel, UL_F32, 6), value);
    ul_kx is_positive = ul_kx_binary(kernel, UL_KX_LT, code, ul_kx_int(kernel, UL_U32, 8));
    return ul_kx_select(kernel, is_positive, value, ul_kx_unary(kernel, UL_KX_NEG, value));
}

/* An element of a table with so many columns, which may be stored as a vector. */
static ul_kx load_table(struct ul_lower *lower, ul_value_id value, ul_kx row, ul_kx column,
                        int64_t columns)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx at[2] = {row, column};
    if (lower->graph->values[value].type.rank == 1)
        at[0] = ul_kx_add(kernel, ul_kx_muli(kernel, row, columns), column);
    return ul_lower_load(lower, value, at);
}

/* Loads byte `at` of a column, which may be one past its last byte: then it loads another, of which
 * no bit is used. */
static ul_kx load_byte(struct ul_lower *lower, const struct ul_nbits *nbits, ul_value_id value,
                       ul_kx column, ul_kx block, ul_kx at)
{
    at = ul_kx_clamp(lower->kernel, at, nbits->block_bytes - 1);
    const ul_kx index[3] = {column, block, at};
    return ul_kx_cast(lower->kernel, UL_U32, ul_lower_load(lower, value, index));
}

/* Whether a byte may end inside a weight. */
static bool has_odd_bits(const struct ul_nbits *nbits)
{
    return nbits->bits < 8 && 8 % nbits->bits != 0;
}

/* The number of weights in a byte, or in the run of 8 that ends at a byte; with 16 bits, in an
 * element. */
static int64_t weights_per(const struct ul_nbits *nbits)
{
    return has_odd_bits(nbits) ? 8 : nbits->bits < 8 ? 8 / nbits->bits : 1;
}

/* The operand that a contraction reads, and where it is. */
struct place {
    ul_node_id node;
    ul_kx column, block, byte, part; /* of odd bits: byte is the run of 8 weights */
    ul_kx depth;
    ul_kx scale_column; /* of scales and zero points */
};

/* Loads weight `part` of a run of 8, which may be spread over two bytes. */
static ul_kx load_run(struct ul_lower *lower, const struct ul_nbits *nbits,
                      const struct place *place)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_value_id b = lower->graph->nodes[place->node].inputs[UL_NBITS_B];
    ul_kx bit = ul_kx_muli(kernel, place->part, nbits->bits);
    ul_kx first =
        ul_kx_add(kernel, ul_kx_muli(kernel, place->byte, nbits->bits), ul_kx_divi(kernel, bit, 8));
    ul_kx low = load_byte(lower, nbits, b, place->column, place->block, first);
    ul_kx high =
        load_byte(lower, nbits, b, place->column, place->block, ul_kx_addi(kernel, first, 1));
    high = ul_kx_binary(kernel, UL_KX_SHL, high, ul_kx_int(kernel, UL_U32, 8));
    return shift_right(kernel, ul_kx_binary(kernel, UL_KX_OR, low, high),
                       ul_kx_modi(kernel, bit, 8), ((int64_t)1 << nbits->bits) - 1);
}

/* Loads the number for a column and a block. */
static ul_kx load_number(struct ul_lower *lower, const struct ul_nbits *nbits, ul_value_id value,
                         ul_kx column, ul_kx block)
{
    if (nbits->by_block)
        return load_table(lower, value, block, column, nbits->scale_columns);
    return load_table(lower, value, column, block, nbits->block_count);
}

static ul_kx load_packed_zero(struct ul_lower *lower, const struct ul_nbits *nbits,
                              ul_value_id zeros, ul_kx row, ul_kx at)
{
    struct ul_kernel *kernel = lower->kernel;
    int64_t bytes = zero_bytes(nbits);
    ul_kx bit = ul_kx_muli(kernel, at, nbits->bits), byte = ul_kx_divi(kernel, bit, 8);
    ul_kx next = ul_kx_clamp(kernel, ul_kx_addi(kernel, byte, 1), bytes - 1);
    ul_kx low = ul_kx_cast(kernel, UL_U32, load_table(lower, zeros, row, byte, bytes));
    if (8 % nbits->bits != 0) {
        ul_kx high = ul_kx_cast(kernel, UL_U32, load_table(lower, zeros, row, next, bytes));
        high = ul_kx_binary(kernel, UL_KX_SHL, high, ul_kx_int(kernel, UL_U32, 8));
        low = ul_kx_binary(kernel, UL_KX_OR, low, high);
    }
    return shift_right(kernel, low, ul_kx_modi(kernel, bit, 8), ((int64_t)1 << nbits->bits) - 1);
}

/* The zero point of a block, an i32 or an f32. */
static ul_kx load_zero(struct ul_lower *lower, const struct ul_nbits *nbits,
                       const struct place *place, ul_kx group)
{
    struct ul_kernel *kernel = lower->kernel;
    if (!ul_lower_has_input(lower, place->node, UL_NBITS_ZEROS))
        return ul_kx_int(kernel, UL_I32, nbits->zero);
    ul_value_id zeros = lower->graph->nodes[place->node].inputs[UL_NBITS_ZEROS];
    if (!nbits->zeros_packed)
        return ul_kx_cast(kernel, UL_F32,
                          load_number(lower, nbits, zeros, place->scale_column, group));
    ul_kx row = nbits->by_block ? group : place->scale_column;
    ul_kx at = nbits->by_block ? place->scale_column : group;
    return ul_kx_cast(kernel, UL_I32, load_packed_zero(lower, nbits, zeros, row, at));
}

/* (code - zero) * scale, where floats of 8 and 16 bits are their own code; in programs that train
 * with 16 bits it is rounded to these, like everything that products multiply. */
static ul_kx dequantize(struct ul_lower *lower, const struct ul_nbits *nbits,
                        const struct place *place, ul_kx code)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[place->node];
    int64_t storage = ul_node_get_int(node, "round_to", UL_DTYPE_NONE);
    ul_kx group = place->block, value = code;
    if (ul_lower_has_input(lower, place->node, UL_NBITS_GROUPS)) {
        ul_kx at = ul_kx_clamp(kernel, place->depth, nbits->depth - 1);
        group = ul_lower_load(lower, node->inputs[UL_NBITS_GROUPS], &at);
        group = ul_kx_checked_index(kernel, group, nbits->block_count, false);
    } else if (nbits->scale_k != nbits->block) {
        group =
            ul_kx_divi(kernel, ul_kx_clamp(kernel, place->depth, nbits->depth - 1), nbits->scale_k);
    }
    if (nbits->dtype == UL_U8 && nbits->is_e2m1) {
        value = ul_nbits_e2m1(kernel, code);
    } else if (nbits->dtype == UL_U8) {
        ul_kx zero = load_zero(lower, nbits, place, group);
        value = ul_kx_cast(kernel, ul_kx_dtype(kernel, zero), ul_kx_cast(kernel, UL_I32, code));
        value = ul_kx_binary(kernel, UL_KX_SUB, value, zero);
    }
    ul_kx scale =
        load_number(lower, nbits, node->inputs[UL_NBITS_SCALES], place->scale_column, group);
    value = ul_kx_binary(kernel, UL_KX_MUL, ul_kx_cast(kernel, UL_F32, value),
                         ul_kx_cast(kernel, UL_F32, scale));
    if (storage == UL_DTYPE_NONE)
        return value;
    return ul_kx_round_to(kernel, (enum ul_dtype)storage, false, value);
}

/* ---- the product ---- */

/* The dimensions of k: blocks, bytes (or runs of 8 weights) in a block, and weights in one of
 * these. */
struct cut {
    int64_t extents[3];
    int64_t per; /* weights of a byte, or of a run */
    uint32_t first;
};

static struct cut cut_depth(const struct ul_nbits *nbits, uint32_t m_count)
{
    int64_t per = weights_per(nbits);
    int64_t used = nbits->block_count == 1 ? nbits->depth : nbits->block;
    return (struct cut){.extents = {nbits->block_count, (used + per - 1) / per, per},
                        .per = per,
                        .first = m_count + 1};
}

static void open_a(struct ul_lower *lower, const struct ul_nbits *nbits, const struct cut *cut,
                   ul_value_id a, struct ul_contraction *contraction)
{
    const struct ul_type *type = &lower->graph->values[a].type;
    ul_kx base[UL_LIMIT_RANK];
    int64_t at[UL_LIMIT_RANK][UL_CONTRACT_DIMS] = {{0}};
    for (uint32_t d = 0; d < type->rank; d++) {
        base[d] = ul_kx_index_const(lower->kernel, 0);
        if (d + 1 < type->rank)
            at[d][d] = 1;
    }
    at[type->rank - 1][cut->first] = nbits->block;
    at[type->rank - 1][cut->first + 1] = cut->per;
    at[type->rank - 1][cut->first + 2] = 1;
    bool leaves = (cut->extents[0] - 1) * nbits->block + cut->extents[1] * cut->per > nbits->depth;
    ul_lower_operand(lower, contraction, &contraction->a, a, base, at,
                     leaves ? 1u << (type->rank - 1) : 0, 0);
}

static void open_b(struct ul_lower *lower, const struct ul_nbits *nbits, const struct cut *cut,
                   ul_node_id node, struct ul_contraction *contraction)
{
    struct ul_kernel *kernel = lower->kernel;
    const uint32_t *vars = &contraction->vars[cut->first];
    ul_kx zero = ul_kx_index_const(kernel, 0), base[3] = {zero, zero, zero};
    int64_t at[3][UL_CONTRACT_DIMS] = {{0}};
    at[0][cut->first - 1] = 1;
    at[1][cut->first] = 1;
    at[2][cut->first + 1] = nbits->bits < 8 ? cut->per * nbits->bits / 8 : 1;
    ul_lower_operand(lower, contraction, &contraction->b,
                     lower->graph->nodes[node].inputs[UL_NBITS_B], base, at, 0, 0);
    struct ul_operand *b = &contraction->b;
    /* Only constants are allowed: nothing comes between the loaded byte and the multiplication. */
    UL_ASSERT(lower->graph->values[lower->graph->nodes[node].inputs[UL_NBITS_B]].kind ==
              UL_VALUE_WEIGHT);
    struct place place = {.node = node,
                          .column = ul_kx_var(kernel, contraction->vars[cut->first - 1]),
                          .block = ul_kx_var(kernel, vars[0]),
                          .byte = ul_kx_var(kernel, vars[1]),
                          .part = ul_kx_var(kernel, vars[2])};
    place.depth =
        ul_kx_add(kernel, ul_kx_muli(kernel, place.block, nbits->block),
                  ul_kx_add(kernel, ul_kx_muli(kernel, place.byte, cut->per), place.part));
    place.scale_column = ul_kx_divi(kernel, place.column, nbits->scale_n);
    ul_kx code = ul_kx_var(kernel, b->loaded);
    if (has_odd_bits(nbits))
        code = load_run(lower, nbits, &place);
    else if (nbits->dtype == UL_U8)
        code = ul_nbits_part(kernel, code, place.part, nbits->bits);
    b->transform =
        ul_kx_cast(kernel, contraction->acc_dtype, dequantize(lower, nbits, &place, code));
}

/* The type in which sums are formed; f64 is used in tests of gradients. */
static enum ul_dtype sum_dtype(const struct ul_type *a)
{
    return a->dtype == UL_F64 ? UL_F64 : UL_F32;
}

static struct ul_nbits read_node(const struct ul_lower *lower, ul_node_id node_id)
{
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *types[6] = {NULL};
    struct ul_nbits nbits;
    for (uint32_t i = 0; i < node->input_count; i++)
        types[i] =
            ul_lower_has_input(lower, node_id, i) ? ul_lower_input_type(lower, node_id, i) : NULL;
    const char *wrong = ul_nbits_read(&nbits, node, types);
    UL_ASSERT(wrong == NULL);
    return nbits;
}

void ul_lower_matmul_nbits(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *a = ul_lower_input_type(lower, node_id, UL_NBITS_A);
    const struct ul_nbits nbits = read_node(lower, node_id);
    const int64_t one = 1;
    uint32_t m_count = a->rank > 1 ? a->rank - 1 : 1;
    struct cut cut = cut_depth(&nbits, m_count);
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, sum_dtype(a), a->rank > 1 ? a->dims : &one, m_count,
                        &nbits.columns, 1, cut.extents, 3);
    open_a(lower, &nbits, &cut, node->inputs[UL_NBITS_A], &contraction);
    open_b(lower, &nbits, &cut, node_id, &contraction);
    ul_ks_contract(kernel, &contraction);
    ul_kx index[UL_LIMIT_RANK], sum = ul_kx_var(kernel, contraction.acc);
    ul_kx column = ul_kx_var(kernel, contraction.vars[m_count]);
    for (uint32_t d = 0; d + 1 < a->rank; d++)
        index[d] = ul_kx_var(kernel, contraction.vars[d]);
    index[a->rank - 1] = column;
    if (ul_lower_has_input(lower, node_id, UL_NBITS_BIAS)) {
        ul_kx bias = ul_lower_load(lower, node->inputs[UL_NBITS_BIAS], &column);
        sum = ul_kx_binary(kernel, UL_KX_ADD, sum, ul_kx_cast(kernel, sum_dtype(a), bias));
    }
    ul_lower_store(lower, node->outputs[0], index, sum);
    ul_ks_end(kernel);
}

/* ---- its gradient ---- */

/* Opens weight (k, n), where the sum is over n. Elements along k are side by side: a block fills
 * its bytes, or it is the only one. */
static void open_turned(struct ul_lower *lower, const struct ul_nbits *nbits, ul_node_id node,
                        struct ul_contraction *contraction)
{
    struct ul_kernel *kernel = lower->kernel;
    uint32_t at_k = contraction->m_count, at_n = at_k + 1;
    ul_value_id codes = lower->graph->nodes[node].inputs[UL_NBITS_B];
    ul_kx zero = ul_kx_index_const(kernel, 0), base[3] = {zero, zero, zero};
    int64_t at[3][UL_CONTRACT_DIMS] = {{0}};
    int64_t per = weights_per(nbits);
    struct ul_operand *b = &contraction->b;
    UL_ASSERT(lower->graph->values[codes].kind == UL_VALUE_WEIGHT);
    at[0][at_n] = 1;
    ul_lower_operand(lower, contraction, b, codes, base, at, 0, 0);
    ul_kx k = ul_kx_var(kernel, contraction->vars[at_k]);
    ul_kx column = ul_kx_var(kernel, contraction->vars[at_n]);
    ul_kx within = ul_kx_modi(kernel, k, nbits->block);
    struct place place = {.node = node,
                          .column = column,
                          .block = ul_kx_divi(kernel, k, nbits->block),
                          .byte = ul_kx_divi(kernel, within, per),
                          .part = ul_kx_modi(kernel, within, per),
                          .depth = k,
                          .scale_column = ul_kx_divi(kernel, column, nbits->scale_n)};
    if (!has_odd_bits(nbits))
        b->at.strides[at_k] = 1;
    if (nbits->bits == 4 || nbits->bits == 2) {
        b->packed = nbits->bits == 4 ? UL_U4 : UL_U2;
        b->at.base = ul_kx_muli(kernel, b->at.base, per);
        b->at.strides[at_n] *= per;
    }
    ul_kx code =
        has_odd_bits(nbits) ? load_run(lower, nbits, &place) : ul_kx_var(kernel, b->loaded);
    b->transform =
        ul_kx_cast(kernel, contraction->acc_dtype, dequantize(lower, nbits, &place, code));
}

void ul_lower_matmul_nbits_gradient(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *g = ul_lower_input_type(lower, node_id, UL_NBITS_A);
    const struct ul_nbits nbits = read_node(lower, node_id);
    const int64_t one = 1;
    uint32_t m_count = g->rank > 1 ? g->rank - 1 : 1;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, sum_dtype(g), g->rank > 1 ? g->dims : &one, m_count,
                        &nbits.depth, 1, &nbits.columns, 1);
    ul_kx base[UL_LIMIT_RANK], index[UL_LIMIT_RANK];
    int64_t at[UL_LIMIT_RANK][UL_CONTRACT_DIMS] = {{0}};
    for (uint32_t d = 0; d < g->rank; d++) {
        base[d] = ul_kx_index_const(kernel, 0);
        index[d] = ul_kx_var(kernel, contraction.vars[d + 1 < g->rank ? d : m_count]);
        at[d][d + 1 < g->rank ? d : m_count + 1] = 1;
    }
    ul_lower_operand(lower, &contraction, &contraction.a, node->inputs[UL_NBITS_A], base, at, 0, 0);
    open_turned(lower, &nbits, node_id, &contraction);
    ul_ks_contract(kernel, &contraction);
    ul_lower_store(lower, node->outputs[0], index, ul_kx_var(kernel, contraction.acc));
    ul_ks_end(kernel);
}
