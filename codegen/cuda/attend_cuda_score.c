/* SPDX-License-Identifier: Apache-2.0 */
/* The text of attention's scores on target cuda, and of the results of rows without keys. */
#include "codegen/cuda/attend_cuda_internal.h"

#include <inttypes.h>

struct ul_contract_out ul_attend_cuda_out(const struct ul_contract_printer *printer,
                                          const struct ul_contract_plan *plan,
                                          const char *coordinate)
{
    return (struct ul_contract_out){.printer = printer,
                                    .plan = plan,
                                    .text = printer->text,
                                    .coordinate = coordinate,
                                    .unused = "[[maybe_unused]] "};
}

static void put_result(const struct ul_contract_out *out, uint32_t indent, const char *verb,
                       ul_kx value)
{
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "%s ", verb);
    out->printer->put_expression(out->printer->context, value);
    ul_text_put(out->text, ";\n");
}

void ul_attend_cuda_put_score(const struct ul_contract_printer *printer,
                              const struct ul_attend *attend, const char *coordinate,
                              uint32_t indent)
{
    const struct ul_contraction *c = &attend->scores[0];
    struct ul_arena arena;
    ul_arena_init(&arena);
    const bool *is_short = ul_narrow(printer->kernel, &arena);
    struct ul_contract_out out = ul_attend_cuda_out(printer, NULL, coordinate);
    ul_contract_line(&out, indent,
                     "const auto t_score = [&]([[maybe_unused]] %s t_fm, [[maybe_unused]] %s t_fn, "
                     "float t_sum%s%s) -> float {",
                     coordinate, coordinate,
                     attend->has_slopes ? ", [[maybe_unused]] float t_slope" : "",
                     attend->has_shares ? ", float &t_share" : "");
    for (uint32_t i = 0; i < 2; i++)
        ul_contract_line(&out, indent + 1, "[[maybe_unused]] const %s v%" PRIu32 " = %s;",
                         is_short[c->vars[i]] ? "int32_t" : "int64_t", c->vars[i],
                         i == 0 ? "t_fm" : "t_fn");
    ul_contract_line(&out, indent + 1, "const float v%" PRIu32 " = t_sum;", c->acc);
    if (attend->has_slopes)
        ul_contract_line(&out, indent + 1, "[[maybe_unused]] const float v%" PRIu32 " = t_slope;",
                         attend->scores[1].acc);
    printer->put_statements(printer->context, attend->before, indent + 1);
    if (attend->has_shares)
        put_result(&out, indent + 1, "t_share =", attend->share);
    put_result(&out, indent + 1, "return", attend->score);
    ul_contract_line(&out, indent, "};");
    ul_arena_done(&arena);
}

void ul_attend_cuda_put_norm(const struct ul_contract_printer *printer,
                             const struct ul_attend *attend, const char *coordinate,
                             uint32_t indent)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    uint32_t row = attend->norm_query;
    const char *type = ul_narrow(printer->kernel, &arena)[row] ? "int32_t" : "int64_t";
    struct ul_contract_out out = ul_attend_cuda_out(printer, NULL, coordinate);
    ul_contract_line(&out, indent, "const auto t_put_norm = [&](%s t_fm, float v%" PRIu32 ") {",
                     coordinate, attend->norm);
    ul_contract_line(&out, indent + 1, "const %s v%" PRIu32 " = t_fm;", type, row);
    printer->put_statements(printer->context, attend->norms, indent + 1);
    ul_contract_line(&out, indent, "};");
    ul_arena_done(&arena);
}

void ul_attend_cuda_put_factor(const struct ul_contract_printer *printer,
                               const struct ul_attend *attend, const char *coordinate,
                               uint32_t indent)
{
    const uint32_t *vars = attend->scores[0].vars;
    struct ul_arena arena;
    if (attend->factor == UL_NONE)
        return;
    ul_arena_init(&arena);
    const bool *is_short = ul_narrow(printer->kernel, &arena);
    struct ul_contract_out out = ul_attend_cuda_out(printer, NULL, coordinate);
    ul_contract_line(&out, indent, "const auto t_factor = [&](%s t_fm, %s t_fn) -> float {",
                     coordinate, coordinate);
    for (uint32_t i = 0; i < 2; i++)
        ul_contract_line(&out, indent + 1, "const %s v%" PRIu32 " = %s;",
                         is_short[vars[i]] ? "int32_t" : "int64_t", vars[i],
                         i == 0 ? "t_fm" : "t_fn");
    ul_contract_indent(&out, indent + 1);
    ul_text_put(out.text, "return ");
    printer->put_expression(printer->context, attend->factor);
    ul_text_put(out.text, ";\n");
    ul_contract_line(&out, indent, "};");
    ul_arena_done(&arena);
}

const char *ul_attend_cuda_empty(enum ul_attention_empty empty)
{
    static const char *const names[] = {[UL_EMPTY_IS_NAN] = "UL_EMPTY_IS_NAN",
                                        [UL_EMPTY_IS_ZERO] = "UL_EMPTY_IS_ZERO",
                                        [UL_NAN_IS_ZERO] = "UL_NAN_IS_ZERO"};
    return names[empty];
}
