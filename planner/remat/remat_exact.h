/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the exact search for recomputation: the problem as bit sets, and a lower
 * bound of what a state must still pay.
 *
 * Invariants: values are bits, numbered by the cost of a repeat per byte, the cheapest first, so
 * that a walk over the bits of a set meets them as a greedy knapsack would. A set is `words` words.
 * Costs count only repeats: every schedule pays for the first run of every node. Ownership:
 * everything lives in the arena that made the problem. */
#ifndef UL_REMAT_EXACT_H
#define UL_REMAT_EXACT_H

#include "planner/remat/remat.h"

/* More than any sum of costs: it means impossible. */
#define EXACT_NEVER ((uint64_t)1 << 62)

struct exact_problem {
    uint32_t count, words;
    uint32_t *node;     /* by bit: the graph's node */
    uint64_t *size;     /* bytes, by bit */
    uint64_t *repeat;   /* cost of one more run; EXACT_NEVER where it may not be repeated */
    uint64_t *step;     /* bytes that a run needs besides its inputs */
    uint32_t *take;     /* by bit: the input whose bytes a run takes over if it dies there */
    uint64_t *taken;    /* that many; 0: none */
    uint64_t *room;     /* bytes that a run leaves to others */
    uint64_t capacity;  /* bytes for the live sum */
    uint64_t cost_unit; /* divides every cost */
    uint64_t cost_sum;  /* of a repeat of everything */
    bool impossible;    /* some run does not fit */
    uint32_t *ranked;   /* bits in an order of the graph */
    uint32_t *tight;    /* bits whose run may not leave room for all that is needed later */
    uint32_t tight_count;
    uint64_t *inputs, *users; /* sets, `words` for each bit */
    uint64_t *before, *after; /* all ancestors, all descendants */
    uint64_t *beyond;         /* no inputs of the run, but read by one of its descendants */
};

/* A schedule's state: what has run at least once, what is resident. */
struct exact_sets {
    const uint64_t *done;
    const uint64_t *resident;
};

static inline bool set_within(const uint64_t *part, const uint64_t *whole, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        if ((part[i] & ~whole[i]) != 0)
            return false;
    }
    return true;
}

static inline bool set_meets(const uint64_t *a, const uint64_t *b, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        if ((a[i] & b[i]) != 0)
            return true;
    }
    return false;
}

/* The index of the lowest bit of a word that is not 0. */
static inline uint32_t word_lowest(uint64_t word)
{
    static const uint8_t places[64] = {
        0,  1,  48, 2,  57, 49, 28, 3,  61, 58, 50, 42, 38, 29, 17, 4,  62, 55, 59, 36, 53, 51,
        43, 22, 45, 39, 33, 30, 24, 18, 12, 5,  63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
        44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,  13, 8,  7,  6};
#if defined(__GNUC__)
    (void)places;
    return (uint32_t)__builtin_ctzll(word);
#else
    return places[((word & (~word + 1)) * UINT64_C(0x03F79D71B4CB0A89)) >> 58];
#endif
}

/* remat_exact_problem.c: false where the engine cannot be used (too many nodes). */
bool exact_problem_make(struct ul_arena *arena, const struct ul_solve_graph *graph,
                        uint64_t budget_bytes, struct exact_problem *problem);

/* remat_exact_bound.c */

struct exact_bound;
struct exact_bound *exact_bound_new(struct ul_arena *arena, const struct exact_problem *problem);
/* A lower bound on the cost of the repeats after a state. The caller knows it to be at least
 * `floor`, and cares for no more than `limit`: it is exact only in between. Adds to *work. */
uint64_t exact_bound_get(struct exact_bound *bound, struct exact_sets state, uint64_t floor,
                         uint64_t limit, uint64_t *work);
/* For the state of the last call: the least cost of repeats if `step` is next and `wanted` more
 * bytes of the droppable, resident values are dropped for it. */
uint64_t exact_bound_room(struct exact_bound *bound, struct exact_sets state, uint32_t step,
                          const uint32_t *droppable, uint32_t count, uint64_t wanted);
/* Values that have run and may be useful to a schedule whose repeats after the state cost less than
 * `limit`: to be kept if resident, to be repeated if not. A value that no first run to come reads
 * is useful only by repeats of its users. */
void exact_bound_useful(struct exact_bound *bound, struct exact_sets state, uint64_t limit,
                        uint64_t *useful);

/* remat_exact_store.c */

struct exact_state {
    uint64_t cost;  /* of the repeats so far */
    uint64_t bound; /* of the repeats of any schedule through here */
    uint32_t parent;
    uint32_t group; /* what has run */
    uint32_t runs;  /* where its runs are listed */
    uint16_t run_count;
    bool dominated;
};

struct exact_open {
    uint64_t bound;
    uint32_t done_count;
    uint32_t state;
};

struct exact_group {
    uint64_t *done;
    uint32_t done_count;
    struct block *blocks; /* newest first */
};

struct exact_store {
    struct ul_arena *arena;
    uint32_t words;
    uint64_t *resident; /* by state */
    struct exact_state *states;
    uint32_t state_count, state_limit;
    struct exact_open *open; /* a heap */
    uint32_t open_count;
    struct exact_group *groups;
    uint32_t group_count, group_capacity;
    uint32_t *table; /* open addressing: group + 1 */
    uint32_t table_size;
    uint64_t looked; /* entries looked at */
};

void exact_store_init(struct exact_store *store, struct ul_arena *arena, uint32_t words,
                      uint32_t state_limit);
/* Adds a state, whose other fields the caller sets; UL_PLAN_NONE if another one beats it. */
uint32_t exact_store_add(struct exact_store *store, const uint64_t *done, uint32_t done_count,
                         const uint64_t *resident, uint64_t cost);
/* Opens a state by its bound. */
void exact_store_push(struct exact_store *store, uint32_t state);
/* The open state of the lowest bound, the longest run of these; UL_PLAN_NONE if none is left. */
uint32_t exact_store_pop(struct exact_store *store);

/* remat_exact_search.c: the loop over states, which both searches share. */

/* One search for schedules below `limit`. */
struct exact_search {
    struct ul_remat_exact *job;
    const struct exact_problem *problem;
    struct ul_arena *arena;
    struct exact_store store;
    uint16_t *runs;
    uint32_t run_count, run_capacity;
    uint64_t limit; /* schedules whose repeats cost as much do not count */
    uint32_t best;  /* the state of the cheapest schedule found */
};

/* A state in the making; the engine knows the meaning of its sets. */
struct exact_draft {
    uint64_t *done, *resident;
    uint64_t live_bytes, cost, bound;
    uint32_t done_count;
    uint32_t parent;
    uint16_t *runs;
    uint32_t run_count;
};

struct exact_engine {
    /* Makes the engine's own state, and keeps the first states in the store. */
    void *(*begin)(struct exact_search *search);
    void (*expand)(void *engine, uint32_t state);
    const char *name;
    bool is_backwards; /* a state's runs come before those of the state from which it was reached */
};

void exact_draft_init(const struct exact_search *search, struct exact_draft *draft);
/* Whether states, work or time have run out. */
bool exact_search_is_over(struct exact_search *search);
/* Keeps the state, unless another one beats it. */
void exact_search_keep(struct exact_search *search, const struct exact_draft *draft);
/* The complete search: sets the job's outcome, bound and sequence. */
void exact_search_run(struct ul_remat_exact *job, const struct exact_problem *problem,
                      uint64_t limit, const struct exact_engine *engine);

#endif
