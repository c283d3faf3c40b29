/* SPDX-License-Identifier: Apache-2.0 */
/* Asks oneDNN about a call: which implementation, in which layout of the weights, with how much
 * scratch. Nothing is computed here; the program makes the same descriptors again at its start
 * (runtime/lib/ul_dnnl_desc.h).
 *
 * Problem: the library has an implementation for everything, but many are of no use to a plan:
 * reference code is hundreds of times slower than a kernel of ours, and implementations by its gemm
 * allocate while they run. Method: its implementations are tried in its order of preference, except
 * for some shapes for which another is known to be faster, and the first that is neither of these
 * is taken. Convolutions and pooling run on dense channels-last tensors: where a source or result
 * has another layout and nothing is offered, the library is asked about dense copies in scratch, if
 * there is enough to compute per copied byte. It is also asked about a copy, in a layout of its
 * choice, of weights that cannot be packed once, since they are trained, and of their gradient.
 *
 * A program may run with fewer threads than its plan is for, and what the library offers depends on
 * their number: the layout that one of its implementations prefers for four threads may be served
 * by none for three. So the library is asked again as the program will ask it, with the layout
 * given, for every number of threads up to the planned one. A layout that has no implementation for
 * one of them is skipped, and the scratch is the most that any of them needs.
 *
 * Answers are cached: fusion asks about the same groups many times. */
#include "codegen/cpu/dnnl_internal.h"

#include <string.h>

struct answer {
    struct ul_call requested;
    struct ul_call call; /* implementation NULL: none */
    bool may_pack;
    struct answer *next; /* with the same hash */
};

/* ---- one question ---- */

/* Reads the sums of weights that the library wants after them; false where they are not these. For
 * sums of bytes that were made positive it subtracts 128 times the sums; for a zero point, the zero
 * point times the sums, or nothing (sums of 0) where the zero point is only that of the padding. */
static bool read_sums(struct ul_pack *layout, const dnnl_memory_desc_t *desc,
                      enum ul_call_zero zero_kind)
{
    enum { MADE_POSITIVE = dnnl_memory_extra_flag_compensation_conv_s8s8 };
    enum { HAS_ZERO = dnnl_memory_extra_flag_compensation_conv_asymmetric_src };
    enum { SCALED = dnnl_memory_extra_flag_scale_adjust };
    uint64_t flags = desc->extra.flags;
    int made_mask = desc->extra.compensation_mask, zero_mask = desc->extra.asymm_compensation_mask;
    int mask = (flags & MADE_POSITIVE) != 0 ? made_mask : zero_mask;
    dnnl_memory_desc_t tiles = *desc;
    uint32_t table = 0;
    if (flags == 0)
        return true;
    if ((flags & ~(uint64_t)(MADE_POSITIVE | HAS_ZERO | SCALED)) != 0 || mask == 0 ||
        ((flags & SCALED) != 0 && desc->extra.scale_adjust != 1) ||
        ((flags & HAS_ZERO) != 0 && zero_mask != mask) || desc->data_type != dnnl_s8)
        return false;
    memset(&tiles.extra, 0, sizeof tiles.extra);
    layout->sum_flags = (uint32_t)flags;
    layout->sums_offset_bytes = dnnl_memory_desc_get_size(&tiles);
    layout->sum_count = 1;
    for (int d = desc->ndims; d-- > 0;) {
        if ((mask >> d & 1) == 0)
            continue;
        layout->sum_strides[d] = layout->sum_count;
        layout->sum_count *= desc->padded_dims[d];
    }
    if ((flags & MADE_POSITIVE) != 0)
        layout->sum_factors[table++] = -128;
    if ((flags & HAS_ZERO) != 0)
        layout->sum_factors[table++] = zero_kind == UL_ZERO_PADDING ? 0 : -1;
    uint64_t bytes = (uint64_t)layout->sum_count * table * sizeof(int32_t);
    return layout->size_bytes >= layout->sums_offset_bytes + bytes;
}

/* Reads the layout into a struct ul_pack; false where that cannot express it. */
static bool read_layout(struct ul_pack *layout, const dnnl_memory_desc_t *desc,
                        enum ul_call_zero zero_kind)
{
    const dnnl_blocking_desc_t *blocking = &desc->format_desc.blocking;
    int64_t block[UL_CALL_RANK] = {1, 1, 1, 1, 1, 1};
    if (desc->format_kind != dnnl_blocked || desc->ndims > UL_CALL_RANK || desc->offset0 != 0 ||
        blocking->inner_nblks > UL_PACK_BLOCKS)
        return false;
    memset(layout, 0, sizeof *layout);
    layout->rank = (uint32_t)desc->ndims;
    layout->block_count = (uint32_t)blocking->inner_nblks;
    layout->size_bytes = dnnl_memory_desc_get_size(desc);
    layout->element_bytes = desc->data_type == dnnl_f32 ? 4 : desc->data_type == dnnl_s8 ? 1 : 2;
    for (uint32_t b = 0; b < layout->block_count; b++) {
        layout->blocks[b] = blocking->inner_blks[b];
        layout->block_dims[b] = (uint32_t)blocking->inner_idxs[b];
        block[layout->block_dims[b]] *= layout->blocks[b];
    }
    for (uint32_t d = 0; d < layout->rank; d++) {
        layout->dims[d] = desc->dims[d];
        layout->strides[d] = blocking->strides[d];
        if (desc->padded_dims[d] != (desc->dims[d] + block[d] - 1) / block[d] * block[d] ||
            desc->padded_offsets[d] != 0)
            return false;
    }
    return read_sums(layout, desc, zero_kind);
}

const float *ul_dnnl_scales(struct ul_dnnl *dnnl, const struct ul_call *call)
{
    UL_ASSERT(call->scale_count >= 0);
    if (call->scale_count > dnnl->scale_count) {
        dnnl->scale_count = call->scale_count;
        dnnl->scales = UL_NEW_ARRAY(dnnl->arena, float, (uint64_t)dnnl->scale_count);
        for (int64_t i = 0; i < dnnl->scale_count; i++)
            dnnl->scales[i] = 0.5f;
    }
    return dnnl->scales;
}

struct ul_call ul_dnnl_without_scales(const struct ul_call *call)
{
    struct ul_call other = *call;
    other.scales_value = call->scale_count > 0;
    UL_ASSERT(other.scales == NULL && other.scales_offset_bytes == 0);
    return other;
}

bool ul_dnnl_each_offer(struct ul_dnnl *dnnl, const struct ul_call *call, bool pack,
                        ul_dnnl_visit *visit, void *context)
{
    UL_ASSERT(visit != NULL);
    struct ul_dnnl_desc desc;
    dnnl_primitive_desc_iterator_t iterator = NULL;
    bool stopped = false;
    bool more = ul_dnnl_describe(&desc, call, pack, ul_dnnl_scales(dnnl, call)) &&
                dnnl_primitive_desc_iterator_create(&iterator, &desc.op, desc.attr, dnnl->engine,
                                                    NULL) == dnnl_success;
    while (more && !stopped) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(iterator);
        stopped = visit(context, pd);
        (void)dnnl_primitive_desc_destroy(pd);
        more = !stopped && dnnl_primitive_desc_iterator_next(iterator) == dnnl_success;
    }
    if (iterator != NULL)
        (void)dnnl_primitive_desc_iterator_destroy(iterator);
    if (desc.attr != NULL)
        (void)dnnl_primitive_attr_destroy(desc.attr);
    return stopped;
}

const char *ul_dnnl_offer_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    bool good =
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success;
    return good ? name : "ref";
}

static uint64_t scratch_of(const_dnnl_primitive_desc_t pd, const struct ul_call *call)
{
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return ul_call_scratch_own(call) + (scratch == NULL ? 0 : dnnl_memory_desc_get_size(scratch));
}

/* ---- fewer threads ---- */

enum { EVERY_THREAD = 64 };

struct repeat {
    const struct ul_call *call;
    bool found;
    uint64_t scratch_bytes;
};

/* The program takes the planned implementation, or else the first one that fits. */
static bool choose_again(void *context, const_dnnl_primitive_desc_t pd)
{
    struct repeat *repeat = context;
    UL_ASSERT(repeat->call->implementation != NULL);
    const char *name = ul_dnnl_offer_name(pd);
    bool same = strcmp(name, repeat->call->implementation) == 0;
    if (!ul_call_refuses(repeat->call, name) && (same || !repeat->found)) {
        repeat->found = true;
        repeat->scratch_bytes = scratch_of(pd, repeat->call);
    }
    return same;
}

/* The number of threads to ask about next. A question about a convolution takes 0.1 ms, and more
 * with many threads: beyond EVERY_THREAD only doublings and the last number are asked. */
static uint32_t next_count(const struct ul_dnnl *dnnl, const struct ul_call *call, uint32_t threads)
{
    bool each = threads < EVERY_THREAD || call->kind == UL_CALL_MATMUL;
    uint32_t next = each ? threads + 1 : 2 * threads;
    UL_ASSERT(next > threads);
    return threads < dnnl->thread_count && next > dnnl->thread_count ? dnnl->thread_count : next;
}

/* Whether every number of threads has an implementation for the call with its layout; makes room
 * for the scratch of each. The smallest number comes first, since most failures occur there. */
static bool serves_all_threads(struct ul_dnnl *dnnl, struct ul_call *call, bool pack)
{
    UL_ASSERT(call->implementation != NULL);
    struct ul_call requested = *call;
    struct repeat repeat = {.call = &requested, .found = true};
    requested.pack = pack ? &requested.layout : call->pack;
    uint32_t threads = 1;
    /* Its layout depends on the number of threads: no single layout serves that many numbers. */
    if (dnnl->thread_count > EVERY_THREAD && strncmp(call->implementation, "brgconv", 7) == 0)
        return false;
    for (; threads <= dnnl->thread_count && repeat.found;
         threads = next_count(dnnl, call, threads)) {
        repeat.found = false;
        omp_set_num_threads((int)threads);
        (void)ul_dnnl_each_offer(dnnl, &requested, false, choose_again, &repeat);
        if (repeat.found && repeat.scratch_bytes > call->scratch_bytes)
            call->scratch_bytes = repeat.scratch_bytes;
    }
    omp_set_num_threads((int)dnnl->thread_count);
    return repeat.found;
}

/* Where an offered layout is used. */
enum layout_use {
    AS_GIVEN, /* weights have the call's layout */
    PACKED,   /* made once, in the buffer */
    BY_COPY   /* made at each run, in scratch */
};

struct question {
    struct ul_dnnl *dnnl;
    struct ul_call *call;
    enum layout_use use;
    const char *only;  /* the implementation that it must be; NULL: any */
    const char *begin; /* the beginning of its name; "": any */
};

static void set_layout_bytes(struct ul_call *call, uint64_t bytes)
{
    if (call->kind == UL_CALL_WEIGHT_GRADIENT)
        call->dst_copy_bytes = bytes;
    else
        call->weights_copy_bytes = bytes;
    UL_ASSERT(ul_call_layout_bytes(call) == bytes);
}

/* Whether the library copies into the layout without memory of its own. */
static bool can_copy(const struct ul_dnnl *dnnl, const struct ul_call *call)
{
    dnnl_memory_desc_t plain, packed;
    dnnl_primitive_desc_t copy = NULL;
    const struct ul_call_tensor *filters = ul_call_filters(call);
    bool into = call->kind != UL_CALL_WEIGHT_GRADIENT;
    bool good = ul_dnnl_plain(&plain, filters) &&
                ul_dnnl_packed(&packed, &call->layout, filters->type) &&
                dnnl_reorder_primitive_desc_create(&copy, into ? &plain : &packed, dnnl->engine,
                                                   into ? &packed : &plain, dnnl->engine,
                                                   NULL) == dnnl_success;
    if (copy != NULL)
        (void)dnnl_primitive_desc_destroy(copy);
    return good;
}

/* Takes the implementation's properties into the call; false where a plan cannot hold it. */
static bool take(void *context, const_dnnl_primitive_desc_t pd)
{
    const struct question *question = context;
    struct ul_call *call = question->call;
    bool back = call->kind == UL_CALL_WEIGHT_GRADIENT;
    const dnnl_memory_desc_t *filters = dnnl_primitive_desc_query_md(
        pd, back ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const char *name = ul_dnnl_offer_name(pd);
    if (ul_call_refuses(call, name) ||
        (question->only != NULL && strcmp(question->only, name) != 0) ||
        strncmp(question->begin, name, strlen(question->begin)) != 0 ||
        (question->use != AS_GIVEN &&
         (filters == NULL || !read_layout(&call->layout, filters, call->src_zero_kind))))
        return false;
    if (question->use == BY_COPY) {
        set_layout_bytes(call, call->layout.size_bytes);
        if (call->layout.sum_flags != 0 || !can_copy(question->dnnl, call))
            return false;
    }
    call->implementation = ul_arena_copy_string(question->dnnl->arena, name);
    call->scratch_bytes = scratch_of(pd, call);
    return serves_all_threads(question->dnnl, call, question->use == PACKED);
}

/* Beginnings of names of implementations, the preferred one first; the rest are "". */
struct preference {
    const char *begins[3];
};

static const struct preference any_will_do = {{"", "", ""}};

static bool is_isa(const struct ul_dnnl *dnnl, const char *name)
{
    UL_ASSERT(dnnl->isa != NULL);
    return strcmp(dnnl->isa, name) == 0;
}

/* The preference on processors with tile registers (AMX), where one sum has enough products to fill
 * them:
 *
 *      1x1, 16384 products a pixel and more    brgconv_1x1, jit for jit_int8    0.45-0.9
 *      windows                                 brgconv, jit for jit_int8        0.35-0.6
 *      1x1, fewer, or at one pixel             jit_int8 for jit                 0.4-0.95
 *
 * jit_1x1, which the library offers before jit, takes 1.0-2.2 times its time. */
static struct preference tile_preference(const struct ul_call *call)
{
    enum { MIN_TILE_PRODUCTS = 16384 };
    static const struct preference tiles = {
        {"brgconv_1x1:avx512_core_amx", "brgconv:avx512_core_amx", "jit:avx512_core_amx"}};
    static const struct preference vectors = {{"brgconv_1x1:avx512_core_amx", "jit_int8:", ""}};
    const int64_t *w = call->weights.dims;
    bool is_point = call->group_count == 1 && w[2] == 1 && w[3] == 1;
    UL_ASSERT(call->dst.rank == 4);
    return is_point && w[0] * w[1] < MIN_TILE_PRODUCTS ? vectors : tiles;
}

/* Only brgemm has exact sums where they are stored as sums. */
static struct preference integer_preference(const struct ul_dnnl *dnnl, const struct ul_call *call)
{
    enum { MIN_INTEGER_PIXELS = 14 * 14 };
    static const struct preference vectors = {{"jit_int8:", "", ""}};
    bool is_depthwise = call->group_count > 1 && call->weights.dims[2] == 1;
    int64_t pixels = call->dst.dims[2] * call->dst.dims[3];
    bool has_tiles = is_isa(dnnl, "avx512_core_amx");
    if (call->dst.type == UL_CALL_I32)
        return any_will_do;
    if (is_depthwise || (has_tiles ? pixels == 1 : pixels >= MIN_INTEGER_PIXELS))
        return vectors;
    return has_tiles ? tile_preference(call) : any_will_do;
}

/* The implementations that are faster than what the library offers first. Measured with oneDNN 2.6
 * on Zen 4, where the ratios hold for one thread and two:
 *
 *      depthwise, rows of 8 pixels and more    jit_dw for brdgmm_dw         0.68-0.95 of the time
 *      1x1, results in blocks of 16 channels   jit_1x1:avx2 for brgconv     0.70-0.85
 *        of which a tenth and more is padding
 *
 * With integers:
 *
 *      depthwise                               jit_int8 for brdgmm_dw       0.83-1.0
 *      others, 14x14 pixels and more           jit_int8 for brgconv         0.81-1.0
 * With fewer pixels the last ratio is 1.0-1.18.
 *
 * jit_1x1 with blocks of 8 channels is for processors that run 512 bits in two halves, of which Zen
 * 4 is the one that oneDNN calls avx512_core_bf16. */
static struct preference prefer(const struct ul_dnnl *dnnl, const struct ul_call *call)
{
    enum { MIN_ROW = 8, MIN_PIXELS = 64 };
    static const struct preference depthwise = {{"jit_dw:", "", ""}};
    static const struct preference narrow = {{"jit_1x1:avx2", "", ""}};
    const int64_t *w = call->weights.dims;
    if (call->kind == UL_CALL_CONVOLUTION && call->dst.rank == 4 && ul_call_is_integer(call))
        return integer_preference(dnnl, call);
    if (call->kind != UL_CALL_CONVOLUTION || call->dst.rank != 4 || call->src.type != UL_CALL_F32)
        return any_will_do;
    if (call->group_count > 1)
        return w[1] == 1 && w[2] == 1 && call->dst.dims[3] >= MIN_ROW ? depthwise : any_will_do;
    int64_t blocks_of_8 = (w[0] + 7) / 8, blocks_of_16 = (w[0] + 15) / 16;
    bool padded = 10 * (2 * blocks_of_16 - blocks_of_8) >= blocks_of_8;
    return w[2] == 1 && w[3] == 1 && is_isa(dnnl, "avx512_core_bf16") && padded &&
                   call->dst.dims[2] * call->dst.dims[3] >= MIN_PIXELS
               ? narrow
               : any_will_do;
}

static bool ask(struct ul_dnnl *dnnl, struct ul_call *call, enum layout_use use, const char *only)
{
    const struct preference preference = only == NULL ? prefer(dnnl, call) : any_will_do;
    struct question question = {.dnnl = dnnl, .call = call, .use = use, .only = only, .begin = ""};
    for (size_t i = 0; i < sizeof preference.begins / sizeof *preference.begins; i++) {
        question.begin = preference.begins[i];
        if (question.begin[0] != '\0' &&
            ul_dnnl_each_offer(dnnl, call, use != AS_GIVEN, take, &question))
            return true;
    }
    question.begin = "";
    return ul_dnnl_each_offer(dnnl, call, use != AS_GIVEN, take, &question);
}

/* ---- copies ---- */

/* Bytes of the dense copy, or 0 where the tensor is dense already. */
static uint64_t copy_bytes(const struct ul_call *call, const struct ul_call_tensor *tensor)
{
    struct ul_call_tensor dense;
    int64_t count = ul_call_dense(call->kind, tensor, &dense);
    if (memcmp(dense.strides, tensor->strides, sizeof dense.strides) == 0)
        return 0;
    return (uint64_t)count * ul_call_element_bytes(tensor);
}

enum { COPY_LAYOUT = 1, COPY_SRC = 2, COPY_OTHER = 4, COPY_WAYS = 8 };

/* The tensor other than the source that may go through a dense copy. */
static const struct ul_call_tensor *other_of(const struct ul_call *call)
{
    return call->kind == UL_CALL_WEIGHT_GRADIENT ? &call->weights : &call->dst;
}

static bool convolves(const struct ul_call *call)
{
    return call->kind == UL_CALL_CONVOLUTION || call->kind == UL_CALL_DECONVOLUTION ||
           call->kind == UL_CALL_WEIGHT_GRADIENT;
}

/* Weights are copied into a layout of the library's choice only for convolutions. */
static bool has_way(const struct ul_call *call, uint32_t way, bool pack)
{
    bool laid_out = pack || call->pack != NULL || ul_call_layout_bytes(call) != 0;
    return ((way & COPY_LAYOUT) == 0 || (convolves(call) && !laid_out)) &&
           ((way & COPY_SRC) == 0 || copy_bytes(call, &call->src) > 0) &&
           ((way & COPY_OTHER) == 0 || copy_bytes(call, other_of(call)) > 0);
}

static uint64_t plain_bytes(const struct ul_call_tensor *tensor)
{
    uint64_t bytes = ul_call_element_bytes(tensor);
    for (uint32_t d = 0; d < tensor->rank; d++)
        bytes *= (uint64_t)tensor->dims[d];
    return bytes;
}

/* Asks with the fewest copies first. */
bool ul_dnnl_query(struct ul_dnnl *dnnl, struct ul_call *call, uint64_t product_count, bool pack,
                   const char *only)
{
    enum { MIN_PRODUCTS_PER_BYTE = 8 };
    const struct ul_call requested = *call;
    bool back = call->kind == UL_CALL_WEIGHT_GRADIENT;
    UL_ASSERT(call->src_copy_bytes == 0 && call->dst_copy_bytes == 0);
    for (uint32_t way = 0; way < COPY_WAYS; way++) {
        bool lays_out = (way & COPY_LAYOUT) != 0;
        enum layout_use use = pack ? PACKED : lays_out ? BY_COPY : AS_GIVEN;
        if (!has_way(&requested, way, pack))
            continue;
        *call = requested;
        uint64_t src_bytes = (way & COPY_SRC) != 0 ? copy_bytes(call, &call->src) : 0;
        uint64_t other_bytes = (way & COPY_OTHER) != 0 ? copy_bytes(call, other_of(call)) : 0;
        uint64_t copied =
            src_bytes + other_bytes + (lays_out ? plain_bytes(ul_call_filters(call)) : 0);
        call->src_copy_bytes = src_bytes;
        if (other_bytes > 0)
            *(back ? &call->weights_copy_bytes : &call->dst_copy_bytes) = other_bytes;
        if (product_count / MIN_PRODUCTS_PER_BYTE >= copied && ask(dnnl, call, use, only))
            return true;
    }
    return false;
}

/* ---- answers ---- */

uint32_t ul_dnnl_hash(const struct ul_call *call)
{
    return ul_hash_more(UL_HASH_BEGIN, call, sizeof *call) % UL_DNNL_TABLE;
}

/* The library unrolls its code over a window; it tries the blocks of a long row one after the
 * other, more of them where there is padding; and it counts steps in 32 bits. */
static bool is_bounded(const struct ul_call *call)
{
    enum { MAX_WINDOW = 16384, MAX_ROW = 1 << 26 };
    const struct ul_call_tensor *filters = ul_call_filters(call);
    bool is_conv = convolves(call);
    bool bounded = true;
    for (uint32_t d = 0; d < 3; d++)
        bounded = bounded && call->window[d] <= MAX_WINDOW && call->pads[d] <= MAX_WINDOW &&
                  call->pads[d + 3] <= MAX_WINDOW && call->steps[d] <= INT32_MAX &&
                  call->dilations[d] <= INT32_MAX;
    for (uint32_t d = 2; is_conv && d < call->src.rank; d++)
        bounded = bounded && call->src.dims[d] <= MAX_ROW && other_of(call)->dims[d] <= MAX_ROW &&
                  filters->dims[d + filters->rank - call->src.rank] <= MAX_WINDOW;
    return bounded;
}

/* After a transposed convolution of floats, oneDNN 2.6 computes functions and operands element by
 * element by reference code, in twenty times the time of all the sums. */
static bool has_slow_posts(const struct ul_call *call)
{
    return call->kind == UL_CALL_DECONVOLUTION && call->post_count > call->tail_count &&
           !ul_call_is_integer(call);
}

static struct answer *answer_new(struct ul_dnnl *dnnl, const struct ul_group_call *call,
                                 const struct ul_call *requested, bool pack)
{
    struct answer *answer = UL_NEW(dnnl->arena, struct answer);
    answer->requested = *requested;
    answer->call = *requested;
    answer->may_pack = pack;
    if (!ul_dnnl_query(dnnl, &answer->call, call->product_count, pack, NULL))
        answer->call.implementation = NULL;
    if (answer->call.implementation != NULL && pack) {
        struct ul_group_call packed = *call;
        struct ul_pack *layout = UL_NEW(dnnl->arena, struct ul_pack);
        packed.call = answer->call;
        ul_group_call_pack(&packed, layout);
        answer->call.pack = layout;
    }
    return answer;
}

bool ul_dnnl_answer(void *context, struct ul_group_call *call, bool pack)
{
    struct ul_dnnl *dnnl = context;
    UL_ASSERT(call->call.implementation == NULL);
    bool is_known = call->call.kind != UL_CALL_ATTENTION &&
                    call->call.kind != UL_CALL_ATTENTION_GRADIENT &&
                    call->call.kind != UL_CALL_NBITS;
    if (!is_known || !is_bounded(&call->call) || has_slow_posts(&call->call) ||
        (call->call.bias.rank > 0 && call->call.bias.type != UL_CALL_F32 &&
         !ul_call_is_integer(&call->call)))
        return false;
    pack = pack && call->may_pack;
    struct ul_call requested = ul_dnnl_without_scales(&call->call);
    struct answer **slot = &dnnl->table[ul_dnnl_hash(&requested)];
    struct answer *answer = *slot;
    while (answer != NULL && (answer->may_pack != pack || memcmp(&answer->requested, &requested,
                                                                 sizeof answer->requested) != 0))
        answer = answer->next;
    if (answer == NULL) {
        answer = answer_new(dnnl, call, &requested, pack);
        answer->next = *slot;
        *slot = answer;
    }
    requested.scales_value = call->call.scales_value;
    call->call = answer->call;
    call->call.scales_value = requested.scales_value;
    UL_ASSERT(answer->call.implementation == NULL || !pack || answer->call.pack != NULL);
    return answer->call.implementation != NULL;
}
