/* What a step computes and moves, for the cost model (kernel/cost.c, kernel/profile.c). */
#include "codegen/program/program_internal.h"
#include "codegen/program/winograd.h"
#include "ir/view.h"

#include "runtime/lib/ul_winograd.h"

/* What the call's post-operations do beside its products. */
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

void ul_work_count_call(const struct ul_builder *builder, const struct ul_group_call *call,
                        struct ul_work *work)
{
    enum { FEW_CHANNELS = 4 };
    const struct ul_call *planned = &call->call;
    bool pools = planned->kind >= UL_CALL_MEAN_POOL;
    uint32_t channels = planned->group_count > 1 ? 2 : 1; /* axis of the weights */
    bool window =
        planned->kind != UL_CALL_MATMUL && !pools && planned->weights.dims[channels] < FEW_CHANNELS;
    uint64_t elements = ul_type_elements(&builder->graph->values[call->args[UL_CALL_DST]].type);
    uint64_t threads = builder->options->thread_count;
    enum ul_work_kind products = planned->src.type != UL_CALL_F32 ? UL_WORK_MATMUL_F16
                                 : planned->tf32                  ? UL_WORK_MATMUL_TF32
                                                                  : UL_WORK_MATMUL_F32;
    work->flop_count = pools ? call->product_count : 2 * call->product_count;
    if (ul_winograd_is(planned))
        ul_winograd_count(planned, work);
    else
        work->counts[pools    ? UL_WORK_VECTOR
                     : window ? UL_WORK_WINDOW
                              : products] += work->flop_count;
    work->counts[UL_WORK_VECTOR] +=
        (planned->src_copy_bytes / ul_call_element_bytes(&planned->src) +
         planned->dst_copy_bytes / ul_call_element_bytes(&planned->dst)) *
        2;
    count_posts(planned, elements, work);
    for (int k = 0; k < UL_WORK_KINDS; k++) {
        uint64_t share = (work->counts[k] + threads - 1) / threads;
        work->spared_counts[k] = work->counts[k] - share;
        work->counts[k] = share;
    }
    work->region_count = threads > 1;
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

void ul_work_count_buffer(const struct ul_graph *graph, const struct ul_buffer *buffer,
                          uint64_t accesses, struct ul_traffic *traffic)
{
    uint64_t bytes = buffer_bytes(graph, buffer, accesses);
    traffic->moved_bytes += bytes;
    if (graph->values[buffer->value].kind == UL_VALUE_WEIGHT)
        traffic->weight_bytes += bytes;
    UL_ASSERT(traffic->weight_bytes <= traffic->moved_bytes);
}

uint64_t ul_work_moved_bytes(const struct ul_graph *graph, const struct ul_program_step *step)
{
    uint64_t bytes = 0;
    UL_ASSERT(step->kind != UL_STEP_KERNEL && step->kind != UL_STEP_CALL);
    for (uint32_t i = 0; i < step->arg_count; i++) {
        if (step->kind == UL_STEP_COPY)
            bytes += step->copy_bytes;
        else
            bytes += step->views[i] == UL_NONE ? 0 : ul_value_bytes(graph, step->views[i]);
    }
    return bytes;
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
