/* SPDX-License-Identifier: Apache-2.0 */
/* Window functions and the mel weight matrix: maps of the index, in f64. */
#include "ir/ops/signal/signal.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"

#include <math.h>

#define PI 3.1415926535897932384626433832795

static enum ul_status output_dtype(const struct ul_infer *infer, enum ul_dtype *dtype)
{
    int64_t requested = ul_node_get_int(infer->node, "output_datatype", UL_F32);
    if (requested < 0 || requested >= UL_DTYPE_COUNT || (UL_CHECK_NUMBERS >> requested & 1u) == 0)
        return ul_infer_unsupported(infer, "output_datatype %lld is not a number's",
                                    (long long)requested);
    *dtype = (enum ul_dtype)requested;
    return UL_OK;
}

enum ul_status ul_infer_window(struct ul_infer *infer)
{
    enum ul_dtype dtype = UL_F32;
    UL_TRY(output_dtype(infer, &dtype));
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_INDEXES));
    int64_t size;
    UL_TRY(ul_check_int(infer, 0, 0, &size));
    UL_TRY(ul_check_range(infer, "the size of the window", size, 0, UL_LIMIT_DIM));
    ul_infer_set(infer, 0, dtype, 1, &size);
    return UL_OK;
}

/* `turns` * pi * i / n, where n is the size, or one less for a symmetric window. */
static ul_kx window_angle(struct ul_lower *lower, ul_node_id node, ul_kx index, double turns)
{
    struct ul_kernel *k = lower->kernel;
    bool periodic = ul_node_get_int(ul_check_node(lower, node), "periodic", 1) != 0;
    double size = (double)ul_lower_output_type(lower, node, 0)->dims[0];
    ul_kx i = ul_kx_mul(k, ul_kx_cast(k, UL_F64, index), ul_kx_float(k, UL_F64, turns * PI));
    return ul_kx_binary(k, UL_KX_DIV, i, ul_kx_float(k, UL_F64, periodic ? size : size - 1.0));
}

static ul_kx cast_out(struct ul_lower *lower, ul_node_id node, ul_kx x)
{
    enum ul_dtype dtype = ul_lower_output_type(lower, node, 0)->dtype;
    return ul_kx_cast(lower->kernel, ul_compute_dtype(dtype), x);
}

ul_kx ul_map_hann_window(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index)
{
    UL_ASSERT(output == 0);
    struct ul_kernel *k = lower->kernel;
    ul_kx sine = ul_kx_unary(k, UL_KX_SIN, window_angle(lower, node, index[0], 1.0));
    return cast_out(lower, node, ul_kx_mul(k, sine, sine));
}

/* amount * cos(turns * pi * i / n) */
static ul_kx cosine(struct ul_lower *lower, ul_node_id node, ul_kx index, double turns,
                    double amount)
{
    struct ul_kernel *k = lower->kernel;
    ul_kx angle = window_angle(lower, node, index, turns);
    return ul_kx_mul(k, ul_kx_unary(k, UL_KX_COS, angle), ul_kx_float(k, UL_F64, amount));
}

ul_kx ul_map_hamming_window(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    UL_ASSERT(output == 0);
    struct ul_kernel *k = lower->kernel;
    ul_kx wave = cosine(lower, node, index[0], 2.0, -21.0 / 46.0);
    return cast_out(lower, node, ul_kx_add(k, ul_kx_float(k, UL_F64, 25.0 / 46.0), wave));
}

ul_kx ul_map_blackman_window(struct ul_lower *lower, ul_node_id node, uint32_t output,
                             const ul_kx *index)
{
    UL_ASSERT(output == 0);
    struct ul_kernel *k = lower->kernel;
    ul_kx waves = ul_kx_add(k, cosine(lower, node, index[0], 2.0, -0.5),
                            cosine(lower, node, index[0], 4.0, 0.08));
    return cast_out(lower, node, ul_kx_add(k, ul_kx_float(k, UL_F64, 0.42), waves));
}

/* MelWeightMatrix */

enum { MEL_BINS, DFT_LENGTH, SAMPLE_RATE, LOWER_EDGE, UPPER_EDGE };

enum ul_status ul_infer_mel_weight_matrix(struct ul_infer *infer)
{
    enum ul_dtype dtype = UL_F32;
    UL_TRY(output_dtype(infer, &dtype));
    for (uint32_t i = 0; i < 5; i++) {
        UL_TRY(ul_check_dtype(infer, i, i < LOWER_EDGE ? UL_CHECK_INDEXES : UL_CHECK_FLOATS));
        UL_TRY(ul_check_scalar(infer, i));
    }
    int64_t bins;
    int64_t length;
    UL_TRY(ul_check_int(infer, MEL_BINS, 0, &bins));
    UL_TRY(ul_check_int(infer, DFT_LENGTH, 0, &length));
    UL_TRY(ul_check_range(infer, "num_mel_bins", bins, 0, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "dft_length", length, 0, UL_LIMIT_DIM));
    int64_t dims[] = {length / 2 + 1, bins};
    ul_infer_set(infer, 0, dtype, 2, dims);
    return UL_OK;
}

static ul_kx load_number(struct ul_lower *lower, ul_node_id node, uint32_t input)
{
    ul_kx zero = ul_kx_index_const(lower->kernel, 0);
    return ul_kx_cast(lower->kernel, UL_F64,
                      ul_lower_load(lower, ul_check_node(lower, node)->inputs[input], &zero));
}

static ul_kx mel_of(struct ul_kernel *k, ul_kx hertz)
{
    ul_kx ratio = ul_kx_binary(k, UL_KX_DIV, hertz, ul_kx_float(k, UL_F64, 700.0));
    ul_kx natural = ul_kx_unary(k, UL_KX_LOG1P, ratio);
    return ul_kx_mul(k, natural, ul_kx_float(k, UL_F64, 2595.0 / log(10.0)));
}

/* The spectrogram bin that edge `i` of the filters falls into. */
static ul_kx edge_bin(struct ul_lower *lower, ul_node_id node, ul_kx i)
{
    struct ul_kernel *k = lower->kernel;
    double bins = (double)ul_lower_output_type(lower, node, 0)->dims[1];
    int64_t length = ul_check_get_int(lower, node, DFT_LENGTH, 0);
    ul_kx low = mel_of(k, load_number(lower, node, LOWER_EDGE));
    ul_kx high = mel_of(k, load_number(lower, node, UPPER_EDGE));
    ul_kx step =
        ul_kx_binary(k, UL_KX_DIV, ul_kx_sub(k, high, low), ul_kx_float(k, UL_F64, bins + 2.0));
    ul_kx mel = ul_kx_add(k, ul_kx_mul(k, ul_kx_cast(k, UL_F64, i), step), low);
    ul_kx power = ul_kx_binary(k, UL_KX_POW, ul_kx_float(k, UL_F64, 10.0),
                               ul_kx_binary(k, UL_KX_DIV, mel, ul_kx_float(k, UL_F64, 2595.0)));
    ul_kx hertz = ul_kx_mul(k, ul_kx_sub(k, power, ul_kx_float(k, UL_F64, 1.0)),
                            ul_kx_float(k, UL_F64, 700.0));
    ul_kx scaled = ul_kx_mul(k, hertz, ul_kx_float(k, UL_F64, (double)length + 1.0));
    ul_kx bin = ul_kx_binary(k, UL_KX_DIV, scaled, load_number(lower, node, SAMPLE_RATE));
    return ul_kx_unary(k, UL_KX_FLOOR, bin);
}

/* A triangle from the left edge over the centre to the right edge; where left and centre share a
 * bin, that bin is 1. */
ul_kx ul_map_mel_weight_matrix(struct ul_lower *lower, ul_node_id node, uint32_t output,
                               const ul_kx *index)
{
    UL_ASSERT(output == 0);
    struct ul_kernel *k = lower->kernel;
    ul_kx zero = ul_kx_float(k, UL_F64, 0.0);
    ul_kx one = ul_kx_float(k, UL_F64, 1.0);
    ul_kx j = ul_kx_cast(k, UL_F64, index[0]);
    ul_kx left = edge_bin(lower, node, index[1]);
    ul_kx centre = edge_bin(lower, node, ul_kx_addi(k, index[1], 1));
    ul_kx right = edge_bin(lower, node, ul_kx_addi(k, index[1], 2));
    ul_kx up = ul_kx_binary(k, UL_KX_DIV, ul_kx_sub(k, j, left), ul_kx_sub(k, centre, left));
    ul_kx down = ul_kx_binary(k, UL_KX_DIV, ul_kx_sub(k, right, j), ul_kx_sub(k, right, centre));
    ul_kx rising = ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_LE, left, j),
                                ul_kx_binary(k, UL_KX_LE, j, centre));
    ul_kx falling = ul_kx_binary(k, UL_KX_AND, ul_kx_binary(k, UL_KX_LE, centre, j),
                                 ul_kx_binary(k, UL_KX_LT, j, right));
    ul_kx narrow = ul_kx_binary(k, UL_KX_EQ, left, centre);
    ul_kx x = ul_kx_select(k, rising, ul_kx_select(k, narrow, one, up), zero);
    return cast_out(lower, node, ul_kx_select(k, falling, down, x));
}
