/* SPDX-License-Identifier: Apache-2.0 */
/* Writes low-rank factors back into a model: left [d0, rank (1 ...)] and right [rank, d1 ...], in
 * the dimensions of the weight, which becomes
 *
 *      weight + scale * left right
 *
 * Merged, the sum is written into the initializer. Apart, the initializer is called NAME/base, the
 * factors and the scale are initializers too, and nodes before all others make NAME from them:
 *
 *      NAME/lora_AB = MatMul(left, right)          for filters: both as matrices
 *      NAME = Add(NAME/base, Mul(NAME/lora_AB, NAME/lora_scale)) */
#include "frontend/export_internal.h"

#include <string.h>

bool ul_export_lora_fits(const struct ul_export_tensor *adapter, const struct ul_type *weight)
{
    const struct ul_type *left = &adapter->left->type, *right = &adapter->right->type;
    struct ul_type want_left = *weight, want_right = *weight;
    bool is_float = weight->dtype == UL_F32 || weight->dtype == UL_F64;
    if (!is_float || weight->rank < 2 || left->rank != weight->rank)
        return false;
    for (uint32_t d = 1; d < weight->rank; d++)
        want_left.dims[d] = d == 1 ? left->dims[1] : 1;
    want_right.dims[0] = left->dims[1];
    return ul_type_equal(left, &want_left) && ul_type_equal(right, &want_right);
}

const unsigned char *ul_export_lora_merge(struct ul_arena *arena,
                                          const struct ul_export_tensor *adapter,
                                          const struct ul_tensor *weight)
{
    const struct ul_type *type = &weight->type;
    uint64_t size = ul_dtype_get(type->dtype)->size_bytes;
    uint64_t rows = (uint64_t)type->dims[0], rank = (uint64_t)adapter->left->type.dims[1];
    uint64_t columns = rows > 0 ? ul_type_elements(type) / rows : 0;
    unsigned char *bytes = ul_arena_alloc(arena, ul_type_bytes(type) + 1);
    double *sums = UL_NEW_ARRAY(arena, double, columns);
    UL_ASSERT(ul_export_lora_fits(adapter, type));
    for (uint64_t i = 0; i < rows; i++) {
        memset(sums, 0, columns * sizeof *sums);
        for (uint64_t r = 0; r < rank; r++) {
            double left = adapter->scale * ul_tensor_get_float(adapter->left, i * rank + r);
            for (uint64_t j = 0; j < columns; j++)
                sums[j] += left * ul_tensor_get_float(adapter->right, r * columns + j);
        }
        for (uint64_t j = 0; j < columns; j++)
            ul_element_put_float(bytes + (i * columns + j) * size, type->dtype,
                                 ul_tensor_get_float(weight, i * columns + j) + sums[j]);
    }
    return bytes;
}

/* ---- apart ---- */

/* Writes field 1 of a GraphProto, a node; it has one operand where `second` is NULL. */
static void put_node(struct ul_text *graph, const char *op, const char *first, const char *second,
                     const char *output)
{
    enum { INPUT = 1, OUTPUT = 2, NAME = 3, OP = 4, NODE = 1 };
    struct ul_text node;
    ul_text_init(&node, graph->arena);
    ul_wire_put_string(&node, INPUT, first);
    if (second != NULL)
        ul_wire_put_string(&node, INPUT, second);
    ul_wire_put_string(&node, OUTPUT, output);
    ul_wire_put_string(&node, NAME, output);
    ul_wire_put_string(&node, OP, op);
    ul_wire_put_bytes(graph, NODE, node.data, node.length);
}

/* Writes field 5 of a GraphProto, an initializer. */
static void put_tensor(struct ul_text *graph, const char *name, const struct ul_tensor *tensor)
{
    enum { DIMS = 1, DATA_TYPE = 2, NAME = 8, RAW = 9, INITIALIZER = 5 };
    uint64_t size_bytes = ul_type_bytes(&tensor->type);
    unsigned char *bytes = ul_arena_alloc(graph->arena, size_bytes + 1);
    struct ul_text proto;
    ul_text_init(&proto, graph->arena);
    for (uint32_t d = 0; d < tensor->type.rank; d++) {
        ul_wire_put_key(&proto, DIMS, UL_WIRE_VARINT);
        ul_wire_put_varint(&proto, (uint64_t)tensor->type.dims[d]);
    }
    ul_wire_put_key(&proto, DATA_TYPE, UL_WIRE_VARINT);
    ul_wire_put_varint(&proto, (uint64_t)tensor->type.dtype);
    ul_wire_put_string(&proto, NAME, name);
    ul_tensor_read(tensor, 0, ul_type_elements(&tensor->type), bytes);
    ul_wire_put_bytes(&proto, RAW, bytes, size_bytes);
    ul_wire_put_bytes(graph, INITIALIZER, proto.data, proto.length);
}

void ul_export_lora_apart(struct ul_text *graph, const struct ul_export_tensor *adapter,
                          const struct ul_type *weight)
{
    struct ul_arena *arena = graph->arena;
    unsigned char scale[sizeof(double)];
    const char *name = adapter->name, *left = adapter->left_name, *right = adapter->right_name;
    const char *product = ul_arena_printf(arena, "%s/lora_AB", name);
    const char *factor = ul_arena_printf(arena, "%s/lora_scale", name);
    const char *scaled = ul_arena_printf(arena, "%s/lora", name);
    const struct ul_type number = {.dtype = weight->dtype};
    ul_element_put_float(scale, weight->dtype, adapter->scale);
    put_tensor(graph, left, adapter->left);
    put_tensor(graph, right, adapter->right);
    put_tensor(graph, factor, ul_tensor_new(arena, &number, scale));
    if (weight->rank > 2) { /* filters become matrices, and the product filters again */
        const char *shape = ul_arena_printf(arena, "%s/lora_shape", name);
        const char *flat = ul_arena_printf(arena, "%s/flat", left);
        const char *flat_right = ul_arena_printf(arena, "%s/flat", right);
        const char *matrix = ul_arena_printf(arena, "%s/flat", product);
        const int64_t rank = weight->rank;
        put_tensor(graph, shape, ul_tensor_new_ints(arena, UL_I64, 1, &rank, weight->dims));
        put_node(graph, "Flatten", left, NULL, flat);
        put_node(graph, "Flatten", right, NULL, flat_right);
        put_node(graph, "MatMul", flat, flat_right, matrix);
        put_node(graph, "Reshape", matrix, shape, product);
    } else {
        put_node(graph, "MatMul", left, right, product);
    }
    put_node(graph, "Mul", product, factor, scaled);
    put_node(graph, "Add", ul_arena_printf(arena, "%s/base", name), scaled, name);
}
