/* SPDX-License-Identifier: Apache-2.0 */
/* Models of 16 bits: their f16 or bf16 becomes f32 that is stored in these types.
 *
 * Problem: a model may be written in 16 bits itself, or be converted, with Casts around what stays
 * f32 (normalisations, Softmax, inputs and outputs). All passes look for networks of f32, and
 * --precision stores those in 16 bits. Method: the same for both. Values of the type that most
 * products have become f32 and note the model's type (`declared`): precision.c stores them in these
 * 16 bits, keeps what the model has in f32, and decides about values that passes make as
 * --precision does. What is fused is computed in f32 and not rounded between its nodes. Casts
 * between both go where that changes no more than roundings:
 *
 *      x f16 --Cast--> f32 -->      reads x, which says as much
 *      --> f32 --Cast--> y f16      makes y, where nothing else reads the f32
 *
 * What narrows a value that something else reads as f32 stays a step, or one of which integers or
 * booleans are made, as does what widens a factor of a product in f32, whose other factor has 32
 * bits.
 * Left undone: models with branches and loops left, whose values are copied as bytes; programs that
 * train; two types of 16 bits in one model, of which the rarer stays what it is. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

struct halves {
    struct ul_pass *pass;
    struct ul_graph *graph;
    enum ul_dtype dtype;
    struct ul_rewrite rewrite;
    uint32_t *uses;       /* per value */
    bool *is_narrow;      /* per value: it has 16 bits, or was widened from such */
    uint32_t *user_begin; /* per value: of its readers in `users` */
    ul_node_id *users;
};

static enum ul_dtype dtype_of(const struct ul_graph *graph, ul_value_id value)
{
    return value == UL_NONE ? UL_DTYPE_NONE : graph->values[value].type.dtype;
}

static bool multiplies(const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    return (row->flags & UL_OP_MULTIPLIES) != 0 || row->factors != 0 || node->op == UL_OP_Einsum;
}

/* The 16 bits that most products are in, or UL_DTYPE_NONE. */
static enum ul_dtype find_dtype(const struct ul_graph *graph)
{
    uint32_t counts[UL_DTYPE_COUNT] = {0};
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (node->op != UL_OP_NONE && node->output_count > 0 && multiplies(node))
            counts[dtype_of(graph, node->outputs[0])]++;
    }
    if (counts[UL_F16] == 0 && counts[UL_BF16] == 0)
        return UL_DTYPE_NONE;
    return counts[UL_F16] >= counts[UL_BF16] ? UL_F16 : UL_BF16;
}

/* The node looks at the bits of what it casts, or has a graph. */
static bool has_other(const struct ul_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op == UL_OP_BitCast || graph->nodes[n].block_count > 0)
            return true;
    return false;
}

/* ---- Types ---- */

static const struct ul_tensor *widened(struct halves *halves, const struct ul_tensor *tensor,
                                       const float *numbers)
{
    struct ul_arena *arena = halves->graph->arena;
    struct ul_type type = tensor->type;
    uint64_t count = tensor->data == NULL ? 1 : ul_type_elements(&type);
    const unsigned char *from = tensor->data == NULL ? tensor->splat : tensor->data;
    float *to = UL_NEW_ARRAY(arena, float, count);
    for (uint64_t i = 0; i < count; i++)
        to[i] = numbers[from[2 * i] | from[2 * i + 1] << 8];
    type.dtype = UL_F32;
    return tensor->data == NULL ? ul_tensor_new_splat(arena, &type, to)
                                : ul_tensor_new(arena, &type, to);
}

/* The number of each pattern of 16 bits. */
static const float *list_numbers(const struct halves *halves)
{
    enum { COUNT = 1 << 16 };
    float *numbers = UL_NEW_ARRAY(halves->pass->scratch, float, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const unsigned char bytes[2] = {(unsigned char)i, (unsigned char)(i >> 8)};
        numbers[i] = (float)ul_element_get_float(bytes, halves->dtype);
    }
    return numbers;
}

static void retype_values(struct halves *halves)
{
    struct ul_graph *graph = halves->graph;
    const float *numbers = list_numbers(halves);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        struct ul_value *value = &graph->values[v];
        enum ul_dtype dtype = value->type.dtype;
        if (value->kind == UL_VALUE_DEAD || (dtype != UL_F32 && dtype != halves->dtype))
            continue;
        value->declared = dtype;
        value->type.dtype = UL_F32;
        if (dtype != UL_F32 && value->tensor != NULL)
            value->tensor = widened(halves, value->tensor, numbers);
    }
}

const char *const ul_type_attributes[] = {"to", "dtype", "output_dtype", "output_datatype", NULL};

/* Changes what attributes say of the types of results. */
static void retype_attributes(struct halves *halves)
{
    struct ul_graph *graph = halves->graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        struct ul_node *node = &graph->nodes[n];
        if (node->op == UL_OP_NONE || dtype_of(graph, node->outputs[0]) != UL_F32)
            continue;
        if (node->op == UL_OP_CastLike) {
            const ul_value_id input = node->inputs[0];
            ul_node_become(graph, n, UL_OP_Cast, &input, 1);
            ul_node_set_int(graph, n, "to", UL_F32);
        }
        for (const char *const *name = ul_type_attributes; *name != NULL; name++)
            if (ul_node_get_int(node, *name, 0) == (int64_t)halves->dtype)
                ul_node_set_int(graph, n, *name, UL_F32);
    }
}

/* ---- Casts ---- */

static bool is_half(const struct halves *halves, ul_value_id value)
{
    return value != UL_NONE && halves->graph->values[value].declared == halves->dtype;
}

static bool is_cast(const struct halves *halves, ul_node_id id, bool widens)
{
    const struct ul_node *node = &halves->graph->nodes[id];
    return node->op == UL_OP_Cast && dtype_of(halves->graph, node->inputs[0]) == UL_F32 &&
           dtype_of(halves->graph, node->outputs[0]) == UL_F32 &&
           is_half(halves, node->inputs[0]) == widens &&
           is_half(halves, node->outputs[0]) != widens;
}

static void find_users(struct halves *halves)
{
    const struct ul_graph *graph = halves->graph;
    struct ul_arena *scratch = halves->pass->scratch;
    uint32_t *at = UL_NEW_ARRAY(scratch, uint32_t, graph->value_count + 2);
    halves->uses = ul_graph_count_uses(graph, scratch);
    halves->user_begin = UL_NEW_ARRAY(scratch, uint32_t, graph->value_count + 2);
    for (uint32_t v = 0; v < graph->value_count; v++)
        halves->user_begin[v + 1] = at[v + 1] = halves->user_begin[v] + halves->uses[v];
    halves->users = UL_NEW_ARRAY(scratch, ul_node_id, halves->user_begin[graph->value_count] + 1);
    halves->is_narrow = UL_NEW_ARRAY(scratch, bool, graph->value_count + 1);
    memset(halves->users, 0xFF, (halves->user_begin[graph->value_count] + 1) * sizeof(ul_node_id));
    memcpy(at, halves->user_begin, (graph->value_count + 1) * sizeof *at);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (node->op == UL_OP_NONE)
            continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] != UL_NONE)
                halves->users[at[node->inputs[i]]++] = n;
        for (uint32_t i = 0; i < node->output_count; i++)
            if (node->outputs[i] != UL_NONE)
                halves->is_narrow[node->outputs[i]] = is_cast(halves, n, true);
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        halves->is_narrow[v] = halves->is_narrow[v] || is_half(halves, v);
}

/* A product reads it beside a factor that has 32 bits. */
static bool is_factor_of_wide(const struct halves *halves, ul_value_id value)
{
    const struct ul_graph *graph = halves->graph;
    for (uint32_t u = halves->user_begin[value]; u < halves->user_begin[value + 1]; u++) {
        const struct ul_node *node =
            halves->users[u] == UL_NONE ? NULL : &graph->nodes[halves->users[u]];
        if (node == NULL || node->op == UL_OP_NONE || !multiplies(node) || node->input_count < 2)
            continue;
        for (uint32_t i = 0; i < 2; i++)
            if (dtype_of(graph, node->inputs[i]) == UL_F32 && !halves->is_narrow[node->inputs[i]])
                return true;
    }
    return false;
}

/* The node that made `old` makes `value` from now on, which a Cast used to make from it. */
static void take_over(struct halves *halves, ul_value_id value, ul_value_id old)
{
    struct ul_graph *graph = halves->graph;
    ul_node_id cast = graph->values[value].producer;
    UL_ASSERT(graph->nodes[cast].op == UL_OP_Cast);
    ul_graph_exchange(graph, value, old);
    ul_graph_remove_node(graph, cast);
}

static bool is_made_for(const struct halves *halves, ul_value_id value)
{
    const struct ul_value *info = &halves->graph->values[value];
    return info->kind == UL_VALUE_NODE && !ul_graph_is_output(halves->graph, value) &&
           info->donor == UL_NONE;
}

static void widen(struct halves *halves, ul_node_id id)
{
    struct ul_graph *graph = halves->graph;
    ul_value_id from = graph->nodes[id].inputs[0], to = graph->nodes[id].outputs[0];
    UL_ASSERT(is_half(halves, from) && !is_half(halves, to));
    if (ul_graph_is_output(graph, to)) {
        if (is_made_for(halves, from) && halves->uses[from] == 1)
            take_over(halves, to, from);
        return;
    }
    if (is_factor_of_wide(halves, to))
        return;
    halves->uses[from] += halves->uses[to] - 1;
    ul_rewrite_replace(&halves->rewrite, to, from);
    ul_graph_remove_node(graph, id);
}

/* All that reads the value casts it to 16 bits. */
static bool is_narrowed_by_all(const struct halves *halves, ul_value_id value)
{
    uint32_t count = 0;
    for (uint32_t u = halves->user_begin[value]; u < halves->user_begin[value + 1]; u++)
        count += halves->users[u] != UL_NONE && is_cast(halves, halves->users[u], false);
    return count == halves->user_begin[value + 1] - halves->user_begin[value];
}

/* Whatever a value is a view of is stored as the value is. */
static void spread_back(struct halves *halves, ul_value_id value)
{
    struct ul_graph *graph = halves->graph;
    while (graph->values[value].kind == UL_VALUE_NODE) {
        const struct ul_node *node = &graph->nodes[graph->values[value].producer];
        if (ul_op_get(node->op)->view == NULL || node->output_count != 1)
            return;
        value = node->inputs[0];
        if (is_half(halves, value) || !is_made_for(halves, value) || halves->uses[value] != 1)
            return;
        graph->values[value].declared = halves->dtype;
    }
}

/* The value is not made into floats: which integer, or which element, depends on how it is
 * rounded. */
static bool is_decided_by(const struct halves *halves, ul_value_id value)
{
    const struct ul_graph *graph = halves->graph;
    for (uint32_t u = halves->user_begin[value]; u < halves->user_begin[value + 1]; u++) {
        if (halves->users[u] == UL_NONE)
            continue;
        const struct ul_node *user = &graph->nodes[halves->users[u]];
        for (uint32_t i = 0; user->op != UL_OP_NONE && i < user->output_count; i++)
            if (user->outputs[i] != UL_NONE &&
                !ul_dtype_get(dtype_of(graph, user->outputs[i]))->is_float)
                return true;
    }
    return false;
}

/* Rounds in a type of its own, so that no fusion leaves it out. */
static void round_before(struct halves *halves, ul_node_id cast)
{
    struct ul_graph *graph = halves->graph;
    struct ul_build build = ul_build_before(graph, cast);
    ul_value_id from = graph->nodes[cast].inputs[0];
    struct ul_type type = graph->values[from].type;
    type.dtype = halves->dtype;
    ul_value_id rounded = ul_build_value(&build, UL_OP_Cast, &from, 1, &type);
    ul_node_set_int(graph, graph->values[rounded].producer, "to", (int64_t)type.dtype);
    graph->nodes[cast].inputs[0] = rounded;
}

static void narrow(struct halves *halves, ul_node_id id)
{
    struct ul_graph *graph = halves->graph;
    ul_value_id from = graph->nodes[id].inputs[0], to = graph->nodes[id].outputs[0];
    const struct ul_value *wide = &graph->values[from];
    bool is_output = ul_graph_is_output(graph, to);
    UL_ASSERT(is_half(halves, to) && !is_half(halves, from));
    if (is_decided_by(halves, to)) {
        round_before(halves, id);
        return;
    }
    if (wide->kind == UL_VALUE_INPUT && wide->donor == UL_NONE && !is_output &&
        (wide->flags & UL_VALUE_PERSISTENT) == 0) {
        ul_rewrite_replace(&halves->rewrite, to, from);
        ul_graph_remove_node(graph, id);
        return;
    }
    if (!is_made_for(halves, from) || !is_narrowed_by_all(halves, from))
        return;
    for (uint32_t u = halves->user_begin[from]; u < halves->user_begin[from + 1]; u++) {
        ul_node_id other = halves->users[u];
        ul_value_id made = graph->nodes[other].outputs[0];
        if (other == id || ul_graph_is_output(graph, made))
            continue;
        halves->uses[to] += halves->uses[made];
        ul_rewrite_replace(&halves->rewrite, made, to);
        ul_graph_remove_node(graph, other);
    }
    ul_rewrite_replace(&halves->rewrite, from, to); /* from another value, which is an output */
    take_over(halves, to, from);
    spread_back(halves, to);
}

static void cast_less(struct halves *halves)
{
    struct ul_graph *graph = halves->graph;
    const struct ul_node_list order = ul_edit_all_nodes(graph, halves->pass->scratch);
    ul_rewrite_init(&halves->rewrite, graph, halves->pass->scratch);
    find_users(halves);
    for (uint32_t n = 0; n < order.count; n++) {
        ul_node_id id = order.nodes[n];
        if (graph->nodes[id].op == UL_OP_NONE)
            continue;
        ul_rewrite_inputs(&halves->rewrite, id);
        if (is_cast(halves, id, true))
            widen(halves, id);
        else if (is_cast(halves, id, false))
            narrow(halves, id);
    }
    ul_rewrite_apply(&halves->rewrite);
    ul_graph_sweep(graph);
}

enum ul_status ul_pass_halves(struct ul_pass *pass)
{
    struct halves halves = {.pass = pass, .graph = pass->graph};
    enum ul_dtype asked = pass->options->precision;
    halves.dtype = find_dtype(pass->graph);
    if (halves.dtype == UL_DTYPE_NONE || has_other(pass->graph) ||
        (asked != UL_DTYPE_NONE && asked != UL_F32 && asked != halves.dtype))
        return UL_OK;
    retype_values(&halves);
    retype_attributes(&halves);
    cast_less(&halves);
    return UL_OK;
}
