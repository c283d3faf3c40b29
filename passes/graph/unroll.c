/* SPDX-License-Identifier: Apache-2.0 */
/* Loops whose body can only be typed when the round is known: one copy of the body a round.
 *
 * Problem: a body may slice by the loop counter (x[i:i+1]); its shapes are static in every round,
 * but no inference of the one body can see that. Method: before such a body is inferred it is
 * copied; when inference finds it unsupported, the copy is repeated with the counter as a
 * constant, carried values handed from round to round, and scanned outputs stacked by Concat.
 * Left undone: loops that may end early are never unrolled. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

enum { MAX_ROUNDS = 256, MAX_NODES = 1 << 16 };

struct cloner {
    struct ul_graph *graph;
    ul_value_id *map; /* value of the body -> its copy in this round */
    uint32_t map_count;
    int64_t round;
};

static ul_value_id mapped(const struct cloner *cloner, ul_value_id value)
{
    return value == UL_NONE || value >= cloner->map_count ? value : cloner->map[value];
}

static void clone_nodes(struct cloner *cloner, ul_block_id from, ul_block_id to);

/* Each round of a loop draws its own random numbers, in nested loops too. An operator that draws
 * besides its other work has a seed. */
static void tell_round(const struct cloner *cloner, ul_node_id node)
{
    struct ul_graph *graph = cloner->graph;
    if ((ul_op_get(graph->nodes[node].op)->flags & UL_OP_RANDOM) == 0 &&
        ul_node_find_attr(&graph->nodes[node], "seed") == NULL)
        return;
    const uint64_t before = (uint64_t)ul_node_get_int(&graph->nodes[node], "ul_round", 0);
    const int64_t round = (int64_t)(before * MAX_ROUNDS + (uint64_t)cloner->round);
    UL_ASSERT(cloner->round >= 0 && cloner->round < MAX_ROUNDS);
    if (round != 0)
        ul_node_set_int(graph, node, "ul_round", round);
}

/* Clones a nested block of a copied node: its own arguments, then the nodes. */
static void clone_block(struct cloner *cloner, ul_block_id from, ul_node_id owner)
{
    struct ul_graph *graph = cloner->graph;
    ul_block_id to = ul_graph_add_block(graph, owner);
    for (uint32_t i = 0; i < graph->blocks[from].input_count; i++) {
        ul_value_id argument = graph->blocks[from].inputs[i];
        struct ul_type type = graph->values[argument].type;
        ul_value_id copy =
            ul_graph_add_value(graph, graph->values[argument].name, UL_VALUE_ARGUMENT, &type);
        ul_block_add_input(graph, to, copy);
        if (argument < cloner->map_count)
            cloner->map[argument] = copy;
    }
    clone_nodes(cloner, from, to);
    for (uint32_t i = 0; i < graph->blocks[from].output_count; i++)
        ul_block_add_output(graph, to, mapped(cloner, graph->blocks[from].outputs[i]));
}

static void clone_nodes(struct cloner *cloner, ul_block_id from, ul_block_id to)
{
    struct ul_graph *graph = cloner->graph;
    for (uint32_t n = 0; n < graph->blocks[from].node_count; n++) {
        ul_node_id id = graph->blocks[from].nodes[n];
        if (graph->nodes[id].op == UL_OP_NONE)
            continue;
        const struct ul_node old = graph->nodes[id];
        struct ul_build build = ul_build_last(graph, to, old.name);
        ul_node_id copy = ul_build_like(&build, id, old.inputs);
        for (uint32_t i = 0; i < old.input_count; i++)
            graph->nodes[copy].inputs[i] = mapped(cloner, old.inputs[i]);
        for (uint32_t i = 0; i < old.output_count; i++) {
            ul_value_id fresh = graph->nodes[copy].outputs[i];
            graph->values[fresh].name = graph->values[old.outputs[i]].name;
            graph->values[fresh].type = graph->values[old.outputs[i]].type;
            if (old.outputs[i] < cloner->map_count)
                cloner->map[old.outputs[i]] = fresh;
        }
        tell_round(cloner, copy);
        for (uint32_t b = 0; b < old.block_count; b++)
            clone_block(cloner, old.blocks[b], copy);
    }
}

static void cloner_init(struct cloner *cloner, const struct ul_pass *pass)
{
    cloner->graph = pass->graph;
    cloner->round = 0;
    cloner->map_count = pass->graph->value_count;
    cloner->map = UL_NEW_ARRAY(pass->scratch, ul_value_id, cloner->map_count);
    for (uint32_t v = 0; v < cloner->map_count; v++)
        cloner->map[v] = v;
}

/* Whether the condition that the body hands on is the one that it was given, or a constant. */
static bool runs_its_count(const struct ul_graph *graph, const struct ul_block *body)
{
    ul_value_id condition = body->outputs[0];
    const struct ul_value *value = &graph->values[condition];
    while (value->kind == UL_VALUE_NODE && graph->nodes[value->producer].op == UL_OP_Identity) {
        condition = graph->nodes[value->producer].inputs[0];
        value = &graph->values[condition];
    }
    const struct ul_tensor *known = ul_graph_get_constant(graph, condition);
    return condition == body->inputs[1] || (known != NULL && ul_tensor_get_int(known, 0) != 0);
}

bool ul_unroll_is_possible(const struct ul_graph *graph, ul_node_id loop)
{
    const struct ul_node *node = &graph->nodes[loop];
    const struct ul_tensor *count = ul_graph_get_constant(graph, node->inputs[0]);
    if (node->block_count != 1 || node->input_count < 2 || count == NULL ||
        ul_type_elements(&count->type) != 1)
        return false;
    const struct ul_block *body = &graph->blocks[node->blocks[0]];
    const struct ul_tensor *first = ul_graph_get_constant(graph, node->inputs[1]);
    bool enters =
        node->inputs[1] == UL_NONE ||
        (first != NULL && ul_type_elements(&first->type) == 1 && ul_tensor_get_int(first, 0) != 0);
    int64_t rounds = ul_tensor_get_int(count, 0);
    return enters && body->input_count == node->input_count && body->output_count > 0 &&
           body->output_count == node->output_count + 1 && rounds > 0 && rounds <= MAX_ROUNDS &&
           (uint64_t)rounds * body->node_count <= MAX_NODES && runs_its_count(graph, body);
}

ul_block_id ul_unroll_save(const struct ul_pass *pass, ul_node_id loop)
{
    struct ul_graph *graph = pass->graph;
    struct cloner cloner;
    UL_ASSERT(graph->nodes[loop].block_count == 1);
    cloner_init(&cloner, pass);
    ul_block_id body = graph->nodes[loop].blocks[0];
    ul_block_id saved = ul_graph_add_block(graph, UL_NONE);
    for (uint32_t i = 0; i < graph->blocks[body].input_count; i++) {
        ul_value_id argument = graph->blocks[body].inputs[i];
        ul_block_add_input(graph, saved, argument);
        graph->values[argument].producer = loop; /* it stays the loop's own */
    }
    clone_nodes(&cloner, body, saved);
    for (uint32_t i = 0; i < graph->blocks[body].output_count; i++)
        ul_block_add_output(graph, saved, mapped(&cloner, graph->blocks[body].outputs[i]));
    return saved;
}

void ul_unroll_forget(struct ul_graph *graph, ul_block_id saved)
{
    struct ul_block *block = &graph->blocks[saved];
    for (uint32_t n = 0; n < block->node_count; n++)
        ul_graph_remove_node(graph, block->nodes[n]);
    block->node_count = block->input_count = block->output_count = 0;
}

static ul_value_id scalar(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                          int64_t number)
{
    return ul_graph_add_weight(graph, name,
                               ul_tensor_new_ints(graph->arena, dtype, 0, NULL, &number));
}

/* Stacks the slices of all rounds along a new first axis. */
static ul_value_id stack(struct ul_graph *graph, ul_block_id block, const ul_value_id *slices,
                         uint32_t rounds, const char *name)
{
    static const int64_t first_axis[1] = {0};
    ul_value_id axes = ul_build_ints(graph, "axes", 1, first_axis);
    struct ul_build build = ul_build_last(graph, block, name);
    ul_node_id concat = ul_build_node(&build, UL_OP_Concat, slices, rounds, 1);
    ul_node_set_int(graph, concat, "axis", 0);
    build = ul_build_before(graph, concat);
    for (uint32_t r = 0; r < rounds; r++) {
        const ul_value_id inputs[2] = {slices[r], axes};
        ul_value_id slice = ul_build_value(&build, UL_OP_Unsqueeze, inputs, 2, NULL);
        graph->nodes[concat].inputs[r] = slice;
    }
    return graph->nodes[concat].outputs[0];
}

ul_block_id ul_unroll_rounds(const struct ul_pass *pass, ul_node_id loop, ul_block_id saved)
{
    struct ul_graph *graph = pass->graph;
    struct cloner cloner;
    cloner_init(&cloner, pass);
    ul_block_id all = ul_graph_add_block(graph, UL_NONE);
    struct ul_node node = graph->nodes[loop];
    struct ul_block body = graph->blocks[saved];
    uint32_t rounds = (uint32_t)ul_tensor_get_int(ul_graph_get_constant(graph, node.inputs[0]), 0);
    uint32_t carried = node.input_count - 2;
    UL_ASSERT(rounds > 0 && rounds <= MAX_ROUNDS);
    UL_ASSERT(node.output_count >= carried && body.input_count == node.input_count);
    ul_value_id *results =
        UL_NEW_ARRAY(pass->scratch, ul_value_id, (uint64_t)rounds * node.output_count);
    ul_value_id *state = ul_arena_copy(pass->scratch, node.inputs + 2, carried * sizeof *state);
    for (uint32_t r = 0; r < rounds; r++) {
        cloner.map[body.inputs[0]] = scalar(graph, graph->values[body.inputs[0]].name, UL_I64, r);
        cloner.map[body.inputs[1]] = scalar(graph, graph->values[body.inputs[1]].name, UL_BOOL, 1);
        for (uint32_t i = 0; i < carried; i++)
            cloner.map[body.inputs[2 + i]] = state[i];
        cloner.round = r;
        clone_nodes(&cloner, saved, all);
        for (uint32_t i = 0; i < node.output_count; i++)
            results[(uint64_t)i * rounds + r] = mapped(&cloner, body.outputs[1 + i]);
        for (uint32_t i = 0; i < carried; i++)
            state[i] = mapped(&cloner, body.outputs[1 + i]);
    }
    for (uint32_t i = 0; i < node.output_count; i++) {
        ul_value_id result =
            i < carried ? state[i]
                        : stack(graph, all, results + (uint64_t)i * rounds, rounds, node.name);
        ul_block_add_output(graph, all, result);
    }
    return all;
}

/* ---- Scan ---- */

bool ul_unroll_scan_is_possible(const struct ul_graph *graph, ul_node_id scan)
{
    const struct ul_node *node = &graph->nodes[scan];
    const struct ul_type *last = &graph->values[node->inputs[node->input_count - 1]].type;
    const struct ul_block *body = &graph->blocks[node->blocks[0]];
    return last->rank > 0 && last->dims[0] > 0 && last->dims[0] <= MAX_ROUNDS &&
           (uint64_t)last->dims[0] * body->node_count <= MAX_NODES;
}

/* The place of list element `index` in round r: counted from the end where its direction is 1. */
static int64_t scan_place(const struct ul_node *node, const char *directions, uint32_t index,
                          int64_t round, int64_t rounds)
{
    uint32_t count = 0;
    const int64_t *list = ul_node_get_ints(node, directions, &count);
    return index < count && list[index] != 0 ? rounds - 1 - round : round;
}

ul_block_id ul_unroll_scan(const struct ul_pass *pass, ul_node_id scan)
{
    struct ul_graph *graph = pass->graph;
    struct cloner cloner;
    cloner_init(&cloner, pass);
    ul_block_id all = ul_graph_add_block(graph, UL_NONE);
    struct ul_node node = graph->nodes[scan];
    struct ul_block body = graph->blocks[node.blocks[0]];
    uint32_t scanned = (uint32_t)ul_node_get_int(&node, "num_scan_inputs", 0);
    uint32_t carried = node.input_count - scanned;
    int64_t rounds = graph->values[node.inputs[node.input_count - 1]].type.dims[0];
    UL_ASSERT(scanned > 0 && scanned <= node.input_count && rounds <= MAX_ROUNDS);
    ul_value_id *results =
        UL_NEW_ARRAY(pass->scratch, ul_value_id, (uint64_t)rounds * node.output_count);
    for (uint32_t i = 0; i < carried; i++)
        cloner.map[body.inputs[i]] = node.inputs[i];
    for (int64_t r = 0; r < rounds; r++) {
        struct ul_build build = ul_build_last(graph, all, node.name);
        for (uint32_t i = 0; i < scanned; i++) {
            const struct ul_type type = graph->values[body.inputs[carried + i]].type;
            int64_t at = scan_place(&node, "scan_input_directions", i, r, rounds);
            ul_value_id slice = ul_build_slice(&build, node.inputs[carried + i], 0, at, at + 1);
            cloner.map[body.inputs[carried + i]] =
                ul_build_reshape(&build, slice, type.rank, type.dims);
        }
        cloner.round = r;
        clone_nodes(&cloner, node.blocks[0], all);
        for (uint32_t i = 0; i < node.output_count; i++) {
            int64_t at = i < carried
                             ? r
                             : scan_place(&node, "scan_output_directions", i - carried, r, rounds);
            results[(int64_t)i * rounds + at] = mapped(&cloner, body.outputs[i]);
        }
        for (uint32_t i = 0; i < carried; i++)
            cloner.map[body.inputs[i]] = results[(int64_t)i * rounds + r];
    }
    for (uint32_t i = 0; i < node.output_count; i++) {
        const ul_value_id *of = results + (int64_t)i * rounds;
        ul_block_add_output(graph, all,
                            i < carried ? of[rounds - 1]
                                        : stack(graph, all, of, (uint32_t)rounds, node.name));
    }
    return all;
}
