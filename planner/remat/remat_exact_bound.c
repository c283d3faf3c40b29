/* SPDX-License-Identifier: Apache-2.0 */
/* A lower bound of the cost of the repeats after a state.
 *
 * Problem: a state is what has run and what is resident; what must be paid at least? Method: a
 * value that has run, is gone and is read by a first run to come must run again, and so must those
 * of its inputs that are gone, and so on: each at least once. Beyond that, at the first run of each
 * step to come, values that later steps read and that have surely run by then are resident, or run
 * again after that step:
 *
 *      now ----- repeats for the step ----- step ----- later steps read w
 *                                           w resident here, or repeated here
 *
 * A repeat of w that is counted already, because w is gone now, can be the one after the step
 * unless the step itself needs w before. The rest that exceeds the room that the step leaves is a
 * covering knapsack, solved exactly within a number of nodes, and fractionally beyond. Left undone:
 * several steps at once (their knapsacks share repeats); the needs of the repeats themselves while
 * they run. */
#include "planner/remat/remat_exact.h"

#include <string.h>

enum { COVER_NODES = 4000, ROWS = 3 };

struct cover_item {
    uint64_t size, cost;
    uint64_t better; /* bits of earlier items that are at least as good */
};

struct exact_bound {
    const struct exact_problem *problem;
    uint64_t *needed;  /* by bit that is not resident: what must be repeated before it can run */
    uint64_t *repeats; /* union over the first runs to come */
    uint64_t repeats_cost;
    struct cover_item *cover;
    uint32_t cover_count;
    uint64_t best, enough;
    uint64_t nodes;
    uint64_t *reach; /* by bit that has run: cost of more repeats until a first run reads one */
    struct {
        uint32_t bit;
        uint64_t value;
    } rows[ROWS];
};

struct exact_bound *exact_bound_new(struct ul_arena *arena, const struct exact_problem *problem)
{
    UL_ASSERT(problem->count > 0);
    struct exact_bound *b = UL_NEW(arena, struct exact_bound);
    b->problem = problem;
    b->needed = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)problem->count * problem->words);
    b->repeats = UL_NEW_ARRAY(arena, uint64_t, problem->words);
    b->cover = UL_NEW_ARRAY(arena, struct cover_item, problem->count);
    b->reach = UL_NEW_ARRAY(arena, uint64_t, problem->count);
    return b;
}

/* Fills `needed` and `repeats`; returns the cost of the latter. */
static uint64_t repeats_find(struct exact_bound *b, struct exact_sets state)
{
    const struct exact_problem *p = b->problem;
    uint32_t words = p->words;
    memset(b->repeats, 0, words * sizeof *b->repeats);
    for (uint32_t at = 0; at < p->count; at++) {
        uint32_t bit = p->ranked[at];
        if (ul_bits_have(state.resident, bit))
            continue;
        uint64_t *needed = b->needed + (size_t)bit * words;
        const uint64_t *inputs = p->inputs + (size_t)bit * words;
        memset(needed, 0, words * sizeof *needed);
        bool again = ul_bits_have(state.done, bit);
        if (again)
            ul_bits_add(needed, bit);
        for (uint32_t i = 0; i < words; i++) {
            for (uint64_t left = inputs[i] & ~state.resident[i]; left != 0; left &= left - 1) {
                const uint64_t *from = b->needed + (size_t)(i * 64 + word_lowest(left)) * words;
                for (uint32_t j = 0; j < words; j++)
                    needed[j] |= from[j];
            }
        }
        for (uint32_t j = 0; j < words && !again; j++)
            b->repeats[j] |= needed[j];
    }
    uint64_t cost = 0;
    for (uint32_t i = 0; i < words; i++) {
        for (uint64_t left = b->repeats[i]; left != 0; left &= left - 1) {
            uint64_t repeat = p->repeat[i * 64 + word_lowest(left)];
            if (repeat >= EXACT_NEVER)
                return EXACT_NEVER;
            cost += repeat;
        }
    }
    b->repeats_cost = cost;
    return cost;
}

/* Rounds part of a cost up to what complete repeats can cost; errs only downward. */
static uint64_t part_of(const struct exact_problem *p, uint64_t cost, uint64_t wanted,
                        uint64_t size, uint64_t sum)
{
    double part = (double)cost * ((double)wanted / (double)size) * (1.0 - 1e-12);
    part -= (double)sum * 1e-14 + 1e-9;
    if (part <= 0)
        return 0;
    uint64_t units = (uint64_t)(part / (double)p->cost_unit * (1.0 - 1e-15));
    return (units + ((double)units * (double)p->cost_unit < part)) * p->cost_unit;
}

/* The fractional cost of freeing `wanted` bytes from the items at `from` and after. */
static uint64_t cover_fraction(const struct exact_bound *b, uint32_t from, uint64_t wanted)
{
    uint64_t sum = 0;
    for (uint32_t i = from; i < b->cover_count; i++) {
        const struct cover_item *item = &b->cover[i];
        if (item->size >= wanted)
            return sum + part_of(b->problem, item->cost, wanted, item->size, sum);
        wanted -= item->size;
        sum += item->cost;
    }
    return EXACT_NEVER;
}

/* For each item the earlier ones that are no smaller and no more expensive. */
static void cover_rank(struct exact_bound *b)
{
    for (uint32_t i = 0; i < b->cover_count; i++) {
        struct cover_item *item = &b->cover[i];
        item->better = 0;
        for (uint32_t j = 0; j < i && j < 64; j++) {
            if (b->cover[j].size >= item->size && b->cover[j].cost <= item->cost)
                item->better |= (uint64_t)1 << j;
        }
    }
}

/* The knapsack from item `from` on, depth first; b->best is the cheapest yet. Ends once that is at
 * most b->enough. An item that was left out rules out those that it beats. */
static void cover_search(struct exact_bound *b, uint32_t from, uint64_t wanted, uint64_t cost,
                         uint64_t left_out)
{
    for (uint32_t i = from; i < b->cover_count && b->best > b->enough; i++) {
        const struct cover_item *item = &b->cover[i];
        if ((item->better & left_out) != 0)
            continue;
        if (b->nodes++ >= COVER_NODES || cost + cover_fraction(b, i, wanted) >= b->best)
            return;
        if (item->size >= wanted)
            b->best = cost + item->cost < b->best ? cost + item->cost : b->best;
        else
            cover_search(b, i + 1, wanted - item->size, cost + item->cost, left_out);
        left_out |= i < 64 ? (uint64_t)1 << i : 0;
    }
}

/* Lists values that may be wanted at the first run of `bit`; returns by how much they exceed the
 * room. */
static uint64_t cover_make(struct exact_bound *b, struct exact_sets state, uint32_t bit)
{
    const struct exact_problem *p = b->problem;
    const uint64_t *beyond = p->beyond + (size_t)bit * p->words;
    const uint64_t *before = p->before + (size_t)bit * p->words;
    const uint64_t *needed = b->needed + (size_t)bit * p->words;
    uint64_t sum = 0;
    b->cover_count = 0;
    for (uint32_t i = 0; i < p->words; i++) {
        uint64_t left = beyond[i] & (state.done[i] | before[i]) & ~(b->repeats[i] & ~needed[i]);
        for (; left != 0; left &= left - 1) {
            uint32_t item = i * 64 + word_lowest(left);
            sum += p->size[item];
            if (p->size[item] > 0 && p->repeat[item] < EXACT_NEVER)
                b->cover[b->cover_count++] =
                    (struct cover_item){.size = p->size[item], .cost = p->repeat[item]};
        }
    }
    return sum > p->room[bit] ? sum - p->room[bit] : 0;
}

/* Remembers the rows of the largest values, the largest first. */
static void row_note(struct exact_bound *b, uint32_t bit, uint64_t value)
{
    uint32_t at = ROWS;
    while (at > 0 && value > b->rows[at - 1].value)
        at--;
    if (at == ROWS)
        return;
    memmove(&b->rows[at + 1], &b->rows[at], (ROWS - 1 - at) * sizeof b->rows[0]);
    b->rows[at].bit = bit;
    b->rows[at].value = value;
}

/* The best of the promising rows, solved exactly; a result of at most `enough` adds nothing. */
static uint64_t rows_solve(struct exact_bound *b, struct exact_sets state, uint64_t enough,
                           uint64_t limit, uint64_t *work)
{
    uint64_t value = enough;
    for (uint32_t i = 0; i < ROWS && b->rows[i].value > 0 && value < limit; i++) {
        uint64_t wanted = cover_make(b, state, b->rows[i].bit);
        b->enough = value;
        b->best = limit;
        b->nodes = 0;
        cover_rank(b);
        cover_search(b, 0, wanted, 0, 0);
        *work += b->nodes;
        uint64_t found = b->nodes < COVER_NODES ? b->best : b->rows[i].value;
        value = found > value ? found : value;
    }
    return value;
}

uint64_t exact_bound_get(struct exact_bound *bound, struct exact_sets state, uint64_t floor,
                         uint64_t limit, uint64_t *work)
{
    const struct exact_problem *p = bound->problem;
    uint64_t cost = repeats_find(bound, state);
    *work += p->count / 8 + 1;
    if (cost >= limit)
        return cost;
    memset(bound->rows, 0, sizeof bound->rows);
    for (uint32_t i = 0; i < p->tight_count; i++) {
        uint32_t bit = p->tight[i];
        if (ul_bits_have(state.done, bit))
            continue;
        uint64_t wanted = cover_make(bound, state, bit);
        *work += 1;
        if (wanted == 0)
            continue;
        uint64_t value = cover_fraction(bound, 0, wanted);
        if (cost + value >= limit)
            return cost + value;
        row_note(bound, bit, value);
    }
    uint64_t enough = floor > cost ? floor - cost : 0;
    return cost + rows_solve(bound, state, enough, limit - cost, work);
}

/* The least cost, beyond the repeats that are needed anyway, of making use of `bit`. */
static uint64_t reach_of(const struct exact_bound *b, struct exact_sets state, uint32_t bit)
{
    const struct exact_problem *p = b->problem;
    const uint64_t *users = p->users + (size_t)bit * p->words;
    if (!set_within(users, state.done, p->words))
        return 0;
    uint64_t min = EXACT_NEVER;
    for (uint32_t i = 0; i < p->words; i++) {
        for (uint64_t left = users[i]; left != 0; left &= left - 1) {
            uint32_t user = i * 64 + word_lowest(left);
            uint64_t cost = b->reach[user];
            if (!ul_bits_have(b->repeats, user))
                cost += p->repeat[user];
            min = cost < min ? cost : min;
        }
    }
    return min;
}

void exact_bound_useful(struct exact_bound *bound, struct exact_sets state, uint64_t limit,
                        uint64_t *useful)
{
    const struct exact_problem *p = bound->problem;
    uint64_t cost = repeats_find(bound, state);
    uint64_t spare = cost < limit ? limit - cost : 0;
    memset(useful, 0, p->words * sizeof *useful);
    for (uint32_t at = p->count; at-- > 0;) {
        uint32_t bit = p->ranked[at];
        if (!ul_bits_have(state.done, bit))
            continue;
        uint64_t reach = reach_of(bound, state, bit);
        bound->reach[bit] = reach;
        bool again = !ul_bits_have(state.resident, bit) && !ul_bits_have(bound->repeats, bit);
        if (reach + (again ? p->repeat[bit] : 0) < spare)
            ul_bits_add(useful, bit);
    }
}

uint64_t exact_bound_room(struct exact_bound *bound, struct exact_sets state, uint32_t step,
                          const uint32_t *droppable, uint32_t count, uint64_t wanted)
{
    const struct exact_problem *p = bound->problem;
    uint64_t cost = bound->repeats_cost;
    if (ul_bits_have(state.done, step) && !ul_bits_have(bound->repeats, step))
        cost += p->repeat[step];
    bound->cover_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bit = droppable[i];
        uint64_t size = p->size[bit];
        if (!set_within(p->users + (size_t)bit * p->words, state.done, p->words))
            bound->cover[bound->cover_count++] =
                (struct cover_item){.size = size, .cost = p->repeat[bit]};
        else if (size >= wanted)
            return cost;
        else
            wanted -= size;
    }
    return cost + cover_fraction(bound, 0, wanted);
}
