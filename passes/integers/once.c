/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that read constants of 8 to 16 bits alone, computed once.
 *
 * Problem: constants of 8 or 16 bits stay as they are stored, for products and convolutions to read
 * (nbits.c) or kernels to widen as they load. Where there is no such kernel (a transposed
 * convolution, a convolution of few channels), a call reads floats, and in every run a step in
 * front of it makes them. That costs time, and bytes too: the floats lie in the buffer beside the
 * codes, and a library packs anew in every run what is not constant:
 *
 *     w (f16) --> Cast --> ConvTranspose        ->        w (f32) --> ConvTranspose
 *
 * Method: after fusion, when it is known what the steps are, such steps are interpreted, and what
 * others read from them becomes a constant, if the graph's constants and its largest live sum, with
 * the scratch of calls, are then no more than before together, or more by what is small beside the
 * constants. If all such steps are too much, those that make the most are left out, ever more of
 * them.
 *
 * This account goes by the order of the file and knows nothing of what a library packs: plans of
 * both programs have the last word (compile/search/budget.c).
 *
 * Left undone: steps inside of branches and loops; the set of large steps that saves the most;
 * anything, where steps take more work than codes of such a number are worth. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/passes_internal.h"
#include "passes/shared/steps.h"

#include <string.h>

enum {
    WORK_PER_CODE = 64, /* of the interpreter, for each code of all constants together */
    MIN_BITS = 8,       /* of a code: pass packed keeps smaller codes packed */
    MAX_BITS = 16
};

struct step {
    const ul_node_id *nodes;
    uint32_t count;
    uint64_t read,
        made; /* elements that it reads from codes and from other steps, and makes for others */
    uint64_t made_bytes;
    bool goes, is_computed;
};

struct once {
    struct ul_pass *pass;
    struct ul_graph *graph;
    const bool *escapes; /* per value */
    bool *is_edge;       /* per value: a block gives it */
    bool *hangs;         /* per value that nodes make: it depends on constants alone */
    uint32_t *step_of;   /* per node: a place in `steps`, or UL_NONE */
    struct step *steps;  /* that could be computed, in the order of the block */
    uint32_t step_count;
    uint32_t *counted_in;  /* per base: the first node of a step in which it is counted */
    unsigned char **bytes; /* per base */
    bool *is_read;         /* per value: by a node that stays, or at an edge */
    bool *stays;           /* per node */
    struct ul_node_list all;
    uint64_t constant_bytes, live_bytes; /* before; live_bytes 0: not counted yet */
    uint64_t work_left;
    bool is_too_much; /* the steps take more work than is left */
};

/* ---- Which steps ---- */

/* Whether it can be a constant: it has bytes of its own, in order. */
static bool is_whole(const struct once *once, ul_value_id value)
{
    const struct ul_graph *graph = once->graph;
    const struct ul_value *info = &graph->values[value];
    return info->view.base == value && info->donor == UL_NONE && !once->is_edge[value] &&
           ul_value_storage(graph, value) == info->type.dtype &&
           ul_view_is_dense(&info->type, &info->view);
}

static ul_value_id base_of(const struct once *once, ul_value_id value)
{
    ul_value_id base = once->graph->values[value].view.base;
    UL_ASSERT(base < once->graph->value_count);
    return base;
}

static bool reads_known(const struct once *once, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id value = node->inputs[i];
        if (value != UL_NONE && !once->hangs[value] &&
            ul_graph_get_constant(once->graph, value) == NULL)
            return false;
    }
    return node->input_count > 0;
}

/* Whether the node computes the same in every run, and its results can be constants. */
static bool is_known(const struct once *once, ul_node_id id)
{
    const struct ul_graph *graph = once->graph;
    const struct ul_node *node = &graph->nodes[id];
    bool is_view = ul_node_is_view(graph, id);
    if ((ul_op_get(node->op)->flags & (UL_OP_RANDOM | UL_OP_CONTROL)) != 0 ||
        node->block_count > 0 || !reads_known(once, node))
        return false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id value = node->outputs[i];
        if (value == UL_NONE || (is_view && once->is_edge[value]) ||
            (!is_view && once->escapes[value] && !is_whole(once, value)))
            return false;
    }
    return true;
}

static bool is_code_array(const struct ul_graph *graph, ul_value_id value)
{
    uint32_t bits = ul_dtype_get(graph->values[value].type.dtype)->bits;
    return bits >= MIN_BITS && bits <= MAX_BITS && ul_edit_weight_bytes(graph, value) > 0;
}

bool ul_once_has_codes(const struct ul_graph *graph)
{
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind == UL_VALUE_WEIGHT && is_code_array(graph, v))
            return true;
    }
    return false;
}

/* Adds the elements of a constant of codes, or of what another step makes. A step that reads two
 * views of one value counts it once. */
static void count_read(struct once *once, ul_value_id value, struct step *step)
{
    const struct ul_graph *graph = once->graph;
    ul_value_id base = base_of(once, value);
    const struct ul_value *info = &graph->values[base];
    bool is_made = info->kind == UL_VALUE_NODE;
    bool is_code = !is_made && is_code_array(graph, base);
    if (once->counted_in[base] == step->nodes[0] || (is_made && !once->escapes[base]))
        return;
    if (is_code && once->counted_in[base] == UL_NONE)
        once->work_left += WORK_PER_CODE * ul_type_elements(&info->type);
    once->counted_in[base] = step->nodes[0];
    step->read += is_code || is_made ? ul_type_elements(&info->type) : 0;
}

static void count_elements(struct once *once, const struct ul_node *node, struct step *step)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE)
            count_read(once, node->inputs[i], step);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_type *type = &once->graph->values[node->outputs[i]].type;
        if (!once->escapes[node->outputs[i]])
            continue;
        step->made += ul_type_elements(type);
        step->made_bytes += ul_type_bytes(type);
    }
}

/* Every node of the step can be computed, and the step makes no more elements than it reads. */
static bool can_compute(struct once *once, struct step *step)
{
    for (uint32_t n = 0; n < step->count; n++) {
        const struct ul_node *node = &once->graph->nodes[step->nodes[n]];
        if (!is_known(once, step->nodes[n]))
            return false;
        for (uint32_t i = 0; i < node->output_count; i++)
            once->hangs[node->outputs[i]] = true; /* the next node may read it */
        count_elements(once, node, step);
    }
    return ul_node_is_view(once->graph, step->nodes[0]) || step->made <= step->read;
}

static void forget(const struct once *once, const struct step *step)
{
    for (uint32_t n = 0; n < step->count; n++) {
        const struct ul_node *node = &once->graph->nodes[step->nodes[n]];
        for (uint32_t i = 0; i < node->output_count; i++) {
            if (node->outputs[i] != UL_NONE)
                once->hangs[node->outputs[i]] = false;
        }
    }
}

static void find_steps_of(struct once *once, ul_block_id root)
{
    const struct ul_block *block = &once->graph->blocks[root];
    for (uint32_t begin = 0, end; begin < block->node_count; begin = end) {
        struct step step = {.nodes = block->nodes + begin};
        end = ul_steps_end(once->graph, block->nodes, block->node_count, begin);
        step.count = end - begin;
        bool is_view = ul_node_is_view(once->graph, step.nodes[0]);
        if (!can_compute(once, &step)) {
            forget(once, &step);
            continue;
        }
        for (uint32_t n = 0; n < step.count && !is_view; n++)
            once->step_of[step.nodes[n]] = once->step_count;
        if (!is_view)
            once->steps[once->step_count++] = step;
    }
}

static void find_steps(struct once *once)
{
    for (uint32_t r = 0; r < once->graph->root_count; r++)
        find_steps_of(once, r);
}

/* ---- Which of them ---- */

/* The step that makes the bytes of the value, or UL_NONE. */
static uint32_t maker_of(const struct once *once, ul_value_id value)
{
    const struct ul_value *info = &once->graph->values[base_of(once, value)];
    return info->kind == UL_VALUE_NODE ? once->step_of[info->producer] : UL_NONE;
}

/* Marks the steps that make at most so many bytes and read only from steps that do; counts them. */
static uint32_t choose(const struct once *once, uint64_t most_bytes)
{
    uint32_t chosen = 0;
    for (uint32_t s = 0; s < once->step_count; s++) {
        struct step *step = &once->steps[s];
        step->goes = step->made_bytes <= most_bytes;
        for (uint32_t n = 0; n < step->count; n++) {
            const struct ul_node *node = &once->graph->nodes[step->nodes[n]];
            for (uint32_t i = 0; i < node->input_count; i++) {
                uint32_t maker =
                    node->inputs[i] == UL_NONE ? UL_NONE : maker_of(once, node->inputs[i]);
                step->goes =
                    step->goes && (maker == UL_NONE || maker == s || once->steps[maker].goes);
            }
        }
        chosen += step->goes;
    }
    return chosen;
}

static bool is_wanted(const struct once *once, ul_node_id id)
{
    const struct ul_node *node = &once->graph->nodes[id];
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] != UL_NONE && once->is_read[node->outputs[i]])
            return true;
    }
    return false;
}

/* Walks from the end, since a view of computed values stays only where a node that stays reads it.
 */
static void find_readers(const struct once *once)
{
    const struct ul_graph *graph = once->graph;
    memcpy(once->is_read, once->is_edge, graph->value_count * sizeof *once->is_read);
    for (uint32_t at = once->all.count; at-- > 0;) {
        ul_node_id id = once->all.nodes[at];
        const struct ul_node *node = &graph->nodes[id];
        bool is_view = node->output_count > 0 && ul_node_is_view(graph, id);
        bool hangs =
            node->output_count > 0 && node->outputs[0] != UL_NONE && once->hangs[node->outputs[0]];
        once->stays[id] =
            is_view && hangs ? is_wanted(once, id)
                             : once->step_of[id] == UL_NONE || !once->steps[once->step_of[id]].goes;
        for (uint32_t i = 0; once->stays[id] && i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                once->is_read[node->inputs[i]] = true;
        }
    }
}

/* ---- What it saves ---- */

/* The bytes that the program stores. Pass packed stores what has less than 8 bits packed. */
static uint64_t stored_bytes(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_type *type = &graph->values[value].type;
    return ul_dtype_get(type->dtype)->bits < 8 ? ul_type_packed_bytes(type)
                                               : ul_value_bytes(graph, value);
}

/* The bytes of constants once the chosen steps are gone. */
static uint64_t constant_bytes(const struct once *once)
{
    const struct ul_graph *graph = once->graph;
    uint64_t sum = 0;
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        const struct ul_value *info = &graph->values[v];
        bool is_constant = info->kind == UL_VALUE_WEIGHT && ul_edit_weight_bytes(graph, v) > 0;
        bool is_made = info->kind == UL_VALUE_NODE && !once->stays[info->producer];
        if (once->is_read[v] && (is_constant || is_made))
            sum += stored_bytes(graph, v);
    }
    return sum;
}

static uint64_t live_bytes(const struct once *once, const struct ul_graph *graph)
{
    struct ul_arena scratch;
    struct ul_steps steps;
    ul_arena_init(&scratch);
    ul_steps_init(&steps, graph, NULL, once->pass->options, &scratch);
    const struct ul_live *live = ul_steps_live(&steps);
    uint64_t bytes = ul_live_bytes(live, ul_live_peak(live));
    ul_arena_done(&scratch);
    return bytes;
}

/* Constants that nothing else reads go with the node. */
static void free_inputs(const struct once *once, struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id value = node->inputs[i];
        if (value != UL_NONE && !once->is_read[value] &&
            graph->values[value].kind == UL_VALUE_WEIGHT)
            graph->values[value].kind = UL_VALUE_DEAD;
    }
}

/* Gives the node's outputs their tensors, where a node that stays reads them. */
static void put_tensors(const struct once *once, struct ul_graph *graph, ul_node_id id)
{
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->output_count; i++) {
        struct ul_value *value = &graph->values[node->outputs[i]];
        struct ul_tensor *tensor = UL_NEW(graph->arena, struct ul_tensor);
        *tensor = (struct ul_tensor){.type = value->type, .data = once->bytes[node->outputs[i]]};
        value->tensor = once->is_read[node->outputs[i]] ? tensor : NULL;
    }
}

/* Removes the steps that go from `graph`, which is the pass's graph or a copy of it. */
static void replace(const struct once *once, struct ul_graph *graph)
{
    for (uint32_t n = graph->node_count; n-- > 0;) {
        if (graph->nodes[n].op == UL_OP_NONE || once->stays[n])
            continue;
        put_tensors(once, graph, n);
        free_inputs(once, graph, n);
        ul_edit_remove_known(graph, n, once->is_read);
    }
    ul_graph_sweep(graph);
}

static bool compute(struct once *once)
{
    bool all = true;
    for (uint32_t s = 0; s < once->step_count && all; s++) {
        struct step *step = &once->steps[s];
        const struct ul_fold_step known = {step->nodes, step->count, once->escapes,
                                           once->pass->traits};
        if (!step->goes || step->is_computed)
            continue;
        step->is_computed =
            ul_fold_step(once->graph, &known, &once->work_left, once->pass->scratch, once->bytes);
        all = step->is_computed;
    }
    once->is_too_much = !all;
    return all;
}

/* Whether the chosen steps take no more bytes as constants, or hardly more. Steps are computed only
 * where their bytes leave that open. */
static bool is_worth(struct once *once)
{
    struct ul_arena arena;
    struct ul_graph copy;
    uint64_t limit = once->constant_bytes + once->constant_bytes / UL_ONCE_PART;
    uint64_t constants = constant_bytes(once);
    if (constants <= limit)
        return compute(once);
    if (once->live_bytes == 0)
        once->live_bytes = live_bytes(once, once->graph);
    if (constants > limit + once->live_bytes || !compute(once))
        return false;
    ul_arena_init(&arena);
    ul_graph_copy(&copy, &arena, once->graph);
    replace(once, &copy);
    bool worth = constants + live_bytes(once, &copy) <= limit + once->live_bytes;
    ul_arena_done(&arena);
    return worth;
}

/* Computes all steps if that is worth it, else those that make at most half as many bytes as the
 * largest, else a quarter, and so on. */
static void compute_most(struct once *once)
{
    uint64_t most_bytes = 0;
    for (uint32_t s = 0; s < once->step_count; s++)
        most_bytes =
            once->steps[s].made_bytes > most_bytes ? once->steps[s].made_bytes : most_bytes;
    find_readers(once);
    once->constant_bytes = constant_bytes(once);
    for (; most_bytes > 0 && choose(once, most_bytes) > 0 && !once->is_too_much; most_bytes /= 2) {
        find_readers(once);
        if (is_worth(once)) {
            replace(once, once->graph);
            return;
        }
    }
}

enum ul_status ul_pass_once(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_arena *scratch = pass->scratch;
    struct once once = {.pass = pass,
                        .graph = graph,
                        .escapes = ul_graph_escapes(graph, scratch),
                        .is_edge = UL_NEW_ARRAY(scratch, bool, graph->value_count),
                        .hangs = UL_NEW_ARRAY(scratch, bool, graph->value_count),
                        .step_of = UL_NEW_ARRAY(scratch, uint32_t, graph->node_count),
                        .steps = UL_NEW_ARRAY(scratch, struct step, graph->node_count),
                        .bytes = UL_NEW_ARRAY(scratch, unsigned char *, graph->value_count),
                        .is_read = UL_NEW_ARRAY(scratch, bool, graph->value_count),
                        .stays = UL_NEW_ARRAY(scratch, bool, graph->node_count),
                        .counted_in = UL_NEW_ARRAY(scratch, uint32_t, graph->value_count),
                        .all = ul_edit_all_nodes(graph, scratch)};
    memset(once.step_of, 0xFF, graph->node_count * sizeof *once.step_of);
    memset(once.counted_in, 0xFF, graph->value_count * sizeof *once.counted_in);
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            once.is_edge[graph->blocks[b].outputs[i]] = true;
    }
    find_steps(&once);
    if (once.step_count > 0)
        compute_most(&once);
    return UL_OK;
}
