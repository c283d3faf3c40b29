/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the text of every schedule. */
#include "codegen/kernel/contract_internal.h"
#include "codegen/kernel/print_expr.h"
#include "ir/kernel_build.h"

#include <inttypes.h>

void ul_contract_indent(const struct ul_contract_out *out, uint32_t indent)
{
    ul_text_printf(out->text, "%*s", (int)(4 * indent), "");
}

void ul_contract_line(const struct ul_contract_out *out, uint32_t indent, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    UL_ASSERT(length >= 0 && (size_t)length < sizeof line);
    ul_contract_indent(out, indent);
    ul_text_put(out->text, line);
    ul_text_put(out->text, "\n");
}

void ul_contract_strides(const struct ul_contract_out *out, const struct ul_affine *affine,
                         const struct ul_contract_dims *dims, const char *prefix)
{
    for (uint32_t i = 0; i < dims->count; i++) {
        int64_t stride = affine->strides[dims->carrier[i]];
        if (stride == 1)
            ul_text_printf(out->text, " + %s%" PRIu32, prefix, i);
        else if (stride != 0)
            ul_text_printf(out->text, " %c %" PRId64 " * %s%" PRIu32, stride < 0 ? '-' : '+',
                           stride < 0 ? -stride : stride, prefix, i);
    }
}

void ul_contract_base(const struct ul_contract_out *out, uint32_t indent, const char *name,
                      ul_kx base)
{
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "const int64_t t_%s = ", name);
    out->printer->put_expression(out->printer->context, base);
    ul_text_put(out->text, ";\n");
}

/* Not every coordinate is used: a dimension may have stride 0. C99 has no attribute for that. */
static void put_used(const struct ul_contract_out *out, uint32_t indent, const char *prefix,
                     uint32_t count)
{
    ul_contract_indent(out, indent);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(out->text, "(void)%s%" PRIu32 "%s", prefix, i, i + 1 < count ? ", " : ";\n");
}

void ul_contract_coordinate(const struct ul_contract_out *out, uint32_t indent, const char *name,
                            uint32_t position, const char *value)
{
    ul_contract_line(out, indent, "%s %s%" PRIu32 " = %s;", out->coordinate, name, position, value);
    ul_contract_line(out, indent, "(void)%s%" PRIu32 ";", name, position);
}

void ul_contract_split(const struct ul_contract_out *out, uint32_t indent,
                       const struct ul_contract_dims *dims, const char *prefix, const char *value)
{
    int64_t below = 1;
    for (uint32_t i = dims->count; i-- > 0;) {
        ul_contract_indent(out, indent);
        ul_text_printf(out->text, "%s%s %s%" PRIu32 " = %s", out->unused, out->coordinate, prefix,
                       i, value);
        if (below > 1)
            ul_text_printf(out->text, " / %" PRId64, below);
        if (i > 0)
            ul_text_printf(out->text, " %% %" PRId64, dims->extents[i]);
        ul_text_put(out->text, ";\n");
        below *= dims->extents[i];
    }
    if (out->unused[0] == '\0')
        put_used(out, indent, prefix, dims->count);
}

void ul_contract_step(const struct ul_contract_out *out, uint32_t indent,
                      const struct ul_contract_dims *dims, const char *prefix, bool skip_last)
{
    uint32_t i = dims->count - 1, level = 0;
    if (skip_last) {
        ul_contract_line(out, indent, "%s%" PRIu32 " = 0;", prefix, i);
        if (i-- == 0)
            return;
    }
    for (; i > 0; i--, level++) {
        ul_contract_line(out, indent + level, "if (++%s%" PRIu32 " == %" PRId64 ") {", prefix, i,
                         dims->extents[i]);
        ul_contract_line(out, indent + level + 1, "%s%" PRIu32 " = 0;", prefix, i);
    }
    ul_contract_line(out, indent + level, "%s0++;", prefix);
    while (level-- > 0)
        ul_contract_line(out, indent + level, "}");
}

void ul_contract_declare(const struct ul_contract_out *out, uint32_t indent,
                         const struct ul_contract_uses *uses, const struct ul_contract_dims *dims,
                         uint32_t first, uint32_t count, const char *prefix, const char *last)
{
    const struct ul_contraction *contraction = out->plan->contraction;
    for (uint32_t d = first; d < first + count; d++) {
        if (!uses->is_mentioned[d])
            continue;
        uint32_t i = 0;
        while (i < dims->count && dims->carrier[i] != d)
            i++;
        ul_contract_indent(out, indent);
        bool is_short = out->is_short != NULL && out->is_short[contraction->vars[d]];
        ul_text_printf(out->text, "%sconst %s v%" PRIu32 " = ", out->unused,
                       is_short ? "int32_t" : "int64_t", contraction->vars[d]);
        if (i == dims->count)
            ul_text_put(out->text, "0");
        else if (i + 1 == dims->count && last != NULL)
            ul_text_put(out->text, last);
        else
            ul_text_printf(out->text, "%s%" PRIu32, prefix, i);
        ul_text_put(out->text, ";\n");
    }
}

const char *ul_contract_type_of(const struct ul_contract_out *out, const struct ul_operand *operand)
{
    const struct ul_contract_plan *plan = out->plan;
    if (!out->is_narrow)
        return plan->type;
    return operand == &plan->contraction->a ? plan->a_type : plan->b_type;
}

/* The element stored at `index`, or `loaded` where that is not NULL. */
static void put_stored(const struct ul_contract_out *out, const struct ul_operand *operand,
                       const char *index, const char *loaded)
{
    const struct ul_contract_printer *printer = out->printer;
    if (loaded != NULL)
        ul_text_put(out->text, loaded);
    else if (operand->packed != UL_DTYPE_NONE)
        ul_text_printf(out->text, "ul_few_%s(b%" PRIu32 ", %s)",
                       ul_dtype_get(operand->packed)->name, operand->buffer, index);
    else
        printer->put_load(printer->context, operand->buffer, index);
}

static void put_value(const struct ul_contract_out *out, uint32_t indent,
                      const struct ul_operand *operand, const char *index, const char *loaded,
                      const char *target)
{
    const struct ul_contract_printer *printer = out->printer;
    enum ul_dtype stored = ul_operand_dtype(printer->kernel, operand);
    enum ul_dtype given = operand->transform == UL_NONE ? ul_compute_dtype(stored)
                                                        : out->plan->contraction->acc_dtype;
    bool needs_cast =
        given != out->plan->contraction->acc_dtype || (given != UL_F32 && given != UL_F64);
    ul_contract_indent(out, indent);
    if (operand->transform == UL_NONE) {
        ul_text_printf(out->text, "%s = ", target);
        if (needs_cast)
            ul_text_printf(out->text, "(%s)", ul_contract_type_of(out, operand));
        put_stored(out, operand, index, loaded);
        ul_text_put(out->text, ";\n");
        return;
    }
    const char *type = ul_c_type(ul_compute_dtype(stored));
    ul_text_printf(out->text, "const %s v%" PRIu32 " = ", type, operand->loaded);
    if (operand->packed != UL_DTYPE_NONE)
        ul_text_printf(out->text, "(%s)", type);
    put_stored(out, operand, index, loaded);
    ul_text_put(out->text, ";\n");
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "%s = ", target);
    if (needs_cast)
        ul_text_printf(out->text, "(%s)", ul_contract_type_of(out, operand));
    printer->put_expression(printer->context, operand->transform);
    ul_text_put(out->text, ";\n");
}

void ul_contract_value(const struct ul_contract_out *out, uint32_t indent,
                       const struct ul_operand *operand, const char *index, const char *target)
{
    put_value(out, indent, operand, index, NULL, target);
}

void ul_contract_value_of(const struct ul_contract_out *out, uint32_t indent,
                          const struct ul_operand *operand, const char *loaded, const char *target)
{
    put_value(out, indent, operand, NULL, loaded, target);
}

/* The body for one element; `n_last` is the last column variable, `sum` the sum. */
static void put_element(const struct ul_contract_out *out, uint32_t indent, const char *n_last,
                        const char *sum)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    ul_contract_declare(out, indent, &plan->epilogue_uses, &plan->out_n, c->m_count, c->n_count,
                        "t_o", n_last);
    if (plan->epilogue_uses.mentions_acc)
        ul_contract_line(out, indent, "const %s v%" PRIu32 " = (%s)%s;", plan->acc_type, c->acc,
                         plan->acc_type, sum);
    out->printer->put_statements(out->printer->context, c->epilogue, indent);
}

/* One column: the loop over rows is the inner one. */
static void put_column(const struct ul_contract_out *out, uint32_t indent, const char *sums,
                       int64_t pitch)
{
    const struct ul_contract_plan *plan = out->plan;
    char sum[128];
    snprintf(sum, sizeof sum, "(%s)[t_r * %" PRId64 "]", sums, pitch);
    ul_contract_line(out, indent, "UL_IVDEP");
    ul_contract_line(out, indent, "for (int64_t t_r = 0; t_r < t_rows; t_r++) {");
    ul_contract_declare(out, indent + 1, &plan->epilogue_uses, &plan->out_m, 0,
                        plan->contraction->m_count, "t_q", "t_m + t_r");
    put_element(out, indent + 1, "t_n", sum);
    ul_contract_line(out, indent, "}");
}

/* Whether the C compiler knows the few rounds of the loop along a row. */
static bool is_short_row(const struct ul_contract_plan *plan)
{
    return plan->schedule == UL_CONTRACT_WINDOW && !ul_contract_closes_rows(plan) &&
           plan->b_n.extents[plan->b_n.count - 1] <= UL_UNROLLED_ROUNDS;
}

/* The loop along a row of sums. */
static void put_columns(const struct ul_contract_out *out, uint32_t indent, const char *first,
                        const char *last, bool is_short)
{
    ul_contract_line(out, indent, is_short ? "UL_IVDEP_ROLLED" : "UL_IVDEP");
    ul_contract_line(out, indent, "for (int64_t t_i = %s; t_i < %s; t_i++) {", first, last);
    put_element(out, indent + 1, "t_n + t_i", "t_sum[t_i]");
    ul_contract_line(out, indent, "}");
}

/* Whether the columns of a block become bytes. Whole vectors of bytes are longer than a block
 * then. */
static bool makes_bytes(const struct ul_contract_out *out)
{
    const struct ul_kernel *kernel = out->printer->kernel;
    if (!out->is_narrow || out->plan->schedule != UL_CONTRACT_TILE || out->plan->group == 1)
        return false;
    for (uint32_t b = 0; b < kernel->buffer_count; b++)
        if (kernel->buffers[b].role == UL_BUFFER_OUTPUT &&
            ul_dtype_get(kernel->buffers[b].dtype)->size_bytes == 1)
            return true;
    return false;
}

/* A row of a block in pieces of known length, for which C compilers find vectors, and a rest. */
static void put_pieces(const struct ul_contract_out *out, uint32_t indent)
{
    static const int pieces[] = {32, 16};
    ul_contract_line(out, indent, "int64_t t_j = 0;");
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        char last[24];
        snprintf(last, sizeof last, "t_j + %d", pieces[i]);
        ul_contract_line(out, indent, "for (; %s <= t_cols; t_j += %d) {", last, pieces[i]);
        put_columns(out, indent + 1, "t_j", last, true);
        ul_contract_line(out, indent, "}");
    }
    put_columns(out, indent, "t_j", "t_cols", false);
}

void ul_contract_epilogue(const struct ul_contract_out *out, uint32_t indent, const char *sums,
                          int64_t pitch)
{
    const struct ul_contract_plan *plan = out->plan;
    if (plan->n == 1 && plan->m > 1 && plan->out_m.count == 1) {
        put_column(out, indent, sums, pitch);
        return;
    }
    const struct ul_contraction *c = plan->contraction;
    const struct ul_contract_dims *n = &plan->out_n;
    char sum[128];
    ul_contract_line(out, indent, "for (int64_t t_r = 0; t_r < t_rows; t_r++) {");
    ul_contract_line(out, indent + 1, "const %s *t_sum = %s + t_r * %" PRId64 ";", plan->type, sums,
                     pitch);
    if (plan->out_m.count > 1)
        ul_contract_split(out, indent + 1, &plan->out_m, "t_q", "(t_m + t_r)");
    ul_contract_declare(out, indent + 1, &plan->epilogue_uses, &plan->out_m, 0, c->m_count, "t_q",
                        plan->out_m.count > 1 ? NULL : "t_m + t_r");
    if (n->count == 1 && makes_bytes(out)) {
        put_pieces(out, indent + 1);
    } else if (n->count == 1) {
        put_columns(out, indent + 1, "0", "t_cols", is_short_row(plan));
    } else {
        uint32_t last = n->count - 1;
        char value[64];
        ul_contract_split(out, indent + 1, n, "t_o", "t_n");
        ul_contract_line(out, indent + 1,
                         "for (int64_t t_j = 0, t_run; t_j < t_cols; t_j += t_run) {");
        ul_contract_line(out, indent + 2,
                         "t_run = ul_run(%" PRId64 " - t_o%" PRIu32 ", t_cols - t_j);",
                         n->extents[last], last);
        ul_contract_line(out, indent + 2, "UL_IVDEP");
        ul_contract_line(out, indent + 2, "for (int64_t t_i = 0; t_i < t_run; t_i++) {");
        snprintf(value, sizeof value, "t_o%" PRIu32 " + t_i", last);
        snprintf(sum, sizeof sum, "t_sum[t_j + t_i]");
        put_element(out, indent + 3, value, sum);
        ul_contract_line(out, indent + 2, "}");
        ul_contract_step(out, indent + 2, n, "t_o", true);
        ul_contract_line(out, indent + 1, "}");
    }
    ul_contract_line(out, indent, "}");
}
