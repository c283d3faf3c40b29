/* SPDX-License-Identifier: Apache-2.0 */
/* A group of nodes becomes a step: a kernel of ours or a call of a library, or both
 * where nobody knows before the program starts whether the library has the call. */
#include "codegen/kernel/contract.h"
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

/* "Conv+Add+Relu" */
static const char *group_ops(const struct ul_program_builder *builder, const ul_node_id *nodes,
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

/* Whether a kernel of ours for a piece forms its sums like the whole step's: otherwise its bits
 * could differ. */
static bool is_sure_piece(const struct ul_program_builder *builder, ul_node_id node,
                          uint32_t kernel)
{
    return builder->unsplit == NULL || !ul_node_is_piece(builder->graph, node) ||
           ul_unsplit_has_orders(builder->unsplit, builder->graph, node,
                                 builder->program->kernels[kernel].sum_orders);
}

/* A call must stay a call, unless the order in which its library adds is not known before the
 * program starts. */
static enum ul_status check_piece(struct ul_program_builder *builder, ul_node_id node,
                                  uint32_t kernel)
{
    const struct ul_program_call *call = ul_unsplit_call(builder->unsplit, builder->graph, node);
    if (call == NULL ? is_sure_piece(builder, node, kernel) : call->library->chosen_at_start)
        return UL_OK;
    const char *without = call != NULL ? call->library->without : NULL;
    return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                       "%s is not sure to add in the order of all of it at once%s%s",
                       ul_node_describe(builder->graph, node, builder->arena),
                       without != NULL ? "; it may be with " : "", without != NULL ? without : "");
}

/* ---- Calls ---- */

/* `pack`: the layout that the call wants for a weight; else NULL. */
static void call_arg(struct ul_program_builder *builder, struct ul_program_step *step,
                     ul_value_id value, bool written, const struct ul_pack *pack)
{
    uint32_t at = step->arg_count++;
    step->args[at] = ul_place_address(UL_PLAN_NONE, 0);
    step->views[at] = value;
    step->written[at] = written;
    if (value == UL_NONE)
        return;
    const struct ul_value *info = &builder->graph->values[value];
    uint64_t bytes = ul_value_bytes(builder->graph, value);
    step->args[at] = pack == NULL
                         ? ul_place_value_address(builder, value)
                         : ul_place_address(ul_place_of_form(builder, info->view.base, pack), 0);
    bytes = pack == NULL ? bytes : pack->size_bytes;
    step->traffic.moved_bytes += bytes;
    step->moved[at] = bytes;
    if (builder->graph->values[info->view.base].kind == UL_VALUE_WEIGHT)
        step->traffic.weight_bytes += bytes;
}

static ul_value_id base_of(const struct ul_program_builder *builder, ul_value_id value)
{
    return builder->graph->values[value].view.base;
}

/* Makes the call's arguments, with the residual last. */
static struct ul_program_step call_step(struct ul_program_builder *builder,
                                        const struct ul_group_call *call, ul_node_id last)
{
    struct ul_program_step step = {.kind = UL_STEP_CALL, .node = last};
    const char *plan_name = call->library->plan_name;
    step.kernel = ul_function_add_call(builder, &call->call, call->library);
    ul_place_add_library(builder, step.kernel);
    step.kept_place = builder->program->calls[step.kernel].kept_place;
    step.implementation = call->call.implementation;
    step.scratch_bytes = call->call.scratch_bytes;
    if (plan_name != NULL)
        step.implementation =
            ul_arena_printf(builder->arena, "%s %s", plan_name, call->call.implementation);
    ul_step_init_args(builder, &step, call->arg_count + 1);
    for (uint32_t i = 0; i < call->arg_count; i++)
        call_arg(builder, &step, call->args[i], ul_call_writes(&call->call, i) != 0,
                 i == UL_CALL_WEIGHTS ? call->call.pack : NULL);
    if (call->residual != UL_NONE)
        call_arg(builder, &step, call->residual, false, NULL);
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

/* ---- Kernels ---- */

static enum ul_status kernel_step(struct ul_program_builder *builder, const ul_node_id *nodes,
                                  uint32_t count, struct ul_program_step *out)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_lower_result result;
    ul_lower_group(graph, nodes, count, builder->escapes, &builder->options->target->traits,
                   builder->arena, &result);
    struct ul_kernel *kernel = result.kernel;
    ul_node_id last = nodes[count - 1];
    struct ul_program_step step = {
        .kind = UL_STEP_KERNEL, .node = last, .kept_place = UL_PLAN_NONE};
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
        step.moved[step.arg_count++] =
            ul_work_count_buffer(graph, buffer, function->accesses[i], &step.traffic);
    }
    step.work = function->work;
    step.scratch_bytes = function->printed.scratch_bytes;
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

/* Adds a kernel of ours to a call that may find no library: the plan's places must hold for
 * both. */
static void join_own(struct ul_program_builder *builder, struct ul_program_step *call,
                     const struct ul_program_step *own)
{
    call->own = ul_arena_copy(builder->arena, own, sizeof *own);
    if (call->in_place_count > 0 && !is_among(own->in_place, own->in_place_count, call->in_place))
        call->in_place_count = 0;
}

/* Whether there are products or convolutions of 16 bits, which a library may not have where it has
 * them in f32. */
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

static uint32_t count_weighs(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t n = 0; n < count; n++)
        sum += (ul_op_get(graph->nodes[nodes[n]].op)->flags & UL_OP_WEIGHS) != 0;
    return sum;
}

/* ---- Alternatives ---- */

static void add_other(struct ul_program_builder *builder, struct ul_program_step *step,
                      const struct ul_program_step *other)
{
    struct ul_program_step *others =
        UL_NEW_ARRAY(builder->arena, struct ul_program_step, step->alternative_count + 1);
    UL_ASSERT(step->alternative_count + 1 < UL_STEP_ALTERNATIVES + UL_SPARES);
    for (uint32_t i = 0; i < step->alternative_count; i++)
        others[i] = step->alternatives[i];
    others[step->alternative_count++] = *other;
    step->alternatives = others;
}

/* Adds the same call with ever less scratch, which a budget may take; a kernel of ours as well has
 * its own scratch in any case. */
static void add_leaner(struct ul_program_builder *builder, const struct ul_group_call *call,
                       struct ul_program_step *step)
{
    const struct ul_target_library *library = call->library;
    struct ul_call lean = call->call;
    uint64_t own_bytes = step->own != NULL ? step->own->scratch_bytes : 0;
    double slowdown = 1;
    while (library->leaner != NULL && step->alternative_count + 1 < UL_STEP_ALTERNATIVES &&
           lean.scratch_bytes > own_bytes) {
        double more = library->leaner(library->context, &lean);
        if (more == 0)
            break;
        slowdown *= more;
        struct ul_program_step other = *step;
        other.alternative_count = 0;
        other.kernel = ul_function_add_call(builder, &lean, library);
        other.scratch_bytes = lean.scratch_bytes > own_bytes ? lean.scratch_bytes : own_bytes;
        other.slowdown = slowdown;
        add_other(builder, step, &other);
    }
}

/* Adds the same call with more scratch, which a finished plan may have room for: the most that it
 * can use, and halves of that. They come after all other alternatives. */
static void add_spares(struct ul_program_builder *builder, const struct ul_group_call *call,
                       struct ul_program_step *step)
{
    enum { ALIGN = 64 };
    const struct ul_target_library *library = call->library;
    uint64_t most = library->most != NULL ? library->most(library->context, &call->call) : 0;
    for (uint32_t i = 0; i < UL_SPARES; i++) {
        struct ul_call rich = call->call;
        rich.scratch_bytes = (most >> i) / ALIGN * ALIGN;
        if (rich.scratch_bytes <= step->scratch_bytes)
            break;
        struct ul_program_step other = *step;
        other.alternative_count = 0;
        other.spare_count = 0;
        other.kernel = ul_function_add_call(builder, &rich, library);
        other.scratch_bytes = rich.scratch_bytes;
        add_other(builder, step, &other);
        step->spare_count++;
    }
}

/* Whether a result is donated the place of something else that the step reads, and the kernel is
 * not made to overwrite that. */
static bool overwrites_input(const struct ul_program_step *step,
                             const struct ul_program_builder *builder)
{
    for (uint32_t w = 0; w < step->arg_count; w++) {
        for (uint32_t r = 0; r < step->arg_count; r++) {
            if (!step->written[w] || step->written[r] || step->args[r].place == UL_PLAN_NONE ||
                step->args[w].place != step->args[r].place)
                continue;
            struct ul_in_place pair = {.output = base_of(builder, step->views[w]),
                                       .input = base_of(builder, step->views[r])};
            if (pair.output != pair.input && !is_among(step->in_place, step->in_place_count, &pair))
                return true;
        }
    }
    return false;
}

/* A budget may leave no room for what a call keeps, or for its scratch: adds a kernel of ours,
 * except for pieces that might not have the bits of the whole. */
static enum ul_status add_own(struct ul_program_builder *builder, const ul_node_id *nodes,
                              uint32_t count, struct ul_program_step *step)
{
    struct ul_program_step own;
    if (step->own != NULL) /* it stands beside the call in any case */
        return UL_OK;
    UL_TRY(kernel_step(builder, nodes, count, &own));
    if (!is_sure_piece(builder, nodes[count - 1], own.kernel) || overwrites_input(&own, builder))
        return UL_OK;
    own.kept_place = ul_place_of_code(builder, own.kernel);
    add_other(builder, step, &own);
    return UL_OK;
}

/* ---- Results that an earlier call may form ---- */

/* Marks the kernel of a result that the call before it may form: the kernel runs where the call
 * does not form it. The result's place lives from the call on. The kernel costs nothing, since
 * libraries have such calls. */
static void spare(const struct ul_program_builder *builder, struct ul_program_step *step)
{
    uint32_t call = builder->program->step_count - 1;
    UL_ASSERT(builder->program->step_count > 0 && step->kind == UL_STEP_KERNEL);
    UL_ASSERT(builder->program->steps[call].kind == UL_STEP_CALL);
    step->is_spared = true;
    step->spared_by = call;
    step->in_place_count = 0;
    memset(&step->work, 0, sizeof step->work);
    memset(&step->traffic, 0, sizeof step->traffic);
}

/* Puts the value that is multiplied by slopes into the place of the product that the call before it
 * wrote. */
static void lie_in_place(struct ul_program_builder *builder, ul_node_id id)
{
    const struct ul_program *program = builder->program;
    const struct ul_node *node = &builder->graph->nodes[id];
    if (!builder->calls.is_spared[id])
        return;
    UL_ASSERT(program->step_count > 0);
    const struct ul_program_step *call = &program->steps[program->step_count - 1];
    UL_ASSERT(call->kind == UL_STEP_CALL);
    if (program->calls[call->kernel].call->slopes_of != UL_SLOPES_OF_NONE)
        ul_place_join(builder, node->outputs[0], base_of(builder, node->inputs[0]));
}

/* The call gives up as much of its scratch as its sums take. Where a kernel of ours in its place
 * would need that scratch, it forms no sums, and their kernel is an ordinary one. */
static void fit_sums(struct ul_program_builder *builder, ul_node_id last, uint64_t own_bytes,
                     struct ul_group_call *call)
{
    if (call->call.sums_of == UL_SUMS_OF_NONE)
        return;
    uint64_t align = builder->options->align_bytes;
    uint64_t bytes =
        ul_size_align_or_die(ul_value_bytes(builder->graph, call->args[UL_CALL_BIAS]),
                             align > UL_PLAN_ALIGN_BYTES ? align : UL_PLAN_ALIGN_BYTES);
    if (call->call.scratch_bytes >= own_bytes + bytes) {
        call->call.scratch_bytes -= bytes;
        return;
    }
    call->call.sums_of = UL_SUMS_OF_NONE;
    call->args[UL_CALL_BIAS] = UL_NONE;
    memset(&call->call.bias, 0, sizeof call->call.bias);
    builder->calls.is_spared[builder->calls.spares[last]] = false;
}

/* ---- The group ---- */

/* The call at the node, with the scratch that it has in this program. */
static struct ul_group_call taken_call(const struct ul_program_builder *builder, ul_node_id last,
                                       uint64_t own_bytes)
{
    struct ul_group_call call = *builder->calls.by_node[last];
    const struct ul_target_library *library = call.library;
    if (builder->options->training != NULL && library->trained != NULL)
        call.call.scratch_bytes = library->trained(library->context, &call.call, own_bytes);
    return call;
}

static enum ul_status make_call(struct ul_program_builder *builder, const ul_node_id *nodes,
                                uint32_t count, struct ul_program_step *step)
{
    ul_node_id last = nodes[count - 1];
    const struct ul_group_call *faster = builder->calls.faster[last];
    bool has_own = builder->calls.by_node[last]->library->chosen_at_start;
    struct ul_program_step other = {.scratch_bytes = 0};
    if (has_own)
        UL_TRY(kernel_step(builder, nodes, count, &other));
    struct ul_group_call call = taken_call(builder, last, other.scratch_bytes);
    fit_sums(builder, last, other.scratch_bytes, &call);
    *step = call_step(builder, &call, last);
    if (has_own) {
        join_own(builder, step, &other);
        if (other.scratch_bytes > step->scratch_bytes)
            step->scratch_bytes = other.scratch_bytes;
    }
    if (builder->options->training != NULL)
        return UL_OK; /* a budget changes no bit of what is trained */
    add_leaner(builder, builder->calls.by_node[last], step);
    if (faster != NULL) {
        other = call_step(builder, faster, last);
        add_other(builder, step, &other);
    }
    UL_TRY(add_own(builder, nodes, count, step));
    add_spares(builder, builder->calls.by_node[last], step);
    return UL_OK;
}

enum ul_status ul_group_add(struct ul_program_builder *builder, const ul_node_id *nodes,
                            uint32_t count, uint32_t region)
{
    struct ul_program_step step;
    UL_ASSERT(count > 0);
    if (builder->calls.by_node[nodes[count - 1]] != NULL) {
        UL_TRY(make_call(builder, nodes, count, &step));
    } else {
        lie_in_place(builder, nodes[count - 1]);
        UL_TRY(kernel_step(builder, nodes, count, &step));
        UL_TRY(check_piece(builder, nodes[count - 1], step.kernel));
        if (builder->calls.is_spared[nodes[count - 1]])
            spare(builder, &step);
    }
    step.name = ul_step_name(builder, builder->graph->nodes[nodes[count - 1]].name);
    step.op = group_ops(builder, nodes, count);
    step.weigh_count = count_weighs(builder->graph, nodes, count);
    builder->program->uncalled_count += step.kind == UL_STEP_KERNEL &&
                                        builder->options->libraries != NULL &&
                                        multiplies_halves(builder->graph, nodes, count);
    ul_step_add(builder, &step, region);
    return UL_OK;
}
