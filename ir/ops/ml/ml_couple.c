/* SPDX-License-Identifier: Apache-2.0 */
/* CouplePairs: probabilities of classes from those of their pairs.
 *
 * Source: T.-F. Wu, C.-J. Lin, R. C. Weng, Probability Estimates for Multi-class Classification by
 * Pairwise Coupling, JMLR 5 (2004), algorithm 2: minimise sum over i, j of (r[j][i] p[i] - r[i][j]
 * p[j])^2 with p summing to 1, by rounds that fit one p at a time. As in libsvm and onnxruntime it
 * ends after 100 rounds, or once no residual is above 0.005 / classes, so results are those of as
 * many rounds as there. A row of the input is worked on by itself, with its matrix in scratch. */
#include "ir/ops/ml/ml.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

enum { ROUNDS = 100 };

enum ul_status ul_infer_couple_pairs(struct ul_infer *infer)
{
    enum { MAX_CLASSES = 1 << 15 };
    const struct ul_type *pairs = ul_infer_input(infer, 0);
    int64_t classes = ul_node_get_int(infer->node, "classes", 0);
    UL_TRY(ul_check_dtype(infer, 0, UL_CHECK_BIT(UL_F32) | UL_CHECK_BIT(UL_F64)));
    UL_TRY(ul_check_rank(infer, 0, 2, 2));
    UL_TRY(ul_check_range(infer, "classes", classes, 2, MAX_CLASSES));
    if (pairs->dims[1] != classes * (classes - 1) / 2)
        return ul_infer_invalid(infer, "input 0 must have a column for each pair of classes");
    ul_infer_set(infer, 0, pairs->dtype, 2, (int64_t[]){pairs->dims[0], classes});
    return UL_OK;
}

struct couple {
    struct ul_lower *lower;
    struct ul_kernel *k;
    ul_value_id input;
    enum ul_dtype dtype;
    int64_t classes;
    ul_kx row;
    uint32_t q, qp, p; /* arrays: the matrix, it times p, and p */
    uint32_t pqp;      /* variable: p times q times p */
};

static ul_kx binary(const struct couple *c, enum ul_kx_op op, ul_kx a, ul_kx b)
{
    return ul_kx_binary(c->k, op, a, b);
}

static ul_kx place(const struct couple *c, ul_kx i, ul_kx j)
{
    return ul_kx_add(c->k, ul_kx_muli(c->k, i, c->classes), j);
}

/* The probability that class i is the right one, given that it is i or j, from its column of the
 * input; i is below j. */
static ul_kx load_pair(const struct couple *c, ul_kx i, ul_kx j)
{
    struct ul_kernel *k = c->k;
    ul_kx low = ul_ks_let(k, binary(c, UL_KX_MIN, i, j));
    ul_kx high = binary(c, UL_KX_MAX, i, j);
    ul_kx rows =
        binary(c, UL_KX_MUL, low, ul_kx_sub(k, ul_kx_index_const(k, 2 * c->classes - 1), low));
    ul_kx column = ul_kx_addi(k, ul_kx_sub(k, ul_kx_add(k, ul_kx_divi(k, rows, 2), high), low), -1);
    ul_kx at[2] = {c->row, ul_kx_clamp(k, column, c->classes * (c->classes - 1) / 2 - 1)};
    return ul_ks_let(k, ul_lower_load(c->lower, c->input, at));
}

/* q[i][i] = sum of r[j][i]^2, q[i][j] = -r[j][i] r[i][j]; all p are the same at first. */
static void fill(const struct couple *c)
{
    struct ul_kernel *k = c->k;
    ul_kx one = ul_kx_float(k, c->dtype, 1);
    ul_kx i = ul_ks_for(k, c->classes, 0);
    uint32_t sum = ul_ks_var(k, c->dtype, ul_kx_float(k, c->dtype, 0));
    ul_kx j = ul_ks_for(k, c->classes, 0);
    ul_ks_if(k, binary(c, UL_KX_NE, i, j));
    ul_kx first = load_pair(c, i, j);
    ul_kx second = ul_ks_let(k, binary(c, UL_KX_SUB, one, first));
    ul_kx against =
        ul_ks_let(k, ul_kx_select(k, binary(c, UL_KX_LT, i, j), second, first)); /* r[j][i] */
    ul_ks_set(k, sum,
              binary(c, UL_KX_ADD, ul_kx_var(k, sum), binary(c, UL_KX_MUL, against, against)));
    ul_ks_store(k, c->q, place(c, i, j),
                ul_kx_unary(k, UL_KX_NEG, binary(c, UL_KX_MUL, first, second)));
    ul_ks_end(k);
    ul_ks_end(k);
    ul_ks_store(k, c->q, place(c, i, i), ul_kx_var(k, sum));
    ul_ks_store(k, c->p, i, ul_kx_float(k, c->dtype, 1 / (double)(float)c->classes));
    ul_ks_end(k);
}

/* Forms qp and pqp from the current p. */
static void multiply(const struct couple *c)
{
    struct ul_kernel *k = c->k;
    ul_ks_set(k, c->pqp, ul_kx_float(k, c->dtype, 0));
    ul_kx i = ul_ks_for(k, c->classes, 0);
    uint32_t sum = ul_ks_var(k, c->dtype, ul_kx_float(k, c->dtype, 0));
    ul_kx j = ul_ks_for(k, c->classes, 0);
    ul_kx term = binary(c, UL_KX_MUL, ul_kx_load(k, c->q, place(c, i, j)), ul_kx_load(k, c->p, j));
    ul_ks_set(k, sum, binary(c, UL_KX_ADD, ul_kx_var(k, sum), term));
    ul_ks_end(k);
    ul_ks_store(k, c->qp, i, ul_kx_var(k, sum));
    ul_kx part = binary(c, UL_KX_MUL, ul_kx_load(k, c->p, i), ul_kx_var(k, sum));
    ul_ks_set(k, c->pqp, binary(c, UL_KX_ADD, ul_kx_var(k, c->pqp), part));
    ul_ks_end(k);
}

static void leave_when_near(const struct couple *c)
{
    struct ul_kernel *k = c->k;
    uint32_t worst = ul_ks_var(k, c->dtype, ul_kx_float(k, c->dtype, 0));
    ul_kx i = ul_ks_for(k, c->classes, 0);
    ul_kx error = ul_kx_unary(k, UL_KX_ABS,
                              binary(c, UL_KX_SUB, ul_kx_load(k, c->qp, i), ul_kx_var(k, c->pqp)));
    ul_ks_set(k, worst, binary(c, UL_KX_MAX, ul_kx_var(k, worst), error));
    ul_ks_end(k);
    double limit = (double)(0.005f / (float)c->classes);
    ul_ks_if(k, binary(c, UL_KX_LT, ul_kx_var(k, worst), ul_kx_float(k, c->dtype, limit)));
    ul_ks_break(k);
    ul_ks_end(k);
}

/* Fits each p in turn, and updates what depends on it. */
static void fit(const struct couple *c)
{
    struct ul_kernel *k = c->k;
    ul_kx one = ul_kx_float(k, c->dtype, 1);
    ul_kx i = ul_ks_for(k, c->classes, 0);
    ul_kx qii = ul_ks_let(k, ul_kx_load(k, c->q, place(c, i, i)));
    ul_kx qpi = ul_ks_let(k, ul_kx_load(k, c->qp, i)), pqp = ul_ks_let(k, ul_kx_var(k, c->pqp));
    ul_kx diff = ul_ks_let(k, binary(c, UL_KX_DIV, binary(c, UL_KX_SUB, pqp, qpi), qii));
    ul_kx scale = ul_ks_let(k, binary(c, UL_KX_ADD, one, diff));
    ul_ks_store(k, c->p, i, binary(c, UL_KX_ADD, ul_kx_load(k, c->p, i), diff));
    ul_kx twice = binary(c, UL_KX_MUL, ul_kx_float(k, c->dtype, 2), qpi);
    ul_kx grown =
        binary(c, UL_KX_MUL, diff, binary(c, UL_KX_ADD, binary(c, UL_KX_MUL, diff, qii), twice));
    grown = binary(c, UL_KX_DIV, binary(c, UL_KX_ADD, pqp, grown), scale);
    ul_ks_set(k, c->pqp, binary(c, UL_KX_DIV, grown, scale));
    ul_kx j = ul_ks_for(k, c->classes, 0);
    ul_kx moved = binary(c, UL_KX_MUL, diff, ul_kx_load(k, c->q, place(c, i, j)));
    moved = binary(c, UL_KX_ADD, ul_kx_load(k, c->qp, j), moved);
    ul_ks_store(k, c->qp, j, binary(c, UL_KX_DIV, moved, scale));
    ul_ks_store(k, c->p, j, binary(c, UL_KX_DIV, ul_kx_load(k, c->p, j), scale));
    ul_ks_end(k);
    ul_ks_end(k);
}

void ul_lower_couple_pairs(struct ul_lower *lower, ul_node_id id)
{
    const struct ul_node *node = &lower->graph->nodes[id];
    const struct ul_type *type = ul_lower_input_type(lower, id, 0);
    struct couple c = {.lower = lower, .k = lower->kernel, .input = node->inputs[0]};
    c.dtype = type->dtype;
    c.classes = ul_node_get_int(node, "classes", 0);
    c.q = ul_lower_scratch(lower, c.dtype, (uint64_t)(c.classes * c.classes));
    c.qp = ul_lower_scratch(lower, c.dtype, (uint64_t)c.classes);
    c.p = ul_lower_scratch(lower, c.dtype, (uint64_t)c.classes);
    ul_lower_open(lower, 1, type->dims, &c.row);
    fill(&c);
    c.pqp = ul_ks_var(c.k, c.dtype, ul_kx_float(c.k, c.dtype, 0));
    ul_ks_for(c.k, ROUNDS, 0);
    multiply(&c);
    leave_when_near(&c);
    fit(&c);
    ul_ks_end(c.k);
    ul_kx index[2] = {c.row, ul_ks_for(c.k, c.classes, 0)};
    ul_lower_store(lower, node->outputs[0], index, ul_kx_load(c.k, c.p, index[1]));
    ul_ks_end(c.k);
    ul_lower_close(lower, 1);
}
