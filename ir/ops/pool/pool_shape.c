/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of pooling: reading the window attributes, which nobody has checked yet. */
#include "ir/geometry.h"
#include "ir/ops/pool/pool.def"

#include "ir/ops/check.h"

#include <string.h>

static int64_t window_reach(const struct ul_pool *pool, uint32_t d)
{
    return (pool->kernel[d] - 1) * pool->dilation[d] + 1;
}

/* Pads so that the output is ceil(in / stride); the odd element goes to the end, or to the
 * beginning for SAME_LOWER. */
static void same_size(struct ul_pool *pool, uint32_t d, bool lower)
{
    pool->out[d] = (pool->in[d] + pool->stride[d] - 1) / pool->stride[d];
    int64_t total = (pool->out[d] - 1) * pool->stride[d] + window_reach(pool, d) - pool->in[d];
    total = total > 0 ? total : 0;
    pool->pad_begin[d] = lower ? total - total / 2 : total / 2;
    pool->pad_end[d] = total - pool->pad_begin[d];
}

/* With ceil_mode a window may extend past the end, but not start in the padding there. */
static const char *padded_size(struct ul_pool *pool, uint32_t d, bool ceil_mode)
{
    int64_t room = pool->in[d] + pool->pad_begin[d] + pool->pad_end[d] - window_reach(pool, d);
    int64_t stride = pool->stride[d];
    if (room < (ceil_mode ? 1 - stride : 0))
        return "the window is larger than the padded input";
    pool->out[d] = (ceil_mode ? room + stride - 1 : room) / stride + 1;
    if (ceil_mode && (pool->out[d] - 1) * stride >= pool->in[d] + pool->pad_begin[d])
        pool->out[d]--;
    return NULL;
}

static const char *read_steps(const struct ul_node *node, struct ul_pool *pool)
{
    int64_t pads[2 * UL_POOL_DIMS];
    if (!ul_check_read_ints(node, "kernel_shape", pool->count, 0, 1, pool->kernel))
        return "kernel_shape must give a positive size for each spatial dimension";
    if (!ul_check_read_ints(node, "strides", pool->count, 1, 1, pool->stride))
        return "strides must give a positive step for each spatial dimension";
    if (!ul_check_read_ints(node, "dilations", pool->count, 1, 1, pool->dilation))
        return "dilations must give a positive step for each spatial dimension";
    if (!ul_check_read_ints(node, "pads", 2 * pool->count, 0, 0, pads))
        return "pads must give two sizes, not negative, for each spatial dimension";
    memcpy(pool->pad_begin, pads, pool->count * sizeof *pads);
    memcpy(pool->pad_end, pads + pool->count, pool->count * sizeof *pads);
    return NULL;
}

const char *ul_pool_read(const struct ul_node *node, const struct ul_type *type,
                         struct ul_pool *pool)
{
    *pool = (struct ul_pool){0};
    if (type->rank < 3)
        return "the input must have a batch, a channel and at least one spatial dimension";
    pool->count = type->rank - 2;
    memcpy(pool->in, type->dims + 2, pool->count * sizeof *pool->in);
    const char *error = read_steps(node, pool);
    if (error != NULL)
        return error;
    const char *auto_pad = ul_node_get_string(node, "auto_pad", "NOTSET");
    bool upper = strcmp(auto_pad, "SAME_UPPER") == 0;
    bool lower = strcmp(auto_pad, "SAME_LOWER") == 0;
    bool valid = strcmp(auto_pad, "VALID") == 0;
    if (!upper && !lower && !valid && auto_pad[0] != '\0' && strcmp(auto_pad, "NOTSET") != 0)
        return "auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID";
    bool ceil_mode = ul_node_get_int(node, "ceil_mode", 0) != 0;
    for (uint32_t d = 0; d < pool->count && error == NULL; d++) {
        if (valid)
            pool->pad_begin[d] = pool->pad_end[d] = 0;
        if (upper || lower)
            same_size(pool, d, lower);
        else
            error = padded_size(pool, d, ceil_mode);
    }
    return error;
}

/* The type that numbers a window's taps. */
static enum ul_dtype tap_dtype(const struct ul_pool *pool)
{
    int64_t taps = 1;
    for (uint32_t d = 0; d < pool->count && taps <= UINT8_MAX + 1; d++)
        taps = pool->kernel[d] > UINT8_MAX ? UINT8_MAX + 2 : taps * pool->kernel[d];
    return taps > UINT8_MAX + 1 ? UL_I32 : UL_U8;
}

/* `taps`: output 1 numbers the taps of windows instead of places in the input. */
static enum ul_status infer_pool(struct ul_infer *infer, uint32_t allowed, bool taps)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, allowed));
    struct ul_pool pool;
    const char *error = ul_pool_read(infer->node, type, &pool);
    if (error != NULL)
        return ul_infer_invalid(infer, "%s", error);
    int64_t dims[UL_LIMIT_RANK] = {type->dims[0], type->dims[1]};
    memcpy(dims + 2, pool.out, pool.count * sizeof *dims);
    ul_infer_set(infer, 0, type->dtype, type->rank, dims);
    ul_infer_set(infer, 1, taps ? tap_dtype(&pool) : UL_I64, type->rank, dims);
    return UL_OK;
}

enum ul_status ul_infer_max_pool(struct ul_infer *infer)
{
    UL_TRY(ul_check_range(infer, "storage_order", ul_node_get_int(infer->node, "storage_order", 0),
                          0, 1));
    return infer_pool(infer, UL_CHECK_FLOATS | UL_CHECK_BIT(UL_I8) | UL_CHECK_BIT(UL_U8), false);
}

enum ul_status ul_infer_max_pool_taps(struct ul_infer *infer)
{
    return infer_pool(infer, UL_CHECK_FLOATS, true);
}

enum ul_status ul_infer_average_pool(struct ul_infer *infer)
{
    return infer_pool(infer, UL_CHECK_FLOATS, false);
}

static enum ul_status check_p(const struct ul_infer *infer)
{
    return ul_check_range(infer, "p", ul_node_get_int(infer->node, "p", 2), 1, 1024);
}

enum ul_status ul_infer_lp_pool(struct ul_infer *infer)
{
    UL_TRY(check_p(infer));
    return infer_pool(infer, UL_CHECK_FLOATS, false);
}

enum ul_status ul_infer_global_pool(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK));
    UL_TRY(check_p(infer));
    struct ul_type out = *type;
    for (uint32_t d = 2; d < type->rank; d++)
        out.dims[d] = 1;
    ul_infer_set_type(infer, 0, &out);
    return UL_OK;
}
