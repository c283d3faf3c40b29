/* SPDX-License-Identifier: Apache-2.0 */
/* GatherBlockQuantized of com.microsoft: rows of a table whose elements have a few bits, unpacked
 * as they are read. A table in u8 holds 8 / bits elements a byte along its last axis, and so do its
 * zero points. Beside what com.microsoft has there is what passes set: `zero`, the zero point of
 * all elements, and scales of one number for an axis with it; `e2m1`, where four bits are a
 * float; and `by_block`, where scales and zero points of a matrix are transposed, as those of a
 * MatMulNBits that multiplies by the same table. */
#include "ir/kernel_build.h"
#include "ir/ops/quant/nbits.h"

/* How a table is read. */
struct table {
    uint32_t gather_axis, block_axis, last;
    int64_t bits, block, zero, per; /* `per` elements of a byte */
    bool is_integer, is_e2m1, is_broadcast, by_block;
    struct ul_type data; /* with all elements along the last axis */
};

static const char *read_axes(struct table *table, const struct ul_node *node, int64_t rank)
{
    int64_t gather = ul_node_get_int(node, "gather_axis", 0);
    int64_t block = ul_node_get_int(node, "quantize_axis", 1);
    gather += gather < 0 ? rank : 0;
    block += block < 0 ? rank : 0;
    if (gather < 0 || gather >= rank || block < 0 || block >= rank)
        return "gather_axis or quantize_axis is out of range";
    table->gather_axis = (uint32_t)gather;
    table->block_axis = (uint32_t)block;
    table->last = (uint32_t)rank - 1;
    table->by_block = ul_node_get_int(node, "by_block", 0) != 0;
    if (table->by_block && rank != 2)
        return "by_block is of matrices";
    return NULL;
}

static const char *read_packing(struct table *table, const struct ul_node *node,
                                const struct ul_type *data)
{
    bool is_packed = data->dtype == UL_U8;
    bool is_four = data->dtype == UL_U4 || data->dtype == UL_I4;
    table->is_integer = is_packed || is_four || data->dtype == UL_I8;
    table->is_e2m1 = ul_node_get_int(node, "e2m1", 0) != 0;
    table->bits = is_packed ? ul_node_get_int(node, "bits", 4) : is_four ? 4 : 8;
    if (table->bits != 2 && table->bits != 4 && table->bits != 8)
        return "bits must be 2, 4 or 8";
    if (table->is_e2m1 && (!is_packed || table->bits != 4))
        return "e2m1 has 4 bits";
    table->per = is_packed ? 8 / table->bits : 1;
    table->zero = ul_node_get_int(node, "zero", is_packed ? (int64_t)1 << (table->bits - 1) : 0);
    table->is_broadcast = !table->is_integer || ul_node_find_attr(node, "zero") != NULL;
    if (table->zero < 0 || table->zero > 255)
        return "zero must be 0 to 255";
    table->data = *data;
    int64_t *last = &table->data.dims[table->last];
    if (*last > UL_LIMIT_DIM / table->per)
        return "the last axis is too long";
    *last *= table->per;
    table->block = ul_node_get_int(node, "block_size", 128);
    if (table->block == 0 && !table->is_integer)
        table->block = UL_LIMIT_DIM;
    return table->block > 0 ? NULL : "block_size must be positive";
}

/* The axis of the scales that corresponds to one of the data. */
static uint32_t scale_axis(const struct table *table, uint32_t axis)
{
    return table->by_block ? 1 - axis : axis;
}

/* Scales have one number for each block; one number may serve another axis. */
static const char *check_scales(const struct table *table, const struct ul_type *scales)
{
    if (scales->rank != table->data.rank)
        return "data and scales must have the same rank";
    for (uint32_t d = 0; d < scales->rank; d++) {
        int64_t count = table->data.dims[d];
        if (d == table->block_axis)
            count = count == 0 ? 0 : (count - 1) / table->block + 1;
        int64_t given = scales->dims[scale_axis(table, d)];
        if (given != count && !(given == 1 && d != table->block_axis && table->is_broadcast))
            return "the scales do not have one number for each block";
    }
    return NULL;
}

static const char *check_zeros(const struct table *table, const struct ul_type *data,
                               const struct ul_type *scales, const struct ul_type *zeros)
{
    if (zeros == NULL)
        return NULL;
    if (!table->is_integer || zeros->dtype != data->dtype)
        return "zero points must have the type of the data, integers";
    struct ul_type wanted = *scales;
    wanted.dtype = data->dtype;
    int64_t *last = &wanted.dims[table->last];
    *last = (*last + table->per - 1) / table->per;
    return ul_type_equal(&wanted, zeros) ? NULL
                                         : "the zero points do not have one number for each block";
}

static const char *read_table(struct table *table, const struct ul_node *node,
                              const struct ul_type *data, const struct ul_type *scales,
                              const struct ul_type *zeros)
{
    *table = (struct table){0};
    const char *wrong = read_axes(table, node, data->rank);
    wrong = wrong != NULL ? wrong : read_packing(table, node, data);
    wrong = wrong != NULL ? wrong : check_scales(table, scales);
    return wrong != NULL ? wrong : check_zeros(table, data, scales, zeros);
}

enum ul_status ul_infer_gather_block(struct ul_infer *infer)
{
    const struct ul_type *data = ul_infer_input(infer, 0), *indices = ul_infer_input(infer, 1);
    const struct ul_type *scales = ul_infer_input(infer, 2);
    struct table table;
    UL_TRY(ul_check_dtype(infer, 0,
                          UL_CHECK_BIT(UL_U8) | UL_CHECK_BIT(UL_I8) | UL_CHECK_BIT(UL_U4) |
                              UL_CHECK_BIT(UL_I4) | UL_SET_FLOAT8));
    UL_TRY(ul_check_dtype(infer, 1, UL_CHECK_INDEXES));
    UL_TRY(ul_nbits_check_scales(infer, 2));
    UL_TRY(ul_check_rank(infer, 0, 1, UL_LIMIT_RANK));
    const char *wrong = read_table(&table, infer->node, data, scales, ul_infer_input(infer, 3));
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    if (data->rank - 1 + indices->rank > UL_LIMIT_RANK)
        return ul_infer_unsupported(infer, "the output would have more than %u dimensions",
                                    (unsigned)UL_LIMIT_RANK);
    struct ul_type type = {.dtype = scales->dtype};
    for (uint32_t d = 0; d < table.gather_axis; d++)
        type.dims[type.rank++] = table.data.dims[d];
    for (uint32_t d = 0; d < indices->rank; d++)
        type.dims[type.rank++] = indices->dims[d];
    for (uint32_t d = table.gather_axis + 1; d < data->rank; d++)
        type.dims[type.rank++] = table.data.dims[d];
    if (data->dims[table.gather_axis] == 0 && ul_type_in_limits(&type) &&
        ul_type_elements(&type) != 0)
        return ul_infer_invalid(infer, "axis %u is empty, so no index into it exists",
                                (unsigned)table.gather_axis);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

/* Loads the element at `from` of the table, or of its zero points, packed along the last axis. */
static ul_kx load_packed(struct ul_lower *lower, const struct table *table, ul_value_id value,
                         const ul_kx *from)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx at[UL_LIMIT_RANK];
    for (uint32_t d = 0; d <= table->last; d++)
        at[d] = from[d];
    at[table->last] = ul_kx_divi(kernel, from[table->last], table->per);
    ul_kx byte = ul_lower_load(lower, value, at);
    if (table->per == 1)
        return byte;
    return ul_nbits_part(kernel, byte, ul_kx_modi(kernel, from[table->last], table->per),
                         table->bits);
}

static ul_kx subtract_zero(struct ul_lower *lower, const struct table *table, ul_node_id node,
                           const ul_kx *block, ul_kx value)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx zero = ul_kx_int(kernel, UL_I32, table->zero);
    if (ul_lower_has_input(lower, node, 3))
        zero = ul_kx_cast(kernel, UL_I32,
                          load_packed(lower, table, lower->graph->nodes[node].inputs[3], block));
    return ul_kx_binary(kernel, UL_KX_SUB, ul_kx_cast(kernel, UL_I32, value), zero);
}

ul_kx ul_map_gather_block(struct ul_lower *lower, ul_node_id node, uint32_t output,
                          const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *data = ul_lower_input_type(lower, node, 0);
    const struct ul_type *scales = ul_lower_input_type(lower, node, 2);
    uint32_t index_rank = ul_lower_input_type(lower, node, 1)->rank;
    struct table table;
    const char *wrong =
        read_table(&table, info, data, scales,
                   ul_lower_has_input(lower, node, 3) ? ul_lower_input_type(lower, node, 3) : NULL);
    UL_ASSERT(wrong == NULL && output == 0);
    ul_kx from[UL_LIMIT_RANK], block[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < data->rank; d++)
        if (d != table.gather_axis)
            from[d] = index[d < table.gather_axis ? d : d + index_rank - 1];
    int64_t rows = table.data.dims[table.gather_axis];
    from[table.gather_axis] = ul_kx_checked_index(
        kernel, ul_lower_load(lower, info->inputs[1], index + table.gather_axis),
        rows > 0 ? rows : 1, true);
    for (uint32_t d = 0; d < data->rank; d++) {
        uint32_t to = scale_axis(&table, d);
        block[to] = d == table.block_axis ? ul_kx_divi(kernel, from[d], table.block) : from[d];
        block[to] = scales->dims[to] == 1 ? ul_kx_index_const(kernel, 0) : block[to];
    }
    ul_kx value = load_packed(lower, &table, info->inputs[0], from);
    if (table.is_e2m1)
        value = ul_nbits_e2m1(kernel, value);
    else if (table.is_integer)
        value = subtract_zero(lower, &table, node, block, value);
    return ul_kx_binary(kernel, UL_KX_MUL, ul_kx_cast(kernel, UL_F32, value),
                        ul_kx_cast(kernel, UL_F32, ul_lower_load(lower, info->inputs[2], block)));
}
