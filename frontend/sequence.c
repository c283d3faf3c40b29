/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of tensors inside a graph: exporters write them for split, unbind and stack. Lengths
 * and positions are nearly always known when the model is compiled; then a sequence is a list of
 * values, and its operators vanish here, as do optionals. A sequence that is an input or output of
 * the model is a list of inputs or outputs (inputs.c, build.c). sequence_graphs.c has the operators
 * with graphs of their own. */
#include "frontend/old_emit.h"
#include "frontend/rows.h"

#include <string.h>

struct list {
    uint32_t count;
    ul_value_id *items;
};

const char *ul_sequence_item_name(struct ul_arena *arena, const char *name, uint32_t index)
{
    return ul_arena_printf(arena, "%s[%u]", name, (unsigned)index);
}

bool ul_sequence_is(ul_value_id value)
{
    return value >= UL_SEQUENCE_FIRST && value < UL_ABSENT;
}

const struct ul_sequence *ul_sequence_get(const struct ul_model_builder *builder, ul_value_id value)
{
    UL_ASSERT(ul_sequence_is(value) && value - UL_SEQUENCE_FIRST < builder->sequence_count);
    return &builder->sequences[value - UL_SEQUENCE_FIRST];
}

/* Whether the value stands for a sequence that is not known yet, or for something that is not
 * supported. */
static bool is_unresolved(const struct ul_old_node *node, ul_value_id value)
{
    const struct ul_graph *graph = node->builder->graph;
    return value < graph->value_count && graph->values[value].kind == UL_VALUE_NODE &&
           graph->values[value].producer == UL_NONE;
}

static const struct ul_sequence *input_sequence(struct ul_old_node *node)
{
    ul_value_id value = ul_old_input(node, 0);
    if (ul_sequence_is(value))
        return ul_sequence_get(node->builder, value);
    if (is_unresolved(node, value))
        ul_old_not_known(node, value, "takes a sequence whose tensors are not known");
    else
        ul_old_problem(node, "takes something that is no sequence made inside the graph");
    return NULL;
}

static bool has_tensor(struct ul_old_node *node, uint32_t input)
{
    ul_value_id value = ul_old_input(node, input);
    if (value != UL_NONE && !ul_sequence_is(value))
        return true;
    return ul_old_problem(node, "lacks a tensor that it needs");
}

static struct list list_new(struct ul_old_node *node, uint64_t count)
{
    return (struct list){0, UL_NEW_ARRAY(node->builder->scratch, ul_value_id, count)};
}

ul_value_id ul_builder_add_sequence(struct ul_model_builder *builder, const ul_value_id *items,
                                    uint32_t count)
{
    UL_GROW(builder->scratch, builder->sequences, builder->sequence_count,
            builder->sequence_capacity);
    builder->sequences[builder->sequence_count] = (struct ul_sequence){count, items};
    return UL_SEQUENCE_FIRST + builder->sequence_count++;
}

static void finish_sequence(struct ul_old_node *node, const struct list *list)
{
    ul_value_id made = ul_builder_add_sequence(node->builder, list->items, list->count);
    if (node->output_count > 0)
        node->results[0] = made;
    node->finished = true;
}

static void finish_value(struct ul_old_node *node, ul_value_id value)
{
    if (node->finished) /* with a problem */
        return;
    if (node->output_count > 0)
        node->results[0] = value;
    node->finished = true;
}

/* Reads the position at `input`, in [0, limit), counted from the end when negative. */
static bool read_position(struct ul_old_node *node, uint32_t input, int64_t otherwise,
                          int64_t limit, int64_t length, uint32_t *out)
{
    ul_value_id value = ul_old_input(node, input);
    int64_t position = otherwise;
    if (value != UL_NONE && !ul_sequence_is(value)) {
        const struct ul_tensor *tensor = ul_old_tensor(node, value);
        if (tensor == NULL || ul_type_elements(&tensor->type) != 1 ||
            !ul_dtype_get(tensor->type.dtype)->is_integer) {
            ul_old_not_known(node, value,
                             "needs a position that is known at compile time; where it is an "
                             "input of the model, fix it with --const");
            return false;
        }
        position = ul_tensor_get_int(tensor, 0);
    }
    if (position < 0)
        position += length;
    if (position < 0 || position >= limit)
        return ul_old_problem(node, "has a position outside of its sequence");
    *out = (uint32_t)position;
    return true;
}

static void sequence_construct(struct ul_old_node *node)
{
    struct list list = list_new(node, node->input_count);
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (!has_tensor(node, i))
            return;
        list.items[list.count++] = node->inputs[i];
    }
    finish_sequence(node, &list);
}

static void sequence_insert(struct ul_old_node *node)
{
    const struct ul_sequence *old = input_sequence(node);
    uint32_t position = 0;
    if (old == NULL || !has_tensor(node, 1) ||
        !read_position(node, 2, old->count, (int64_t)old->count + 1, old->count, &position))
        return;
    if (old->count == UL_LIMIT_SEQUENCE) {
        ul_old_problem(node, ul_arena_printf(node->builder->scratch,
                                             "makes a sequence of more than %u tensors",
                                             UL_LIMIT_SEQUENCE));
        return;
    }
    struct list list = list_new(node, (uint64_t)old->count + 1);
    for (uint32_t i = 0; i <= old->count; i++) {
        if (i == position)
            list.items[list.count++] = node->inputs[1];
        if (i < old->count)
            list.items[list.count++] = old->items[i];
    }
    finish_sequence(node, &list);
}

static void sequence_erase(struct ul_old_node *node)
{
    const struct ul_sequence *old = input_sequence(node);
    uint32_t position = 0;
    if (old == NULL || !read_position(node, 1, -1, old->count, old->count, &position))
        return;
    struct list list = list_new(node, old->count);
    for (uint32_t i = 0; i < old->count; i++) {
        if (i != position)
            list.items[list.count++] = old->items[i];
    }
    finish_sequence(node, &list);
}

static void sequence_at(struct ul_old_node *node)
{
    const struct ul_sequence *sequence = input_sequence(node);
    uint32_t position = 0;
    if (sequence == NULL || !has_tensor(node, 1) ||
        !read_position(node, 1, 0, sequence->count, sequence->count, &position))
        return;
    finish_value(node, sequence->items[position]);
}

static void sequence_length(struct ul_old_node *node)
{
    const struct ul_sequence *sequence = input_sequence(node);
    if (sequence != NULL)
        finish_value(node, ul_old_const(node, UL_I64, ul_row_int(sequence->count)));
}

static void concat_from_sequence(struct ul_old_node *node)
{
    const struct ul_sequence *sequence = input_sequence(node);
    if (sequence == NULL)
        return;
    int64_t axis = ul_old_int(node, "axis", 0), is_new = ul_old_int(node, "new_axis", 0);
    struct list list = list_new(node, sequence->count);
    for (uint32_t i = 0; i < sequence->count; i++)
        list.items[list.count++] =
            ul_old_make(node,
                        UL_WITH({"x", ul_row_value(sequence->items[i])}, {"axis", ul_row_int(axis)},
                                {"is_new", ul_row_int(is_new)}),
                        "is_new ? Unsqueeze(x, [axis]) : x");
    ul_value_id joined = ul_old_concat(node, list.items, list.count, axis);
    if (!node->finished)
        ul_old_set_result(node, 0, joined);
    node->finished = true;
}

/* Reads the sizes of the parts along an axis of `extent`: one for each part, or one for all. */
static bool read_sizes(struct ul_old_node *node, int64_t extent, int64_t **sizes, uint32_t *count)
{
    const struct ul_tensor *given = NULL;
    ul_value_id value = ul_old_input(node, 1);
    bool wrong = ul_sequence_is(value);
    if (value != UL_NONE && !wrong) {
        given = ul_old_tensor(node, value);
        wrong = given == NULL || given->type.rank > 1 ||
                !ul_dtype_get(given->type.dtype)->is_integer ||
                ul_type_elements(&given->type) > UL_LIMIT_SEQUENCE;
    }
    bool single = given == NULL || (!wrong && given->type.rank == 0);
    int64_t chunk = wrong || given == NULL || !single ? 1 : ul_tensor_get_int(given, 0);
    uint64_t parts = 0;
    if (!wrong && chunk > 0)
        parts = single ? (uint64_t)((extent + chunk - 1) / chunk) : ul_type_elements(&given->type);
    wrong = wrong || chunk <= 0 || parts > UL_LIMIT_SEQUENCE;
    *sizes = UL_NEW_ARRAY(node->builder->scratch, int64_t, wrong ? 0 : parts);
    *count = 0;
    int64_t left = extent;
    for (uint64_t i = 0; !wrong && i < parts; i++) {
        int64_t size = single ? (left < chunk ? left : chunk) : ul_tensor_get_int(given, i);
        wrong = size < 0 || size > left;
        left -= wrong ? 0 : size;
        (*sizes)[(*count)++] = size;
    }
    if (wrong || left != 0)
        ul_old_not_known(node, value, "needs sizes that are known at compile time and add up");
    return !wrong && left == 0;
}

static void split_to_sequence(struct ul_old_node *node)
{
    if (!has_tensor(node, 0))
        return;
    struct ul_type type = ul_old_type(node, node->inputs[0]);
    int64_t axis = ul_old_int(node, "axis", 0);
    bool squeeze = ul_old_input(node, 1) == UL_NONE && ul_old_int(node, "keepdims", 1) == 0;
    if (axis < 0 && ul_type_known(&type))
        axis += type.rank;
    if (!ul_type_known(&type) && node->builder->has_open_inputs) {
        ul_old_unsized(node, "needs a tensor whose shape is known here");
        return;
    }
    if (!ul_type_known(&type) || axis < 0 || axis >= type.rank) {
        ul_old_problem(node, "needs a tensor whose shape is known here and has its axis");
        return;
    }
    int64_t *sizes = NULL;
    uint32_t count = 0;
    if (!read_sizes(node, type.dims[axis], &sizes, &count))
        return;
    struct list list = list_new(node, count);
    int64_t begin = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t end = begin + sizes[i];
        list.items[list.count++] = ul_old_make(
            node,
            UL_WITH({"x", ul_row_value(node->inputs[0])}, {"begin", ul_row_int(begin)},
                    {"end", ul_row_int(end)}, {"axis", ul_row_int(axis)},
                    {"squeeze", ul_row_int(squeeze)}),
            "part = Slice(x, [begin], [end], [axis]); squeeze ? Squeeze(part, [axis]) : part");
        begin = end;
    }
    finish_sequence(node, &list);
}

/* An optional is what it holds; an empty one is an input that is not given. */
static void optional_make(struct ul_old_node *node)
{
    ul_value_id value = ul_old_input(node, 0);
    finish_value(node, value == UL_NONE ? UL_ABSENT : value);
}

static void optional_has(struct ul_old_node *node)
{
    finish_value(node, ul_old_const(node, UL_BOOL, ul_row_int(ul_old_input(node, 0) != UL_NONE)));
}

static void optional_get(struct ul_old_node *node)
{
    if (ul_old_input(node, 0) == UL_NONE)
        ul_old_problem(node, "gets the element of an optional that is empty");
    else
        finish_value(node, node->inputs[0]);
}

static void sequence_identity(struct ul_old_node *node)
{
    ul_value_id value = ul_old_input(node, 0);
    if (ul_sequence_is(value) || is_unresolved(node, value))
        finish_value(node, value);
}

static const struct {
    const char *op;
    ul_upgrade_fn *resolve;
} table[] = {
    {"ConcatFromSequence", concat_from_sequence},
    {"Identity", sequence_identity},
    {"Optional", optional_make},
    {"OptionalGetElement", optional_get},
    {"OptionalHasElement", optional_has},
    {"SequenceAt", sequence_at},
    {"SequenceConstruct", sequence_construct},
    {"SequenceEmpty", sequence_construct},
    {"SequenceErase", sequence_erase},
    {"SequenceInsert", sequence_insert},
    {"SequenceLength", sequence_length},
    {"SplitToSequence", split_to_sequence},
};

enum ul_status ul_sequence_node(struct ul_old_node *node)
{
    bool known = node->domain[0] == '\0';
    if (known)
        UL_TRY(ul_sequence_graphs(node));
    for (size_t i = 0; known && i < sizeof table / sizeof *table && !node->finished; i++) {
        if (strcmp(node->op, table[i].op) == 0)
            table[i].resolve(node);
    }
    for (uint32_t i = 0; i < node->input_count && !node->finished; i++) {
        if (ul_sequence_is(node->inputs[i]) && strcmp(node->domain, "com.microsoft") != 0)
            ul_old_problem(node, "takes a sequence; only operators on sequences do");
    }
    return UL_OK;
}
