/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the bank of each chain by live sums only, and finds a lower bound of the cost. */
#ifndef UL_PLANNER_PACK_BANK_CHOICE_H
#define UL_PLANNER_PACK_BANK_CHOICE_H

#include "planner/model/plan.h"

/* A chain of ranges. */
struct ul_bank_item {
    uint32_t begin, end; /* half-open, in positions; later in slots */
    uint64_t size_bytes, moved_bytes;
    bool is_weights; /* all of it */
    bool is_first;   /* it must lie in the first bank */
};

/* A slot is a moment at which a chain begins, up to the next: live sums change there alone. */
struct ul_bank_choice {
    struct ul_arena *arena;
    const struct ul_plan_bank *plan_banks;
    uint32_t bank_count;
    uint32_t length; /* positions */
    struct ul_bank_item *items;
    uint32_t item_count;
    uint64_t *capacity_bytes; /* by bank: the largest live sum allowed */
    uint32_t *banks;          /* by item: the choice that was found */
    uint64_t bound;           /* no choice within the banks' capacities costs less */
    uint32_t slot_count;
    double *prices;      /* by bank and slot: the sum of prices of a byte in the slots before it */
    double prices_total; /* the price of all capacities */
    uint64_t *loads;     /* by bank and slot: live sums of the chosen items */
    bool is_hasty;       /* any choice is enough, and no bound is needed */
};

/* Sets capacities, slots and the bound. */
void ul_bank_choice_begin(struct ul_bank_choice *choice);
/* Finds a cheap choice whose live sums stay within capacity_bytes; false: there is none. */
bool ul_bank_choice_find(struct ul_bank_choice *choice);
uint64_t ul_bank_choice_cost(const struct ul_bank_choice *choice, const uint32_t *banks);
/* Calls `take` for choices whose live sums stay within capacity_bytes and that cost less than
 * `limit_cost` and than all choices that it accepted before. Visits at most `max_nodes`; returns
 * whether it went through all choices, which it does only for few items. */
typedef bool ul_bank_take_fn(void *context, const uint32_t *banks);
bool ul_bank_choice_enumerate(struct ul_bank_choice *choice, uint64_t limit_cost,
                              uint32_t max_nodes, ul_bank_take_fn *take, void *context);

#endif
