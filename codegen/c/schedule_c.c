/* SPDX-License-Identifier: Apache-2.0 */
/* Describes in words what targets c and cpu do with a kernel's loops: which of them threads share,
 * which fill vectors, and how sums of products are formed. */
#include "codegen/c/c.h"
#include "codegen/kernel/contract_internal.h"
#include "codegen/kernel/threads.h"
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <inttypes.h>

struct schedule {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    const struct ul_threads *threads;
};

static const struct ul_region *region_of(const struct schedule *schedule, ul_ks id)
{
    return schedule->threads->shares > 1 ? schedule->threads->regions[id] : NULL;
}

/* 4 threads share 24 items, rounds of v0 and 64 of v1; each has its own b3 */
static void put_region(const struct schedule *schedule, const struct ul_region *region)
{
    struct ul_text *text = schedule->text;
    ul_text_printf(text, "%u threads share %" PRId64 " items", (unsigned)region->shares,
                   region->item_count);
    for (uint32_t i = 0; i < region->level_count; i++) {
        ul_text_put(text, i == 0 ? ", rounds of" : " and");
        if (i + 1 == region->level_count && region->piece > 1)
            ul_text_printf(text, " %" PRId64 " of", region->piece);
        ul_text_printf(text, " v%u", (unsigned)schedule->kernel->stmts[region->levels[i]].var);
    }
    const char *before = "; each has its own";
    for (uint32_t i = 0; region->is_private != NULL && i < schedule->kernel->buffer_count; i++) {
        if (!region->is_private[i])
            continue;
        ul_text_printf(text, "%s b%u", before, (unsigned)i);
        before = ",";
    }
}

static void put_form(struct ul_text *text, const struct ul_contract_plan *plan)
{
    switch (plan->schedule) {
    case UL_CONTRACT_PLAIN:
        ul_text_put(text, "plain loops");
        break;
    case UL_CONTRACT_TILE:
        ul_text_printf(text,
                       "tiles of %d rows and %" PRId64 " columns, panels of %" PRId64
                       " of k, %" PRId64 " rows at a time",
                       UL_CONTRACT_ROWS, plan->block_cols, plan->depth, plan->rows);
        break;
    case UL_CONTRACT_WINDOW:
        ul_text_printf(text, "windows in %" PRId64 " strips", plan->strips);
        break;
    case UL_CONTRACT_ROW:
        ul_text_printf(text, "rows, %" PRId64 " columns at a time", plan->row_cols);
        break;
    case UL_CONTRACT_DOT:
        ul_text_put(text, "dot products");
        break;
    }
    if (plan->group > 1)
        ul_text_printf(text, ", products %s", plan->products);
    ul_text_put(text, plan->packs_a ? ", a packed" : "");
    ul_text_put(text, plan->reads_b_in_place ? ", b in place" : "");
}

static void put_contraction(const struct schedule *schedule, ul_ks id)
{
    struct ul_arena arena;
    struct ul_contract_plan plan;
    const struct ul_kernel *kernel = schedule->kernel;
    const struct ul_region *region = region_of(schedule, id);
    ul_arena_init(&arena);
    ul_contract_plan_init(&plan, kernel, &kernel->contractions[kernel->stmts[id].contraction],
                          &arena);
    ul_contract_share(&plan, region == NULL ? 1 : region->shares);
    UL_ASSERT(plan.shares <= 1 || plan.items > 1);
    ul_text_printf(schedule->text, "%" PRId64 " x %" PRId64 " sums of %" PRId64 ", ", plan.m,
                   plan.n, plan.k);
    put_form(schedule->text, &plan);
    if (plan.shares > 1)
        ul_text_printf(schedule->text,
                       "; %u threads share %" PRId64 " items of %" PRId64 " columns by %" PRId64
                       " rows",
                       (unsigned)plan.shares, plan.items, plan.columns_each, plan.rows_each);
    ul_arena_done(&arena);
}

static bool is_vector(const struct schedule *schedule, const struct ul_ks_data *stmt)
{
    return stmt->kind == UL_KS_FOR && (stmt->flags & UL_FOR_PARALLEL) != 0 &&
           !ul_ks_holds_loop(schedule->kernel, stmt->body);
}

static void put_list(const struct schedule *schedule, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = schedule->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &schedule->kernel->stmts[id];
        const struct ul_region *region = region_of(schedule, id);
        if (stmt->kind == UL_KS_CONTRACT || region != NULL || is_vector(schedule, stmt)) {
            ul_text_put(schedule->text, "  ");
            ul_kernel_print_statement(schedule->text, schedule->kernel, id);
            ul_text_put(schedule->text, ": ");
        }
        if (stmt->kind == UL_KS_CONTRACT) {
            put_contraction(schedule, id);
            ul_text_put(schedule->text, "\n");
            put_list(schedule, schedule->kernel->contractions[stmt->contraction].epilogue);
            continue;
        }
        if (region != NULL)
            put_region(schedule, region);
        if (is_vector(schedule, stmt))
            ul_text_put(schedule->text, region != NULL ? "; vectors" : "vectors");
        ul_text_put(schedule->text, region != NULL || is_vector(schedule, stmt) ? "\n" : "");
        put_list(schedule, stmt->body);
        put_list(schedule, stmt->orelse);
    }
}

void ul_schedule_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                         uint32_t thread_count)
{
    struct ul_threads threads;
    const struct schedule schedule = {.text = text, .kernel = kernel, .threads = &threads};
    UL_ASSERT(thread_count >= 1);
    ul_threads_init(&threads, kernel, thread_count, text->arena);
    put_list(&schedule, kernel->first);
}
