/* SPDX-License-Identifier: Apache-2.0 */
/* ul_winograd.c against the plain sum in double, over random shapes, strides, pads, pieces of the
   weights and post-operations. A call writes its result and its scratch, nothing else, and its bits
   do not depend on the number of threads, planned or used. */
#define _POSIX_C_SOURCE 200809L

#include "ul_winograd_pack.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>

static uint64_t random_state = 7;

static int64_t pick(int64_t low, int64_t high)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

static float pick_float(void)
{
    return (float)pick(-8388608, 8388608) / 8388608.0f;
}

/* Floats with a fence after them. */
enum { FENCE = 32 };
static const float fence_value = 12345.0f;

static float *new_floats(int64_t count)
{
    void *place = NULL;
    if (posix_memalign(&place, 64, (size_t)(count + FENCE) * sizeof(float)) != 0)
        abort();
    float *floats = place;
    for (int64_t i = 0; i < count; i++)
        floats[i] = pick_float();
    for (int64_t i = 0; i < FENCE; i++)
        floats[count + i] = fence_value;
    return floats;
}

static void free_floats(float *floats, int64_t count)
{
    for (int64_t i = 0; i < FENCE; i++)
        CHECK(floats[count + i] == fence_value);
    free(floats);
}

/* Channels innermost, with some room after each pixel, row and image. */
static int64_t lay_out(struct ul_call_tensor *tensor, int64_t n, int64_t c, int64_t h, int64_t w)
{
    int64_t gap = pick(0, 2) == 0 ? pick(0, 20) : 0;
    *tensor = (struct ul_call_tensor){.rank = 4, .dims = {n, c, h, w}};
    tensor->strides[1] = 1;
    tensor->strides[3] = c + gap;
    tensor->strides[2] = tensor->strides[3] * w + (pick(0, 4) == 0 ? 3 : 0);
    tensor->strides[0] = tensor->strides[2] * h;
    return tensor->strides[0] * n;
}

/* A call, its arguments and what they have of elements. */
struct trial {
    struct ul_call call;
    float *args[UL_CALL_ARGS];
    int64_t counts[UL_CALL_ARGS];
    uint32_t arg_count;
};

static void add_arg(struct trial *trial, int64_t count)
{
    trial->counts[trial->arg_count] = count;
    trial->args[trial->arg_count++] = count != 0 ? new_floats(count) : NULL;
}

/* What a binary post-operation reads: any of dst's axes may be 1, leading ones absent. */
static int64_t lay_out_other(struct ul_call_tensor *tensor, const struct ul_call_tensor *dst)
{
    uint32_t kind = (uint32_t)pick(0, 3);
    int64_t count = 1;
    uint32_t order[4] = {0, 2, 3, 1}; /* channels innermost, as in dst */
    *tensor = (struct ul_call_tensor){.rank = 4};
    for (uint32_t i = 4; i-- > 0;) {
        uint32_t d = kind == 2 ? i : order[i];
        tensor->dims[d] = kind == 0 || (kind == 1 && d != 1) ? 1 : dst->dims[d];
        if (kind == 3 && pick(0, 2) == 0)
            tensor->dims[d] = 1;
        tensor->strides[d] = count;
        count *= tensor->dims[d];
    }
    if (tensor->dims[0] == 1 && pick(0, 1) == 0) {
        tensor->rank = 3;
        memmove(tensor->dims, tensor->dims + 1, 3 * sizeof tensor->dims[0]);
        memmove(tensor->strides, tensor->strides + 1, 3 * sizeof tensor->strides[0]);
    }
    return count;
}

static void add_posts(struct trial *trial)
{
    struct ul_call *call = &trial->call;
    call->post_count = (uint32_t)(pick(0, 1) == 0 ? pick(0, 1) : pick(0, 4));
    for (uint32_t i = 0; i < call->post_count; i++) {
        struct ul_post *post = &call->posts[i];
        post->kind = (enum ul_post_kind)pick(UL_POST_RELU, UL_POST_MIN);
        post->alpha = pick(0, 1) == 0 ? 0 : pick_float();
        post->beta = pick_float();
        if (post->kind == UL_POST_CLIP)
            post->alpha = -0.5f, post->beta = 0.75f;
        if (post->kind == UL_POST_DIV)
            post->kind = UL_POST_MUL; /* which has the same path, and keeps errors small */
        if (post->kind >= UL_POST_ADD)
            add_arg(trial, lay_out_other(&post->tensor, &call->dst));
    }
}

static void make_trial(struct trial *trial)
{
    struct ul_call *call = &trial->call;
    memset(trial, 0, sizeof *trial);
    int64_t images = pick(0, 4) == 0 ? 2 : 1, channels = pick(1, 40), outputs = pick(1, 40);
    int64_t height = pick(1, 16), width = pick(1, 16);
    if (pick(0, 3) == 0)
        channels = pick(60, 140);
    if (pick(0, 3) == 0)
        outputs = pick(60, 200);
    *call = (struct ul_call){.kind = UL_CALL_CONVOLUTION, .group_count = 1};
    for (int i = 0; i < 4; i++)
        call->pads[i] = pick(0, 3) == 0 ? pick(0, 3) : 1;
    while (height + call->pads[0] + call->pads[2] < 3)
        height++;
    while (width + call->pads[1] + call->pads[3] < 3)
        width++;
    for (int i = 0; i < 3; i++)
        call->steps[i] = call->dilations[i] = 1;
    call->weights = (struct ul_call_tensor){
        .rank = 4, .dims = {outputs, channels, 3, 3}, .strides = {channels * 9, 9, 3, 1}};
    add_arg(trial, lay_out(&call->src, images, channels, height, width));
    add_arg(trial, outputs * channels * 9);
    if (pick(0, 2) != 0)
        call->bias = (struct ul_call_tensor){.rank = 1, .dims = {outputs}, .strides = {1}};
    add_arg(trial, call->bias.rank != 0 ? outputs : 0);
    add_arg(trial, lay_out(&call->dst, images, outputs, height + call->pads[0] + call->pads[2] - 2,
                           width + call->pads[1] + call->pads[3] - 2));
    add_posts(trial);
}

static double apply_post(const struct ul_post *post, double x, double before, double other)
{
    double alpha = post->alpha, beta = post->beta;
    switch (post->kind) {
    case UL_POST_RELU:
        return x < 0 ? alpha * x : x;
    case UL_POST_CLIP:
        return x < alpha ? alpha : x > beta ? beta : x;
    case UL_POST_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case UL_POST_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case UL_POST_SWISH:
        return x / (1 + exp(-alpha * x));
    case UL_POST_HARD_SWISH:
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    case UL_POST_LOGISTIC:
        return 1 / (1 + exp(-x));
    case UL_POST_TANH:
        return tanh(x);
    case UL_POST_ELU:
        return x < 0 ? alpha * expm1(x) : x;
    case UL_POST_LINEAR:
        return alpha * x + beta;
    case UL_POST_ROUND:
        return nearbyint(x);
    case UL_POST_SUM:
        return x + before;
    case UL_POST_ADD:
        return x + other;
    case UL_POST_SUB:
        return x - other;
    case UL_POST_MUL:
        return x * other;
    case UL_POST_DIV:
        return x / other;
    case UL_POST_MAX:
        return fmax(x, other);
    case UL_POST_MIN:
        return fmin(x, other);
    }
    return x;
}

/* The element at [n, c, y, x] of a tensor that is broadcast. */
static double element(const float *floats, const struct ul_call_tensor *tensor, const int64_t *at)
{
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] != 1)
            floats += at[i + 4 - tensor->rank] * tensor->strides[i];
    return *floats;
}

/* The plain sum, and the sum of the magnitudes. */
static double plain_sum(const struct trial *trial, const int64_t *at, double *magnitude)
{
    const struct ul_call *call = &trial->call;
    double sum = call->bias.rank != 0 ? trial->args[2][at[1]] : 0;
    *magnitude = fabs(sum);
    for (int64_t i = 0; i < 9; i++) {
        int64_t y = at[2] + i / 3 - call->pads[0], x = at[3] + i % 3 - call->pads[1];
        if (y < 0 || y >= call->src.dims[2] || x < 0 || x >= call->src.dims[3])
            continue;
        for (int64_t c = 0; c < call->src.dims[1]; c++) {
            int64_t from[4] = {at[0], c, y, x};
            double term = element(trial->args[0], &call->src, from) *
                          trial->args[1][(at[1] * call->src.dims[1] + c) * 9 + i];
            sum += term;
            *magnitude += fabs(term);
        }
    }
    return sum;
}

/* The result as it should be, from dst as it was, and which floats of dst are results. */
static double *make_wanted(const struct trial *trial, unsigned char *is_result, double *bound)
{
    const struct ul_call *call = &trial->call;
    const struct ul_call_tensor *dst = &call->dst;
    double *wanted = malloc((size_t)trial->counts[3] * sizeof *wanted), square = 0, count = 0;
    memset(is_result, 0, (size_t)trial->counts[3]);
    for (int64_t i = 0; i < dst->dims[0] * dst->dims[1] * dst->dims[2] * dst->dims[3]; i++) {
        int64_t at[4], rest = i, place = 0;
        double magnitude;
        for (uint32_t d = 4; d-- > 0; rest /= dst->dims[d])
            place += (at[d] = rest % dst->dims[d]) * dst->strides[d];
        double x = plain_sum(trial, at, &magnitude);
        uint32_t next = 4;
        square += magnitude * magnitude;
        count++;
        for (uint32_t p = 0; p < call->post_count; p++) {
            const struct ul_post *post = &call->posts[p];
            double other =
                post->kind < UL_POST_ADD ? 0 : element(trial->args[next++], &post->tensor, at);
            x = apply_post(post, x, trial->args[3][place], other);
        }
        wanted[place] = x;
        is_result[place] = 1;
    }
    *bound = 5e-7 * (1 + sqrt(square / count));
    return wanted;
}

/* The weights, transformed, in random pieces. */
static float *pack(const struct trial *trial, const struct ul_winograd *tiling)
{
    int64_t floats = (int64_t)(tiling->packed_bytes / sizeof(float)), done = 0;
    float *packed = new_floats(floats);
    struct ul_pack layout;
    struct ul_winograd_packer packer;
    ul_winograd_pack(&layout, tiling);
    ul_winograd_packer_init(&packer, &layout, (unsigned char *)packed);
    while (done < trial->counts[1]) {
        int64_t piece = pick(1, pick(0, 1) == 0 ? 7 : 5000);
        if (piece > trial->counts[1] - done)
            piece = trial->counts[1] - done;
        ul_winograd_packer_add(&packer, (const unsigned char *)(trial->args[1] + done),
                               (uint64_t)piece);
        done += piece;
    }
    return packed;
}

static void run(const struct trial *trial, const struct ul_winograd *tiling, float *packed,
                float *result, uint32_t planned, uint32_t threads)
{
    const void *args[UL_CALL_ARGS];
    int64_t scratch_count = (int64_t)(tiling->scratch_bytes / sizeof(float));
    float *scratch = new_floats(scratch_count);
    for (uint32_t i = 0; i < trial->arg_count; i++)
        args[i] = trial->args[i];
    args[1] = packed;
    args[3] = result;
    memcpy(result, trial->args[3], (size_t)trial->counts[3] * sizeof *result);
    ul_winograd_run(&trial->call, args, (unsigned char *)scratch, planned, threads);
    free_floats(scratch, scratch_count);
}

static void check_trial(const struct trial *trial)
{
    double bound;
    const int64_t count = trial->counts[3];
    unsigned char *is_result = malloc((size_t)count);
    double *wanted = make_wanted(trial, is_result, &bound);
    float *first = new_floats(count), *again = new_floats(count);
    for (uint32_t planned = 1; planned <= 5; planned += planned) {
        struct ul_winograd tiling;
        ul_winograd_tiling(&tiling, &trial->call, planned);
        int64_t packed_count = (int64_t)(tiling.packed_bytes / sizeof(float));
        float *packed = pack(trial, &tiling);
        run(trial, &tiling, packed, planned == 1 ? first : again, planned, planned);
        if (planned > 1) {
            CHECK(memcmp(first, again, (size_t)count * sizeof *first) == 0);
            run(trial, &tiling, packed, again, planned, planned - 1);
            CHECK(memcmp(first, again, (size_t)count * sizeof *first) == 0);
        }
        free_floats(packed, packed_count);
    }
    for (int64_t i = 0; i < count; i++) {
        if (is_result[i])
            CHECK(fabs(first[i] - wanted[i]) <= bound);
        else
            CHECK(first[i] == trial->args[3][i]);
    }
    free_floats(first, count);
    free_floats(again, count);
    free(wanted);
    free(is_result);
}

/* It reports what it does not compute. */
static void check_refusals(void)
{
    struct trial trial;
    make_trial(&trial);
    struct ul_call *call = &trial.call;
    CHECK(ul_winograd_supports(call));
    call->steps[1] = 2;
    CHECK(!ul_winograd_supports(call));
    call->steps[1] = 1;
    call->dilations[0] = 2;
    CHECK(!ul_winograd_supports(call));
    call->dilations[0] = 1;
    call->weights.dims[2] = 5;
    CHECK(!ul_winograd_supports(call));
    call->weights.dims[2] = 3;
    call->weights.strides[2] = 1;
    call->weights.strides[3] = 3;
    CHECK(!ul_winograd_supports(call));
    call->weights.strides[2] = 3;
    call->weights.strides[3] = 1;
    call->src.strides[1] = call->src.dims[2] * call->src.dims[3] + 1;
    call->src.dims[1] = 2;
    CHECK(!ul_winograd_supports(call));
    for (uint32_t i = 0; i < trial.arg_count; i++)
        free(trial.args[i]);
}

int main(int argc, char **argv)
{
    int trials = argc > 1 ? atoi(argv[1]) : 100;
    check_refusals();
    for (int i = 0; i < trials; i++) {
        struct trial trial;
        make_trial(&trial);
        check_trial(&trial);
        for (uint32_t a = 0; a < trial.arg_count; a++)
            if (trial.args[a] != NULL)
                free_floats(trial.args[a], trial.counts[a]);
    }
    return TEST_RESULT();
}
