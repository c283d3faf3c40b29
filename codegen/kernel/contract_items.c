/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a contraction among threads.
 *
 * Sums are independent of each other, so any cut between them keeps every bit; cuts differ in how
 * much is read or packed twice. Tiles are cut by panels of columns, each packed by the thread that
 * uses it; where that is uneven, also by rows, and then a panel is packed once for each cut of the
 * rows. Streamed rows are cut by runs of columns, dot products by results, windows by strips, plain
 * loops by their outermost dimension. */
#include "codegen/kernel/contract_internal.h"
#include "codegen/kernel/threads.h"

#ifndef UL_REGION_MIN_ROWS    /* a test wants fewer */
#define UL_REGION_MIN_ROWS 64 /* for one packing of a panel */
#endif

enum {
    STREAMED = 64, /* columns of an item: whole cache lines for every type */
    DOTS = 16
};

bool ul_share_is_even(int64_t items, uint32_t shares)
{
    int64_t longest = (items + shares - 1) / shares;
    return 10 * items >= 9 * longest * shares;
}

/* Divides panels, and rows into as many parts as make the shares even. */
static void share_tiles(struct ul_contract_plan *plan, uint32_t shares)
{
    int64_t panels = ul_div_up(plan->n, plan->block_cols);
    int64_t blocks = ul_div_up(plan->m, UL_CONTRACT_ROWS);
    plan->columns_each = plan->block_cols;
    for (int64_t splits = 1; splits <= shares; splits++) {
        int64_t rows = ul_div_up(blocks, splits) * UL_CONTRACT_ROWS;
        int64_t items = panels * ul_div_up(plan->m, rows);
        if (splits > 1 && rows < UL_REGION_MIN_ROWS)
            break;
        plan->rows_each = rows;
        plan->items = items;
        if (ul_share_is_even(items, shares))
            break;
    }
    if (plan->rows_each >= plan->m)
        plan->rows_each = plan->m;
    UL_ASSERT(plan->items > 0 && plan->rows_each > 0);
}

static void share_runs(struct ul_contract_plan *plan, int64_t count, int64_t each)
{
    UL_ASSERT(count > 0 && each > 0);
    plan->columns_each = each;
    plan->rows_each = plan->m;
    plan->items = ul_div_up(count, each);
}

uint32_t ul_contract_shared_dim(const struct ul_contraction *c)
{
    uint32_t d = 0;
    while (d + 1 < c->m_count + c->n_count && c->extents[d] == 1)
        d++;
    return d;
}

void ul_contract_share(struct ul_contract_plan *plan, uint32_t shares)
{
    const struct ul_contraction *c = plan->contraction;
    plan->items = 1;
    plan->shares = 1;
    if (shares <= 1)
        return;
    switch (plan->schedule) {
    case UL_CONTRACT_TILE:
        share_tiles(plan, shares);
        break;
    case UL_CONTRACT_ROW:
        share_runs(plan, plan->n, STREAMED);
        break;
    case UL_CONTRACT_DOT:
        share_runs(plan, plan->m == 1 ? plan->n : plan->m, DOTS);
        break;
    case UL_CONTRACT_WINDOW:
        plan->items = plan->strips;
        break;
    case UL_CONTRACT_PLAIN:
        plan->items = c->m_count + c->n_count > 0 ? c->extents[ul_contract_shared_dim(c)] : 1;
        break;
    }
    plan->shares = plan->items > 1 ? shares : 1;
    UL_ASSERT(plan->items >= 0 && plan->shares <= (shares > 1 ? shares : 1));
}

int64_t ul_contract_items(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                          uint32_t thread_count)
{
    struct ul_arena arena;
    struct ul_contract_plan plan;
    ul_arena_init(&arena);
    ul_contract_plan_init(&plan, kernel, contraction, &arena);
    ul_contract_share(&plan, thread_count);
    ul_arena_done(&arena);
    return plan.items;
}
