/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by ul_nbits.c against plain sums in double: random axes, windows, steps, padding and
   groups, channels side by side or apart, weights that are integers of 8 bits or floats of 8 and 16
   bits. A call writes its result and its scratch, nothing else, and its bits do not depend on the
   number of threads. */
#define _POSIX_C_SOURCE 200809L

#include "ul_nbits.h"
#include "ul_pack.h"
#include "ul_small_float.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { FENCE = 64, MOST = 1 << 16 };

static uint64_t random_state = 5;

static int64_t pick(int64_t low, int64_t high)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

static float pick_float(void)
{
    return (float)pick(-8388608, 8388608) / 8388608.0f;
}

struct trial {
    struct ul_call call;
    struct ul_nbits_window window;
    int64_t src_count, dst_count;
    float src[MOST], sums[MOST]; /* sums: what is added to the result */
    float bias[256], scales[256];
    unsigned char zeros[256], codes[2 * MOST];
};

/* Dims are set; channels side by side (maybe with others between), or as models have them. */
static int64_t lay_out(struct ul_call_tensor *tensor)
{
    int64_t stride = 1;
    if (pick(0, 2) > 0) {
        tensor->strides[1] = 1;
        stride = tensor->dims[1] + pick(0, 1) * 3;
        for (uint32_t d = tensor->rank; d-- > 2; stride *= tensor->dims[d])
            tensor->strides[d] = stride;
        tensor->strides[0] = stride;
        return stride * tensor->dims[0];
    }
    for (uint32_t d = tensor->rank; d-- > 0; stride *= tensor->dims[d])
        tensor->strides[d] = stride;
    return stride;
}

static int is_small_float(enum ul_call_type type)
{
    return type == UL_CALL_F8E4M3FN || type == UL_CALL_F8E5M2;
}

static unsigned char pick_byte(enum ul_call_type type)
{
    const float number = pick_float() * (pick(0, 3) == 0 ? 1e-3f : 1); /* some are subnormal */
    return type == UL_CALL_F8E4M3FN ? ul_f32_to_f8e4m3fn(number, 1)
           : type == UL_CALL_F8E5M2 ? ul_f32_to_f8e5m2(number, 1)
                                    : (unsigned char)pick(0, 255);
}

static void make_codes(struct trial *trial, int64_t count)
{
    static const enum ul_call_type types[] = {UL_CALL_F16, UL_CALL_BF16,     UL_CALL_U8,
                                              UL_CALL_I8,  UL_CALL_F8E4M3FN, UL_CALL_F8E5M2};
    struct ul_call_nbits *nbits = &trial->call.nbits;
    nbits->code_type = types[pick(0, 5)];
    nbits->bits = nbits->code_type <= UL_CALL_BF16 ? 16 : 8;
    const int is_integer = nbits->bits == 8 && !is_small_float(nbits->code_type);
    nbits->zero = nbits->code_type == UL_CALL_I8 ? 128 : is_integer ? (uint32_t)pick(0, 9) : 0;
    nbits->zeros = is_integer && pick(0, 1) == 0 ? UL_NBITS_PACKED : UL_NBITS_FIXED;
    nbits->block = ul_nbits_depth(&trial->call);
    for (int64_t i = 0; i < count; i++) {
        const float number = pick_float();
        const uint16_t half =
            nbits->code_type == UL_CALL_F16 ? ul_f32_to_f16(number) : ul_f32_to_bf16(number);
        if (nbits->bits == 16)
            memcpy(trial->codes + i * 2, &half, 2);
        else
            trial->codes[i] = pick_byte(nbits->code_type);
    }
}

static void make_window(struct ul_call *call)
{
    const uint32_t axes = (uint32_t)pick(1, 3), of_group = call->group_count > 1 ? 1 : 0;
    call->src.rank = call->dst.rank = axes + 2;
    call->weights.rank = axes + 2 + of_group;
    call->src.dims[0] = call->dst.dims[0] = pick(1, 3);
    for (uint32_t a = 0; a < axes; a++) {
        const int64_t in = pick(1, axes == 1 ? 90 : axes == 2 ? 12 : 5);
        const int64_t dilation = pick(1, 2), step = pick(1, 2), kernel = pick(1, 3);
        const int64_t pad = pick(0, 2), end = pick(0, 2), reach = (kernel - 1) * dilation + 1;
        const int64_t more = in + pad + end < reach ? reach - in - pad - end : 0;
        call->src.dims[2 + a] = in;
        call->weights.dims[2 + of_group + a] = kernel;
        call->dst.dims[2 + a] = (in + pad + end + more - reach) / step + 1;
        call->steps[a] = step;
        call->dilations[a] = dilation;
        call->pads[a] = pad;
        call->pads[axes + a] = end + more;
    }
}

static void make_trial(struct trial *trial)
{
    struct ul_call *call = &trial->call;
    memset(trial, 0, sizeof *trial);
    call->kind = UL_CALL_NBITS;
    call->group_count = pick(0, 2) == 0 ? (uint32_t)pick(2, 3) : 1;
    const uint32_t of_group = call->group_count > 1 ? 1 : 0;
    const int64_t groups = call->group_count;
    make_window(call);
    call->weights.dims[0] = groups;
    call->weights.dims[of_group] = of_group ? pick(1, 3) * 16 : pick(2, 9) * 16 - pick(0, 2);
    call->weights.dims[of_group + 1] = pick(0, 5) == 0 ? 264 / groups / 4 * 4 : 4 * pick(4, 9);
    call->src.dims[1] = groups * call->weights.dims[of_group + 1];
    call->dst.dims[1] = groups * call->weights.dims[of_group];
    trial->src_count = lay_out(&call->src);
    trial->dst_count = lay_out(&call->dst);
    ul_nbits_window_init(&trial->window, call);
    call->nbits.scale = pick(0, 3) == 0 ? 0.25f : 0;
    call->bias.rank = (uint32_t)pick(0, 1);
    call->post_count = 2;
    call->posts[0] = (struct ul_post){.kind = UL_POST_ADD, .tensor = call->dst};
    call->posts[1] = (struct ul_post){.kind = UL_POST_RELU};
    if (pick(0, 1) == 0) /* one for each channel of each image */
        for (uint32_t d = 2; d < call->dst.rank; d++)
            call->posts[0].tensor.dims[d] = 1;
    for (int64_t i = 0; i < MOST; i++) {
        trial->src[i] = pick_float();
        trial->sums[i] = pick_float();
    }
    for (int64_t i = 0; i < 256; i++) {
        trial->bias[i] = pick_float();
        trial->scales[i] = pick_float();
        trial->zeros[i] = (unsigned char)pick(0, 255);
    }
}

/* It has room, and what it computes is taken; then it gets its weights. */
static int take_weights(struct trial *trial)
{
    const int64_t count = ul_nbits_depth(&trial->call) * trial->call.dst.dims[1];
    if (count > MOST)
        return 0;
    make_codes(trial, count);
    return trial->src_count <= MOST && trial->dst_count + FENCE <= MOST &&
           trial->call.dst.dims[1] <= 256 && ul_nbits_supports(&trial->call);
}

/* ---- as it should be ---- */

static double weight(const struct trial *trial, int64_t column, int64_t channel, int64_t tap)
{
    const struct ul_call_nbits *nbits = &trial->call.nbits;
    const int64_t at = (column * trial->window.channels + channel) * trial->window.taps + tap;
    const int is_signed = nbits->code_type == UL_CALL_I8;
    const double scale = nbits->scale != 0 ? (double)nbits->scale : (double)trial->scales[column];
    uint16_t half;
    memcpy(&half, trial->codes + at * 2, nbits->bits == 16 ? 2 : 0);
    if (nbits->bits == 16)
        return scale * (double)(nbits->code_type == UL_CALL_F16 ? ul_f16_to_f32(half)
                                                                : ul_bf16_to_f32(half));
    if (nbits->code_type == UL_CALL_F8E4M3FN)
        return scale * (double)ul_f8e4m3fn_to_f32(trial->codes[at]);
    if (nbits->code_type == UL_CALL_F8E5M2)
        return scale * (double)ul_f8e5m2_to_f32(trial->codes[at]);
    double zero = is_signed ? 0 : nbits->zero;
    if (nbits->zeros == UL_NBITS_PACKED)
        zero = is_signed ? (double)(int8_t)trial->zeros[column] : (double)trial->zeros[column];
    return scale *
           ((is_signed ? (double)(int8_t)trial->codes[at] : (double)trial->codes[at]) - zero);
}

/* The sum of one element of the result, and the size of what is added. */
static double sum_at(const struct trial *trial, const int64_t place[4], int64_t column,
                     double *size)
{
    const struct ul_nbits_window *window = &trial->window;
    const int64_t group = column / window->columns;
    double sum = 0;
    for (int64_t tap = 0; tap < window->taps; tap++) {
        int64_t from = place[0] * trial->call.src.strides[0], left = tap;
        int is_inside = 1;
        for (int a = 3; a-- > 0; left /= window->kernel[a]) {
            const int64_t at = place[a + 1] * window->step[a] - window->pad[a] +
                               left % window->kernel[a] * window->dilation[a];
            is_inside = is_inside && at >= 0 && at < window->in[a];
            from += at * window->src_stride[a];
        }
        for (int64_t c = 0; is_inside && c < window->channels; c++) {
            const float x =
                trial->src[from + (group * window->channels + c) * trial->call.src.strides[1]];
            const double product = (double)x * weight(trial, column, c, tap);
            sum += product;
            *size += fabs(product);
        }
    }
    return sum;
}

static void check_result(const struct trial *trial, const float *result)
{
    const struct ul_call *call = &trial->call;
    const struct ul_call_tensor *added = &call->posts[0].tensor;
    const int64_t *out = trial->window.out;
    for (int64_t i = 0; i < call->dst.dims[0] * trial->window.places; i++) {
        const int64_t place[4] = {i / trial->window.places, i / out[2] / out[1] % out[0],
                                  i / out[2] % out[1], i % out[2]};
        int64_t to = place[0] * call->dst.strides[0], from = place[0] * added->strides[0];
        for (uint32_t d = 2; d < call->dst.rank; d++) {
            to += place[4 + d - call->dst.rank] * call->dst.strides[d];
            from += added->dims[d] == 1 ? 0 : place[4 + d - call->dst.rank] * added->strides[d];
        }
        for (int64_t c = 0; c < call->dst.dims[1]; c++) {
            double size = 2, want = sum_at(trial, place, c, &size);
            want += call->bias.rank != 0 ? (double)trial->bias[c] : 0;
            want += (double)trial->sums[from + c * added->strides[1]];
            want = want < 0 ? 0 : want;
            CHECK(fabs((double)result[to + c * call->dst.strides[1]] - want) <= 1e-6 * size);
        }
    }
}

static void run(const struct trial *trial, float *result, uint32_t threads)
{
    struct ul_nbits_cut cut;
    struct ul_pack layout;
    struct ul_packer packer;
    void *packed = NULL, *scratch = NULL;
    ul_nbits_cut_init(&cut, &trial->call, threads);
    ul_nbits_pack_window(&layout, &cut, &trial->call);
    if (posix_memalign(&packed, 64, cut.packed_bytes) != 0 ||
        posix_memalign(&scratch, 64, cut.scratch_bytes + FENCE) != 0)
        abort();
    memset(scratch, 0xff, cut.scratch_bytes + FENCE); /* NaN */
    ul_packer_init(&packer, &layout, packed);
    ul_packer_add(&packer, trial->codes,
                  (uint64_t)(layout.dims[0] * layout.dims[1] * layout.dims[2]));
    const void *args[UL_CALL_ARGS] = {trial->src, packed,
                                      trial->call.bias.rank != 0 ? trial->bias : NULL, result};
    args[UL_NBITS_ARG_SCALES] = trial->call.nbits.scale != 0 ? NULL : trial->scales;
    args[UL_NBITS_ARG_ZEROS] = trial->call.nbits.zeros == UL_NBITS_PACKED ? trial->zeros : NULL;
    args[UL_NBITS_FIRST_POST] = trial->sums;
    ul_nbits_run(&trial->call, args, scratch, threads, threads);
    for (int i = 0; i < FENCE; i++)
        CHECK(((unsigned char *)scratch)[cut.scratch_bytes + (uint64_t)i] == 0xff);
    free(packed);
    free(scratch);
}

static struct trial trial;
static float first[MOST], again[MOST];

int main(void)
{
    int count = 0;
    for (int i = 0; i < 900 && count < 90; i++) {
        make_trial(&trial);
        if (!take_weights(&trial))
            continue;
        count++;
        for (int64_t k = 0; k < MOST; k++)
            first[k] = again[k] = -7;
        run(&trial, first, 1);
        check_result(&trial, first);
        run(&trial, again, (uint32_t)pick(2, 5));
        CHECK(memcmp(first, again, sizeof first) == 0);
        for (int64_t k = trial.dst_count; k < MOST; k++)
            CHECK(first[k] == -7);
    }
    CHECK(count == 90);
    return TEST_RESULT();
}
