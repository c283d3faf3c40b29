/* SPDX-License-Identifier: Apache-2.0 */
/* Reads operands: b along runs of columns, a by rows.
 *
 * b is visited as for k { for runs of columns { ... } }, a run being the part of the current
 * columns in which only the innermost dimension moves. The bounds of a run (the padding of a
 * convolution) are turned into a range [t_lo, t_hi) once per run, so that the loops inside have no
 * conditions:
 *
 *     columns     t_j                 t_j + t_run
 *                  | outside | inside | outside |
 *                            t_lo     t_hi          relative to t_j */
#include "codegen/kernel/contract_internal.h"

#include <inttypes.h>
#include <string.h>

void ul_contract_outside(const struct ul_contract_out *out, const struct ul_operand *operand)
{
    enum ul_dtype dtype = out->plan->contraction->acc_dtype;
    if (dtype == UL_F32 || dtype == UL_F64)
        ul_text_printf(out->text, "(%s)%.17g", out->plan->type, operand->outside);
    else
        ul_text_printf(out->text, "(%s)%" PRId64, ul_contract_type_of(out, operand),
                       (int64_t)operand->outside);
}

/* An affine index as text: the name of its base, then the strides of k at `k` and of the other
 * class at `other`. */
static void put_index(const struct ul_contract_out *out, const char *base,
                      const struct ul_affine *at, const struct ul_contract_dims *k,
                      const char *k_prefix, const struct ul_contract_dims *other,
                      const char *other_prefix)
{
    ul_text_put(out->text, base);
    ul_contract_strides(out, at, k, k_prefix);
    ul_contract_strides(out, at, other, other_prefix);
}

/* [t_lo, t_hi) of one bound: 0 <= t_e + stride * i < extent for i from the start of the run. */
static void put_bound(const struct ul_contract_out *out, uint32_t indent, uint32_t b)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand_bound *bound = &plan->contraction->b.bounds[b];
    char base[24];
    snprintf(base, sizeof base, "t_bb%" PRIu32, b);
    int64_t stride = bound->at.strides[plan->b_n.carrier[plan->b_n.count - 1]];
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "const int64_t t_e%" PRIu32 " = ", b);
    put_index(out, base, &bound->at, &plan->b_k, "t_k", &plan->b_n, "t_c");
    ul_text_put(out->text, ";\n");
    if (stride == 0)
        ul_contract_line(out, indent,
                         "t_hi = t_e%" PRIu32 " >= 0 && t_e%" PRIu32 " < %" PRId64 " ? t_hi : 0;",
                         b, b, bound->extent);
    else
        ul_contract_line(out, indent,
                         "ul_clip_run(&t_lo, &t_hi, t_e%" PRIu32 ", %" PRId64 ", %" PRId64 ");", b,
                         stride, bound->extent);
}

/* The loop over columns [from, to) of a run, element by element; `loaded` is the stored element, if
 * not NULL. */
static void put_loop(const struct ul_contract_out *out, uint32_t indent, const char *from,
                     const char *to, const char *loaded, enum ul_contract_action action)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    uint32_t last = plan->b_n.count - 1;
    int64_t stride = c->b.at.strides[plan->b_n.carrier[last]];
    char index[96], position[32], target[64];
    ul_contract_line(out, indent, "UL_IVDEP");
    ul_contract_line(out, indent, "for (int64_t t_i = %s; t_i < %s; t_i++) {", from, to);
    snprintf(position, sizeof position, "t_c%" PRIu32 " + t_i", last);
    ul_contract_declare(out, indent + 1, &plan->b_uses, &plan->b_k, c->m_count + c->n_count,
                        c->k_count, "t_k", NULL);
    ul_contract_declare(out, indent + 1, &plan->b_uses, &plan->b_n, c->m_count, c->n_count, "t_c",
                        position);
    snprintf(index, sizeof index, "t_at + %" PRId64 " * t_i", stride);
    if (action == UL_CONTRACT_PACK)
        snprintf(target, sizeof target, "t_to[t_j + t_i]");
    else
        snprintf(target, sizeof target, "const %s t_x", plan->b_type);
    if (loaded != NULL)
        ul_contract_value_of(out, indent + 1, &c->b, loaded, target);
    else
        ul_contract_value(out, indent + 1, &c->b, index, target);
    if (action == UL_CONTRACT_ACCUMULATE)
        ul_contract_line(out, indent + 1, "t_sums[t_j + t_i] += t_f * t_x;");
    ul_contract_line(out, indent, "}");
}

/* Opens a loop over UL_CONTRACT_FEW packed elements at a time: those from the `first` on, of [from,
 * to), as t_few[element - t_u]. */
static void open_unpacked(const struct ul_contract_out *out, uint32_t indent,
                          const struct ul_operand *operand, const char *from, const char *to)
{
    ul_contract_line(out, indent, "for (int64_t t_u = %s, t_ue; t_u < %s; t_u = t_ue) {", from, to);
    ul_contract_line(out, indent + 1, "int8_t t_few[%d];", UL_CONTRACT_FEW);
    ul_contract_line(out, indent + 1, "t_ue = t_u + ul_run(%s - t_u, %d);", to, UL_CONTRACT_FEW);
    ul_contract_indent(out, indent + 1);
    ul_text_printf(out->text, "ul_unpack_%s(t_few, b%" PRIu32 ", t_at + t_u, t_ue - t_u);\n",
                   ul_dtype_get(operand->packed)->name, operand->buffer);
}

/* Columns [t_lo, t_hi) of the run, whose elements are contiguous, packed. */
static void put_unpacked(const struct ul_contract_out *out, uint32_t indent,
                         enum ul_contract_action action)
{
    open_unpacked(out, indent, &out->plan->contraction->b, "t_lo", "t_hi");
    put_loop(out, indent + 1, "t_u", "t_ue", "t_few[t_i - t_u]", action);
    ul_contract_line(out, indent, "}");
}

/* Columns [t_lo, t_hi) of the run, whose first element is at t_at. */
static void put_inside(const struct ul_contract_out *out, uint32_t indent,
                       enum ul_contract_action action)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand *b = &plan->contraction->b;
    int64_t stride = b->at.strides[plan->b_n.carrier[plan->b_n.count - 1]];
    const struct ul_buffer *buffer = &out->printer->kernel->buffers[b->buffer];
    bool bytes = ul_contract_stores_bytes(plan, b);
    bool same = bytes || (b->transform == UL_NONE && plan->b_same);
    const char *tag = bytes ? "u8" : plan->tag, *type = bytes ? "uint8_t" : plan->type;
    if (same && stride > 1 && action == UL_CONTRACT_PACK) {
        ul_contract_line(out, indent,
                         "%s_%s(%st_to + t_j + t_lo, (const %s *)b%" PRIu32 ", t_at + %" PRId64
                         " * t_lo, %" PRId64 ", 0, t_hi - t_lo%s);",
                         bytes ? "ul_pack_inside" : "ul_pack_row", tag, bytes ? "(uint8_t *)" : "",
                         type, b->buffer, stride, stride, bytes ? "" : ", t_hi - t_lo");
        return;
    }
    if (b->packed != UL_DTYPE_NONE && stride == 1) {
        put_unpacked(out, indent, action);
        return;
    }
    if (!same || stride != 1 || action == UL_CONTRACT_ACCUMULATE) {
        put_loop(out, indent, "t_lo", "t_hi", NULL, action);
        return;
    }
    ul_contract_line(out, indent, "if (t_lo < t_hi)");
    ul_contract_line(out, indent,
                     "    ul_pack_%s(%st_to + t_j + t_lo, (const %s *)b%" PRIu32
                     " + t_at + t_lo, t_hi - t_lo, %" PRIu64 " - (t_at + t_lo));",
                     tag, bytes ? "(uint8_t *)" : "", type, b->buffer, buffer->element_count);
}

/* Columns of the run that are outside. */
static void put_outsides(const struct ul_contract_out *out, uint32_t indent,
                         enum ul_contract_action action, bool before)
{
    const struct ul_operand *b = &out->plan->contraction->b;
    if (action == UL_CONTRACT_ACCUMULATE && b->outside == 0)
        return; /* adds nothing */
    ul_contract_line(out, indent, "for (int64_t t_i = %s; t_i < %s; t_i++)", before ? "0" : "t_hi",
                     before ? "t_lo" : "t_run");
    ul_contract_indent(out, indent + 1);
    ul_text_put(out->text,
                action == UL_CONTRACT_PACK ? "t_to[t_j + t_i] = " : "t_sums[t_j + t_i] += t_f * ");
    ul_contract_outside(out, b);
    ul_text_put(out->text, ";\n");
}

/* One run of columns: t_c are the coordinates of its first column, t_run its length. */
static void put_run(const struct ul_contract_out *out, uint32_t indent,
                    enum ul_contract_action action)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand *b = &plan->contraction->b;
    ul_contract_indent(out, indent);
    ul_text_put(out->text, "const int64_t t_at = ");
    put_index(out, "t_b", &b->at, &plan->b_k, "t_k", &plan->b_n, "t_c");
    ul_text_put(out->text, ";\n");
    if (b->bound_count == 0) {
        ul_contract_line(out, indent, "const int64_t t_lo = 0, t_hi = t_run;");
    } else {
        ul_contract_line(out, indent, "int64_t t_lo = 0, t_hi = t_run;");
        for (uint32_t i = 0; i < b->bound_count; i++)
            put_bound(out, indent, i);
        ul_contract_line(out, indent, "t_lo = t_lo < t_hi ? t_lo : t_hi;");
        put_outsides(out, indent, action, true);
    }
    put_inside(out, indent, action);
    if (b->bound_count > 0)
        put_outsides(out, indent, action, false);
}

/* The runs of columns t_n + [0, t_cols); their coordinates t_s are split already. */
static void put_runs(const struct ul_contract_out *out, uint32_t indent,
                     enum ul_contract_action action)
{
    const struct ul_contract_dims *n = &out->plan->b_n;
    uint32_t last = n->count - 1;
    for (uint32_t i = 0; i < n->count; i++) {
        char first[24];
        snprintf(first, sizeof first, "t_s%" PRIu32, i);
        ul_contract_coordinate(out, indent, "t_c", i, first);
    }
    if (n->count == 1) {
        ul_contract_line(out, indent, "const int64_t t_j = 0, t_run = t_cols;");
        put_run(out, indent, action);
        return;
    }
    ul_contract_line(out, indent, "for (int64_t t_j = 0, t_run; t_j < t_cols; t_j += t_run) {");
    ul_contract_line(out, indent + 1, "t_run = ul_run(%" PRId64 " - t_c%" PRIu32 ", t_cols - t_j);",
                     n->extents[last], last);
    put_run(out, indent + 1, action);
    ul_contract_step(out, indent + 1, n, "t_c", true);
    ul_contract_line(out, indent, "}");
}

/* Whether columns are contiguous along k: squares of them are transposed. */
static bool runs_across(const struct ul_contract_plan *plan)
{
    const struct ul_affine *at = &plan->contraction->b.at;
    bool is_stored = plan->b_plain || (ul_contract_stores_bytes(plan, &plan->contraction->b) &&
                                       plan->contraction->b.bound_count == 0);
    return is_stored && plan->b_n.count == 1 && plan->b_k.count == 1 &&
           at->strides[plan->b_k.carrier[0]] == 1 && at->strides[plan->b_n.carrier[0]] != 1;
}

static void put_across(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    int64_t stride = plan->contraction->b.at.strides[plan->b_n.carrier[0]];
    ul_contract_line(out, indent,
                     "ul_pack_across_%s(t_panel, (const %s *)b%" PRIu32 " + t_b + %" PRId64
                     " * t_s0 + t_kb, t_ke - t_kb, t_cols, %" PRId64 ");",
                     ul_contract_is_bytes(plan) ? "u8" : plan->tag,
                     ul_contract_is_bytes(plan) ? "uint8_t" : plan->type,
                     plan->contraction->b.buffer, stride, stride);
}

/* Where the columns of one k go: a row of the panel, or a line that is interleaved with those of
 * the other k of its group. */
static void put_to(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    if (plan->group == 1)
        ul_contract_line(out, indent, "%s *t_to = t_panel + (t_k - t_kb) * %" PRId64 ";",
                         plan->type, plan->block_cols);
    else
        ul_contract_line(out, indent,
                         "%s *t_to = t_lines + (t_k - t_kb) %% %" PRId64 " * %" PRId64 ";",
                         plan->b_type, plan->group, UL_CONTRACT_LINE_BYTES / plan->packed_bytes);
}

static void put_weave(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    ul_contract_line(out, indent, "if ((t_k - t_kb) %% %" PRId64 " == %" PRId64 ")", plan->group,
                     plan->group - 1);
    ul_contract_line(
        out, indent, "    ul_weave_%s(t_panel + (t_k - t_kb) / %" PRId64 " * %d, t_lines);",
        ul_contract_is_bytes(plan) ? "u8" : "i16", plan->group, UL_CONTRACT_BLOCK_BYTES);
}

/* One k of the columns. */
static void put_k(const struct ul_contract_out *out, uint32_t indent,
                  enum ul_contract_action action)
{
    const struct ul_contract_plan *plan = out->plan;
    if (action == UL_CONTRACT_PACK)
        put_to(out, indent);
    else
        ul_contract_line(out, indent, "const %s t_f = t_from[(t_k - t_kb) * t_a_k];", plan->type);
    put_runs(out, indent, action);
    if (action != UL_CONTRACT_PACK)
        return;
    ul_contract_line(out, indent,
                     "for (int64_t t_i = t_cols; t_i < %" PRId64 "; t_i++)\n"
                     "%*st_to[t_i] = 0;",
                     plan->block_cols, (int)(4 * (indent + 1)), "");
    if (plan->group > 1)
        put_weave(out, indent);
}

void ul_contract_columns(const struct ul_contract_out *out, uint32_t indent,
                         enum ul_contract_action action)
{
    const struct ul_contract_plan *plan = out->plan;
    bool flat = plan->b_k.count == 1, weaves = action == UL_CONTRACT_PACK && plan->group > 1;
    if (action == UL_CONTRACT_PACK && runs_across(plan)) {
        put_across(out, indent);
        return;
    }
    if (!flat || weaves)
        ul_contract_line(out, indent++, "{");
    if (weaves)
        ul_contract_line(out, indent, "UL_LOCAL %s t_lines[%" PRId64 "];", plan->b_type,
                         UL_CONTRACT_LINE_BYTES / plan->packed_bytes * plan->group);
    if (!flat)
        ul_contract_split(out, indent, &plan->b_k, "t_k", "t_kb");
    ul_contract_line(out, indent, "for (int64_t t_k = t_kb; t_k < t_ke; t_k++) {");
    if (flat)
        ul_contract_coordinate(out, indent + 1, "t_k", 0, "t_k");
    put_k(out, indent + 1, action);
    if (!flat)
        ul_contract_step(out, indent + 1, &plan->b_k, "t_k", false);
    ul_contract_line(out, indent, "}");
    if (weaves)
        ul_contract_line(out, indent,
                         "ul_weave_rest_%s(t_panel + (t_ke - t_kb) / %" PRId64
                         " * %d, t_lines, (t_ke - t_kb) %% %" PRId64 ");",
                         ul_contract_is_bytes(plan) ? "u8" : "i16", plan->group,
                         UL_CONTRACT_BLOCK_BYTES, plan->group);
    if (!flat || weaves)
        ul_contract_line(out, indent - 1, "}");
}

/* base + strides; in the type of coordinates, where that differs, except for the base of an
 * index. */
static void put_place_index(const struct ul_contract_out *out, const char *base,
                            const struct ul_affine *at, const struct ul_contract_place *places,
                            uint32_t count, bool is_index)
{
    bool is_plain = strcmp(out->coordinate, "int64_t") == 0;
    if (is_plain)
        ul_text_put(out->text, base);
    else if (is_index)
        ul_text_printf(out->text, "%s + (0", base);
    else
        ul_text_printf(out->text, "(%s)%s", out->coordinate, base);
    for (uint32_t i = 0; i < count; i++)
        ul_contract_strides(out, at, places[i].dims, places[i].prefix);
    if (!is_plain && is_index)
        ul_text_put(out->text, ")");
}

void ul_contract_position(const struct ul_contract_out *out, uint32_t indent, char name,
                          const struct ul_contract_place *places, uint32_t count)
{
    const struct ul_contraction *c = out->plan->contraction;
    const struct ul_operand *operand = name == 'a' ? &c->a : &c->b;
    char base[24];
    for (uint32_t b = 0; b < operand->bound_count; b++) {
        snprintf(base, sizeof base, "t_%cb%" PRIu32, name, b);
        ul_contract_indent(out, indent);
        ul_text_printf(out->text, "const %s t_e%" PRIu32 " = ", out->coordinate, b);
        put_place_index(out, base, &operand->bounds[b].at, places, count, false);
        ul_text_put(out->text, ";\n");
    }
    snprintf(base, sizeof base, "t_%c", name);
    ul_contract_indent(out, indent);
    ul_text_put(out->text, "const int64_t t_at = ");
    put_place_index(out, base, &operand->at, places, count, true);
    ul_text_put(out->text, ";\n");
}

void ul_contract_if_inside(const struct ul_contract_out *out, uint32_t indent,
                           const struct ul_operand *operand)
{
    ul_contract_indent(out, indent);
    for (uint32_t b = 0; b < operand->bound_count; b++)
        ul_text_printf(out->text, "%s t_e%" PRIu32 " >= 0 && t_e%" PRIu32 " < %" PRId64,
                       b == 0 ? "if (" : " &&", b, b, operand->bounds[b].extent);
    ul_text_put(out->text, ") {\n");
}

void ul_contract_element(const struct ul_contract_out *out, uint32_t indent, char name,
                         const struct ul_contract_uses *uses,
                         const struct ul_contract_place *places, uint32_t count, const char *target)
{
    const struct ul_contraction *c = out->plan->contraction;
    const struct ul_operand *operand = name == 'a' ? &c->a : &c->b;
    for (uint32_t i = count; i-- > 0;)
        ul_contract_declare(out, indent, uses, places[i].dims, places[i].first, places[i].count,
                            places[i].prefix, NULL);
    ul_contract_position(out, indent, name, places, count);
    if (operand->bound_count > 0) {
        ul_contract_indent(out, indent);
        ul_text_printf(out->text, "%s = ", target);
        ul_contract_outside(out, operand);
        ul_text_put(out->text, ";\n");
        ul_contract_if_inside(out, indent++, operand);
    }
    ul_contract_value(out, indent, operand, "t_at", target);
    if (operand->bound_count > 0)
        ul_contract_line(out, indent - 1, "}");
}

int64_t ul_contract_a_pitch(const struct ul_contract_plan *plan)
{
    return (plan->depth + plan->group - 1) / plan->group * plan->group;
}

/* Rows of bytes that are contiguous along k; t_q of the row is known. */
static void put_a_line(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand *a = &plan->contraction->a;
    ul_contract_indent(out, indent);
    ul_text_printf(out->text,
                   "ul_pack_line(t_as + t_r * %" PRId64 ", (const uint8_t *)b%" PRIu32 " + t_a",
                   ul_contract_a_pitch(plan), a->buffer);
    ul_contract_strides(out, &a->at, &plan->a_m, "t_q");
    ul_text_printf(out->text,
                   " + t_kb, t_ke - t_kb, (t_ke - t_kb + %" PRId64 ") / %" PRId64 " * %" PRId64
                   ");\n",
                   plan->group - 1, plan->group, plan->group);
}

/* Whether packed integers are multiplied unchanged, as bytes. Casts keep them. */
static bool is_unpacked_alone(const struct ul_contract_plan *plan, const struct ul_kernel *kernel,
                              const struct ul_operand *operand)
{
    ul_kx x = operand->transform;
    while (x != UL_NONE && kernel->exprs[x].op == UL_KX_CAST &&
           ul_dtype_get(kernel->exprs[x].dtype)->is_integer &&
           ul_dtype_get(kernel->exprs[x].dtype)->is_signed &&
           ul_dtype_get(kernel->exprs[x].dtype)->bits >= 8)
        x = kernel->exprs[x].a;
    return ul_contract_is_bytes(plan) &&
           (x == UL_NONE ||
            (kernel->exprs[x].op == UL_KX_VAR && kernel->exprs[x].var == operand->loaded));
}

/* Rows that are packed along k. */
static void put_a_unpacked(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    char target[64];
    UL_ASSERT(c->a.packed != UL_DTYPE_NONE);
    ul_contract_indent(out, indent);
    ul_text_put(out->text, "const int64_t t_at = t_a");
    ul_contract_strides(out, &c->a.at, &plan->a_m, "t_q");
    ul_text_put(out->text, ";\n");
    if (is_unpacked_alone(plan, out->printer->kernel, &c->a)) {
        ul_contract_line(out, indent,
                         "ul_unpack_%s(t_as + t_r * %" PRId64 ", b%" PRIu32
                         ", t_at + t_kb, t_ke - t_kb);",
                         ul_dtype_get(c->a.packed)->name, ul_contract_a_pitch(plan), c->a.buffer);
        return;
    }
    open_unpacked(out, indent, &c->a, "t_kb", "t_ke");
    ul_contract_line(out, indent + 1, "UL_IVDEP");
    ul_contract_line(out, indent + 1, "for (int64_t t_k = t_u; t_k < t_ue; t_k++) {");
    ul_contract_coordinate(out, indent + 2, "t_k", 0, "t_k");
    ul_contract_declare(out, indent + 2, &plan->a_uses, &plan->a_m, 0, c->m_count, "t_q", NULL);
    ul_contract_declare(out, indent + 2, &plan->a_uses, &plan->a_k, c->m_count + c->n_count,
                        c->k_count, "t_k", NULL);
    snprintf(target, sizeof target, "t_as[t_r * %" PRId64 " + t_k - t_kb]",
             ul_contract_a_pitch(plan));
    ul_contract_value_of(out, indent + 2, &c->a, "t_few[t_k - t_u]", target);
    ul_contract_line(out, indent + 1, "}");
    ul_contract_line(out, indent, "}");
}

/* Zeros up to whole groups. */
static void put_a_rest(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    if (plan->group > 1)
        ul_contract_line(out, indent,
                         "for (int64_t t_i = t_ke - t_kb; t_i %% %" PRId64
                         " != 0; t_i++)\n%*st_as[t_r * %" PRId64 " + t_i] = 0;",
                         plan->group, (int)(4 * (indent + 1)), "", ul_contract_a_pitch(plan));
}

void ul_contract_pack_a(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    bool flat = plan->a_k.count == 1;
    int64_t pitch = ul_contract_a_pitch(plan);
    ul_contract_line(out, indent, "for (int64_t t_r = 0; t_r < t_rows; t_r++) {");
    ul_contract_split(out, indent + 1, &plan->a_m, "t_q", "(t_m + t_r)");
    bool is_line = flat && c->a.bound_count == 0 && c->a.at.strides[plan->a_k.carrier[0]] == 1;
    if (ul_contract_stores_bytes(plan, &c->a) && is_line) {
        put_a_line(out, indent + 1);
        ul_contract_line(out, indent, "}");
        return;
    }
    if (c->a.packed != UL_DTYPE_NONE && is_line) {
        put_a_unpacked(out, indent + 1);
        put_a_rest(out, indent + 1);
        ul_contract_line(out, indent, "}");
        return;
    }
    if (!flat)
        ul_contract_split(out, indent + 1, &plan->a_k, "t_k", "t_kb");
    if (flat && c->a.bound_count == 0)
        ul_contract_line(out, indent + 1, "UL_IVDEP");
    ul_contract_line(out, indent + 1, "for (int64_t t_k = t_kb; t_k < t_ke; t_k++) {");
    if (flat)
        ul_contract_coordinate(out, indent + 2, "t_k", 0, "t_k");
    const struct ul_contract_place places[] = {
        {&plan->a_k, c->m_count + c->n_count, c->k_count, "t_k"},
        {&plan->a_m, 0, c->m_count, "t_q"}};
    char target[64];
    snprintf(target, sizeof target, "t_as[t_r * %" PRId64 " + t_k - t_kb]", pitch);
    ul_contract_element(out, indent + 2, 'a', &plan->a_uses, places, 2, target);
    if (!flat)
        ul_contract_step(out, indent + 2, &plan->a_k, "t_k", false);
    ul_contract_line(out, indent + 1, "}");
    put_a_rest(out, indent + 1);
    ul_contract_line(out, indent, "}");
}
