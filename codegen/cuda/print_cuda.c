/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel as CUDA C++: a __global__ function for each phase of its schedule (grid.h), or for some
 * that share a launch, and a host function that launches them.
 *
 *     static __global__ void __launch_bounds__(128) @_0(const float *b0, float *b1,
 *                                                       struct ul_where run)
 *     {
 *         UL_ENTER(run);
 *         for (int64_t t_item = ul_item_first(); t_item < 4096; t_item += ul_item_stride()) {
 *             const int64_t v0 = t_item;
 *             b1[v0] = ul_exp_f32(b0[v0]);
 *         }
 *     }
 *
 * Kernels of several steps may be one launch, each with blocks of its own (joined.c). `@` stands
 * for the kernel's name, so that equal kernels have equal text. print_expr.c prints expressions,
 * contract_cuda.c contractions. */

#include "codegen/cuda/attend_cuda.h"
#include "codegen/cuda/contract_cuda.h"
#include "codegen/cuda/cuda.h"
#include "codegen/device/grid.h"
#include "codegen/kernel/print_expr.h"
#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <inttypes.h>
#include <string.h>

struct printer {
    struct ul_expr_printer expr;
    struct ul_text *text;
    const struct ul_kernel *kernel;
    const struct ul_profile_device *device;
    struct ul_grid grid;
    const struct ul_phase *phase; /* that is being printed */
    struct ul_mentions mentions;  /* of the phase */
    bool in_thread;               /* one thread runs the printed text, not its team */
    bool is_joined;               /* the phase has some blocks of a launch */
    bool is_together;             /* it is one of several in a launch, with all of its blocks */
    uint32_t member;              /* its kernel, among several that are one launch; or UL_NONE */
    uint32_t first_counter;       /* the kernel's first, among those of the launch */
    uint32_t pack_count;          /* of an item */
    uint32_t lane_count;          /* variables in scope that have a value for each element */
    uint32_t *lanes;
};

static bool has_barriers(const struct ul_phase *phase)
{
    return phase->kind == UL_PHASE_TEAM && !phase->is_loose;
}

static bool is_warp(const struct ul_phase *phase)
{
    return phase->team == UL_WARP;
}

static const struct ul_ks_data *stmt_get(const struct printer *printer, ul_ks id)
{
    return &printer->kernel->stmts[id];
}

static const char *variable_type(const struct printer *printer, uint32_t var)
{
    return printer->expr.is_short[var] ? "int32_t" : ul_c_type(printer->kernel->vars[var].dtype);
}

static const char *index_type(const struct printer *printer, uint32_t var)
{
    return printer->expr.is_short[var] ? "int32_t" : "int64_t";
}

/* Whether a number of items or rounds, which a grid or a team walks, is small. */
static bool is_few(int64_t count)
{
    return count <= INT32_MAX - (1 << 21);
}

static const char *number_type(int64_t count)
{
    return is_few(count) ? "uint32_t" : "int64_t";
}

/* The suffix of its divisors. */
static const char *number_suffix(int64_t count)
{
    return is_few(count) ? "u" : "";
}

static bool is_parameter(const struct ul_buffer *buffer)
{
    return buffer->role == UL_BUFFER_INPUT || buffer->role == UL_BUFFER_OUTPUT;
}

/* ---- Statements ---- */

static void put_list(struct printer *printer, ul_ks first, ul_ks end, uint32_t indent);

/* Prints what one thread runs, even inside a team. */
static void put_in_thread(struct printer *printer, ul_ks first, uint32_t indent)
{
    bool outer = printer->in_thread;
    printer->in_thread = true;
    put_list(printer, first, UL_NONE, indent);
    printer->in_thread = outer;
}

static void put_barrier(const struct printer *printer, uint32_t indent)
{
    ul_put_line(&printer->expr, indent,
                is_warp(printer->phase) ? "__syncwarp();\n" : "__syncthreads();\n");
}

static void put_close(const struct printer *printer, uint32_t indent)
{
    ul_put_line(&printer->expr, indent, "}\n");
}

/* Every thread of the team walks the loop; its end is computed once, before any thread stores. */
static void put_loop_head(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    bool plain = printer->in_thread || ul_is_index_only(printer->kernel, stmt->value);
    const char *end = ul_expr_text(&printer->expr, stmt->value);
    if (!plain) {
        ul_put_line(&printer->expr, indent, "const int64_t t_end%u = %s;\n", stmt->var, end);
        end = ul_arena_printf(printer->text->arena, "t_end%u", stmt->var);
    }
    ul_put_line(&printer->expr, indent, "for (%s v%u = 0; v%u < %s; v%u++) {\n",
                index_type(printer, stmt->var), stmt->var, stmt->var, end, stmt->var);
}

static void put_loop(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    put_loop_head(printer, stmt, indent);
    put_list(printer, stmt->body, UL_NONE, indent + 1);
    put_close(printer, indent);
}

static void put_if_head(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    ul_put_line(&printer->expr, indent, "if (%s) {\n", ul_expr_text(&printer->expr, stmt->value));
}

static void put_else(struct printer *printer, uint32_t indent)
{
    ul_put_line(&printer->expr, indent, "} else {\n");
}

static void put_if(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    put_if_head(printer, stmt, indent);
    put_list(printer, stmt->body, UL_NONE, indent + 1);
    if (stmt->orelse != UL_NONE) {
        put_else(printer, indent);
        put_list(printer, stmt->orelse, UL_NONE, indent + 1);
    }
    put_close(printer, indent);
}

static void put_store(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    ul_put_indent(&printer->expr, indent);
    if (printer->phase->kind == UL_PHASE_TEAM && !printer->in_thread) {
        ul_text_put(printer->text, "if (t_thread == 0)\n");
        ul_put_indent(&printer->expr, indent + 1);
    }
    ul_put_store(&printer->expr, stmt);
}

/* Prints the variables of a nest from round `name`, with the names of indexes between its loops. */
static void put_rounds(struct printer *printer, const struct ul_nest *nest, const char *name,
                       uint32_t indent)
{
    int64_t below = nest->total;
    for (uint32_t i = 0; i < nest->count; i++) {
        const struct ul_ks_data *loop = stmt_get(printer, nest->loops[i]);
        int64_t above = nest->total / (below > 0 ? below : 1);
        below = nest->rounds[i] > 0 ? below / nest->rounds[i] : 0;
        const char *suffix = number_suffix(nest->total);
        if (printer->expr.used[loop->var]) {
            const char *type = index_type(printer, loop->var);
            ul_put_line(&printer->expr, indent, "const %s v%u = (%s)(%s", type, loop->var, type,
                        name);
            if (below > 1)
                ul_text_printf(printer->text, " / %" PRId64 "%s", below, suffix);
            if (above > 1)
                ul_text_printf(printer->text, " %% %" PRId64 "%s", nest->rounds[i], suffix);
            ul_text_put(printer->text, ");\n");
        }
        for (ul_ks id = loop->body; i + 1 < nest->count && id != nest->loops[i + 1];
             id = stmt_get(printer, id)->next)
            ul_put_definition(&printer->expr, stmt_get(printer, id), indent);
    }
}

/* ---- Several elements at once ---- */

static void find_packs(struct printer *printer, const struct ul_nest *nest, ul_kx id,
                       uint32_t indent)
{
    const struct ul_kx_data *expr = &printer->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    find_packs(printer, nest, expr->a, indent);
    if (ul_kx_operand_count(expr->op) >= 2)
        find_packs(printer, nest, expr->b, indent);
    if (ul_kx_operand_count(expr->op) == 3)
        find_packs(printer, nest, expr->c, indent);
    if (expr->op != UL_KX_LOAD || printer->expr.elements[id] != NULL ||
        !ul_grid_is_contiguous(printer->kernel, nest, expr->a))
        return;
    ul_put_line(&printer->expr, indent,
                "const auto t_pack%u = ul_pack_read<%u>(b%u + (%s), true);\n", printer->pack_count,
                nest->vector, expr->var, ul_expr_text(&printer->expr, expr->a));
    printer->expr.elements[id] =
        ul_arena_printf(printer->text->arena, "t_pack%u.at[t_u]", printer->pack_count++);
}

static void put_pack_stores(struct printer *printer, const struct ul_nest *nest, bool declare,
                            uint32_t indent)
{
    for (ul_ks id = ul_nest_body(nest, printer->kernel); id != UL_NONE;
         id = stmt_get(printer, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        if (stmt->kind != UL_KS_STORE)
            continue;
        if (declare) {
            ul_put_line(&printer->expr, indent, "ul_pack_of<%s, %u> t_result%u;\n",
                        ul_storage_type(printer->kernel->buffers[stmt->buffer].dtype), nest->vector,
                        stmt->buffer);
        } else {
            /* ul_pack_write writes only to the device's memory; packs are of nothing else. */
            UL_ASSERT(printer->kernel->buffers[stmt->buffer].role != UL_BUFFER_LOCAL);
            ul_put_line(&printer->expr, indent, "ul_pack_write(b%u + (%s), t_result%u);\n",
                        stmt->buffer, ul_expr_text(&printer->expr, stmt->index), stmt->buffer);
        }
    }
}

/* Arrays for what a run of statements, which ends before `end`, leaves to later ones. */
static void put_lanes(struct printer *printer, const struct ul_nest *nest, ul_ks first, ul_ks end,
                      uint32_t indent)
{
    for (ul_ks id = first; id != end; id = stmt_get(printer, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        bool outlasts = stmt->kind == UL_KS_VAR || (stmt->kind == UL_KS_LET && end != UL_NONE);
        if (!outlasts || !nest->varies[stmt->var] || !printer->expr.used[stmt->var])
            continue;
        UL_ASSERT(printer->lane_count < printer->kernel->var_count);
        printer->lanes[printer->lane_count++] = stmt->var;
        ul_put_line(&printer->expr, indent, "%s t_lanes%u[%u];\n",
                    variable_type(printer, stmt->var), stmt->var, nest->vector);
    }
}

static bool is_lane(const struct printer *printer, uint32_t var)
{
    for (uint32_t i = 0; i < printer->lane_count; i++) {
        if (printer->lanes[i] == var)
            return true;
    }
    return false;
}

/* The statements of a run that differ, for one element. */
static void put_lane(struct printer *printer, const struct ul_nest *nest, ul_ks first, ul_ks end,
                     uint32_t indent)
{
    for (uint32_t i = 0; i < printer->lane_count; i++) {
        ul_put_line(&printer->expr, indent, "[[maybe_unused]] %s &v%u = t_lanes%u[t_u];\n",
                    variable_type(printer, printer->lanes[i]), printer->lanes[i],
                    printer->lanes[i]);
    }
    for (ul_ks id = first; id != end; id = stmt_get(printer, id)->next) {
        struct ul_ks_data stmt = *stmt_get(printer, id);
        if (stmt.kind == UL_KS_STORE) {
            printer->expr.store_to =
                ul_arena_printf(printer->text->arena, "t_result%u.at[t_u]", stmt.buffer);
            ul_put_indent(&printer->expr, indent);
            ul_put_store(&printer->expr, &stmt);
            printer->expr.store_to = NULL;
        } else if (nest->varies[stmt.var]) {
            stmt.kind = is_lane(printer, stmt.var) ? UL_KS_SET : stmt.kind;
            ul_put_definition(&printer->expr, &stmt, indent);
        }
    }
}

static bool is_inner(const struct ul_ks_data *stmt)
{
    return stmt->kind == UL_KS_FOR || stmt->kind == UL_KS_IF;
}

/* Statements without loops and branches: what is the same for all elements, all packs, and then the
 * rest, element by element. Returns the statement after them. */
static ul_ks put_pack_run(struct printer *printer, const struct ul_nest *nest, ul_ks first,
                          ul_ks before, uint32_t indent)
{
    uint32_t var = ul_nest_var(nest, printer->kernel);
    ul_ks end = first;
    for (; end != before && !is_inner(stmt_get(printer, end)); end = stmt_get(printer, end)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, end);
        if (stmt->kind == UL_KS_LET && !nest->varies[stmt->var])
            ul_put_definition(&printer->expr, stmt, indent);
    }
    put_lanes(printer, nest, first, end, indent);
    for (ul_ks id = first; id != end; id = stmt_get(printer, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        if (stmt->kind == UL_KS_STORE || (nest->varies[stmt->var] && printer->expr.used[stmt->var]))
            find_packs(printer, nest, stmt->value, indent);
    }
    ul_put_line(&printer->expr, indent, "UL_EACH_OF_PACK\n");
    ul_put_line(&printer->expr, indent, "for (int t_u = 0; t_u < %u; t_u++) {\n", nest->vector);
    ul_put_line(&printer->expr, indent + 1, "[[maybe_unused]] const %s v%u = t_first + t_u;\n",
                index_type(printer, var), var);
    if (nest->epilogue != NULL) {
        uint32_t acc = nest->epilogue->acc;
        ul_put_line(&printer->expr, indent + 1, "[[maybe_unused]] const %s v%u = t_sums.at[t_u];\n",
                    variable_type(printer, acc), acc);
    }
    put_lane(printer, nest, first, end, indent + 1);
    put_close(printer, indent);
    memset(printer->expr.elements, 0, printer->kernel->expr_count * sizeof(const char *));
    return end;
}

/* Statements before `end`, whose lanes stay in scope. Loops and branches are the same for all
 * elements. */
static void put_pack_list(struct printer *printer, const struct ul_nest *nest, ul_ks first,
                          ul_ks end, uint32_t indent)
{
    for (ul_ks id = first; id != end;) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        uint32_t outer = printer->lane_count;
        if (!is_inner(stmt)) {
            id = put_pack_run(printer, nest, id, end, indent);
            continue;
        }
        if (stmt->kind == UL_KS_FOR)
            put_loop_head(printer, stmt, indent);
        else
            put_if_head(printer, stmt, indent);
        put_pack_list(printer, nest, stmt->body, UL_NONE, indent + 1);
        printer->lane_count = outer;
        if (stmt->orelse != UL_NONE) {
            put_else(printer, indent);
            put_pack_list(printer, nest, stmt->orelse, UL_NONE, indent + 1);
            printer->lane_count = outer;
        }
        put_close(printer, indent);
        id = stmt->next;
    }
}

/* The elements from t_first on. `v<id>` of the innermost loop is the first of them outside the loop
 * over t_u, and hidden inside it. */
static void put_elements(struct printer *printer, const struct ul_nest *nest, uint32_t indent)
{
    uint32_t var = ul_nest_var(nest, printer->kernel);
    ul_put_line(&printer->expr, indent++, "{\n");
    ul_put_line(&printer->expr, indent, "[[maybe_unused]] const %s v%u = t_first;\n",
                index_type(printer, var), var);
    put_pack_stores(printer, nest, true, indent);
    printer->pack_count = printer->lane_count = 0;
    printer->lanes = UL_NEW_ARRAY(printer->text->arena, uint32_t, printer->kernel->var_count);
    put_pack_list(printer, nest, ul_nest_body(nest, printer->kernel), UL_NONE, indent);
    put_pack_stores(printer, nest, false, indent);
    put_close(printer, indent - 1);
}

/* ---- Several elements of several neighbouring results at once (grid_slide.c) ---- */

static void put_for(struct printer *printer, const char *name, int64_t count, uint32_t indent)
{
    ul_put_line(&printer->expr, indent, "UL_EACH_OF_PACK\n");
    ul_put_line(&printer->expr, indent, "for (int %s = 0; %s < %" PRId64 "; %s++) {\n", name, name,
                count, name);
}

/* const <type> v<var> = <value>; */
static void put_index(struct printer *printer, uint32_t var, const char *value, uint32_t indent)
{
    ul_put_line(&printer->expr, indent, "[[maybe_unused]] const %s v%u = %s;\n",
                index_type(printer, var), var, value);
}

/* target[t_u] = the expression, for each element. */
static void put_factor(struct printer *printer, const struct ul_nest *nest, ul_kx expression,
                       const char *target, uint32_t indent)
{
    find_packs(printer, nest, expression, indent);
    put_for(printer, "t_u", nest->vector, indent);
    put_index(printer, ul_nest_var(nest, printer->kernel), "t_first + t_u", indent + 1);
    put_lane(printer, nest, UL_NONE, UL_NONE, indent + 1);
    ul_put_line(&printer->expr, indent + 1, "%s[t_u] = %s;\n", target,
                ul_expr_text(&printer->expr, expression));
    put_close(printer, indent);
    memset(printer->expr.elements, 0, printer->kernel->expr_count * sizeof(const char *));
}

/* The innermost loop of the sums, with their products. */
static void put_slide_loop(struct printer *printer, const struct ul_nest *nest, uint32_t indent)
{
    const struct ul_slide *slide = &nest->slide;
    const struct ul_ks_data *inner = stmt_get(printer, slide->inner);
    int64_t stride = slide->stride, places = (slide->count - 1) * stride + slide->rounds;
    ul_put_line(&printer->expr, indent, "float t_fixed[%" PRId64 "][%u], t_moving[%u];\n",
                slide->rounds, nest->vector, nest->vector);
    put_for(printer, "t_k", slide->rounds, indent);
    put_index(printer, inner->var, "t_k", indent + 1);
    put_factor(printer, nest, slide->fixed, "t_fixed[t_k]", indent + 1);
    put_close(printer, indent);
    put_for(printer, "t_x", places, indent);
    put_index(printer, inner->var, "t_x", indent + 1);
    put_pack_list(printer, nest, inner->body, slide->last, indent + 1);
    put_factor(printer, nest, slide->moving, "t_moving", indent + 1);
    put_for(printer, "t_r", slide->count, indent + 1);
    ul_put_line(&printer->expr, indent + 2, "const int t_k = t_x - t_r * %" PRId64 ";\n", stride);
    put_for(printer, "t_u", nest->vector, indent + 2);
    ul_put_line(&printer->expr, indent + 3, "if (t_k >= 0 && t_k < %" PRId64 ")\n", slide->rounds);
    ul_put_line(&printer->expr, indent + 4,
                "t_slide[t_r][t_u] = fmaf(t_fixed[t_k][t_u], t_moving[t_u], t_slide[t_r][t_u]);\n");
    for (uint32_t i = 3; i-- > 0;)
        put_close(printer, indent + i);
    printer->lane_count = 0;
}

/* The epilogue of each result. */
static void put_slide_results(struct printer *printer, const struct ul_nest *nest, ul_ks first,
                              uint32_t indent)
{
    const struct ul_slide *slide = &nest->slide;
    uint32_t position = stmt_get(printer, nest->loops[slide->loop])->var;
    put_for(printer, "t_r", slide->count, indent);
    put_index(printer, position, "t_from + t_r", indent + 1);
    ul_put_line(&printer->expr, indent + 1, "float (&t_lanes%u)[%u] = t_slide[t_r];\n", slide->sum,
                nest->vector);
    printer->lanes[printer->lane_count++] = slide->sum;
    put_pack_stores(printer, nest, true, indent + 1);
    put_pack_list(printer, nest, first, UL_NONE, indent + 1);
    put_pack_stores(printer, nest, false, indent + 1);
    printer->lane_count = 0;
    put_close(printer, indent);
}

/* The elements from t_first on of the results from t_from on. */
static void put_slide(struct printer *printer, const struct ul_nest *nest, uint32_t indent)
{
    const struct ul_slide *slide = &nest->slide;
    const struct ul_ks_data *sum = stmt_get(printer, ul_nest_body(nest, printer->kernel));
    ul_ks loop = sum->next, rest = stmt_get(printer, loop)->next;
    uint32_t position = stmt_get(printer, nest->loops[slide->loop])->var, depth = indent + 1;
    ul_put_line(&printer->expr, indent, "{\n");
    put_index(printer, ul_nest_var(nest, printer->kernel), "t_first", indent + 1);
    put_index(printer, position, "t_from", indent + 1);
    printer->pack_count = printer->lane_count = 0;
    printer->lanes = UL_NEW_ARRAY(printer->text->arena, uint32_t, printer->kernel->var_count);
    ul_put_line(&printer->expr, indent + 1, "float t_slide[%u][%u];\n", slide->count, nest->vector);
    put_for(printer, "t_r", slide->count, indent + 1);
    put_factor(printer, nest, sum->value, "t_slide[t_r]", indent + 2);
    put_close(printer, indent + 1);
    for (; loop != slide->inner; loop = stmt_get(printer, loop)->body, depth++)
        put_loop_head(printer, stmt_get(printer, loop), depth);
    ul_put_line(&printer->expr, depth, "{\n");
    put_slide_loop(printer, nest, depth + 1);
    for (; depth > indent; depth--)
        put_close(printer, depth);
    put_slide_results(printer, nest, rest, indent + 1);
    put_close(printer, indent);
}

/* Several rounds of a nest, whose packs `name` counts. `v<id>` of the innermost loop is the first
 * of them outside the loop over t_u, and hidden inside it. */
static void put_pack(struct printer *printer, const struct ul_nest *nest, const char *name,
                     uint32_t indent)
{
    UL_ASSERT(nest->vector > 1 && nest->rounds[nest->count - 1] % nest->vector == 0);
    struct ul_nest packs = *nest;
    uint32_t last = nest->count - 1;
    uint32_t var = stmt_get(printer, nest->loops[last])->var;
    packs.total = ul_nest_items(nest);
    packs.rounds[last] /= nest->vector;
    if (nest->slide.count > 0)
        packs.rounds[nest->slide.loop] /= nest->slide.count;
    put_rounds(printer, &packs, name, indent);
    ul_put_line(&printer->expr, indent, "const %s t_first = v%u * %u;\n", index_type(printer, var),
                var, nest->vector);
    if (nest->slide.count == 0) {
        put_elements(printer, nest, indent);
        return;
    }
    uint32_t position = stmt_get(printer, nest->loops[nest->slide.loop])->var;
    ul_put_line(&printer->expr, indent, "const %s t_from = v%u * %u;\n",
                index_type(printer, position), position, nest->slide.count);
    put_slide(printer, nest, indent);
}

static void find_aligned(const struct printer *printer, const struct ul_nest *nest, ul_kx id,
                         bool *is_found)
{
    const struct ul_kx_data *expr = &printer->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD && ul_grid_is_contiguous(printer->kernel, nest, expr->a))
        is_found[expr->var] = true;
    find_aligned(printer, nest, expr->a, is_found);
    if (ul_kx_operand_count(expr->op) >= 2)
        find_aligned(printer, nest, expr->b, is_found);
    if (ul_kx_operand_count(expr->op) == 3)
        find_aligned(printer, nest, expr->c, is_found);
}

static void find_list_aligned(const struct printer *printer, const struct ul_nest *nest,
                              ul_ks first, bool *is_found)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(printer, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        find_aligned(printer, nest, stmt->value, is_found);
        if (stmt->kind == UL_KS_STORE)
            is_found[stmt->buffer] = true;
        find_list_aligned(printer, nest, stmt->body, is_found);
        find_list_aligned(printer, nest, stmt->orelse, is_found);
    }
}

/* if (all buffers whose packs are read or written are aligned) { */
static void put_aligned(struct printer *printer, const struct ul_nest *nest, uint32_t indent)
{
    const struct ul_kernel *kernel = printer->kernel;
    bool *is_found = UL_NEW_ARRAY(printer->text->arena, bool, kernel->buffer_count);
    const char *separator = "";
    find_list_aligned(printer, nest, ul_nest_body(nest, printer->kernel), is_found);
    ul_put_line(&printer->expr, indent, "if (");
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        if (!is_found[i] || !printer->mentions.buffers[i])
            continue;
        ul_text_printf(printer->text, "%sul_is_aligned(b%u)", separator, i);
        separator = " && ";
    }
    ul_text_put(printer->text, ") {\n");
}

/* for (v = t_thread; v < count; v += team), or the one round of each lane. */
static void put_strided_loop(struct printer *printer, const struct ul_nest *nest, uint32_t indent)
{
    UL_ASSERT(nest->count > 0);
    const struct ul_phase *phase = printer->phase;
    const struct ul_ks_data *loop = stmt_get(printer, nest->loops[0]);
    uint32_t var = loop->var;
    const char *type = index_type(printer, var);
    int64_t count;
    bool all = ul_kx_is_int(printer->kernel, loop->value, &count) && count == phase->team;
    const char *end = ul_expr_text(&printer->expr, loop->value);
    if (nest->total > phase->team) {
        ul_put_line(&printer->expr, indent,
                    "for (%s v%u = t_thread; v%u < %s; v%u += %" PRId64 ") {\n", type, var, var,
                    end, var, phase->team);
    } else {
        ul_put_line(&printer->expr, indent, "{\n");
        ul_put_line(&printer->expr, indent + 1, "[[maybe_unused]] const %s v%u = t_thread", type,
                    var);
        if (nest->shift != UL_NONE) {
            ul_text_put(printer->text, " - ");
            ul_put_expr(&printer->expr, nest->shift);
        }
        ul_text_put(printer->text, ";\n");
        if (!all || nest->shift != UL_NONE) {
            const char *low = nest->shift == UL_NONE
                                  ? ""
                                  : ul_arena_printf(printer->text->arena, "v%u >= 0 && ", var);
            ul_put_line(&printer->expr, ++indent, "if (%sv%u < %s) {\n", low, var, end);
            put_in_thread(printer, loop->body, indent + 1);
            put_close(printer, indent--);
            put_close(printer, indent);
            return;
        }
    }
    put_in_thread(printer, loop->body, indent + 1);
    put_close(printer, indent);
}

/* for (t_round = t_thread; t_round < total; t_round += team) {, or the one round of a thread */
static void put_round_loop(struct printer *printer, int64_t total, uint32_t indent)
{
    UL_ASSERT(!printer->phase->is_loose);
    if (total <= printer->phase->team) {
        ul_put_line(&printer->expr, indent,
                    "if (const %s t_round = t_thread; t_round < %" PRId64 ") {\n",
                    number_type(total), total);
        return;
    }
    ul_put_line(&printer->expr, indent,
                "for (%s t_round = t_thread; t_round < %" PRId64 "; t_round += %" PRId64 ") {\n",
                number_type(total), total, printer->phase->team);
}

static void put_strided_nest(struct printer *printer, const struct ul_nest *nest, uint32_t indent)
{
    if (nest->count == 1) {
        put_strided_loop(printer, nest, indent);
        return;
    }
    put_round_loop(printer, nest->total, indent);
    put_rounds(printer, nest, "t_round", indent + 1);
    put_in_thread(printer, ul_nest_body(nest, printer->kernel), indent + 1);
    put_close(printer, indent);
}

/* Prints packs, where all that they read and write is aligned; else one round at a time. */
static void put_strided(struct printer *printer, ul_ks id, uint32_t indent)
{
    const struct ul_nest *nest = printer->phase->nests[id];
    if (nest->total == 0)
        return;
    if (nest->vector == 1) {
        put_strided_nest(printer, nest, indent);
        return;
    }
    put_aligned(printer, nest, indent);
    put_round_loop(printer, nest->total / nest->vector, indent + 1);
    put_pack(printer, nest, "t_round", indent + 2);
    put_close(printer, indent + 1);
    ul_put_line(&printer->expr, indent, "} else {\n");
    put_strided_nest(printer, nest, indent + 1);
    put_close(printer, indent);
}

/* Finds outer variables that a list sets. */
static void find_set(const struct printer *printer, ul_ks first, bool *is_set)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(printer, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        if (stmt->kind == UL_KS_SET)
            is_set[stmt->var] = printer->expr.used[stmt->var];
        find_set(printer, stmt->body, is_set);
        find_set(printer, stmt->orelse, is_set);
    }
}

static void forget_declared(const struct printer *printer, ul_ks first, bool *is_set)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(printer, id)->next) {
        const struct ul_ks_data *stmt = stmt_get(printer, id);
        if (stmt->kind == UL_KS_VAR)
            is_set[stmt->var] = false;
        forget_declared(printer, stmt->body, is_set);
        forget_declared(printer, stmt->orelse, is_set);
    }
}

/* Turns the team's registers into one value, which each thread gets. */
static void put_fold(struct printer *printer, const struct ul_grid_fold *fold, uint32_t indent)
{
    const struct ul_kx_data *value = &printer->kernel->exprs[fold->value];
    const char *type = ul_c_type(value->dtype);
    ul_put_line(&printer->expr, indent,
                "b%u = ul_fold<%" PRId64 ">(b%u, [](%s x, %s y) -> %s { return ", fold->buffer,
                fold->width, fold->buffer, type, type, type);
    printer->expr.names[value->a] = "x";
    printer->expr.names[value->b] = "y";
    ul_put_expr(&printer->expr, fold->value);
    printer->expr.names[value->a] = printer->expr.names[value->b] = NULL;
    ul_text_put(printer->text, "; });\n");
}

/* Thread 0 runs the loop, and sends what it has set. */
static void put_first(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    bool *is_set = UL_NEW_ARRAY(printer->text->arena, bool, printer->kernel->var_count);
    bool outer = printer->in_thread;
    ul_put_line(&printer->expr, indent, "if (t_thread == 0) {\n");
    printer->in_thread = true;
    put_loop(printer, stmt, indent + 1);
    printer->in_thread = outer;
    put_close(printer, indent);
    find_set(printer, stmt->body, is_set);
    forget_declared(printer, stmt->body, is_set);
    for (uint32_t i = 0; i < printer->kernel->var_count; i++) {
        if (!is_set[i])
            continue;
        ul_put_line(&printer->expr, indent, "v%u = ul_%s_first(v%u);\n", i,
                    is_warp(printer->phase) ? "warp" : "block", i);
    }
}

/* ---- Contractions ---- */

static void contract_expression(void *context, ul_kx expression)
{
    struct printer *printer = context;
    ul_put_expr(&printer->expr, expression);
}

static void contract_statements(void *context, ul_ks first, uint32_t indent)
{
    put_in_thread(context, first, indent);
}

static void contract_load(void *context, uint32_t buffer, const char *index)
{
    struct printer *printer = context;
    ul_put_load(&printer->expr, buffer, index);
}

static bool contract_has_packs(void *context, const struct ul_contraction *contraction,
                               uint32_t along, int64_t rounds, int64_t width)
{
    const struct printer *printer = context;
    struct ul_nest nest;
    return ul_grid_epilogue(&nest, printer->kernel, contraction, along, rounds, width,
                            printer->text->arena);
}

static void contract_packs(void *context, const struct ul_contraction *contraction, uint32_t along,
                           int64_t rounds, int64_t width, uint32_t indent)
{
    struct printer *printer = context;
    struct ul_nest nest;
    bool has_packs = ul_grid_epilogue(&nest, printer->kernel, contraction, along, rounds, width,
                                      printer->text->arena);
    UL_ASSERT(has_packs); /* asked before */
    put_aligned(printer, &nest, indent);
    ul_put_line(&printer->expr, indent + 1, "const %s t_first = (%s)v%u;\n",
                index_type(printer, along), index_type(printer, along), along);
    put_elements(printer, &nest, indent + 1);
    ul_put_line(&printer->expr, indent + 1, "return;\n");
    put_close(printer, indent);
}

static struct ul_contract_cuda_printer contract_printer(struct printer *printer)
{
    return (struct ul_contract_cuda_printer){.text = printer->text,
                                             .kernel = printer->kernel,
                                             .context = printer,
                                             .device = printer->device,
                                             .put_expression = contract_expression,
                                             .put_statements = contract_statements,
                                             .put_load = contract_load,
                                             .has_packs = contract_has_packs,
                                             .put_packs = contract_packs};
}

static const struct ul_contraction *contraction_of(const struct printer *printer, ul_ks id)
{
    return &printer->kernel->contractions[stmt_get(printer, id)->contraction];
}

/* Where the team keeps the first operand of the contraction for its item, or NULL. */
static const char *held_place(const struct printer *printer, ul_ks id)
{
    const struct ul_phase *phase = printer->phase;
    uint32_t warps = phase->block_threads / UL_WARP;
    if (!printer->is_together || phase->held != id)
        return NULL;
    const char *item = "";
    if (phase->held_items > 1)
        item = ul_arena_printf(printer->text->arena, "t_item / (gridDim.x * %uu) * %uu + ", warps,
                               warps);
    return ul_arena_printf(printer->text->arena, "t_held + (%sthreadIdx.x / 32u) * %" PRIu64, item,
                           phase->held_bytes);
}

static void put_contraction(struct printer *printer, ul_ks id, uint32_t indent)
{
    struct ul_contract_cuda_printer contract = contract_printer(printer);
    const struct ul_contraction *contraction = contraction_of(printer, id);
    if (printer->phase->kind == UL_PHASE_TILES) {
        ul_contract_cuda_put_tile(&contract, contraction, indent);
    } else if (printer->phase->kind == UL_PHASE_TEAM && !printer->in_thread) {
        contract.team = printer->phase->is_loose ? 0 : printer->phase->team;
        contract.held = held_place(printer, id);
        ul_contract_cuda_put_team(&contract, contraction, indent);
    } else {
        ul_put_line(&printer->expr, indent, "{\n");
        ul_put_line(&printer->expr, indent + 1, "const int64_t t_thread = 0, t_threads = 1;\n");
        ul_contract_cuda_put_team(&contract, contraction, indent + 1);
        put_close(printer, indent);
    }
}

static void put_statement(struct printer *printer, ul_ks id, uint32_t indent)
{
    const struct ul_ks_data *stmt = stmt_get(printer, id);
    bool in_team = printer->phase->kind == UL_PHASE_TEAM && !printer->in_thread;
    uint8_t mode = in_team ? printer->phase->modes[id] : (uint8_t)UL_TEAM_ALIKE;
    if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR) {
        ul_put_definition(&printer->expr, stmt, indent);
    } else if (stmt->kind == UL_KS_CONTRACT) {
        put_contraction(printer, id, indent);
    } else if (stmt->kind == UL_KS_STORE) {
        put_store(printer, stmt, indent);
    } else if (stmt->kind == UL_KS_IF) {
        put_if(printer, stmt, indent);
    } else if (stmt->kind == UL_KS_BREAK) {
        ul_put_line(&printer->expr, indent, "break;\n");
    } else if (mode == UL_TEAM_STRIDED) {
        put_strided(printer, id, indent);
    } else if (mode == UL_TEAM_FIRST) {
        put_first(printer, stmt, indent);
    } else if (mode == UL_TEAM_FOLD) {
        put_fold(printer, printer->phase->folds[id], indent);
    } else if (mode == UL_TEAM_NOTHING) {
        return;
    } else {
        put_loop(printer, stmt, indent);
    }
}

static void put_list(struct printer *printer, ul_ks first, ul_ks end, uint32_t indent)
{
    for (ul_ks id = first; id != end; id = stmt_get(printer, id)->next) {
        if (has_barriers(printer->phase) && !printer->in_thread && printer->phase->barriers[id])
            put_barrier(printer, indent);
        put_statement(printer, id, indent);
    }
}

/* ---- The frame of a phase ---- */

static bool is_within(const struct printer *printer, ul_ks id)
{
    const struct ul_phase *phase = printer->phase;
    for (ul_ks k = phase->top_first; k != phase->top_end; k = stmt_get(printer, k)->next) {
        if (k == id)
            return true;
    }
    return false;
}

/* Marks the names of a list on the host that the phase needs, from the last to the first. */
static void mention_names(struct printer *printer, ul_ks first, bool *is_needed)
{
    if (first == UL_NONE)
        return;
    mention_names(printer, stmt_get(printer, first)->next, is_needed);
    const struct ul_ks_data *stmt = stmt_get(printer, first);
    if (stmt->kind == UL_KS_LET && printer->grid.is_name[stmt->var] &&
        printer->mentions.vars[stmt->var] && printer->expr.used[stmt->var] &&
        !is_within(printer, first)) {
        is_needed[first] = true;
        ul_mention_expr(&printer->mentions, stmt->value);
    }
}

/* Finds everything that the phase names; returns the names of lists on the host that it must
 * compute again. */
static bool *find_mentions(struct printer *printer)
{
    const struct ul_phase *phase = printer->phase;
    bool *is_needed = UL_NEW_ARRAY(printer->text->arena, bool, printer->kernel->stmt_count);
    ul_mentions_init(&printer->mentions, printer->kernel, printer->expr.used, printer->text->arena);
    ul_mention_list(&printer->mentions, phase->top_first, phase->top_end);
    for (uint32_t i = phase->host_count; i-- > 0;)
        mention_names(printer, stmt_get(printer, phase->hosts[i])->body, is_needed);
    mention_names(printer, printer->kernel->first, is_needed);
    return is_needed;
}

static void put_list_names(struct printer *printer, const bool *is_needed, ul_ks first,
                           uint32_t indent)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_get(printer, id)->next) {
        if (is_needed[id])
            ul_put_definition(&printer->expr, stmt_get(printer, id), indent);
    }
}

static void put_names(struct printer *printer, const bool *is_needed, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    put_list_names(printer, is_needed, printer->kernel->first, indent);
    for (uint32_t i = 0; i < phase->host_count; i++)
        put_list_names(printer, is_needed, stmt_get(printer, phase->hosts[i])->body, indent);
}

static bool uses_scratch(const struct printer *printer)
{
    const struct ul_phase *phase = printer->phase;
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &printer->kernel->buffers[i];
        bool in_scratch =
            (buffer->role == UL_BUFFER_SCRATCH && phase->places[i] == UL_PLACE_ARENA) ||
            phase->places[i] == UL_PLACE_OWN;
        if (in_scratch && printer->mentions.buffers[i])
            return true;
    }
    return false;
}

/* The parameters of the phases of a launch. */
struct parameters {
    bool *buffers, *vars; /* by buffer, by variable of a loop on the host */
    bool scratch;
};

static struct parameters find_parameters(struct printer *printer, const struct ul_phase *phases,
                                         uint32_t count)
{
    const struct ul_kernel *kernel = printer->kernel;
    struct parameters p = {.buffers =
                               UL_NEW_ARRAY(printer->text->arena, bool, kernel->buffer_count),
                           .vars = UL_NEW_ARRAY(printer->text->arena, bool, kernel->var_count)};
    for (uint32_t at = 0; at < count; at++) {
        if (phases[at].block_count == 0)
            continue;
        printer->phase = &phases[at];
        find_mentions(printer);
        for (uint32_t i = 0; i < kernel->buffer_count; i++)
            p.buffers[i] = p.buffers[i] || printer->mentions.buffers[i];
        for (uint32_t i = 0; i < kernel->var_count; i++)
            p.vars[i] = p.vars[i] || printer->mentions.vars[i];
        p.scratch = p.scratch || uses_scratch(printer);
    }
    return p;
}

enum list {
    BEFORE,   /* parameters, each followed by a comma */
    BEHIND,   /* parameters, each after a comma */
    ARGUMENTS /* the same, without types */
};

/* Parameters of some phases, with the given loops around them on the host; or arguments. */
static void put_parameters(struct printer *printer, const struct ul_phase *phases, uint32_t count,
                           uint32_t host_count, enum list list)
{
    const struct ul_kernel *kernel = printer->kernel;
    struct parameters p = find_parameters(printer, phases, count);
    const char *before = list == BEFORE ? "" : ", ", *after = list == BEFORE ? ", " : "";
    bool typed = list != ARGUMENTS;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (!is_parameter(buffer) || !p.buffers[i])
            continue;
        ul_text_put(printer->text, before);
        if (typed)
            ul_text_printf(printer->text, "%s%s *", buffer->role == UL_BUFFER_INPUT ? "const " : "",
                           ul_storage_type(buffer->dtype));
        ul_text_printf(printer->text, "b%u%s", i, after);
    }
    if (p.scratch)
        ul_text_printf(printer->text, "%s%sscratch%s", before, typed ? "unsigned char *" : "",
                       after);
    for (uint32_t i = 0; i < host_count; i++) {
        uint32_t var = stmt_get(printer, phases->hosts[i])->var;
        if (p.vars[var])
            ul_text_printf(printer->text, "%s%sv%u%s", before, typed ? "int64_t " : "", var, after);
    }
}

/* Scratch and arrays of a place. */
static void put_arrays(struct printer *printer, enum ul_grid_place place, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &printer->kernel->buffers[i];
        const char *type = ul_storage_type(buffer->dtype);
        if (is_parameter(buffer) || phase->places[i] != (uint8_t)place ||
            !printer->mentions.buffers[i])
            continue;
        ul_put_indent(&printer->expr, indent);
        if (place == UL_PLACE_THREAD)
            ul_text_printf(printer->text, "%s b%u[%" PRIu64 "];\n", type, i, buffer->element_count);
        else if (place == UL_PLACE_REGISTER)
            ul_text_printf(printer->text, "%s b%u = 0;\n", type, i);
        else
            ul_text_printf(printer->text, "%s *const b%u = ul_at<%s>(%s, %" PRIu64 ");\n", type, i,
                           type,
                           place == UL_PLACE_OWN      ? "t_own"
                           : place == UL_PLACE_SHARED ? "t_shared"
                                                      : "scratch",
                           phase->offsets_bytes[i]);
    }
}

static bool uses_place(const struct printer *printer, enum ul_grid_place place)
{
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++) {
        if (printer->phase->places[i] == (uint8_t)place && printer->mentions.buffers[i])
            return true;
    }
    return false;
}

/* What an item has of its own, before its statements. */
static void put_item(struct printer *printer, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    put_rounds(printer, &phase->items, "t_item", indent);
    put_arrays(printer, UL_PLACE_THREAD, indent);
    put_arrays(printer, UL_PLACE_REGISTER, indent);
    put_list(printer, phase->first, phase->end, indent);
}

/* for (t_item of the grid, or of the phase's blocks) { */
static void put_item_loop(struct printer *printer, int64_t total, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    ul_put_line(&printer->expr, indent, "for (%s t_item = ul_item_first()", number_type(total));
    if (phase->first_block > 0)
        ul_text_printf(printer->text, " - %" PRId64, phase->first_block * phase->block_threads);
    ul_text_printf(printer->text, "; t_item < %" PRId64 "; t_item += ", total);
    if (printer->is_joined)
        ul_text_printf(printer->text, "%" PRId64 ") {\n",
                       phase->block_count * phase->block_threads);
    else
        ul_text_put(printer->text, "ul_item_stride()) {\n");
}

/* if (t_item, this thread's item in rows, exists) { */
static void put_row_item(struct printer *printer, int64_t total, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    ul_put_line(&printer->expr, indent, "if (const %s t_item = ul_item_of_group(blockIdx.x",
                number_type(total));
    if (phase->first_block > 0)
        ul_text_printf(printer->text, " - %" PRId64, phase->first_block);
    ul_text_printf(printer->text, ", %" PRId64 ", %" PRId64 "); t_item < %" PRId64 ") {\n",
                   phase->group_width, phase->group_row, total);
}

static void put_each(struct printer *printer, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    bool is_alone = false; /* packs are printed, and nothing else follows them */
    if (phase->items.count == 0) {
        put_item(printer, indent);
        return;
    }
    if (phase->items.vector > 1) {
        if (phase->group_row > 0) {
            ul_put_line(&printer->expr, indent, "bool t_in_rows = false;\n");
        }
        put_aligned(printer, &phase->items, indent);
        if (phase->group_row > 0) {
            ul_put_line(&printer->expr, indent + 1, "t_in_rows = true;\n");
        }
        if (phase->group_row > 0)
            put_row_item(printer, ul_nest_items(&phase->items), indent + 1);
        else
            put_item_loop(printer, ul_nest_items(&phase->items), indent + 1);
        put_pack(printer, &phase->items, "t_item", indent + 2);
        put_close(printer, indent + 1);
        is_alone = !phase->is_followed;
        if (is_alone) {
            ul_put_line(&printer->expr, indent + 1, "return;\n");
            put_close(printer, indent);
        } else {
            put_else(printer, indent++);
        }
    }
    if (phase->group_row > 0 && phase->items.vector == 1)
        put_row_item(printer, phase->items.total, indent);
    else
        put_item_loop(printer, phase->items.total, indent);
    put_item(printer, indent + 1);
    put_close(printer, indent);
    if (phase->items.vector > 1 && !is_alone)
        put_close(printer, indent - 1);
}

/* Lanes are items of their own. */
static void put_loose(struct printer *printer)
{
    const struct ul_phase *phase = printer->phase;
    int64_t lanes = phase->items.total * phase->team;
    const char *type = number_type(lanes), *suffix = number_suffix(lanes);
    const char *rest =
        ul_arena_printf(printer->text->arena, " %% %" PRId64 "%s", phase->team, suffix);
    ul_text_printf(printer->text,
                   "    for (%s t_lane = ul_item_first(); t_lane < %" PRId64
                   "; t_lane += ul_item_stride()) {\n",
                   type, lanes);
    ul_text_printf(
        printer->text,
        "        [[maybe_unused]] const %s t_thread = (%s)(t_lane%s), t_threads = %" PRId64 ";\n",
        is_few(lanes) ? "int32_t" : "int64_t", is_few(lanes) ? "int32_t" : "int64_t",
        phase->items.total > 1 ? rest : "", phase->team);
    if (phase->items.count > 0)
        ul_text_printf(printer->text,
                       "        [[maybe_unused]] const %s t_item = t_lane / %" PRId64 "%s;\n", type,
                       phase->team, suffix);
    put_item(printer, 2);
    put_close(printer, 1);
}

static void put_team(struct printer *printer)
{
    const struct ul_phase *phase = printer->phase;
    if (phase->items.count == 0) {
        put_item(printer, 1);
        return;
    }
    ul_text_printf(printer->text,
                   "    for (%s t_item = t_team; t_item < %" PRId64
                   "; t_item += gridDim.x * %" PRId64 "%s) {\n",
                   number_type(phase->items.total), phase->items.total,
                   phase->block_threads / phase->team, number_suffix(phase->items.total));
    put_item(printer, 2);
    if (uses_place(printer, UL_PLACE_SHARED) || uses_place(printer, UL_PLACE_OWN))
        put_barrier(printer, 2); /* the next item overwrites them */
    put_close(printer, 1);
}

static void put_tiles(struct printer *printer, int64_t tile_count)
{
    const struct ul_phase *phase = printer->phase;
    ul_text_printf(printer->text,
                   "    for (int64_t t_block = blockIdx.x; t_block < %" PRId64
                   "; t_block += gridDim.x) {\n",
                   tile_count * phase->items.total);
    ul_text_printf(printer->text, "        const int64_t t_tile = t_block%s;\n",
                   phase->items.total > 1
                       ? ul_arena_printf(printer->text->arena, " %% %" PRId64, tile_count)
                       : "");
    if (phase->items.total > 1)
        ul_text_printf(printer->text,
                       "        [[maybe_unused]] const %s t_item = t_block / %" PRId64 ";\n",
                       number_type(phase->items.total), tile_count);
    else if (phase->items.count > 0)
        ul_text_put(printer->text, "        [[maybe_unused]] const uint32_t t_item = 0;\n");
    put_item(printer, 2);
    put_close(printer, 1);
}

/* The number of this thread in its team, and of the team. */
static void put_team_names(struct printer *printer)
{
    const struct ul_phase *phase = printer->phase;
    int64_t teams = phase->kind == UL_PHASE_TEAM && !phase->is_loose
                        ? phase->block_threads / phase->team
                        : phase->block_threads;
    if (has_barriers(phase)) {
        ul_text_printf(printer->text,
                       "    [[maybe_unused]] const int32_t t_thread = threadIdx.x%s, ",
                       teams > 1 ? " % 32" : "");
        ul_text_printf(printer->text, "t_threads = %" PRId64 ";\n", phase->team);
        ul_text_put(printer->text, "    [[maybe_unused]] const uint32_t t_team = ");
        if (printer->is_together)
            ul_text_put(printer->text, "threadIdx.x / 32 * gridDim.x + blockIdx.x;\n");
        else if (teams > 1)
            ul_text_printf(printer->text, "blockIdx.x * %" PRId64 " + threadIdx.x / 32;\n", teams);
        else
            ul_text_put(printer->text, "blockIdx.x;\n");
    } else if (phase->kind == UL_PHASE_EACH && uses_place(printer, UL_PLACE_OWN)) {
        ul_text_put(printer->text, "    const int64_t t_team = ul_item_first();\n");
    }
    if (uses_place(printer, UL_PLACE_SHARED))
        ul_text_printf(printer->text, "    unsigned char *const t_shared = t_shared_block%s;\n",
                       teams > 1 ? ul_arena_printf(printer->text->arena, " + threadIdx.x / 32 * %u",
                                                   phase->shared_bytes)
                                 : "");
    if (uses_place(printer, UL_PLACE_OWN))
        ul_text_printf(printer->text,
                       "    unsigned char *const t_own = scratch + (%" PRIu64
                       " + (int64_t)t_team * %" PRIu64 ");\n",
                       printer->grid.own_offset_bytes, phase->own_bytes);
    put_arrays(printer, UL_PLACE_ARENA, 1);
    put_arrays(printer, UL_PLACE_SHARED, 1);
    put_arrays(printer, UL_PLACE_OWN, 1);
}

/* ---- A phase in the launch of the one before it (grid_follow.c) ---- */

/* The kernel's own names for the buffers of a launch of several kernels. */
static void put_member_buffers(const struct printer *printer, uint32_t indent)
{
    const struct ul_kernel *kernel = printer->kernel;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (!is_parameter(buffer) || !printer->mentions.buffers[i])
            continue;
        ul_put_line(&printer->expr, indent, "%s%s *const b%u = m%u_b%u;\n",
                    buffer->role == UL_BUFFER_INPUT ? "const " : "", ul_storage_type(buffer->dtype),
                    i, printer->member, i);
    }
}

/* The number of a block among those of the phase. */
static const char *block_of(const struct printer *printer, const struct ul_phase *phase)
{
    return phase->first_block == 0
               ? "blockIdx.x"
               : ul_arena_printf(printer->text->arena, "(blockIdx.x - %" PRId64 ")",
                                 phase->first_block);
}

/* if (this block is the last one of its group) {, and the items with which it continues */
static void put_last_head(struct printer *printer, const struct ul_phase *lead, uint32_t indent)
{
    struct ul_arena *arena = printer->text->arena;
    int64_t groups = ul_phase_groups(lead), blocks = lead->block_count;
    int64_t width = lead->group_width * lead->items.vector, total = lead[1].items.total;
    bool may_be_whole = groups > 1 && lead->items.vector > 1;
    const char *begin = may_be_whole ? "t_in_rows ? " : "", *group = "0u";
    const char *block = block_of(printer, lead);
    if (groups > 1)
        group = ul_arena_printf(arena, "%s%s %% %" PRId64 "u%s", begin, block, groups,
                                may_be_whole ? " : 0u" : "");
    if (groups > 1) {
        ul_put_line(&printer->expr, indent, "const uint32_t t_group = %s;\n", group);
    }
    ul_put_line(&printer->expr, indent, "if (ul_is_last<%u>(counters", ul_phase_counter_bits(lead));
    if (printer->first_counter > 0)
        ul_text_printf(printer->text, " + %u", printer->first_counter);
    ul_text_printf(printer->text, ", %s, %s%" PRId64 "u", groups > 1 ? "t_group" : "0u", begin,
                   blocks / groups);
    if (may_be_whole)
        ul_text_printf(printer->text, " : %" PRId64 "u", blocks);
    ul_text_put(printer->text, ")) {\n");
    ul_put_line(&printer->expr, indent + 1, "[[maybe_unused]] const uint32_t ");
    if (groups == 1)
        ul_text_printf(printer->text, "t_from = 0, t_to = %" PRId64 ";\n", total);
    else if (may_be_whole)
        ul_text_printf(printer->text,
                       "t_from = t_group * %" PRId64 "u, t_to = t_in_rows ? t_from + %" PRId64
                       "u : %" PRId64 "u;\n",
                       width, width, total);
    else
        ul_text_printf(printer->text,
                       "t_from = t_group * %" PRId64 "u, t_to = t_from + %" PRId64 "u;\n", width,
                       width);
}

/* The items of a phase of teams that this block of a shared launch has. */
static void put_joined_team(struct printer *printer, uint32_t indent)
{
    const struct ul_phase *phase = printer->phase;
    int64_t teams = phase->block_threads / phase->team;
    UL_ASSERT(phase->block_threads % phase->team == 0 && (teams == 1 || is_warp(phase)));
    ul_put_line(&printer->expr, indent,
                "[[maybe_unused]] const int32_t t_thread = threadIdx.x%s, t_threads = %" PRId64
                ";\n",
                teams > 1 ? " % 32" : "", phase->team);
    ul_put_indent(&printer->expr, indent);
    if (phase->items.count == 0) {
        ul_text_printf(printer->text, "if (threadIdx.x < %" PRId64 ") {\n", phase->team);
    } else {
        ul_text_printf(printer->text, "for (%s t_item = ", number_type(phase->items.total));
        ul_text_put(printer->text, block_of(printer, phase));
        if (teams > 1)
            ul_text_printf(printer->text, " * %" PRId64 " + threadIdx.x / 32", teams);
        ul_text_printf(printer->text, "; t_item < %" PRId64 "; t_item += %" PRId64 ") {\n",
                       phase->items.total, phase->block_count * teams);
    }
    put_item(printer, indent + 1);
    put_close(printer, indent);
}

/* The items of the next phase that this block has, by teams of its threads. */
static void put_last_items(struct printer *printer, uint32_t threads, uint32_t indent)
{
    const struct ul_phase *next = printer->phase;
    bool is_team = next->kind == UL_PHASE_TEAM;
    if (is_team) {
        ul_put_line(
            &printer->expr, indent,
            "[[maybe_unused]] const int32_t t_thread = threadIdx.x %% 32, t_threads = 32;\n");
    }
    ul_put_indent(&printer->expr, indent);
    if (next->items.count == 0)
        ul_text_printf(printer->text, "if (threadIdx.x < %" PRId64 ") {\n", next->team);
    else
        ul_text_printf(printer->text,
                       "for (uint32_t t_item = t_from + threadIdx.x%s; t_item < t_to; "
                       "t_item += %" PRId64 "u) {\n",
                       is_team ? " / 32" : "", threads / next->team);
    put_item(printer, indent + 1);
    put_close(printer, indent);
}

/* The phase with which the last block of a group continues. */
static void put_next(struct printer *printer, uint32_t indent)
{
    const struct ul_phase *lead = printer->phase, *next = lead + 1;
    const bool *outer = printer->expr.is_scalar;
    bool *is_scalar = UL_NEW_ARRAY(printer->text->arena, bool, printer->kernel->buffer_count);
    UL_ASSERT(lead->is_followed && next->joined_count == 0);
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++)
        is_scalar[i] = next->places[i] == UL_PLACE_REGISTER;
    put_last_head(printer, lead, indent);
    printer->phase = next;
    printer->expr.is_scalar = is_scalar;
    const bool *is_needed = find_mentions(printer);
    if (printer->member != UL_NONE)
        put_member_buffers(printer, indent + 1);
    put_arrays(printer, UL_PLACE_ARENA, indent + 1);
    put_names(printer, is_needed, indent + 1);
    put_last_items(printer, lead->block_threads, indent + 1);
    put_close(printer, indent);
    printer->phase = lead;
    printer->expr.is_scalar = outer;
}

static ul_ks tiled_contraction(const struct printer *printer)
{
    UL_ASSERT(printer->phase->kind == UL_PHASE_TILES);
    ul_ks id = printer->phase->first;
    while (stmt_get(printer, id)->kind != UL_KS_CONTRACT)
        id = stmt_get(printer, id)->next;
    return id;
}

/* For how many blocks on a multiprocessor nvcc must have registers; 0: for as many as it thinks
 * best, though it then spills some. */
static uint32_t min_blocks(struct printer *printer, const struct ul_phase *phase)
{
    struct ul_contract_grid grid;
    if (phase->kind != UL_PHASE_TILES)
        return phase->items.slide.count > 0 ? UL_DEVICE_ROOMY_THREADS / phase->block_threads : 0;
    printer->phase = phase;
    ul_contract_cuda_grid(printer->kernel, contraction_of(printer, tiled_contraction(printer)),
                          printer->device, &grid);
    return grid.min_blocks;
}

/* The fewest blocks that a multiprocessor must have for one of the phases, or `least` if that is
 * fewer. 0: none of them asks for any. */
static uint32_t least_blocks(struct printer *printer, const struct ul_phase *phases, uint32_t count,
                             uint32_t least)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t blocks = min_blocks(printer, &phases[i]);
        least = blocks > 0 && (least == 0 || blocks < least) ? blocks : least;
    }
    return least;
}

static void put_bounds(struct ul_text *text, uint32_t threads, uint32_t least)
{
    ul_text_printf(text, "static __global__ void __launch_bounds__(%u", threads);
    if (least > 0)
        ul_text_printf(text, ", %u", least);
    ul_text_put(text, ") ");
}

static void put_head(struct printer *printer, uint32_t number)
{
    const struct ul_phase *phase = &printer->grid.phases[number];
    put_bounds(printer->text, phase->block_threads,
               least_blocks(printer, phase, phase->joined_count, 0));
    ul_text_printf(printer->text, "@_%u(", number);
    put_parameters(printer, phase, ul_phase_span(phase), phase->host_count, BEFORE);
    ul_text_printf(printer->text, "%sstruct ul_where run)\n{\n",
                   phase->is_followed ? "uint32_t *counters, " : "");
}

/* Opens the braces of the phase among those of a launch, after those of the phase before it. */
static void put_branch(const struct printer *printer, bool is_first, bool is_last)
{
    const struct ul_phase *phase = printer->phase;
    ul_text_put(printer->text, is_first ? "    " : "    } else ");
    if (!is_last)
        ul_text_printf(printer->text, "if (blockIdx.x < %" PRId64 ") ",
                       phase->first_block + phase->block_count);
    ul_text_put(printer->text, "{\n");
}

/* Phases that share a launch, each with blocks of its own. */
static void put_joined(struct printer *printer, uint32_t number)
{
    UL_ASSERT(printer->grid.phases[number].joined_count > 1);
    const struct ul_phase *phases = &printer->grid.phases[number];
    put_head(printer, number);
    ul_text_put(printer->text, "    UL_ENTER(run);\n");
    printer->is_joined = true;
    for (uint32_t i = 0; i < phases->joined_count; i++) {
        printer->phase = &phases[i];
        const bool *is_needed = find_mentions(printer);
        put_branch(printer, i == 0, i + 1 == phases->joined_count);
        put_arrays(printer, UL_PLACE_ARENA, 2);
        put_names(printer, is_needed, 2);
        put_each(printer, 2);
    }
    printer->is_joined = false;
    ul_text_put(printer->text, "    }\n}\n\n");
}

/* Prints the contents of the braces of a phase's function. */
static void put_body(struct printer *printer, const struct ul_phase *phase)
{
    printer->phase = phase;
    const bool *is_needed = find_mentions(printer);
    bool *is_scalar = UL_NEW_ARRAY(printer->text->arena, bool, printer->kernel->buffer_count);
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++)
        is_scalar[i] = phase->places[i] == UL_PLACE_REGISTER;
    printer->expr.is_scalar = is_scalar;
    struct ul_contract_grid grid = {.tile_count = 0};
    if (phase->kind == UL_PHASE_TILES) {
        struct ul_contract_cuda_printer contract = contract_printer(printer);
        const struct ul_contraction *contraction =
            contraction_of(printer, tiled_contraction(printer));
        ul_contract_cuda_grid(printer->kernel, contraction, printer->device, &grid);
        contract.shared = printer->is_together ? "t_shared_block" : NULL;
        ul_contract_cuda_put_shared(&contract, contraction, 1);
    }
    if (uses_place(printer, UL_PLACE_SHARED) && !printer->is_together)
        ul_text_printf(printer->text,
                       "    UL_SHARED(unsigned char, t_shared_block, %" PRId64 ");\n",
                       phase->shared_bytes * (phase->block_threads / phase->team));
    if (!printer->is_together)
        ul_text_put(printer->text, "    UL_ENTER(run);\n");
    put_team_names(printer);
    put_names(printer, is_needed, 1);
    if (phase->kind == UL_PHASE_TILES)
        put_tiles(printer, grid.tile_count);
    else if (phase->kind == UL_PHASE_EACH)
        put_each(printer, 1);
    else if (phase->is_loose)
        put_loose(printer);
    else
        put_team(printer);
    if (phase->is_followed)
        put_next(printer, 1);
    printer->expr.is_scalar = NULL;
}

static void put_phase(struct printer *printer, uint32_t number)
{
    UL_ASSERT(printer->grid.phases[number].joined_count == 1);
    put_head(printer, number);
    put_body(printer, &printer->grid.phases[number]);
    ul_text_put(printer->text, "}\n\n");
}

/* ---- Phases in one launch whose blocks wait for each other ---- */

/* Closes and opens loops around launches or parts of one, from those around the phase before to
 * those around this one. */
static uint32_t put_hosts(struct printer *printer, const struct ul_phase *before,
                          const struct ul_phase *now)
{
    uint32_t open = before == NULL ? 0 : before->host_count;
    uint32_t wanted = now == NULL ? 0 : now->host_count, same = 0;
    while (same < open && same < wanted && before->hosts[same] == now->hosts[same])
        same++;
    while (open > same)
        put_close(printer, open--);
    for (; open < wanted; open++) {
        const struct ul_ks_data *loop = stmt_get(printer, now->hosts[open]);
        ul_put_line(&printer->expr, open + 1, "for (int64_t v%u = 0; v%u < %s; v%u++) {\n",
                    loop->var, loop->var, ul_expr_text(&printer->expr, loop->value), loop->var);
    }
    return wanted;
}

/* The number of the kernel's function. */
static uint32_t number_of(const struct printer *printer, const struct ul_together *together)
{
    return printer->grid.phase_count + (uint32_t)(together - printer->grid.together);
}

/* The phase with the loops that are on the host in either case. */
static struct ul_phase outer_of(const struct printer *printer, const struct ul_together *together)
{
    struct ul_phase outer = printer->grid.phases[together->first];
    outer.host_count = together->host_count;
    return outer;
}

/* The first of them that is not empty, from number i on; or their count. */
static uint32_t next_part(const struct ul_together *together, uint32_t i)
{
    uint32_t count = together->end - together->first;
    while (i < count && together->phases[i].block_count == 0)
        i++;
    return i;
}

/* Whether it may use the array that phases use in turn. */
static bool shares(const struct ul_together *together, const struct ul_phase *phase)
{
    return together->shared_bytes > 0 && (phase->kind == UL_PHASE_TILES || phase->shared_bytes > 0);
}

static void put_part(struct printer *printer, const struct ul_together *together, uint32_t i)
{
    const struct ul_phase *phase = &together->phases[i];
    ul_text_printf(printer->text,
                   "static __device__ __forceinline__ void @_%u_part("
                   "[[maybe_unused]] struct ul_where run",
                   together->first + i);
    put_parameters(printer, phase, 1, phase->host_count, BEHIND);
    if (shares(together, phase))
        ul_text_put(printer->text, ", [[maybe_unused]] unsigned char *t_shared_block");
    if (phase->held != UL_NONE)
        ul_text_put(printer->text, ", unsigned char *t_held, bool t_first");
    ul_text_put(printer->text, ")\n{\n");
    put_body(printer, phase);
    ul_text_put(printer->text, "}\n\n");
}

/* The first round of all loops around the phase that are inside the launch. */
static void put_first_round(struct printer *printer, const struct ul_together *together,
                            const struct ul_phase *phase)
{
    const char *separator = "";
    for (uint32_t i = together->host_count; i < phase->host_count; i++) {
        ul_text_printf(printer->text, "%sv%u == 0", separator,
                       stmt_get(printer, phase->hosts[i])->var);
        separator = " && ";
    }
}

static void put_part_call(struct printer *printer, const struct ul_together *together, uint32_t i,
                          uint32_t indent)
{
    const struct ul_phase *phase = &together->phases[i];
    ul_put_line(&printer->expr, indent, "@_%u_part(run", together->first + i);
    put_parameters(printer, phase, 1, phase->host_count, ARGUMENTS);
    if (shares(together, phase))
        ul_text_put(printer->text, ", t_shared_block");
    if (phase->held != UL_NONE) {
        ul_text_printf(printer->text, ", t_held + %" PRIu64 ", ", phase->held_offset_bytes);
        put_first_round(printer, together, phase);
    }
    ul_text_put(printer->text, ");\n");
}

/* The kernel of all of them. All blocks meet after each part on which another one may depend. */
static void put_together(struct printer *printer, const struct ul_together *together)
{
    uint32_t count = together->end - together->first, first = next_part(together, 0);
    struct ul_phase outer = outer_of(printer, together);
    const struct ul_phase *before = &outer;
    printer->is_together = true;
    for (uint32_t i = first; i < count; i = next_part(together, i + 1))
        put_part(printer, together, i);
    ul_text_printf(printer->text, "static __global__ void __launch_bounds__(%u, 1) @_%u(",
                   together->block_threads, number_of(printer, together));
    put_parameters(printer, together->phases, count, together->host_count, BEFORE);
    ul_text_put(printer->text, "struct ul_meeting *meeting, struct ul_where run)\n{\n"
                               "    UL_SHARED_REST(t_held);\n");
    if (together->shared_bytes > 0)
        ul_text_printf(printer->text,
                       "    UL_SHARED(unsigned char, t_shared_block, %" PRIu64 ");\n",
                       together->shared_bytes);
    ul_text_put(printer->text, "    UL_ENTER(run);\n");
    for (uint32_t i = first; i < count;) {
        const struct ul_phase *phase = &together->phases[i];
        uint32_t next = next_part(together, i + 1), open = put_hosts(printer, before, phase);
        put_part_call(printer, together, i, open + 1);
        bool is_joined = next < count && together->phases[next].joined_count == 0;
        if (!is_joined && (next < count || phase->host_count > together->host_count)) {
            ul_put_line(&printer->expr, open + 1, "ul_meet(meeting);\n");
        }
        before = phase;
        i = next;
    }
    put_hosts(printer, before, &outer);
    ul_text_put(printer->text, "}\n\n");
    printer->is_together = false;
}

/* ---- The host's function ---- */

static void put_launch(struct printer *printer, uint32_t number, uint32_t indent)
{
    UL_ASSERT(printer->grid.phases[number].joined_count > 0);
    const struct ul_phase *phases = &printer->grid.phases[number];
    const struct ul_phase *last = &phases[phases->joined_count - 1];
    ul_put_line(&printer->expr, indent, "UL_LAUNCH(@_%u, %" PRId64 ", %u, at", number,
                last->first_block + last->block_count, phases->block_threads);
    put_parameters(printer, phases, ul_phase_span(phases), phases->host_count, ARGUMENTS);
    ul_text_printf(printer->text, "%s);\n", phases->is_followed ? ", at->run->counters" : "");
}

/* Buffers of a function of the host, and scratch: parameters, which need not be used, or
 * arguments. */
static void put_host_parameters(struct printer *printer, bool typed)
{
    const struct ul_kernel *kernel = printer->kernel;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (!is_parameter(buffer))
            continue;
        if (typed)
            ul_text_printf(printer->text, ", [[maybe_unused]] %s%s *b%u",
                           buffer->role == UL_BUFFER_INPUT ? "const " : "",
                           ul_storage_type(buffer->dtype), i);
        else
            ul_text_printf(printer->text, ", b%u", i);
    }
    if (printer->grid.scratch_bytes > 0)
        ul_text_printf(printer->text, ", %sscratch",
                       typed ? "[[maybe_unused]] unsigned char *" : "");
}

/* Variables of loops on the host around phases. */
static void put_host_variables(struct printer *printer, const struct ul_phase *outer, bool typed)
{
    for (uint32_t i = 0; i < outer->host_count; i++)
        ul_text_printf(printer->text, ", %sv%u", typed ? "[[maybe_unused]] int64_t " : "",
                       stmt_get(printer, outer->hosts[i])->var);
}

static void put_together_launch(struct printer *printer, const struct ul_together *together,
                                uint32_t indent)
{
    uint32_t number = number_of(printer, together);
    struct ul_phase outer = outer_of(printer, together);
    ul_put_line(&printer->expr, indent,
                "if (ul_cuda_is_resident(at, (const void *)@_%u, %" PRId64 ", %u, %" PRIu64 "))\n",
                number, together->block_count, together->block_threads, together->held_bytes);
    ul_put_line(&printer->expr, indent + 1,
                "UL_LAUNCH_TOGETHER(@_%u, %" PRId64 ", %u, %" PRIu64 ", at", number,
                together->block_count, together->block_threads, together->held_bytes);
    put_parameters(printer, together->phases, together->end - together->first, together->host_count,
                   ARGUMENTS);
    ul_text_put(printer->text, ", &at->run->state->meeting);\n");
    ul_put_line(&printer->expr, indent, "if (ul_cuda_is_apart(at))\n");
    ul_put_line(&printer->expr, indent + 1, "@_%u_apart(at", number);
    put_host_parameters(printer, false);
    put_host_variables(printer, &outer, false);
    ul_text_put(printer->text, ");\n");
}

/* A launch for each phase, except for those that `gathers` finds together; `outer` has the loops
 * that are open. */
static void put_launches(struct printer *printer, uint32_t first, uint32_t end,
                         const struct ul_phase *outer, bool gathers)
{
    const struct ul_grid *grid = &printer->grid;
    const struct ul_phase *before = outer;
    for (uint32_t i = first; i < end; i++) {
        const struct ul_phase *phase = &grid->phases[i];
        const struct ul_together *together = gathers ? ul_grid_find_together(grid, i) : NULL;
        if (together != NULL) {
            struct ul_phase *now = UL_NEW(printer->text->arena, struct ul_phase);
            *now = outer_of(printer, together);
            put_together_launch(printer, together, put_hosts(printer, before, now) + 1);
            before = now;
            i = together->end - 1;
        } else if (ul_phase_is_launched(phase)) {
            put_launch(printer, i, put_hosts(printer, before, phase) + 1);
            before = phase;
        }
    }
    put_hosts(printer, before, outer);
}

/* The launches for a device that does not hold all blocks of the joint launch. */
static void put_apart(struct printer *printer, const struct ul_together *together)
{
    struct ul_phase outer = outer_of(printer, together);
    ul_text_printf(printer->text, "static void @_%u_apart(const struct ul_cuda_step *at",
                   number_of(printer, together));
    put_host_parameters(printer, true);
    put_host_variables(printer, &outer, true);
    ul_text_put(printer->text, ")\n{\n");
    put_launches(printer, together->first, together->end, &outer, false);
    ul_text_put(printer->text, "}\n\n");
}

static void put_host(struct printer *printer)
{
    const struct ul_phase none = {.host_count = 0};
    for (uint32_t i = 0; i < printer->grid.together_count; i++)
        put_apart(printer, &printer->grid.together[i]);
    ul_text_put(printer->text, "static void @([[maybe_unused]] const struct ul_cuda_step *at");
    put_host_parameters(printer, true);
    ul_text_put(printer->text, ")\n{\n");
    put_launches(printer, 0, printer->grid.phase_count, &none, true);
    ul_text_put(printer->text, "}\n");
}

static void printer_init(struct printer *printer, struct ul_text *text,
                         const struct ul_kernel *kernel, const struct ul_profile_device *device)
{
    kernel = ul_contract_device_open(ul_attend_cuda_rewrite(kernel, device, text->arena), device,
                                     text->arena);
    ul_kernel_verify_or_die(kernel, false, text->arena,
                            "the rewriting of a kernel for target cuda");
    *printer =
        (struct printer){.text = text, .kernel = kernel, .device = device, .member = UL_NONE};
    ul_expr_printer_init(&printer->expr, text, kernel);
    printer->expr.is_short = ul_narrow(kernel, text->arena);
    printer->expr.names = UL_NEW_ARRAY(text->arena, const char *, kernel->expr_count);
    printer->expr.elements = UL_NEW_ARRAY(text->arena, const char *, kernel->expr_count);
    ul_grid_init(&printer->grid, kernel, printer->expr.used, device, ul_attend_cuda_grid,
                 text->arena);
}

/* Threads of blocks for which elementwise kernels, and a warp's, have registers. */
enum { MAX_EACH_THREADS = 512, MAX_TEAM_THREADS = 1024 };

/* Whether the phase may have some blocks of a launch: each item belongs to a thread, a warp or a
 * block, without scratch or shared memory of its own. */
static bool phase_joins(const struct ul_kernel *kernel, const struct ul_phase *phase)
{
    bool is_each = phase->kind == UL_PHASE_EACH && phase->items.count > 0;
    bool is_team = phase->kind == UL_PHASE_TEAM && !phase->is_loose && phase->shared_bytes == 0 &&
                   kernel->contraction_count == 0;
    return (is_each || is_team) && phase->block_count > 0 && !phase->has_own &&
           phase->host_count == 0;
}

/* Whether each launch of the kernel may, and with how many threads in blocks. */
static void find_joins(const struct ul_kernel *kernel, const struct ul_grid *grid,
                       struct ul_kernel_printed *printed)
{
    printed->joins = grid->phase_count > 0 && grid->together_count == 0;
    printed->has_teams = false;
    printed->min_threads = 0;
    printed->max_threads = MAX_TEAM_THREADS;
    for (uint32_t i = 0; printed->joins && i < grid->phase_count; i++) {
        const struct ul_phase *phase = &grid->phases[i];
        if (i > 0 && phase[-1].is_followed)
            continue;
        uint32_t most = phase->kind == UL_PHASE_EACH ? MAX_EACH_THREADS
                        : is_warp(phase)             ? MAX_TEAM_THREADS
                                                     : phase->block_threads;
        printed->joins = phase_joins(kernel, phase);
        printed->has_teams = printed->has_teams || phase->kind == UL_PHASE_TEAM;
        printed->min_threads = phase->block_threads > printed->min_threads ? phase->block_threads
                                                                           : printed->min_threads;
        printed->max_threads = most < printed->max_threads ? most : printed->max_threads;
    }
    /* Launches of one kernel may have blocks of different sizes, but not where a block has an
     * item. */
    bool is_one = ul_grid_launches(grid) <= 1 || printed->max_threads >= MAX_EACH_THREADS;
    printed->joins = printed->joins && is_one && printed->min_threads <= printed->max_threads;
}

enum ul_status ul_kernel_print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                                    const struct ul_profile_device *device,
                                    struct ul_kernel_printed *printed, struct ul_diag *diag)
{
    struct printer printer;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        enum ul_dtype dtype = kernel->buffers[i].dtype;
        if (ul_storage_type(dtype) == NULL)
            return ul_diag_set(diag, UL_UNSUPPORTED,
                               "target cuda has no type %s; cast the tensor to a wider one",
                               ul_dtype_get(dtype)->name);
    }
    printer_init(&printer, text, kernel, device);
    for (uint32_t i = 0; i < printer.grid.phase_count; i++) {
        const struct ul_phase *phase = &printer.grid.phases[i];
        if (phase->block_count > 0 && phase->joined_count > 1)
            put_joined(&printer, i);
        else if (phase->block_count > 0 && phase->joined_count == 1)
            put_phase(&printer, i);
    }
    for (uint32_t i = 0; i < printer.grid.together_count; i++)
        put_together(&printer, &printer.grid.together[i]);
    put_host(&printer);
    printed->scratch_bytes = printer.grid.scratch_bytes;
    find_joins(printer.kernel, &printer.grid, printed);
    ul_grid_count(printer.kernel, &printer.grid, device, printed);
    return UL_OK;
}

/* ---- Kernels that are one launch ---- */

/* The first phase of launch number `launch` of the kernel. NULL: it has fewer launches. */
static struct ul_phase *find_launch(const struct ul_grid *grid, uint32_t launch)
{
    for (uint32_t i = 0; i < grid->phase_count; i++)
        if (grid->phases[i].joined_count > 0 && launch-- == 0)
            return &grid->phases[i];
    return NULL;
}

static bool has_warps(const struct printer *members, uint32_t count, uint32_t launch)
{
    for (uint32_t m = 0; m < count; m++) {
        const struct ul_phase *phases = find_launch(&members[m].grid, launch);
        if (phases != NULL && (phases->is_followed || phases->kind == UL_PHASE_TEAM))
            return true;
    }
    return false;
}

static bool counts_blocks(const struct printer *members, uint32_t count, uint32_t launch)
{
    for (uint32_t m = 0; m < count; m++) {
        const struct ul_phase *phases = find_launch(&members[m].grid, launch);
        if (phases != NULL && phases->is_followed)
            return true;
    }
    return false;
}

/* Gives all kernels blocks of one size, one kernel after the other. Returns the number of
 * blocks. */
static int64_t set_joined_blocks(struct printer *members, uint32_t count, uint32_t launch,
                                 uint32_t *threads)
{
    int64_t first = 0;
    *threads = 0;
    for (uint32_t m = 0; m < count; m++) {
        const struct ul_phase *phases = find_launch(&members[m].grid, launch);
        uint32_t most = phases == NULL ? 0 : ul_grid_max_threads(phases, phases->joined_count);
        *threads = most > *threads ? most : *threads;
    }
    if (has_warps(members, count, launch))
        *threads = (*threads + UL_WARP - 1) / UL_WARP * UL_WARP;
    for (uint32_t m = 0; m < count; m++) {
        struct ul_phase *phases = find_launch(&members[m].grid, launch);
        if (phases != NULL)
            first = ul_grid_set_blocks(phases, phases->joined_count, *threads, first);
    }
    return first;
}

/* Prints for each kernel its buffers, its scratch and its place among the steps. UL_LAUNCH adds the
 * place of the last kernel itself. */
static void put_joined_parameters(struct ul_text *text, const struct printer *members,
                                  uint32_t count, bool typed)
{
    const char *separator = "";
    for (uint32_t m = 0; m < count; m++) {
        const struct ul_kernel *kernel = members[m].kernel;
        for (uint32_t i = 0; i < kernel->buffer_count; i++) {
            const struct ul_buffer *buffer = &kernel->buffers[i];
            if (!is_parameter(buffer))
                continue;
            ul_text_put(text, separator);
            if (typed)
                ul_text_printf(text, "[[maybe_unused]] %s%s *",
                               buffer->role == UL_BUFFER_INPUT ? "const " : "",
                               ul_storage_type(buffer->dtype));
            ul_text_printf(text, "m%u_b%u", m, i);
            separator = ", ";
        }
        if (members[m].grid.scratch_bytes > 0)
            ul_text_printf(text, "%s%sm%u_scratch", separator,
                           typed ? "[[maybe_unused]] unsigned char *" : "", m);
        if (m + 1 < count)
            ul_text_printf(text, "%s%sm%u_run", separator,
                           typed ? "[[maybe_unused]] struct ul_where " : "", m);
        separator = ", ";
    }
}

/* A phase of a kernel in braces of its own, with its own names for its buffers. */
static void put_joined_phase(struct printer *printer, bool is_last)
{
    const bool *is_needed = find_mentions(printer);
    put_member_buffers(printer, 2);
    if (!is_last)
        ul_text_printf(printer->text,
                       "        [[maybe_unused]] const struct ul_where run = m%u_run;\n",
                       printer->member);
    if (printer->grid.scratch_bytes > 0)
        ul_text_printf(printer->text,
                       "        [[maybe_unused]] unsigned char *const scratch = m%u_scratch;\n",
                       printer->member);
    put_arrays(printer, UL_PLACE_ARENA, 2);
    put_names(printer, is_needed, 2);
    bool *is_scalar = UL_NEW_ARRAY(printer->text->arena, bool, printer->kernel->buffer_count);
    for (uint32_t i = 0; i < printer->kernel->buffer_count; i++)
        is_scalar[i] = printer->phase->places[i] == UL_PLACE_REGISTER;
    printer->expr.is_scalar = is_scalar;
    if (printer->phase->kind == UL_PHASE_EACH)
        put_each(printer, 2);
    else
        put_joined_team(printer, 2);
    if (printer->phase->is_followed)
        put_next(printer, 2);
    printer->expr.is_scalar = NULL;
}

static void put_joined_body(struct printer *members, uint32_t count, uint32_t launch,
                            int64_t blocks)
{
    struct ul_text *text = members->text;
    bool is_first = true;
    for (uint32_t m = 0; m < count; m++) {
        struct printer *printer = &members[m];
        const struct ul_phase *phases = find_launch(&printer->grid, launch);
        printer->is_joined = true;
        for (uint32_t i = 0; phases != NULL && i < phases->joined_count; i++) {
            printer->phase = &phases[i];
            put_branch(printer, is_first, phases[i].first_block + phases[i].block_count == blocks);
            put_joined_phase(printer, m + 1 == count);
            is_first = false;
        }
    }
    ul_text_put(text, "    }\n");
}

/* Prints launch number `launch` of all kernels that have that many, and its call to `host`. False:
 * no kernel has that many. */
static bool put_joined_launch(struct printer *members, uint32_t count, uint32_t launch,
                              struct ul_text *host)
{
    struct ul_text *text = members->text;
    uint32_t threads = 0, least = 0;
    int64_t blocks = set_joined_blocks(members, count, launch, &threads);
    if (blocks == 0)
        return false;
    for (uint32_t m = 0; m < count; m++) {
        const struct ul_phase *phases = find_launch(&members[m].grid, launch);
        if (phases != NULL)
            least = least_blocks(&members[m], phases, phases->joined_count, least);
    }
    bool counts = counts_blocks(members, count, launch);
    put_bounds(text, threads, least);
    ul_text_printf(text, "@_%u(", launch);
    put_joined_parameters(text, members, count, true);
    ul_text_printf(text, "%s, struct ul_where run)\n{\n    UL_ENTER(run);\n",
                   counts ? ", uint32_t *counters" : "");
    put_joined_body(members, count, launch, blocks);
    ul_text_put(text, "}\n\n");
    ul_text_printf(host, "    UL_LAUNCH(@_%u, %" PRId64 ", %u, at, ", launch, blocks, threads);
    put_joined_parameters(host, members, count, false);
    ul_text_printf(host, "%s);\n", counts ? ", at->run->counters" : "");
    return true;
}

void ul_kernel_print_joined_cuda(struct ul_text *text, const struct ul_kernel *const *kernels,
                                 uint32_t count, const struct ul_profile_device *device)
{
    struct printer *members = UL_NEW_ARRAY(text->arena, struct printer, count);
    struct ul_text host;
    ul_text_init(&host, text->arena);
    UL_ASSERT(count > 1);
    uint32_t counters = 0;
    for (uint32_t m = 0; m < count; m++) {
        printer_init(&members[m], text, kernels[m], device);
        members[m].member = m;
        members[m].first_counter = counters;
        counters += ul_grid_counter_words(&members[m].grid);
    }
    UL_ASSERT(counters <= UL_PROGRAM_COUNTER_WORDS);
    for (uint32_t launch = 0; put_joined_launch(members, count, launch, &host);)
        launch++;
    ul_text_put(text, "static void @(const struct ul_cuda_step *at, ");
    put_joined_parameters(text, members, count, true);
    ul_text_printf(text, ")\n{\n%s}\n", host.data);
}
