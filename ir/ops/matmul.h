/* Hooks of the matmul family, and the shapes that its members share. */
#ifndef UL_OPS_MATMUL_H
#define UL_OPS_MATMUL_H

#include "ir/lower.h"

/* numpy.matmul of two shapes: result[batch..., rows, columns]. */
struct ul_matmul {
    struct ul_type batch; /* broadcast leading dimensions */
    int64_t rows, columns, depth;
    bool a_is_vector, b_is_vector; /* then rows or columns is 1 and no dimension of the result */
    bool a_has_batch, b_has_batch; /* more than one matrix */
    uint32_t loop_count;           /* around the contraction, once it is open */
};

/* matmul_shape.c: NULL, or what is wrong with the shapes. */
const char *ul_matmul_read(struct ul_matmul *matmul, const struct ul_type *a,
                           const struct ul_type *b);
struct ul_type ul_matmul_result(const struct ul_matmul *matmul, enum ul_dtype dtype);

/* matmul.c: opens the loops over the batch and the contraction of `a` and `b` summed in
 * `acc_dtype`, from each operand its zero-point subtracted where it is no UL_NONE (`a_zero`: a
 * scalar, or one for each row; `b_zero`: one for each column). Fills the index of the result's
 * element and returns the sum; close with ul_matmul_close. `column` is the n variable. */
struct ul_matmul_operands {
    ul_value_id a, b, a_zero, b_zero;
    enum ul_dtype acc_dtype;
};
ul_kx ul_matmul_open(struct ul_lower *lower, struct ul_matmul *matmul,
                     const struct ul_matmul_operands *operands, ul_kx index[UL_LIMIT_RANK]);
void ul_matmul_close(struct ul_lower *lower, const struct ul_matmul *matmul);

/* matmul_cut.c */
ul_cut_fn ul_cut_matmul, ul_cut_gemm;

ul_infer_fn ul_infer_einsum;
ul_lower_fn ul_lower_einsum;
ul_infer_fn ul_infer_matmul, ul_infer_gemm, ul_infer_matmul_integer, ul_infer_qlinear_matmul;
ul_lower_fn ul_lower_matmul, ul_lower_gemm, ul_lower_matmul_integer, ul_lower_qlinear_matmul;

#endif
