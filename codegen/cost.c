/* Work of one call of a kernel: floating-point operations, counted by walking its loops. Loops
 * whose count is an expression are taken at their greatest; both branches of an IF count. */
#include "codegen/codegen.h"

static uint64_t saturating_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return ul_size_mul(a, b, &product) ? product : UINT64_MAX;
}

static uint64_t saturating_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return ul_size_add(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t count_expr(const struct ul_kernel *kernel, ul_kx id)
{
    if (id == UL_NONE)
        return 0;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    if (expr->op == UL_KX_INT || expr->op == UL_KX_FLOAT || expr->op == UL_KX_VAR)
        return 0;
    uint64_t count = 0;
    bool counts = ul_dtype_get(expr->dtype)->is_float && expr->op != UL_KX_LOAD &&
                  expr->op != UL_KX_CAST && expr->op != UL_KX_SELECT;
    if (counts)
        count = expr->op == UL_KX_FMA ? 2 : 1;
    count += count_expr(kernel, expr->a);
    if (expr->op >= UL_KX_ADD && expr->op != UL_KX_INDEX && expr->op != UL_KX_RANDOM)
        count += count_expr(kernel, expr->b);
    if (expr->op == UL_KX_SELECT || expr->op == UL_KX_FMA)
        count += count_expr(kernel, expr->c);
    return count;
}

static uint64_t count_list(const struct ul_kernel *kernel, ul_ks first);

static uint64_t count_contraction(const struct ul_kernel *kernel,
                                  const struct ul_contraction *contraction)
{
    uint64_t outer = 1;
    uint64_t inner = 1;
    for (uint32_t i = 0; i < contraction->m_count + contraction->n_count + contraction->k_count;
         i++) {
        uint64_t extent = (uint64_t)contraction->extents[i];
        if (i < contraction->m_count + contraction->n_count)
            outer = saturating_mul(outer, extent);
        else
            inner = saturating_mul(inner, extent);
    }
    uint64_t epilogue = count_list(kernel, contraction->epilogue);
    return saturating_mul(outer, saturating_add(saturating_mul(2, inner), epilogue));
}

static uint64_t count_list(const struct ul_kernel *kernel, ul_ks first)
{
    uint64_t count = 0;
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_CONTRACT) {
            count = saturating_add(
                count, count_contraction(kernel, &kernel->contractions[stmt->contraction]));
            continue;
        }
        uint64_t body =
            saturating_add(count_list(kernel, stmt->body), count_list(kernel, stmt->orelse));
        if (stmt->kind == UL_KS_FOR)
            body = saturating_mul(body, (uint64_t)kernel->vars[stmt->var].high + 1);
        else
            body = saturating_add(body, count_expr(kernel, stmt->value));
        count = saturating_add(count, body);
    }
    return count;
}

uint64_t ul_kernel_count_flops(const struct ul_kernel *kernel)
{
    return count_list(kernel, kernel->first);
}
