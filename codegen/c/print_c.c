/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel as C99.
 *
 * Every statement becomes a line or a loop; expressions are print_expr.c's. Loops whose iterations
 * are independent and which hold no other loop are marked for the vectoriser; innermost loops that
 * add to sums of integers are not unrolled. */

#include "codegen/c/c.h"
#include "codegen/c/contract_c.h"
#include "codegen/kernel/lookup.h"
#include "codegen/kernel/print_expr.h"
#include "codegen/kernel/threads.h"
#include "ir/kernel_build.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct printer {
    struct ul_expr_printer expr;
    const struct ul_threads *threads; /* NULL: one thread */
    const struct ul_region *region;   /* the region that is being printed, or NULL */
    /* offsets of scratch buffers in the step's scratch, or in a thread's */
    uint64_t *offsets_bytes;
    uint64_t own_offset_bytes; /* where the first thread's scratch begins */
    uint64_t own_bytes; /* of each thread's scratch; rounded up where there are several threads */
    uint64_t contract_offset_bytes; /* in a thread's scratch */
    uint64_t scratch_bytes;
};

/* Statements */

static void put_list(struct printer *printer, ul_ks first, uint32_t indent);

static void put_loop_end(struct printer *printer, const struct ul_ks_data *stmt, const char *last)
{
    if (last != NULL)
        ul_text_put(printer->expr.text, last);
    else
        ul_put_expr(&printer->expr, stmt->value);
}

/* Prints the whole loop as one call: { const int64_t v = first; ul_lookup_u8(...); } */
static void put_lookup(struct printer *printer, const struct ul_ks_data *stmt,
                       const struct ul_lookup *lookup, const char *first, const char *last,
                       uint32_t indent)
{
    struct ul_text *text = printer->expr.text;
    ul_put_line(&printer->expr, indent, "{\n");
    ul_put_line(&printer->expr, indent + 1, "const int64_t v%u = %s;\n", stmt->var, first);
    ul_put_line(&printer->expr, indent + 1, "ul_lookup_%s(b%u + ", lookup->is_signed ? "i8" : "u8",
                lookup->to);
    ul_put_expr(&printer->expr, lookup->to_index);
    ul_text_printf(text, ", b%u + ", lookup->from);
    ul_put_expr(&printer->expr, lookup->from_index);
    ul_text_printf(text, ", b%u, ", lookup->table);
    put_loop_end(printer, stmt, last);
    ul_text_printf(text, " - v%u);\n", stmt->var);
    ul_put_line(&printer->expr, indent, "}\n");
}

/* Whether an innermost loop stores integers in an array of the kernel's own: mostly sums. */
static bool stores_own_integers(const struct ul_kernel *kernel, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_STORE && kernel->buffers[stmt->buffer].value == UL_NONE &&
            ul_dtype_get(kernel->buffers[stmt->buffer].dtype)->is_integer)
            return true;
        if (stores_own_integers(kernel, stmt->body) || stores_own_integers(kernel, stmt->orelse))
            return true;
    }
    return false;
}

/* Whether a condition decides if an operand is loaded. */
static bool loads_by_condition(const struct ul_kernel *kernel, ul_kx id, bool is_chosen)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    bool found = is_chosen && expr->op == UL_KX_LOAD;
    for (uint32_t i = 0; !found && i < ul_kx_operand_count(expr->op); i++)
        found = loads_by_condition(kernel, operands[i],
                                   is_chosen || (expr->op == UL_KX_SELECT && i > 0));
    return found;
}

/* gcc 12 unrolls such loops of few rounds completely. Where it then takes the loads of the rounds
 * for a group with a mask, it loads wrong elements for vectors of 512 bits. */
static bool is_short_and_guarded(const struct ul_kernel *kernel, const struct ul_ks_data *loop)
{
    int64_t rounds;
    if (!ul_kx_is_int(kernel, loop->value, &rounds) || rounds < 2 || rounds > UL_UNROLLED_ROUNDS)
        return false;
    for (ul_ks id = loop->body; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_IF ||
            (stmt->value != UL_NONE && loads_by_condition(kernel, stmt->value, false)))
            return true;
    }
    return false;
}

/* The mark before a loop, or NULL. */
static const char *describe_loop(const struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    bool is_free = (stmt->flags & (UL_FOR_PARALLEL | UL_FOR_ALONE)) != 0;
    if (ul_ks_holds_loop(kernel, stmt->body))
        return NULL;
    if (stores_own_integers(kernel, stmt->body) || is_short_and_guarded(kernel, stmt))
        return is_free ? "UL_IVDEP_ROLLED" : "UL_NO_UNROLL";
    return is_free ? "UL_IVDEP" : NULL;
}

/* for (int64_t v = first; v < last; v++) { body } */
static void put_loop(struct printer *printer, const struct ul_ks_data *stmt, const char *first,
                     const char *last, uint32_t indent)
{
    struct ul_lookup lookup;
    if (ul_lookup_find(printer->expr.kernel, stmt, &lookup)) {
        put_lookup(printer, stmt, &lookup, first, last, indent);
        return;
    }
    ul_put_indent(&printer->expr, indent);
    const char *told = describe_loop(printer->expr.kernel, stmt);
    if (told != NULL) {
        ul_text_printf(printer->expr.text, "%s\n", told);
        ul_put_indent(&printer->expr, indent);
    }
    ul_text_printf(printer->expr.text, "for (int64_t v%u = %s; v%u < ", stmt->var, first,
                   stmt->var);
    put_loop_end(printer, stmt, last);
    ul_text_printf(printer->expr.text, "; v%u++) {\n", stmt->var);
    put_list(printer, stmt->body, indent + 1);
    ul_put_line(&printer->expr, indent, "}\n");
}

static void put_if(struct printer *printer, const struct ul_ks_data *stmt, uint32_t indent)
{
    ul_text_put(printer->expr.text, "if (");
    ul_put_expr(&printer->expr, stmt->value);
    ul_text_put(printer->expr.text, ") {\n");
    put_list(printer, stmt->body, indent + 1);
    ul_put_indent(&printer->expr, indent);
    if (stmt->orelse != UL_NONE) {
        ul_text_put(printer->expr.text, "} else {\n");
        put_list(printer, stmt->orelse, indent + 1);
        ul_put_indent(&printer->expr, indent);
    }
    ul_text_put(printer->expr.text, "}\n");
}

static void contract_expression(void *context, ul_kx expression)
{
    struct printer *printer = context;
    ul_put_expr(&printer->expr, expression);
}

static void contract_statements(void *context, ul_ks first, uint32_t indent)
{
    put_list(context, first, indent);
}

static void contract_load(void *context, uint32_t buffer, const char *index)
{
    struct printer *printer = context;
    ul_put_load(&printer->expr, buffer, index);
}

static bool has_threads(const struct printer *printer)
{
    return printer->threads != NULL && printer->threads->shares > 1;
}

static const struct ul_region *region_of(const struct printer *printer, ul_ks id)
{
    return has_threads(printer) ? printer->threads->regions[id] : NULL;
}

/* Scratch, from `offset` on, that no other thread writes. */
static const char *own_scratch(const struct printer *printer, bool in_region, uint64_t offset_bytes)
{
    uint64_t offset = printer->own_offset_bytes + offset_bytes;
    if (!in_region)
        return ul_arena_printf(printer->expr.text->arena, "(scratch + %" PRIu64 ")", offset);
    return ul_arena_printf(printer->expr.text->arena,
                           "(scratch + %" PRIu64 " + t_share.thread * %" PRIu64 ")", offset,
                           printer->own_bytes);
}

static void put_contraction(struct printer *printer, ul_ks id, uint32_t indent)
{
    const struct ul_region *region = region_of(printer, id);
    bool in_region = region != NULL || printer->region != NULL;
    struct ul_contract_printer contract = {
        .text = printer->expr.text,
        .kernel = printer->expr.kernel,
        .context = printer,
        .put_expression = contract_expression,
        .put_statements = contract_statements,
        .put_load = contract_load,
        .scratch = own_scratch(printer, in_region, printer->contract_offset_bytes),
        .shares = region == NULL ? 1 : region->shares};
    uint32_t which = printer->expr.kernel->stmts[id].contraction;
    ul_contract_print_c(&contract, &printer->expr.kernel->contractions[which], indent);
}

/* Regions */

/* Declares what each thread has of its own: rows of scratch, local arrays. */
static void put_private(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    for (uint32_t i = 0; i < printer->expr.kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &printer->expr.kernel->buffers[i];
        const char *type = ul_storage_type(buffer->dtype);
        if (!region->is_private[i])
            continue;
        ul_put_indent(&printer->expr, indent);
        if (buffer->role == UL_BUFFER_LOCAL)
            ul_text_printf(printer->expr.text, "UL_LOCAL %s b%u[%" PRIu64 "];\n", type, i,
                           buffer->element_count);
        else
            ul_text_printf(printer->expr.text, "%s *b%u = UL_AT(%s, %s, 0);\n", type, i, type,
                           own_scratch(printer, true, printer->offsets_bytes[i]));
    }
}

/* Prints the variable of a level from an item; `below` items make one round of it. */
static void put_level(struct printer *printer, const struct ul_region *region, uint32_t level,
                      int64_t below, uint32_t indent)
{
    bool repeats = false;
    for (uint32_t i = 0; i < level; i++)
        repeats = repeats || region->counts[i] > 1;
    const struct ul_ks_data *loop = &printer->expr.kernel->stmts[region->levels[level]];
    if (!printer->expr.used[loop->var])
        return;
    ul_put_line(&printer->expr, indent, "const int64_t v%u = t_item", loop->var);
    if (below > 1)
        ul_text_printf(printer->expr.text, " / %" PRId64, below);
    if (repeats)
        ul_text_printf(printer->expr.text, " %% %" PRId64, region->counts[level]);
    ul_text_put(printer->expr.text, ";\n");
}

/* Prints the names of indexes that come before the next level's loop. */
static void put_names(struct printer *printer, const struct ul_ks_data *loop, uint32_t indent)
{
    for (ul_ks id = loop->body; printer->expr.kernel->stmts[id].kind == UL_KS_LET;
         id = printer->expr.kernel->stmts[id].next)
        ul_put_definition(&printer->expr, &printer->expr.kernel->stmts[id], indent);
}

/* The last level: one of its rounds, or a piece of them. */
static void put_item(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    uint32_t last = region->level_count - 1;
    const struct ul_ks_data *loop = &printer->expr.kernel->stmts[region->levels[last]];
    int64_t count = region->counts[last];
    int64_t pieces = (count + region->piece - 1) / region->piece;
    if (region->piece == 1) {
        put_level(printer, region, last, 1, indent);
        put_list(printer, loop->body, indent);
    } else if (pieces == 1) {
        put_loop(printer, loop, "0", NULL, indent);
    } else {
        ul_put_line(&printer->expr, indent, "const int64_t t_low = t_item");
        if (last > 0)
            ul_text_printf(printer->expr.text, " %% %" PRId64, pieces);
        ul_text_printf(printer->expr.text, " * %" PRId64 ";\n", region->piece);
        ul_put_line(&printer->expr, indent,
                    "const int64_t t_high = ul_min(t_low + %" PRId64 ", %" PRId64 ");\n",
                    region->piece, count);
        put_loop(printer, loop, "t_low", "t_high", indent);
    }
}

static void put_items(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    uint32_t last = region->level_count - 1;
    int64_t below = region->piece == 1 ? region->counts[last]
                                       : (region->counts[last] + region->piece - 1) / region->piece;
    if (last == 0 && region->piece == 1) {
        const struct ul_ks_data *loop = &printer->expr.kernel->stmts[region->levels[0]];
        put_loop(printer, loop, "t_share.begin", "t_share.end", indent);
        return;
    }
    ul_put_line(&printer->expr, indent,
                "for (int64_t t_item = t_share.begin; t_item < t_share.end; t_item++) {\n");
    for (uint32_t i = 1; i < last; i++)
        below *= region->counts[i];
    for (uint32_t i = 0; i < last; i++) {
        put_level(printer, region, i, below, indent + 1);
        put_names(printer, &printer->expr.kernel->stmts[region->levels[i]], indent + 1);
        below = i + 1 < last ? below / region->counts[i + 1] : below;
    }
    put_item(printer, region, indent + 1);
    ul_put_line(&printer->expr, indent, "}\n");
}

static void put_region(struct printer *printer, const struct ul_region *region, uint32_t indent)
{
    ul_put_line(&printer->expr, indent, "UL_PARALLEL(run)\n");
    ul_put_line(&printer->expr, indent, "{\n");
    ul_put_line(&printer->expr, indent + 1,
                "const struct ul_share t_share = ul_share(%" PRId64 ", %" PRIu32 ");\n",
                region->item_count, region->shares);
    printer->region = region;
    put_private(printer, region, indent + 1);
    put_items(printer, region, indent + 1);
    printer->region = NULL;
    ul_put_line(&printer->expr, indent, "}\n");
}

static void put_list(struct printer *printer, ul_ks first, uint32_t indent)
{
    for (ul_ks id = first; id != UL_NONE; id = printer->expr.kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &printer->expr.kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_SET || stmt->kind == UL_KS_VAR) {
            ul_put_definition(&printer->expr, stmt, indent);
        } else if (stmt->kind == UL_KS_CONTRACT) {
            put_contraction(printer, id, indent);
        } else if (stmt->kind == UL_KS_FOR && region_of(printer, id) != NULL) {
            put_region(printer, region_of(printer, id), indent);
        } else if (stmt->kind == UL_KS_FOR) {
            put_loop(printer, stmt, "0", NULL, indent);
        } else {
            ul_put_indent(&printer->expr, indent);
            if (stmt->kind == UL_KS_IF)
                put_if(printer, stmt, indent);
            else if (stmt->kind == UL_KS_STORE)
                ul_put_store(&printer->expr, stmt);
            else
                ul_text_put(printer->expr.text, "break;\n");
        }
    }
}

static bool is_private(const struct printer *printer, uint32_t buffer)
{
    return has_threads(printer) && printer->threads->is_private[buffer];
}

/* Places scratch arrays one after the other from 0 on; returns the bytes. */
static uint64_t place_arrays(struct printer *printer, bool private_ones)
{
    const struct ul_kernel *kernel = printer->expr.kernel;
    uint64_t total = 0;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role != UL_BUFFER_SCRATCH || is_private(printer, i) != private_ones)
            continue;
        printer->offsets_bytes[i] = total;
        total = ul_size_align_or_die(ul_size_add_or_die(total, ul_buffer_bytes(buffer)),
                                     UL_PLAN_ALIGN_BYTES);
    }
    return total;
}

/* Places scratch arrays that threads share, then what each thread has: arrays, and the room for
 * contractions, which they share since a thread works on one at a time. */
static void place_scratch(struct printer *printer)
{
    const struct ul_kernel *kernel = printer->expr.kernel;
    uint64_t contract = 0;
    printer->own_offset_bytes = place_arrays(printer, false);
    printer->contract_offset_bytes = place_arrays(printer, true);
    for (uint32_t i = 0; i < kernel->contraction_count; i++) {
        uint64_t bytes = ul_contract_scratch_bytes(kernel, &kernel->contractions[i]);
        contract = bytes > contract ? bytes : contract;
    }
    printer->own_bytes = ul_size_add_or_die(printer->contract_offset_bytes, contract);
    uint64_t all = printer->own_bytes;
    if (has_threads(printer)) {
        printer->own_bytes = ul_size_align_or_die(printer->own_bytes, UL_PLAN_ALIGN_BYTES);
        all = ul_size_mul_or_die(printer->own_bytes, printer->threads->shares);
    }
    printer->scratch_bytes = ul_size_add_or_die(printer->own_offset_bytes, all);
}

static void put_parameters(struct printer *printer)
{
    const struct ul_kernel *kernel = printer->expr.kernel;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        if (buffer->role == UL_BUFFER_INPUT || buffer->role == UL_BUFFER_OUTPUT)
            ul_text_printf(printer->expr.text, "%s%s *b%u, ",
                           buffer->role == UL_BUFFER_INPUT ? "const " : "",
                           ul_storage_type(buffer->dtype), i);
    }
    if (printer->scratch_bytes > 0)
        ul_text_put(printer->expr.text, "unsigned char *scratch, ");
    ul_text_put(printer->expr.text, "struct ul_run *run)\n{\n    (void)run;\n");
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        const char *type = ul_storage_type(buffer->dtype);
        if (is_private(printer, i))
            continue;
        if (buffer->role == UL_BUFFER_SCRATCH)
            ul_text_printf(printer->expr.text, "    %s *b%u = UL_AT(%s, scratch, %" PRIu64 ");\n",
                           type, i, type, printer->offsets_bytes[i]);
        else if (buffer->role == UL_BUFFER_LOCAL)
            ul_text_printf(printer->expr.text, "    UL_LOCAL %s b%u[%" PRIu64 "];\n", type, i,
                           buffer->element_count);
    }
}

enum ul_status ul_kernel_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                                 const struct ul_threads *threads, uint64_t *scratch_bytes,
                                 struct ul_diag *diag)
{
    struct printer printer = {.threads = threads};
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        enum ul_dtype dtype = kernel->buffers[i].dtype;
        if (ul_storage_type(dtype) == NULL)
            return ul_diag_set(diag, UL_UNSUPPORTED,
                               "target c has no type %s; cast the tensor to a wider one",
                               ul_dtype_get(dtype)->name);
    }
    ul_expr_printer_init(&printer.expr, text, kernel);
    printer.expr.fuses = true;
    printer.offsets_bytes = UL_NEW_ARRAY(text->arena, uint64_t, kernel->buffer_count);
    place_scratch(&printer);
    put_parameters(&printer);
    put_list(&printer, kernel->first, 1);
    ul_text_put(text, "}\n");
    *scratch_bytes = printer.scratch_bytes;
    return UL_OK;
}
