/* SPDX-License-Identifier: Apache-2.0 */
/* Which constants are read packed: those of at most 8 bits in front of a DequantizeLinear, or of
 * the elementwise Dequantize that pass integers makes of it, through Transposes and Casts behind
 * it. A scale is for a box of codes: `span` of them along each axis. */
#include "passes/nbits_internal.h"

#include "ir/op.h"

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
    return info->bits == 8 || (info->bits < 8 && 8 % info->bits == 0);
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

/* Which scale an element has. */
static bool find_scales(struct ul_nbits_source *source, const struct ul_type *scales)
{
    const struct ul_type *codes = &source->codes->type;
    uint64_t count = ul_type_elements(scales);
    int64_t axis = ul_node_get_int(source->node, "axis", 1);
    int64_t block = ul_node_get_int(source->node, "block_size", 0);
    axis += axis < 0 ? codes->rank : 0;
    for (uint32_t d = 0; d < codes->rank; d++) {
        uint32_t missing = codes->rank - scales->rank;
        source->span[d] = codes->dims[d];
        if (source->node->op == UL_OP_Dequantize) {
            if (d >= missing && scales->dims[d - missing] != 1)
                source->span[d] = 1;
        } else if (block > 0) {
            source->span[d] = d == axis ? block : 1;
        } else if (d == axis && count != 1) {
            source->span[d] = 1;
        }
        if (source->span[d] > codes->dims[d])
            source->span[d] = codes->dims[d];
    }
    return source->zeros == NULL || ul_type_elements(&source->zeros->type) == count;
}

bool ul_nbits_is_float(enum ul_dtype dtype)
{
    return dtype == UL_F32 || dtype == UL_F16 || dtype == UL_BF16;
}

/* The node that makes what a value is, but for the order of its axes and the floats that it is of;
 * NULL: none. */
static const struct ul_node *find_maker(const struct ul_graph *graph, ul_value_id value,
                                        struct ul_nbits_source *source)
{
    uint32_t rank = graph->values[value].type.rank;
    for (uint32_t d = 0; d < rank; d++)
        source->axes[d] = d;
    for (;;) {
        const struct ul_value *info = &graph->values[value];
        if (info->kind != UL_VALUE_NODE || !ul_nbits_is_float(info->type.dtype))
            return NULL;
        const struct ul_node *node = &graph->nodes[info->producer];
        if (node->op == UL_OP_Transpose) {
            uint32_t count;
            const int64_t *perm = ul_node_get_ints(node, "perm", &count);
            for (uint32_t d = 0; d < rank; d++)
                source->axes[d] =
                    perm == NULL ? rank - 1 - source->axes[d] : (uint32_t)perm[source->axes[d]];
        } else if (node->op != UL_OP_Cast) {
            return node;
        }
        value = node->inputs[0];
    }
}

bool ul_nbits_source_read(const struct ul_graph *graph, ul_value_id value,
                          struct ul_nbits_source *source)
{
    *source = (struct ul_nbits_source){0};
    const struct ul_node *node = find_maker(graph, value, source);
    if (node == NULL || (node->op != UL_OP_DequantizeLinear && node->op != UL_OP_Dequantize))
        return false;
    source->node = node;
    source->codes = find_constant(graph, source, 0);
    source->scales = find_constant(graph, source, 1);
    source->zeros = find_constant(graph, source, 2);
    bool has_zeros = source->inputs[2] != UL_NONE;
    if (source->codes == NULL || source->scales == NULL || (has_zeros && source->zeros == NULL) ||
        source->inputs[0] != node->inputs[0] || ul_type_elements(&source->codes->type) == 0 ||
        !find_kind(source))
        return false;
    if (source->is_float)
        source->zeros = NULL; /* it is 0, all that ONNX has it be */
    return find_scales(source, &graph->values[node->inputs[1]].type);
}

uint64_t ul_nbits_source_code(const struct ul_nbits_source *source, const int64_t *at)
{
    const struct ul_type *codes = &source->codes->type;
    int64_t index = 0;
    for (uint32_t d = 0; d < codes->rank; d++)
        index = index * codes->dims[d] + at[d];
    return (uint64_t)index;
}

int64_t ul_nbits_source_scales(const struct ul_nbits_source *source, uint32_t axis)
{
    return (source->codes->type.dims[axis] - 1) / source->span[axis] + 1;
}

uint64_t ul_nbits_source_scale(const struct ul_nbits_source *source, const int64_t *at)
{
    int64_t index = 0;
    for (uint32_t d = 0; d < source->codes->type.rank; d++)
        index = index * ul_nbits_source_scales(source, d) + at[d] / source->span[d];
    return (uint64_t)index;
}
