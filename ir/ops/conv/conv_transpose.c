/* SPDX-License-Identifier: Apache-2.0 */
/* ConvTranspose without atomics, gathered by output element.
 *
 * Output o takes input i through kernel position k where i * stride = o + pad - k * dilation. So
 * the outputs of one phase r = (o + pad) mod stride share their kernel positions: with
 * g = gcd(stride, dilation), none unless g divides r, and otherwise k = first + t * (stride / g).
 * Each phase is a contraction of its own while there are few; many phases (a large stride) become
 * one plain loop nest that finds its phase as it runs.
 */
#include "ir/kernel_build.h"
#include "ir/ops/conv/conv.h"
#include "ir/ops/quant/quant.h"

#define MAX_PHASES 16 /* contractions that one node may be printed as */

enum ul_status ul_infer_conv_transpose(struct ul_infer *infer)
{
    return ul_conv_infer(infer, ul_conv_transpose_read);
}

enum ul_status ul_infer_conv_transpose_integer(struct ul_infer *infer)
{
    struct ul_conv conv;
    UL_TRY(ul_quant_check_operand(infer, 0, 2));
    UL_TRY(ul_quant_check_operand(infer, 1, 3));
    const char *wrong = ul_conv_transpose_read(&conv, infer->node, ul_infer_input(infer, 0),
                                               ul_infer_input(infer, 1));
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    for (uint32_t zero = 2; zero < 4; zero++) {
        const struct ul_type *type = ul_infer_input(infer, zero);
        if (type != NULL && ul_type_elements(type) != 1)
            return ul_infer_unsupported(infer, "zero-points must be one number");
    }
    struct ul_type type = ul_conv_result(&conv, ul_quant_sum_dtype(infer->node));
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* One phase of one dimension. */
struct phase {
    int64_t first_out, out_count; /* outputs first_out + q * stride */
    int64_t first_tap, tap_count; /* kernel positions first_tap + t * tap_step */
    int64_t tap_step;
    int64_t first_in, in_step; /* input first_in + q - t * in_step */
};

static struct phase phase_of(const struct ul_conv *conv, uint32_t d, int64_t remainder)
{
    int64_t stride = conv->stride[d], dilation = conv->dilation[d], g = ul_gcd(stride, dilation);
    struct phase phase = {.tap_step = stride / g, .in_step = dilation / g};
    int64_t shift = (remainder - conv->pad_begin[d]) % stride;
    phase.first_out = shift < 0 ? shift + stride : shift;
    if (phase.first_out < conv->out[d])
        phase.out_count = (conv->out[d] - 1 - phase.first_out) / stride + 1;
    if (remainder % g != 0)
        return phase;
    int64_t tap = 0;
    while (tap < phase.tap_step && (remainder - tap * dilation) % stride != 0)
        tap++;
    UL_ASSERT(tap < phase.tap_step);
    phase.first_tap = tap;
    if (tap < conv->kernel[d])
        phase.tap_count = (conv->kernel[d] - 1 - tap) / phase.tap_step + 1;
    phase.first_in = (phase.first_out + conv->pad_begin[d] - tap * dilation) / stride;
    return phase;
}

struct transposed {
    struct ul_lower *lower;
    ul_node_id node;
    struct ul_conv conv;
    ul_kx batch, group;
    bool is_integer; /* inputs 2 and 3 are zero-points; else input 2 is the bias */
};

/* The zero-point of operand `input`, or UL_NONE. */
static ul_value_id zero_of(const struct transposed *t, uint32_t input)
{
    bool has = t->is_integer && ul_lower_has_input(t->lower, t->node, 2 + input);
    return has ? t->lower->graph->nodes[t->node].inputs[2 + input] : UL_NONE;
}

static void fill_operands(const struct transposed *t, struct ul_contraction *contraction,
                          const struct phase *phases)
{
    struct ul_kernel *kernel = t->lower->kernel;
    const struct ul_conv *conv = &t->conv;
    const ul_value_id *inputs = t->lower->graph->nodes[t->node].inputs;
    int64_t in[2 + UL_CONV_SPATIAL][UL_CONTRACT_DIMS] = {{0}};
    int64_t weight[2 + UL_CONV_SPATIAL][UL_CONTRACT_DIMS] = {{0}};
    uint32_t n0 = 1, k0 = 1 + conv->spatial;
    ul_kx channel = ul_kx_muli(kernel, t->group, conv->in_channels);
    ul_kx in_base[2 + UL_CONV_SPATIAL] = {t->batch, channel};
    ul_kx weight_base[2 + UL_CONV_SPATIAL] = {channel, ul_kx_index_const(kernel, 0)};
    weight[0][k0] = in[1][k0] = 1;
    weight[1][0] = 1;
    uint32_t checked = 0;
    for (uint32_t d = 0; d < conv->spatial; d++) {
        const struct phase *p = &phases[d];
        in_base[2 + d] = ul_kx_index_const(kernel, p->first_in);
        weight_base[2 + d] = ul_kx_index_const(kernel, p->first_tap);
        in[2 + d][n0 + d] = 1;
        in[2 + d][k0 + 1 + d] = -p->in_step;
        weight[2 + d][k0 + 1 + d] = p->tap_step;
        int64_t min = p->first_in - (p->tap_count - 1) * p->in_step;
        int64_t max = p->first_in + p->out_count - 1;
        checked |= min < 0 || max >= conv->in[d] ? 1u << (2 + d) : 0;
    }
    ul_lower_operand(t->lower, contraction, &contraction->a, inputs[1], weight_base, weight, 0, 0);
    ul_lower_operand(t->lower, contraction, &contraction->b, inputs[0], in_base, in, checked, 0);
    if (zero_of(t, 1) != UL_NONE)
        ul_operand_subtract(t->lower, contraction, &contraction->a, zero_of(t, 1), channel);
    if (zero_of(t, 0) != UL_NONE)
        ul_operand_subtract(t->lower, contraction, &contraction->b, zero_of(t, 0), channel);
}

static void store_result(const struct transposed *t, const ul_kx *index, ul_kx sum)
{
    if (!t->is_integer)
        sum = ul_conv_add_bias(t->lower, t->node, 2, index[1], sum);
    ul_lower_store(t->lower, t->lower->graph->nodes[t->node].outputs[0], index, sum);
}

/* Outputs that no kernel position reaches: these have the bias alone. */
static void lower_empty_phase(const struct transposed *t, const struct phase *phases,
                              enum ul_dtype dtype)
{
    struct ul_kernel *kernel = t->lower->kernel;
    const struct ul_conv *conv = &t->conv;
    ul_kx index[2 + UL_CONV_SPATIAL] = {t->batch};
    index[1] = ul_kx_add(kernel, ul_kx_muli(kernel, t->group, conv->out_channels),
                         ul_ks_for(kernel, conv->out_channels, UL_FOR_PARALLEL));
    for (uint32_t d = 0; d < conv->spatial; d++) {
        ul_kx q = ul_ks_for(kernel, phases[d].out_count, UL_FOR_PARALLEL);
        index[2 + d] =
            ul_kx_addi(kernel, ul_kx_muli(kernel, q, conv->stride[d]), phases[d].first_out);
    }
    store_result(t, index, ul_kx_number(kernel, dtype, 0));
    for (uint32_t d = 0; d <= conv->spatial; d++)
        ul_ks_end(kernel);
}

static void lower_outputs(const struct transposed *t, const struct phase *phases,
                          enum ul_dtype dtype)
{
    struct ul_kernel *kernel = t->lower->kernel;
    const struct ul_conv *conv = &t->conv;
    int64_t n_extents[UL_CONV_SPATIAL], k_extents[1 + UL_CONV_SPATIAL] = {conv->in_channels};
    bool empty = false;
    for (uint32_t d = 0; d < conv->spatial; d++) {
        n_extents[d] = phases[d].out_count;
        k_extents[1 + d] = phases[d].tap_count;
        empty |= phases[d].tap_count == 0;
    }
    if (empty) {
        lower_empty_phase(t, phases, dtype);
        return;
    }
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, dtype, &conv->out_channels, 1, n_extents,
                        conv->spatial, k_extents, 1 + conv->spatial);
    fill_operands(t, &contraction, phases);
    ul_kx index[2 + UL_CONV_SPATIAL] = {t->batch};
    index[1] = ul_kx_add(kernel, ul_kx_muli(kernel, t->group, conv->out_channels),
                         ul_kx_var(kernel, contraction.vars[0]));
    for (uint32_t d = 0; d < conv->spatial; d++) {
        ul_kx q = ul_kx_var(kernel, contraction.vars[1 + d]);
        index[2 + d] =
            ul_kx_addi(kernel, ul_kx_muli(kernel, q, conv->stride[d]), phases[d].first_out);
    }
    ul_ks_contract(kernel, &contraction);
    store_result(t, index, ul_kx_var(kernel, contraction.acc));
    ul_ks_end(kernel);
}

static void open_groups(struct transposed *t)
{
    t->batch = ul_ks_for(t->lower->kernel, t->conv.batch, UL_FOR_PARALLEL);
    t->group = ul_ks_for(t->lower->kernel, t->conv.groups, UL_FOR_PARALLEL);
}

static void close_groups(const struct transposed *t)
{
    ul_ks_end(t->lower->kernel);
    ul_ks_end(t->lower->kernel);
}

/* Whether the phase has outputs: it has none where there are fewer rows than the stride, which
 * happens in a slice. */
static bool has_outputs(const struct ul_conv *conv, const struct phase *phases)
{
    for (uint32_t d = 0; d < conv->spatial; d++) {
        if (phases[d].out_count == 0)
            return false;
    }
    return true;
}

/* On a device, a contraction that is alone in its loops is a launch of its own with a block for
 * each tile; a launch for several would have a block for each image. */
static void lower_phase(struct transposed *t, const struct phase *phases, enum ul_dtype dtype)
{
    bool is_apart = t->lower->traits->memory_is_separate;
    if (is_apart)
        open_groups(t);
    lower_outputs(t, phases, dtype);
    if (is_apart)
        close_groups(t);
}

static void lower_phases(struct transposed *t, enum ul_dtype dtype)
{
    const struct ul_conv *conv = &t->conv;
    int64_t remainder[UL_CONV_SPATIAL] = {0};
    bool is_apart = t->lower->traits->memory_is_separate;
    uint32_t d;
    if (!is_apart)
        open_groups(t);
    do {
        struct phase phases[UL_CONV_SPATIAL];
        for (d = 0; d < conv->spatial; d++)
            phases[d] = phase_of(conv, d, remainder[d]);
        if (has_outputs(conv, phases))
            lower_phase(t, phases, dtype);
        for (d = 0; d < conv->spatial; d++) {
            if (++remainder[d] < conv->stride[d])
                break;
            remainder[d] = 0;
        }
    } while (d < conv->spatial);
    if (!is_apart)
        close_groups(t);
}

/* One dimension of the plain loops at output `o`: opens the loop over kernel positions and gives
 * the position, the input coordinate and whether both exist. Only one in `tap_step` positions can
 * match; the loop visits the candidates first + t * tap_step. */
static void open_taps(const struct transposed *t, uint32_t d, ul_kx o, ul_kx *tap, ul_kx *in,
                      ul_kx *valid)
{
    struct ul_kernel *kernel = t->lower->kernel;
    const struct ul_conv *conv = &t->conv;
    int64_t stride = conv->stride[d], dilation = conv->dilation[d];
    ul_kx shifted = ul_kx_addi(kernel, o, conv->pad_begin[d]);
    int64_t step = 1;
    ul_kx first = ul_kx_index_const(kernel, 0);
    if (dilation == 1) {
        step = stride;
        first = ul_kx_modi(kernel, shifted, stride);
    }
    ul_kx counter = ul_ks_for(kernel, (conv->kernel[d] - 1) / step + 1, UL_FOR_REDUCE);
    ul_kx k = ul_kx_add(kernel, first, ul_kx_muli(kernel, counter, step));
    ul_kx distance = ul_kx_sub(kernel, shifted, ul_kx_muli(kernel, k, dilation));
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx i = ul_kx_divi(kernel, distance, stride);
    ul_kx inside[] = {
        ul_kx_binary(kernel, UL_KX_LT, k, ul_kx_index_const(kernel, conv->kernel[d])),
        ul_kx_binary(kernel, UL_KX_LE, zero, distance),
        ul_kx_binary(kernel, UL_KX_LT, i, ul_kx_index_const(kernel, conv->in[d])),
        ul_kx_binary(kernel, UL_KX_EQ, ul_kx_modi(kernel, distance, stride), zero),
    };
    for (uint32_t c = 0; c < 4; c++)
        *valid = *valid == UL_NONE ? inside[c] : ul_kx_binary(kernel, UL_KX_AND, *valid, inside[c]);
    *tap = ul_kx_clamp(kernel, k, conv->kernel[d] - 1);
    *in = ul_kx_clamp(kernel, i, conv->in[d] - 1);
}

static void lower_plain(const struct transposed *t, enum ul_dtype dtype)
{
    struct ul_kernel *kernel = t->lower->kernel;
    const struct ul_conv *conv = &t->conv;
    const ul_value_id *inputs = t->lower->graph->nodes[t->node].inputs;
    ul_kx m = ul_ks_for(kernel, conv->out_channels, UL_FOR_PARALLEL);
    ul_kx index[2 + UL_CONV_SPATIAL] = {t->batch};
    index[1] = ul_kx_add(kernel, ul_kx_muli(kernel, t->group, conv->out_channels), m);
    for (uint32_t d = 0; d < conv->spatial; d++)
        index[2 + d] = ul_ks_for(kernel, conv->out[d], UL_FOR_PARALLEL);
    uint32_t sum = ul_ks_var(kernel, dtype, ul_kx_number(kernel, dtype, 0));
    ul_kx channel = ul_kx_add(kernel, ul_kx_muli(kernel, t->group, conv->in_channels),
                              ul_ks_for(kernel, conv->in_channels, UL_FOR_REDUCE));
    ul_kx in[2 + UL_CONV_SPATIAL] = {t->batch, channel};
    ul_kx tap[2 + UL_CONV_SPATIAL] = {channel, m};
    ul_kx valid = UL_NONE;
    for (uint32_t d = 0; d < conv->spatial; d++)
        open_taps(t, d, index[2 + d], &tap[2 + d], &in[2 + d], &valid);
    ul_ks_if(kernel, valid);
    ul_kx x = ul_kx_cast(kernel, dtype, ul_lower_load(t->lower, inputs[0], in));
    ul_kx w = ul_kx_cast(kernel, dtype, ul_lower_load(t->lower, inputs[1], tap));
    if (zero_of(t, 0) != UL_NONE)
        x = ul_kx_binary(kernel, UL_KX_SUB, x,
                         ul_kx_cast(kernel, dtype, ul_lower_load_scalar(t->lower, zero_of(t, 0))));
    if (zero_of(t, 1) != UL_NONE)
        w = ul_kx_binary(kernel, UL_KX_SUB, w,
                         ul_kx_cast(kernel, dtype, ul_lower_load_scalar(t->lower, zero_of(t, 1))));
    ul_ks_set(kernel, sum, ul_kx_fma(kernel, x, w, ul_kx_var(kernel, sum)));
    ul_ks_end(kernel);
    for (uint32_t d = 0; d <= conv->spatial; d++)
        ul_ks_end(kernel);
    store_result(t, index, ul_kx_var(kernel, sum));
    for (uint32_t d = 0; d <= conv->spatial; d++)
        ul_ks_end(kernel);
}

static void lower_transposed(struct ul_lower *lower, ul_node_id node, bool is_integer)
{
    const struct ul_type *x = ul_lower_input_type(lower, node, 0);
    struct transposed t = {.lower = lower, .node = node, .is_integer = is_integer};
    const char *wrong = ul_conv_transpose_read(&t.conv, &lower->graph->nodes[node], x,
                                               ul_lower_input_type(lower, node, 1));
    UL_ASSERT(wrong == NULL);
    enum ul_dtype dtype = ul_compute_dtype(ul_lower_output_type(lower, node, 0)->dtype);
    int64_t phases = 1;
    for (uint32_t d = 0; d < t.conv.spatial && phases <= MAX_PHASES; d++)
        phases *= t.conv.stride[d] <= MAX_PHASES ? t.conv.stride[d] : MAX_PHASES + 1;
    if (phases <= MAX_PHASES) {
        lower_phases(&t, dtype);
        return;
    }
    open_groups(&t);
    lower_plain(&t, dtype);
    close_groups(&t);
}

void ul_lower_conv_transpose(struct ul_lower *lower, ul_node_id node)
{
    lower_transposed(lower, node, false);
}

void ul_lower_conv_transpose_integer(struct ul_lower *lower, ul_node_id node)
{
    lower_transposed(lower, node, true);
}
