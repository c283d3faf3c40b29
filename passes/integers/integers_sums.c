/* SPDX-License-Identifier: Apache-2.0 */
/* Products and convolutions of scaled integers as sums of integers.
 *
 *      sum of (x - zx) sx * (w - zw) sw + b  =  sx sw * (sum of x (w - zw) + c)
 *      c = b / (sx sw) - zx * sum of (w - zw)
 *
 * A bias that is no whole number of sx sw stays in floats, after the factor. The zero-point of x
 * goes into the bias c where w is constant, so that sums are of plain products; a convolution is
 * then padded with zx. Not so where the number of terms differs from one result to the next
 * (ConvTranspose) or w is computed: zero-points stay the operator's inputs there. Weights of 8 bits
 * without sign around 128 are stored with sign, and so are activations of large products, and of
 * convolutions of one place, where the target's library wants that. Sums that may leave 32 bits
 * have 64. Weights of convolutions that have 2 or 4 bits are made bytes without a zero-point in
 * front of the sums, where a kernel loads them packed (packed.c); products have an operator for
 * theirs (nbits.c). What is left undone: scales for each index of x, block scales. */
#include "ir/geometry.h"
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

#include <math.h>
#include <string.h>

/* Terms of sums that the model has in 32 bits. */
enum { NARROW_TERMS = 32768, MIDDLE = 128 };
#define BIAS_LIMIT 1073741824.0
/* Sums of 32 bits are for what stays below SUM_LIMIT with room for SMALL_BIAS, which is added
 * later. */
#define SUM_LIMIT 2147483647.0
#define SMALL_BIAS 134217728.0
#define BIAS_TOLERANCE 1e-6 /* relative: the product of two f32 scales, rounded */

struct sums {
    ul_op_id op; /* the operator that adds up */
    struct ul_scaled x, w;
    ul_value_id bias; /* in floats or scaled integers; UL_NONE: none */
    ul_value_id base; /* w, or the constant that it is the transpose of */
    bool is_turned;   /* it is that */
    bool is_constant; /* base is */
    bool is_wide;
    uint32_t channels, groups; /* of the result; channels count all groups */
    uint32_t trailing;         /* dimensions of the result after its channels */
    uint64_t terms;            /* of a sum */
    double *scales, *offsets;  /* for each channel: sx sw; c */
    double *rest;              /* the part of the bias that is no whole number of scales; NULL:
                                  there is none */
};

/* A matrix that is the transpose of a constant, which is a view of it. */
static void find_base(struct ul_integers *integers, struct sums *sums)
{
    const struct ul_graph *graph = integers->graph;
    const struct ul_node *node = ul_integers_maker(integers, sums->w.x);
    bool is_matrix = graph->values[sums->w.x].type.rank == 2;
    sums->base = sums->w.x;
    sums->is_turned = is_matrix && node != NULL && node->op == UL_OP_Transpose;
    if (sums->is_turned) {
        uint32_t count = 0;
        const int64_t *perm = ul_node_get_ints(node, "perm", &count);
        sums->is_turned = count == 0 || perm[0] == 1;
    }
    if (sums->is_turned)
        sums->base = node->inputs[0];
    sums->is_constant = ul_graph_get_constant(graph, sums->base) != NULL;
}

/* Integers of 2 or 4 bits. */
static bool has_few_bits(const struct ul_integers *integers, const struct sums *sums)
{
    const struct ul_dtype_info *w = ul_dtype_get(integers->graph->values[sums->w.x].type.dtype);
    return w->is_integer && w->bits < 8;
}

static bool has_types(const struct ul_integers *integers, const struct sums *sums)
{
    enum ul_dtype x = integers->graph->values[sums->x.x].type.dtype;
    bool may_be_few = sums->op != UL_OP_MatMulInteger && sums->is_constant;
    return (ul_integers_is_8bit(integers, sums->x.x) || x == UL_U16 || x == UL_I16) &&
           (ul_integers_is_8bit(integers, sums->w.x) ||
            (may_be_few && has_few_bits(integers, sums))) &&
           sums->x.count == 1;
}

/* The zero-points are all this one. */
static bool are_all(const struct ul_scaled *scaled, int64_t zero)
{
    for (uint32_t i = 0; i < scaled->count; i++) {
        if (ul_scaled_zero(scaled, i) != zero)
            return false;
    }
    return true;
}

/* ---- Geometry ---- */

static bool read_conv(struct ul_integers *integers, const struct ul_node *node, struct sums *sums)
{
    const struct ul_type *x = &integers->graph->values[sums->x.x].type;
    const struct ul_type *w = &integers->graph->values[sums->base].type;
    bool transposed = sums->op == UL_OP_ConvTransposeInteger;
    struct ul_conv conv;
    const char *wrong =
        transposed ? ul_conv_transpose_read(&conv, node, x, w) : ul_conv_read(&conv, node, x, w);
    if (wrong != NULL || !sums->is_constant)
        return false;
    sums->groups = (uint32_t)conv.groups;
    sums->channels = (uint32_t)(conv.groups * conv.out_channels);
    sums->trailing = conv.spatial;
    sums->terms = (uint64_t)conv.in_channels;
    for (uint32_t d = 0; d < conv.spatial; d++)
        sums->terms *= (uint64_t)conv.kernel[d];
    if (transposed && sums->w.count > 1 && !are_all(&sums->w, 0) && !are_all(&sums->w, MIDDLE) &&
        !has_few_bits(integers, sums))
        return false; /* its sums take one zero-point of w */
    uint32_t axis = transposed ? 1 : 0;
    int64_t counted = transposed ? conv.out_channels : (int64_t)sums->channels;
    return sums->w.count == 1 || (sums->w.axis == axis && sums->w.count == counted);
}

static bool read_matmul(struct ul_integers *integers, struct sums *sums)
{
    const struct ul_type *a = &integers->graph->values[sums->x.x].type;
    const struct ul_type *base = &integers->graph->values[sums->base].type;
    struct ul_type b = *base;
    struct ul_matmul matmul;
    if (sums->is_turned) {
        b.dims[0] = base->dims[1];
        b.dims[1] = base->dims[0];
    }
    if (a->rank < 2 || b.rank < 2 || ul_matmul_read(&matmul, a, &b) != NULL ||
        matmul.columns > UINT32_MAX)
        return false;
    sums->groups = 1;
    sums->channels = (uint32_t)matmul.columns;
    sums->terms = (uint64_t)matmul.depth;
    sums->is_constant = sums->is_constant && b.rank == 2;
    return sums->w.count == 1 || (sums->is_constant && sums->w.axis == 1);
}

/* The channel of the result that an element of w adds to. */
static uint32_t channel_of(const struct sums *sums, const struct ul_type *w, uint64_t element)
{
    uint64_t first = (uint64_t)w->dims[0], second = (uint64_t)w->dims[1];
    uint64_t inner = ul_type_elements(w) / (first * second);
    if (sums->op == UL_OP_MatMulInteger)
        return (uint32_t)(sums->is_turned ? element / second : element % second);
    if (sums->op == UL_OP_ConvInteger)
        return (uint32_t)(element / (second * inner));
    uint64_t group = element / (inner * second) / (first / sums->groups);
    return (uint32_t)(group * second + element / inner % second);
}

/* The index of a channel's scale and zero-point among those of w. */
static uint32_t scale_of(const struct sums *sums, uint32_t channel)
{
    return sums->w.count == 1 ? 0 : channel % sums->w.count;
}

/* ---- Constants ---- */

/* -zx * the sum of (w - zw), added to each channel's offset. */
static void add_zero_of_x(const struct ul_integers *integers, const struct sums *sums)
{
    const struct ul_tensor *w = ul_graph_get_constant(integers->graph, sums->base);
    int64_t zero = ul_scaled_zero(&sums->x, 0);
    uint64_t count = ul_type_elements(&w->type);
    UL_ASSERT(sums->is_constant && count > 0);
    for (uint64_t i = 0; zero != 0 && i < count; i++) {
        uint32_t channel = channel_of(sums, &w->type, i);
        int64_t weight =
            ul_tensor_get_int(w, i) - ul_scaled_zero(&sums->w, scale_of(sums, channel));
        sums->offsets[channel] -= (double)(zero * weight);
    }
}

/* The bias of a channel in floats; false where it is not one number or one for each channel. */
static bool read_bias(const struct ul_integers *integers, const struct sums *sums, uint32_t channel,
                      double *number)
{
    struct ul_scaled scaled;
    const struct ul_tensor *bias = ul_graph_get_constant(integers->graph, sums->bias);
    bool is_scaled = bias == NULL && ul_integers_find(integers, sums->bias, &scaled);
    if (is_scaled)
        bias = ul_graph_get_constant(integers->graph, scaled.x);
    if (bias == NULL || (!is_scaled && bias->type.dtype != UL_F32))
        return false;
    uint64_t count = ul_type_elements(&bias->type);
    uint64_t at = count == 1 ? 0 : channel;
    if (count != 1 && (count != sums->channels || bias->type.rank == 0 ||
                       bias->type.dims[bias->type.rank - 1] != (int64_t)count))
        return false;
    *number = is_scaled ? (double)(ul_tensor_get_int(bias, at) - ul_scaled_zero(&scaled, at)) *
                              ul_scaled_scale(&scaled, at)
                        : ul_tensor_get_float(bias, at);
    return true;
}

/* Scales and offsets; false where they leave their types. */
static bool find_constants(struct ul_integers *integers, struct sums *sums)
{
    sums->scales = UL_NEW_ARRAY(integers->pass->scratch, double, sums->channels);
    sums->offsets = UL_NEW_ARRAY(integers->pass->scratch, double, sums->channels);
    double *biases = UL_NEW_ARRAY(integers->pass->scratch, double, sums->channels);
    bool is_whole = true;
    for (uint32_t c = 0; c < sums->channels; c++) {
        double bias = 0;
        sums->scales[c] =
            ul_scaled_scale(&sums->x, 0) * ul_scaled_scale(&sums->w, scale_of(sums, c));
        if (!isnormal((float)sums->scales[c]) ||
            (sums->bias != UL_NONE && !read_bias(integers, sums, c, &bias)))
            return false;
        sums->offsets[c] = nearbyint(bias / sums->scales[c]);
        if (!(fabs(sums->offsets[c]) < BIAS_LIMIT))
            return false;
        biases[c] = bias;
        is_whole = is_whole &&
                   fabs(sums->offsets[c] * sums->scales[c] - bias) <= fabs(bias) * BIAS_TOLERANCE;
    }
    sums->rest = is_whole ? NULL : biases;
    for (uint32_t c = 0; !is_whole && c < sums->channels; c++)
        sums->offsets[c] = 0;
    if (sums->is_constant && sums->op != UL_OP_ConvTransposeInteger)
        add_zero_of_x(integers, sums);
    return true;
}

/* ---- Nodes ---- */

/* Makes constants of u8 around 128 into i8 around 0. */
static void give_sign(struct ul_integers *integers, struct sums *sums)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_tensor *old = ul_graph_get_constant(graph, sums->base);
    if (old == NULL || old->type.dtype != UL_U8 || !are_all(&sums->w, MIDDLE))
        return;
    struct ul_type type = old->type;
    uint64_t count = ul_type_elements(&type);
    unsigned char *data = ul_arena_alloc(graph->arena, count);
    type.dtype = UL_I8;
    for (uint64_t i = 0; i < count; i++)
        data[i] = (unsigned char)(ul_tensor_get_int(old, i) ^ MIDDLE);
    sums->base = ul_graph_add_weight(graph, graph->values[sums->base].name,
                                     ul_edit_tensor(graph, &type, data));
    sums->w.zero = UL_NONE;
    sums->w.zeros = NULL;
}

/* The zero-points of w, to be taken off its elements. */
static ul_value_id add_zeros(struct ul_integers *integers, const struct sums *sums)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_type *w = &graph->values[sums->base].type;
    struct ul_type type = {.dtype = w->dtype, .rank = sums->w.count == 1 ? 0 : w->rank};
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = d == sums->w.axis ? (int64_t)sums->w.count : 1;
    unsigned char *data = ul_arena_alloc(graph->arena, sums->w.count);
    UL_ASSERT(sums->w.zeros != NULL);
    for (uint32_t i = 0; i < sums->w.count; i++)
        data[i] = (unsigned char)ul_scaled_zero(&sums->w, i);
    return ul_graph_add_weight(graph,
                               ul_arena_printf(graph->arena, "%s.zero", integers->build.name),
                               ul_edit_tensor(graph, &type, data));
}

/* w of a few bits as i8, less its zero-points. */
static ul_value_id add_bytes(struct ul_integers *integers, struct sums *sums)
{
    UL_ASSERT(sums->is_constant && !sums->is_turned);
    ul_value_id bytes = ul_integers_cast(integers, sums->base, UL_I8);
    if (!are_all(&sums->w, 0)) {
        const ul_value_id terms[2] = {bytes,
                                      ul_integers_cast(integers, add_zeros(integers, sums), UL_I8)};
        bytes = ul_integers_add(integers, UL_OP_Sub, terms, 2, NULL);
    }
    sums->w.zero = UL_NONE;
    sums->w.zeros = NULL;
    return bytes;
}

/* w as the sums read it. */
static ul_value_id add_weights(struct ul_integers *integers, struct sums *sums)
{
    static const int64_t turn[2] = {1, 0};
    if (has_few_bits(integers, sums))
        return add_bytes(integers, sums);
    if (sums->is_constant)
        give_sign(integers, sums);
    return sums->is_turned ? ul_build_transpose(&integers->build, sums->base, turn) : sums->base;
}

/* Numbers for each channel along the result's axis of them. */
static ul_value_id add_numbers(struct ul_integers *integers, const struct sums *sums,
                               const char *suffix, enum ul_dtype dtype, const double *numbers)
{
    struct ul_graph *graph = integers->graph;
    bool are_equal = true;
    for (uint32_t c = 1; c < sums->channels; c++)
        are_equal = are_equal && numbers[c] == numbers[0];
    const char *name = ul_arena_printf(graph->arena, "%s.%s", integers->build.name, suffix);
    return ul_edit_add_numbers(graph, name, dtype, numbers, are_equal ? 1 : sums->channels,
                               are_equal ? 0 : 1 + sums->trailing);
}

/* The sums without their offsets. */
static ul_value_id add_plain(struct ul_integers *integers, const struct ul_node *node,
                             struct sums *sums, int64_t pad_value)
{
    struct ul_graph *graph = integers->graph;
    bool keeps_zero = !sums->is_constant || sums->op == UL_OP_ConvTransposeInteger;
    bool has_x_zero = keeps_zero && ul_scaled_zero(&sums->x, 0) != 0;
    ul_value_id w = add_weights(integers, sums);
    bool has_w_zero = !are_all(&sums->w, 0);
    const ul_value_id inputs[4] = {sums->x.x, w, has_x_zero ? sums->x.zero : UL_NONE,
                                   has_w_zero ? sums->w.zero : UL_NONE};
    bool is_matmul = sums->op == UL_OP_MatMulInteger;
    ul_node_id id = ul_integers_begin(integers, sums->op, inputs,
                                      has_w_zero   ? 4
                                      : has_x_zero ? 3
                                                   : 2,
                                      is_matmul ? NULL : node);
    graph->nodes[id].source = node->source;
    if (sums->is_wide)
        ul_node_set_int(graph, id, "wide", 1);
    if (sums->op == UL_OP_ConvInteger && !keeps_zero && pad_value != 0)
        ul_node_set_int(graph, id, "pad_value", pad_value);
    return ul_integers_end(integers, id);
}

/* The sums with their offsets: an i32 or i64. */
static ul_value_id add_sums(struct ul_integers *integers, const struct ul_node *node,
                            struct sums *sums)
{
    ul_value_id sum = add_plain(integers, node, sums, ul_scaled_zero(&sums->x, 0));
    bool are_zero = true;
    for (uint32_t c = 0; c < sums->channels; c++)
        are_zero = are_zero && sums->offsets[c] == 0;
    if (are_zero)
        return sum;
    enum ul_dtype dtype = sums->is_wide ? UL_I64 : UL_I32;
    const ul_value_id terms[2] = {sum, add_numbers(integers, sums, "offset", dtype, sums->offsets)};
    return ul_integers_add(integers, UL_OP_Add, terms, 2, NULL);
}

/* May a sum and its offset leave 32 bits? */
static bool is_wide(const struct ul_integers *integers, const struct sums *sums)
{
    const struct ul_graph *graph = integers->graph;
    enum ul_dtype x = graph->values[sums->x.x].type.dtype;
    enum ul_dtype w = graph->values[sums->w.x].type.dtype;
    bool has_w_zero = !are_all(&sums->w, 0);
    double x_max = x == UL_I8 && ul_scaled_zero(&sums->x, 0) == 0 ? 128 : 255;
    double w_max = w == UL_I8 && !has_w_zero ? 128 : 255, offset = 0;
    if (has_few_bits(integers, sums))
        w_max = (double)(1u << ul_dtype_get(w)->bits) - 1; /* less its zero-point too */
    for (uint32_t c = 0; c < sums->channels; c++)
        offset = fabs(sums->offsets[c]) > offset ? fabs(sums->offsets[c]) : offset;
    return !ul_integers_is_8bit(integers, sums->x.x) ||
           (double)sums->terms * x_max * w_max + offset + SMALL_BIAS > SUM_LIMIT;
}

/* Finds all that is to be known of the sums; false: they have no such form. */
static bool read_sums(struct ul_integers *integers, const struct ul_node *node, struct sums *sums)
{
    if (!has_types(integers, sums) ||
        (sums->op == UL_OP_MatMulInteger ? !read_matmul(integers, sums)
                                         : !read_conv(integers, node, sums)))
        return false;
    if (sums->channels == 0 || sums->terms == 0 || !find_constants(integers, sums))
        return false;
    sums->is_wide = is_wide(integers, sums);
    return true;
}

static ul_op_id op_of_sums(ul_op_id op)
{
    switch ((int)op) {
    case UL_OP_Conv:
        return UL_OP_ConvInteger;
    case UL_OP_ConvTranspose:
        return UL_OP_ConvTransposeInteger;
    default:
        return UL_OP_MatMulInteger;
    }
}

/* Gemm as MatMul has it. */
static bool turn_gemm(const struct ul_node *node, struct sums *sums)
{
    if (ul_node_get_float(node, "alpha", 1) != 1 || ul_node_get_float(node, "beta", 1) != 1 ||
        ul_node_get_int(node, "transA", 0) != 0)
        return false;
    if (ul_node_get_int(node, "transB", 0) == 0)
        return true;
    sums->is_turned = !sums->is_turned;
    if (!sums->is_turned)
        return false;
    sums->w.axis = 1 - sums->w.axis;
    return sums->is_constant;
}

bool ul_integers_product(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    struct sums sums = {.op = op_of_sums(node.op), .bias = UL_NONE};
    if (!ul_integers_find(integers, node.inputs[0], &sums.x) ||
        !ul_integers_find(integers, node.inputs[1], &sums.w))
        return false;
    find_base(integers, &sums);
    if (node.op == UL_OP_Gemm && !turn_gemm(&node, &sums))
        return false;
    if (node.op != UL_OP_MatMul && node.input_count > 2)
        sums.bias = node.inputs[2];
    if (!read_sums(integers, &node, &sums))
        return false;
    ul_value_id sum = add_sums(integers, &node, &sums);
    const ul_value_id factors[2] = {ul_integers_cast(integers, sum, UL_F32),
                                    add_numbers(integers, &sums, "scale", UL_F32, sums.scales)};
    if (sums.rest == NULL) {
        ul_integers_become(integers, id, UL_OP_Mul, factors, 2, NULL);
        return true;
    }
    const ul_value_id terms[2] = {ul_integers_add(integers, UL_OP_Mul, factors, 2, NULL),
                                  add_numbers(integers, &sums, "bias", UL_F32, sums.rest)};
    ul_integers_become(integers, id, UL_OP_Add, terms, 2, NULL);
    return true;
}

/* A constant bias of integers, added to the offsets: sums have one bias then, which a library adds
 * too. False: it is not constant, or too large beside the offsets. */
static bool join_bias(const struct ul_integers *integers, struct sums *sums, ul_value_id value)
{
    const struct ul_tensor *bias = ul_graph_get_constant(integers->graph, value);
    bool fits = bias != NULL && bias->type.dtype == UL_I32 &&
                ul_type_elements(&bias->type) == sums->channels;
    for (uint32_t c = 0; fits && c < sums->channels; c++)
        fits = fabs(sums->offsets[c] + (double)ul_tensor_get_int(bias, c)) < SMALL_BIAS;
    for (uint32_t c = 0; fits && c < sums->channels; c++)
        sums->offsets[c] += (double)ul_tensor_get_int(bias, c);
    return fits;
}

bool ul_integers_qlinear(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    bool is_conv = node.op == UL_OP_QLinearConv;
    struct sums sums = {.op = is_conv ? UL_OP_ConvInteger : UL_OP_MatMulInteger, .bias = UL_NONE};
    struct ul_scaled y;
    const ul_value_id *in = node.inputs;
    if (!ul_integers_scale(integers, in[0], in[1], in[2], 0, &sums.x) ||
        !ul_integers_scale(integers, in[3], in[4], in[5], is_conv ? 0 : 1, &sums.w) ||
        !ul_integers_scale(integers, node.outputs[0], in[6], in[7], 0, &y) || y.count != 1)
        return false;
    find_base(integers, &sums);
    if (!read_sums(integers, &node, &sums))
        return false;
    for (uint32_t c = 0; c < sums.channels; c++)
        sums.scales[c] /= ul_scaled_scale(&y, 0);
    bool has_bias = is_conv && node.input_count > 8 && in[8] != UL_NONE;
    has_bias = has_bias && !join_bias(integers, &sums, in[8]);
    ul_value_id sum = add_sums(integers, &node, &sums);
    if (has_bias) {
        int64_t dims[1 + UL_CONV_SPATIAL] = {sums.channels, 1, 1, 1};
        const ul_value_id terms[2] = {
            sum, ul_build_reshape(&integers->build, in[8], 1 + sums.trailing, dims)};
        sum = ul_integers_add(integers, UL_OP_Add, terms, 2, NULL);
    }
    const ul_value_id terms[3] = {in[7], sum,
                                  add_numbers(integers, &sums, "factor", UL_F32, sums.scales)};
    ul_integers_become(integers, id, UL_OP_Rescale, terms, 3, NULL);
    return true;
}

/* ---- Sums that the model has ---- */

/* w of ConvInteger and MatMulInteger with its zero-points, as if their scale were 1. */
static bool read_weights(struct ul_integers *integers, const struct ul_node *node,
                         struct sums *sums)
{
    const struct ul_graph *graph = integers->graph;
    ul_value_id zero = node->input_count > 3 ? node->inputs[3] : UL_NONE;
    sums->op = node->op;
    sums->w = (struct ul_scaled){.x = node->inputs[1], .zero = zero, .count = 1};
    if (zero != UL_NONE) {
        sums->w.zeros = ul_graph_get_constant(graph, zero);
        if (sums->w.zeros == NULL || sums->w.zeros->type.rank > 1)
            return false;
        sums->w.count = (uint32_t)ul_type_elements(&sums->w.zeros->type);
        sums->w.axis = node->op == UL_OP_MatMulInteger ? 1 : 0;
    }
    sums->x = (struct ul_scaled){.x = node->inputs[0], .count = 1};
    find_base(integers, sums);
    bool is_read = node->op == UL_OP_MatMulInteger ? read_matmul(integers, sums)
                                                   : read_conv(integers, node, sums);
    return is_read && sums->is_constant && sums->terms > 0 && sums->terms <= NARROW_TERMS &&
           sums->channels > 0;
}

static struct ul_conv read_geometry(const struct ul_integers *integers, const struct ul_node *node)
{
    struct ul_conv conv;
    const char *wrong = ul_conv_read(&conv, node, &integers->graph->values[node->inputs[0]].type,
                                     &integers->graph->values[node->inputs[1]].type);
    UL_ASSERT(node->op == UL_OP_ConvInteger && wrong == NULL);
    return conv;
}

static bool is_padded(const struct ul_integers *integers, const struct ul_node *node)
{
    struct ul_conv conv = read_geometry(integers, node);
    for (uint32_t d = 0; d < conv.spatial; d++) {
        if (conv.pad_begin[d] > 0 || conv.pad_end[d] > 0)
            return true;
    }
    return false;
}

/* Whether it is a product, as a convolution of each pixel by itself is too. */
static bool is_product(const struct ul_integers *integers, const struct ul_node *node)
{
    if (node->op == UL_OP_MatMulInteger)
        return true;
    struct ul_conv conv = read_geometry(integers, node);
    bool all = conv.groups == 1 && !is_padded(integers, node);
    for (uint32_t d = 0; d < conv.spatial; d++)
        all = all && conv.kernel[d] == 1 && conv.stride[d] == 1;
    return all;
}

/* Whether the target's library forms these sums where x has a sign. It takes terms and channels by
 * fours. */
static bool wants_sign(const struct ul_integers *integers, const struct ul_node *node,
                       const struct sums *sums)
{
    enum { STEP = 4 };
    const struct ul_graph *graph = integers->graph;
    const struct ul_type *x = &graph->values[sums->x.x].type;
    uint64_t min = integers->pass->traits->signed_products;
    bool w_has_sign = graph->values[sums->w.x].type.dtype == UL_I8 ? are_all(&sums->w, 0)
                                                                   : are_all(&sums->w, MIDDLE);
    return min > 0 && is_product(integers, node) && x->dtype == UL_U8 && w_has_sign &&
           sums->terms % STEP == 0 && sums->channels % STEP == 0 &&
           ul_size_mul_saturating(ul_type_elements(x), sums->channels) >= min;
}

/* x - 128 as i8. */
static ul_value_id add_signed(struct ul_integers *integers, ul_value_id x)
{
    const ul_value_id terms[2] = {ul_integers_cast(integers, x, UL_I32),
                                  ul_build_number(integers->graph, "middle", UL_I32, 0, MIDDLE)};
    return ul_integers_cast(integers, ul_integers_add(integers, UL_OP_Sub, terms, 2, NULL), UL_I8);
}

/* Takes the zero-point of x, which is known or found at run time, out of sums over constant w:
 *
 *      sum of (x - zx) (w - zw)  =  sum of x (w - zw) - zx * sum of (w - zw)
 *
 * x and zx may both be less by 128. */
bool ul_integers_shift(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    ul_value_id zero = node.input_count > 2 ? node.inputs[2] : UL_NONE;
    struct sums sums = {.bias = UL_NONE};
    double number = 0;
    if (ul_node_find_attr(&node, "pad_value") != NULL || !read_weights(integers, &node, &sums))
        return false;
    bool is_known = zero == UL_NONE || ul_graph_get_number(graph, zero, &number);
    if (!is_known &&
        (ul_type_elements(&graph->values[zero].type) != 1 || graph->values[zero].type.rank > 1 ||
         (node.op == UL_OP_ConvInteger && is_padded(integers, &node))))
        return false;
    const struct ul_tensor *w = ul_graph_get_constant(graph, sums.base);
    if (zero == UL_NONE && (w->type.dtype != UL_U8 || !are_all(&sums.w, MIDDLE)))
        return false;
    bool signs = wants_sign(integers, &node, &sums);
    if (signs)
        sums.x.x = add_signed(integers, sums.x.x);
    number -= signs ? MIDDLE : 0;
    sums.offsets = UL_NEW_ARRAY(integers->pass->scratch, double, sums.channels);
    for (uint64_t i = 0; i < ul_type_elements(&w->type); i++) {
        uint32_t channel = channel_of(&sums, &w->type, i);
        sums.offsets[channel] -=
            (is_known ? number : 1) *
            (double)(ul_tensor_get_int(w, i) - ul_scaled_zero(&sums.w, scale_of(&sums, channel)));
    }
    if (is_known && number == 0)
        sums.channels = 0;
    /* The offset comes first: sums and what is added to them are one step. */
    ul_value_id offset =
        sums.channels == 0 ? UL_NONE : add_numbers(integers, &sums, "offset", UL_I32, sums.offsets);
    if (!is_known) {
        const ul_value_id factors[2] = {
            ul_integers_cast(integers, signs ? add_signed(integers, zero) : zero, UL_I32), offset};
        offset = ul_integers_add(integers, UL_OP_Mul, factors, 2, NULL);
    }
    ul_value_id sum = add_plain(integers, &node, &sums, is_known && !signs ? (int64_t)number : 0);
    if (offset == UL_NONE) {
        (void)ul_rewrite_forward(&integers->rewrite, node.outputs[0], sum);
        return true;
    }
    const ul_value_id terms[2] = {sum, offset};
    ul_integers_become(integers, id, UL_OP_Add, terms, 2, NULL);
    return true;
}
