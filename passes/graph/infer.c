/* SPDX-License-Identifier: Apache-2.0 */
/* Shape inference, constant folding and control flow with known conditions, in one walk in
 * execution order: a shape often depends on a constant that folds only once other shapes are known.
 *
 * Rules of folding: results of up to SMALL_BYTES always fold; so do others that are small beside
 * the weights (SMALL_PART, STEP_SMALL_PART), until the stored weights have grown by ALL_PART
 * (STEP_ALL_PART); bigger ones only when these do not grow by it, counting the inputs that become
 * free; none of more than BIG_FOLD_ELEMENTS, whatever the weights are. A result of which all
 * elements are equal is kept as one number and takes no bytes at all. What widens integers is left
 * to pass integers. A movement whose result lies densely in its constant input shares the bytes of
 * the file. Control flow: an If with a known condition is replaced by its branch. The condition
 * argument of a Loop's body is true wherever it is read, since the body runs in no other case; so a
 * Loop that hands it on runs its full count. A loop that can only be typed round by round is
 * unrolled (unroll.c). What is left needs a count and types that do not depend on data: the
 * attribute ul_trip_count says the first, inference of the body proves the second. */
#include "ir/infer.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

/* A result is small with so many bytes, or with that part of all weights, as long as the weights
 * grow by no more than the other part. */
enum { SMALL_BYTES = 4096, SMALL_PART = 2048, ALL_PART = 256, BIG_FOLD_ELEMENTS = 1 << 20 };
/* The same where steps cost (masks and biases of windows in attention). Elements are bounded by
 * what a launch costs: 4 MiB of f32 take about as long to move as a launch (2 us at 2 TB/s), so
 * that for anything larger a run pays for the bytes, not for the step. */
enum { STEP_SMALL_PART = 128, STEP_ALL_PART = 32 };

struct infer {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_arena node_scratch; /* reset for each node */
    uint64_t small_bytes;
    int64_t grown_bytes, max_bytes; /* of the stored weights: what folding has added, and may add */
    uint32_t *uses; /* per value that existed before; uses that were folded away are subtracted */
    uint32_t uses_count;
    bool has_halves; /* the model has values of 16 bits */
    /* Nodes whose results are known and which stay until the end: what has 16 bits is computed
     * again as a program would (fold.c). */
    ul_node_id *kept;
    uint32_t kept_count, kept_capacity;
};

static enum ul_status infer_block(struct infer *infer, ul_block_id block, uint32_t depth);

static enum ul_status fail(struct infer *infer, ul_node_id node, enum ul_status status,
                           const char *what)
{
    return ul_diag_set(infer->pass->diag, status, "%s: %s",
                       ul_node_describe(infer->graph, node, infer->pass->scratch), what);
}

/* ---- Folding ---- */

static void normalise_splat(struct infer *infer, ul_value_id id)
{
    const struct ul_tensor *tensor = infer->graph->values[id].tensor;
    UL_ASSERT(tensor != NULL);
    uint64_t size_bytes = ul_dtype_get(tensor->type.dtype)->size_bytes;
    uint64_t count = ul_type_elements(&tensor->type);
    if (tensor->data == NULL || count <= 1)
        return;
    /* All elements are equal when each equals the one before it. */
    if (memcmp(tensor->data, tensor->data + size_bytes, (size_t)((count - 1) * size_bytes)) != 0)
        return;
    infer->graph->values[id].tensor =
        ul_tensor_new_splat(infer->graph->arena, &tensor->type, tensor->data);
}

static bool is_single_use(const struct infer *infer, ul_value_id value)
{
    UL_ASSERT(value != UL_NONE);
    return value < infer->uses_count && infer->uses[value] == 1;
}

/* A constant weight's dense view, by the row's hook: the result shares the bytes. */
static bool fold_shared(struct infer *infer, ul_node_id id)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_op_info *row = ul_op_get(node->op);
    if (row->view == NULL || node->output_count != 1)
        return false;
    const struct ul_tensor *source = ul_graph_get_constant(graph, node->inputs[0]);
    struct ul_value *output = &graph->values[node->outputs[0]];
    struct ul_view own = ul_view_own(graph, node->inputs[0]);
    struct ul_view view;
    if (source == NULL || !row->view(graph, node, 0, &own, &view))
        return false;
    bool dense = ul_view_is_dense(&output->type, &view);
    if (source->data != NULL && (!dense || !is_single_use(infer, node->inputs[0])))
        return false;
    struct ul_tensor *shared = UL_NEW(graph->arena, struct ul_tensor);
    *shared = *source;
    shared->type = output->type;
    if (source->data != NULL && ul_type_elements(&output->type) > 0)
        shared->data = source->data + view.offset_bytes;
    output->tensor = shared;
    return true;
}

/* Bytes of weights that nothing would use any more. */
static uint64_t freed_bytes(const struct infer *infer, const struct ul_node *node)
{
    uint64_t freed = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && is_single_use(infer, node->inputs[i]))
            freed += ul_edit_weight_bytes(infer->graph, node->inputs[i]);
    }
    return freed;
}

/* `more_bytes`: by how much the stored weights would grow. */
static bool may_store(const struct infer *infer, uint64_t result_bytes, int64_t more_bytes)
{
    return result_bytes <= SMALL_BYTES || more_bytes <= 0 ||
           (result_bytes <= infer->small_bytes &&
            infer->grown_bytes + more_bytes <= infer->max_bytes);
}

static bool fold(struct infer *infer, ul_node_id id)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    uint64_t result_bytes = 0;
    uint64_t elements = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && ul_graph_get_constant(graph, node->inputs[i]) == NULL)
            return false;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_type *type = &graph->values[node->outputs[i]].type;
        result_bytes += ul_type_bytes(type);
        elements += ul_type_elements(type);
    }
    if (result_bytes > infer->small_bytes && fold_shared(infer, id))
        return true;
    bool widens = (ul_op_get(node->op)->flags & UL_OP_WIDENS) != 0 && elements > 1 &&
                  (infer->pass->options->training == NULL ||
                   ul_node_get_int(node, "any_scale", 0) != 0); /* of pass quantize */
    if (elements > BIG_FOLD_ELEMENTS || widens)
        return false;
    /* Equal elements take no bytes, which only the result shows: without inputs in memory they are
     * likely enough to try. */
    uint64_t read_bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE)
            read_bytes += ul_edit_weight_bytes(graph, node->inputs[i]);
    }
    int64_t freed = (int64_t)freed_bytes(infer, node), grown = -freed;
    bool fits = may_store(infer, result_bytes, (int64_t)result_bytes - freed);
    if ((!fits && read_bytes > infer->small_bytes) ||
        !ul_node_fold(graph, id, &infer->node_scratch))
        return false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        normalise_splat(infer, node->outputs[i]);
        const struct ul_tensor *tensor = graph->values[node->outputs[i]].tensor;
        fits = fits || tensor->data == NULL;
        grown += tensor->data == NULL ? 0 : (int64_t)ul_type_bytes(&tensor->type);
    }
    for (uint32_t i = 0; !fits && i < node->output_count; i++)
        graph->values[node->outputs[i]].tensor = NULL;
    infer->grown_bytes += fits ? grown : 0;
    return fits;
}

static void drop_known(struct infer *infer, ul_node_id id)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = node->output_count; i-- > 0;)
        ul_edit_make_weight(graph, node->outputs[i]);
    ul_graph_remove_node(graph, id);
}

static bool is_kept(const struct infer *infer, ul_node_id id)
{
    const struct ul_node *node = &infer->graph->nodes[id];
    enum ul_dtype dtype = infer->graph->values[node->outputs[0]].type.dtype;
    return infer->has_halves && ul_dtype_get(dtype)->is_float;
}

/* Known outputs become weights, and the node goes if these are all. */
static void finalize(struct infer *infer, ul_node_id id)
{
    UL_ASSERT(infer->graph->nodes[id].output_count > 0);
    struct ul_graph *graph = infer->graph;
    struct ul_node *node = &graph->nodes[id];
    uint32_t known = 0;
    for (uint32_t i = 0; i < node->output_count; i++)
        known += graph->values[node->outputs[i]].tensor != NULL;
    if (known < node->output_count) {
        for (uint32_t i = 0; i < node->output_count; i++)
            graph->values[node->outputs[i]].tensor = NULL;
        return;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && node->inputs[i] < infer->uses_count)
            infer->uses[node->inputs[i]]--;
    }
    if (is_kept(infer, id)) {
        UL_GROW(infer->pass->scratch, infer->kept, infer->kept_count, infer->kept_capacity);
        infer->kept[infer->kept_count++] = id;
        return;
    }
    drop_known(infer, id);
}

/* ---- If ---- */

static void replace_one(struct infer *infer, ul_value_id value, ul_value_id with)
{
    UL_ASSERT(value != with);
    struct ul_rewrite rewrite;
    ul_rewrite_init(&rewrite, infer->graph, infer->pass->scratch);
    ul_rewrite_replace(&rewrite, value, with);
    ul_rewrite_apply(&rewrite);
    if (value < infer->uses_count && with < infer->uses_count)
        infer->uses[with] += infer->uses[value];
}

static void count_uses(struct infer *infer)
{
    infer->uses = ul_graph_count_uses(infer->graph, infer->pass->scratch);
    infer->uses_count = infer->graph->value_count;
}

static void inline_branch(struct infer *infer, ul_block_id block, uint32_t at, ul_node_id id,
                          ul_block_id branch)
{
    UL_ASSERT(branch != block && infer->graph->blocks[block].nodes[at] == id);
    ul_inline_block(infer->pass, block, at, branch);
    count_uses(infer);
}

static enum ul_status same_branch_types(struct infer *infer, ul_node_id id)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_block *yes = &graph->blocks[node->blocks[0]];
    const struct ul_block *no = &graph->blocks[node->blocks[1]];
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_type *type = &graph->values[yes->outputs[i]].type;
        const struct ul_type *other = &graph->values[no->outputs[i]].type;
        if (!ul_type_equal(type, other)) {
            struct ul_arena *arena = infer->pass->scratch;
            return fail(infer, id, UL_UNSUPPORTED,
                        ul_arena_printf(arena, "output %u would be %s or %s, by its condition; %s",
                                        (unsigned)i, ul_type_text(arena, type),
                                        ul_type_text(arena, other),
                                        ul_node_remedy(graph, id, 0, arena)));
        }
        graph->values[node->outputs[i]].type = *type;
    }
    return UL_OK;
}

/* Puts in place of a branch whose operators refuse the shapes something that ends a run which takes
 * it. The results have the types of the other branch's. */
static void rule_out(struct infer *infer, ul_node_id id, uint32_t which, const char *why)
{
    struct ul_graph *graph = infer->graph;
    ul_block_id branch = graph->nodes[id].blocks[which];
    ul_block_id other = graph->nodes[id].blocks[1 - which];
    for (uint32_t i = 0; i < graph->blocks[branch].node_count; i++)
        ul_graph_remove_node(graph, graph->blocks[branch].nodes[i]);
    graph->blocks[branch].node_count = 0;
    for (uint32_t i = 0; i < graph->blocks[branch].output_count; i++) {
        const struct ul_type type = graph->values[graph->blocks[other].outputs[i]].type;
        const char *name = graph->nodes[id].name;
        struct ul_build build = ul_build_last(graph, branch, name);
        ul_node_id made = ul_build_node(&build, UL_OP_NoBranch, NULL, 0, 1);
        ul_node_set_int(graph, made, "dtype", type.dtype);
        ul_node_set_ints(graph, made, "dims", type.dims, type.rank);
        ul_node_set_string(graph, made, "ul_why", why);
        graph->values[graph->nodes[made].outputs[0]].type = type;
        graph->blocks[branch].outputs[i] = graph->nodes[made].outputs[0];
    }
    count_uses(infer);
}

/* Infers both branches, of which one may be impossible in files that are made for several
 * shapes. */
static enum ul_status infer_branches(struct infer *infer, ul_node_id id, uint32_t depth)
{
    struct ul_diag *diag = infer->pass->diag;
    struct ul_diag first = {0};
    uint32_t impossible = 0;
    for (uint32_t b = 0; b < 2; b++) {
        enum ul_status status = infer_block(infer, infer->graph->nodes[id].blocks[b], depth + 1);
        if (status != UL_OK && (status != UL_INVALID || first.status != UL_OK))
            return status;
        if (status == UL_OK)
            continue;
        first = *diag;
        diag->status = UL_OK;
        impossible = b;
    }
    if (first.status != UL_OK)
        rule_out(infer, id, impossible, ul_arena_copy_string(infer->graph->arena, first.text));
    return UL_OK;
}

static enum ul_status infer_if(struct infer *infer, ul_block_id block, uint32_t at, ul_node_id id,
                               uint32_t depth, bool *inlined)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (node->input_count != 1 || node->inputs[0] == UL_NONE || node->block_count != 2)
        return fail(infer, id, UL_INVALID, "needs a condition and two branches");
    for (uint32_t b = 0; b < 2; b++) {
        if (graph->blocks[node->blocks[b]].output_count != node->output_count)
            return fail(infer, id, UL_INVALID, "has a branch with another number of outputs");
    }
    const struct ul_value *condition = &graph->values[node->inputs[0]];
    if (condition->type.dtype != UL_BOOL || !ul_type_known(&condition->type) ||
        ul_type_elements(&condition->type) != 1)
        return fail(infer, id, UL_INVALID, "the condition must be one bool");
    const struct ul_tensor *known = ul_graph_get_constant(graph, node->inputs[0]);
    if (known != NULL) {
        inline_branch(infer, block, at, id, node->blocks[ul_tensor_get_int(known, 0) != 0 ? 0 : 1]);
        *inlined = true;
        return UL_OK;
    }
    UL_TRY(infer_branches(infer, id, depth));
    return same_branch_types(infer, id);
}

/* ---- Loop and Scan ---- */

static void set_argument(struct infer *infer, ul_block_id body, uint32_t argument,
                         const struct ul_type *type)
{
    struct ul_graph *graph = infer->graph;
    graph->values[graph->blocks[body].inputs[argument]].type = *type;
}

/* A carried value must leave the body with the type with which it entered, and so it leaves the
 * node. */
static enum ul_status carry(struct infer *infer, ul_node_id id, ul_value_id argument,
                            ul_value_id result, uint32_t output)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_type *type = &graph->values[argument].type;
    if (!ul_type_equal(type, &graph->values[result].type)) {
        struct ul_arena *arena = infer->pass->scratch;
        return fail(infer, id, UL_UNSUPPORTED,
                    ul_arena_printf(arena, "carried value %s changes its type from %s to %s",
                                    ul_quote(arena, graph->values[argument].name),
                                    ul_type_text(arena, type),
                                    ul_type_text(arena, &graph->values[result].type)));
    }
    if (output < node->output_count)
        graph->values[node->outputs[output]].type = *type;
    return UL_OK;
}

/* The slices of all rounds, stacked along a new first axis. */
static enum ul_status stack(struct infer *infer, ul_node_id id, ul_value_id slice, uint32_t output,
                            int64_t rounds)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_type *type = &graph->values[slice].type;
    if (output >= node->output_count)
        return UL_OK;
    if (type->rank == UL_LIMIT_RANK)
        return fail(infer, id, UL_UNSUPPORTED,
                    "a scanned output would have more than 8 dimensions");
    struct ul_type stacked = {.dtype = type->dtype, .rank = type->rank + 1, .dims = {rounds}};
    memcpy(stacked.dims + 1, type->dims, type->rank * sizeof *type->dims);
    if (!ul_type_in_limits(&stacked))
        return fail(infer, id, UL_INVALID, "a scanned output would be over the limits of size");
    graph->values[node->outputs[output]].type = stacked;
    return UL_OK;
}

static enum ul_status loop_rounds(struct infer *infer, ul_node_id id, int64_t *rounds)
{
    const struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (node->inputs[0] == UL_NONE)
        return fail(infer, id, UL_UNSUPPORTED,
                    "has no trip count, so that nothing bounds its rounds before it runs");
    const struct ul_tensor *count = ul_graph_get_constant(graph, node->inputs[0]);
    if (count == NULL) {
        struct ul_arena *scratch = infer->pass->scratch;
        const char *remedy = ul_node_remedy(graph, id, 0, scratch);
        return fail(
            infer, id, UL_UNSUPPORTED,
            ul_arena_printf(scratch, "its trip count must be known at compile time; %s", remedy));
    }
    if (ul_type_elements(&count->type) != 1 || !ul_dtype_get(count->type.dtype)->is_integer)
        return fail(infer, id, UL_INVALID, "its trip count must be one integer");
    *rounds = ul_tensor_get_int(count, 0);
    const struct ul_tensor *first = ul_graph_get_constant(graph, node->inputs[1]);
    if (first != NULL && ul_type_elements(&first->type) == 1 && ul_tensor_get_int(first, 0) == 0)
        *rounds = 0;
    *rounds = *rounds < 0 ? 0 : *rounds;
    return UL_OK;
}

/* A weight that is true, named like the body's condition. */
static ul_value_id true_condition(struct infer *infer, ul_block_id body)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_value *argument = &graph->values[graph->blocks[body].inputs[1]];
    static const unsigned char yes[1] = {1};
    const char *name = argument->name;
    return ul_graph_add_weight(graph, name, ul_tensor_new(graph->arena, &argument->type, yes));
}

/* Inside the body the condition is true; what reads it gets that constant. */
static void assume_condition(struct infer *infer, ul_block_id body)
{
    ul_value_id weight = true_condition(infer, body);
    replace_one(infer, infer->graph->blocks[body].inputs[1], weight);
}

static enum ul_status infer_loop(struct infer *infer, ul_node_id id, uint32_t depth)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    int64_t rounds = 0;
    if (node->input_count < 2 || node->block_count != 1)
        return fail(infer, id, UL_INVALID, "needs a trip count, a condition and a body");
    uint32_t carried = node->input_count - 2;
    ul_block_id body = node->blocks[0];
    if (graph->blocks[body].input_count != carried + 2 ||
        graph->blocks[body].output_count < carried + 1 ||
        graph->blocks[body].output_count != node->output_count + 1)
        return fail(infer, id, UL_INVALID, "its body has another number of inputs or outputs");
    UL_TRY(loop_rounds(infer, id, &rounds));
    ul_node_set_int(graph, id, "ul_trip_count", rounds);
    struct ul_type scalar = ul_type_make(UL_I64, 0, NULL);
    set_argument(infer, body, 0, &scalar);
    scalar.dtype = UL_BOOL;
    set_argument(infer, body, 1, &scalar);
    for (uint32_t i = 0; i < carried; i++) {
        if (node->inputs[2 + i] == UL_NONE)
            return fail(infer, id, UL_INVALID, "lacks the first value of a carried value");
        set_argument(infer, body, 2 + i, &graph->values[node->inputs[2 + i]].type);
    }
    assume_condition(infer, body);
    UL_TRY(infer_block(infer, body, depth + 1));
    const struct ul_block *block = &graph->blocks[body];
    node = &graph->nodes[id];
    const struct ul_value *again = &graph->values[block->outputs[0]];
    if (again->type.dtype != UL_BOOL || ul_type_elements(&again->type) != 1)
        return fail(infer, id, UL_INVALID, "its body's condition must be one bool");
    const struct ul_tensor *known = ul_graph_get_constant(graph, block->outputs[0]);
    bool counted = known != NULL && ul_tensor_get_int(known, 0) != 0;
    const struct ul_tensor *first = ul_graph_get_constant(graph, node->inputs[1]);
    counted = counted && (node->inputs[1] == UL_NONE || first != NULL);
    /* Without a first condition the specification ignores those of the body; onnxruntime, whose
     * results count, starts with true and heeds them. */
    if (!counted && node->inputs[1] == UL_NONE)
        graph->nodes[id].inputs[1] = true_condition(infer, body);
    for (uint32_t i = 0; i < carried; i++)
        UL_TRY(carry(infer, id, block->inputs[2 + i], block->outputs[1 + i], i));
    for (uint32_t i = carried; i < node->output_count; i++) {
        if (!counted && rounds > 0)
            return fail(infer, id, UL_UNSUPPORTED,
                        "the size of a scanned output depends on when its condition ends it");
        UL_TRY(stack(infer, id, block->outputs[1 + i], i, rounds));
    }
    return UL_OK;
}

/* The axes are 0: scan.c has moved the others there. */
static enum ul_status scan_arguments(struct infer *infer, ul_node_id id, uint32_t carried,
                                     int64_t *rounds)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE)
            return fail(infer, id, UL_INVALID, "lacks an input");
        struct ul_type type = graph->values[node->inputs[i]].type;
        if (i >= carried) {
            if (!ul_type_known(&type) || type.rank == 0 ||
                (*rounds >= 0 && type.dims[0] != *rounds))
                return fail(infer, id, UL_INVALID, "its scanned inputs differ in length");
            *rounds = type.dims[0];
            memmove(type.dims, type.dims + 1, (type.rank - 1) * sizeof *type.dims);
            type.rank--;
        }
        set_argument(infer, node->blocks[0], i, &type);
    }
    return UL_OK;
}

static enum ul_status scan_body(struct infer *infer, ul_node_id id, uint32_t depth)
{
    struct ul_graph *graph = infer->graph;
    const struct ul_node *node = &graph->nodes[id];
    int64_t scanned = ul_node_get_int(node, "num_scan_inputs", 0);
    int64_t rounds = -1;
    uint32_t carried = node->input_count - (uint32_t)scanned;
    ul_block_id body = node->blocks[0];
    if (graph->blocks[body].input_count != node->input_count ||
        graph->blocks[body].output_count < carried ||
        graph->blocks[body].output_count != node->output_count)
        return fail(infer, id, UL_INVALID, "its body has another number of inputs or outputs");
    UL_TRY(scan_arguments(infer, id, carried, &rounds));
    UL_TRY(infer_block(infer, body, depth + 1));
    const struct ul_block *block = &graph->blocks[body];
    for (uint32_t i = 0; i < carried; i++)
        UL_TRY(carry(infer, id, block->inputs[i], block->outputs[i], i));
    for (uint32_t i = carried; i < graph->nodes[id].output_count; i++)
        UL_TRY(stack(infer, id, block->outputs[i], i, rounds));
    return UL_OK;
}

/* `moved`: Transposes stand before the node now and come first. */
static enum ul_status infer_scan(struct infer *infer, ul_block_id block, uint32_t at, ul_node_id id,
                                 uint32_t depth, bool *moved)
{
    const struct ul_node *node = &infer->graph->nodes[id];
    int64_t scanned = ul_node_get_int(node, "num_scan_inputs", 0);
    bool behind = false;
    if (node->block_count != 1 || scanned < 1 || scanned > (int64_t)node->input_count)
        return fail(infer, id, UL_INVALID, "needs a body and scanned inputs");
    if (!ul_scan_axes_to_front(infer->graph, block, at, moved))
        return fail(infer, id, UL_INVALID, "scan_input_axes does not fit its inputs");
    if (!*moved) {
        UL_TRY(scan_body(infer, id, depth));
        if (!ul_scan_axes_to_place(infer->graph, block, at, &behind))
            return fail(infer, id, UL_INVALID, "scan_output_axes does not fit its outputs");
    }
    if (*moved || behind)
        count_uses(infer);
    return UL_OK;
}

/* ---- The walk ---- */

/* A loop whose body cannot be typed once for all rounds is unrolled where that is possible. */
static enum ul_status infer_or_unroll(struct infer *infer, ul_block_id block, uint32_t at,
                                      ul_node_id id, uint32_t depth, bool *inlined)
{
    struct ul_graph *graph = infer->graph;
    if (!ul_unroll_is_possible(graph, id))
        return infer_loop(infer, id, depth);
    ul_block_id saved = ul_unroll_save(infer->pass, id);
    enum ul_status status = infer_loop(infer, id, depth);
    if (status == UL_UNSUPPORTED) {
        memset(infer->pass->diag, 0, sizeof *infer->pass->diag);
        ul_unroll_forget(graph, graph->nodes[id].blocks[0]);
        inline_branch(infer, block, at, id, ul_unroll_rounds(infer->pass, id, saved));
        *inlined = true;
        status = UL_OK;
    }
    ul_unroll_forget(graph, saved);
    return status;
}

static enum ul_status infer_control(struct infer *infer, ul_block_id block, uint32_t at,
                                    ul_node_id id, uint32_t depth, bool *again)
{
    if (infer->graph->nodes[id].op == UL_OP_If)
        return infer_if(infer, block, at, id, depth, again);
    if (infer->graph->nodes[id].op == UL_OP_Loop)
        return infer_or_unroll(infer, block, at, id, depth, again);
    return infer_scan(infer, block, at, id, depth, again);
}

static enum ul_status infer_block(struct infer *infer, ul_block_id block, uint32_t depth)
{
    struct ul_graph *graph = infer->graph;
    if (depth > UL_LIMIT_NESTING)
        return ul_diag_set(infer->pass->diag, UL_INVALID, "blocks are nested more than %u deep",
                           (unsigned)UL_LIMIT_NESTING);
    for (uint32_t at = 0; at < graph->blocks[block].node_count; at++) {
        ul_node_id id = graph->blocks[block].nodes[at];
        if (graph->nodes[id].op == UL_OP_NONE)
            continue;
        if ((ul_op_get(graph->nodes[id].op)->flags & UL_OP_CONTROL) != 0) {
            bool again = false;
            UL_TRY(infer_control(infer, block, at, id, depth, &again));
            at -= again ? 1 : 0; /* a branch's first node or a Transpose is there now */
            continue;
        }
        UL_TRY(ul_node_infer(graph, id, &infer->node_scratch, infer->pass->diag));
        bool known = graph->nodes[id].output_count > 0;
        for (uint32_t i = 0; i < graph->nodes[id].output_count; i++)
            known = known && graph->values[graph->nodes[id].outputs[i]].tensor != NULL;
        if (!known)
            fold(infer, id);
        finalize(infer, id);
        ul_arena_reset(&infer->node_scratch);
    }
    return UL_OK;
}

static void find_limits(struct infer *infer)
{
    uint64_t total = 0;
    for (ul_value_id id = 0; id < infer->graph->value_count; id++)
        total += ul_edit_weight_bytes(infer->graph, id);
    bool steps_cost = infer->pass->traits->steps_cost;
    uint64_t small_bytes = total / (steps_cost ? STEP_SMALL_PART : SMALL_PART);
    infer->small_bytes = small_bytes > SMALL_BYTES ? small_bytes : SMALL_BYTES;
    infer->max_bytes = (int64_t)(total / (steps_cost ? STEP_ALL_PART : ALL_PART));
}

/* An attribute says that the node makes values of 16 bits. */
static bool says_half(const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->attr_count; i++)
        if (node->attrs[i].tensor != NULL && ul_dtype_is_half(node->attrs[i].tensor->type.dtype))
            return true;
    for (const char *const *name = ul_type_attributes; *name != NULL; name++)
        if (ul_dtype_is_half((enum ul_dtype)ul_node_get_int(node, *name, UL_DTYPE_NONE)))
            return true;
    return false;
}

/* Types of results are not known yet: they are those of operands, or what the nodes say. */
static bool has_halves(const struct ul_graph *graph)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (ul_dtype_is_half(graph->values[v].type.dtype))
            return true;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op != UL_OP_NONE && says_half(&graph->nodes[n]))
            return true;
    }
    return false;
}

/* Folds block by block, since no kernel has nodes of two, in the order in which blocks were made:
 * what a block reads from others was made outside of it, and before. Where there are very many
 * blocks, nested ones stay as they were folded, node by node. */
static void fold_kept(struct infer *infer)
{
    struct ul_graph *graph = infer->graph;
    ul_node_id *nodes = UL_NEW_ARRAY(infer->pass->scratch, ul_node_id, infer->kept_count);
    uint32_t *begin = UL_NEW_ARRAY(infer->pass->scratch, uint32_t, graph->block_count + 2);
    for (uint32_t i = 0; i < infer->kept_count; i++)
        if (graph->nodes[infer->kept[i]].op != UL_OP_NONE)
            begin[graph->nodes[infer->kept[i]].parent + 2]++;
    for (ul_block_id b = 0; b < graph->block_count; b++)
        begin[b + 2] += begin[b + 1];
    for (uint32_t i = 0; i < infer->kept_count; i++)
        if (graph->nodes[infer->kept[i]].op != UL_OP_NONE)
            nodes[begin[graph->nodes[infer->kept[i]].parent + 1]++] = infer->kept[i];
    uint64_t size = (uint64_t)graph->block_count * (graph->node_count + graph->value_count);
    ul_block_id block_count = size > UL_LIMIT_FOLD_WORK ? 1 : graph->block_count;
    for (ul_block_id b = 0; b < block_count; b++)
        ul_fold_as_program(infer->pass, nodes + begin[b], begin[b + 1] - begin[b], graph->arena);
}

enum ul_status ul_pass_infer(struct ul_pass *pass)
{
    struct infer infer = {.pass = pass, .graph = pass->graph};
    find_limits(&infer);
    infer.has_halves = has_halves(pass->graph);
    ul_arena_init(&infer.node_scratch);
    count_uses(&infer);
    enum ul_status status = infer_block(&infer, 0, 0);
    ul_arena_done(&infer.node_scratch);
    if (status == UL_OK)
        fold_kept(&infer);
    for (uint32_t i = 0; i < infer.kept_count; i++) {
        if (infer.graph->nodes[infer.kept[i]].op != UL_OP_NONE)
            drop_known(&infer, infer.kept[i]);
    }
    ul_graph_sweep(pass->graph);
    return status;
}
