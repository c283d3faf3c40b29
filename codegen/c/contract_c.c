/* SPDX-License-Identifier: Apache-2.0 */
/* The C text of a contraction: one function for each schedule. */
#include "codegen/c/contract_c.h"

#include <inttypes.h>

/* Declares bases of both operands and of their bounds. */
static void put_bases(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contraction *c = out->plan->contraction;
    char name[24];
    ul_contract_base(out, indent, "a", c->a.at.base);
    ul_contract_base(out, indent, "b", c->b.at.base);
    for (uint32_t i = 0; i < c->a.bound_count; i++) {
        snprintf(name, sizeof name, "ab%" PRIu32, i);
        ul_contract_base(out, indent, name, c->a.bounds[i].at.base);
    }
    for (uint32_t i = 0; i < c->b.bound_count; i++) {
        snprintf(name, sizeof name, "bb%" PRIu32, i);
        ul_contract_base(out, indent, name, c->b.bounds[i].at.base);
    }
}

/* <type> *const t_<name> = scratch + offset; */
static void put_scratch(const struct ul_contract_out *out, uint32_t indent, const char *name,
                        const char *type, int64_t offset)
{
    ul_contract_line(out, indent, "%s *const t_%s = (%s *)(void *)(%s + %" PRId64 ");", type, name,
                     type, out->printer->scratch, offset);
}

static int64_t stride_of(const struct ul_affine *at, const struct ul_contract_dims *dims)
{
    return at->strides[dims->carrier[dims->count - 1]];
}

/* Rows of a panel, as text. */
struct range {
    char first[24], last[24];
};

/* For narrow integers: groups of k; rows of a are counted in bytes. */
static void put_narrow_block(const struct ul_contract_out *out, uint32_t indent, const char *sums,
                             const char *more)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    int64_t row = plan->packs_a ? ul_contract_a_pitch(plan) : stride_of(&c->a.at, &plan->a_m);
    char from[128] = "t_as";
    if (!plan->packs_a)
        snprintf(from, sizeof from, "(const %s *)b%" PRIu32 " + t_a + t_m * %" PRId64 " + t_kb",
                 plan->a_type, c->a.buffer, row);
    ul_contract_line(out, indent,
                     "ul_block_%s(%s, %s, %" PRId64 ", t_panel, (t_ke - t_kb + %" PRId64
                     ") / %" PRId64 ", %s, (int)t_rows, (int)t_cols);",
                     plan->products, sums, from, row * plan->packed_bytes, plan->group - 1,
                     plan->group, more);
}

/* The sums of rows t_m + [0, t_rows) for k in [t_kb, t_ke) at `sums`. */
static void put_block(const struct ul_contract_out *out, uint32_t indent, const char *sums,
                      const char *panel, const char *more)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    ul_contract_line(out, indent, "const int64_t t_rows = ul_run(t_me - t_m, %d);",
                     UL_CONTRACT_ROWS);
    if (plan->packs_a)
        ul_contract_pack_a(out, indent);
    if (plan->group > 1) {
        put_narrow_block(out, indent, sums, more);
        return;
    }
    if (plan->packs_a) {
        ul_contract_line(out, indent,
                         "ul_block_%s(%s, t_as, %" PRId64 ", 1, %s, t_ke - t_kb, %s, (int)t_rows,"
                         " (int)t_cols);",
                         plan->tag, sums, plan->depth, panel, more);
        return;
    }
    int64_t row = stride_of(&c->a.at, &plan->a_m), k = stride_of(&c->a.at, &plan->a_k);
    ul_contract_line(out, indent,
                     "const %s *t_from = (const %s *)b%" PRIu32 " + t_a + t_m * %" PRId64
                     " + t_kb * %" PRId64 ";",
                     plan->type, plan->type, c->a.buffer, row, k);
    ul_contract_line(out, indent,
                     "ul_block_%s(%s, t_from, %" PRId64 ", %" PRId64
                     ", %s, t_ke - t_kb, %s, (int)t_rows, (int)t_cols);",
                     plan->tag, sums, row, k, panel, more);
}

/* Takes all of k at once: the epilogue follows each block of rows while its sums are at hand. */
static void put_whole_depth(const struct ul_contract_out *out, uint32_t indent,
                            const struct range *rows)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand *b = &plan->contraction->b;
    char panel[64];
    snprintf(panel, sizeof panel, "t_panel, %" PRId64, plan->block_cols);
    ul_contract_line(out, indent, "const int64_t t_kb = 0, t_ke = %" PRId64 ", t_me = %s;", plan->k,
                     rows->last);
    if (plan->reads_b_in_place) {
        snprintf(panel, sizeof panel, "t_cut, t_pitch");
        ul_contract_line(out, indent, "const %s *t_cut = t_panel;", plan->type);
        ul_contract_line(out, indent, "int64_t t_pitch = %" PRId64 ";", plan->block_cols);
        ul_contract_line(out, indent, "if (t_cols == %" PRId64 ") {", plan->block_cols);
        ul_contract_line(out, indent + 1, "t_cut = (const %s *)b%" PRIu32 " + t_b + t_n;",
                         plan->type, b->buffer);
        ul_contract_line(out, indent + 1, "t_pitch = %" PRId64 ";", stride_of(&b->at, &plan->b_k));
        ul_contract_line(out, indent, "} else {");
        ul_contract_columns(out, indent + 1, UL_CONTRACT_PACK);
        ul_contract_line(out, indent, "}");
    } else {
        ul_contract_columns(out, indent, UL_CONTRACT_PACK);
    }
    ul_contract_line(out, indent, "for (int64_t t_m = %s; t_m < t_me; t_m += %d) {", rows->first,
                     UL_CONTRACT_ROWS);
    put_block(out, indent + 1, "t_sums", panel, "0");
    ul_contract_epilogue(out, indent + 1, "t_sums", plan->block_cols);
    ul_contract_line(out, indent, "}");
}

/* Takes panels of k one after the other; the sums of up to plan->rows rows wait in scratch. */
static void put_split_depth(const struct ul_contract_out *out, uint32_t indent,
                            const struct range *rows)
{
    const struct ul_contract_plan *plan = out->plan;
    char panel[64], sums[64];
    snprintf(panel, sizeof panel, "t_panel, %" PRId64, plan->block_cols);
    snprintf(sums, sizeof sums, "t_sums + (t_m - t_mb) * %" PRId64, plan->block_cols);
    ul_contract_line(out, indent, "for (int64_t t_mb = %s; t_mb < %s; t_mb += %" PRId64 ") {",
                     rows->first, rows->last, plan->rows);
    ul_contract_line(out, indent + 1, "const int64_t t_me = t_mb + ul_run(%s - t_mb, %" PRId64 ");",
                     rows->last, plan->rows);
    ul_contract_line(out, indent + 1,
                     "for (int64_t t_kb = 0; t_kb < %" PRId64 "; t_kb += %" PRId64 ") {", plan->k,
                     plan->depth);
    ul_contract_line(out, indent + 2,
                     "const int64_t t_ke = t_kb + ul_run(%" PRId64 " - t_kb, %" PRId64 ");",
                     plan->k, plan->depth);
    ul_contract_columns(out, indent + 2, UL_CONTRACT_PACK);
    ul_contract_line(out, indent + 2, "for (int64_t t_m = t_mb; t_m < t_me; t_m += %d) {",
                     UL_CONTRACT_ROWS);
    put_block(out, indent + 3, sums, panel, "t_kb > 0");
    ul_contract_line(out, indent + 2, "}");
    ul_contract_line(out, indent + 1, "}");
    ul_contract_line(out, indent + 1, "const int64_t t_m = t_mb, t_rows = t_me - t_mb;");
    ul_contract_line(out, indent + 1, "(void)t_m;");
    ul_contract_epilogue(out, indent + 1, "t_sums", plan->block_cols);
    ul_contract_line(out, indent, "}");
}

/* The loop over panels of columns, or over a thread's panels and parts of the rows. */
static void put_panels(const struct ul_contract_out *out, uint32_t indent, struct range *rows)
{
    const struct ul_contract_plan *plan = out->plan;
    snprintf(rows->first, sizeof rows->first, "0");
    snprintf(rows->last, sizeof rows->last, "%" PRId64, plan->m);
    if (plan->shares <= 1) {
        ul_contract_line(out, indent,
                         "for (int64_t t_n = 0; t_n < %" PRId64 "; t_n += %" PRId64 ") {", plan->n,
                         plan->block_cols);
        return;
    }
    int64_t splits = (plan->m + plan->rows_each - 1) / plan->rows_each;
    ul_contract_line(out, indent,
                     "for (int64_t t_item = t_share.begin; t_item < t_share.end; t_item++) {");
    if (splits == 1) {
        ul_contract_line(out, indent + 1, "const int64_t t_n = t_item * %" PRId64 ";",
                         plan->block_cols);
        return;
    }
    ul_contract_line(out, indent + 1,
                     "const int64_t t_n = t_item / %" PRId64 " * %" PRId64
                     ", t_first = t_item %% %" PRId64 " * %" PRId64 ";",
                     splits, plan->block_cols, splits, plan->rows_each);
    ul_contract_line(out, indent + 1,
                     "const int64_t t_last = t_first + ul_run(%" PRId64 " - t_first, %" PRId64 ");",
                     plan->m, plan->rows_each);
    snprintf(rows->first, sizeof rows->first, "t_first");
    snprintf(rows->last, sizeof rows->last, "t_last");
}

static void put_tile(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    struct range rows;
    put_scratch(out, indent, "panel", plan->group > 1 ? "unsigned char" : plan->type, 0);
    put_scratch(out, indent, "sums", plan->type, plan->panel_bytes);
    if (plan->packs_a)
        put_scratch(out, indent, "as", plan->a_type, plan->panel_bytes + plan->sums_bytes);
    put_panels(out, indent, &rows);
    ul_contract_line(out, indent + 1,
                     "const int64_t t_cols = ul_run(%" PRId64 " - t_n, %" PRId64 ");", plan->n,
                     plan->block_cols);
    ul_contract_split(out, indent + 1, &plan->b_n, "t_s", "t_n");
    if (plan->depth == plan->k)
        put_whole_depth(out, indent + 1, &rows);
    else
        put_split_depth(out, indent + 1, &rows);
    ul_contract_line(out, indent, "}");
}

/* for (int64_t <name> = first; <name> < last; <name> += step) { const int64_t <run> = ...; over
 * [0, count), or over a thread's items of plan->columns_each. */
static void put_runs(const struct ul_contract_out *out, uint32_t indent, const char *name,
                     const char *run, int64_t count, int64_t step)
{
    const struct ul_contract_plan *plan = out->plan;
    if (plan->shares <= 1) {
        ul_contract_line(out, indent, "for (int64_t %s = 0; %s < %" PRId64 "; %s += %" PRId64 ") {",
                         name, name, count, name, step);
        ul_contract_line(out, indent + 1,
                         "const int64_t %s = ul_run(%" PRId64 " - %s, %" PRId64 ");", run, count,
                         name, step);
        return;
    }
    ul_contract_line(out, indent,
                     "const int64_t t_last = ul_run(%" PRId64 ", t_share.end * %" PRId64 ");",
                     count, plan->columns_each);
    ul_contract_line(out, indent,
                     "for (int64_t %s = t_share.begin * %" PRId64 "; %s < t_last; %s += %" PRId64
                     ") {",
                     name, plan->columns_each, name, name, step);
    ul_contract_line(out, indent + 1, "const int64_t %s = ul_run(t_last - %s, %" PRId64 ");", run,
                     name, step);
}

/* For few rows: runs of sums to which b's rows are added one after the other, as they are in
 * memory. */
static void put_row(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    put_scratch(out, indent, "sums", plan->type, 0);
    if (plan->packs_a)
        put_scratch(out, indent, "as", plan->a_type, plan->sums_bytes);
    ul_contract_line(out, indent,
                     "const int64_t t_m = 0, t_rows = %" PRId64 ", t_a_k = %" PRId64 ";", plan->m,
                     plan->packs_a ? 1 : stride_of(&c->a.at, &plan->a_k));
    ul_contract_line(out, indent, plan->group > 1 ? "(void)t_m, (void)t_a_k;" : "(void)t_m;");
    put_runs(out, indent, "t_n", "t_cols", plan->n, plan->row_cols);
    ul_contract_split(out, indent + 1, &plan->b_n, "t_s", "t_n");
    ul_contract_line(out, indent + 1, "for (int64_t t_i = 0; t_i < %" PRId64 "; t_i++)",
                     plan->m * plan->row_cols);
    ul_contract_line(out, indent + 1, "    t_sums[t_i] = 0;");
    ul_contract_line(out, indent + 1,
                     "for (int64_t t_kb = 0; t_kb < %" PRId64 "; t_kb += %" PRId64 ") {", plan->k,
                     plan->depth);
    ul_contract_line(out, indent + 2,
                     "const int64_t t_ke = t_kb + ul_run(%" PRId64 " - t_kb, %" PRId64 ");",
                     plan->k, plan->depth);
    if (plan->packs_a) {
        ul_contract_pack_a(out, indent + 2);
        ul_contract_line(out, indent + 2, "const %s *t_from = t_as;", plan->a_type);
    } else {
        ul_contract_line(out, indent + 2,
                         "const %s *t_from = (const %s *)b%" PRIu32 " + t_a + t_kb * t_a_k;",
                         plan->a_type, plan->a_type, c->a.buffer);
    }
    bool flat = plan->b_plain && plan->b_n.count == 1 && plan->b_k.count == 1 &&
                stride_of(&c->b.at, &plan->b_n) == 1;
    if (plan->group > 1)
        ul_contract_line(
            out, indent + 2,
            "ul_add_rows_%s(t_sums, %" PRId64 ", t_from, %" PRId64 ", (const %s *)b%" PRIu32
            " + t_b + t_s0 + t_kb * %" PRId64 ", %" PRId64 ", t_ke - t_kb, t_rows, t_cols);",
            plan->products, plan->row_cols,
            plan->packs_a ? ul_contract_a_pitch(plan) : stride_of(&c->a.at, &plan->a_m),
            plan->b_type, c->b.buffer, stride_of(&c->b.at, &plan->b_k),
            stride_of(&c->b.at, &plan->b_k));
    else if (flat)
        ul_contract_line(
            out, indent + 2,
            "ul_add_rows_%s(t_sums, %" PRId64 ", t_from, %" PRId64 ", t_a_k, (const %s *)b%" PRIu32
            " + t_b + t_s0 + t_kb * %" PRId64 ", %" PRId64 ", t_ke - t_kb, t_rows, t_cols);",
            plan->tag, plan->row_cols,
            plan->packs_a ? plan->depth : stride_of(&c->a.at, &plan->a_m), plan->type, c->b.buffer,
            stride_of(&c->b.at, &plan->b_k), stride_of(&c->b.at, &plan->b_k));
    else
        ul_contract_columns(out, indent + 2, UL_CONTRACT_ACCUMULATE);
    ul_contract_line(out, indent + 1, "}");
    ul_contract_epilogue(out, indent + 1, "t_sums", plan->row_cols);
    ul_contract_line(out, indent, "}");
}

/* t_dots = the products of the vector with rows of the matrix: all at once where they are a stride
 * apart, else one by one. */
static void put_dots(const struct ul_contract_out *out, uint32_t indent, bool by_column)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    const struct ul_operand *matrix = by_column ? &c->b : &c->a;
    const struct ul_operand *vector = by_column ? &c->a : &c->b;
    const struct ul_contract_dims *dims = by_column ? &plan->b_n : &plan->a_m;
    const char *at = by_column ? "t_n" : "t_m", *run = by_column ? "t_cols" : "t_rows";
    char vector_base = by_column ? 'a' : 'b', matrix_base = by_column ? 'b' : 'a', value[32];
    const char *type = by_column ? plan->a_type : plan->b_type;
    const char *other = by_column ? plan->b_type : plan->a_type;
    char products[8];
    snprintf(products, sizeof products, "%s", plan->products);
    if (plan->group > 1 && !by_column) /* the vector's type first */
        snprintf(products, sizeof products, "%.2s%.2s", plan->products + 2, plan->products);
    if (dims->count == 1) {
        int64_t stride = stride_of(&matrix->at, dims);
        ul_contract_line(out, indent,
                         "ul_dots_%s(t_dots, (const %s *)b%" PRIu32 " + t_%c, (const %s *)b%" PRIu32
                         " + t_%c + %" PRId64 " * %s, %" PRId64 ", %" PRId64 ", %s);",
                         products, type, vector->buffer, vector_base, other, matrix->buffer,
                         matrix_base, stride, at, stride, plan->k, run);
        return;
    }
    ul_contract_line(out, indent, "for (int64_t t_i = 0; t_i < %s; t_i++) {", run);
    snprintf(value, sizeof value, "(%s + t_i)", at);
    ul_contract_split(out, indent + 1, dims, "t_c", value);
    ul_contract_indent(out, indent + 1);
    ul_text_printf(out->text,
                   "t_dots[t_i] = ul_dot_%s((const %s *)b%" PRIu32 " + t_%c, (const %s *)b%" PRIu32
                   " + t_%c",
                   products, type, vector->buffer, vector_base, other, matrix->buffer, matrix_base);
    ul_contract_strides(out, &matrix->at, dims, "t_c");
    ul_text_printf(out->text, ", %" PRId64 ");\n", plan->k);
    ul_contract_line(out, indent, "}");
}

/* For one row or one column with both operands contiguous along k: dot products, some at a time so
 * that the epilogue is a loop. */
static void put_dot(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    bool by_column = plan->m == 1;
    const char *at = by_column ? "t_n" : "t_m", *run = by_column ? "t_cols" : "t_rows";
    ul_contract_line(out, indent, "const int64_t %s = 0, %s = 1;", by_column ? "t_m" : "t_n",
                     by_column ? "t_rows" : "t_cols");
    ul_contract_line(out, indent, "(void)%s, (void)%s;", by_column ? "t_m" : "t_n",
                     by_column ? "t_rows" : "t_cols");
    put_runs(out, indent, at, run, by_column ? plan->n : plan->m, 64);
    ul_contract_line(out, indent + 1, "UL_LOCAL %s t_dots[64];", plan->type);
    put_dots(out, indent + 1, by_column);
    ul_contract_epilogue(out, indent + 1, "t_dots", by_column ? 0 : 1);
    ul_contract_line(out, indent, "}");
}

/* base + strides of every dimension, named like the kernel's variables. */
static void put_plain_index(const struct ul_contract_out *out, const char *base,
                            const struct ul_affine *at)
{
    const struct ul_contraction *c = out->plan->contraction;
    ul_text_put(out->text, base);
    for (uint32_t d = 0; d < c->m_count + c->n_count + c->k_count; d++)
        if (at->strides[d] != 0)
            ul_text_printf(out->text, " + %" PRId64 " * v%" PRIu32, at->strides[d], c->vars[d]);
}

static void put_plain_operand(const struct ul_contract_out *out, uint32_t indent, char name,
                              const struct ul_operand *operand)
{
    char base[24], target[24];
    const char *type = out->plan->type;
    snprintf(target, sizeof target, "t_%c", name);
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "%s t_x%c = (%s)%.17g;\n", type, name, type, operand->outside);
    ul_contract_indent(out, indent);
    for (uint32_t b = 0; b < operand->bound_count; b++) {
        snprintf(base, sizeof base, "t_%cb%" PRIu32, name, b);
        ul_text_put(out->text, b == 0 ? "if ((uint64_t)(" : " && (uint64_t)(");
        put_plain_index(out, base, &operand->bounds[b].at);
        ul_text_printf(out->text, ") < %" PRId64 "u", operand->bounds[b].extent);
    }
    ul_text_put(out->text, operand->bound_count == 0 ? "{\n" : ") {\n");
    ul_contract_indent(out, indent + 1);
    ul_text_put(out->text, "const int64_t t_at = ");
    put_plain_index(out, target, &operand->at);
    ul_text_put(out->text, ";\n");
    snprintf(target, sizeof target, "t_x%c", name);
    ul_contract_value(out, indent + 1, operand, "t_at", target);
    ul_contract_line(out, indent, "}");
}

static void put_plain_loop(const struct ul_contract_out *out, uint32_t indent, uint32_t d)
{
    const struct ul_contraction *c = out->plan->contraction;
    uint32_t var = c->vars[d];
    if (out->plan->shares > 1 && d == ul_contract_shared_dim(c))
        ul_contract_line(out, indent,
                         "for (int64_t v%" PRIu32 " = t_share.begin; v%" PRIu32
                         " < t_share.end; v%" PRIu32 "++) {",
                         var, var, var);
    else
        ul_contract_line(out, indent,
                         "for (int64_t v%" PRIu32 " = 0; v%" PRIu32 " < %" PRId64 "; v%" PRIu32
                         "++) {",
                         var, var, c->extents[d], var);
}

/* Plain loops over m, n and k. */
static void put_plain(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    uint32_t outer = c->m_count + c->n_count, inner = outer + c->k_count;
    for (uint32_t d = 0; d < outer; d++)
        put_plain_loop(out, indent + d, d);
    ul_contract_line(out, indent + outer, "%s t_sum = 0;", plan->type);
    for (uint32_t d = outer; d < inner; d++)
        put_plain_loop(out, indent + d, d);
    put_plain_operand(out, indent + inner, 'a', &c->a);
    put_plain_operand(out, indent + inner, 'b', &c->b);
    if (plan->tag[0] == 'f')
        ul_contract_line(out, indent + inner, "t_sum = ul_fma_%s(t_xa, t_xb, t_sum);", plan->tag);
    else
        ul_contract_line(out, indent + inner, "t_sum += t_xa * t_xb;");
    for (uint32_t d = inner; d-- > outer;)
        ul_contract_line(out, indent + d, "}");
    if (plan->epilogue_uses.mentions_acc)
        ul_contract_line(out, indent + outer, "const %s v%" PRIu32 " = (%s)t_sum;", plan->acc_type,
                         c->acc, plan->acc_type);
    out->printer->put_statements(out->printer->context, c->epilogue, indent + outer);
    for (uint32_t d = outer; d-- > 0;)
        ul_contract_line(out, indent + d, "}");
}

static void put_schedule(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    switch (plan->schedule) {
    case UL_CONTRACT_PLAIN:
        put_plain(out, indent);
        break;
    case UL_CONTRACT_TILE:
        put_tile(out, indent);
        break;
    case UL_CONTRACT_WINDOW:
        put_scratch(out, indent, "panel", plan->group > 1 ? "uint8_t" : plan->type, 0);
        put_scratch(out, indent, "sums", plan->type, plan->panel_bytes);
        if (plan->packs_a)
            put_scratch(out, indent, "as", plan->a_type, plan->panel_bytes + plan->sums_bytes);
        ul_contract_window_print_c(out, indent);
        break;
    case UL_CONTRACT_ROW:
        put_row(out, indent);
        break;
    case UL_CONTRACT_DOT:
        put_dot(out, indent);
        break;
    }
}

void ul_contract_print_c(const struct ul_contract_printer *printer,
                         const struct ul_contraction *contraction, uint32_t indent)
{
    struct ul_arena arena;
    struct ul_contract_plan plan;
    struct ul_contract_out out = {.printer = printer,
                                  .plan = &plan,
                                  .text = printer->text,
                                  .coordinate = "int64_t",
                                  .unused = "",
                                  .is_narrow = true};
    ul_arena_init(&arena);
    ul_contract_plan_init(&plan, printer->kernel, contraction, &arena);
    ul_contract_share(&plan, printer->shares);
    ul_contract_line(&out, indent, "{ /* %" PRId64 " x %" PRId64 " sums of %" PRId64 " */", plan.m,
                     plan.n, plan.k);
    put_bases(&out, indent + 1);
    if (plan.shares > 1) {
        ul_contract_line(&out, indent + 1, "UL_PARALLEL(run)");
        ul_contract_line(&out, indent + 1, "{");
        ul_contract_line(&out, indent + 2,
                         "const struct ul_share t_share = ul_share(%" PRId64 ", %" PRIu32 ");",
                         plan.items, plan.shares);
        put_schedule(&out, indent + 2);
        ul_contract_line(&out, indent + 1, "}");
    } else {
        put_schedule(&out, indent + 1);
    }
    ul_contract_line(&out, indent, "}");
    ul_arena_done(&arena);
}
