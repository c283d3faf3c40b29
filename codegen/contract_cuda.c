/* The CUDA text of a contraction. Tiles are templates of runtime/ul_contract.cuh; what is printed
 * are the functions that they call: the operands at flat coordinates, and the epilogue. */
#include "codegen/contract_cuda_internal.h"

#include <inttypes.h>

struct cuda_out {
    struct ul_contract_printer printer;
    struct ul_contract_cuda_plan plan;
    struct ul_contract_out out;
    struct ul_arena arena;
};

static void begin(struct cuda_out *to, const struct ul_contract_cuda_printer *printer,
                  const struct ul_contraction *contraction)
{
    ul_arena_init(&to->arena);
    ul_contract_cuda_plan_init(&to->plan, printer->kernel, contraction, &to->arena);
    to->printer = (struct ul_contract_printer){.text = printer->text,
                                               .kernel = printer->kernel,
                                               .context = printer->context,
                                               .put_expression = printer->put_expression,
                                               .put_statements = printer->put_statements,
                                               .put_load = printer->put_load,
                                               .parts = 1};
    to->out = (struct ul_contract_out){.printer = &to->printer,
                                       .plan = &to->plan.base,
                                       .text = printer->text,
                                       .coordinate = to->plan.coordinate,
                                       .unused = "[[maybe_unused]] "};
}

static void end(struct cuda_out *to)
{
    ul_arena_done(&to->arena);
}

/* Bases of one operand and of its bounds. */
static void put_bases(const struct ul_contract_out *out, uint32_t indent, char name)
{
    const struct ul_contraction *c = out->plan->contraction;
    const struct ul_operand *operand = name == 'a' ? &c->a : &c->b;
    char text[24];
    snprintf(text, sizeof text, "%c", name);
    ul_contract_base(out, indent, text, operand->at.base);
    for (uint32_t i = 0; i < operand->bound_count; i++) {
        snprintf(text, sizeof text, "%cb%" PRIu32, name, i);
        ul_contract_base(out, indent, text, operand->bounds[i].at.base);
    }
}

static void put_begin(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    ul_contract_line(out, indent, "{ /* %" PRId64 " x %" PRId64 " sums of %" PRId64 " */", plan->m,
                     plan->n, plan->k);
    put_bases(out, indent + 1, 'a');
    put_bases(out, indent + 1, 'b');
}

/* The epilogue of `sum`, the variables of m and n declared. */
static void put_epilogue(const struct ul_contract_out *out, uint32_t indent, const char *sum)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_contraction *c = plan->contraction;
    if (plan->epilogue_uses.mentions_acc)
        ul_contract_line(out, indent, "const %s v%" PRIu32 " = (%s)%s;", plan->acc_type, c->acc,
                         plan->acc_type, sum);
    out->printer->put_statements(out->printer->context, c->epilogue, indent);
}

/* ---- One thread a sum ---- */

/* The sum at coordinates t_m0 ..., t_n0 ... */
static void put_sum(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_cuda_plan *plan = &to->plan;
    const struct ul_contraction *c = plan->base.contraction;
    uint32_t m = c->m_count, n = c->n_count, k = c->k_count, depth = plan->k.count;
    const char *type = plan->base.type;
    const struct ul_contract_place places[] = {
        {&plan->k, m + n, k, "t_k"}, {&plan->n, m, n, "t_n"}, {&plan->m, 0, m, "t_m"}};
    ul_contract_line(out, indent, "%s t_sum = 0;", type);
    for (uint32_t d = 0; d < depth; d++)
        ul_contract_line(out, indent + d,
                         "for (%s t_k%" PRIu32 " = 0; t_k%" PRIu32 " < %" PRId64 "; t_k%" PRIu32
                         "++) {",
                         out->coordinate, d, d, plan->k.extents[d], d);
    for (uint32_t i = 0; i < 2; i++) {
        char name = i == 0 ? 'a' : 'b', target[16];
        snprintf(target, sizeof target, "t_x%c", name);
        ul_contract_line(out, indent + depth, "%s %s;", type, target);
        ul_contract_line(out, indent + depth, "{");
        ul_contract_element(out, indent + depth + 1, name,
                            i == 0 ? &plan->base.a_uses : &plan->base.b_uses, places, 3, target);
        ul_contract_line(out, indent + depth, "}");
    }
    ul_contract_line(out, indent + depth, "t_sum += t_xa * t_xb;");
    for (uint32_t d = depth; d-- > 0;)
        ul_contract_line(out, indent + d, "}");
}

/* Sum t_i of all, numbered along n first, or along m where results lie so. */
static void put_each(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_cuda_plan *plan = &to->plan;
    const struct ul_contraction *c = plan->base.contraction;
    const struct ul_contract_uses *uses = &plan->base.epilogue_uses;
    int64_t inner = plan->put_along_m ? plan->base.m : plan->base.n;
    char high[64], low[64];
    snprintf(high, sizeof high, "(t_i / %" PRId64 ")", inner);
    snprintf(low, sizeof low, "(t_i %% %" PRId64 ")", inner);
    ul_contract_split(out, indent, &plan->m, "t_m", plan->put_along_m ? low : high);
    ul_contract_split(out, indent, &plan->n, "t_n", plan->put_along_m ? high : low);
    put_sum(to, indent);
    ul_contract_declare(out, indent, uses, &plan->m, 0, c->m_count, "t_m", NULL);
    ul_contract_declare(out, indent, uses, &plan->n, c->m_count, c->n_count, "t_n", NULL);
    put_epilogue(out, indent, "t_sum");
}

/* ---- Tiles ---- */

/* The pack at t_at where its bounds hold, into t_x. */
static void put_pack(const struct cuda_out *to, uint32_t indent, char name, int pack)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_plan *plan = &to->plan.base;
    const struct ul_operand *operand = name == 'a' ? &plan->contraction->a : &plan->contraction->b;
    if (operand->bound_count > 0)
        ul_contract_if_inside(out, indent++, operand);
    ul_contract_line(out, indent,
                     "t_x = ul_pack_read<%d>((const %s *)b%" PRIu32 " + t_at, t_%c_aligned);", pack,
                     plan->type, operand->buffer, name);
    if (operand->bound_count == 0)
        return;
    ul_contract_line(out, indent - 1, "} else {");
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "t_x = ul_pack_fill<%s, %d>(", plan->type, pack);
    ul_contract_outside(out, operand);
    ul_text_put(out->text, ");\n");
    ul_contract_line(out, indent - 1, "}");
}

/* const auto t_read_<name> = [&](<coordinate> t_fm, <coordinate> t_fk) { ... return t_x; }; */
static void put_reader(const struct cuda_out *to, uint32_t indent, char name)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_plan *plan = &to->plan.base;
    const struct ul_contraction *c = plan->contraction;
    bool is_a = name == 'a';
    int pack = is_a ? to->plan.a.pack : to->plan.b.pack;
    const struct ul_contract_dims *beside = is_a ? &plan->a_m : &plan->b_n;
    const struct ul_contract_dims *k = is_a ? &plan->a_k : &plan->b_k;
    const struct ul_contract_place places[] = {
        {k, c->m_count + c->n_count, c->k_count, "t_k"},
        {beside, is_a ? 0 : c->m_count, is_a ? c->m_count : c->n_count, is_a ? "t_m" : "t_n"}};
    if (pack > 1)
        ul_contract_line(out, indent,
                         "const bool t_%c_aligned = ul_is_aligned((const %s *)b%" PRIu32
                         " + t_%c);",
                         name, plan->type, is_a ? c->a.buffer : c->b.buffer, name);
    ul_contract_line(out, indent, "const auto t_read_%c = [&](%s %s, %s %s) {", name,
                     out->coordinate, is_a ? "t_fm" : "t_fk", out->coordinate,
                     is_a ? "t_fk" : "t_fn");
    ul_contract_split(out, indent + 1, k, "t_k", "t_fk");
    ul_contract_split(out, indent + 1, beside, places[1].prefix, is_a ? "t_fm" : "t_fn");
    ul_contract_line(out, indent + 1, "ul_pack_of<%s, %d> t_x;", plan->type, pack);
    if (pack > 1) {
        ul_contract_position(out, indent + 1, name, places, 2);
        put_pack(to, indent + 1, name, pack);
    } else {
        ul_contract_element(out, indent + 1, name, is_a ? &plan->a_uses : &plan->b_uses, places, 2,
                            "t_x.at[0]");
    }
    ul_contract_line(out, indent + 1, "return t_x;");
    ul_contract_line(out, indent, "};");
}

static void put_putter(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_plan *plan = &to->plan.base;
    const struct ul_contraction *c = plan->contraction;
    const struct ul_contract_uses *uses = &plan->epilogue_uses;
    ul_contract_line(out, indent, "const auto t_put = [&](%s t_fm, %s t_fn, %s t_sum) {",
                     out->coordinate, out->coordinate, plan->type);
    ul_contract_split(out, indent + 1, &plan->out_m, "t_m", "t_fm");
    ul_contract_split(out, indent + 1, &plan->out_n, "t_n", "t_fn");
    ul_contract_declare(out, indent + 1, uses, &plan->out_m, 0, c->m_count, "t_m", NULL);
    ul_contract_declare(out, indent + 1, uses, &plan->out_n, c->m_count, c->n_count, "t_n", NULL);
    put_epilogue(out, indent + 1, "t_sum");
    ul_contract_line(out, indent, "};");
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

static void put_functions(const struct cuda_out *to, uint32_t indent)
{
    put_reader(to, indent, 'a');
    put_reader(to, indent, 'b');
    put_putter(to, indent);
}

/* <m>, <n>, <k>, the functions); */
static void put_arguments(const struct cuda_out *to, uint32_t indent, const char *first)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_plan *base = &to->plan.base;
    ul_contract_line(
        out, indent,
        "%st_tile, (%s)%" PRId64 ", (%s)%" PRId64 ", (%s)%" PRId64 ", t_read_a, t_read_b, t_put);",
        first, out->coordinate, base->m, out->coordinate, base->n, out->coordinate, base->k);
}

static void put_tile(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_cuda_plan *plan = &to->plan;
    const struct ul_contract_cuda_tile *tile = &plan->tile;
    char first[32];
    put_functions(to, indent);
    ul_contract_line(out, indent, "typedef ul_tile<%s, %d, %d, %d, %d, %d, %d> t_size;",
                     plan->base.type, tile->m, tile->n, tile->k, tile->thread_m, tile->thread_n,
                     tile->splits);
    ul_contract_line(out, indent, "static_assert(t_size::elements * sizeof(%s) <= %" PRIu32 ");",
                     plan->base.type, plan->grid.shared_bytes);
    ul_contract_line(out, indent, "typedef ul_reading<%d, %s> t_reading_a;", plan->a.pack,
                     truth(plan->a.along_k));
    ul_contract_line(out, indent, "typedef ul_reading<%d, %s> t_reading_b;", plan->b.pack,
                     truth(plan->b.along_k));
    ul_contract_line(out, indent, "ul_contract_tile<t_size, t_reading_a, t_reading_b, %s>(",
                     truth(plan->put_along_m));
    snprintf(first, sizeof first, "t_shared_%" PRIu32 ", ", plan->base.contraction->acc);
    put_arguments(to, indent + 1, first);
}

static void put_dot(const struct cuda_out *to, uint32_t indent)
{
    put_functions(to, indent);
    ul_contract_line(&to->out, indent, "ul_contract_dot<%s, %d>(", to->plan.base.type,
                     to->plan.a.pack);
    put_arguments(to, indent + 1, "");
}

/* Sums side by side by the threads of the block. */
static void put_block_each(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    ul_contract_line(out, indent, "const %s t_i = (%s)(t_tile * %" PRIu32 " + threadIdx.x);",
                     out->coordinate, out->coordinate, to->plan.grid.threads);
    ul_contract_line(out, indent, "if (t_i < %" PRId64 ") {", to->plan.base.m * to->plan.base.n);
    put_each(to, indent + 1);
    ul_contract_line(out, indent, "}");
}

/* ---- Entries ---- */

void ul_contract_cuda_put_shared(const struct ul_contract_cuda_printer *printer,
                                 const struct ul_contraction *contraction, uint32_t indent)
{
    struct cuda_out to;
    begin(&to, printer, contraction);
    if (to.plan.grid.shared_bytes > 0)
        ul_contract_line(&to.out, indent, "UL_SHARED(%s, t_shared_%" PRIu32 ", %" PRIu32 ");",
                         to.plan.base.type, contraction->acc,
                         to.plan.grid.shared_bytes / (uint32_t)to.plan.base.element_bytes);
    end(&to);
}

void ul_contract_cuda_put_tile(const struct ul_contract_cuda_printer *printer,
                               const struct ul_contraction *contraction, uint32_t indent)
{
    struct cuda_out to;
    begin(&to, printer, contraction);
    const struct ul_contract_out *out = &to.out;
    put_begin(out, indent);
    switch (to.plan.form) {
    case UL_CONTRACT_CUDA_EACH:
        put_block_each(&to, indent + 1);
        break;
    case UL_CONTRACT_CUDA_DOT:
        put_dot(&to, indent + 1);
        break;
    case UL_CONTRACT_CUDA_TILE:
    case UL_CONTRACT_CUDA_MMA:
        put_tile(&to, indent + 1);
        break;
    }
    ul_contract_line(out, indent, "}");
    end(&to);
}

void ul_contract_cuda_put_team(const struct ul_contract_cuda_printer *printer,
                               const struct ul_contraction *contraction, uint32_t indent)
{
    struct cuda_out to;
    begin(&to, printer, contraction);
    const struct ul_contract_out *out = &to.out;
    put_begin(out, indent);
    ul_contract_line(
        out, indent + 1, "for (%s t_i = (%s)t_thread; t_i < %" PRId64 "; t_i += (%s)t_threads) {",
        out->coordinate, out->coordinate, to.plan.base.m * to.plan.base.n, out->coordinate);
    put_each(&to, indent + 2);
    ul_contract_line(out, indent + 1, "}");
    ul_contract_line(out, indent, "}");
    end(&to);
}
