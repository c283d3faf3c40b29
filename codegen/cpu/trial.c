/* SPDX-License-Identifier: Apache-2.0 */
/* Lets oneDNN compute a call, or a piece of one, and returns the bits of the result.
 *
 * Problem: the library does not say in which order it adds, and that decides the bits of a sum. But
 * the order does not depend on the numbers. Method: the call runs, on this machine and with the
 * planned number of threads, on numbers that are the same in every row of the split axis; the bits
 * of each row of the result become a hash. A piece with the hashes of the whole adds in the whole's
 * order, as far as thousands of rounded sums can show:
 *
 *      whole    h0 h1 h1 h1 h1 h1 h1 h2     rows at the edges have padding
 *      piece              h1 h1 h1           the same bits, as in any other place with h1
 *
 * Weights of one channel are infinite where there is padding: an implementation may leave the
 * padding out of its sums, or multiply it as zeros, which makes a NaN there. All memory comes from
 * an arena, except what the library itself keeps; copies for strided operands are assumed to be
 * made already. */
#include "codegen/cpu/dnnl_internal.h"

#include "runtime/lib/ul_pack.h"

#include <math.h>
#include <string.h>

/* From the OpenMP to which oneDNN is linked; see dnnl.c. */
int omp_get_thread_limit(void);
int omp_get_dynamic(void);
void omp_set_dynamic(int dynamic);
int omp_pause_resource_all(int kind);

void ul_dnnl_rest(void)
{
    enum { HARD = 2 }; /* omp_pause_hard, OpenMP 5.0, section 3.2.44 */
    (void)omp_pause_resource_all(HARD);
}

enum {
    ALIGN_BYTES = 64,
    MIN_RESULTS = 1024, /* for each row: rows of few elements are computed from several numbers */
    MAX_ROUNDS = 8,
    CHUNK = 512,
    MAX_ARGS = UL_CALL_ARGS + 1 /* with the scratchpad */
};

/* ---- tensors, one lane of elements after the other ---- */

struct lanes {
    uint32_t rank, inner; /* the axis of a lane */
    int64_t dims[UL_CALL_RANK];
    int64_t steps[UL_CALL_RANK];        /* between places */
    int64_t number_steps[UL_CALL_RANK]; /* between numbers: row-major, 0 along the rows' axis */
    int64_t at[UL_CALL_RANK];
    int64_t place, number; /* of the lane's first element */
};

/* `axis` may be no axis of the tensor. */
static void lanes_init(struct lanes *lanes, const struct ul_call_tensor *tensor, uint32_t axis)
{
    int64_t count = 1;
    memset(lanes, 0, sizeof *lanes);
    lanes->rank = tensor->rank;
    for (uint32_t d = tensor->rank; d-- > 0;) {
        lanes->dims[d] = tensor->dims[d];
        lanes->steps[d] = tensor->strides[d];
        lanes->number_steps[d] = d == axis ? 0 : count;
        count *= d == axis ? 1 : tensor->dims[d];
        bool longer = tensor->dims[d] > 1 && (tensor->dims[lanes->inner] == 1 ||
                                              tensor->strides[d] < tensor->strides[lanes->inner]);
        lanes->inner = longer || d + 1 == tensor->rank ? d : lanes->inner;
    }
}

static bool lanes_next(struct lanes *lanes)
{
    UL_ASSERT(lanes->inner < lanes->rank);
    for (uint32_t d = lanes->rank; d-- > 0;) {
        if (d == lanes->inner)
            continue;
        lanes->place += lanes->steps[d];
        lanes->number += lanes->number_steps[d];
        if (++lanes->at[d] < lanes->dims[d])
            return true;
        lanes->place -= lanes->steps[d] * lanes->dims[d];
        lanes->number -= lanes->number_steps[d] * lanes->dims[d];
        lanes->at[d] = 0;
    }
    return false;
}

static uint64_t tensor_bytes(const struct ul_call_tensor *tensor)
{
    uint64_t last = 0;
    for (uint32_t d = 0; d < tensor->rank; d++)
        last += (uint64_t)(tensor->dims[d] - 1) * (uint64_t)tensor->strides[d];
    return tensor->rank == 0 ? 0 : (last + 1) * sizeof(float);
}

/* The tensor as the primitive sees it. */
static struct ul_call_tensor seen(const struct ul_call *call, const struct ul_call_tensor *tensor,
                                  uint64_t copy_bytes)
{
    struct ul_call_tensor dense;
    if (copy_bytes == 0)
        return *tensor;
    (void)ul_call_dense(call->kind, tensor, &dense);
    UL_ASSERT(dense.rank == tensor->rank);
    return dense;
}

/* Whether the weights are in the library's layout, packed or copied. */
static bool is_laid_out(const struct ul_call *call)
{
    return call->pack != NULL || ul_call_layout_bytes(call) != 0;
}

static uint64_t weight_bytes(const struct ul_call *call)
{
    return is_laid_out(call) ? call->layout.size_bytes : tensor_bytes(&call->weights);
}

uint64_t ul_trial_bytes(const struct ul_call *call)
{
    uint64_t sum = weight_bytes(call) + tensor_bytes(&call->bias) + call->scratch_bytes +
                   tensor_bytes(&call->src) + tensor_bytes(&call->dst);
    for (uint32_t i = 0; i < call->post_count; i++)
        sum += tensor_bytes(&call->posts[i].tensor);
    return sum;
}

/* ---- numbers ---- */

static uint64_t mix(uint64_t bits)
{
    bits ^= bits >> 30;
    bits *= 0xbf58476d1ce4e5b9u;
    bits ^= bits >> 27;
    bits *= 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

static uint64_t mix_at(uint64_t seed, uint64_t number)
{
    return mix(seed + number * 0x9e3779b97f4a7c15u);
}

/* Values from `min` on, over `range`; infinite from a given number on. */
struct source {
    uint64_t seed, infinite_from;
    float min, range;
};

static float value_of(const struct source *source, uint64_t number)
{
    uint64_t bits = mix_at(source->seed, number) >> 40;
    return number >= source->infinite_from ? (float)INFINITY
                                           : source->min + (float)bits * source->range;
}

static void fill(float *to, struct lanes *lanes, const struct source *source)
{
    do {
        for (int64_t i = 0; i < lanes->dims[lanes->inner]; i++)
            to[lanes->place + i * lanes->steps[lanes->inner]] =
                value_of(source, (uint64_t)(lanes->number + i * lanes->number_steps[lanes->inner]));
    } while (lanes_next(lanes));
}

static void hash_rows(const float *from, struct lanes *lanes, uint32_t axis, uint64_t seed,
                      uint64_t *hashes)
{
    UL_ASSERT(axis < lanes->rank);
    uint32_t inner = lanes->inner;
    do {
        for (int64_t i = 0; i < lanes->dims[inner]; i++) {
            uint32_t bits;
            memcpy(&bits, &from[lanes->place + i * lanes->steps[inner]], sizeof bits);
            uint64_t number = (uint64_t)(lanes->number + i * lanes->number_steps[inner]);
            hashes[axis == inner ? i : lanes->at[axis]] += mix(mix_at(seed, number) ^ bits);
        }
    } while (lanes_next(lanes));
}

/* ---- one run ---- */

struct run {
    struct ul_dnnl *dnnl;
    struct ul_arena arena;
    const struct ul_piece_trial *trial;
    uint64_t *hashes;
    uint64_t round;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    float *src, *weights, *bias, *dst, *posts[UL_CALL_POSTS];
    int arg_count;
    dnnl_exec_arg_t args[MAX_ARGS];
    bool good;
};

/* Binds memory for one argument, as a plain row of floats: the library takes the layout from its
 * primitive. */
static float *bind(struct run *run, int arg, uint64_t size_bytes)
{
    UL_ASSERT(run->arg_count < MAX_ARGS);
    dnnl_memory_desc_t row;
    dnnl_dims_t dims = {(dnnl_dim_t)((size_bytes + 3) / 4)};
    unsigned char *memory = ul_arena_alloc(&run->arena, size_bytes + ALIGN_BYTES);
    memory += (ALIGN_BYTES - (uintptr_t)memory % ALIGN_BYTES) % ALIGN_BYTES;
    run->args[run->arg_count].arg = arg;
    run->good = run->good &&
                dnnl_memory_desc_init_by_tag(&row, 1, dims, dnnl_f32, dnnl_a) == dnnl_success &&
                dnnl_memory_create(&run->args[run->arg_count].memory, &row, run->dnnl->engine,
                                   memory) == dnnl_success;
    run->arg_count += run->good;
    return (float *)(void *)memory;
}

static void bind_all(struct run *run, const_dnnl_primitive_desc_t offer)
{
    const struct ul_call *call = run->trial->piece;
    struct ul_call_tensor src = seen(call, &call->src, call->src_copy_bytes);
    struct ul_call_tensor dst = seen(call, &call->dst, call->dst_copy_bytes);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(offer, dnnl_query_scratchpad_md, 0);
    run->src = bind(run, DNNL_ARG_SRC, tensor_bytes(&src));
    run->dst = bind(run, DNNL_ARG_DST, tensor_bytes(&dst));
    if (call->weights.rank > 0)
        run->weights = bind(run, DNNL_ARG_WEIGHTS, weight_bytes(call));
    if (call->bias.rank > 0)
        run->bias = bind(run, DNNL_ARG_BIAS, tensor_bytes(&call->bias));
    for (uint32_t i = 0; i < call->post_count; i++) {
        if (call->posts[i].kind >= UL_POST_ADD)
            run->posts[i] = bind(run, DNNL_ARG_ATTR_MULTIPLE_POST_OP((int)i) | DNNL_ARG_SRC_1,
                                 tensor_bytes(&call->posts[i].tensor));
    }
    if (scratch != NULL && dnnl_memory_desc_get_size(scratch) > 0)
        (void)bind(run, DNNL_ARG_SCRATCHPAD, dnnl_memory_desc_get_size(scratch));
}

/* ---- the run's numbers ---- */

enum { SRC, WEIGHTS, BIAS, POSTS, SEEDS = POSTS + UL_CALL_POSTS };

static uint64_t seed_of(const struct run *run, uint32_t tensor)
{
    return mix(run->round * SEEDS + tensor + 1);
}

static struct source source_of(const struct run *run, uint32_t tensor)
{
    return (struct source){
        .seed = seed_of(run, tensor), .infinite_from = UINT64_MAX, .min = 0.25f, .range = 0x1p-24f};
}

static bool is_padded(const struct ul_call *call)
{
    bool padded = call->kind == UL_CALL_DECONVOLUTION;
    for (uint32_t i = 0; i < 6; i++)
        padded = padded || call->pads[i] != 0;
    return padded;
}

/* Sums are about 1 in size, and as often negative, so that no function after them makes all of them
 * alike. */
static struct source weight_source(const struct run *run)
{
    UL_ASSERT(run->trial->unsplit->weights.rank >= 2);
    const struct ul_call *unsplit = run->trial->unsplit;
    const struct ul_call_tensor *weights = &unsplit->weights;
    struct source source = source_of(run, WEIGHTS);
    uint32_t first = unsplit->kind == UL_CALL_MATMUL ? weights->rank - 2
                     : unsplit->group_count > 1      ? 2
                                                     : 1;
    uint32_t end = unsplit->kind == UL_CALL_MATMUL ? weights->rank - 1 : weights->rank;
    uint64_t per_sum = 1, count = 1;
    for (uint32_t d = 0; d < weights->rank; d++) {
        count *= (uint64_t)weights->dims[d];
        per_sum *= first <= d && d < end ? (uint64_t)weights->dims[d] : 1;
    }
    source.range = 0x1p-22f / sqrtf((float)per_sum);
    source.min = source.range * -0x1p23f;
    /* A single channel alternates. */
    if (unsplit->kind != UL_CALL_MATMUL && is_padded(unsplit) &&
        (count > per_sum || run->round % 2 == 1))
        source.infinite_from = count - per_sum;
    return source;
}

static void fill_weights(struct run *run)
{
    const struct ul_piece_trial *trial = run->trial;
    const struct ul_call *call = trial->piece;
    struct source source = weight_source(run);
    struct lanes lanes;
    /* Products of batches have weights for each batch. */
    bool is_batched = call->kind == UL_CALL_MATMUL && trial->axis + 2 < call->dst.rank;
    if (!is_laid_out(call)) {
        lanes_init(&lanes, &call->weights, is_batched ? trial->axis : UL_NONE);
        fill(run->weights, &lanes, &source);
        return;
    }
    struct ul_packer packer;
    float chunk[CHUNK];
    uint64_t count = 1;
    for (uint32_t d = 0; d < call->weights.rank; d++)
        count *= (uint64_t)call->weights.dims[d];
    ul_packer_init(&packer, &call->layout, (unsigned char *)run->weights);
    for (uint64_t at = 0; at < count; at += CHUNK) {
        uint64_t length = count - at < CHUNK ? count - at : CHUNK;
        for (uint64_t i = 0; i < length; i++)
            chunk[i] = value_of(&source, at + i);
        ul_packer_add(&packer, (const unsigned char *)chunk, length);
    }
}

/* Fills the operand of a post-operation, or what the sum finds in the result's place. */
static void fill_post(struct run *run, uint32_t index, const struct ul_call_tensor *dst)
{
    const struct ul_piece_trial *trial = run->trial;
    const struct ul_post *post = &trial->piece->posts[index];
    const struct ul_call_tensor *tensor = post->kind == UL_POST_SUM ? dst : &post->tensor;
    struct source source = source_of(run, POSTS + index);
    struct lanes lanes;
    if (post->kind < UL_POST_SUM)
        return;
    lanes_init(&lanes, tensor, trial->axis);
    fill(post->kind == UL_POST_SUM ? run->dst : run->posts[index], &lanes, &source);
}

static void run_round(struct run *run)
{
    const struct ul_piece_trial *trial = run->trial;
    const struct ul_call *call = trial->piece;
    struct ul_call_tensor src = seen(call, &call->src, call->src_copy_bytes);
    struct ul_call_tensor dst = seen(call, &call->dst, call->dst_copy_bytes);
    struct source source = source_of(run, SRC);
    struct lanes lanes;
    lanes_init(&lanes, &src, trial->axis);
    fill(run->src, &lanes, &source);
    if (call->weights.rank > 0)
        fill_weights(run);
    if (call->bias.rank > 0) {
        source = source_of(run, BIAS);
        lanes_init(&lanes, &call->bias, UL_NONE);
        fill(run->bias, &lanes, &source);
    }
    for (uint32_t i = 0; i < call->post_count; i++)
        fill_post(run, i, &dst);
    run->good = dnnl_primitive_execute(run->primitive, run->stream, run->arg_count, run->args) ==
                    dnnl_success &&
                dnnl_stream_wait(run->stream) == dnnl_success;
    lanes_init(&lanes, &dst, trial->axis);
    hash_rows(run->dst, &lanes, trial->axis, seed_of(run, SRC), run->hashes);
}

/* The number is the same for the pieces as for the whole. */
static uint64_t round_count(const struct ul_piece_trial *trial)
{
    const struct ul_call *unsplit = trial->unsplit;
    uint64_t results = 1;
    for (uint32_t d = 0; d < unsplit->dst.rank; d++)
        results *= d == trial->axis ? 1 : (uint64_t)unsplit->dst.dims[d];
    UL_ASSERT(results > 0);
    uint64_t rounds = (MIN_RESULTS + results - 1) / results;
    rounds = rounds < MAX_ROUNDS ? rounds : MAX_ROUNDS;
    return is_padded(unsplit) && rounds == 1 && unsplit->dst.dims[1] == 1 ? 2 : rounds;
}

static bool run_offer(void *context, const_dnnl_primitive_desc_t offer)
{
    struct run *run = context;
    if (strcmp(ul_dnnl_offer_name(offer), run->trial->piece->implementation) != 0)
        return false;
    run->good = dnnl_stream_create(&run->stream, run->dnnl->engine, dnnl_stream_default_flags) ==
                    dnnl_success &&
                dnnl_primitive_create(&run->primitive, offer) == dnnl_success;
    bind_all(run, offer);
    for (; run->good && run->round < round_count(run->trial); run->round++)
        run_round(run);
    for (int i = 0; i < run->arg_count; i++)
        (void)dnnl_memory_destroy(run->args[i].memory);
    if (run->primitive != NULL)
        (void)dnnl_primitive_destroy(run->primitive);
    if (run->stream != NULL)
        (void)dnnl_stream_destroy(run->stream);
    return true;
}

bool ul_trial_run(struct ul_dnnl *dnnl, const struct ul_piece_trial *trial, uint64_t *hashes)
{
    UL_ASSERT(trial->piece->implementation != NULL && trial->axis < trial->piece->dst.rank);
    struct run run = {.dnnl = dnnl, .trial = trial, .hashes = hashes};
    int dynamic = omp_get_dynamic();
    /* In a smaller team the library's products leave out what a missing thread would have done. */
    if (omp_get_thread_limit() < (int)dnnl->thread_count)
        return false;
    omp_set_dynamic(0);
    ul_arena_init(&run.arena);
    bool found = ul_dnnl_each_offer(dnnl, trial->piece, false, run_offer, &run);
    ul_arena_done(&run.arena);
    omp_set_dynamic(dynamic);
    return found && run.good;
}
