/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a step, for the cost model (kernel/cost.c, kernel/profile.c). */
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "ir/view.h"

#include "runtime/lib/ul_nbits.h"

/* The work of the call's post-operations. */
static void count_posts(const struct ul_call *call, uint64_t elements, struct ul_work *work)
{
    for (uint32_t i = 0; i < call->post_count; i++) {
        enum ul_post_kind kind = call->posts[i].kind;
        bool special = kind == UL_POST_GELU_ERF || kind == UL_POST_GELU_TANH ||
                       kind == UL_POST_SWISH || kind == UL_POST_LOGISTIC || kind == UL_POST_TANH ||
                       kind == UL_POST_ELU;
        work->counts[special ? UL_WORK_SPECIAL : UL_WORK_VECTOR] += elements;
        work->flop_count += elements;
    }
}

/* Taps of an axis that are in the source rather than in its padding, summed over its outputs. */
static uint64_t taps_inside(const struct ul_call *call, uint32_t axis)
{
    enum { MANY = 4096 };
    int64_t in = call->src.dims[2 + axis], out = call->dst.dims[2 + axis];
    int64_t kernel = call->weights.dims[call->weights.rank - call->src.rank + 2 + axis];
    int64_t step = call->steps[axis];
    uint64_t taps = 0;
    if (kernel > MANY)
        return (uint64_t)out * (uint64_t)kernel;
    for (int64_t k = 0; k < kernel; k++) {
        int64_t before = call->pads[axis] - k * call->dilations[axis]; /* of the first output */
        int64_t begin = before > 0 ? (before + step - 1) / step : 0;
        int64_t end = in + before > 0 ? (in + before + step - 1) / step : 0;
        end = end < out ? end : out;
        taps += end > begin ? (uint64_t)(end - begin) : 0;
    }
    return taps;
}

/* With channels of the result filled up to whole vectors of 64 bytes, group by group. */
static uint64_t filled_products(const struct ul_call *call, uint64_t products)
{
    /* For integers, sums fill the vectors. */
    uint64_t lanes = ul_call_is_integer(call) ? 16 : 64 / ul_call_element_bytes(&call->src);
    uint32_t of_conv = call->group_count > 1 ? 1 : 0;
    bool is_matrix =
        call->kind == UL_CALL_MATMUL || (call->kind == UL_CALL_NBITS && !ul_nbits_is_window(call));
    if (call->kind == UL_CALL_ATTENTION || call->kind == UL_CALL_ATTENTION_GRADIENT)
        return products;
    uint32_t axis = is_matrix ? call->weights.rank - 1 : of_conv;
    uint64_t channels = (uint64_t)ul_call_filters(call)->dims[axis];
    UL_ASSERT(channels > 0);
    return ul_size_mul_saturating(products / channels, (channels + lanes - 1) / lanes * lanes);
}

/* Multiplications of which none lies in the padding, where the library leaves those out. */
static uint64_t products_inside(const struct ul_group_call *call)
{
    const struct ul_call *planned = &call->call;
    uint64_t products = call->product_count;
    if (planned->kind != UL_CALL_CONVOLUTION || !call->library->skips_padding)
        return products;
    UL_ASSERT(planned->weights.rank >= planned->src.rank && planned->src.rank > 2);
    for (uint32_t axis = 0; axis + 2 < planned->src.rank; axis++) {
        uint64_t all =
            (uint64_t)planned->dst.dims[2 + axis] *
            (uint64_t)planned->weights.dims[planned->weights.rank - planned->src.rank + 2 + axis];
        UL_ASSERT(all > 0);
        products = ul_size_mul_saturating(products / all, taps_inside(planned, axis));
    }
    return products;
}

/* Attention weights of values. */
static uint64_t count_weights(const struct ul_call *call)
{
    const int64_t dims[] = {call->src.dims[0], call->src.dims[1], call->src.dims[2],
                            call->weights.dims[2]};
    uint64_t count = 1;
    for (uint32_t d = 0; d < sizeof dims / sizeof *dims; d++)
        count = ul_size_mul_saturating(count, (uint64_t)dims[d]);
    return count;
}

void ul_work_count_call(const struct ul_program_builder *builder, const struct ul_group_call *call,
                        struct ul_work *work)
{
    enum { FEW_CHANNELS = 4 };
    const struct ul_call *planned = &call->call;
    bool pools = planned->kind >= UL_CALL_MEAN_POOL;
    bool window = planned->kind != UL_CALL_MATMUL && !pools && planned->group_count > 1 &&
                  ul_call_filters(planned)->dims[2] < FEW_CHANNELS; /* of a group */
    uint64_t elements = ul_type_elements(&builder->graph->values[call->args[UL_CALL_DST]].type);
    uint64_t threads = builder->options->thread_count;
    /* A processor's lane for f32 has four products of 8 bits, which take as long (measured: 3.6 to
     * 4 times as many in a second). */
    bool is_integer = ul_call_is_integer(planned);
    bool on_device = builder->options->target->traits.memory_is_separate;
    uint64_t per_lane = is_integer && !on_device ? 4 : 1;
    enum ul_work_kind products = is_integer && on_device ? UL_WORK_MATMUL_INT8
                                 : planned->src.type != UL_CALL_F32 && !is_integer
                                     ? UL_WORK_MATMUL_F16
                                 : planned->tf32 ? UL_WORK_MATMUL_TF32
                                                 : UL_WORK_MATMUL_F32;
    work->flop_count = pools ? call->product_count : 2 * call->product_count;
    if (call->library->count != NULL)
        call->library->count(planned, work);
    else if (pools)
        work->counts[UL_WORK_VECTOR] += call->product_count;
    else if (window)
        work->counts[UL_WORK_WINDOW] += 2 * products_inside(call);
    else
        work->counts[products] += 2 * filled_products(planned, products_inside(call)) / per_lane;
    work->counts[UL_WORK_VECTOR] +=
        (planned->src_copy_bytes / ul_call_element_bytes(&planned->src) +
         planned->dst_copy_bytes / ul_call_element_bytes(&planned->dst) +
         planned->weights_copy_bytes / ul_call_element_bytes(&planned->weights)) *
        2;
    count_posts(planned, elements, work);
    if (planned->kind == UL_CALL_ATTENTION || planned->kind == UL_CALL_ATTENTION_GRADIENT)
        work->counts[UL_WORK_SPECIAL] += count_weights(planned);
    for (int k = 0; k < UL_WORK_KINDS; k++) {
        uint64_t share = (work->counts[k] + threads - 1) / threads;
        work->spared_counts[k] = work->counts[k] - share;
        work->counts[k] = share;
    }
    work->region_count = threads > 1;
    if (ul_call_has_mask(planned))
        work->launch_count = 2; /* bits of slopes come first */
    if (call->library->spread == NULL)
        return;
    call->library->spread(call->library->context, planned, work);
    work->product.kind = products;
    if (work->counts[products] == 0) /* it counts as windows */
        work->product.m = 0;
}

static uint64_t buffer_bytes(const struct ul_graph *graph, const struct ul_buffer *buffer,
                             uint64_t accesses)
{
    uint64_t bytes;
    uint64_t whole = buffer->view == UL_NONE ? 0 : ul_value_bytes(graph, buffer->view);
    if (!ul_size_mul(accesses, ul_dtype_get(buffer->dtype)->size_bytes, &bytes))
        return whole;
    return bytes < whole ? bytes : whole;
}

uint64_t ul_work_count_buffer(const struct ul_graph *graph, const struct ul_buffer *buffer,
                              uint64_t accesses, struct ul_traffic *traffic)
{
    uint64_t bytes = buffer_bytes(graph, buffer, accesses);
    traffic->moved_bytes += bytes;
    if (graph->values[buffer->value].kind == UL_VALUE_WEIGHT)
        traffic->weight_bytes += bytes;
    UL_ASSERT(traffic->weight_bytes <= traffic->moved_bytes);
    return bytes;
}

uint64_t ul_work_moved_bytes(const struct ul_graph *graph, const struct ul_program_step *step,
                             uint32_t i)
{
    UL_ASSERT(step->kind != UL_STEP_KERNEL && step->kind != UL_STEP_CALL && i < step->arg_count);
    if (step->kind == UL_STEP_COPY)
        return step->copy_bytes;
    return step->views[i] == UL_NONE ? 0 : ul_value_bytes(graph, step->views[i]);
}

uint64_t ul_work_rounds(const struct ul_program *program, uint32_t region)
{
    uint64_t rounds = 1;
    UL_ASSERT(region < program->region_count);
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
        bool fits = program->regions[r].kind != UL_PLAN_LOOP ||
                    ul_size_mul(rounds, (uint64_t)program->regions[r].rounds, &rounds);
        if (!fits)
            return UINT64_MAX;
    }
    return rounds;
}
