/* SPDX-License-Identifier: Apache-2.0 */
/* DFT and STFT: Fourier transforms of lines of the input, and of windowed frames of a signal. The
 * last dimension is the real (size 1) or complex (size 2) number. */
#include "ir/ops/signal/signal.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/signal/signal_fft.h"

/* Keeps the squares of positions far inside int64_t. */
#define MAX_LENGTH ((int64_t)1 << 30)

enum { SIGNAL, DFT_LENGTH, DFT_AXIS };
enum { FRAME_STEP = 1, WINDOW, FRAME_LENGTH };

static enum ul_status check_signal(const struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, SIGNAL);
    UL_TRY(ul_check_dtype(infer, SIGNAL, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, SIGNAL, 2, UL_LIMIT_RANK));
    return ul_check_range(infer, "the last dimension of the signal, real or complex,",
                          type->dims[type->rank - 1], 1, 2);
}

/* DFT */

static bool is_set(const struct ul_node *node, const char *name, int64_t otherwise)
{
    return ul_node_get_int(node, name, otherwise) != 0;
}

enum ul_status ul_infer_dft(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, SIGNAL);
    UL_TRY(check_signal(infer));
    UL_TRY(ul_check_dtype(infer, DFT_LENGTH, UL_CHECK_INDEXES));
    UL_TRY(ul_check_dtype(infer, DFT_AXIS, UL_CHECK_INDEXES));
    int64_t requested;
    UL_TRY(ul_check_int(infer, DFT_AXIS, -2, &requested));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, requested, type->rank, &axis));
    if (axis == type->rank - 1)
        return ul_infer_invalid(infer, "the last dimension holds the parts of a complex number; "
                                       "it cannot be the axis");
    bool inverse = is_set(infer->node, "inverse", 0);
    bool onesided = is_set(infer->node, "onesided", 0);
    int64_t length = type->dims[axis];
    if (inverse && onesided)
        length = 2 * (length - 1);
    UL_TRY(ul_check_int(infer, DFT_LENGTH, length, &length));
    UL_TRY(ul_check_range(infer, "the length of the transform", length, 1, MAX_LENGTH));
    struct ul_type out = *type;
    out.dims[axis] = onesided && !inverse ? length / 2 + 1 : length;
    out.dims[type->rank - 1] = onesided && inverse ? 1 : 2;
    ul_infer_set_type(infer, 0, &out);
    return UL_OK;
}

struct dft {
    struct ul_lower *lower;
    const struct ul_node *node;
    const struct ul_type *in, *out;
    uint32_t axis;
    struct ul_fft fft;
    ul_kx index[UL_LIMIT_RANK];
};

/* Loads element `at` of the line as a complex number in the compute type, through `index`. */
static void load_complex(struct ul_lower *lower, ul_value_id value, const struct ul_type *type,
                         ul_kx *index, ul_kx *parts)
{
    struct ul_kernel *k = lower->kernel;
    uint32_t last = type->rank - 1;
    parts[1] = ul_kx_float(k, ul_compute_dtype(type->dtype), 0.0);
    for (int64_t part = 0; part < type->dims[last]; part++) {
        index[last] = ul_kx_index_const(k, part);
        parts[part] = ul_lower_load(lower, value, index);
    }
}

/* Stores zeros from `begin` to the end of the line. */
static void put_zeros(const struct ul_fft *fft, int64_t begin)
{
    struct ul_kernel *k = fft->lower->kernel;
    if (begin >= fft->length)
        return;
    ul_kx zero = ul_kx_float(k, fft->dtype, 0.0);
    ul_kx at = ul_ks_for(k, fft->length - begin, 0);
    ul_fft_put(fft, ul_kx_addi(k, at, begin), zero, zero);
    ul_ks_end(k);
}

/* Stores the line, cut or filled with zeros; `mirrored`: the input is the first half plus one, and
 * the rest is its conjugate, backwards. */
static void put_line(struct dft *d, bool mirrored)
{
    struct ul_kernel *k = d->lower->kernel;
    int64_t length = d->fft.length;
    int64_t wanted = mirrored ? length / 2 + 1 : length;
    int64_t given = d->in->dims[d->axis] < wanted ? d->in->dims[d->axis] : wanted;
    ul_kx parts[2];
    put_zeros(&d->fft, given);
    ul_kx at = ul_ks_for(k, given, 0);
    d->index[d->axis] = at;
    load_complex(d->lower, d->node->inputs[SIGNAL], d->in, d->index, parts);
    ul_fft_put(&d->fft, at, parts[0], parts[1]);
    ul_ks_end(k);
    if (!mirrored)
        return;
    /* Stores element length - t, for each t in [1, length / 2] that has such an element. */
    int64_t mirror = (length - 1) / 2 < given - 1 ? (length - 1) / 2 : given - 1;
    ul_kx t = ul_kx_addi(k, ul_ks_for(k, mirror > 0 ? mirror : 0, 0), 1);
    d->index[d->axis] = t;
    load_complex(d->lower, d->node->inputs[SIGNAL], d->in, d->index, parts);
    ul_fft_put(&d->fft, ul_kx_sub(k, ul_kx_index_const(k, length), t), parts[0],
               ul_kx_unary(k, UL_KX_NEG, parts[1]));
    ul_ks_end(k);
}

/* Stores elements [0, count) of the line and its parts, divided by its length if `scaled`. */
static void store_line(struct dft *d, ul_kx *index, bool scaled)
{
    struct ul_kernel *k = d->lower->kernel;
    uint32_t last = d->out->rank - 1;
    ul_kx at = ul_ks_for(k, d->out->dims[d->axis], 0);
    index[d->axis] = at;
    ul_kx length = ul_kx_float(k, d->fft.dtype, (double)d->fft.length);
    for (int64_t part = 0; part < d->out->dims[last]; part++) {
        ul_kx x = part == 0 ? ul_fft_real(&d->fft, at) : ul_fft_imaginary(&d->fft, at);
        if (scaled)
            x = ul_kx_binary(k, UL_KX_DIV, x, length);
        index[last] = ul_kx_index_const(k, part);
        ul_lower_store(d->lower, d->node->outputs[0], index, x);
    }
    ul_ks_end(k);
}

void ul_lower_dft(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct dft d = {.lower = lower, .node = ul_check_node(lower, node)};
    d.in = ul_lower_input_type(lower, node, SIGNAL);
    d.out = ul_lower_output_type(lower, node, 0);
    int64_t axis = -2;
    if (ul_lower_has_input(lower, node, DFT_AXIS))
        axis = ul_check_get_int(lower, node, DFT_AXIS, 0);
    d.axis = ul_check_get_axis(axis, d.in->rank);
    bool inverse = is_set(d.node, "inverse", 0);
    bool onesided = is_set(d.node, "onesided", 0);
    int64_t length = d.in->dims[d.axis];
    if (inverse && onesided)
        length = 2 * (length - 1);
    if (ul_lower_has_input(lower, node, DFT_LENGTH))
        length = ul_check_get_int(lower, node, DFT_LENGTH, 0);
    ul_fft_init(&d.fft, lower, ul_compute_dtype(d.in->dtype), length, inverse);
    for (uint32_t i = 0; i + 1 < d.in->rank; i++) {
        if (i != d.axis)
            d.index[i] = ul_ks_for(k, d.in->dims[i], 0);
    }
    put_line(&d, inverse && onesided);
    ul_fft_run(&d.fft);
    store_line(&d, d.index, inverse);
    for (uint32_t i = 0; i + 2 < d.in->rank; i++)
        ul_ks_end(k);
}

/* STFT */

/* The length of a frame, from the input, the window or the whole signal. */
static enum ul_status frame_length(const struct ul_infer *infer, int64_t *length)
{
    const struct ul_type *window = ul_infer_input(infer, WINDOW);
    *length = window != NULL ? window->dims[0] : ul_infer_input(infer, SIGNAL)->dims[1];
    UL_TRY(ul_check_int(infer, FRAME_LENGTH, *length, length));
    int64_t max = ul_infer_input(infer, SIGNAL)->dims[1];
    UL_TRY(
        ul_check_range(infer, "the frame length", *length, 1, max < MAX_LENGTH ? max : MAX_LENGTH));
    if (window == NULL)
        return UL_OK;
    return ul_check_range(infer, "the length of the window", window->dims[0], 1, *length);
}

enum ul_status ul_infer_stft(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, SIGNAL);
    UL_TRY(ul_check_rank(infer, SIGNAL, 3, 3));
    UL_TRY(check_signal(infer));
    UL_TRY(ul_check_rank(infer, WINDOW, 1, 1));
    UL_TRY(ul_check_same_dtype(infer, SIGNAL, WINDOW));
    int64_t step;
    UL_TRY(ul_check_int(infer, FRAME_STEP, 0, &step));
    UL_TRY(ul_check_range(infer, "the frame step", step, 1, UL_LIMIT_DIM));
    int64_t length;
    UL_TRY(frame_length(infer, &length));
    int64_t bins = is_set(infer->node, "onesided", 1) ? length / 2 + 1 : length;
    int64_t dims[] = {type->dims[0], (type->dims[1] - length) / step + 1, bins, 2};
    ul_infer_set(infer, 0, type->dtype, 4, dims);
    return UL_OK;
}

/* Stores frame `frame` of the signal, times the window, with zeros where the window ends before the
 * frame. */
static void put_frame(struct dft *d, ul_node_id node, ul_kx frame, int64_t step)
{
    struct ul_lower *lower = d->lower;
    struct ul_kernel *k = lower->kernel;
    bool has_window = ul_lower_has_input(lower, node, WINDOW);
    int64_t given = has_window ? ul_lower_input_type(lower, node, WINDOW)->dims[0] : d->fft.length;
    put_zeros(&d->fft, given);
    ul_kx at = ul_ks_for(k, given, 0);
    ul_kx signal_index[3] = {d->index[0], ul_kx_add(k, ul_kx_muli(k, frame, step), at)};
    ul_kx parts[2];
    load_complex(lower, d->node->inputs[SIGNAL], d->in, signal_index, parts);
    if (has_window) {
        ul_kx weight = ul_ks_let(k, ul_lower_load(lower, d->node->inputs[WINDOW], &at));
        parts[0] = ul_kx_mul(k, parts[0], weight);
        parts[1] = ul_kx_mul(k, parts[1], weight);
    }
    ul_fft_put(&d->fft, at, parts[0], parts[1]);
    ul_ks_end(k);
}

void ul_lower_stft(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    struct dft d = {.lower = lower, .node = ul_check_node(lower, node), .axis = 2};
    d.in = ul_lower_input_type(lower, node, SIGNAL);
    d.out = ul_lower_output_type(lower, node, 0);
    int64_t length = d.in->dims[1];
    if (ul_lower_has_input(lower, node, WINDOW))
        length = ul_lower_input_type(lower, node, WINDOW)->dims[0];
    if (ul_lower_has_input(lower, node, FRAME_LENGTH))
        length = ul_check_get_int(lower, node, FRAME_LENGTH, 0);
    ul_fft_init(&d.fft, lower, ul_compute_dtype(d.in->dtype), length, false);
    d.index[0] = ul_ks_for(k, d.out->dims[0], 0);
    d.index[1] = ul_ks_for(k, d.out->dims[1], 0);
    put_frame(&d, node, d.index[1], ul_check_get_int(lower, node, FRAME_STEP, 0));
    ul_fft_run(&d.fft);
    store_line(&d, d.index, false);
    ul_ks_end(k);
    ul_ks_end(k);
}
