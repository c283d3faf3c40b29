/* SPDX-License-Identifier: Apache-2.0 */
/* Storage in 16 bits: which values lie in memory as f16 or bf16 (--precision).
 *
 * Problem: half of the bytes of a network in f32 say little of its results, but a few say much:
 * what decides something, what many numbers were reduced to. Kernels compute in f32 whatever the
 * storage is (ir/kernel.h), so only what is written to memory is rounded. Method: a value that is
 * f32 gets 16 bits unless it is kept:
 *
 * - inputs and outputs of the model, persistent values, what stands at the edge of a nested block
 *   (carried values are copied as bytes);
 * - inputs and outputs that the operator's row calls exact, and what is read by an operator that
 *   makes no floats of it (comparisons, casts to integers, quantisation, ArgMax, but for this where
 *   a program trains: the largest of logits is counted there, which the loss reads rounded too);
 * - what integers are made of is exact backwards through elementwise operators and movements; what
 *   was reduced is so forwards, as long as nothing else joins it (x in variance -> + eps -> Sqrt).
 *   Yet a reduced value that only products read, which take operands of one type, is rounded;
 * - values of one element, and weights that are vectors (biases, scales): they save nothing; but a
 *   bias is stored as the product that it is added to where the target's library wants it so, and
 *   one that something else reads as well (exporters keep equal constants once) a second time;
 * - results that are added to one another in memory (scatter with a reduction), and sums of many
 *   parts (UL_VALUE_WIDE);
 * - weights with finite numbers that would become infinite, and what is computed elementwise with
 *   such a weight (masks of -1e9, or of the lowest f32);
 * - for f16: results of operators that grow (Exp, Pow), and of those that make floats of integers
 *   beyond its range (the sums of integer products, before they are scaled).
 *
 * A base and all of its views are stored alike. A product of an operand that is kept and of one
 * that is not reads a copy in 16 bits, if the target has a library, whose products want one type;
 * so does a product of a program that trains of its bias, if the library takes it with no other.
 * Weights are converted where they are written (codegen): the graph keeps their f32 numbers.
 * Left undone: carried values of loops; mixed sums, such as a residual stream in f32. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

enum {
    KEPT = 1,    /* stays f32, for itself */
    NEEDED = 2,  /* so does what it is computed from, elementwise */
    REDUCED = 4, /* so does what is computed from it alone */
    LARGE = 8    /* so does what is computed elementwise with it */
};

enum { MAX_FACTORS = 10 }; /* of a node, the first of its inputs */

struct precision {
    struct ul_pass *pass;
    struct ul_graph *graph;
    enum ul_dtype storage;
    struct ul_node_list order;
    uint32_t capacity;    /* values, with those that are added */
    unsigned char *facts; /* per value */
    enum ul_kept *why;    /* per value: the first reason */
};

static void keep(struct precision *precision, ul_value_id value, unsigned char facts,
                 enum ul_kept why)
{
    precision->facts[value] |= facts | KEPT;
    if (precision->why[value] == UL_KEPT_NOT)
        precision->why[value] = why;
}

static void release(struct precision *precision, ul_value_id value)
{
    precision->facts[value] = 0;
    precision->why[value] = UL_KEPT_NOT;
}

static bool is_f32(const struct precision *precision, ul_value_id value)
{
    return value != UL_NONE && precision->graph->values[value].type.dtype == UL_F32;
}

static bool trains(const struct precision *precision)
{
    return precision->pass->options->training != NULL;
}

static bool has_bit(uint32_t mask, uint32_t place)
{
    return (mask >> (place < 31 ? place : 31) & 1u) != 0;
}

/* The result depends on elements of the inputs, not on many of them. */
static bool is_elementwise(const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    return (row->flags & (UL_OP_ELEMENTWISE | UL_OP_JOINS)) != 0 || row->view != NULL;
}

/* ---- Weights ---- */

/* A finite number whose 16 bits would say infinity. Half of the last place more than the largest is
 * rounded up to it. */
static bool is_too_large(const struct ul_tensor *tensor, enum ul_dtype storage)
{
    const uint32_t min = storage == UL_F16 ? 0x477FF000u : 0x7F7F8000u;
    uint64_t count = tensor->data == NULL ? 1 : ul_type_elements(&tensor->type);
    const unsigned char *at = tensor->data == NULL ? tensor->splat : tensor->data;
    bool found = false;
    for (uint64_t i = 0; i < count; i++, at += sizeof(uint32_t)) {
        uint32_t bits =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        bits &= 0x7FFFFFFFu;
        found |= bits >= min && bits < 0x7F800000u;
    }
    return found;
}

static void keep_weight(struct precision *precision, ul_value_id id)
{
    const struct ul_value *value = &precision->graph->values[id];
    bool is_vector = ul_edit_is_vector(&value->type);
    UL_ASSERT(value->tensor != NULL);
    if (is_too_large(value->tensor, precision->storage))
        keep(precision, id, LARGE, is_vector ? UL_KEPT_VECTOR : UL_KEPT_RANGE);
    if ((value->flags & UL_VALUE_PERSISTENT) != 0)
        keep(precision, id, KEPT, UL_KEPT_STATE);
    if (is_vector)
        keep(precision, id, KEPT, UL_KEPT_VECTOR);
}

/* ---- What is kept ---- */

static void keep_outputs(struct precision *precision, const struct ul_block *root)
{
    for (uint32_t i = 0; i < root->output_count; i++)
        if (precision->graph->values[root->outputs[i]].donor == UL_NONE)
            keep(precision, root->outputs[i], KEPT, UL_KEPT_EDGE);
}

static void keep_values(struct precision *precision)
{
    const struct ul_graph *graph = precision->graph;
    for (uint32_t r = 0; r < graph->root_count; r++)
        keep_outputs(precision, &graph->blocks[r]);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_DEAD || value->type.dtype != UL_F32)
            continue;
        bool is_state = (value->flags & UL_VALUE_PERSISTENT) != 0;
        if (value->kind == UL_VALUE_WEIGHT)
            keep_weight(precision, v);
        if (value->kind == UL_VALUE_INPUT || value->donor != UL_NONE)
            keep(precision, v, KEPT, value->donor == UL_NONE ? UL_KEPT_EDGE : UL_KEPT_STATE);
        if (value->kind == UL_VALUE_ARGUMENT)
            keep(precision, v, KEPT, UL_KEPT_BLOCK);
        if (is_state)
            keep(precision, v, KEPT, UL_KEPT_STATE);
        if (ul_type_elements(&value->type) <= 1)
            keep(precision, v, KEPT, UL_KEPT_ELEMENT);
        if ((value->flags & UL_VALUE_WIDE) != 0)
            keep(precision, v, KEPT, UL_KEPT_SUMS);
    }
    for (uint32_t b = graph->root_count; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            keep(precision, graph->blocks[b].outputs[i], KEPT, UL_KEPT_BLOCK);
    }
}

/* Integers, or else floats; a first output that is not there says nothing. */
static bool makes(const struct precision *precision, const struct ul_node *node, bool integers)
{
    if (node->output_count == 0 || node->outputs[0] == UL_NONE)
        return !integers;
    const struct ul_dtype_info *info =
        ul_dtype_get(precision->graph->values[node->outputs[0]].type.dtype);
    return integers ? info->is_integer : info->is_float;
}

/* Results easily leave the range of the storage, be it by the operator or by what it reads. */
static bool grows_beyond(const struct precision *precision, const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    if (precision->storage != UL_F16)
        return false;
    if ((row->flags & UL_OP_GROWS) != 0)
        return true;
    if ((row->flags & UL_OP_ELEMENTWISE) == 0 || node->input_count == 0 ||
        node->inputs[0] == UL_NONE)
        return false;
    enum ul_dtype from = precision->graph->values[node->inputs[0]].type.dtype;
    const struct ul_dtype_info *info = ul_dtype_get(from);
    return info->is_integer && (info->size_bytes > 2 || from == UL_U16);
}

/* What the row says, and what follows from what the node makes. */
static void keep_of_node(struct precision *precision, const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    bool control = (row->flags & UL_OP_CONTROL) != 0;
    bool decides = !makes(precision, node, false);
    bool indexes = makes(precision, node, true);
    bool ranks = trains(precision) && (row->flags & UL_OP_RANKS) != 0;
    bool grows = grows_beyond(precision, node);
    bool adds = (row->flags & UL_OP_COMBINES) != 0 &&
                strcmp(ul_node_get_string(node, "reduction", "none"), "none") != 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!is_f32(precision, node->inputs[i]))
            continue;
        bool is_gradient =
            (precision->graph->values[node->inputs[i]].flags & UL_VALUE_GRADIENT) != 0;
        if (control)
            keep(precision, node->inputs[i], KEPT, UL_KEPT_BLOCK);
        if (has_bit(row->exact_inputs, i))
            keep(precision, node->inputs[i], NEEDED,
                 is_gradient ? UL_KEPT_GRADIENT : UL_KEPT_EXACT);
        if ((decides || indexes) && !ranks)
            keep(precision, node->inputs[i], indexes ? NEEDED : KEPT, UL_KEPT_DECIDES);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (!is_f32(precision, node->outputs[i]))
            continue;
        if (has_bit(row->exact_outputs, i))
            keep(precision, node->outputs[i], REDUCED, UL_KEPT_EXACT);
        if (control || adds || grows)
            keep(precision, node->outputs[i], KEPT,
                 control ? UL_KEPT_BLOCK
                 : adds  ? UL_KEPT_SUMS
                         : UL_KEPT_RANGE);
    }
}

/* From outputs to inputs. */
static void spread_back(struct precision *precision, const struct ul_node *node)
{
    enum ul_kept why = UL_KEPT_NOT;
    if (!is_elementwise(node))
        return;
    for (uint32_t i = 0; i < node->output_count; i++)
        if (why == UL_KEPT_NOT && is_f32(precision, node->outputs[i]) &&
            (precision->facts[node->outputs[i]] & NEEDED) != 0)
            why = precision->why[node->outputs[i]];
    for (uint32_t i = 0; why != UL_KEPT_NOT && i < node->input_count; i++) {
        if (is_f32(precision, node->inputs[i]))
            keep(precision, node->inputs[i], NEEDED, why);
    }
}

/* From inputs to outputs: REDUCED if all inputs but weights are, LARGE if one is. */
static void spread(struct precision *precision, const struct ul_node *node)
{
    uint32_t floats = 0;
    uint32_t reduced = 0;
    unsigned char facts = 0;
    if (!is_elementwise(node))
        return;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (!is_f32(precision, input))
            continue;
        bool weight = precision->graph->values[input].kind == UL_VALUE_WEIGHT;
        floats += !weight;
        reduced += !weight && (precision->facts[input] & REDUCED) != 0;
        facts |= precision->facts[input] & LARGE;
    }
    if (floats > 0 && reduced == floats)
        facts |= REDUCED;
    for (uint32_t i = 0; facts != 0 && i < node->output_count; i++) {
        if (is_f32(precision, node->outputs[i]))
            keep(precision, node->outputs[i], facts,
                 (facts & LARGE) != 0 ? UL_KEPT_RANGE : UL_KEPT_EXACT);
    }
}

static bool multiplies(const struct precision *precision, const struct ul_node *node,
                       uint32_t input)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    return ((row->flags & UL_OP_MULTIPLIES) != 0 && input < 2) ||
           (trains(precision) && input < MAX_FACTORS && has_bit(row->factors, input));
}

/* What is kept for nothing but that it was reduced, and only read by products or views of it that
 * are, is rounded by them anyway. */
static void release_factors(struct precision *precision)
{
    const struct ul_graph *graph = precision->graph;
    bool *other = UL_NEW_ARRAY(precision->pass->scratch, bool, graph->value_count);
    for (uint32_t n = precision->order.count; n-- > 0;) {
        const struct ul_node *node = &graph->nodes[precision->order.nodes[n]];
        bool passes_on = ul_op_get(node->op)->view != NULL && node->output_count == 1 &&
                         node->outputs[0] != UL_NONE && !other[node->outputs[0]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE && !multiplies(precision, node, i) &&
                !(passes_on && i == 0))
                other[node->inputs[i]] = true;
        }
    }
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            other[graph->blocks[b].outputs[i]] = true;
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (precision->facts[v] == (KEPT | REDUCED) && !other[v] &&
            ul_type_elements(&graph->values[v].type) > 1)
            release(precision, v);
    }
}

/* The value that the node adds its input to a product for, or UL_NONE. */
static ul_value_id biased(const struct precision *precision, const struct ul_node *node,
                          uint32_t input)
{
    const struct ul_graph *graph = precision->graph;
    if ((ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0)
        return input == 2 ? node->outputs[0] : UL_NONE;
    if (node->op != UL_OP_Add || node->inputs[1 - input] == UL_NONE)
        return UL_NONE;
    const struct ul_value *other = &graph->values[node->inputs[1 - input]];
    bool product = other->kind == UL_VALUE_NODE &&
                   (ul_op_get(graph->nodes[other->producer].op)->flags & UL_OP_MULTIPLIES) != 0;
    return product ? node->outputs[0] : UL_NONE;
}

/* The node adds its input to a product that has 16 bits. */
static bool is_bias_alike(const struct precision *precision, const struct ul_node *node,
                          uint32_t input)
{
    ul_value_id result = biased(precision, node, input);
    return result != UL_NONE && (precision->facts[result] & KEPT) == 0;
}

/* A constant once more, for those that read it as a bias of 16 bits. */
static void add_bias(struct precision *precision, ul_value_id value)
{
    struct ul_graph *graph = precision->graph;
    const char *name = ul_arena_printf(graph->arena, "%s.bias", graph->values[value].name);
    ul_value_id bias = ul_graph_add_weight(graph, name, graph->values[value].tensor);
    UL_ASSERT(bias < precision->capacity);
    graph->values[bias].view = ul_view_own(graph, bias);
    for (uint32_t n = 0; n < precision->order.count; n++) {
        struct ul_node *node = &graph->nodes[precision->order.nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] == value && is_bias_alike(precision, node, i))
                node->inputs[i] = bias;
    }
}

/* Biases of products that have 16 bits themselves. */
static void release_biases(struct precision *precision)
{
    const struct ul_graph *graph = precision->graph;
    uint32_t count = graph->value_count;
    bool *other = UL_NEW_ARRAY(precision->pass->scratch, bool, graph->value_count);
    bool *bias = UL_NEW_ARRAY(precision->pass->scratch, bool, graph->value_count);
    for (uint32_t n = 0; n < precision->order.count; n++) {
        const struct ul_node *node = &graph->nodes[precision->order.nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                (is_bias_alike(precision, node, i) ? bias : other)[node->inputs[i]] = true;
        }
    }
    for (uint32_t v = 0; v < count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind != UL_VALUE_WEIGHT || !bias[v] || (precision->facts[v] & KEPT) == 0 ||
            (precision->facts[v] & LARGE) != 0 || (value->flags & UL_VALUE_PERSISTENT) != 0 ||
            ul_type_elements(&value->type) <= 1)
            continue;
        if (other[v])
            add_bias(precision, v);
        else if (precision->facts[v] == KEPT)
            release(precision, v);
    }
}

/* Gradients that products make and that are kept until all are known: the 16 bits are those that
 * products multiply. Sums over several readers or runs keep 32. */
static void release_gradients(struct precision *precision)
{
    struct ul_graph *graph = precision->graph;
    const struct ul_training *training = precision->pass->options->training;
    bool *made = UL_NEW_ARRAY(precision->pass->scratch, bool, graph->value_count);
    if (!ul_training_keeps(training) || training->micro_batches > 1)
        return;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        ul_value_id base = value->view.base;
        if ((value->flags & UL_VALUE_GRADIENT) != 0 && value->kind == UL_VALUE_NODE &&
            is_f32(precision, v) && base != UL_NONE && graph->values[base].kind == UL_VALUE_NODE)
            made[base] = (ul_op_get(graph->nodes[graph->values[base].producer].op)->flags &
                          UL_OP_MULTIPLIES) != 0 &&
                         !ul_edit_is_vector(&value->type);
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_DEAD || value->view.base == UL_NONE || !made[value->view.base])
            continue;
        release(precision, v);
        value->flags |= UL_VALUE_ROUNDED;
    }
}

/* Parameters that updates round to bf16 by chance, with all that looks at them: 16 bits, whoever
 * reads them. */
static void release_masters(struct precision *precision)
{
    const struct ul_graph *graph = precision->graph;
    bool *rounded = UL_NEW_ARRAY(precision->pass->scratch, bool, graph->value_count);
    for (uint32_t n = 0; n < precision->order.count; n++) {
        const struct ul_node *node = &graph->nodes[precision->order.nodes[n]];
        if (ul_node_get_int(node, "rounds", 0) == 0 ||
            (precision->facts[node->inputs[1]] & LARGE) != 0)
            continue;
        rounded[node->inputs[1]] = true;
        rounded[node->outputs[0]] = true;
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind != UL_VALUE_DEAD && graph->values[v].view.base != UL_NONE &&
            rounded[graph->values[v].view.base])
            release(precision, v);
}

static void assert_declared(const struct ul_graph *graph, const struct ul_block *root)
{
    for (uint32_t i = 0; i < root->output_count; i++) {
        const struct ul_value *output = &graph->values[root->outputs[i]];
        UL_ASSERT(output->type.dtype != UL_F32 || output->declared != UL_DTYPE_NONE);
    }
}

/* What a model of 16 bits says of its values goes before all else: it has these 16 bits; it has
 * f32, unless --precision asks for less. */
static void follow_model(struct precision *precision)
{
    const struct ul_graph *graph = precision->graph;
    enum ul_dtype asked = precision->pass->options->precision;
    bool is_declared = false;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        is_declared = is_declared || graph->values[v].declared == precision->storage;
        enum ul_dtype declared = graph->values[v].declared;
        if (declared == precision->storage)
            release(precision, v);
        else if (declared == UL_F32 && asked != precision->storage)
            keep(precision, v, KEPT, UL_KEPT_DECLARED);
    }
    /* What the caller gets is of the model's type, whatever passes put in its place. */
    for (uint32_t r = 0; is_declared && r < graph->root_count; r++)
        assert_declared(graph, &graph->blocks[r]);
}

static void find_kept(struct precision *precision)
{
    const struct ul_graph *graph = precision->graph;
    const struct ul_node_list *order = &precision->order;
    keep_values(precision);
    for (uint32_t n = 0; n < order->count; n++)
        keep_of_node(precision, &graph->nodes[order->nodes[n]]);
    for (uint32_t n = order->count; n-- > 0;)
        spread_back(precision, &graph->nodes[order->nodes[n]]);
    for (uint32_t n = 0; n < order->count; n++)
        spread(precision, &graph->nodes[order->nodes[n]]);
    release_factors(precision);
    if (precision->pass->traits->biases_alike)
        release_biases(precision);
    if (trains(precision)) {
        release_gradients(precision);
        release_masters(precision);
    }
    follow_model(precision);
}

/* ---- Storage ---- */

/* Bases with all of their views, which say why it is kept, or one of its views is; offsets were of
 * f32. */
static void set_storage(struct precision *precision)
{
    struct ul_graph *graph = precision->graph;
    enum ul_kept *kept = UL_NEW_ARRAY(precision->pass->scratch, enum ul_kept, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_DEAD || value->view.base == UL_NONE)
            continue;
        bool is_other = value->type.dtype != UL_F32;
        enum ul_kept why = is_other ? UL_KEPT_DECIDES : precision->why[v];
        UL_ASSERT(is_other || (why != UL_KEPT_NOT) == ((precision->facts[v] & KEPT) != 0));
        if (graph->values[value->view.base].declared == precision->storage)
            continue;
        if (kept[value->view.base] == UL_KEPT_NOT || (value->view.base == v && why != UL_KEPT_NOT))
            kept[value->view.base] = why;
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_DEAD || value->view.base == UL_NONE)
            continue;
        value->kept = is_f32(precision, v) ? kept[value->view.base] : UL_KEPT_NOT;
        if (kept[value->view.base] != UL_KEPT_NOT)
            continue;
        value->storage = precision->storage;
        value->view.offset_bytes = value->view.offset_bytes / (int64_t)sizeof(float) *
                                   (int64_t)ul_dtype_get(precision->storage)->size_bytes;
    }
}

/* ---- Copies for products ---- */

struct copies {
    uint32_t value_count; /* those that may be copied */
    ul_value_id *of;      /* per value: its copy for products to come, or UL_NONE */
    bool *escapes;        /* per value, also of the copies: all true */
};

static bool wants_copy(const struct precision *precision, const struct ul_node *node,
                       uint32_t input)
{
    const struct ul_graph *graph = precision->graph;
    ul_value_id value = node->inputs[input];
    if (!multiplies(precision, node, input) || !is_f32(precision, value) ||
        graph->values[value].storage != UL_DTYPE_NONE)
        return false;
    if (trains(precision))
        return true;
    ul_value_id other = node->inputs[1 - input];
    return is_f32(precision, other) && graph->values[other].storage != UL_DTYPE_NONE;
}

/* For the product at this place. A Cast to the same type is an elementwise copy, which a kernel of
 * ours computes as it packs the factor. */
static ul_value_id add_copy(struct precision *precision, ul_block_id block, uint32_t at,
                            ul_value_id value)
{
    struct ul_graph *graph = precision->graph;
    const struct ul_node *product = &graph->nodes[graph->blocks[block].nodes[at]];
    bool convolves = (ul_op_get(product->op)->flags & UL_OP_CONVOLVES) != 0;
    bool is_backward = ul_edit_is_backward(graph, product);
    struct ul_build build = ul_build_at(graph, block, at, graph->values[value].name);
    UL_ASSERT(is_f32(precision, value) && graph->values[value].storage == UL_DTYPE_NONE);
    ul_value_id made = trains(precision) ? ul_build_value(&build, UL_OP_Cast, &value, 1,
                                                          &graph->values[value].type)
                                         : ul_build_copy(&build, value);
    if (trains(precision))
        ul_node_set_int(graph, graph->values[made].producer, "to", UL_F32);
    graph->values[made].storage = precision->storage;
    graph->values[made].flags = graph->values[value].flags & UL_VALUE_CHANNELS_LAST;
    graph->values[made].flags |= is_backward ? UL_VALUE_BACKWARD : 0;
    graph->values[made].flags |= trains(precision) ? UL_VALUE_ROUNDED : 0;
    if (convolves && precision->pass->traits->channels_last)
        graph->values[made].flags |= UL_VALUE_CHANNELS_LAST;
    graph->values[made].view = ul_view_own(graph, made);
    return made;
}

/* Copies for the factors of the product at this place; where it is then. */
static uint32_t copy_for(struct precision *precision, struct copies *copies, ul_block_id block,
                         uint32_t at)
{
    const struct ul_passes_options *options = precision->pass->options;
    struct ul_graph *graph = precision->graph;
    ul_node_id id = graph->blocks[block].nodes[at];
    ul_value_id fresh[MAX_FACTORS];
    uint32_t most = graph->nodes[id].input_count;
    for (uint32_t i = 0; i < MAX_FACTORS; i++)
        fresh[i] = UL_NONE;
    for (uint32_t i = 0; i < MAX_FACTORS && i < most && most >= 2; i++) {
        ul_value_id value = graph->nodes[id].inputs[i];
        if (value == UL_NONE || value >= copies->value_count ||
            !wants_copy(precision, &graph->nodes[id], i))
            continue;
        if (copies->of[value] == UL_NONE) {
            copies->of[value] = add_copy(precision, block, at++, value);
            fresh[i] = value;
        }
        graph->nodes[id].inputs[i] = copies->of[value];
    }
    bool is_call = options->is_call != NULL &&
                   options->is_call(options->library, graph, &id, 1, copies->escapes, NULL);
    for (uint32_t i = 0; i < MAX_FACTORS && trains(precision) && !is_call; i++)
        if (fresh[i] != UL_NONE)
            copies->of[fresh[i]] = UL_NONE;
    return at;
}

/* The input of the node that is a kept vector, added to a product of 16 bits; or UL_NONE. `nodes`
 * are then that product and the node, or the node alone where it multiplies itself. */
static uint32_t find_bias(const struct precision *precision, ul_node_id id, ul_node_id nodes[2],
                          uint32_t *count)
{
    const struct ul_graph *graph = precision->graph;
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id bias = node->inputs[i];
        if (!is_f32(precision, bias) || graph->values[bias].storage != UL_DTYPE_NONE ||
            !ul_edit_is_vector(&graph->values[bias].type) ||
            ul_type_elements(&graph->values[bias].type) <= 1 ||
            (precision->facts[bias] & LARGE) != 0 || !is_bias_alike(precision, node, i))
            continue;
        *count = 0;
        if (node->op == UL_OP_Add)
            nodes[(*count)++] = graph->values[node->inputs[1 - i]].producer;
        nodes[(*count)++] = id;
        return graph->nodes[nodes[0]].parent == node->parent ? i : UL_NONE;
    }
    return UL_NONE;
}

/* Whether the library takes the nodes as one call. */
static bool is_call_of(const struct precision *precision, const struct copies *copies,
                       const ul_node_id *nodes, uint32_t count)
{
    const struct ul_passes_options *options = precision->pass->options;
    const struct ul_graph *graph = precision->graph;
    ul_value_id inner = count == 2 ? graph->nodes[nodes[0]].outputs[0] : UL_NONE;
    if (inner != UL_NONE)
        copies->escapes[inner] = false;
    bool takes = options->is_call(options->library, graph, nodes, count, copies->escapes, NULL);
    if (inner != UL_NONE)
        copies->escapes[inner] = true;
    return takes;
}

/* A program that trains keeps its biases in f32. Where the library takes a product with a bias of
 * 16 bits only, the bias is copied in front of the product, so that both are one call. Returns
 * where the node is then. */
static uint32_t copy_bias(struct precision *precision, struct copies *copies, ul_block_id block,
                          uint32_t at)
{
    struct ul_graph *graph = precision->graph;
    ul_node_id nodes[2], id = graph->blocks[block].nodes[at];
    uint32_t count, input = find_bias(precision, id, nodes, &count), product = at;
    if (input == UL_NONE)
        return at;
    ul_value_id bias = graph->nodes[id].inputs[input];
    if (bias >= copies->value_count || is_call_of(precision, copies, nodes, count))
        return at;
    graph->values[bias].storage = precision->storage;
    bool takes = is_call_of(precision, copies, nodes, count);
    graph->values[bias].storage = UL_DTYPE_NONE;
    if (!takes)
        return at;
    while (graph->blocks[block].nodes[product] != nodes[0])
        product--;
    if (copies->of[bias] == UL_NONE) {
        copies->of[bias] = add_copy(precision, block, product, bias);
        at++;
    }
    graph->nodes[id].inputs[input] = copies->of[bias];
    return at;
}

/* Before the first product of a block that reads it, a value is copied once for all; of a program
 * that trains once for those of the forward pass and anew for those of the backward pass, and for
 * each kernel of ours, which needs no bytes for it. */
static void copy_factors(struct precision *precision, ul_block_id id)
{
    struct ul_graph *graph = precision->graph;
    uint32_t count = graph->value_count;
    uint32_t most = count + (MAX_FACTORS + 1) * graph->blocks[id].node_count; /* and a bias */
    struct copies copies = {.value_count = count,
                            .of = UL_NEW_ARRAY(precision->pass->scratch, ul_value_id, count),
                            .escapes = UL_NEW_ARRAY(precision->pass->scratch, bool, most)};
    bool was_backward = false;
    memset(copies.of, 0xFF, count * sizeof *copies.of);
    memset(copies.escapes, true, most * sizeof *copies.escapes);
    for (uint32_t at = 0; at < graph->blocks[id].node_count; at++) {
        const struct ul_node *node = &graph->nodes[graph->blocks[id].nodes[at]];
        bool is_backward = ul_edit_is_backward(graph, node);
        if (is_backward && !was_backward)
            memset(copies.of, 0xFF, count * sizeof *copies.of);
        was_backward = is_backward;
        const struct ul_op_info *row = ul_op_get(node->op);
        if ((row->flags & UL_OP_MULTIPLIES) != 0 || row->factors != 0)
            at = copy_for(precision, &copies, id, at);
        if (trains(precision) && precision->pass->traits->biases_alike &&
            precision->pass->options->is_call != NULL)
            at = copy_bias(precision, &copies, id, at);
    }
}

/* Programs that train multiply numbers of 16 bits on every target, also what a product computes as
 * it packs it. */
static void round_factors(struct precision *precision)
{
    struct ul_graph *graph = precision->graph;
    for (uint32_t n = 0; n < precision->order.count; n++) {
        ul_node_id id = precision->order.nodes[n];
        const struct ul_node *node = &graph->nodes[id];
        bool is_float = node->input_count > 1 && is_f32(precision, node->inputs[0]);
        bool unpacks = is_float && multiplies(precision, node, 1) &&
                       !is_f32(precision, node->inputs[1]); /* codes of few bits */
        if (unpacks || (is_float && ul_op_get(node->op)->factors != 0))
            ul_node_set_int(graph, id, "round_to", (int64_t)precision->storage);
        for (uint32_t i = 0; i < MAX_FACTORS && i < node->input_count; i++) {
            struct ul_value *factor =
                node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]];
            if (factor != NULL && multiplies(precision, node, i) && factor->kind == UL_VALUE_NODE &&
                factor->storage != UL_DTYPE_NONE)
                factor->flags |= UL_VALUE_ROUNDED;
        }
    }
}

/* The 16 bits that are asked for, or else that the model has itself, or UL_F32. */
static enum ul_dtype find_storage(const struct ul_pass *pass)
{
    enum ul_dtype found = pass->options->precision;
    for (uint32_t v = 0; v < pass->graph->value_count; v++) {
        enum ul_dtype declared = pass->graph->values[v].declared;
        if ((found == UL_DTYPE_NONE || found == UL_F32) && declared != UL_DTYPE_NONE)
            found = declared;
    }
    return found;
}

enum ul_status ul_pass_precision(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct precision precision = {.pass = pass, .graph = graph, .storage = find_storage(pass)};
    if (precision.storage == UL_DTYPE_NONE || precision.storage == UL_F32)
        return UL_OK;
    UL_ASSERT(ul_dtype_is_half(precision.storage));
    precision.order = ul_edit_all_nodes(graph, pass->scratch);
    precision.capacity = 2 * graph->value_count; /* each at most once more */
    precision.facts = UL_NEW_ARRAY(pass->scratch, unsigned char, precision.capacity);
    precision.why = UL_NEW_ARRAY(pass->scratch, enum ul_kept, precision.capacity);
    find_kept(&precision);
    set_storage(&precision);
    bool copies = pass->options->is_call != NULL || trains(&precision);
    for (uint32_t b = 0; copies && b < graph->block_count; b++)
        copy_factors(&precision, b);
    if (trains(&precision))
        round_factors(&precision);
    return UL_OK;
}
