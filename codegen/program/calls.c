/* SPDX-License-Identifier: Apache-2.0 */
/* Which groups of a graph run as calls of the target's libraries, and how their weights lie.
 *
 * Problem: a call wants its constant weights in a layout of its own, and they must be stored once.
 * A weight that one call reads, or several calls that want the same layout, is stored packed; a
 * weight that anything else reads too stays plain, and the library is asked again about its calls.
 * Method: the library is asked about all groups as if each had its weights alone; then weights
 * whose readers disagree become plain again, with the calls that depend on them, until nothing
 * changes. A call can only lose its packing, so this ends.
 *
 * A residual is added in place (UL_POST_SUM) where nothing later reads it: the planner may then
 * give the result its bytes. Left undone: two packed copies of a weight for two calls. */
#include "codegen/program/calls_internal.h"
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

uint32_t ul_group_next(const struct ul_graph *graph, const struct ul_block *block, uint32_t *at,
                       ul_node_id *nodes)
{
    uint32_t count = 0;
    uint32_t group = graph->nodes[block->nodes[*at]].group;
    do {
        if (!ul_node_is_view(graph, block->nodes[*at]))
            nodes[count++] = block->nodes[*at];
        ++*at;
    } while (count > 0 && group != UL_NONE && *at < block->node_count &&
             graph->nodes[block->nodes[*at]].group == group);
    return count;
}

struct chooser {
    struct ul_arena *arena;
    const struct ul_graph *graph;
    const struct ul_libraries *libraries;
    const bool *escapes;
    const struct ul_unsplit *unsplit; /* NULL: nothing was split */
    struct ul_calls *calls;
    bool *is_plain;      /* by base: something reads it as it is stored */
    uint32_t *last_read; /* by base: the last position that reads it */
    uint32_t position;
    ul_node_id too_long; /* has an axis that a library cannot count; UL_NONE: none */
    const struct ul_target_library *too_long_for;
    /* Fields for ul_calls_can_split: */
    ul_node_id first;
    bool sure, unproven;
};

static ul_value_id base_of(const struct chooser *chooser, ul_value_id value)
{
    return chooser->graph->values[value].view.base;
}

/* ---- readers ---- */

static void note_read(struct chooser *chooser, ul_value_id value, uint32_t position)
{
    if (value != UL_NONE && base_of(chooser, value) != UL_NONE)
        chooser->last_read[base_of(chooser, value)] = position;
}

/* Positions count the nodes of all blocks as they run; a nested block has the position of its
 * owner. */
static void note_block(struct chooser *chooser, ul_block_id id)
{
    const struct ul_block *block = &chooser->graph->blocks[id];
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &chooser->graph->nodes[block->nodes[n]];
        uint32_t position = ++chooser->position;
        for (uint32_t i = 0; i < node->input_count; i++)
            note_read(chooser, node->inputs[i], position);
        chooser->calls->positions[block->nodes[n]] = position;
        for (uint32_t b = 0; b < node->block_count; b++)
            note_block(chooser, node->blocks[b]);
    }
    for (uint32_t i = 0; i < block->output_count; i++)
        note_read(chooser, block->outputs[i], UINT32_MAX);
}

/* ---- calls ---- */

static bool is_true(const struct ul_graph *graph, ul_value_id value)
{
    if (value == UL_NONE)
        return true;
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, value);
    return tensor != NULL && ul_tensor_get_int(tensor, 0) != 0;
}

bool ul_loop_is_counted(const struct ul_graph *graph, const struct ul_node *loop)
{
    return is_true(graph, graph->blocks[loop->blocks[0]].outputs[0]) &&
           is_true(graph, loop->inputs[1]);
}

/* Whether the nodes are in a branch, or in a loop whose end depends on data. */
static bool may_be_passed_over(const struct ul_graph *graph, ul_node_id node)
{
    for (ul_block_id block = graph->nodes[node].parent; !ul_graph_is_root(graph, block);
         block = graph->nodes[graph->blocks[block].owner].parent) {
        const struct ul_node *owner = &graph->nodes[graph->blocks[block].owner];
        uint32_t flags = ul_op_get(owner->op)->flags;
        if ((flags & UL_OP_BRANCHES) != 0 ||
            ((flags & UL_OP_COUNTS) != 0 && !ul_loop_is_counted(graph, owner)))
            return true;
    }
    return false;
}

/* Whether the residual's bytes are needed by this call in another way, or by something later. */
static bool is_shared(const struct chooser *chooser, const struct ul_group_call *call,
                      uint32_t position)
{
    ul_value_id base = base_of(chooser, call->residual);
    for (uint32_t i = 0; i < call->arg_count; i++) {
        if (call->args[i] != UL_NONE && base_of(chooser, call->args[i]) == base)
            return true;
    }
    return chooser->last_read[base] > position;
}

/* Libraries that count an axis in 32 bits divide by zero, or hang, where it is longer. */
static bool counts_axes(const struct ul_target_library *library, const struct ul_call *call)
{
    const struct ul_call_tensor *tensors[] = {&call->src, &call->weights, &call->dst};
    for (size_t i = 0; library->max_dim > 0 && i < sizeof tensors / sizeof *tensors; i++) {
        for (uint32_t d = 0; d < tensors[i]->rank; d++) {
            if (tensors[i]->dims[d] > library->max_dim)
                return false;
        }
    }
    return true;
}

/* Whether the library has such calls at all. */
static bool has_form(const struct ul_target_library *library, const struct ul_call *call)
{
    return (call->accumulates == 0 || library->accumulates) &&
           (ul_call_kept(call) == NULL || library->has_slopes);
}

static bool answer(struct chooser *chooser, const struct ul_target_library *library,
                   ul_node_id node, struct ul_group_call *call, bool pack)
{
    if (!has_form(library, &call->call))
        return false;
    if (!counts_axes(library, &call->call)) {
        chooser->too_long = node;
        chooser->too_long_for = library;
        return false;
    }
    call->library = library;
    if (chooser->unsplit == NULL)
        return library->answer != NULL && library->answer(library->context, call, pack);
    return pack && ul_unsplit_answer(chooser->unsplit, library, chooser->graph, node,
                                     chooser->unproven, call);
}

/* The group as a call of the library, or NULL: as it is described, or with the residual as an
 * operand, which is NULL where it lies alone. */
static struct ul_group_call *call_by(struct chooser *chooser,
                                     const struct ul_target_library *library, ul_node_id last,
                                     const struct ul_group_call *described,
                                     const struct ul_group_call *operand, bool pack)
{
    struct ul_group_call call;
    if (operand != NULL && !library->adds_from_afar) {
        call = *operand;
        if (answer(chooser, library, last, &call, pack))
            return ul_arena_copy(chooser->arena, &call, sizeof call);
    }
    call = *described;
    if (!answer(chooser, library, last, &call, pack) || !ul_group_call_is_exact(&call))
        return NULL;
    return ul_arena_copy(chooser->arena, &call, sizeof call);
}

/* The group as a call of the first library that takes it, or NULL. */
static struct ul_group_call *make_call(struct chooser *chooser, const ul_node_id *nodes,
                                       uint32_t count, bool pack)
{
    struct ul_group_call call, other;
    const struct ul_graph *graph = chooser->graph;
    const ul_node_id last = nodes[count - 1];
    bool is_operand = false;
    if (!ul_group_call_make(graph, nodes, count, chooser->escapes, true, &call))
        return NULL;
    if (call.residual != UL_NONE && is_shared(chooser, &call, chooser->calls->positions[last])) {
        is_operand = ul_group_call_make(graph, nodes, count, chooser->escapes, false, &other);
        call.copies_residual = true;
    }
    bool may_pass = may_be_passed_over(graph, nodes[0]);
    for (uint32_t i = 0; i < chooser->libraries->count; i++) {
        const struct ul_target_library *library = &chooser->libraries->rows[i];
        struct ul_group_call *made =
            library->runs_always && may_pass
                ? NULL
                : call_by(chooser, library, last, &call, is_operand ? &other : NULL, pack);
        if (made != NULL)
            return made;
    }
    return NULL;
}

static bool is_control(const struct ul_graph *graph, ul_node_id node)
{
    return (ul_op_get(graph->nodes[node].op)->flags & UL_OP_CONTROL) != 0;
}

typedef void visit_group(struct chooser *chooser, const ul_node_id *nodes, uint32_t count);

static void each_group(struct chooser *chooser, visit_group *visit)
{
    const struct ul_graph *graph = chooser->graph;
    for (uint32_t b = 0; b < graph->block_count; b++) {
        const struct ul_block *block = &graph->blocks[b];
        ul_node_id *nodes = UL_NEW_ARRAY(chooser->arena, ul_node_id, block->node_count);
        for (uint32_t at = 0; ul_graph_has_block(graph, b) && at < block->node_count;) {
            uint32_t count = ul_group_next(graph, block, &at, nodes);
            if (count > 0)
                visit(chooser, nodes, count);
        }
    }
}

static void choose_group(struct chooser *chooser, const ul_node_id *nodes, uint32_t count)
{
    if (!is_control(chooser->graph, nodes[0]))
        chooser->calls->by_node[nodes[count - 1]] = make_call(chooser, nodes, count, true);
}

/* The library that takes the group first, or NULL. */
static const struct ul_target_library *find_library(const struct ul_libraries *libraries,
                                                    const struct ul_graph *graph,
                                                    const ul_node_id *nodes, uint32_t count,
                                                    const bool *escapes, struct ul_group_call *call)
{
    struct ul_group_call described;
    if (!ul_group_call_make(graph, nodes, count, escapes, true, &described))
        return NULL;
    for (uint32_t i = 0; i < libraries->count; i++) {
        const struct ul_target_library *library = &libraries->rows[i];
        *call = described;
        if (library->answer != NULL &&
            !(library->runs_always && may_be_passed_over(graph, nodes[0])) &&
            has_form(library, &call->call) && counts_axes(library, &call->call) &&
            library->answer(library->context, call, true))
            return library;
    }
    return NULL;
}

bool ul_library_supports(const void *libraries, const struct ul_graph *graph,
                         const ul_node_id *nodes, uint32_t count, const bool *escapes,
                         uint64_t *scratch_bytes)
{
    struct ul_group_call call;
    if (find_library(libraries, graph, nodes, count, escapes, &call) == NULL)
        return false;
    if (scratch_bytes != NULL)
        *scratch_bytes = call.call.scratch_bytes;
    return true;
}

bool ul_library_is_worth(const void *libraries, const struct ul_graph *graph,
                         const ul_node_id *nodes, uint32_t count, const bool *escapes,
                         uint64_t pass_bytes)
{
    struct ul_group_call call;
    const struct ul_target_library *library =
        find_library(libraries, graph, nodes, count, escapes, &call);
    return library != NULL &&
           (library->is_worth == NULL || library->is_worth(library->context, &call, pass_bytes));
}

/* ---- weights ---- */

static void mark_plain(struct chooser *chooser, ul_value_id value)
{
    if (value != UL_NONE && base_of(chooser, value) != UL_NONE)
        chooser->is_plain[base_of(chooser, value)] = true;
}

static void mark_readers(struct chooser *chooser, const ul_node_id *nodes, uint32_t count)
{
    struct ul_group_call *call = chooser->calls->by_node[nodes[count - 1]];
    for (uint32_t n = 0; call == NULL && n < count; n++) {
        const struct ul_node *node = &chooser->graph->nodes[nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++)
            mark_plain(chooser, node->inputs[i]);
    }
    for (uint32_t i = 0; call != NULL && i < call->arg_count; i++) {
        if (i != UL_CALL_WEIGHTS || call->call.pack == NULL)
            mark_plain(chooser, call->args[i]);
    }
    if (call == NULL || call->call.pack == NULL)
        return;
    const struct ul_pack **pack =
        &chooser->calls->packs[base_of(chooser, call->args[UL_CALL_WEIGHTS])];
    if (*pack != NULL && memcmp(*pack, call->call.pack, sizeof **pack) != 0)
        mark_plain(chooser, call->args[UL_CALL_WEIGHTS]);
    *pack = call->call.pack;
}

/* Removes packing from calls whose weight cannot have it. */
static void give_way(struct chooser *chooser, const ul_node_id *nodes, uint32_t count)
{
    struct ul_group_call **call = &chooser->calls->by_node[nodes[count - 1]];
    if (*call == NULL || (*call)->call.pack == NULL ||
        !chooser->is_plain[base_of(chooser, (*call)->args[UL_CALL_WEIGHTS])])
        return;
    *call = make_call(chooser, nodes, count, false);
    chooser->calls->changed = true;
}

static void mark_edges(struct chooser *chooser)
{
    const struct ul_graph *graph = chooser->graph;
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            mark_plain(chooser, graph->blocks[b].outputs[i]);
    }
}

static void chooser_init(struct chooser *chooser)
{
    const struct ul_graph *graph = chooser->graph;
    struct ul_calls *calls = chooser->calls;
    chooser->is_plain = UL_NEW_ARRAY(chooser->arena, bool, graph->value_count);
    chooser->last_read = UL_NEW_ARRAY(chooser->arena, uint32_t, graph->value_count);
    calls->by_node = UL_NEW_ARRAY(chooser->arena, struct ul_group_call *, graph->node_count);
    calls->faster = UL_NEW_ARRAY(chooser->arena, struct ul_group_call *, graph->node_count);
    calls->packs = UL_NEW_ARRAY(chooser->arena, const struct ul_pack *, graph->value_count);
    calls->positions = UL_NEW_ARRAY(chooser->arena, uint32_t, graph->node_count);
    for (uint32_t r = 0; r < graph->root_count; r++)
        note_block(chooser, r);
}

enum ul_status ul_calls_choose(struct ul_arena *arena, const struct ul_graph *graph,
                               const bool *escapes, const struct ul_libraries *libraries,
                               const struct ul_unsplit *unsplit, struct ul_calls *calls,
                               struct ul_diag *diag)
{
    struct chooser chooser = {.arena = arena,
                              .graph = graph,
                              .libraries = libraries,
                              .escapes = escapes,
                              .unsplit = unsplit,
                              .calls = calls,
                              .too_long = UL_NONE};
    chooser_init(&chooser);
    if (libraries == NULL)
        return UL_OK;
    each_group(&chooser, choose_group);
    if (chooser.too_long != UL_NONE)
        return ul_diag_set(diag, UL_UNSUPPORTED,
                           "%s: has an axis of over %lld elements, more than %s counts; split the "
                           "axis in the model, or compile for target c",
                           ul_node_describe(graph, chooser.too_long, arena),
                           (long long)chooser.too_long_for->max_dim, chooser.too_long_for->name);
    if (unsplit == NULL) /* else its choice stands */
        ul_calls_bound_kept(arena, graph, calls);
    mark_edges(&chooser);
    do {
        calls->changed = false;
        memset(calls->packs, 0, graph->value_count * sizeof *calls->packs);
        each_group(&chooser, mark_readers);
        each_group(&chooser, give_way);
    } while (calls->changed);
    return UL_OK;
}

/* ---- pieces ---- */

/* A piece of a call must be a call. */
static void check_group(struct chooser *chooser, const ul_node_id *nodes, uint32_t count)
{
    ul_node_id last = nodes[count - 1];
    const struct ul_program_call *of = ul_unsplit_call(chooser->unsplit, chooser->graph, last);
    if (last >= chooser->first && chooser->sure && of != NULL && !of->library->chosen_at_start)
        chooser->sure = make_call(chooser, nodes, count, true) != NULL;
}

bool ul_calls_can_split(struct ul_arena *scratch, const struct ul_graph *graph, ul_node_id first,
                        const struct ul_libraries *libraries, const struct ul_unsplit *unsplit)
{
    struct ul_calls calls;
    struct chooser chooser = {.arena = scratch,
                              .graph = graph,
                              .libraries = libraries,
                              .escapes = ul_graph_escapes(graph, scratch),
                              .unsplit = unsplit,
                              .calls = &calls,
                              .first = first,
                              .too_long = UL_NONE,
                              .sure = true,
                              .unproven = true};
    if (libraries->chosen_at_start)
        return true;
    chooser_init(&chooser);
    each_group(&chooser, check_group);
    return chooser.sure;
}
