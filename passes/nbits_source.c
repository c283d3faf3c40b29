/* Which constants are read packed: those of at most 8 bits in front of a DequantizeLinear, or of
 * the elementwise Dequantize that pass integers makes of it. A scale is for an element, an index of
 * an axis, a block along one, or for all: that all is one table over the constant's axes. */
#include "passes/nbits_internal.h"

#include "ir/op.h"

#include <string.h>

/* ---- numbers of a few bits ---- */

struct ul_nbits_packer ul_nbits_packer_new(struct ul_graph *graph, int64_t rows, int64_t count,
                                           int64_t bits)
{
    struct ul_nbits_packer packer = {.row_bytes = (count * bits + 7) / 8, .bits = bits};
    packer.bytes = UL_NEW_ARRAY(graph->arena, unsigned char, (size_t)(rows * packer.row_bytes));
    return packer;
}

void ul_nbits_packer_put(struct ul_nbits_packer *packer, int64_t row, int64_t at, uint32_t number)
{
    int64_t bit = at * packer->bits;
    unsigned char *place = packer->bytes + row * packer->row_bytes + bit / 8;
    uint32_t shifted = number << bit % 8;
    UL_ASSERT(number < 1u << packer->bits);
    place[0] = (unsigned char)(place[0] | (shifted & 255));
    if (shifted > 255)
        place[1] = (unsigned char)(place[1] | shifted >> 8);
}

ul_value_id ul_nbits_add_weight(struct ul_graph *graph, ul_value_id like, enum ul_dtype dtype,
                                uint32_t rank, const int64_t *dims, const void *bytes)
{
    struct ul_type type = ul_type_make(dtype, rank, dims);
    return ul_graph_add_weight(graph, graph->values[like].name,
                               ul_tensor_new(graph->arena, &type, bytes));
}

/* ---- a dequantized constant ---- */

static bool find_kind(struct ul_nbits_source *source)
{
    enum ul_dtype dtype = source->codes->type.dtype;
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    source->bits = info->bits;
    source->is_float = info->is_float;
    source->is_e2m1 = dtype == UL_F4E2M1;
    source->packed = info->is_float && info->bits == 8 ? dtype : UL_U8;
    source->shift = info->is_integer && info->is_signed ? (int64_t)1 << (info->bits - 1) : 0;
    return info->bits <= 8;
}

uint32_t ul_nbits_source_entry(const struct ul_nbits_source *source, const struct ul_tensor *tensor,
                               uint64_t at)
{
    unsigned char byte;
    ul_tensor_read(tensor, at, 1, &byte);
    return (uint32_t)(byte + source->shift) & ((1u << source->bits) - 1);
}

/* The constant that an input of the node is, or whose elements it has in other dimensions: then
 * the input is that constant in `source`. NULL: none. */
static const struct ul_tensor *find_constant(const struct ul_graph *graph,
                                             struct ul_nbits_source *source, uint32_t input)
{
    const struct ul_node *node = source->node;
    ul_value_id value = input < node->input_count ? node->inputs[input] : UL_NONE;
    const struct ul_value *info = value == UL_NONE ? NULL : &graph->values[value];
    if (info != NULL && info->kind == UL_VALUE_NODE &&
        (ul_op_get(graph->nodes[info->producer].op)->flags & UL_OP_RESHAPES) != 0)
        value = graph->nodes[info->producer].inputs[0];
    source->inputs[input] = value;
    return value == UL_NONE ? NULL : ul_graph_get_constant(graph, value);
}

/* The table of scales over the constant's axes. */
static bool find_scales(struct ul_nbits_source *source, const struct ul_type *scales)
{
    uint64_t count = ul_type_elements(scales);
    int64_t axis = ul_node_get_int(source->node, "axis", 1);
    axis += axis < 0 ? (int64_t)source->rank : 0;
    for (uint32_t d = 0; d < source->rank; d++)
        source->scale_dims[d] = 1;
    if (source->node->op == UL_OP_Dequantize) { /* broadcast, from the last axis on */
        for (uint32_t d = 0; d < scales->rank && scales->rank <= source->rank; d++)
            source->scale_dims[source->rank - scales->rank + d] = scales->dims[d];
    } else if (ul_node_get_int(source->node, "block_size", 0) > 0) {
        source->block = ul_node_get_int(source->node, "block_size", 0);
        source->block_axis = (uint32_t)axis;
        memcpy(source->scale_dims, scales->dims, source->rank * sizeof *scales->dims);
    } else if (count > 1) {
        source->scale_dims[axis] = (int64_t)count;
    }
    return scales->rank <= source->rank &&
           (source->zeros == NULL || ul_type_elements(&source->zeros->type) == count);
}

bool ul_nbits_source_read(const struct ul_graph *graph, ul_value_id value,
                          struct ul_nbits_source *source)
{
    const struct ul_value *info = &graph->values[value];
    if (info->kind != UL_VALUE_NODE || info->type.rank < 2)
        return false;
    const struct ul_node *node = &graph->nodes[info->producer];
    if (node->op != UL_OP_DequantizeLinear && node->op != UL_OP_Dequantize)
        return false;
    *source = (struct ul_nbits_source){.node = node, .rank = info->type.rank};
    source->codes = find_constant(graph, source, 0);
    source->scales = find_constant(graph, source, 1);
    source->zeros = find_constant(graph, source, 2);
    bool has_zeros = source->inputs[2] != UL_NONE;
    if (source->codes == NULL || source->scales == NULL || (has_zeros && source->zeros == NULL) ||
        source->inputs[0] != node->inputs[0] || !find_kind(source) ||
        ul_type_elements(&source->codes->type) == 0)
        return false;
    if (source->is_float)
        source->zeros = NULL; /* it is 0, all that ONNX has it be */
    return find_scales(source, &graph->values[node->inputs[1]].type);
}

uint32_t ul_nbits_source_code(const struct ul_nbits_source *source, const int64_t *at)
{
    uint64_t index = 0;
    for (uint32_t d = 0; d < source->rank; d++)
        index = index * (uint64_t)source->codes->type.dims[d] + (uint64_t)at[d];
    return ul_nbits_source_entry(source, source->codes, index);
}

uint64_t ul_nbits_source_scale(const struct ul_nbits_source *source, const int64_t *at)
{
    uint64_t index = 0;
    for (uint32_t d = 0; d < source->rank; d++) {
        int64_t dim = source->scale_dims[d], block = 1;
        if (source->block > 0 && d == source->block_axis)
            block = source->block;
        UL_ASSERT(dim == 1 || at[d] / block < dim);
        index = index * (uint64_t)dim + (dim == 1 ? 0 : (uint64_t)(at[d] / block));
    }
    return index;
}
