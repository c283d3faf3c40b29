/* From a fused graph with views to steps: groups become kernels, kernels with equal text become
 * one function, control flow becomes regions of steps, and all of it becomes the planner's problem.
 *
 * Control flow. A Loop or Scan runs its body's steps once a round. A carried value has bytes of
 * its own that span the loop: they are filled before it, read by the body, and refilled at the end
 * of each round; where one carried value takes over another, copies go through a second place so
 * that they act at once. Slices of scanned inputs and outputs are addressed by the round. Both
 * branches of an If write the bytes of its outputs.
 *
 *      copy init -> carried | loop: counter, slices in, body, slices out, refill | copy -> outputs
 */
#include "codegen/kernel/contract.h"
#include "codegen/kernel/threads.h"
#include "codegen/program/calls_internal.h"
#include "codegen/program/winograd.h"

#include "codegen/program/target.h"
#include "ir/op.h"
#include "ir/view.h"
#include "runtime/lib/ul_winograd.h"

#include <string.h>

struct builder {
    struct ul_arena *arena;
    struct ul_arena scratch; /* while one kernel is added */
    uint64_t weight_bytes;
    const struct ul_graph *graph;
    const struct ul_program_options *options;
    struct ul_program *program;
    struct ul_diag *diag;
    const bool *escapes;
    struct ul_calls calls;
    uint32_t *tests; /* region -> its TEST step, or UL_NONE; as many as the graph has blocks */
    uint32_t *kernel_table; /* hash of text -> kernel */
    uint32_t kernel_table_size;
    struct ul_whole *whole; /* the unsplit program; NULL: no split */
};

static enum ul_status build_block(struct builder *builder, ul_block_id block, uint32_t region);

static struct ul_view view_of(const struct ul_graph *graph, ul_value_id value)
{
    UL_ASSERT(graph->values[value].view.base != UL_NONE);
    return graph->values[value].view;
}

/* ---- Values ---- */

static enum ul_plan_class class_of(const struct ul_graph *graph, ul_value_id value)
{
    if (graph->values[value].kind == UL_VALUE_WEIGHT)
        return UL_PLAN_WEIGHTS;
    if (graph->values[value].kind == UL_VALUE_INPUT)
        return UL_PLAN_INPUTS;
    return ul_graph_is_output(graph, value) ? UL_PLAN_OUTPUTS : UL_PLAN_ACTIVATIONS;
}

static uint32_t space_of(const struct builder *builder, ul_value_id value)
{
    const struct ul_program_options *options = builder->options;
    enum ul_value_kind kind = builder->graph->values[value].kind;
    if (options->weights_rom && kind == UL_VALUE_WEIGHT)
        return UL_PROGRAM_ROM;
    if (options->io_caller && (kind == UL_VALUE_INPUT || ul_graph_is_output(builder->graph, value)))
        return UL_PROGRAM_CALLER;
    return UL_PROGRAM_ARENA;
}

/* The planner's value of a base; made at its first use. */
static uint32_t plan_value(struct builder *builder, ul_value_id base)
{
    struct ul_program *program = builder->program;
    if (program->plan_values[base] != UL_PLAN_NONE)
        return program->plan_values[base];
    const struct ul_value *info = &builder->graph->values[base];
    const struct ul_pack *pack = program->packs[base];
    struct ul_plan_value value =
        ul_plan_value_make(info->name, class_of(builder->graph, base),
                           pack != NULL ? pack->size_bytes : ul_value_bytes(builder->graph, base));
    value.space = space_of(builder, base);
    value.persistent = info->kind == UL_VALUE_WEIGHT || (info->flags & UL_VALUE_PERSISTENT) != 0;
    value.live_from_start = info->kind == UL_VALUE_INPUT;
    value.live_to_end = ul_graph_is_output(builder->graph, base) ||
                        (info->kind == UL_VALUE_INPUT && builder->options->keep_inputs);
    uint32_t id = ul_problem_add_value(program->problem, &value);
    program->plan_values[base] = id;
    program->graph_values[id] = base;
    return id;
}

/* ---- Kernels ---- */

static uint32_t text_hash(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static uint32_t *kernel_slot(struct builder *builder, const char *text)
{
    uint32_t mask = builder->kernel_table_size - 1;
    uint32_t slot = text_hash(text) & mask;
    while (builder->kernel_table[slot] != UL_NONE &&
           strcmp(builder->program->kernels[builder->kernel_table[slot]].text, text) != 0)
        slot = (slot + 1) & mask;
    return &builder->kernel_table[slot];
}

static void kernel_table_grow(struct builder *builder)
{
    enum { FIRST_SIZE = 64 };
    struct ul_program *program = builder->program;
    uint32_t size = builder->kernel_table_size == 0 ? FIRST_SIZE : 2 * builder->kernel_table_size;
    builder->kernel_table_size = size;
    builder->kernel_table = UL_NEW_ARRAY(builder->arena, uint32_t, size);
    memset(builder->kernel_table, 0xFF, size * sizeof *builder->kernel_table);
    for (uint32_t i = 0; i < program->kernel_count; i++)
        *kernel_slot(builder, program->kernels[i].text) = i;
}

static enum ul_status kernel_add(struct builder *builder, const struct ul_kernel *kernel,
                                 uint32_t *id)
{
    struct ul_program *program = builder->program;
    struct ul_text text;
    ul_text_init(&text, builder->arena);
    uint64_t scratch_bytes = 0;
    struct ul_threads threads;
    ul_threads_init(&threads, kernel, builder->options->thread_count, builder->arena);
    UL_TRY(builder->options->target->print(&text, kernel, &threads, &scratch_bytes, builder->diag));
    if (2 * (program->kernel_count + 1) > builder->kernel_table_size)
        kernel_table_grow(builder);
    uint32_t *slot = kernel_slot(builder, text.data);
    if (*slot != UL_NONE) {
        *id = *slot;
        return UL_OK;
    }
    UL_GROW(builder->arena, program->kernels, program->kernel_count, program->kernel_capacity);
    struct ul_program_kernel *added = &program->kernels[program->kernel_count];
    added->name = ul_arena_printf(builder->arena, "k%u", program->kernel_count);
    added->text = text.data;
    added->scratch_bytes = scratch_bytes;
    added->accesses = UL_NEW_ARRAY(builder->arena, uint64_t, kernel->buffer_count);
    ul_kernel_count_work(kernel, &threads, &builder->scratch, &added->work, added->accesses);
    ul_arena_reset(&builder->scratch);
    added->sum_orders = builder->options->target->sum_orders(kernel);
    *slot = program->kernel_count;
    *id = program->kernel_count++;
    return UL_OK;
}

/* ---- Calls of a library ---- */

/* Equal calls are one: arguments are given when it runs. */
static uint32_t call_add(struct builder *builder, const struct ul_call *call)
{
    struct ul_program *program = builder->program;
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (memcmp(&program->calls[i], call, sizeof *call) == 0)
            return i;
    }
    UL_GROW(builder->arena, program->calls, program->call_count, program->call_capacity);
    program->calls[program->call_count] = *call;
    return program->call_count++;
}

/* A place in the arena for the program's own books, through all runs. The graph is ours to extend
 * with values that no node names. */
static ul_value_id add_state(struct builder *builder, const char *name, uint64_t size_bytes)
{
    struct ul_graph *graph = (struct ul_graph *)(uintptr_t)builder->graph;
    int64_t size = (int64_t)size_bytes;
    struct ul_type type = ul_type_make(UL_U8, 1, &size);
    ul_value_id value = ul_graph_add_value(graph, name, UL_VALUE_ARGUMENT, &type);
    graph->values[value].view = (struct ul_view){.base = value, .strides = {1}};
    graph->values[value].flags = UL_VALUE_PERSISTENT;
    struct ul_plan_value planned = ul_plan_value_make(name, UL_PLAN_SCRATCH, size_bytes);
    planned.persistent = true;
    uint32_t id = ul_problem_add_value(builder->program->problem, &planned);
    builder->program->plan_values[value] = id;
    builder->program->graph_values[id] = value;
    return value;
}

/* Of a library on the host: a pointer's place; of a device: what went wrong in a run, and which
 * regions are taken. */
static void add_states(struct builder *builder)
{
    struct ul_program *program = builder->program;
    if (program->call_count > 0 && !builder->options->target->is_device)
        program->library_state = add_state(builder, "oneDNN", sizeof(uint64_t));
    if (builder->options->target->is_device)
        program->run_state = add_state(builder, "state of the run",
                                       (uint64_t)UL_PROGRAM_STATE_BYTES + program->flag_count);
}

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

/* Threads share a call evenly, as far as anybody knows. */
static void count_call(const struct builder *builder, const struct ul_group_call *call,
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

/* ---- Steps ---- */

static struct ul_program_address address_of(ul_value_id base, int64_t offset_bytes)
{
    return (struct ul_program_address){
        .base = base, .offset_bytes = offset_bytes, .loop = UL_PLAN_NONE};
}

static uint32_t region_add(struct builder *builder, enum ul_plan_region_kind kind, uint32_t parent)
{
    struct ul_program *program = builder->program;
    UL_GROW(builder->arena, program->regions, program->region_count, program->region_capacity);
    program->regions[program->region_count] = (struct ul_program_region){
        .kind = kind, .parent = parent, .condition = address_of(UL_NONE, 0), .flag = UL_PLAN_NONE};
    uint32_t id =
        parent == UL_PLAN_NONE ? 0 : ul_problem_add_region(program->problem, kind, parent);
    UL_ASSERT(id == program->region_count);
    return program->region_count++;
}

/* What a step without a kernel moves through one argument. */
static uint64_t arg_bytes(const struct ul_graph *graph, const struct ul_program_step *step,
                          uint32_t arg)
{
    if (step->kind == UL_STEP_COPY)
        return step->copy_bytes;
    return step->views[arg] == UL_NONE ? 0 : ul_value_bytes(graph, step->views[arg]);
}

/* A kernel moves what it accesses, and a byte that it accesses again once: of a table, the rows
 * that are looked up. */
static uint64_t buffer_bytes(const struct ul_graph *graph, const struct ul_buffer *buffer,
                             uint64_t accesses)
{
    uint64_t bytes;
    uint64_t whole = buffer->view == UL_NONE ? 0 : ul_value_bytes(graph, buffer->view);
    if (!ul_size_mul(accesses, ul_dtype_get(buffer->dtype)->size_bytes, &bytes))
        return whole;
    return bytes < whole ? bytes : whole;
}

static void count_traffic(struct ul_traffic *traffic, const struct ul_graph *graph,
                          const struct ul_buffer *buffer, uint64_t accesses)
{
    uint64_t bytes = buffer_bytes(graph, buffer, accesses);
    traffic->moved_bytes += bytes;
    if (graph->values[buffer->value].kind == UL_VALUE_WEIGHT)
        traffic->weight_bytes += bytes;
}

/* How often a step of `region` runs; both branches count. */
static uint64_t rounds_of(const struct ul_program *program, uint32_t region)
{
    uint64_t rounds = 1;
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
        bool fits = program->regions[r].kind != UL_PLAN_LOOP ||
                    ul_size_mul(rounds, (uint64_t)program->regions[r].rounds, &rounds);
        if (!fits)
            return UINT64_MAX;
    }
    return rounds;
}

/* ---- Pieces ---- */

static void take_whole(struct builder *builder)
{
    const struct ul_program *whole = builder->options->whole;
    if (whole == NULL)
        return;
    builder->whole = UL_NEW(builder->arena, struct ul_whole);
    ul_whole_init(builder->whole, builder->arena, whole);
    /* What splits cost more refers to the program without them. */
    for (uint32_t s = 0; s < whole->problem->step_count; s++) {
        const struct ul_plan_step *step = &whole->problem->steps[s];
        uint64_t min = step->alternatives[0].cost;
        for (uint32_t a = 1; a < step->alternative_count; a++)
            min = step->alternatives[a].cost < min ? step->alternatives[a].cost : min;
        builder->program->problem->base_cost += min;
    }
}

static double elements_of(const struct ul_graph *graph, ul_node_id node)
{
    return (double)ul_type_elements(&graph->values[graph->nodes[node].outputs[0]].type);
}

/* A piece is not taken to be faster than its share of the whole: that it stays in a smaller cache
 * says nothing of the pieces around it, and splitting for the sake of time is not meant. */
static uint64_t piece_cost(const struct builder *builder, const struct ul_program_step *step,
                           uint32_t alternative, uint64_t cost)
{
    const struct ul_program *whole = builder->options->whole;
    uint32_t from = ul_node_is_piece(builder->graph, step->node)
                        ? ul_whole_step(builder->whole, builder->graph, step->node)
                        : UL_NONE;
    if (from == UL_NONE || alternative >= whole->problem->steps[from].alternative_count)
        return cost;
    double share = elements_of(builder->graph, step->node) /
                   elements_of(whole->graph, whole->steps[from].node);
    double min = (double)whole->problem->steps[from].alternatives[alternative].cost * share;
    uint64_t rounded = (uint64_t)min + 1;
    return cost > rounded ? cost : rounded;
}

/* What the target offers for the step becomes the planner's alternatives. */
static void alternatives_plan(struct builder *builder, const struct ul_program_step *step,
                              uint32_t region, uint64_t scratch_bytes,
                              const struct ul_plan_substep *substep)
{
    struct ul_implementation offers[UL_IMPLEMENTATIONS];
    struct ul_plan_alternative alternatives[UL_IMPLEMENTATIONS];
    struct ul_plan_substep substeps[UL_IMPLEMENTATIONS];
    uint32_t count =
        builder->options->target->offer(step, builder->options->profile, scratch_bytes, offers);
    UL_ASSERT(count >= 1 && count <= UL_IMPLEMENTATIONS);
    for (uint32_t i = 0; i < count; i++) {
        offers[i].cost = piece_cost(builder, step, i, offers[i].cost);
        substeps[i] = *substep;
        substeps[i].scratch_bytes = offers[i].scratch_bytes;
        alternatives[i] = (struct ul_plan_alternative){.name = offers[i].name,
                                                       .substeps = &substeps[i],
                                                       .substep_count = 1,
                                                       .cost = offers[i].cost};
    }
    struct ul_plan_step planned = {.name = step->name,
                                   .kind =
                                       step->kind == UL_STEP_COPY ? UL_PLAN_COPY : UL_PLAN_COMPUTE,
                                   .region = region,
                                   .alternatives = alternatives,
                                   .alternative_count = count};
    ul_problem_add_step(builder->program->problem, &planned);
}

struct lists {
    uint32_t *reads, *writes;
    uint32_t read_count, write_count;
};

/* Once per base. */
static void list_args(struct builder *builder, const struct ul_program_step *step,
                      struct lists *lists)
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        if (step->args[i].base == UL_NONE)
            continue;
        uint32_t value = plan_value(builder, step->args[i].base);
        uint32_t *list = step->written[i] ? lists->writes : lists->reads;
        uint32_t *count = step->written[i] ? &lists->write_count : &lists->read_count;
        bool known = false;
        for (uint32_t k = 0; k < *count; k++)
            known = known || list[k] == value;
        if (!known)
            list[(*count)++] = value;
    }
}

/* Registers the step with the planner: what it reads and writes, or a kernel in its place does. */
static void step_plan(struct builder *builder, const struct ul_program_step *step, uint32_t region,
                      uint64_t scratch_bytes)
{
    uint32_t max = step->arg_count + (step->own != NULL ? step->own->arg_count : 0) + 1;
    struct lists lists = {.reads = UL_NEW_ARRAY(builder->arena, uint32_t, max),
                          .writes = UL_NEW_ARRAY(builder->arena, uint32_t, max)};
    struct ul_plan_in_place *in_place =
        UL_NEW_ARRAY(builder->arena, struct ul_plan_in_place, step->in_place_count + 1);
    list_args(builder, step, &lists);
    if (step->own != NULL)
        list_args(builder, step->own, &lists);
    struct ul_plan_substep substep = {.reads = lists.reads,
                                      .writes = lists.writes,
                                      .read_count = lists.read_count,
                                      .write_count = lists.write_count,
                                      .in_place = in_place};
    for (uint32_t i = 0; i < step->in_place_count; i++)
        in_place[substep.in_place_count++] =
            (struct ul_plan_in_place){.output = plan_value(builder, step->in_place[i].output),
                                      .input = plan_value(builder, step->in_place[i].input)};
    alternatives_plan(builder, step, region, scratch_bytes, &substep);
}

/* What stands in a loop comes after the test that may leave it. */
static void test_first(struct builder *builder, uint32_t region)
{
    struct ul_program *program = builder->program;
    uint32_t last = program->step_count - 1;
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
        uint32_t test = builder->tests[r];
        if (test != UL_NONE && test != last)
            ul_problem_add_predecessor(program->problem, last, test);
    }
}

static void step_add(struct builder *builder, struct ul_program_step *step, uint32_t region,
                     uint64_t scratch_bytes)
{
    struct ul_program *program = builder->program;
    bool counted = step->kind == UL_STEP_KERNEL || step->kind == UL_STEP_CALL;
    for (uint32_t i = 0; i < step->arg_count && !counted; i++)
        step->traffic.moved_bytes += arg_bytes(builder->graph, step, i);
    UL_GROW(builder->arena, program->steps, program->step_count, program->step_capacity);
    step->region = region;
    step->rounds = rounds_of(program, region);
    step->traffic.all_weight_bytes = builder->weight_bytes;
    program->steps[program->step_count++] = *step;
    step_plan(builder, step, region, scratch_bytes);
    test_first(builder, region);
}

static void step_args_init(struct builder *builder, struct ul_program_step *step, uint32_t count)
{
    step->args = UL_NEW_ARRAY(builder->arena, struct ul_program_address, count);
    step->written = UL_NEW_ARRAY(builder->arena, bool, count);
    step->views = UL_NEW_ARRAY(builder->arena, ul_value_id, count);
}

static const char *step_name(struct builder *builder, const char *wanted)
{
    const char *name = wanted[0] != '\0' ? wanted : "step";
    return ul_arena_printf(builder->arena, "%s #%u", name, builder->program->step_count);
}

static void copy_add(struct builder *builder, ul_node_id node, const char *what, uint32_t region,
                     struct ul_program_address from, struct ul_program_address to,
                     ul_value_id from_view, ul_value_id to_view, uint64_t copy_bytes)
{
    if (copy_bytes == 0)
        return;
    struct ul_program_step step = {.kind = UL_STEP_COPY,
                                   .node = node,
                                   .kernel = UL_NONE,
                                   .arg_count = 2,
                                   .copy_bytes = copy_bytes,
                                   .op = what};
    step_args_init(builder, &step, 2);
    step.name = step_name(builder, builder->graph->nodes[node].name);
    step.args[0] = from;
    step.args[1] = to;
    step.written[1] = true;
    step.views[0] = from_view;
    step.views[1] = to_view;
    step_add(builder, &step, region, 0);
}

/* "Conv+Add+Relu" */
static const char *group_ops(struct builder *builder, const ul_node_id *nodes, uint32_t count)
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
static enum ul_status check_piece(struct builder *builder, ul_node_id node, uint32_t kernel)
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

static void call_arg(struct builder *builder, struct ul_program_step *step, ul_value_id value,
                     bool written)
{
    uint32_t at = step->arg_count++;
    step->args[at] = address_of(UL_NONE, 0);
    step->views[at] = value;
    step->written[at] = written;
    if (value == UL_NONE)
        return;
    const struct ul_value *info = &builder->graph->values[value];
    uint64_t bytes = ul_value_bytes(builder->graph, value);
    step->args[at] = address_of(info->view.base, info->view.offset_bytes);
    step->traffic.moved_bytes += bytes;
    if (builder->graph->values[info->view.base].kind == UL_VALUE_WEIGHT)
        step->traffic.weight_bytes += bytes;
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

/* A step that is a call of the library: the call's arguments, and the residual behind them. */
static struct ul_program_step call_step(struct builder *builder, const struct ul_group_call *call,
                                        ul_node_id last)
{
    struct ul_program_step step = {.kind = UL_STEP_CALL, .node = last};
    const char *plan_name = builder->options->library->plan_name;
    step.kernel = call_add(builder, &call->call);
    step.implementation = call->call.implementation;
    if (!ul_winograd_is(&call->call) && plan_name != NULL)
        step.implementation =
            ul_arena_printf(builder->arena, "%s %s", plan_name, call->call.implementation);
    step_args_init(builder, &step, call->arg_count + 1);
    for (uint32_t i = 0; i < call->arg_count; i++)
        call_arg(builder, &step, call->args[i], i == UL_CALL_DST);
    if (call->residual != UL_NONE)
        call_arg(builder, &step, call->residual, false);
    step.has_residual = call->residual != UL_NONE;
    if (step.has_residual && !call->copies_residual) {
        struct ul_in_place *in_place = UL_NEW(builder->arena, struct ul_in_place);
        in_place->output = step.args[UL_CALL_DST].base;
        in_place->input = step.args[call->arg_count].base;
        step.in_place = in_place;
        step.in_place_count = 1;
    }
    count_call(builder, call, &step.work);
    return step;
}

/* A step that is a kernel of ours. */
static enum ul_status kernel_step(struct builder *builder, const ul_node_id *nodes, uint32_t count,
                                  struct ul_program_step *out)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_lower_result result;
    const struct ul_target *target = builder->options->target;
    const struct ul_lower_options options = {.partial_count = target->partial_count,
                                             .spread_products = target->spread_products,
                                             .sorts_batches = target->sorts_batches};
    ul_lower_group(graph, nodes, count, builder->escapes, &options, builder->arena, &result);
    struct ul_kernel *kernel = result.kernel;
    ul_node_id last = nodes[count - 1];
    struct ul_program_step step = {.kind = UL_STEP_KERNEL, .node = last};
    enum ul_status status = kernel_add(builder, kernel, &step.kernel);
    if (status != UL_OK) {
        ul_diag_prefix(builder->diag, ul_node_describe(graph, last, builder->arena));
        return status;
    }
    const struct ul_program_kernel *function = &builder->program->kernels[step.kernel];
    step_args_init(builder, &step, kernel->buffer_count);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role != UL_BUFFER_INPUT && buffer->role != UL_BUFFER_OUTPUT)
            continue;
        step.args[step.arg_count] = address_of(buffer->value, buffer->offset_bytes);
        step.written[step.arg_count] = buffer->role == UL_BUFFER_OUTPUT;
        step.views[step.arg_count] = buffer->view;
        count_traffic(&step.traffic, graph, buffer, function->accesses[i]);
        step.arg_count++;
    }
    step.work = function->work;
    step.in_place_count = result.in_place_count;
    step.in_place = result.in_place;
    *out = step;
    return UL_OK;
}

/* Puts a kernel of ours beside a call that may find no library: what the plan says of places must
 * hold for both. */
static void join_own(struct builder *builder, struct ul_program_step *call,
                     const struct ul_program_step *own)
{
    call->own = ul_arena_copy(builder->arena, own, sizeof *own);
    if (call->in_place_count > 0 && !is_among(own->in_place, own->in_place_count, call->in_place))
        call->in_place_count = 0;
}

/* The same call with ever less scratch, which a budget may take. */
static void add_leaner(struct builder *builder, const struct ul_group_call *call,
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
            .call = call_add(builder, &lean),
            .scratch_bytes =
                lean.scratch_bytes > own_scratch_bytes ? lean.scratch_bytes : own_scratch_bytes,
            .slowdown = slowdown};
    }
}

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

static enum ul_status group_add(struct builder *builder, const ul_node_id *nodes, uint32_t count,
                                uint32_t region)
{
    const struct ul_group_call *call = builder->calls.by_node[nodes[count - 1]];
    ul_node_id last = nodes[count - 1];
    struct ul_program_step step, own;
    uint64_t scratch_bytes = 0;
    bool is_fallback = call != NULL && builder->options->library->chosen_at_start;
    if (call == NULL || is_fallback) {
        UL_TRY(kernel_step(builder, nodes, count, &own));
        scratch_bytes = builder->program->kernels[own.kernel].scratch_bytes;
    }
    if (call == NULL)
        UL_TRY(check_piece(builder, last, own.kernel));
    step = call == NULL ? own : call_step(builder, call, last);
    if (is_fallback)
        join_own(builder, &step, &own);
    if (call != NULL)
        add_leaner(builder, call, scratch_bytes, &step);
    if (call != NULL && call->call.scratch_bytes > scratch_bytes)
        scratch_bytes = call->call.scratch_bytes;
    step.name = step_name(builder, builder->graph->nodes[last].name);
    step.op = group_ops(builder, nodes, count);
    builder->program->uncalled_count += call == NULL && builder->options->library != NULL &&
                                        multiplies_halves(builder->graph, nodes, count);
    step_add(builder, &step, region, scratch_bytes);
    return UL_OK;
}

/* ---- Control flow ---- */

static uint64_t bytes_of(const struct builder *builder, ul_value_id value)
{
    return ul_value_bytes(builder->graph, value);
}

/* Values at block edges are dense and own their bytes or lie densely in another (the views pass
 * sees to it): their address is all there is to say. */
static struct ul_program_address edge(const struct builder *builder, ul_value_id value)
{
    struct ul_view view = view_of(builder->graph, value);
    return address_of(view.base, view.offset_bytes);
}

static void copy_value(struct builder *builder, ul_node_id node, const char *what, uint32_t region,
                       ul_value_id from, ul_value_id to)
{
    copy_add(builder, node, what, region, edge(builder, from), edge(builder, to), from, to,
             bytes_of(builder, to));
}

/* A step that writes or reads one value at a region's start. */
static void mark_add(struct builder *builder, enum ul_step_kind kind, ul_node_id node,
                     uint32_t region, ul_value_id value)
{
    struct ul_program_step step = {.kind = kind, .node = node, .kernel = UL_NONE, .arg_count = 1};
    step_args_init(builder, &step, 1);
    step.op = ul_op_get(builder->graph->nodes[node].op)->name;
    step.name = step_name(builder, builder->graph->nodes[node].name);
    step.args[0] = edge(builder, value);
    step.written[0] = kind == UL_STEP_COUNTER;
    step.views[0] = value;
    if (kind == UL_STEP_TEST) {
        builder->tests[region] = builder->program->step_count;
        builder->program->regions[region].flag = builder->program->flag_count++;
    }
    step_add(builder, &step, region, 0);
}

static enum ul_status build_if(struct builder *builder, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &builder->graph->nodes[id];
    uint32_t whole = region_add(builder, UL_PLAN_SEQUENCE, region);
    for (uint32_t b = 0; b < 2; b++) {
        const struct ul_block *block = &builder->graph->blocks[node->blocks[b]];
        uint32_t branch = region_add(builder, UL_PLAN_BRANCH, whole);
        builder->program->regions[branch].condition = edge(builder, node->inputs[0]);
        builder->program->regions[branch].negated = b == 1;
        mark_add(builder, UL_STEP_TEST, id, branch, node->inputs[0]);
        UL_TRY(build_block(builder, node->blocks[b], branch));
        for (uint32_t i = 0; i < node->output_count; i++) {
            if (node->outputs[i] != UL_NONE)
                copy_value(builder, id, "If", branch, block->outputs[i], node->outputs[i]);
        }
    }
    return UL_OK;
}

/* A place of its own with the type of `like`, for copies that must act at once. */
static ul_value_id temporary_like(struct builder *builder, ul_value_id like)
{
    /* The graph is ours to extend with values that no node names. */
    struct ul_graph *graph = (struct ul_graph *)(uintptr_t)builder->graph;
    struct ul_type type = graph->values[like].type;
    ul_value_id value =
        ul_graph_add_value(graph, graph->values[like].name, UL_VALUE_ARGUMENT, &type);
    graph->values[value].storage = graph->values[like].storage;
    struct ul_view view = {.base = value, .offset_bytes = 0};
    memcpy(view.strides, graph->values[like].view.strides, sizeof view.strides);
    graph->values[value].view = view;
    return value;
}

/* body outputs -> carried values, all at once. `from` and `to` have `count` entries. */
static void refill(struct builder *builder, ul_node_id node, uint32_t region,
                   const ul_value_id *from, const ul_value_id *to, uint32_t count)
{
    ul_value_id *sources = ul_arena_copy(builder->arena, from, count * sizeof *from);
    for (uint32_t i = 0; i < count; i++) {
        bool overwritten = false;
        for (uint32_t k = 0; k < i; k++)
            overwritten = overwritten || view_of(builder->graph, from[i]).base ==
                                             view_of(builder->graph, to[k]).base;
        if (!overwritten)
            continue;
        sources[i] = temporary_like(builder, to[i]);
        copy_value(builder, node, "Loop", region, from[i], sources[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (view_of(builder->graph, sources[i]).base != view_of(builder->graph, to[i]).base)
            copy_value(builder, node, "Loop", region, sources[i], to[i]);
    }
}

/* The slice `round` of `whole` along axis 0, of `part`'s size, backwards where asked. */
static struct ul_program_address slice_of(const struct builder *builder, ul_value_id whole,
                                          ul_value_id substep, uint32_t loop, int64_t rounds,
                                          bool backwards)
{
    struct ul_program_address address = edge(builder, whole);
    int64_t stride = (int64_t)bytes_of(builder, substep);
    address.loop = loop;
    address.stride_bytes = backwards ? -stride : stride;
    address.offset_bytes += backwards ? stride * (rounds - 1) : 0;
    return address;
}

struct loop {
    ul_node_id id;
    const struct ul_node *node;
    const struct ul_block *body;
    uint32_t region; /* of the loop */
    uint32_t outer;  /* region around it */
    uint32_t carried_count;
    uint32_t first_input;    /* of the carried values among node inputs */
    uint32_t first_argument; /* among body inputs */
    uint32_t first_result;   /* among body outputs */
    uint32_t scan_inputs;
    int64_t rounds;
};

static bool is_backwards(const struct loop *loop, const char *attribute, uint32_t index)
{
    uint32_t count;
    const int64_t *directions = ul_node_get_ints(loop->node, attribute, &count);
    return index < count && directions[index] != 0;
}

static void loop_enter(struct builder *builder, struct loop *loop)
{
    const struct ul_node *node = loop->node;
    for (uint32_t i = 0; i < loop->carried_count; i++)
        copy_value(builder, loop->id, "Loop", loop->outer, node->inputs[loop->first_input + i],
                   loop->body->inputs[loop->first_argument + i]);
    loop->region = region_add(builder, UL_PLAN_LOOP, loop->outer);
    builder->program->regions[loop->region].rounds = loop->rounds;
}

static void loop_slices(struct builder *builder, struct loop *loop)
{
    const struct ul_node *node = loop->node;
    for (uint32_t i = 0; i < loop->scan_inputs; i++) {
        ul_value_id slice = loop->body->inputs[loop->carried_count + i];
        ul_value_id whole = node->inputs[loop->carried_count + i];
        struct ul_program_address from = slice_of(builder, whole, slice, loop->region, loop->rounds,
                                                  is_backwards(loop, "scan_input_directions", i));
        copy_add(builder, loop->id, "Scan", loop->region, from, edge(builder, slice), UL_NONE,
                 slice, bytes_of(builder, slice));
    }
}

static void loop_leave(struct builder *builder, struct loop *loop)
{
    const struct ul_node *node = loop->node;
    const struct ul_block *body = loop->body;
    for (uint32_t i = loop->carried_count; i < node->output_count; i++) {
        ul_value_id slice = body->outputs[loop->first_result + i];
        if (node->outputs[i] == UL_NONE)
            continue;
        struct ul_program_address to =
            slice_of(builder, node->outputs[i], slice, loop->region, loop->rounds,
                     is_backwards(loop, "scan_output_directions", i - loop->carried_count));
        copy_add(builder, loop->id, "Scan", loop->region, edge(builder, slice), to, slice, UL_NONE,
                 bytes_of(builder, slice));
    }
    refill(builder, loop->id, loop->region, body->outputs + loop->first_result,
           body->inputs + loop->first_argument, loop->carried_count);
    for (uint32_t i = 0; i < loop->carried_count && i < node->output_count; i++) {
        if (node->outputs[i] != UL_NONE)
            copy_value(builder, loop->id, "Loop", loop->outer,
                       body->inputs[loop->first_argument + i], node->outputs[i]);
    }
}

static enum ul_status build_scan(struct builder *builder, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &builder->graph->nodes[id];
    struct loop loop = {.id = id, .node = node, .outer = region};
    loop.body = &builder->graph->blocks[node->blocks[0]];
    loop.scan_inputs = (uint32_t)ul_node_get_int(node, "num_scan_inputs", 0);
    UL_ASSERT(loop.scan_inputs <= node->input_count);
    loop.carried_count = node->input_count - loop.scan_inputs;
    if (loop.scan_inputs > 0)
        loop.rounds = builder->graph->values[node->inputs[loop.carried_count]].type.dims[0];
    loop_enter(builder, &loop);
    loop_slices(builder, &loop);
    UL_TRY(build_block(builder, node->blocks[0], loop.region));
    loop_leave(builder, &loop);
    return UL_OK;
}

static enum ul_status build_loop(struct builder *builder, ul_node_id id, uint32_t region)
{
    const struct ul_node *node = &builder->graph->nodes[id];
    struct loop loop = {
        .id = id, .node = node, .outer = region, .first_argument = 2, .first_result = 1};
    loop.body = &builder->graph->blocks[node->blocks[0]];
    loop.carried_count = node->input_count - 2;
    loop.first_input = 2;
    loop.rounds = ul_node_get_int(node, "ul_trip_count", 0); /* fixed by shape inference */
    ul_value_id condition = loop.body->inputs[1];
    bool conditional = !ul_loop_is_counted(builder->graph, node);
    if (conditional && node->inputs[1] != UL_NONE)
        copy_value(builder, id, "Loop", region, node->inputs[1], condition);
    loop_enter(builder, &loop);
    if (conditional)
        mark_add(builder, UL_STEP_TEST, id, loop.region, condition);
    mark_add(builder, UL_STEP_COUNTER, id, loop.region, loop.body->inputs[0]);
    UL_TRY(build_block(builder, node->blocks[0], loop.region));
    if (conditional)
        copy_value(builder, id, "Loop", loop.region, loop.body->outputs[0], condition);
    loop_leave(builder, &loop);
    return UL_OK;
}

/* ---- Blocks ---- */

static enum ul_status build_control(struct builder *builder, ul_node_id id, uint32_t region)
{
    switch ((int)builder->graph->nodes[id].op) {
    case UL_OP_If:
        return build_if(builder, id, region);
    case UL_OP_Loop:
        return build_loop(builder, id, region);
    default:
        return build_scan(builder, id, region);
    }
}

static enum ul_status build_block(struct builder *builder, ul_block_id block_id, uint32_t region)
{
    const struct ul_graph *graph = builder->graph;
    const struct ul_block *block = &graph->blocks[block_id];
    ul_node_id *nodes = UL_NEW_ARRAY(builder->arena, ul_node_id, block->node_count);
    for (uint32_t at = 0; at < block->node_count;) {
        const struct ul_node *node = &graph->nodes[block->nodes[at]];
        uint32_t count = ul_group_next(graph, block, &at, nodes);
        if (count == 0)
            continue;
        if ((ul_op_get(node->op)->flags & UL_OP_CONTROL) != 0) {
            UL_TRY(build_control(builder, nodes[0], region));
            continue;
        }
        UL_TRY(group_add(builder, nodes, count, region));
    }
    return UL_OK;
}

static enum ul_status build_root(struct builder *builder)
{
    const struct ul_graph *graph = builder->graph;
    region_add(builder, UL_PLAN_SEQUENCE, UL_PLAN_NONE);
    builder->escapes = ul_group_escapes(graph, builder->arena);
    take_whole(builder);
    ul_calls_choose(builder->arena, graph, builder->escapes, builder->options->library,
                    builder->whole, &builder->calls);
    ul_winograd_choose(builder->arena, graph, builder->options, builder->whole, &builder->calls);
    memcpy(builder->program->packs, builder->calls.packs,
           graph->value_count * sizeof(const struct ul_pack *));
    for (uint32_t i = 0; i < graph->blocks[0].input_count; i++)
        plan_value(builder, graph->blocks[0].inputs[i]);
    UL_TRY(build_block(builder, 0, 0));
    for (uint32_t i = 0; i < graph->blocks[0].output_count; i++)
        plan_value(builder, view_of(graph, graph->blocks[0].outputs[i]).base);
    add_states(builder);
    return UL_OK;
}

uint32_t ul_program_call_align(const struct ul_program *program)
{
    uint32_t max = 1;
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (program->calls[i].align_bytes > max)
            max = program->calls[i].align_bytes;
    }
    return max;
}

enum ul_status ul_program_build(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_program_options *options,
                                struct ul_program **program, struct ul_diag *diag)
{
    struct ul_program *built = UL_NEW(arena, struct ul_program);
    struct builder builder = {
        .arena = arena, .graph = graph, .options = &built->options, .diag = diag};
    /* Loops add temporaries, at most one per carried value: room for as many values again, and for
     * two states. */
    uint64_t max = ul_size_mul_or_die(graph->value_count, 2) + 2;
    built->graph = graph;
    built->options = *options;
    if (!options->target->has_threads)
        built->options.thread_count = 1;
    built->problem = ul_problem_new(arena);
    ul_problem_add_space(built->problem, "read-only weights", 0);
    ul_problem_add_space(built->problem, "the caller's buffers", 0);
    built->plan_values = UL_NEW_ARRAY(arena, uint32_t, max);
    built->graph_values = UL_NEW_ARRAY(arena, ul_value_id, max);
    memset(built->plan_values, 0xFF, max * sizeof *built->plan_values);
    built->packs = UL_NEW_ARRAY(arena, const struct ul_pack *, max);
    built->library_state = UL_NONE;
    built->run_state = UL_NONE;
    builder.program = built;
    /* One region for the root, up to two for a block. */
    builder.tests = UL_NEW_ARRAY(arena, uint32_t, 2 * (uint64_t)graph->block_count + 2);
    memset(builder.tests, 0xFF, (2 * (size_t)graph->block_count + 2) * sizeof *builder.tests);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].kind == UL_VALUE_WEIGHT)
            builder.weight_bytes += ul_value_bytes(graph, i);
    }
    ul_arena_init(&builder.scratch);
    enum ul_status status = build_root(&builder);
    ul_arena_done(&builder.scratch);
    if (status == UL_OK)
        *program = built;
    return status;
}
