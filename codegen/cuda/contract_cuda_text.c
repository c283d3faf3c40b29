/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that the templates of runtime/cuda/ul_contract.cuh and
 * runtime/cuda/ul_attention.cuh call: operands at flat coordinates, and the epilogue, as lambdas
 * that see the kernel's variables. */
#include "codegen/cuda/contract_cuda_internal.h"

#include <inttypes.h>

struct ul_contract_printer ul_contract_cuda_base(const struct ul_contract_cuda_printer *printer)
{
    return (struct ul_contract_printer){.text = printer->text,
                                        .kernel = printer->kernel,
                                        .context = printer->context,
                                        .put_expression = printer->put_expression,
                                        .put_statements = printer->put_statements,
                                        .put_load = printer->put_load,
                                        .shares = 1};
}

const char *ul_contract_cuda_truth(bool value)
{
    return value ? "true" : "false";
}

static const struct ul_operand *operand_of(const struct ul_contract_out *out, char name)
{
    const struct ul_contraction *c = out->plan->contraction;
    return name == 'a' ? &c->a : &c->b;
}

void ul_contract_cuda_put_bases(const struct ul_contract_out *out, uint32_t indent, char name,
                                const char *type, int pack)
{
    const struct ul_operand *operand = operand_of(out, name);
    char text[24];
    snprintf(text, sizeof text, "%c", name);
    ul_contract_base(out, indent, text, operand->at.base);
    for (uint32_t i = 0; i < operand->bound_count; i++) {
        snprintf(text, sizeof text, "%cb%" PRIu32, name, i);
        ul_contract_base(out, indent, text, operand->bounds[i].at.base);
    }
    if (pack > 1)
        ul_contract_line(out, indent,
                         "const bool t_%c_aligned = ul_is_aligned<%d>((const %s *)b%" PRIu32
                         " + t_%c);",
                         name, pack, type, operand->buffer, name);
}

/* Reads the pack at t_at into t_x where its bounds hold. */
static void put_pack(const struct ul_contract_out *out, uint32_t indent,
                     const struct ul_contract_cuda_reader *reader)
{
    const struct ul_operand *operand = operand_of(out, reader->operand);
    char aligned[24] = "true";
    if (reader->pack > 1)
        snprintf(aligned, sizeof aligned, "t_%c_aligned", reader->operand);
    if (operand->bound_count > 0)
        ul_contract_if_inside(out, indent++, operand);
    ul_contract_line(out, indent, "t_x = ul_pack_read<%d>((const %s *)b%" PRIu32 " + t_at, %s);",
                     reader->pack, reader->type, operand->buffer, aligned);
    if (operand->bound_count == 0)
        return;
    ul_contract_line(out, indent - 1, "} else {");
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "t_x = ul_pack_fill<%s, %d>(", reader->type, reader->pack);
    ul_contract_outside(out, operand);
    ul_text_put(out->text, ");\n");
    ul_contract_line(out, indent - 1, "}");
}

/* return ul_source{...}; for the pack at t_at. */
static void put_source(const struct ul_contract_out *out, uint32_t indent, char name)
{
    const struct ul_operand *operand = operand_of(out, name);
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "return ul_source{(const uint16_t *)b%" PRIu32 " + t_at, ",
                   operand->buffer);
    for (uint32_t b = 0; b < operand->bound_count; b++)
        ul_text_printf(out->text, "%st_e%" PRIu32 " >= 0 && t_e%" PRIu32 " < %" PRId64,
                       b == 0 ? "" : " && ", b, b, operand->bounds[b].extent);
    ul_text_put(out->text, operand->bound_count == 0 ? "true};\n" : "};\n");
}

void ul_contract_cuda_put_reader(const struct ul_contract_out *out, uint32_t indent,
                                 const struct ul_contract_cuda_reader *reader)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    bool is_a = reader->operand == 'a';
    const struct ul_contract_dims *beside = is_a ? &plan->a_m : &plan->b_n;
    const struct ul_contract_dims *k = is_a ? &plan->a_k : &plan->b_k;
    const struct ul_contract_place places[] = {
        {k, c->m_count + c->n_count, c->k_count, "t_k"},
        {beside, is_a ? 0 : c->m_count, is_a ? c->m_count : c->n_count, is_a ? "t_m" : "t_n"}};
    ul_contract_line(out, indent, "const auto %s = [&](%s %s, %s %s) {", reader->function,
                     out->coordinate, reader->first, out->coordinate, reader->second);
    if (!reader->has_bases)
        ul_contract_cuda_put_bases(out, indent + 1, reader->operand, reader->type,
                                   reader->is_place ? 1 : reader->pack);
    ul_contract_split(out, indent + 1, k, "t_k", "t_fk");
    ul_contract_split(out, indent + 1, beside, places[1].prefix, is_a ? "t_fm" : "t_fn");
    if (reader->is_place) {
        ul_contract_position(out, indent + 1, reader->operand, places, 2);
        put_source(out, indent + 1, reader->operand);
        ul_contract_line(out, indent, "};");
        return;
    }
    ul_contract_line(out, indent + 1, "ul_pack_of<%s, %d> t_x;", reader->type, reader->pack);
    bool is_packed = operand_of(out, reader->operand)->packed != UL_DTYPE_NONE;
    if (is_packed) {
        ul_contract_line(out, indent + 1, "%s t_one;", plan->type);
        ul_contract_element(out, indent + 1, reader->operand, is_a ? &plan->a_uses : &plan->b_uses,
                            places, 2, "t_one");
        ul_contract_line(out, indent + 1, "t_x.put(0, (%s)t_one);", reader->type);
    } else if (reader->pack > 1 || reader->is_stored) {
        ul_contract_position(out, indent + 1, reader->operand, places, 2);
        put_pack(out, indent + 1, reader);
    } else {
        ul_contract_element(out, indent + 1, reader->operand, is_a ? &plan->a_uses : &plan->b_uses,
                            places, 2, "t_x.at[0]");
    }
    if (reader->widened_kind != NULL)
        ul_contract_line(out, indent + 1, "return ul_pack_widen<%s>(t_x);", reader->widened_kind);
    else
        ul_contract_line(out, indent + 1, "return t_x;");
    ul_contract_line(out, indent, "};");
}

void ul_contract_cuda_put_epilogue(const struct ul_contract_out *out, uint32_t indent,
                                   const char *sum)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    if (plan->epilogue_uses.mentions_acc)
        ul_contract_line(out, indent, "const %s v%" PRIu32 " = (%s)%s;", plan->acc_type, c->acc,
                         plan->acc_type, sum);
    out->printer->put_statements(out->printer->context, c->epilogue, indent);
}

void ul_contract_cuda_put_putter(const struct ul_contract_out *out, uint32_t indent,
                                 const char *name)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    const struct ul_contract_uses *uses = &plan->epilogue_uses;
    ul_contract_line(out, indent,
                     "const auto %s = [&]([[maybe_unused]] %s t_fm, [[maybe_unused]] %s t_fn, "
                     "[[maybe_unused]] %s t_sum) {",
                     name, out->coordinate, out->coordinate, plan->type);
    ul_contract_split(out, indent + 1, &plan->out_m, "t_m", "t_fm");
    ul_contract_split(out, indent + 1, &plan->out_n, "t_n", "t_fn");
    ul_contract_declare(out, indent + 1, uses, &plan->out_m, 0, c->m_count, "t_m", NULL);
    ul_contract_declare(out, indent + 1, uses, &plan->out_n, c->m_count, c->n_count, "t_n", NULL);
    ul_contract_cuda_put_epilogue(out, indent + 1, "t_sum");
    ul_contract_line(out, indent, "};");
}

int ul_contract_cuda_put_packs(const struct ul_contract_out *out, uint32_t indent,
                               const struct ul_contract_cuda_printer *printer, bool along_m)
{
    enum { WIDTH = 8 };
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    const struct ul_contract_uses *uses = &plan->epilogue_uses;
    const struct ul_contract_dims *dims = along_m ? &plan->out_m : &plan->out_n;
    uint32_t last = dims->count - 1, along = c->vars[dims->carrier[last]];
    int64_t rounds = dims->extents[last];
    if (!uses->mentions_acc || !printer->has_packs(printer->context, c, along, rounds, WIDTH))
        return 1;
    ul_contract_line(out, indent,
                     "const auto t_put_pack = [&](%s t_fm, %s t_fn, const ul_pack_of<%s, %d> "
                     "&t_sums) {",
                     out->coordinate, out->coordinate, plan->type, WIDTH);
    ul_contract_split(out, indent + 1, &plan->out_m, "t_m", "t_fm");
    ul_contract_split(out, indent + 1, &plan->out_n, "t_n", "t_fn");
    ul_contract_declare(out, indent + 1, uses, &plan->out_m, 0, c->m_count, "t_m", NULL);
    ul_contract_declare(out, indent + 1, uses, &plan->out_n, c->m_count, c->n_count, "t_n", NULL);
    printer->put_packs(printer->context, c, along, rounds, WIDTH, indent + 1);
    ul_contract_line(out, indent + 1, "UL_ROLLED");
    ul_contract_line(out, indent + 1, "for (int t_u = 0; t_u < %d; t_u++)", WIDTH);
    ul_contract_line(out, indent + 1, "    t_put(t_fm%s, t_fn%s, t_sums.at[t_u]);",
                     along_m ? " + t_u" : "", along_m ? "" : " + t_u");
    ul_contract_line(out, indent, "};");
    return WIDTH;
}
