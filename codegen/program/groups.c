/* A group of nodes becomes a step: a kernel of ours or a call of the target's library, or both
 * where nobody knows before the program starts whether the library has the call. */
#include "codegen/kernel/contract.h"
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "ir/op.h"
#include "ir/view.h"
#include "runtime/lib/ul_winograd.h"

/* "Conv+Add+Relu" */
static const char *group_ops(const struct ul_builder *builder, const ul_node_id *nodes,
                             uint32_t count)
{
    enum { MAX_NAMED = 8 };
    struct ul_text text;
    ul_text_init(&text, builder->arena);
    for (uint32_t i = 0; i < count && i < MAX_NAMED; i++)
        ul_text_printf(&text, "%s%s", i == 0 ? "" : "+",
                       ul_op_get(builder->graph->nodes[nodes[i]].op)->name);
    if (count > MAX_NAMED)
        ul_text_printf(&text, "+%u", count - MAX_NAMED);
    return text.data;
}

/* A piece forms its sums as the whole step does, in the one way that the text leaves no doubt of:
 * else its bits could differ. What was a call stays one, unless nothing is added, or the order in
 * which its library adds is nobody's to know before the program starts. */
static enum ul_status check_piece(struct ul_builder *builder, ul_node_id node, uint32_t kernel)
{
    const struct ul_program *whole = builder->options->whole;
    const struct ul_call *call = ul_whole_call(builder->whole, builder->graph, node);
    uint32_t orders = builder->program->kernels[kernel].sum_orders;
    uint32_t step = ul_whole_step(builder->whole, builder->graph, node);
    if (whole == NULL || (call == NULL && !ul_node_is_piece(builder->graph, node)) ||
        (call != NULL && builder->options->library->chosen_at_start))
        return UL_OK;
    bool same = call == NULL &&
                (step == UL_NONE ? orders == 0
                                 : whole->kernels[whole->steps[step].kernel].sum_orders == orders);
    bool sure = (orders & (orders - 1)) == 0 && orders != UL_CONTRACT_LOOSE;
    if (same && sure)
        return UL_OK;
    return ul_diag_set(
        builder->diag, UL_UNSUPPORTED, "%s is not sure to add in the order of all of it at once%s",
        ul_node_describe(builder->graph, node, builder->arena),
        call != NULL && ul_winograd_is(call) ? "; it may be with --conv direct" : "");
}

/* ---- Calls ---- */

static void call_arg(struct ul_builder *builder, struct ul_program_step *step, ul_value_id value,
                     bool written)
{
    uint32_t at = step->arg_count++;
    step->args[at] = ul_place_address(UL_PLAN_NONE, 0);
    step->views[at] = value;
    step->written[at] = written;
    if (value == UL_NONE)
        return;
    const struct ul_value *info = &builder->graph->values[value];
    uint64_t bytes = ul_value_bytes(builder->graph, value);
    step->args[at] = ul_place_value_address(builder, value);
    step->traffic.moved_bytes += bytes;
    if (builder->graph->values[info->view.base].kind == UL_VALUE_WEIGHT)
        step->traffic.weight_bytes += bytes;
}

static ul_value_id base_of(const struct ul_builder *builder, ul_value_id value)
{
    return builder->graph->values[value].view.base;
}

/* The call's arguments, and the residual behind them. */
static struct ul_program_step call_step(struct ul_builder *builder,
                                        const struct ul_group_call *call, ul_node_id last)
{
    struct ul_program_step step = {.kind = UL_STEP_CALL, .node = last};
    const char *plan_name = builder->options->library->plan_name;
    step.kernel = ul_function_add_call(builder, &call->call);
    step.implementation = call->call.implementation;
    if (!ul_winograd_is(&call->call) && plan_name != NULL)
        step.implementation =
            ul_arena_printf(builder->arena, "%s %s", plan_name, call->call.implementation);
    ul_step_init_args(builder, &step, call->arg_count + 1);
    for (uint32_t i = 0; i < call->arg_count; i++)
        call_arg(builder, &step, call->args[i], i == UL_CALL_DST);
    if (call->residual != UL_NONE)
        call_arg(builder, &step, call->residual, false);
    step.has_residual = call->residual != UL_NONE;
    if (step.has_residual && !call->copies_residual) {
        struct ul_in_place *in_place = UL_NEW(builder->arena, struct ul_in_place);
        in_place->output = base_of(builder, call->args[UL_CALL_DST]);
        in_place->input = base_of(builder, call->residual);
        step.in_place = in_place;
        step.in_place_count = 1;
    }
    ul_work_count_call(builder, call, &step.work);
    return step;
}

/* The same call with ever less scratch, which a budget may take. */
static void add_leaner(struct ul_builder *builder, const struct ul_group_call *call,
                       uint64_t own_scratch_bytes, struct ul_program_step *step)
{
    const struct ul_target_library *library = builder->options->library;
    struct ul_program_leaner *all =
        UL_NEW_ARRAY(builder->arena, struct ul_program_leaner, UL_IMPLEMENTATIONS);
    struct ul_call lean = call->call;
    double slowdown = 1;
    step->leaner = all;
    while (library->leaner != NULL && step->leaner_count + 1 < UL_IMPLEMENTATIONS &&
           lean.scratch_bytes > own_scratch_bytes) {
        double more = library->leaner(library->context, &lean);
        if (more == 0)
            break;
        slowdown *= more;
        all[step->leaner_count++] = (struct ul_program_leaner){
            .call = ul_function_add_call(builder, &lean),
            .scratch_bytes =
                lean.scratch_bytes > own_scratch_bytes ? lean.scratch_bytes : own_scratch_bytes,
            .slowdown = slowdown};
    }
}

/* ---- Kernels ---- */

static enum ul_status kernel_step(struct ul_builder *builder, const ul_node_id *nodes,
                                  uint32_t count, struct ul_program_step *out)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_lower_result result;
    ul_lower_group(graph, nodes, count, builder->escapes, &builder->options->target->traits,
                   builder->arena, &result);
    struct ul_kernel *kernel = result.kernel;
    ul_node_id last = nodes[count - 1];
    struct ul_program_step step = {.kind = UL_STEP_KERNEL, .node = last};
    enum ul_status status = ul_function_add_kernel(builder, kernel, &step.kernel);
    if (status != UL_OK) {
        ul_diag_prefix(builder->diag, ul_node_describe(graph, last, builder->arena));
        return status;
    }
    const struct ul_program_kernel *function = &builder->program->kernels[step.kernel];
    ul_step_init_args(builder, &step, kernel->buffer_count);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role != UL_BUFFER_INPUT && buffer->role != UL_BUFFER_OUTPUT)
            continue;
        step.args[step.arg_count] =
            ul_place_address(ul_place_of(builder, buffer->value), buffer->offset_bytes);
        step.written[step.arg_count] = buffer->role == UL_BUFFER_OUTPUT;
        step.views[step.arg_count] = buffer->view;
        ul_work_count_buffer(graph, buffer, function->accesses[i], &step.traffic);
        step.arg_count++;
    }
    step.work = function->work;
    step.in_place_count = result.in_place_count;
    step.in_place = result.in_place;
    *out = step;
    return UL_OK;
}

static bool is_among(const struct ul_in_place *pairs, uint32_t count,
                     const struct ul_in_place *wanted)
{
    for (uint32_t i = 0; i < count; i++) {
        if (pairs[i].output == wanted->output && pairs[i].input == wanted->input)
            return true;
    }
    return false;
}

/* Puts a kernel of ours beside a call that may find no library: what the plan says of places must
 * hold for both. */
static void join_own(struct ul_builder *builder, struct ul_program_step *call,
                     const struct ul_program_step *own)
{
    call->own = ul_arena_copy(builder->arena, own, sizeof *own);
    if (call->in_place_count > 0 && !is_among(own->in_place, own->in_place_count, call->in_place))
        call->in_place_count = 0;
}

/* ---- The group ---- */

/* Products or convolutions of 16 bits, which a library may not have where it has them in f32. */
static bool multiplies_halves(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        const struct ul_node *node = &graph->nodes[nodes[n]];
        if ((ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0 &&
            graph->values[node->inputs[0]].storage != UL_DTYPE_NONE)
            return true;
    }
    return false;
}

/* The step, and the scratch that it has in any case. */
static enum ul_status make_step(struct ul_builder *builder, const ul_node_id *nodes, uint32_t count,
                                struct ul_program_step *step, uint64_t *scratch_bytes)
{
    ul_node_id last = nodes[count - 1];
    const struct ul_group_call *call = builder->calls.by_node[last];
    struct ul_program_step own;
    *scratch_bytes = 0;
    if (call == NULL) {
        UL_TRY(kernel_step(builder, nodes, count, step));
        *scratch_bytes = builder->program->kernels[step->kernel].scratch_bytes;
        return check_piece(builder, last, step->kernel);
    }
    *step = call_step(builder, call, last);
    if (builder->options->library->chosen_at_start) {
        UL_TRY(kernel_step(builder, nodes, count, &own));
        *scratch_bytes = builder->program->kernels[own.kernel].scratch_bytes;
        join_own(builder, step, &own);
    }
    add_leaner(builder, call, *scratch_bytes, step);
    if (call->call.scratch_bytes > *scratch_bytes)
        *scratch_bytes = call->call.scratch_bytes;
    return UL_OK;
}

enum ul_status ul_group_add(struct ul_builder *builder, const ul_node_id *nodes, uint32_t count,
                            uint32_t region)
{
    struct ul_program_step step;
    uint64_t scratch_bytes;
    UL_ASSERT(count > 0);
    UL_TRY(make_step(builder, nodes, count, &step, &scratch_bytes));
    step.name = ul_step_name(builder, builder->graph->nodes[nodes[count - 1]].name);
    step.op = group_ops(builder, nodes, count);
    builder->program->uncalled_count += step.kind == UL_STEP_KERNEL &&
                                        builder->options->library != NULL &&
                                        multiplies_halves(builder->graph, nodes, count);
    ul_step_add(builder, &step, region, scratch_bytes);
    return UL_OK;
}
