/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to add nodes, on top of ul_graph_insert_node. */
#include "ir/build.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"

#include <string.h>

static uint32_t position_of(const struct ul_graph *graph, ul_node_id node)
{
    const struct ul_block *block = &graph->blocks[graph->nodes[node].parent];
    uint32_t at = 0;
    while (at < block->node_count && block->nodes[at] != node)
        at++;
    UL_ASSERT(at < block->node_count);
    return at;
}

struct ul_build ul_build_at(struct ul_graph *graph, ul_block_id block, uint32_t at,
                            const char *name)
{
    return (struct ul_build){.graph = graph, .block = block, .at = at, .name = name};
}

struct ul_build ul_build_before(struct ul_graph *graph, ul_node_id node)
{
    return ul_build_at(graph, graph->nodes[node].parent, position_of(graph, node),
                       graph->nodes[node].name);
}

struct ul_build ul_build_after(struct ul_graph *graph, ul_node_id node)
{
    struct ul_build build = ul_build_before(graph, node);
    build.at++;
    return build;
}

struct ul_build ul_build_last(struct ul_graph *graph, ul_block_id block, const char *name)
{
    UL_ASSERT(block < graph->block_count);
    return ul_build_at(graph, block, graph->blocks[block].node_count, name);
}

ul_node_id ul_build_node(struct ul_build *build, ul_op_id op, const ul_value_id *inputs,
                         uint32_t input_count, uint32_t output_count)
{
    struct ul_graph *graph = build->graph;
    bool is_last = build->at == UL_BUILD_LAST;
    const char *name = build->name;
    UL_ASSERT(op != UL_OP_NONE && output_count > 0);
    if (build->names_op)
        name = ul_arena_printf(build->scratch, "%s/%s", name, ul_op_get(op)->name);
    uint32_t at = is_last ? graph->blocks[build->block].node_count : build->at++;
    ul_node_id id =
        ul_graph_insert_node(graph, build->block, at, op, name, input_count, output_count);
    graph->nodes[id].source = build->source;
    for (uint32_t i = 0; i < input_count; i++)
        graph->nodes[id].inputs[i] = inputs[i];
    for (uint32_t i = 0; i < output_count; i++)
        graph->values[graph->nodes[id].outputs[i]].flags |= build->flags;
    return id;
}

/* What is built is right by construction: a failure is a defect, with its text. */
ul_value_id ul_build_infer(struct ul_build *build, ul_node_id node)
{
    struct ul_diag diag = {0};
    if (build->infers && ul_node_infer(build->graph, node, build->scratch, &diag) != UL_OK)
        fprintf(stderr, "%s\n", diag.text);
    UL_ASSERT(diag.status == UL_OK);
    return build->graph->nodes[node].outputs[0];
}

ul_node_id ul_build_like(struct ul_build *build, ul_node_id like, const ul_value_id *inputs)
{
    struct ul_graph *graph = build->graph;
    const struct ul_node old = graph->nodes[like]; /* the array may move */
    struct ul_build here = *build;
    here.name = old.name;
    ul_node_id id = ul_build_node(&here, old.op, inputs, old.input_count, old.output_count);
    build->at = here.at;
    graph->nodes[id].source = old.source;
    graph->nodes[id].attrs = old.attrs;
    graph->nodes[id].attr_count = old.attr_count;
    return id;
}

ul_value_id ul_build_value(struct ul_build *build, ul_op_id op, const ul_value_id *inputs,
                           uint32_t input_count, const struct ul_type *type)
{
    struct ul_type copy = {.rank = UL_RANK_UNKNOWN}; /* `type` may be a value's, which move */
    if (type != NULL)
        copy = *type;
    ul_node_id node = ul_build_node(build, op, inputs, input_count, 1); /* moves the arrays */
    if (type == NULL)
        return ul_build_infer(build, node);
    ul_value_id made = build->graph->nodes[node].outputs[0];
    build->graph->values[made].type = copy;
    return made;
}

ul_value_id ul_build_unary(struct ul_build *build, ul_op_id op, ul_value_id a)
{
    return ul_build_value(build, op, &a, 1, NULL);
}

ul_value_id ul_build_binary(struct ul_build *build, ul_op_id op, ul_value_id a, ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    return ul_build_value(build, op, inputs, 2, NULL);
}

ul_value_id ul_build_add(struct ul_build *build, ul_value_id a, ul_value_id b)
{
    return ul_build_binary(build, UL_OP_Add, a, b);
}

ul_value_id ul_build_mul(struct ul_build *build, ul_value_id a, ul_value_id b)
{
    return ul_build_binary(build, UL_OP_Mul, a, b);
}

ul_value_id ul_build_scale(struct ul_build *build, ul_value_id a, double number)
{
    return ul_build_mul(build, a, ul_build_number_like(build, a, number));
}

static ul_value_id build_with_int(struct ul_build *build, ul_op_id op, const ul_value_id *inputs,
                                  uint32_t input_count, const char *attr, int64_t value)
{
    ul_node_id node = ul_build_node(build, op, inputs, input_count, 1);
    ul_node_set_int(build->graph, node, attr, value);
    return ul_build_infer(build, node);
}

ul_value_id ul_build_cast(struct ul_build *build, ul_value_id a, enum ul_dtype dtype)
{
    return build_with_int(build, UL_OP_Cast, &a, 1, "to", dtype);
}

ul_value_id ul_build_choose(struct ul_build *build, ul_value_id condition, ul_value_id yes,
                            ul_value_id no)
{
    const ul_value_id inputs[3] = {condition, yes, no};
    return ul_build_value(build, UL_OP_Where, inputs, 3, NULL);
}

ul_value_id ul_build_sum(struct ul_build *build, ul_value_id a, uint32_t mask)
{
    int64_t axes[UL_LIMIT_RANK];
    uint32_t count = 0;
    for (uint32_t d = 0; d < build->graph->values[a].type.rank; d++)
        if ((mask & 1u << d) != 0)
            axes[count++] = d;
    if (count == 0)
        return a;
    return ul_build_binary(build, UL_OP_ReduceSum, a,
                           ul_build_ints(build->graph, "axes", count, axes));
}

ul_value_id ul_build_expand(struct ul_build *build, ul_value_id a, const struct ul_type *type)
{
    if (ul_type_same_dims(&build->graph->values[a].type, type))
        return a;
    return ul_build_binary(build, UL_OP_Expand, a,
                           ul_build_ints(build->graph, "shape", type->rank, type->dims));
}

ul_value_id ul_build_reshape(struct ul_build *build, ul_value_id value, uint32_t rank,
                             const int64_t *dims)
{
    const struct ul_type type = ul_type_make(build->graph->values[value].type.dtype, rank, dims);
    UL_ASSERT(ul_type_elements(&build->graph->values[value].type) == ul_type_elements(&type));
    const ul_value_id inputs[2] = {value, ul_build_ints(build->graph, "shape", rank, type.dims)};
    return ul_build_value(build, UL_OP_Reshape, inputs, 2, &type);
}

ul_value_id ul_build_reshape_to(struct ul_build *build, ul_value_id value,
                                const struct ul_type *type)
{
    if (ul_type_same_dims(&build->graph->values[value].type, type))
        return value;
    return ul_build_reshape(build, value, type->rank, type->dims);
}

ul_value_id ul_build_transpose(struct ul_build *build, ul_value_id value, const int64_t *perm)
{
    const struct ul_type from = build->graph->values[value].type;
    struct ul_type type = from;
    UL_ASSERT(from.rank <= UL_LIMIT_RANK);
    for (uint32_t d = 0; d < from.rank; d++)
        type.dims[d] = from.dims[perm[d]];
    ul_value_id made = ul_build_value(build, UL_OP_Transpose, &value, 1, &type);
    ul_node_set_ints(build->graph, build->graph->values[made].producer, "perm", perm, from.rank);
    return made;
}

ul_value_id ul_build_swap(struct ul_build *build, ul_value_id value)
{
    uint32_t rank = build->graph->values[value].type.rank;
    int64_t perm[UL_LIMIT_RANK];
    UL_ASSERT(rank >= 2);
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = d;
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    return ul_build_transpose(build, value, perm);
}

ul_value_id ul_build_slice(struct ul_build *build, ul_value_id value, uint32_t axis, int64_t begin,
                           int64_t end)
{
    struct ul_graph *graph = build->graph;
    struct ul_type type = graph->values[value].type;
    UL_ASSERT(axis < type.rank && 0 <= begin && begin <= end && end <= type.dims[axis]);
    type.dims[axis] = end - begin;
    const int64_t at = axis;
    const ul_value_id inputs[4] = {value, ul_build_ints(graph, "", 1, &begin),
                                   ul_build_ints(graph, "", 1, &end),
                                   ul_build_ints(graph, "", 1, &at)};
    return ul_build_value(build, UL_OP_Slice, inputs, 4, &type);
}

ul_value_id ul_build_pad(struct ul_build *build, ul_value_id value, const int64_t *begin,
                         const int64_t *end)
{
    uint32_t rank = build->graph->values[value].type.rank;
    int64_t pads[2 * UL_LIMIT_RANK];
    bool any = false;
    for (uint32_t d = 0; d < rank; d++) {
        pads[d] = begin[d];
        pads[rank + d] = end[d];
        any = any || begin[d] != 0 || end[d] != 0;
    }
    if (!any)
        return value;
    return ul_build_binary(build, UL_OP_Pad, value,
                           ul_build_ints(build->graph, "", 2 * rank, pads));
}

ul_value_id ul_build_concat(struct ul_build *build, const ul_value_id *values, uint32_t count,
                            int64_t axis, const struct ul_type *type)
{
    if (count == 1)
        return values[0];
    if (type == NULL)
        return build_with_int(build, UL_OP_Concat, values, count, "axis", axis);
    ul_value_id made = ul_build_value(build, UL_OP_Concat, values, count, type);
    ul_node_set_int(build->graph, build->graph->values[made].producer, "axis", axis);
    return made;
}

ul_value_id ul_build_copy(struct ul_build *build, ul_value_id value)
{
    struct ul_graph *graph = build->graph;
    const struct ul_type type = graph->values[value].type; /* the array moves */
    ul_value_id copy = ul_build_value(build, UL_OP_Identity, &value, 1, &type);
    graph->values[copy].declared = graph->values[value].declared;
    return copy;
}

ul_value_id ul_build_ints(struct ul_graph *graph, const char *name, uint32_t count,
                          const int64_t *values)
{
    const int64_t dims[1] = {count};
    return ul_graph_add_weight(graph, name,
                               ul_tensor_new_ints(graph->arena, UL_I64, 1, dims, values));
}

ul_value_id ul_build_number(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                            uint32_t rank, double number)
{
    unsigned char element[sizeof((struct ul_tensor *)0)->splat] = {0};
    struct ul_type type = {.dtype = dtype, .rank = rank};
    for (uint32_t d = 0; d < rank; d++)
        type.dims[d] = 1;
    ul_element_put_float(element, dtype, number);
    return ul_graph_add_weight(graph, name, ul_tensor_new_splat(graph->arena, &type, element));
}

ul_value_id ul_build_number_like(struct ul_build *build, ul_value_id like, double number)
{
    return ul_build_number(build->graph, "", build->graph->values[like].type.dtype, 0, number);
}

ul_value_id ul_build_zeros(struct ul_build *build, const struct ul_type *type)
{
    static const unsigned char zero[sizeof((struct ul_tensor *)0)->splat] = {0};
    return ul_graph_add_weight(build->graph, "zeros",
                               ul_tensor_new_splat(build->graph->arena, type, zero));
}

ul_value_id ul_build_numbers(struct ul_build *build, const struct ul_type *type,
                             const double *numbers)
{
    return ul_graph_add_weight(build->graph, "",
                               ul_tensor_new_floats(build->graph->arena, type, numbers));
}
