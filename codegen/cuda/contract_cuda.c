/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA text of a contraction. Tiles are templates of runtime/cuda/ul_contract.cuh, those of
 * bytes of ul_contract_bytes.cuh; the functions that they call are printed here: the operands at
 * flat coordinates, and the epilogue. */
#include "codegen/cuda/attend_cuda.h"
#include "codegen/cuda/contract_cuda_internal.h"
#include "codegen/device/grid.h"

#include <inttypes.h>

enum { TEAM_SUMS = 4 };

struct cuda_out {
    const struct ul_contract_cuda_printer *given;
    struct ul_contract_printer printer;
    struct ul_contract_device_plan plan;
    struct ul_contract_out out;
    struct ul_arena arena;
};

static void begin(struct cuda_out *to, const struct ul_contract_cuda_printer *printer,
                  const struct ul_contraction *contraction)
{
    ul_arena_init(&to->arena);
    to->given = printer;
    ul_contract_device_plan_init(&to->plan, printer->kernel, contraction, printer->device,
                                 &to->arena);
    to->printer = ul_contract_cuda_base(printer);
    to->out = (struct ul_contract_out){.printer = &to->printer,
                                       .plan = &to->plan.base,
                                       .text = printer->text,
                                       .coordinate = to->plan.coordinate,
                                       .unused = "[[maybe_unused]] ",
                                       .is_short = ul_narrow(printer->kernel, &to->arena)};
}

static void end(struct cuda_out *to)
{
    ul_arena_done(&to->arena);
}

/* For operand `name`, whose elements of 16 bits become f32 in packs: their name in
 * runtime/cuda/ul_contract.cuh; else NULL. */
static const char *widened_kind(const struct cuda_out *to, char name)
{
    const struct ul_contract_device_plan *plan = &to->plan;
    if (plan->form != UL_CONTRACT_DEVICE_DOT || plan->dot_pack <= 1)
        return NULL;
    return plan->kinds[name == 'a' ? 0 : 1];
}

/* The type of elements of tiles in shared memory. */
static const char *tile_type(const struct cuda_out *to)
{
    bool is_short = to->plan.form == UL_CONTRACT_DEVICE_MMA && !to->plan.is_bytes;
    return is_short ? "uint16_t" : to->plan.base.type;
}

/* What is added for two elements that are words of bytes. */
static void put_product(const struct cuda_out *to, char text[40])
{
    const struct ul_contract_plan *base = &to->plan.base;
    UL_ASSERT(ul_contract_is_bytes(base));
    snprintf(text, 40, "ul_bytes<%s, %s>", ul_contract_cuda_truth(base->a_width == UL_CONTRACT_I8),
             ul_contract_cuda_truth(base->b_width == UL_CONTRACT_I8));
}

/* The type of the elements that an operand's readers return. */
static const char *read_type(const struct cuda_out *to, char name)
{
    bool is_stored = to->plan.form == UL_CONTRACT_DEVICE_MMA || widened_kind(to, name) != NULL;
    if (to->plan.is_bytes)
        return "ul_byte";
    return is_stored ? "ul_bits16" : to->plan.base.type;
}

static void put_begin(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_plan *plan = out->plan;
    ul_contract_line(out, indent, "{ /* %" PRId64 " x %" PRId64 " sums of %" PRId64 " */", plan->m,
                     plan->n, plan->k);
    ul_contract_cuda_put_bases(out, indent + 1, 'a', read_type(to, 'a'), to->plan.a.pack);
    ul_contract_cuda_put_bases(out, indent + 1, 'b', read_type(to, 'b'), to->plan.b.pack);
}

/* ---- One thread for each sum ---- */

/* The sum at coordinates t_m0 ..., t_n0 ... */
static void put_sum(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_device_plan *plan = &to->plan;
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

/* Sum t_i of all, numbered along n first, or along m where results are contiguous along it. */
static void put_each(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_device_plan *plan = &to->plan;
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
    ul_contract_cuda_put_epilogue(out, indent, "t_sum");
}

/* ---- Tiles ---- */

/* Prints the first operand that a warp keeps: elements as they are stored, packs of rows of k. */
static void put_held(const struct cuda_out *to, uint32_t indent, const char *held)
{
    const struct ul_contract_out *out = &to->out;
    const char *type = read_type(to, 'a'), *kind = widened_kind(to, 'a');
    int pack = to->plan.dot_pack;
    const struct ul_contract_cuda_reader reader = {"t_fetch_a", 'a',   "t_fm", "t_fk", type,
                                                   pack,        false, true,   NULL,   false};
    ul_contract_line(out, indent, "unsigned char *const t_kept = %s;", held);
    ul_contract_line(out, indent, "if (t_first) {");
    ul_contract_cuda_put_reader(out, indent + 1, &reader);
    ul_contract_line(out, indent + 1,
                     "ul_hold<%s, %d>(t_kept, (%s)%" PRId64 ", (%s)%" PRId64 ", t_fetch_a);", type,
                     pack, out->coordinate, to->plan.base.m, out->coordinate, to->plan.base.k);
    ul_contract_line(out, indent, "}");
    ul_contract_line(out, indent, "const auto t_read_a = [&](%s t_fm, %s t_fk) {", out->coordinate,
                     out->coordinate);
    ul_contract_line(
        out, indent + 1, "return %s%s%sul_held<%s, %d>(t_kept, t_fm * %" PRId64 " + t_fk)%s;",
        kind != NULL ? "ul_pack_widen<" : "", kind != NULL ? kind : "", kind != NULL ? ">(" : "",
        type, pack, to->plan.base.k, kind != NULL ? ")" : "");
    ul_contract_line(out, indent, "};");
}

/* t_read_a and t_read_b, or t_place_a and t_place_b, and t_put. */
static void put_functions(const struct cuda_out *to, uint32_t indent, int a_pack, int b_pack,
                          const char *held)
{
    bool is_mma = to->plan.form == UL_CONTRACT_DEVICE_MMA, is_place = is_mma && !to->plan.is_bytes;
    bool is_stored = is_mma || to->plan.is_bytes;
    const struct ul_contract_cuda_reader readers[] = {
        {is_place ? "t_place_a" : "t_read_a", 'a', "t_fm", "t_fk", read_type(to, 'a'), a_pack,
         is_stored, true, widened_kind(to, 'a'), is_place},
        {is_place ? "t_place_b" : "t_read_b", 'b', is_place ? "t_fn" : "t_fk",
         is_place ? "t_fk" : "t_fn", read_type(to, 'b'), b_pack, is_stored, true,
         widened_kind(to, 'b'), is_place}};
    if (held != NULL)
        put_held(to, indent, held);
    else
        ul_contract_cuda_put_reader(&to->out, indent, &readers[0]);
    ul_contract_cuda_put_reader(&to->out, indent, &readers[1]);
    ul_contract_cuda_put_putter(&to->out, indent, "t_put");
}

/* Whether packs of an operand are aligned; single elements always are. */
static const char *aligned(const struct ul_contract_device_reading *reading, const char *name)
{
    return reading->pack > 1 ? name : "true";
}

/* Prints <m>, <n>, <k>, the functions); `put_pack`: the function that takes several sums of tiles
 * on tensor cores. */
static void put_arguments(const struct cuda_out *to, uint32_t indent, const char *first,
                          const char *put_pack)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_plan *base = &to->plan.base;
    bool is_place = to->plan.form == UL_CONTRACT_DEVICE_MMA && !to->plan.is_bytes;
    ul_contract_line(out, indent, "%s, (%s)%" PRId64 ", (%s)%" PRId64 ", (%s)%" PRId64 ",", first,
                     out->coordinate, base->m, out->coordinate, base->n, out->coordinate, base->k);
    if (is_place)
        ul_contract_line(out, indent, "%s, %s, t_place_a, t_place_b, t_put, %s);",
                         aligned(&to->plan.a, "t_a_aligned"), aligned(&to->plan.b, "t_b_aligned"),
                         put_pack);
    else
        ul_contract_line(out, indent, "t_read_a, t_read_b, t_put);");
}

/* typedef ... t_size; */
static void put_size(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_device_tile *tile = &to->plan.tile;
    bool is_mma = to->plan.form == UL_CONTRACT_DEVICE_MMA;
    char product[40] = "";
    if (to->plan.is_bytes)
        put_product(to, product);
    if (is_mma && to->plan.is_bytes)
        ul_contract_line(out, indent, "typedef ul_mma_bytes<%s, %d, %d, %d, %d, %d> t_size;",
                         product, tile->m, tile->n, tile->k, tile->thread_m, tile->thread_n);
    else if (is_mma)
        ul_contract_line(out, indent, "typedef ul_mma<%s, %d, %d, %d, %d, %d, %d> t_size;",
                         to->plan.kind, tile->m, tile->n, tile->k, tile->thread_m, tile->thread_n,
                         tile->stages);
    else
        ul_contract_line(out, indent, "typedef ul_tile<%s, %d, %d, %d, %d, %d, %d%s%s> t_size;",
                         to->plan.base.type, tile->m, tile->n, tile->k, tile->thread_m,
                         tile->thread_n, tile->splits, to->plan.is_bytes ? ", " : "", product);
}

static void put_tile(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    const struct ul_contract_device_plan *plan = &to->plan;
    const char *suffix = plan->is_bytes ? "_bytes" : "";
    bool is_mma = plan->form == UL_CONTRACT_DEVICE_MMA;
    char first[40], pack[16] = "";
    int width = 1;
    put_functions(to, indent, plan->a.pack, plan->b.pack, NULL);
    if (is_mma && !plan->is_bytes) {
        width = ul_contract_cuda_put_packs(out, indent, to->given, plan->put_along_m);
        snprintf(pack, sizeof pack, ", %d", width);
    }
    put_size(to, indent);
    ul_contract_line(out, indent, "static_assert(t_size::elements * sizeof(%s) <= %" PRIu32 ");",
                     tile_type(to), plan->grid.shared_bytes);
    ul_contract_line(out, indent, "typedef ul_reading%s<%d, %s> t_reading_a;", suffix, plan->a.pack,
                     ul_contract_cuda_truth(plan->a.along_k));
    ul_contract_line(out, indent, "typedef ul_reading%s<%d, %s> t_reading_b;", suffix, plan->b.pack,
                     ul_contract_cuda_truth(plan->b.along_k));
    ul_contract_line(out, indent, "ul_contract_%s%s<t_size, t_reading_a, t_reading_b, %s%s>(",
                     is_mma ? "mma" : "tile", suffix, ul_contract_cuda_truth(plan->put_along_m),
                     pack);
    snprintf(first, sizeof first, "t_shared_%" PRIu32 ", t_tile", plan->base.contraction->acc);
    put_arguments(to, indent + 1, first, width > 1 ? "t_put_pack" : "t_put");
}

/* `name` is dot or team; a warp has `sums` sums at a time. */
static void put_dots(const struct cuda_out *to, uint32_t indent, const char *name, int sums,
                     const char *first, const char *held)
{
    const struct ul_contract_device_plan *plan = &to->plan;
    char product[40] = "";
    put_functions(to, indent, plan->dot_pack, plan->dot_pack, held);
    if (plan->is_bytes)
        put_product(to, product);
    ul_contract_line(&to->out, indent, "ul_contract_%s%s<%s, %d, %d>(", name,
                     plan->is_bytes ? "_bytes" : "", plan->is_bytes ? product : plan->base.type,
                     plan->dot_pack, sums);
    put_arguments(to, indent + 1, first, NULL);
}

/* A sum for each thread of the team. */
static void put_team_each(const struct cuda_out *to, uint32_t indent)
{
    const struct ul_contract_out *out = &to->out;
    ul_contract_line(
        out, indent, "for (%s t_i = (%s)t_thread; t_i < %" PRId64 "; t_i += (%s)t_threads) {",
        out->coordinate, out->coordinate, to->plan.base.m * to->plan.base.n, out->coordinate);
    put_each(to, indent + 1);
    ul_contract_line(out, indent, "}");
}

/* Neighbouring sums by the threads of the block. */
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

void ul_contract_cuda_grid(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                           const struct ul_profile_device *device, struct ul_contract_grid *grid)
{
    if (contraction->attend != NULL)
        ul_attend_cuda_grid(kernel, contraction->attend, device, grid);
    else
        ul_contract_device_grid(kernel, contraction, device, grid);
}

void ul_contract_cuda_put_shared(const struct ul_contract_cuda_printer *printer,
                                 const struct ul_contraction *contraction, uint32_t indent)
{
    struct cuda_out to;
    if (contraction->attend != NULL) {
        ul_attend_cuda_put_shared(printer, contraction->attend, indent);
        return;
    }
    begin(&to, printer, contraction);
    bool is_short = to.plan.form == UL_CONTRACT_DEVICE_MMA && !to.plan.is_bytes;
    if (to.plan.grid.shared_bytes > 0 && printer->shared != NULL)
        ul_contract_line(&to.out, indent,
                         "%s *const t_shared_%" PRIu32 " = reinterpret_cast<%s *>(%s);",
                         tile_type(&to), contraction->acc, tile_type(&to), printer->shared);
    else if (to.plan.grid.shared_bytes > 0)
        ul_contract_line(&to.out, indent, "UL_SHARED(%s, t_shared_%" PRIu32 ", %" PRIu32 ");",
                         tile_type(&to), contraction->acc,
                         to.plan.grid.shared_bytes /
                             (is_short ? 2 : (uint32_t)to.plan.base.element_bytes));
    end(&to);
}

void ul_contract_cuda_put_tile(const struct ul_contract_cuda_printer *printer,
                               const struct ul_contraction *contraction, uint32_t indent)
{
    struct cuda_out to;
    if (contraction->attend != NULL) {
        ul_attend_cuda_put_tile(printer, contraction->attend, indent);
        return;
    }
    begin(&to, printer, contraction);
    const struct ul_contract_out *out = &to.out;
    put_begin(&to, indent);
    switch (to.plan.form) {
    case UL_CONTRACT_DEVICE_EACH:
        put_block_each(&to, indent + 1);
        break;
    case UL_CONTRACT_DEVICE_DOT:
        put_dots(&to, indent + 1, "dot", to.plan.dot_sums, "t_tile", NULL);
        break;
    case UL_CONTRACT_DEVICE_TILE:
    case UL_CONTRACT_DEVICE_MMA:
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
    UL_ASSERT(contraction->attend == NULL); /* a block runs it, or its statements are printed */
    begin(&to, printer, contraction);
    bool has_dots = to.plan.dot_pack > 0 && printer->team > 0;
    to.plan.form = has_dots ? UL_CONTRACT_DEVICE_DOT : UL_CONTRACT_DEVICE_EACH;
    to.plan.a.pack = to.plan.b.pack = has_dots ? to.plan.dot_pack : 1;
    to.plan.is_bytes = has_dots && ul_contract_is_bytes(&to.plan.base);
    put_begin(&to, indent);
    if (has_dots)
        put_dots(&to, indent + 1, "team", TEAM_SUMS, "t_thread, t_threads", printer->held);
    else
        put_team_each(&to, indent + 1);
    ul_contract_line(&to.out, indent, "}");
    end(&to);
}
