/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a bank for each chain, so that live sums stay within the banks and moves cost little.
 *
 * Bound: with prices for a byte in a bank at a moment, none below 0, each chain can be chosen
 * separately: the cheapest bank by its moves and the price of its bytes while it lives. The sum of
 * these, less the price of all capacities, is at most the cost of every choice that stays within
 * them (Lagrange; H. Everett, "Generalized Lagrange multiplier method", 1963). The prices are found
 * by steps along the excess of the live sums. Choice: chains in several orders, each into the
 * cheapest bank that has room; then single chains move to a cheaper bank, where others leave it for
 * less. With few chains a search visits all choices except those that cannot be better by the
 * bound. Between the two, the chains that live at one moment are removed and put back at random,
 * many times. */
#include "planner/pack/bank_choice.h"
#include "planner/model/effort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BANKS = UL_LIMIT_BANKS };

/* ---- Costs ---- */

static double rate_of(const struct ul_plan_bank *bank)
{
    return bank->bandwidth_mb == 0 ? 0 : 1000.0 / (double)bank->bandwidth_mb;
}

/* A chain that is larger than a bank is not in it, not even in part: otherwise the bound would be
 * low. */
static bool may_lie(const struct ul_bank_choice *c, const struct ul_bank_item *item, uint32_t bank)
{
    return item->size_bytes <= c->plan_banks[bank].capacity_bytes &&
           (bank == 0 || !item->is_first) && (item->is_weights || !c->plan_banks[bank].weights);
}

/* INFINITY where it may not be there. */
static double cost_of(const struct ul_bank_choice *c, uint32_t i, uint32_t bank)
{
    const struct ul_bank_item *item = &c->items[i];
    return may_lie(c, item, bank) ? (double)item->moved_bytes * rate_of(&c->plan_banks[bank])
                                  : (double)INFINITY;
}

static const double *prices_of(const struct ul_bank_choice *c, uint32_t bank)
{
    return c->prices + (size_t)bank * (c->slot_count + 1);
}

/* Includes the price of its bytes while it lives. */
static double price_of(const struct ul_bank_choice *c, uint32_t i, uint32_t bank)
{
    const struct ul_bank_item *item = &c->items[i];
    const double *prices = prices_of(c, bank);
    double worth = prices[item->end] - prices[item->begin];
    return cost_of(c, i, bank) + (double)item->size_bytes * worth;
}

uint64_t ul_bank_choice_cost(const struct ul_bank_choice *choice, const uint32_t *banks)
{
    uint64_t moved[MAX_BANKS] = {0}, cost = 0;
    for (uint32_t i = 0; i < choice->item_count; i++)
        moved[banks[i]] = ul_size_add_saturating(moved[banks[i]], choice->items[i].moved_bytes);
    for (uint32_t b = 0; b < choice->bank_count; b++)
        cost = ul_size_add_saturating(cost, ul_bank_cost(&choice->plan_banks[b], moved[b]));
    return cost;
}

/* ---- Slots ---- */

static int number_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* From positions to the moments at which something begins. */
static void slots_make(struct ul_bank_choice *c)
{
    uint32_t *begins = UL_NEW_ARRAY(c->arena, uint32_t, (uint64_t)c->item_count + 1);
    uint32_t *slot_at = UL_NEW_ARRAY(c->arena, uint32_t, (uint64_t)c->length + 1);
    for (uint32_t i = 0; i < c->item_count; i++)
        begins[i] = c->items[i].begin;
    qsort(begins, c->item_count, sizeof *begins, number_compare);
    c->slot_count = 0;
    for (uint32_t i = 0; i < c->item_count; i++)
        if (i == 0 || begins[i] != begins[c->slot_count - 1])
            begins[c->slot_count++] = begins[i];
    for (uint32_t p = 0, slot = 0; p <= c->length; p++) {
        while (slot < c->slot_count && begins[slot] < p)
            slot++;
        slot_at[p] = slot; /* the first that begins at p or later */
    }
    for (uint32_t i = 0; i < c->item_count; i++) {
        c->items[i].begin = slot_at[c->items[i].begin];
        c->items[i].end = slot_at[c->items[i].end];
        UL_ASSERT(c->items[i].begin < c->items[i].end);
    }
}

static uint64_t *loads_of(const struct ul_bank_choice *c, uint32_t bank)
{
    return c->loads + (size_t)bank * c->slot_count;
}

static void load_add(struct ul_bank_choice *c, uint32_t i, uint32_t bank)
{
    uint64_t *loads = loads_of(c, bank);
    for (uint32_t t = c->items[i].begin; t < c->items[i].end; t++)
        loads[t] += c->items[i].size_bytes;
}

static void load_take(struct ul_bank_choice *c, uint32_t i, uint32_t bank)
{
    uint64_t *loads = loads_of(c, bank);
    for (uint32_t t = c->items[i].begin; t < c->items[i].end; t++)
        loads[t] -= c->items[i].size_bytes;
}

static bool has_room(const struct ul_bank_choice *c, uint32_t i, uint32_t bank)
{
    const struct ul_bank_item *item = &c->items[i];
    const uint64_t *loads = loads_of(c, bank);
    if (item->size_bytes > c->capacity_bytes[bank] || !may_lie(c, item, bank))
        return false;
    uint64_t most = c->capacity_bytes[bank] - item->size_bytes;
    for (uint32_t t = item->begin; t < item->end; t++)
        if (loads[t] > most)
            return false;
    return true;
}

static void loads_clear(struct ul_bank_choice *c)
{
    memset(c->loads, 0, (size_t)c->bank_count * c->slot_count * sizeof *c->loads);
}

/* ---- The bound ---- */

/* Puts every chain in its cheapest bank by the prices: the total price, and the live sums. */
static double priced_choice(struct ul_bank_choice *c)
{
    double sum = -c->prices_total;
    loads_clear(c);
    for (uint32_t i = 0; i < c->item_count; i++) {
        uint32_t best = 0;
        double least = price_of(c, i, 0);
        for (uint32_t b = 1; b < c->bank_count; b++) {
            double price = price_of(c, i, b);
            best = price < least ? b : best;
            least = price < least ? price : least;
        }
        sum += least;
        load_add(c, i, best);
    }
    return sum;
}

/* A step along the excess, of that size for its square; returns the square. Steps are taken in a
 * copy of the prices that are no sums: `own`, per bank and slot. */
static double excess_square(const struct ul_bank_choice *c, const double *own)
{
    double square = 0;
    for (uint32_t b = 0; b < c->bank_count; b++) {
        const uint64_t *loads = loads_of(c, b);
        for (uint32_t t = 0; t < c->slot_count; t++) {
            double excess = (double)loads[t] - (double)c->plan_banks[b].capacity_bytes;
            bool moves = excess > 0 || own[(size_t)b * c->slot_count + t] > 0;
            square += moves ? excess * excess : 0;
        }
    }
    return square;
}

static void prices_step(struct ul_bank_choice *c, double *own, double step)
{
    c->prices_total = 0;
    for (uint32_t b = 0; b < c->bank_count; b++) {
        const uint64_t *loads = loads_of(c, b);
        double *prices = c->prices + (size_t)b * (c->slot_count + 1), sum = 0;
        for (uint32_t t = 0; t < c->slot_count; t++) {
            double capacity = (double)c->plan_banks[b].capacity_bytes;
            double *at = &own[(size_t)b * c->slot_count + t];
            double next = *at + step * ((double)loads[t] - capacity);
            *at = next > 0 ? next : 0;
            prices[t] = sum;
            sum += *at;
            c->prices_total += *at * capacity;
        }
        prices[c->slot_count] = sum;
    }
}

/* No choice costs less than the largest sum met, whose prices are kept. `most`: what some choice
 * costs, about. */
static void bound_find(struct ul_bank_choice *c, double most)
{
    enum { ROUNDS = 400, PATIENCE = 12 };
    const double slack = 1e-9;
    size_t count = (size_t)c->bank_count * (c->slot_count + 1);
    double *own = UL_NEW_ARRAY(c->arena, double, (size_t)c->bank_count * c->slot_count + 1);
    double *best_prices = UL_NEW_ARRAY(c->arena, double, count);
    double best = -1, best_total = 0, scale = 1;
    for (uint32_t round = 0, since = 0; round < ROUNDS; round++) {
        double sum = priced_choice(c);
        since++;
        if (sum > best) {
            best = sum;
            best_total = c->prices_total;
            memcpy(best_prices, c->prices, count * sizeof *best_prices);
            since = 0;
        }
        double square = excess_square(c, own);
        if (!(square > 0) || sum >= most)
            break;
        if (since > PATIENCE) {
            scale /= 2;
            since = 0;
        }
        prices_step(c, own, scale * (most - sum) / square);
    }
    memcpy(c->prices, best_prices, count * sizeof *best_prices);
    c->prices_total = best_total;
    double bound = best - slack * (fabs(best) + best_total);
    c->bound = bound <= 0 || !(bound < 1e18) ? 0 : (uint64_t)ceil(bound);
}

/* ---- A choice ---- */

struct keyed {
    double key;
    uint32_t item;
};

/* The largest first. */
static int keyed_compare(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key < y->key || x->key > y->key)
        return x->key > y->key ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

enum order { BY_REGRET, BY_PRICE, BY_BYTES, ORDER_COUNT };

/* How much more expensive the second best bank is than the best. */
static double regret_of(const struct ul_bank_choice *c, uint32_t i, bool priced)
{
    double least = INFINITY, second = INFINITY;
    for (uint32_t b = 0; b < c->bank_count; b++) {
        double cost = priced ? price_of(c, i, b) : cost_of(c, i, b);
        second = cost < least ? least : cost < second ? cost : second;
        least = cost < least ? cost : least;
    }
    return second < (double)INFINITY ? second - least : 1e300;
}

static struct keyed *order_make(const struct ul_bank_choice *c, enum order order)
{
    struct keyed *keys = UL_NEW_ARRAY(c->arena, struct keyed, (uint64_t)c->item_count + 1);
    for (uint32_t i = 0; i < c->item_count; i++) {
        const struct ul_bank_item *item = &c->items[i];
        double area = (double)item->size_bytes * (double)(item->end - item->begin);
        keys[i].item = i;
        keys[i].key = order == BY_PRICE    ? regret_of(c, i, true)
                      : order == BY_REGRET ? regret_of(c, i, false) / (area > 0 ? area : 1)
                                           : area;
    }
    qsort(keys, c->item_count, sizeof *keys, keyed_compare);
    return keys;
}

/* Each into the cheapest bank that has room. */
static bool choice_add(struct ul_bank_choice *c, const struct keyed *keys, uint32_t count,
                       bool priced, uint32_t *banks)
{
    for (uint32_t k = 0; k < count; k++) {
        uint32_t i = keys[k].item, best = UL_PLAN_NONE;
        double least = INFINITY;
        for (uint32_t b = 0; b < c->bank_count; b++) {
            double cost = priced ? price_of(c, i, b) : cost_of(c, i, b);
            if (cost >= least || !has_room(c, i, b))
                continue;
            best = b;
            least = cost;
        }
        if (best == UL_PLAN_NONE)
            return false;
        banks[i] = best;
        load_add(c, i, best);
    }
    return true;
}

/* The chains that leave a bank for another one, and where they go. */
struct leaving {
    uint32_t item, to;
    double loss; /* for a byte */
};

static int leaving_compare(const void *a, const void *b)
{
    const struct leaving *x = a, *y = b;
    if (x->loss < y->loss || x->loss > y->loss)
        return x->loss < y->loss ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* The chains in the bank that live with chain i, with the next bank that has room for each. */
static uint32_t leaving_find(const struct ul_bank_choice *c, const uint32_t *banks, uint32_t i,
                             uint32_t bank, struct leaving *list)
{
    uint32_t count = 0;
    for (uint32_t j = 0; j < c->item_count; j++) {
        const struct ul_bank_item *item = &c->items[j];
        if (banks[j] != bank || j == i || item->size_bytes == 0 || item->begin >= c->items[i].end ||
            c->items[i].begin >= item->end)
            continue;
        struct leaving one = {.item = j, .to = UL_PLAN_NONE, .loss = INFINITY};
        for (uint32_t b = 0; b < c->bank_count; b++) {
            double loss = (cost_of(c, j, b) - cost_of(c, j, bank)) / (double)item->size_bytes;
            if (b == bank || loss >= one.loss || !has_room(c, j, b))
                continue;
            one.to = b;
            one.loss = loss;
        }
        if (one.to != UL_PLAN_NONE)
            list[count++] = one;
    }
    qsort(list, count, sizeof *list, leaving_compare);
    return count;
}

/* Whether chain i came into the bank, perhaps for others that left it, for less than it gains. */
static bool choice_exchange(struct ul_bank_choice *c, uint32_t *banks, uint32_t i, uint32_t bank,
                            struct leaving *list)
{
    uint32_t from = banks[i], count = 0, left = 0;
    double gain = cost_of(c, i, from) - cost_of(c, i, bank);
    load_take(c, i, from);
    bool fits = has_room(c, i, bank);
    if (!fits)
        count = leaving_find(c, banks, i, bank, list);
    for (; !fits && left < count; left++) {
        const struct leaving *one = &list[left];
        gain -= one->loss * (double)c->items[one->item].size_bytes;
        if (!(gain > 0) || !has_room(c, one->item, one->to))
            break;
        load_take(c, one->item, bank);
        load_add(c, one->item, one->to);
        banks[one->item] = one->to;
        fits = has_room(c, i, bank);
    }
    if (fits && gain > 0) {
        banks[i] = bank;
        load_add(c, i, bank);
        return true;
    }
    while (left-- > 0) {
        load_take(c, list[left].item, list[left].to);
        load_add(c, list[left].item, bank);
        banks[list[left].item] = bank;
    }
    load_add(c, i, from);
    return false;
}

/* Does at most this many passes over all chains; returns the work. */
static uint64_t choice_improve(struct ul_bank_choice *c, uint32_t *banks, struct leaving *list,
                               uint32_t passes)
{
    static const uint64_t max_work = 1u << 24;
    uint64_t work = 0;
    bool changes = true;
    for (uint32_t pass = 0; pass < passes && changes; pass++) {
        changes = false;
        for (uint32_t i = 0; i < c->item_count; i++) {
            for (uint32_t b = 0; b < c->bank_count && work < max_work; b++) {
                if (!(cost_of(c, i, b) < cost_of(c, i, banks[i])))
                    continue;
                work += (uint64_t)c->item_count + c->slot_count;
                changes = choice_exchange(c, banks, i, b, list) || changes;
            }
        }
    }
    return work;
}

/* Takes the chains that live at a moment, or some of them, out of their banks, and fills them in
 * again in an order by chance; false: one found no room, and all are out of account. */
static bool choice_shake(struct ul_bank_choice *c, uint32_t *banks, struct keyed *keys,
                         uint64_t *seed)
{
    uint32_t count = 0;
    uint32_t slot = (uint32_t)(ul_seed_next(seed) % c->slot_count);
    for (uint32_t i = 0; i < c->item_count; i++) {
        bool is_there = c->items[i].begin <= slot && slot < c->items[i].end;
        if (c->items[i].size_bytes == 0 || ul_seed_next(seed) % 8 > (is_there ? 4 : 0))
            continue;
        keys[count++] = (struct keyed){.key = ul_seed_unit(seed), .item = i};
        load_take(c, i, banks[i]);
    }
    if (count > 0)
        qsort(keys, count, sizeof *keys, keyed_compare);
    return choice_add(c, keys, count, ul_seed_next(seed) % 2 == 0, banks);
}

/* Goes on from a choice by shakes, each of which is kept where it costs no more. */
static void choice_anneal(struct ul_bank_choice *c, uint64_t cost)
{
    enum { SHAKES = 300 };
    static const uint64_t max_work = 1u << 23;
    uint32_t *banks = UL_NEW_ARRAY(c->arena, uint32_t, (uint64_t)c->item_count + 1);
    struct keyed *keys = UL_NEW_ARRAY(c->arena, struct keyed, (uint64_t)c->item_count + 1);
    struct leaving *list = UL_NEW_ARRAY(c->arena, struct leaving, (uint64_t)c->item_count + 1);
    uint64_t seed = 1, work = 0;
    for (uint32_t i = 0; i < SHAKES && cost > c->bound && work < max_work; i++) {
        memcpy(banks, c->banks, c->item_count * sizeof *banks);
        loads_clear(c);
        for (uint32_t k = 0; k < c->item_count; k++)
            load_add(c, k, banks[k]);
        work += (uint64_t)c->item_count * 2 * c->bank_count + c->slot_count;
        if (!choice_shake(c, banks, keys, &seed))
            continue;
        work += choice_improve(c, banks, list, 2);
        uint64_t other = ul_bank_choice_cost(c, banks);
        if (other > cost)
            continue;
        memcpy(c->banks, banks, c->item_count * sizeof *banks);
        cost = other;
    }
}

bool ul_bank_choice_find(struct ul_bank_choice *choice)
{
    uint32_t *banks = UL_NEW_ARRAY(choice->arena, uint32_t, (uint64_t)choice->item_count + 1);
    struct leaving *list =
        UL_NEW_ARRAY(choice->arena, struct leaving, (uint64_t)choice->item_count + 1);
    uint64_t best = UINT64_MAX;
    bool found = false;
    for (uint32_t order = 0; order < ORDER_COUNT; order++) {
        const struct keyed *keys = order_make(choice, (enum order)order);
        loads_clear(choice);
        if (!choice_add(choice, keys, choice->item_count, order == BY_PRICE, banks))
            continue;
        (void)choice_improve(choice, banks, list, 8);
        uint64_t cost = ul_bank_choice_cost(choice, banks);
        if (found && cost >= best)
            continue;
        memcpy(choice->banks, banks, choice->item_count * sizeof *banks);
        best = cost;
        found = true;
    }
    if (found && choice->item_count > 0 && !choice->is_hasty && choice->bound > 0)
        choice_anneal(choice, best);
    return found;
}

/* ---- All choices ---- */

enum { FEW_ITEMS = 120 };

struct enumeration {
    struct ul_bank_choice *c;
    const struct keyed *keys;
    uint32_t *banks;
    double rest_costs[FEW_ITEMS + 1]; /* from item k of the order on: at least */
    double rest_prices[FEW_ITEMS + 1];
    uint64_t limit_cost;
    uint32_t node_count, max_nodes;
    ul_bank_take_fn *take;
    void *context;
};

/* Whether no choice of the rest comes below the limit. */
static bool is_hopeless(const struct enumeration *e, uint32_t k, double costs, double prices)
{
    double least = costs + e->rest_costs[k], priced = prices + e->rest_prices[k];
    least = priced > least ? priced : least;
    return e->limit_cost < UINT64_MAX &&
           least - 1e-9 * (fabs(least) + e->c->prices_total) > (double)(e->limit_cost - 1);
}

static void enumerate_from(struct enumeration *e, uint32_t k, double costs, double prices)
{
    struct ul_bank_choice *c = e->c;
    if (e->node_count >= e->max_nodes || is_hopeless(e, k, costs, prices))
        return;
    e->node_count++;
    if (k == c->item_count) {
        uint64_t cost = ul_bank_choice_cost(c, e->banks);
        if (cost < e->limit_cost && e->take(e->context, e->banks))
            e->limit_cost = cost;
        return;
    }
    uint32_t i = e->keys[k].item;
    bool tried[MAX_BANKS] = {false};
    for (uint32_t n = 0; n < c->bank_count; n++) {
        uint32_t next = UL_PLAN_NONE; /* the cheapest of those left */
        for (uint32_t b = 0; b < c->bank_count; b++)
            if (!tried[b] && (next == UL_PLAN_NONE || price_of(c, i, b) < price_of(c, i, next)))
                next = b;
        tried[next] = true;
        if (!has_room(c, i, next))
            continue;
        e->banks[i] = next;
        load_add(c, i, next);
        enumerate_from(e, k + 1, costs + cost_of(c, i, next), prices + price_of(c, i, next));
        load_take(c, i, next);
    }
}

bool ul_bank_choice_enumerate(struct ul_bank_choice *choice, uint64_t limit_cost,
                              uint32_t max_nodes, ul_bank_take_fn *take, void *context)
{
    struct enumeration e = {.c = choice,
                            .limit_cost = limit_cost,
                            .max_nodes = max_nodes,
                            .take = take,
                            .context = context};
    if (choice->item_count > FEW_ITEMS)
        return false;
    e.keys = order_make(choice, BY_BYTES);
    e.banks = UL_NEW_ARRAY(choice->arena, uint32_t, (uint64_t)choice->item_count + 1);
    for (uint32_t k = choice->item_count; k-- > 0;) {
        double cost = INFINITY, price = INFINITY;
        for (uint32_t b = 0; b < choice->bank_count; b++) {
            cost = fmin(cost, cost_of(choice, e.keys[k].item, b));
            price = fmin(price, price_of(choice, e.keys[k].item, b));
        }
        e.rest_costs[k] = e.rest_costs[k + 1] + cost;
        e.rest_prices[k] = e.rest_prices[k + 1] + price;
    }
    loads_clear(choice);
    enumerate_from(&e, 0, 0, -choice->prices_total);
    return e.node_count < e.max_nodes;
}

void ul_bank_choice_begin(struct ul_bank_choice *choice)
{
    double most = 0;
    UL_ASSERT(choice->bank_count > 0 && choice->bank_count <= MAX_BANKS);
    slots_make(choice);
    choice->capacity_bytes = UL_NEW_ARRAY(choice->arena, uint64_t, choice->bank_count);
    choice->banks = UL_NEW_ARRAY(choice->arena, uint32_t, (uint64_t)choice->item_count + 1);
    choice->prices =
        UL_NEW_ARRAY(choice->arena, double, (size_t)choice->bank_count *(choice->slot_count + 1));
    choice->loads =
        UL_NEW_ARRAY(choice->arena, uint64_t, (size_t)choice->bank_count * choice->slot_count + 1);
    for (uint32_t b = 0; b < choice->bank_count; b++)
        choice->capacity_bytes[b] = choice->plan_banks[b].capacity_bytes;
    if (choice->is_hasty)
        return;
    if (ul_bank_choice_find(choice)) /* without a bound: in haste */
        most = (double)ul_bank_choice_cost(choice, choice->banks);
    bound_find(choice, most > 0 ? most : 1);
}
