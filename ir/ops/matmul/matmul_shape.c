/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of matrix products as numpy.matmul has them, and the rules of the family. */
#include "ir/infer.h"
#include "ir/ops/matmul/matmul.h"

/* The leading dimensions of a matrix operand, all but the last two. */
static struct ul_type batch_of(const struct ul_type *type)
{
    return ul_type_make(type->dtype, type->rank > 2 ? type->rank - 2 : 0, type->dims);
}

const char *ul_matmul_read(struct ul_matmul *matmul, const struct ul_type *a,
                           const struct ul_type *b)
{
    *matmul = (struct ul_matmul){.a_is_vector = a->rank == 1, .b_is_vector = b->rank == 1};
    if (a->rank == 0 || b->rank == 0)
        return "a scalar has no matrix product";
    int64_t b_depth = b->dims[b->rank == 1 ? 0 : b->rank - 2];
    matmul->depth = a->dims[a->rank - 1];
    if (matmul->depth != b_depth)
        return "the last dimension of the first operand differs from the second to last of the "
               "second";
    matmul->rows = a->rank == 1 ? 1 : a->dims[a->rank - 2];
    matmul->columns = b->rank == 1 ? 1 : b->dims[b->rank - 1];
    struct ul_type a_batch = batch_of(a), b_batch = batch_of(b);
    if (!ul_broadcast(&a_batch, &b_batch, &matmul->batch))
        return "the leading dimensions do not broadcast";
    matmul->b_has_batch = ul_type_elements(&b_batch) != 1;
    return NULL;
}

struct ul_type ul_matmul_result(const struct ul_matmul *matmul, enum ul_dtype dtype)
{
    struct ul_type type = ul_type_make(dtype, matmul->batch.rank, matmul->batch.dims);
    if (!matmul->a_is_vector)
        type.dims[type.rank++] = matmul->rows;
    if (!matmul->b_is_vector)
        type.dims[type.rank++] = matmul->columns;
    return type;
}

/* Types that products are summed in; f16 and bf16 sum in f32. */
static bool is_summed(enum ul_dtype dtype)
{
    return ul_dtype_is_real(dtype) || dtype == UL_I32 || dtype == UL_I64 || dtype == UL_U32 ||
           dtype == UL_U64;
}

static enum ul_status check_summed(const struct ul_infer *infer, const struct ul_type *type)
{
    if (is_summed(type->dtype))
        return UL_OK;
    return ul_infer_unsupported(
        infer, "%s is computed in f16, bf16, f32, f64, i32, i64, u32 and u64, not in %s",
        ul_op_get(infer->node->op)->name, ul_dtype_get(type->dtype)->name);
}

enum ul_status ul_infer_matmul(struct ul_infer *infer)
{
    const struct ul_type *a = ul_infer_input(infer, 0), *b = ul_infer_input(infer, 1);
    UL_TRY(check_summed(infer, a));
    if (a->dtype != b->dtype)
        return ul_infer_invalid(infer, "the operands differ in type");
    struct ul_matmul matmul;
    const char *wrong = ul_matmul_read(&matmul, a, b);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    struct ul_type type = ul_matmul_result(&matmul, a->dtype);
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

enum ul_status ul_infer_gemm(struct ul_infer *infer)
{
    const struct ul_type *a = ul_infer_input(infer, 0), *b = ul_infer_input(infer, 1);
    const struct ul_type *c = ul_infer_input(infer, 2);
    UL_TRY(check_summed(infer, a));
    if (a->dtype != b->dtype || (c != NULL && c->dtype != a->dtype))
        return ul_infer_invalid(infer, "the operands differ in type");
    if (a->rank != 2 || b->rank != 2)
        return ul_infer_invalid(infer, "the operands must be matrices");
    bool trans_a = ul_node_get_int(infer->node, "transA", 0) != 0;
    bool trans_b = ul_node_get_int(infer->node, "transB", 0) != 0;
    if (a->dims[trans_a ? 0 : 1] != b->dims[trans_b ? 1 : 0])
        return ul_infer_invalid(infer, "the operands' inner dimensions differ");
    int64_t dims[] = {a->dims[trans_a ? 1 : 0], b->dims[trans_b ? 0 : 1]};
    struct ul_type result = ul_type_make(a->dtype, 2, dims), broadcast;
    if (c != NULL && (!ul_broadcast(&result, c, &broadcast) || !ul_type_equal(&result, &broadcast)))
        return ul_infer_invalid(infer, "C does not broadcast to the result");
    ul_infer_set_type(infer, 0, &result);
    return UL_OK;
}
