/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ul_dnnl.c against plain loops: each case is planned here as the compiler plans it (the library
 * picks the layout of the weights), its weights are packed by ul_pack.h and compared with the
 * library's own reorder, and the call runs between fences. Weights of convolutions are also given
 * unpacked, to be copied by the call, and the gradient of convolutions' weights is computed.
 *
 *      dnnl_test            all cases with one thread and with two
 *
 * What has no implementation that is allowed on this machine is skipped and counted.
 */
#define _POSIX_C_SOURCE 200809L

#include "ul_dnnl_desc.h"
#include "ul_library.h"
#include "ul_pack.h"
#include "ul_posts.h"

#include "test.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#define FENCE 0x7fc0dead /* a NaN */
#define PLAN_THREADS 2

static uint64_t random_state = 7;

static float random_value(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (float)((random_state >> 40) & 0xffff) / 32768.0f - 1.0f;
}

/* ---- tensors ---- */

static int64_t element_count(const struct ul_call_tensor *tensor)
{
    int64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        count *= tensor->dims[i];
    return tensor->rank == 0 ? 0 : count;
}

/* Elements from the first to one past the last. */
static int64_t extent(const struct ul_call_tensor *tensor)
{
    int64_t last = 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        last += (tensor->dims[i] - 1) * tensor->strides[i];
    return tensor->rank == 0 ? 0 : last + 1;
}

static int64_t place(const struct ul_call_tensor *tensor, const int64_t *index)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < tensor->rank; i++)
        sum += index[i] * tensor->strides[i];
    return sum;
}

static int next_index(const struct ul_call_tensor *tensor, int64_t *index)
{
    for (uint32_t i = tensor->rank; i-- > 0;) {
        if (++index[i] < tensor->dims[i])
            return 1;
        index[i] = 0;
    }
    return 0;
}

/* Row-major, or with axis 1 innermost and `wide` foreign elements beside each row of channels. */
static struct ul_call_tensor make_tensor(uint32_t rank, const int64_t *dims, int channels_last,
                                         int64_t wide)
{
    struct ul_call_tensor tensor = {.rank = rank};
    int64_t stride = 1;
    memcpy(tensor.dims, dims, rank * sizeof *dims);
    if (channels_last) {
        tensor.strides[1] = 1;
        stride = dims[1] + wide;
    }
    for (uint32_t i = rank; i-- > 0;) {
        if (channels_last && i == 1)
            continue;
        tensor.strides[i] = stride;
        stride *= dims[i];
        if (!channels_last && i + 1 == rank)
            stride += wide;
    }
    return tensor;
}

/* An array between fences; the tensor's own elements are random. */
struct array {
    float *block, *data;
    int64_t count;
};

static struct array new_array(int64_t count)
{
    struct array array = {NULL, NULL, count};
    const uint32_t fence = FENCE;
    if (posix_memalign((void **)&array.block, 64, (size_t)(count + 64) * sizeof(float)) != 0)
        abort();
    array.data = array.block + 32;
    for (int64_t i = 0; i < count + 64; i++)
        memcpy(array.block + i, &fence, sizeof fence);
    return array;
}

static struct array new_values(const struct ul_call_tensor *tensor)
{
    struct array array = new_array(extent(tensor));
    int64_t index[UL_CALL_RANK] = {0};
    if (tensor->rank != 0)
        do
            array.data[place(tensor, index)] = random_value();
        while (next_index(tensor, index));
    return array;
}

/* Whether all bytes are the same, except where the tensor is. */
static int same_outside(const struct array *a, const struct array *b,
                        const struct ul_call_tensor *tensor)
{
    unsigned char *inside = calloc(1, (size_t)a->count + 64);
    int64_t index[UL_CALL_RANK] = {0};
    int same = 1;
    if (tensor != NULL && tensor->rank != 0)
        do
            inside[32 + place(tensor, index)] = 1;
        while (next_index(tensor, index));
    for (int64_t i = 0; i < a->count + 64; i++)
        same = same && (inside[i] || memcmp(a->block + i, b->block + i, sizeof(float)) == 0);
    free(inside);
    return same;
}

static struct array copy_array(const struct array *from)
{
    struct array to = new_array(from->count);
    memcpy(to.block, from->block, (size_t)(from->count + 64) * sizeof(float));
    return to;
}

/* ---- the reference ---- */

struct data {
    struct array src, weights, bias, dst; /* weights: row-major over the library's dims */
    struct array posts[UL_CALL_POSTS];
};

/* One output of a window: a sum of products or a mean. `at` is [n, c, y, x ...]. */
static double window_value(const struct ul_call *call, const struct data *data, const int64_t *at)
{
    uint32_t axes = call->src.rank - 2;
    int pool = call->kind != UL_CALL_CONVOLUTION;
    int64_t groups = call->group_count, per_group = call->src.dims[1] / groups;
    int64_t outs = call->dst.dims[1] / groups, taps = 1, used = 0;
    double value = 0.0;
    for (uint32_t i = 0; i < axes; i++)
        taps *= call->window[i];
    for (int64_t c = 0; c < (pool ? 1 : per_group); c++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t from[UL_CALL_RANK] = {at[0]}, rest = tap, inside = 1;
            from[1] = pool ? at[1] : at[1] / outs * per_group + c;
            for (uint32_t i = axes; i-- > 0;) {
                from[2 + i] = at[2 + i] * call->steps[i] - call->pads[i] +
                              rest % call->window[i] * call->dilations[i];
                rest /= call->window[i];
                inside = inside && from[2 + i] >= 0 && from[2 + i] < call->src.dims[2 + i];
            }
            if (!inside)
                continue;
            double x = (double)data->src.data[place(&call->src, from)];
            used++;
            if (pool)
                value += x;
            else
                value += x * (double)data->weights.data[(at[1] * per_group + c) * taps + tap];
        }
    if (call->kind == UL_CALL_MEAN_POOL)
        value /= (double)used;
    if (call->kind == UL_CALL_PADDED_MEAN_POOL)
        value /= (double)taps;
    return value;
}

/* The source's and the result's gradient over all places: `at` is [(group,) out, in, y, x ...]. */
static double gradient_value(const struct ul_call *call, const struct data *data, const int64_t *at)
{
    const struct ul_call_tensor *dy = &call->weights;
    uint32_t first = call->group_count > 1 ? 1 : 0;
    int64_t group = first ? at[0] : 0, index[UL_CALL_RANK] = {0};
    double value = 0.0;
    do {
        int64_t from[UL_CALL_RANK] = {index[0], group * call->dst.dims[first + 1] + at[first + 1]};
        int inside = index[1] == group * call->dst.dims[first] + at[first];
        for (uint32_t i = 0; i + 2 < dy->rank; i++) {
            from[2 + i] = index[2 + i] * call->steps[i] - call->pads[i] +
                          at[first + 2 + i] * call->dilations[i];
            inside = inside && from[2 + i] >= 0 && from[2 + i] < call->src.dims[2 + i];
        }
        if (inside)
            value += (double)data->src.data[place(&call->src, from)] *
                     (double)data->weights.data[place(dy, index)];
    } while (next_index(dy, index));
    return value;
}

/* Sources that reach this result through a transposed convolution. Weights [g, o, c, taps ...]. */
static double transposed_value(const struct ul_call *call, const struct data *data,
                               const int64_t *at)
{
    uint32_t axes = call->src.rank - 2;
    int64_t groups = call->group_count, per_group = call->src.dims[1] / groups;
    int64_t outs = call->dst.dims[1] / groups, taps = 1;
    double value = 0.0;
    for (uint32_t i = 0; i < axes; i++)
        taps *= call->window[i];
    for (int64_t c = 0; c < per_group; c++)
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t from[UL_CALL_RANK] = {at[0], at[1] / outs * per_group + c}, rest = tap;
            int inside = 1;
            for (uint32_t i = axes; i-- > 0;) {
                int64_t y = at[2 + i] + call->pads[i] - rest % call->window[i] * call->dilations[i];
                rest /= call->window[i];
                inside = inside && y >= 0 && y % call->steps[i] == 0 &&
                         y / call->steps[i] < call->src.dims[2 + i];
                from[2 + i] = y / call->steps[i];
            }
            if (inside)
                value += (double)data->src.data[place(&call->src, from)] *
                         (double)data->weights.data[(at[1] * per_group + c) * taps + tap];
        }
    return value;
}

static double product_value(const struct ul_call *call, const struct data *data, const int64_t *at)
{
    uint32_t rank = call->dst.rank;
    int64_t a[UL_CALL_RANK], b[UL_CALL_RANK], k_count = call->src.dims[rank - 1];
    struct ul_call_tensor plain =
        make_tensor(call->weights.rank, call->weights.dims, 0, 0); /* as data has it */
    double value = 0.0;
    for (uint32_t i = 0; i < rank; i++) {
        a[i] = call->src.dims[i] == 1 ? 0 : at[i];
        b[i] = call->weights.dims[i] == 1 ? 0 : at[i];
    }
    for (int64_t k = 0; k < k_count; k++) {
        a[rank - 1] = b[rank - 2] = k;
        value += (double)data->src.data[place(&call->src, a)] *
                 (double)data->weights.data[place(&plain, b)];
    }
    return value;
}

static double post_value(const struct ul_post *post, double x, double other)
{
    double alpha = (double)post->alpha, beta = (double)post->beta;
    switch (post->kind) {
    case UL_POST_RELU:
        return x > 0.0 ? x : alpha * x;
    case UL_POST_CLIP:
        return x < alpha ? alpha : x > beta ? beta : x;
    case UL_POST_GELU_ERF:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case UL_POST_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case UL_POST_SWISH:
        return x / (1.0 + exp(-alpha * x));
    case UL_POST_HARD_SWISH:
        return x * (x <= -3.0 ? 0.0 : x >= 3.0 ? 1.0 : (x + 3.0) / 6.0);
    case UL_POST_LOGISTIC:
        return 1.0 / (1.0 + exp(-x));
    case UL_POST_TANH:
        return tanh(x);
    case UL_POST_ELU:
        return x > 0.0 ? x : alpha * (exp(x) - 1.0);
    case UL_POST_LINEAR:
        return alpha * x + beta;
    case UL_POST_ROUND:
        return nearbyint(x);
    case UL_POST_SUM:
    case UL_POST_ADD:
        return x + other;
    case UL_POST_SUB:
        return x - other;
    case UL_POST_MUL:
        return x * other;
    case UL_POST_DIV:
        return x / other;
    case UL_POST_MAX:
        return x > other ? x : other;
    case UL_POST_MIN:
        return x < other ? x : other;
    }
    return x;
}

static double want_value(const struct ul_call *call, const struct data *data, const int64_t *at)
{
    double x = call->kind == UL_CALL_MATMUL            ? product_value(call, data, at)
               : call->kind == UL_CALL_DECONVOLUTION   ? transposed_value(call, data, at)
               : call->kind == UL_CALL_WEIGHT_GRADIENT ? gradient_value(call, data, at)
                                                       : window_value(call, data, at);
    if (call->bias.rank != 0)
        x += (double)data->bias.data[call->kind == UL_CALL_MATMUL ? at[call->dst.rank - 1] : at[1]];
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_post *post = &call->posts[i];
        double other = 0.0;
        int64_t index[UL_CALL_RANK];
        uint32_t missing = call->dst.rank - post->tensor.rank;
        for (uint32_t d = 0; post->kind >= UL_POST_ADD && d < post->tensor.rank; d++)
            index[d] = post->tensor.dims[d] == 1 ? 0 : at[missing + d];
        if (post->kind == UL_POST_SUM)
            other = (double)data->dst.data[place(&call->dst, at)];
        else if (post->kind > UL_POST_SUM)
            other = (double)data->posts[i].data[place(&post->tensor, index)];
        x = post_value(post, x, other);
    }
    return x;
}

/* ---- planning, as the compiler does ---- */

/* Takes the layout that the library chose for the weights. stored[d]: the library's axis of stored
   axis d. */
static void copy_layout(struct ul_call *call, struct ul_pack *pack, const dnnl_memory_desc_t *desc,
                        const uint32_t *stored)
{
    const dnnl_blocking_desc_t *blocking = &desc->format_desc.blocking;
    struct ul_pack *layout = &call->layout;
    memset(layout, 0, sizeof *layout);
    layout->rank = (uint32_t)desc->ndims;
    layout->block_count = (uint32_t)blocking->inner_nblks;
    layout->size_bytes = dnnl_memory_desc_get_size(desc);
    layout->element_bytes = 4;
    for (uint32_t b = 0; b < layout->block_count; b++) {
        layout->blocks[b] = blocking->inner_blks[b];
        layout->block_dims[b] = (uint32_t)blocking->inner_idxs[b];
    }
    for (uint32_t d = 0; d < layout->rank; d++) {
        layout->dims[d] = desc->dims[d];
        layout->strides[d] = blocking->strides[d];
    }
    *pack = *layout;
    for (uint32_t d = 0; d < layout->rank; d++) {
        pack->dims[d] = layout->dims[stored[d]];
        pack->strides[d] = layout->strides[stored[d]];
        for (uint32_t b = 0; b < layout->block_count; b++)
            if (layout->block_dims[b] == stored[d])
                pack->block_dims[b] = d;
    }
    call->pack = pack;
}

/* Takes what the library says of its layout; `stored` NULL: for a copy of the weights, or for the
 * gradient's. */
static void take_layout(struct ul_call *call, struct ul_pack *pack, const_dnnl_primitive_desc_t pd,
                        const uint32_t *stored)
{
    static const uint32_t same[] = {0, 1, 2, 3, 4, 5};
    int back = call->kind == UL_CALL_WEIGHT_GRADIENT;
    dnnl_query_t query = back ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    if (call->weights.rank == 0)
        return;
    copy_layout(call, pack, dnnl_primitive_desc_query_md(pd, query, 0),
                stored == NULL ? same : stored);
    if (stored != NULL)
        return;
    call->pack = NULL;
    *(back ? &call->dst_copy_bytes : &call->weights_copy_bytes) = call->layout.size_bytes;
}

/* Fills implementation, layout and scratch; 0 where this machine has nothing that is allowed. */
static int plan(struct ul_call *call, struct ul_pack *pack, const uint32_t *stored, char name[64])
{
    struct ul_dnnl_desc desc;
    dnnl_engine_t engine;
    dnnl_primitive_desc_iterator_t iterator;
    int found = 0;
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success);
    omp_set_num_threads(PLAN_THREADS);
    CHECK(ul_dnnl_describe(&desc, call, call->weights.rank != 0, NULL));
    int more = dnnl_primitive_desc_iterator_create(&iterator, &desc.op, desc.attr, engine, NULL) ==
               dnnl_success;
    int made = more;
    while (more && !found) {
        const char *text = "ref";
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(iterator);
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&text);
        if (!ul_call_refuses(call, text)) {
            snprintf(name, 64, "%s", text);
            call->implementation = name;
            take_layout(call, pack, pd, stored);
            call->scratch_bytes =
                ul_call_scratch_own(call) + dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(
                                                pd, dnnl_query_scratchpad_md, 0));
            found = 1;
        }
        dnnl_primitive_desc_destroy(pd);
        more = dnnl_primitive_desc_iterator_next(iterator) == dnnl_success;
    }
    if (made)
        dnnl_primitive_desc_iterator_destroy(iterator);
    dnnl_primitive_attr_destroy(desc.attr);
    dnnl_engine_destroy(engine);
    return found;
}

/* The weights as the library itself would reorder them. */
static void reorder(const struct ul_call *call, const float *plain, float *packed)
{
    dnnl_memory_desc_t from, to;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t memories[2];
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    struct ul_call_tensor dense = make_tensor(call->weights.rank, call->weights.dims, 0, 0);
    int good = ul_dnnl_plain(&from, &dense) && ul_dnnl_packed(&to, &call->layout, UL_CALL_F32);
    good =
        good && dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_memory_create(&memories[0], &from, engine, (void *)(uintptr_t)plain) == dnnl_success &&
        dnnl_memory_create(&memories[1], &to, engine, packed) == dnnl_success &&
        dnnl_reorder_primitive_desc_create(&pd, &from, engine, &to, engine, NULL) == dnnl_success &&
        dnnl_primitive_create(&primitive, pd) == dnnl_success;
    CHECK(good);
    if (!good)
        return;
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, memories[0]}, {DNNL_ARG_TO, memories[1]}};
    CHECK(dnnl_primitive_execute(primitive, stream, 2, args) == dnnl_success);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(pd);
    dnnl_memory_destroy(memories[0]);
    dnnl_memory_destroy(memories[1]);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
}

/* Packs from the stored order, as the loader does. */
static struct array pack_weights(const struct ul_call *call, const struct data *data,
                                 const uint32_t *stored)
{
    struct array packed = new_array((int64_t)(call->pack->size_bytes / sizeof(float)));
    struct ul_call_tensor dense = make_tensor(call->weights.rank, call->weights.dims, 0, 0);
    struct ul_call_tensor view = dense;
    int64_t index[UL_CALL_RANK] = {0}, at = 0, count = element_count(&dense);
    float *file = malloc((size_t)count * sizeof *file);
    struct ul_packer packer;
    for (uint32_t d = 0; d < dense.rank; d++) {
        view.dims[d] = dense.dims[stored[d]];
        view.strides[d] = dense.strides[stored[d]];
    }
    do
        file[at++] = data->weights.data[place(&view, index)];
    while (next_index(&view, index));
    ul_packer_init(&packer, call->pack, (unsigned char *)packed.data);
    for (at = 0; at < count; at += 100)
        ul_packer_add(&packer, (const unsigned char *)(file + at),
                      (uint64_t)(count - at < 100 ? count - at : 100));
    free(file);
    struct array want = new_array(packed.count);
    reorder(call, data->weights.data, want.data);
    CHECK(memcmp(packed.block, want.block, (size_t)(packed.count + 64) * sizeof(float)) == 0);
    free(want.block);
    return packed;
}

/* ---- running a case ---- */

static double compare(const struct ul_call *call, const struct data *data, const struct array *got)
{
    int64_t index[UL_CALL_RANK] = {0};
    double worst = 0.0;
    do {
        double want = want_value(call, data, index);
        double error = fabs((double)got->data[place(&call->dst, index)] - want);
        error /= 1.0 + fabs(want);
        if (!(error <= worst))
            worst = error;
    } while (next_index(&call->dst, index));
    return worst;
}

static void run(const char *name, const struct ul_call *call, const struct data *data,
                const struct array *weights, uint32_t threads)
{
    struct ul_failure failure = {0};
    struct ul_library library = {.name = "oneDNN",
                                 .isa = "this",
                                 .thread_count = PLAN_THREADS,
                                 .state_offset_bytes = 64,
                                 .call_count = 1,
                                 .calls = call,
                                 .posts = ul_posts_run};
    unsigned char arena[128] = {0};
    struct array scratch = new_array((int64_t)(call->scratch_bytes / 4 + 16)), dst;
    struct array unused = copy_array(&scratch);
    unsigned char *aligned = (unsigned char *)scratch.data; /* 128 bytes into a line */
    enum ul_result result = ul_library_init(&library, arena, threads, &failure);
    CHECK(result == UL_OK);
    if (result != UL_OK) {
        printf("%s: %s, needed %llu, planned %llu\n", name, ul_result_text(result),
               (unsigned long long)failure.needed_bytes,
               (unsigned long long)failure.available_bytes);
    } else {
        const void *args[UL_CALL_ARGS] = {data->src.data, weights->data, data->bias.data};
        uint32_t next = 4;
        dst = copy_array(&data->dst);
        args[3] = dst.data;
        for (uint32_t i = 0; i < call->post_count; i++)
            if (call->posts[i].kind >= UL_POST_ADD)
                args[next++] = data->posts[i].data;
        ul_library_run(&library, arena, 0, args, aligned);
        double error = compare(call, data, &dst);
        CHECK(error < 2e-5);
        CHECK(same_outside(&dst, &data->dst, &call->dst));
        struct ul_call_tensor planned = {
            .rank = 1, .dims = {(int64_t)((call->scratch_bytes + 3) / 4)}, .strides = {1}};
        CHECK(same_outside(&scratch, &unused, planned.dims[0] != 0 ? &planned : NULL));
        if (test_failures != 0 || getenv("DNNL_TEST_SHOW") != NULL)
            printf("%s (%s): error %g\n", name, call->implementation, error);
        ul_library_done(&library, arena);
        free(dst.block);
    }
    free(scratch.block);
    free(unused.block);
}

static unsigned ran, skipped;

/* `stored`: NULL for weights that go through a copy. */
static void check_one(const char *name, struct ul_call *call, const uint32_t *stored)
{
    struct ul_pack pack;
    struct data data = {0};
    struct array weights = {0};
    char text[64];
    if (!plan(call, &pack, stored, text)) {
        printf("%s: nothing for it on this machine\n", name);
        skipped++;
        return;
    }
    ran++;
    data.src = new_values(&call->src);
    data.dst = new_values(&call->dst);
    data.bias = new_values(&call->bias);
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].kind >= UL_POST_ADD)
            data.posts[i] = new_values(&call->posts[i].tensor);
    if (stored == NULL) {
        data.weights = new_values(&call->weights);
        weights = copy_array(&data.weights);
    } else if (call->weights.rank != 0) {
        struct ul_call_tensor dense = make_tensor(call->weights.rank, call->weights.dims, 0, 0);
        data.weights = new_values(&dense);
        weights = pack_weights(call, &data, stored);
    }
    for (uint32_t threads = 1; threads <= PLAN_THREADS; threads++)
        run(name, call, &data, &weights, threads);
    free(data.src.block);
    free(data.dst.block);
    free(data.bias.block);
    free(data.weights.block);
    free(weights.block);
    for (uint32_t i = 0; i < call->post_count; i++)
        free(data.posts[i].block);
}

/* All by the library; then with a tail where the compiler would make one. `stored`: NULL for the
 * library's own order. */
static void check(const char *name, const struct ul_call *call, const uint32_t *stored)
{
    static const uint32_t same[] = {0, 1, 2, 3, 4, 5};
    struct ul_call whole = *call, cut = *call;
    stored = stored != NULL ? stored : same;
    uint32_t dense = call->dst_copy_bytes == 0 ? call->post_count : 0;
    check_one(name, &whole, stored);
    while (cut.tail_count < dense &&
           ul_post_is_ours(call->posts[call->post_count - cut.tail_count - 1].kind))
        cut.tail_count++;
    if (cut.tail_count > 0)
        check_one(name, &cut, stored);
}

/* ---- the cases ---- */

enum {
    CONV = UL_CALL_CONVOLUTION,
    DECONV = UL_CALL_DECONVOLUTION,
    MEAN = UL_CALL_MEAN_POOL,
    PADDED_MEAN = UL_CALL_PADDED_MEAN_POOL
};

struct window_case {
    const char *name;
    int kind;       /* enum ul_call_kind */
    int64_t src[5]; /* as many dimensions as are not 0 */
    int64_t out_channels;
    int64_t window;             /* this and the next: the same on every axis */
    int64_t step, dilation;     /* 0: 1 */
    int64_t pad, end_pad;       /* at both ends, and more at the end */
    int64_t group_count;        /* 0: 1 */
    int64_t src_wide, dst_wide; /* foreign channels beside those of the tensor */
    int src_plain;              /* row-major: the call copies it */
    const char *posts;          /* letters, see add_post; or NULL */
};

static uint64_t copy_bytes(const struct ul_call_tensor *tensor)
{
    return (uint64_t)element_count(tensor) * sizeof(float);
}

/* Position in `letters`: the enum; b: + per channel, R: + of a whole tensor, P: of one row-major.
 */
static void add_post(struct ul_call *call, char letter)
{
    static const char letters[] = "rcGgswoteLS+-*/><";
    const char *found = strchr(letters, letter);
    int64_t dims[UL_CALL_RANK];
    uint32_t rank = call->dst.rank, channel = call->kind == UL_CALL_MATMUL ? rank - 1 : 1;
    struct ul_post *post = &call->posts[call->post_count++];
    post->kind = found != NULL ? (enum ul_post_kind)(found - letters) : UL_POST_ADD;
    post->alpha = post->kind == UL_POST_CLIP ? -0.5f : post->kind == UL_POST_RELU ? 0.0f : 0.75f;
    post->beta = 0.5f;
    if (post->kind < UL_POST_ADD)
        return;
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = letter == 'R' || letter == 'P' || i == channel ? call->dst.dims[i] : 1;
    post->tensor = make_tensor(rank, dims, letter == 'R' && channel == 1 && rank > 2, 0);
}

static int64_t or_one(int64_t n)
{
    return n == 0 ? 1 : n;
}

/* The window, steps, dilations and pads of a case, on each of `axes` axes. */
static void copy_window(struct ul_call *call, const struct window_case *c, uint32_t axes)
{
    for (uint32_t i = 0; i < axes; i++) {
        call->window[i] = c->window;
        call->steps[i] = or_one(c->step);
        call->dilations[i] = or_one(c->dilation);
        call->pads[i] = c->pad;
        call->pads[axes + i] = c->pad + c->end_pad;
    }
}

/* The same with weights that change, and the gradient of the weights. */
static void check_changing(const struct window_case *c, const struct ul_call *call)
{
    struct ul_call copied = *call, back = *call;
    check_one(c->name, &copied, NULL);
    if (c->kind != CONV)
        return;
    back.kind = UL_CALL_WEIGHT_GRADIENT;
    back.weights = call->dst;
    back.weights_copy_bytes = call->dst_copy_bytes;
    back.dst = call->weights;
    back.post_count = 0;
    memset(&back.bias, 0, sizeof back.bias);
    memset(back.posts, 0, sizeof back.posts);
    check_one(c->name, &back, NULL);
}

static void check_window(const struct window_case *c)
{
    int64_t groups = or_one(c->group_count);
    struct ul_call call = {.kind = (enum ul_call_kind)c->kind, .group_count = (uint32_t)groups};
    int64_t dims[UL_CALL_RANK] = {c->src[0], c->out_channels}, taps[UL_CALL_RANK];
    uint32_t rank = 5, first = groups > 1 ? 1 : 0;
    int weighted = c->kind == CONV || c->kind == DECONV;
    while (c->src[rank - 1] == 0)
        rank--;
    copy_window(&call, c, rank - 2);
    for (uint32_t i = 2; i < rank; i++) {
        int64_t reach = (c->window - 1) * call.dilations[i - 2] + 1, step = call.steps[i - 2];
        int64_t pads = 2 * c->pad + c->end_pad;
        dims[i] = c->kind == DECONV ? (c->src[i] - 1) * step + reach - pads
                                    : (c->src[i] + pads - reach) / step + 1;
        taps[first + i] = c->window;
    }
    call.src = make_tensor(rank, c->src, !c->src_plain, c->src_wide);
    call.dst = make_tensor(rank, dims, 1, c->dst_wide);
    if (weighted) {
        taps[0] = groups;
        taps[first] = c->out_channels / groups;
        taps[first + 1] = c->src[1] / groups;
        call.weights = make_tensor(rank + first, taps, 0, 0);
        call.bias = make_tensor(1, &c->out_channels, 0, 0);
    }
    if (c->src_wide != 0 || c->src_plain)
        call.src_copy_bytes = copy_bytes(&call.src);
    if (c->dst_wide != 0)
        call.dst_copy_bytes = copy_bytes(&call.dst);
    for (const char *at = c->posts; at != NULL && *at != '\0'; at++)
        add_post(&call, *at);
    static const uint32_t deconvolution[] = {1, 0, 2, 3}, grouped[] = {0, 2, 1, 3, 4};
    check(c->name, &call, c->kind != DECONV ? NULL : first ? grouped : deconvolution);
    if (weighted)
        check_changing(c, &call);
}

static void check_product(const char *name, uint32_t rank, const int64_t *src, int64_t n,
                          int batched, int transposed, const char *posts)
{
    struct ul_call call = {.kind = UL_CALL_MATMUL};
    int64_t dims[UL_CALL_RANK];
    static const uint32_t swapped2[] = {1, 0}, swapped3[] = {0, 2, 1};
    call.src = make_tensor(rank, src, 0, 0);
    memcpy(dims, src, rank * sizeof *dims);
    dims[rank - 1] = n;
    call.dst = make_tensor(rank, dims, 0, 0);
    dims[rank - 2] = src[rank - 1];
    if (!batched && rank == 3)
        dims[0] = 1;
    call.weights = make_tensor(rank, dims, 0, 0);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = i + 1 == rank ? n : 1;
    call.bias = make_tensor(rank, dims, 0, 0);
    for (const char *at = posts; *at != '\0'; at++)
        add_post(&call, *at);
    check(name, &call, !transposed ? NULL : rank == 2 ? swapped2 : swapped3);
}

static void check_products(void)
{
    check_product("matmul", 2, (const int64_t[]){37, 96}, 130, 0, 0, "");
    check_product("matmul, stored [n,k]", 2, (const int64_t[]){37, 96}, 130, 0, 1, "G");
    check_product("matmul, one row", 2, (const int64_t[]){1, 200}, 1000, 0, 1, "");
    check_product("matmul, residual", 2, (const int64_t[]){64, 64}, 256, 0, 0, "S");
    check_product("matmul, gelu, scale", 2, (const int64_t[]){20, 48}, 50, 0, 0, "g*");
    check_product("matmul, a batch", 3, (const int64_t[]){3, 17, 40}, 33, 0, 0, "r");
    check_product("matmul, batched weights", 3, (const int64_t[]){3, 17, 40}, 33, 1, 1, "R");
}

/* A call that needs more than planned, and one that is not there at all, are reported with
 * numbers. */
static void check_failures(void)
{
    struct ul_call call = {.kind = UL_CALL_CONVOLUTION, .group_count = 1};
    struct ul_pack pack;
    struct ul_failure failure = {0};
    unsigned char arena[64];
    char text[64];
    static const uint32_t same[] = {0, 1, 2, 3};
    const struct ul_library library = {.call_count = 1, .calls = &call};
    call.src = make_tensor(4, (const int64_t[]){1, 32, 12, 12}, 1, 0);
    call.dst = make_tensor(4, (const int64_t[]){1, 32, 10, 10}, 1, 0);
    call.weights = make_tensor(4, (const int64_t[]){32, 32, 3, 3}, 0, 0);
    for (int i = 0; i < 2; i++) {
        call.window[i] = 3;
        call.steps[i] = call.dilations[i] = 1;
    }
    if (!plan(&call, &pack, same, text))
        return;
    if (call.scratch_bytes != 0) {
        call.scratch_bytes = 0;
        enum ul_result result = ul_library_init(&library, arena, 1, &failure);
        CHECK(result == UL_OK || result == UL_LIBRARY_NEEDS_MORE);
        if (result == UL_OK)
            ul_library_done(&library, arena);
        else
            CHECK(failure.needed_bytes > 0 && failure.available_bytes == 0);
    }
    call.src.strides[1] = 2; /* only the reference code takes this */
    call.src.strides[3] = 64;
    CHECK(ul_library_init(&library, arena, 1, &failure) == UL_LIBRARY_UNSUPPORTED);
    CHECK(failure.tensor == 0);
    ul_library_done(&library, arena); /* nothing to give back */
}

static const struct window_case cases[] = {
    {"1x1", CONV, {1, 64, 14, 14}, 128, 1, .posts = "r"},
    {"3x3", CONV, {1, 32, 13, 15}, 48, 3, .pad = 1},
    {"3x3 step 2", CONV, {2, 32, 13, 15}, 48, 3, .step = 2, .pad = 1, .posts = "Sr"},
    {"1x1 step 2", CONV, {1, 64, 14, 14}, 128, 1, .step = 2},
    {"uneven pads", CONV, {1, 16, 9, 9}, 16, 3, .step = 2, .end_pad = 1, .posts = "w"},
    {"dilated", CONV, {1, 16, 15, 15}, 16, 3, .dilation = 2, .pad = 2, .posts = "s"},
    {"first", CONV, {1, 3, 33, 33}, 32, 7, .step = 2, .pad = 3, .posts = "c"},
    {"first, row-major",
     CONV,
     {1, 3, 33, 33},
     32,
     7,
     .step = 2,
     .pad = 3,
     .src_plain = 1,
     .posts = "r"},
    {"odd channels", CONV, {1, 19, 11, 11}, 37, 3, .pad = 1, .posts = "*"},
    {"depthwise", CONV, {1, 40, 14, 14}, 40, 3, .group_count = 40, .pad = 1, .posts = "c"},
    {"depthwise 5x5",
     CONV,
     {1, 48, 14, 14},
     48,
     5,
     .group_count = 48,
     .step = 2,
     .pad = 2,
     .posts = "s"},
    {"groups", CONV, {1, 64, 9, 9}, 64, 3, .group_count = 4, .pad = 1, .posts = "b"},
    {"strided source", CONV, {1, 32, 9, 9}, 32, 3, .pad = 1, .src_wide = 16},
    {"strided result", CONV, {1, 32, 9, 9}, 24, 3, .pad = 1, .dst_wide = 40, .posts = "r"},
    {"strided sum", CONV, {1, 32, 9, 9}, 24, 1, .src_wide = 8, .dst_wide = 40, .posts = "Sr"},
    {"later residual", CONV, {1, 32, 9, 9}, 24, 1, .posts = "Rr"},
    {"patches", CONV, {1, 3, 32, 32}, 96, 4, .step = 4},
    {"rank 3", CONV, {2, 32, 20}, 32, 3, .pad = 1, .posts = "e"},
    {"rank 5", CONV, {1, 16, 5, 6, 7}, 32, 3, .pad = 1, .posts = "t"},
    {"transposed 2x2", DECONV, {1, 32, 7, 7}, 16, 2, .step = 2, .posts = "r"},
    {"transposed 4x4", DECONV, {1, 16, 6, 6}, 32, 4, .step = 2, .pad = 1},
    {"transposed, groups",
     DECONV,
     {1, 32, 6, 6},
     32,
     3,
     .group_count = 2,
     .step = 2,
     .pad = 1,
     .posts = "o"},
    {"mean, strided", MEAN, {1, 16, 13, 13}, 16, 2, .step = 2, .src_wide = 16, .dst_wide = 16},
    {"mean", MEAN, {1, 32, 9, 9}, 32, 3, .pad = 1},
    {"padded mean", PADDED_MEAN, {1, 32, 9, 9}, 32, 3, .pad = 1, .posts = "L"},
    {"mean, residual", MEAN, {2, 17, 9, 9}, 17, 3, .pad = 1, .posts = "R"},
    {"strided mean, residual", MEAN, {1, 32, 9, 9}, 32, 3, .dst_wide = 16, .posts = "R"},
    {"mean, row-major residual", MEAN, {1, 32, 9, 9}, 32, 3, .pad = 1, .posts = "P"},
    {"padded mean, row-major residual", PADDED_MEAN, {1, 17, 9, 9}, 17, 3, .posts = "P"},
    {"row-major residual", CONV, {1, 32, 9, 9}, 24, 3, .pad = 1, .posts = "P"},
    {"transposed, row-major residual", DECONV, {1, 32, 7, 7}, 16, 2, .step = 2, .posts = "P"},
    {"global mean", MEAN, {1, 48, 7, 7}, 48, 7, .posts = "*"},
};

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_window(&cases[i]);
    check_products();
    check_failures();
    printf("%u cases, %u skipped\n", ran, skipped);
    return TEST_RESULT();
}
