/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of 16 bits, computed as a program would.
 *
 * Problem: a program does not round to 16 bits between the nodes of one kernel. Folding one node
 * after the other does, so that results would depend on whether an operand is an input or a
 * constant. Method: folded nodes that are connected by values, one of which has 16 bits, are copied
 * into a graph of their own, which has the constants that they read as inputs. The passes fuse it
 * as they fuse any graph, its kernels are interpreted, and what they store replaces what was
 * folded:
 *
 *     weights --> Mul --> Add --> value      one kernel, which rounds once
 *
 * Constants of one number stay constants: patterns look for them.
 * Left undone: a value that other nodes read is rounded, though a program might compute it in their
 * kernel, since which nodes are one kernel goes by bytes. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/view.h"
#include "passes/passes_internal.h"
#include "passes/shared/steps.h"

struct fold {
    struct ul_pass *pass;
    struct ul_graph *graph; /* that the folded nodes are of */
    const ul_node_id *nodes;
    uint32_t count;
    uint32_t *place_of;    /* per node of `graph`: its place in `nodes`, or UL_NONE */
    uint32_t *parents;     /* per place: sets of connected nodes */
    bool *is_asked;        /* per value of `graph`: a node needs it as a constant */
    struct set *sets;      /* per place, at the head of its set */
    struct ul_graph own;   /* the copy */
    ul_value_id *copies;   /* per value of `graph`: its copy, or UL_NONE */
    ul_value_id *wanted;   /* per output of the copy: the value of `graph` */
    unsigned char **bytes; /* per base of the copy */
    uint64_t work_left;
    struct ul_arena arena;
};

struct set {
    bool has_half, has_array; /* one of its values has 16 bits; it reads a constant with elements */
    bool reads_folded;        /* a value of another block, which may have been computed anew */
    uint32_t computing;       /* nodes that are more than movements */
};

/* The place of the node that makes it, or UL_NONE. */
static uint32_t maker_of(const struct fold *fold, ul_value_id value)
{
    const struct ul_value *info = &fold->graph->values[value];
    return info->kind == UL_VALUE_NODE ? fold->place_of[info->producer] : UL_NONE;
}

/* The node computes with the elements of its input: floats, or integers that it makes floats of.
 * Shapes and axes are no such inputs. */
static bool computes_with(const struct fold *fold, const struct ul_node *node, uint32_t input)
{
    const struct ul_graph *graph = fold->graph;
    const uint32_t maps = UL_OP_ELEMENTWISE | UL_OP_WIDENS;
    bool is_map = (ul_op_get(node->op)->flags & maps) != 0;
    return ul_dtype_get(graph->values[node->inputs[input]].type.dtype)->is_float ||
           (input == 0 && is_map &&
            ul_dtype_get(graph->values[node->outputs[0]].type.dtype)->is_float);
}

/* A constant with elements that nodes compute with and that none takes for a shape. */
static bool is_array(const struct fold *fold, ul_value_id value)
{
    const struct ul_value *info = &fold->graph->values[value];
    return maker_of(fold, value) == UL_NONE && !fold->is_asked[value] &&
           info->tensor->data != NULL && ul_type_elements(&info->type) > 1;
}

/* ---- Which nodes ---- */

static void find_sets(struct fold *fold)
{
    const struct ul_graph *graph = fold->graph;
    for (uint32_t n = 0; n < fold->count; n++)
        fold->parents[n] = n;
    for (uint32_t n = 0; n < fold->count; n++) {
        const struct ul_node *node = &graph->nodes[fold->nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t maker = node->inputs[i] == UL_NONE ? UL_NONE : maker_of(fold, node->inputs[i]);
            if (maker != UL_NONE)
                ul_edit_join_heads(fold->parents, maker, n);
            else if (node->inputs[i] != UL_NONE && !computes_with(fold, node, i))
                fold->is_asked[node->inputs[i]] = true;
        }
    }
    for (uint32_t n = 0; n < fold->count; n++) {
        const struct ul_node *node = &graph->nodes[fold->nodes[n]];
        struct set *set = &fold->sets[ul_edit_find_head(fold->parents, n)];
        set->computing += ul_op_get(node->op)->view == NULL;
        for (uint32_t i = 0; i < node->output_count; i++)
            set->has_half |= ul_dtype_is_half(graph->values[node->outputs[i]].type.dtype);
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id input = node->inputs[i];
            set->has_array |= input != UL_NONE && is_array(fold, input);
            set->reads_folded |= input != UL_NONE && maker_of(fold, input) == UL_NONE &&
                                 graph->values[input].kind == UL_VALUE_NODE;
        }
    }
}

/* Whether a program may compute something else than folding did. A node by itself is folded as it
 * runs, except for what it reads from other blocks. */
static bool is_chosen(const struct fold *fold, uint32_t place)
{
    const struct set *set = &fold->sets[ul_edit_find_head((uint32_t *)fold->parents, place)];
    return set->has_half && set->has_array && (set->computing > 1 || set->reads_folded);
}

/* ---- The copy ---- */

static ul_value_id copy_constant(struct fold *fold, ul_value_id value)
{
    const struct ul_value *info = &fold->graph->values[value];
    if (fold->copies[value] != UL_NONE)
        return fold->copies[value];
    if (is_array(fold, value)) {
        fold->copies[value] =
            ul_graph_add_value(&fold->own, info->name, UL_VALUE_INPUT, &info->type);
        ul_block_add_input(&fold->own, 0, fold->copies[value]);
    } else {
        fold->copies[value] = ul_graph_add_weight(&fold->own, info->name, info->tensor);
    }
    return fold->copies[value];
}

static void copy_node(struct fold *fold, ul_node_id id)
{
    const struct ul_node *node = &fold->graph->nodes[id];
    UL_ASSERT(node->block_count == 0);
    ul_node_id copy = ul_graph_add_node(&fold->own, 0, node->op, node->name, node->input_count,
                                        node->output_count);
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE) {
            ul_value_id input = copy_constant(fold, node->inputs[i]);
            fold->own.nodes[copy].inputs[i] = input;
        }
    }
    for (uint32_t i = 0; i < node->attr_count; i++)
        ul_node_set_attr(&fold->own, copy, &node->attrs[i]);
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id made = fold->own.nodes[copy].outputs[i];
        fold->own.values[made].name = fold->graph->values[node->outputs[i]].name;
        fold->copies[node->outputs[i]] = made;
    }
}

static void want(struct fold *fold, bool *is_wanted, ul_value_id value)
{
    if (value == UL_NONE || fold->copies[value] == UL_NONE || is_wanted[value] ||
        maker_of(fold, value) == UL_NONE)
        return;
    is_wanted[value] = true;
    fold->wanted[ul_graph_only_root(&fold->own)->output_count] = value;
    ul_block_add_output(&fold->own, 0, fold->copies[value]);
}

/* Makes what others read an output of the copy. */
static void add_outputs(struct fold *fold)
{
    const struct ul_graph *graph = fold->graph;
    bool *is_wanted = UL_NEW_ARRAY(&fold->arena, bool, graph->value_count);
    for (ul_node_id id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        if (node->op == UL_OP_NONE || fold->place_of[id] != UL_NONE)
            continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            want(fold, is_wanted, node->inputs[i]);
    }
    for (ul_block_id b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            want(fold, is_wanted, graph->blocks[b].outputs[i]);
    }
}

static bool copy_nodes(struct fold *fold)
{
    uint32_t value_count = fold->graph->value_count, chosen = 0;
    ul_graph_init(&fold->own, &fold->arena, "folded");
    fold->own.rounds_products = fold->graph->rounds_products;
    fold->copies = UL_NEW_ARRAY(&fold->arena, ul_value_id, value_count);
    fold->wanted = UL_NEW_ARRAY(&fold->arena, ul_value_id, value_count);
    for (ul_value_id v = 0; v < value_count; v++)
        fold->copies[v] = UL_NONE;
    for (uint32_t n = 0; n < fold->count; n++) {
        if (is_chosen(fold, n)) {
            copy_node(fold, fold->nodes[n]);
            chosen++;
        }
    }
    if (chosen > 0)
        add_outputs(fold);
    return chosen > 0 && ul_graph_only_root(&fold->own)->output_count > 0;
}

/* ---- Its program ---- */

static bool fuse(struct fold *fold)
{
    struct ul_arena scratch;
    struct ul_diag ignored = {.status = UL_OK};
    struct ul_passes_options options = *fold->pass->options;
    options.print_after = options.only = options.start_at = options.stop_before = NULL;
    options.stop_after = "fuse";
    options.split_count = options.inside_count = options.row_major_count = 0;
    options.quantize_count = 0;
    options.no_float = false;
    options.is_part = options.is_part || options.training != NULL;
    options.training = NULL;
    ul_arena_init(&scratch);
    enum ul_status status = fold->pass->run(&fold->own, &scratch, &options, &ignored);
    ul_arena_done(&scratch);
    return status == UL_OK;
}

static bool run(struct fold *fold)
{
    const struct ul_block *block = ul_graph_only_root(&fold->own);
    UL_ASSERT(fold->bytes == NULL && block->output_count > 0);
    const bool *escapes = ul_graph_escapes(&fold->own, &fold->arena);
    fold->bytes = UL_NEW_ARRAY(&fold->arena, unsigned char *, fold->own.value_count);
    for (ul_value_id v = 0; v < fold->graph->value_count; v++) {
        ul_value_id copy = fold->copies[v];
        if (copy != UL_NONE && fold->own.values[copy].kind == UL_VALUE_INPUT)
            fold->bytes[copy] = (unsigned char *)(uintptr_t)fold->graph->values[v].tensor->data;
    }
    for (uint32_t begin = 0, end; begin < block->node_count; begin = end) {
        end = ul_steps_end(&fold->own, block->nodes, block->node_count, begin);
        const struct ul_fold_step step = {block->nodes + begin, end - begin, escapes,
                                          fold->pass->traits};
        if (!ul_node_is_view(&fold->own, block->nodes[begin]) &&
            !ul_fold_step(&fold->own, &step, &fold->work_left, &fold->arena, fold->bytes))
            return false;
    }
    return true;
}

/* Puts what the program stores into the values that were folded. */
static void take_results(struct fold *fold, struct ul_arena *keep)
{
    for (uint32_t i = 0; i < ul_graph_only_root(&fold->own)->output_count; i++) {
        struct ul_value *value = &fold->graph->values[fold->wanted[i]];
        ul_value_id output = ul_graph_only_root(&fold->own)->outputs[i];
        const struct ul_view *view = &fold->own.values[output].view;
        bool fits = ul_value_storage(&fold->own, output) == value->type.dtype &&
                    ul_view_is_dense(&value->type, view);
        UL_ASSERT(fits && value->tensor != NULL);
        const unsigned char *data =
            ul_fold_bytes_of(&fold->own, &fold->arena, fold->bytes, view->base) +
            view->offset_bytes;
        struct ul_tensor *tensor = UL_NEW(keep, struct ul_tensor);
        tensor->type = value->type;
        tensor->data = ul_arena_copy(keep, data, ul_type_bytes(&value->type));
        value->tensor = tensor;
    }
}

void ul_fold_as_program(struct ul_pass *pass, const ul_node_id *nodes, uint32_t count,
                        struct ul_arena *keep)
{
    struct fold fold = {.pass = pass,
                        .graph = pass->graph,
                        .nodes = nodes,
                        .count = count,
                        .work_left = UL_LIMIT_FOLD_WORK};
    if (count == 0)
        return;
    ul_arena_init(&fold.arena);
    fold.place_of = UL_NEW_ARRAY(&fold.arena, uint32_t, pass->graph->node_count);
    fold.parents = UL_NEW_ARRAY(&fold.arena, uint32_t, count);
    fold.is_asked = UL_NEW_ARRAY(&fold.arena, bool, pass->graph->value_count);
    fold.sets = UL_NEW_ARRAY(&fold.arena, struct set, count);
    for (ul_node_id id = 0; id < pass->graph->node_count; id++)
        fold.place_of[id] = UL_NONE;
    for (uint32_t n = 0; n < count; n++) {
        UL_ASSERT(nodes[n] < pass->graph->node_count);
        fold.place_of[nodes[n]] = n;
    }
    find_sets(&fold);
    if (copy_nodes(&fold) && fuse(&fold) && run(&fold))
        take_results(&fold, keep);
    ul_arena_done(&fold.arena);
}
