/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul and Gemm as contractions: m = rows (and, where the second operand is one matrix, the
 * batch in front of them), n = columns, k = the inner dimension. Where a target wants its batches
 * sorted, dimensions of the batch that one operand alone has are rows or columns, too. */
#include "ir/ops/matmul/matmul.h"

#include "ir/kernel_build.h"
#include "ir/ops/conv/conv.h"

/* Which variable of the contraction each dimension of the batch is; UL_NONE: a loop around it. */
struct sides {
    uint32_t vars[UL_LIMIT_RANK];
    uint32_t m_count, n_count;
    int64_t m_extents[UL_LIMIT_RANK], n_extents[UL_LIMIT_RANK];
};

/* Coordinates of a matrix operand. Its own batch dimensions follow the result's from the right,
 * those of size 1 stay at 0; the batch is either variables of m or n, or `batch` around. */
struct matrix {
    ul_kx base[UL_LIMIT_RANK];
    int64_t coefficients[UL_LIMIT_RANK][UL_CONTRACT_DIMS];
};

static void fill_batch(struct ul_kernel *kernel, const struct ul_matmul *matmul,
                       const struct ul_type *type, const ul_kx *batch, const struct sides *sides,
                       struct matrix *matrix)
{
    *matrix = (struct matrix){0};
    for (uint32_t d = 0; d < type->rank; d++)
        matrix->base[d] = ul_kx_index_const(kernel, 0);
    uint32_t own = type->rank > 2 ? type->rank - 2 : 0, skip = matmul->batch.rank - own;
    for (uint32_t d = 0; d < own; d++) {
        uint32_t var = sides->vars[skip + d];
        if (type->dims[d] == 1)
            continue;
        if (var != UL_NONE)
            matrix->coefficients[d][var] = 1;
        else
            matrix->base[d] = batch[skip + d];
    }
}

/* Expands `index` by the dimensions that vectors lack, to (batch..., row, column). */
static void subtract_zero(struct ul_lower *lower, struct ul_contraction *contraction,
                          struct ul_operand *operand, ul_value_id zero, const ul_kx *index,
                          uint32_t rank, ul_kx own)
{
    const struct ul_type *type = &lower->graph->values[zero].type;
    if (type->rank < 2 || ul_type_elements(type) == 1) {
        ul_operand_subtract(lower, contraction, operand, zero, own);
        return;
    }
    struct ul_kernel *kernel = lower->kernel;
    ul_kx value = ul_lower_load_broadcast(lower, zero, index, rank);
    ul_kx loaded = operand->transform;
    if (loaded == UL_NONE)
        loaded = ul_kx_cast(kernel, contraction->acc_dtype, ul_kx_var(kernel, operand->loaded));
    operand->transform =
        ul_kx_binary(kernel, UL_KX_SUB, loaded, ul_kx_cast(kernel, contraction->acc_dtype, value));
}

/* Whether the operand has more than one matrix along dimension d of the batch. */
static bool moves_along(const struct ul_matmul *matmul, const struct ul_type *type, uint32_t d)
{
    uint32_t own = type->rank > 2 ? type->rank - 2 : 0, skip = matmul->batch.rank - own;
    return d >= skip && type->dims[d - skip] != 1;
}

enum side { SIDE_LOOP, SIDE_ROWS, SIDE_COLUMNS };

static void find_sides(const struct ul_lower *lower, const struct ul_matmul *matmul,
                       const struct ul_matmul_operands *operands, struct sides *sides)
{
    const struct ul_type *a = &lower->graph->values[operands->a].type;
    const struct ul_type *b = &lower->graph->values[operands->b].type;
    bool is_sorted = lower->traits->sorts_batches && !matmul->a_is_vector &&
                     operands->a_zero == UL_NONE && operands->b_zero == UL_NONE;
    enum side all = !matmul->b_has_batch && !matmul->a_is_vector ? SIDE_ROWS : SIDE_LOOP;
    enum side which[UL_LIMIT_RANK];
    *sides = (struct sides){.m_count = 0};
    for (uint32_t d = 0; d < matmul->batch.rank; d++) {
        which[d] = all;
        if (all == SIDE_LOOP && is_sorted)
            which[d] = !moves_along(matmul, b, d)   ? SIDE_ROWS
                       : !moves_along(matmul, a, d) ? SIDE_COLUMNS
                                                    : SIDE_LOOP;
        sides->vars[d] = UL_NONE;
        if (which[d] == SIDE_ROWS) {
            sides->vars[d] = sides->m_count;
            sides->m_extents[sides->m_count++] = matmul->batch.dims[d];
        }
    }
    sides->m_extents[sides->m_count++] = matmul->rows;
    for (uint32_t d = 0; d < matmul->batch.rank; d++) {
        if (which[d] != SIDE_COLUMNS)
            continue;
        sides->vars[d] = sides->m_count + sides->n_count;
        sides->n_extents[sides->n_count++] = matmul->batch.dims[d];
    }
    sides->n_extents[sides->n_count++] = matmul->columns;
}

ul_kx ul_matmul_open(struct ul_lower *lower, struct ul_matmul *matmul,
                     const struct ul_matmul_operands *operands, ul_kx index[UL_LIMIT_RANK])
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *a = &lower->graph->values[operands->a].type;
    const struct ul_type *b = &lower->graph->values[operands->b].type;
    uint32_t batch_rank = matmul->batch.rank;
    struct sides sides;
    ul_kx full[UL_LIMIT_RANK + 2]; /* batch..., row, column */
    find_sides(lower, matmul, operands, &sides);
    uint32_t row = sides.m_count - 1, column = sides.m_count + sides.n_count - 1;
    matmul->loop_count = 0;
    for (uint32_t d = 0; d < batch_rank; d++) {
        if (sides.vars[d] != UL_NONE)
            continue;
        full[d] = ul_ks_for(kernel, matmul->batch.dims[d], UL_FOR_PARALLEL);
        matmul->loop_count++;
    }
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, operands->acc_dtype, sides.m_extents, sides.m_count,
                        sides.n_extents, sides.n_count, &matmul->depth, 1);
    for (uint32_t d = 0; d < batch_rank; d++)
        if (sides.vars[d] != UL_NONE)
            full[d] = ul_kx_var(kernel, contraction.vars[sides.vars[d]]);
    full[batch_rank] = ul_kx_var(kernel, contraction.vars[row]);
    full[batch_rank + 1] = ul_kx_var(kernel, contraction.vars[column]);
    struct matrix matrix;
    fill_batch(kernel, matmul, a, full, &sides, &matrix);
    matrix.coefficients[a->rank - 1][column + 1] = 1;
    if (!matmul->a_is_vector)
        matrix.coefficients[a->rank - 2][row] = 1;
    ul_lower_operand(lower, &contraction, &contraction.a, operands->a, matrix.base,
                     matrix.coefficients, 0, 0);
    fill_batch(kernel, matmul, b, full, &sides, &matrix);
    matrix.coefficients[matmul->b_is_vector ? 0 : b->rank - 2][column + 1] = 1;
    if (!matmul->b_is_vector)
        matrix.coefficients[b->rank - 1][column] = 1;
    ul_lower_operand(lower, &contraction, &contraction.b, operands->b, matrix.base,
                     matrix.coefficients, 0, 0);
    if (operands->a_zero != UL_NONE)
        subtract_zero(lower, &contraction, &contraction.a, operands->a_zero, full, batch_rank + 2,
                      full[batch_rank]);
    if (operands->b_zero != UL_NONE)
        subtract_zero(lower, &contraction, &contraction.b, operands->b_zero, full, batch_rank + 2,
                      full[batch_rank + 1]);
    ul_ks_contract(kernel, &contraction);
    uint32_t rank = 0;
    for (uint32_t d = 0; d < batch_rank + 2; d++)
        if (!(d == batch_rank && matmul->a_is_vector) &&
            !(d == batch_rank + 1 && matmul->b_is_vector))
            index[rank++] = full[d];
    return ul_kx_var(kernel, contraction.acc);
}

void ul_matmul_close(struct ul_lower *lower, const struct ul_matmul *matmul)
{
    ul_ks_end(lower->kernel);
    ul_lower_close(lower, matmul->loop_count);
}

void ul_lower_matmul(struct ul_lower *lower, ul_node_id node_id)
{
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *a = ul_lower_input_type(lower, node_id, 0);
    struct ul_matmul matmul;
    const char *wrong = ul_matmul_read(&matmul, a, ul_lower_input_type(lower, node_id, 1));
    UL_ASSERT(wrong == NULL);
    struct ul_matmul_operands operands = {.a = node->inputs[0],
                                          .b = node->inputs[1],
                                          .a_zero = UL_NONE,
                                          .b_zero = UL_NONE,
                                          .acc_dtype = ul_compute_dtype(a->dtype)};
    ul_kx index[UL_LIMIT_RANK];
    ul_kx sum = ul_matmul_open(lower, &matmul, &operands, index);
    ul_lower_store(lower, node->outputs[0], index, sum);
    ul_matmul_close(lower, &matmul);
}

/* x * factor; an integer times a fraction is computed in f64, as numpy would. */
static ul_kx scale(struct ul_kernel *kernel, ul_kx x, double factor)
{
    if (factor == 1.0)
        return x;
    enum ul_dtype dtype = ul_kx_dtype(kernel, x);
    if (dtype != UL_F32 && dtype != UL_F64) {
        ul_kx wide = ul_kx_cast(kernel, UL_F64, x);
        wide = ul_kx_binary(kernel, UL_KX_MUL, wide, ul_kx_float(kernel, UL_F64, factor));
        return ul_kx_cast(kernel, dtype, wide);
    }
    return ul_kx_binary(kernel, UL_KX_MUL, x, ul_kx_float(kernel, dtype, factor));
}

void ul_lower_gemm(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *a = ul_lower_input_type(lower, node_id, 0);
    const struct ul_type *b = ul_lower_input_type(lower, node_id, 1);
    uint32_t a_row = ul_node_get_int(node, "transA", 0) != 0 ? 1 : 0;
    uint32_t b_row = ul_node_get_int(node, "transB", 0) != 0 ? 1 : 0;
    struct ul_contraction contraction;
    ul_contraction_init(kernel, &contraction, ul_compute_dtype(a->dtype), &a->dims[a_row], 1,
                        &b->dims[1 - b_row], 1, &a->dims[1 - a_row], 1);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx base[2] = {zero, zero};
    int64_t a_at[2][UL_CONTRACT_DIMS] = {{0}}, b_at[2][UL_CONTRACT_DIMS] = {{0}};
    a_at[a_row][0] = a_at[1 - a_row][2] = 1;
    b_at[b_row][2] = b_at[1 - b_row][1] = 1;
    ul_lower_operand(lower, &contraction, &contraction.a, node->inputs[0], base, a_at, 0, 0);
    ul_lower_operand(lower, &contraction, &contraction.b, node->inputs[1], base, b_at, 0, 0);
    ul_kx index[2] = {ul_kx_var(kernel, contraction.vars[0]),
                      ul_kx_var(kernel, contraction.vars[1])};
    ul_ks_contract(kernel, &contraction);
    ul_kx sum =
        scale(kernel, ul_kx_var(kernel, contraction.acc), ul_node_get_float(node, "alpha", 1.0));
    double beta = ul_node_get_float(node, "beta", 1.0);
    if (ul_lower_has_input(lower, node_id, 2) && beta != 0.0) {
        ul_kx c = ul_lower_load_broadcast(lower, node->inputs[2], index, 2);
        sum = ul_kx_binary(kernel, UL_KX_ADD, sum, scale(kernel, c, beta));
    }
    ul_lower_store(lower, node->outputs[0], index, sum);
    ul_ks_end(kernel);
}
