/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a bank for each chain, by live sums only, and bounds the cost. */
#ifndef UL_PLANNER_PACK_BANK_CHOICE_H
#define UL_PLANNER_PACK_BANK_CHOICE_H

#include "planner/model/plan.h"

/* A chain of ranges. */
struct ul_bank_item {
    uint32_t begin, end; /* half-open, in positions; later in slots */
    uint64_t size_bytes, moved_bytes;
    bool is_weights; /* all of it */
    bool is_first;   /* it must be in the first bank */
};

/* A slot is a moment at which a chain begins, up to the next: only there do live sums change. */
struct ul_bank_choice {
    struct ul_arena *arena;
    const struct ul_plan_bank *plan_banks;
    uint32_t bank_count;
    uint32_t length; /* positions */
    struct ul_bank_item *items;
    uint32_t item_count;
    uint64_t *capacity_bytes; /* by bank: the limit of live sums */
    uint32_t *banks;          /* by item: the result */
    uint64_t bound;           /* no choice within the banks' capacities costs less */
    uint32_t slot_count;
    double *prices; /* by bank and slot, before it: the price of a byte in addition to its moves */
    double prices_total; /* what all capacities are worth at these */
    uint64_t *loads;     /* by bank and slot: of the chosen chains */
    bool is_hasty;       /* any choice does, and no bound is asked for */
};

/* Sets capacities, slots and the bound. */
void ul_bank_choice_begin(struct ul_bank_choice *choice);
/* The cheapest choice found whose live sums stay within capacity_bytes; false: there is none. */
bool ul_bank_choice_find(struct ul_bank_choice *choice);
uint64_t ul_bank_choice_cost(const struct ul_bank_choice *choice, const uint32_t *banks);
/* Passes to `take` every choice whose live sums stay within capacity_bytes and that costs less than
 * all that it took before, and less than `limit_cost`. Returns whether it visited all choices;
 * there is a limit on nodes, and it works only for few items. */
typedef bool ul_bank_take_fn(void *context, const uint32_t *banks);
bool ul_bank_choice_enumerate(struct ul_bank_choice *choice, uint64_t limit_cost,
                              uint32_t max_nodes, ul_bank_take_fn *take, void *context);

#endif
