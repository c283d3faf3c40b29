/* SPDX-License-Identifier: Apache-2.0 */
/* Which constants are read packed: those of at most 8 bits in front of a DequantizeLinear, or of
 * the elementwise Dequantize that pass integers makes of it, and those of at most 8 bits, f16 or
 * bf16 in front of a Cast and maybe a Mul by a constant; through Transposes anywhere, and Casts
 * after it. A scale belongs to a box of codes: `span` of them along each axis.
 *
 *      w i8 --Cast--> f32 --Transpose--> --Mul(scale [1 n])-->      w bf16 --Cast--> f32 -->
 *
 * Left undone: zero points that a Sub takes off. */
#include "ir/op_names.h"
#include "passes/integers/nbits_internal.h"

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

uint64_t ul_nbits_hash(const struct ul_tensor *tensor, uint64_t first)
{
    const unsigned char *data = tensor->data != NULL ? tensor->data : tensor->splat;
    uint64_t size_bytes =
        tensor->data != NULL ? ul_type_bytes(&tensor->type) : sizeof tensor->splat;
    uint64_t hash = size_bytes;
    uint64_t at = tensor->data != NULL ? first * ul_dtype_get(tensor->type.dtype)->size_bytes : 0;
    for (; at < size_bytes; at += sizeof hash) {
        uint64_t word = 0, left = size_bytes - at;
        memcpy(&word, data + at, left < sizeof word ? left : sizeof word);
        hash = (hash ^ word) * 11400714819323198485u;
        hash ^= hash >> 32;
    }
    return hash;
}

void ul_nbits_mark(uint64_t number, unsigned char *bytes, uint32_t step)
{
    uint64_t mixed = number * 11400714819323198485u; /* 2^64 over the golden ratio */
    for (uint32_t i = 0; i < 8; i++)
        bytes[i * step] = (unsigned char)(mixed >> (40 + 3 * i) & 7);
}

ul_value_id ul_nbits_add_weight(struct ul_graph *graph, ul_value_id like, enum ul_dtype dtype,
                                uint32_t rank, const int64_t *dims, const void *bytes)
{
    struct ul_type type = ul_type_make(dtype, rank, dims);
    return ul_graph_add_weight(graph, graph->values[like].name,
                               ul_tensor_of(graph->arena, &type, bytes));
}

/* ---- a dequantized constant ---- */

static bool find_kind(struct ul_nbits_source *source, bool casts)
{
    enum ul_dtype dtype = source->codes->type.dtype;
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    source->bits = info->bits;
    source->is_float = info->is_float;
    source->is_e2m1 = dtype == UL_F4E2M1;
    source->packed = info->is_float && info->bits >= 8 ? dtype : UL_U8;
    source->shift = info->is_integer && info->is_signed ? (int64_t)1 << (info->bits - 1) : 0;
    bool is_half = ul_dtype_is_half(dtype);
    if (is_half)
        return casts;
    return info->bits <= 8 && 8 % info->bits == 0 && (info->is_integer || info->is_float);
}

uint32_t ul_nbits_source_entry(const struct ul_nbits_source *source, const struct ul_tensor *tensor,
                               uint64_t at)
{
    unsigned char bytes[2] = {0};
    ul_tensor_read(tensor, at, 1, bytes);
    uint32_t code = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
    return (uint32_t)(code + source->shift) & ((1u << source->bits) - 1);
}

void ul_nbits_pack_run(const struct ul_nbits_source *source, const struct ul_tensor *tensor,
                       uint64_t first, int64_t step, int64_t count, unsigned char *row)
{
    const uint64_t size = ul_dtype_get(tensor->type.dtype)->size_bytes;
    const uint32_t bits = (uint32_t)source->bits, shift = (uint32_t)source->shift;
    const uint32_t mask = (1u << bits) - 1;
    const unsigned char *at = tensor->data != NULL ? tensor->data + first * size : tensor->splat;
    const int64_t stride = tensor->data != NULL ? step * (int64_t)size : 0;
    uint32_t held = 0, held_bits = 0;
    UL_ASSERT(size <= 2 && bits <= 16);
    for (int64_t i = 0; i < count; i++, at += stride) {
        uint32_t code = at[0] | (size > 1 ? (uint32_t)at[1] << 8 : 0);
        held |= ((code + shift) & mask) << held_bits;
        for (held_bits += bits; held_bits >= 8; held_bits -= 8, held >>= 8)
            *row++ = (unsigned char)held;
    }
    if (held_bits > 0)
        *row = (unsigned char)held;
}

/* The constant that a value is, or that has its elements in other dimensions: `input` of the source
 * then is that constant. NULL: there is none. */
static const struct ul_tensor *find_constant(const struct ul_graph *graph,
                                             struct ul_nbits_source *source, uint32_t input,
                                             ul_value_id value)
{
    const struct ul_value *info = value == UL_NONE ? NULL : &graph->values[value];
    if (info != NULL && info->kind == UL_VALUE_NODE &&
        (ul_op_get(graph->nodes[info->producer].op)->flags & UL_OP_RESHAPES) != 0)
        value = graph->nodes[info->producer].inputs[0];
    source->inputs[input] = value;
    return value == UL_NONE ? NULL : ul_graph_get_constant(graph, value);
}

/* How many codes have one scale along axis d of the node that scales them. */
static int64_t span_of(const struct ul_nbits_source *source, const struct ul_type *scales,
                       const struct ul_type *codes, uint32_t d)
{
    int64_t axis = ul_node_get_int(source->node, "axis", 1);
    int64_t block = ul_node_get_int(source->node, "block_size", 0);
    uint32_t missing = codes->rank - scales->rank;
    axis += axis < 0 ? codes->rank : 0;
    bool is_here = d == (uint32_t)axis;
    if (source->node->op != UL_OP_DequantizeLinear)
        return d >= missing && scales->dims[d - missing] != 1 ? 1 : codes->dims[d];
    if (block > 0)
        return is_here && block < codes->dims[d] ? block : is_here ? codes->dims[d] : 1;
    return is_here && ul_type_elements(scales) != 1 ? 1 : codes->dims[d];
}

/* Finds which scale an element has. `scales` is what the node reads, `codes` has its dimensions,
 * where d is axis axes[d] of the stored ones. */
static bool find_scales(struct ul_nbits_source *source, const struct ul_type *scales,
                        const struct ul_type *codes, const uint32_t *axes)
{
    uint32_t scaled = 0;
    bool moves = false;
    for (uint32_t d = 0; d < codes->rank; d++) {
        int64_t span = scales == NULL ? codes->dims[d] : span_of(source, scales, codes, d);
        source->span[axes[d]] = span;
        scaled += span < codes->dims[d];
        moves = moves || axes[d] != d;
    }
    return (!moves || scaled < 2) &&
           (source->zeros == NULL ||
            ul_type_elements(&source->zeros->type) == ul_type_elements(scales));
}

bool ul_nbits_is_float(enum ul_dtype dtype)
{
    return dtype == UL_F32 || ul_dtype_is_half(dtype);
}

static void turn_axes(const struct ul_node *node, uint32_t rank, uint32_t *axes)
{
    uint32_t count;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    for (uint32_t d = 0; d < rank; d++)
        axes[d] = perm == NULL ? rank - 1 - axes[d] : (uint32_t)perm[axes[d]];
}

/* The input of a Mul that is a constant, where the result has the dimensions of the other input; or
 * UL_NONE. */
static uint32_t find_factor(const struct ul_graph *graph, const struct ul_node *node)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct ul_type *type = &graph->values[node->inputs[i]].type;
        const struct ul_type *other = &graph->values[node->inputs[1 - i]].type;
        if (ul_graph_get_constant(graph, node->inputs[i]) != NULL && type->rank <= other->rank &&
            ul_type_equal(other, &graph->values[node->outputs[0]].type))
            return i;
    }
    return UL_NONE;
}

/* Follows Transposes and Casts to floats back to the node that makes what they read, or NULL.
 * Dimension d of the value that it began with is axis axes[d] of the one where it ends. */
static const struct ul_node *follow(const struct ul_graph *graph, ul_value_id *value,
                                    uint32_t *axes, bool *casts)
{
    uint32_t rank = graph->values[*value].type.rank;
    while (graph->values[*value].kind == UL_VALUE_NODE) {
        const struct ul_node *node = &graph->nodes[graph->values[*value].producer];
        if (node->op == UL_OP_Transpose)
            turn_axes(node, rank, axes);
        else if (node->op == UL_OP_Cast && ul_nbits_is_float(graph->values[*value].type.dtype))
            *casts = true;
        else
            return node;
        *value = node->inputs[0];
    }
    return NULL;
}

/* Finds what scales the value at the end of `follow`; then `value` is what it scales, and `scale`
 * its factor. False: it is nothing known. */
static bool find_scale_node(const struct ul_graph *graph, const struct ul_node *node,
                            ul_value_id *value, ul_value_id *scale)
{
    if (node == NULL)
        return true;
    if (!ul_nbits_is_float(graph->values[*value].type.dtype))
        return false;
    uint32_t at = 1;
    if (node->op == UL_OP_Mul)
        at = find_factor(graph, node);
    else if (node->op != UL_OP_DequantizeLinear && node->op != UL_OP_Dequantize)
        return false;
    if (at == UL_NONE)
        return false;
    *scale = node->inputs[at];
    *value = node->inputs[1 - at];
    return true;
}

bool ul_nbits_source_read(const struct ul_graph *graph, ul_value_id value,
                          struct ul_nbits_source *source)
{
    bool casts = false;
    ul_value_id scale = UL_NONE;
    uint32_t outer[UL_LIMIT_RANK], inner[UL_LIMIT_RANK], rank = graph->values[value].type.rank;
    *source = (struct ul_nbits_source){.inputs = {UL_NONE, UL_NONE, UL_NONE}};
    for (uint32_t d = 0; d < rank; d++)
        outer[d] = inner[d] = d;
    source->node = follow(graph, &value, outer, &casts);
    if (!find_scale_node(graph, source->node, &value, &scale))
        return false;
    bool by_mul = source->node != NULL && source->node->op == UL_OP_Mul;
    const struct ul_type *scaled = &graph->values[value].type;
    casts = casts && source->node == NULL;
    bool is_known = source->node == NULL || follow(graph, &value, inner, &casts) == NULL;
    source->codes = ul_graph_get_constant(graph, value);
    source->inputs[0] = value;
    bool has_zeros = source->node != NULL && !by_mul && source->node->input_count > 2 &&
                     source->node->inputs[2] != UL_NONE;
    if (scale != UL_NONE)
        source->scales = find_constant(graph, source, 1, scale);
    if (has_zeros)
        source->zeros = find_constant(graph, source, 2, source->node->inputs[2]);
    if (!is_known || source->codes == NULL || (scale != UL_NONE && source->scales == NULL) ||
        (has_zeros && source->zeros == NULL) || casts != (source->node == NULL || by_mul) ||
        ul_type_elements(&source->codes->type) == 0 || !find_kind(source, casts))
        return false;
    if (source->is_float)
        source->zeros = NULL; /* it is 0, the only one that ONNX allows */
    for (uint32_t d = 0; d < rank; d++)
        source->axes[d] = inner[outer[d]];
    return find_scales(source, scale == UL_NONE ? NULL : &graph->values[scale].type, scaled, inner);
}

bool ul_nbits_is_cast(const struct ul_nbits_source *source)
{
    return source->node == NULL || source->node->op == UL_OP_Mul;
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
