/* SPDX-License-Identifier: Apache-2.0 */
/* Det: the determinant by LU decomposition with partial pivoting, of a copy in scratch, one matrix
 * after the other. */
#include "ir/ops/signal/signal.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"

enum ul_status ul_infer_det(struct ul_infer *infer)
{
    const struct ul_type *type = ul_infer_input(infer, 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_FLOATS));
    UL_TRY(ul_check_rank(infer, 0, 2, UL_LIMIT_RANK));
    if (type->dims[type->rank - 1] != type->dims[type->rank - 2])
        return ul_infer_invalid(infer, "%lld x %lld matrices are not square",
                                (long long)type->dims[type->rank - 2],
                                (long long)type->dims[type->rank - 1]);
    ul_infer_set(infer, 0, type->dtype, type->rank - 2, type->dims);
    return UL_OK;
}

struct det {
    struct ul_kernel *k;
    enum ul_dtype dtype;
    int64_t size;
    uint32_t matrix;  /* array of size * size */
    uint32_t product; /* of the pivots so far, with the sign of the exchanges */
};

static ul_kx place(const struct det *d, ul_kx row, ul_kx column)
{
    return ul_kx_add(d->k, ul_kx_muli(d->k, row, d->size), column);
}

/* Finds the row at or below `step` with the largest element in column `step`. */
static ul_kx find_pivot(const struct det *d, ul_kx step)
{
    struct ul_kernel *k = d->k;
    ul_kx first = ul_kx_load(k, d->matrix, place(d, step, step));
    uint32_t max = ul_ks_var(k, d->dtype, ul_kx_unary(k, UL_KX_ABS, first));
    uint32_t row = ul_ks_var(k, UL_I64, step);
    ul_kx left = ul_kx_sub(k, ul_kx_index_const(k, d->size - 1), step);
    ul_kx at = ul_ks_for_expr(k, left, d->size, 0);
    at = ul_ks_let(k, ul_kx_addi(k, ul_kx_add(k, at, step), 1));
    ul_kx x = ul_ks_let(k, ul_kx_unary(k, UL_KX_ABS, ul_kx_load(k, d->matrix, place(d, at, step))));
    ul_kx larger = ul_ks_let(k, ul_kx_binary(k, UL_KX_LT, ul_kx_var(k, max), x));
    ul_ks_set(k, max, ul_kx_select(k, larger, x, ul_kx_var(k, max)));
    ul_ks_set(k, row, ul_kx_select(k, larger, at, ul_kx_var(k, row)));
    ul_ks_end(k);
    return ul_ks_let(k, ul_kx_clamp(k, ul_kx_var(k, row), d->size - 1));
}

/* Exchanges the two rows, and with them the sign, if they differ. */
static void exchange(const struct det *d, ul_kx step, ul_kx row)
{
    struct ul_kernel *k = d->k;
    ul_ks_if(k, ul_kx_binary(k, UL_KX_NE, step, row));
    ul_kx column = ul_ks_for(k, d->size, 0);
    ul_kx a = ul_ks_let(k, ul_kx_load(k, d->matrix, place(d, step, column)));
    ul_kx b = ul_ks_let(k, ul_kx_load(k, d->matrix, place(d, row, column)));
    ul_ks_store(k, d->matrix, place(d, step, column), b);
    ul_ks_store(k, d->matrix, place(d, row, column), a);
    ul_ks_end(k);
    ul_ks_set(k, d->product, ul_kx_unary(k, UL_KX_NEG, ul_kx_var(k, d->product)));
    ul_ks_end(k);
}

/* Subtracts multiples of the pivot's row from those below. A pivot of 0 has only zeros below. */
static void eliminate(const struct det *d, ul_kx step, ul_kx pivot)
{
    struct ul_kernel *k = d->k;
    ul_kx zero = ul_kx_float(k, d->dtype, 0.0);
    ul_kx left = ul_ks_let(k, ul_kx_sub(k, ul_kx_index_const(k, d->size - 1), step));
    ul_kx inverse = ul_kx_select(k, ul_kx_binary(k, UL_KX_EQ, pivot, zero), zero,
                                 ul_kx_binary(k, UL_KX_DIV, ul_kx_float(k, d->dtype, 1.0), pivot));
    inverse = ul_ks_let(k, inverse);
    ul_kx row = ul_ks_for_expr(k, left, d->size, 0);
    row = ul_ks_let(k, ul_kx_addi(k, ul_kx_add(k, row, step), 1));
    ul_kx below = ul_kx_load(k, d->matrix, place(d, row, step));
    ul_kx factor = ul_ks_let(k, ul_kx_mul(k, below, inverse));
    ul_kx column = ul_ks_for_expr(k, left, d->size, 0);
    column = ul_ks_let(k, ul_kx_addi(k, ul_kx_add(k, column, step), 1));
    ul_kx x = ul_kx_load(k, d->matrix, place(d, row, column));
    ul_kx y = ul_kx_load(k, d->matrix, place(d, step, column));
    ul_ks_store(k, d->matrix, place(d, row, column), ul_kx_sub(k, x, ul_kx_mul(k, factor, y)));
    ul_ks_end(k);
    ul_ks_end(k);
}

void ul_lower_det(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *type = ul_lower_input_type(lower, node, 0);
    uint32_t batch = type->rank - 2;
    struct det d = {.k = k, .dtype = ul_compute_dtype(type->dtype), .size = type->dims[batch]};
    uint64_t elements = (uint64_t)d.size * (uint64_t)d.size;
    d.matrix = ul_lower_scratch(lower, d.dtype, elements);
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t i = 0; i < batch; i++)
        index[i] = ul_ks_for(k, type->dims[i], 0);
    index[batch] = ul_ks_for(k, d.size, 0);
    index[batch + 1] = ul_ks_for(k, d.size, 0);
    ul_ks_store(k, d.matrix, place(&d, index[batch], index[batch + 1]),
                ul_lower_load(lower, info->inputs[0], index));
    ul_ks_end(k);
    ul_ks_end(k);
    d.product = ul_ks_var(k, d.dtype, ul_kx_float(k, d.dtype, 1.0));
    ul_kx step = ul_ks_for(k, d.size, 0);
    exchange(&d, step, find_pivot(&d, step));
    ul_kx pivot = ul_ks_let(k, ul_kx_load(k, d.matrix, place(&d, step, step)));
    ul_ks_set(k, d.product, ul_kx_mul(k, ul_kx_var(k, d.product), pivot));
    eliminate(&d, step, pivot);
    ul_ks_end(k);
    ul_lower_store(lower, info->outputs[0], index, ul_kx_var(k, d.product));
    for (uint32_t i = 0; i < batch; i++)
        ul_ks_end(k);
}
