/* SPDX-License-Identifier: Apache-2.0 */
/* How a kernel is spread over a graphics processor: the schedule that a language prints.
 *
 * A kernel is a list of phases, launched in order, some of them together; loops on the host repeat
 * some. A phase runs items: the rounds of a nest of independent loops, or just one. An item is run
 * by a team of threads: one thread, a warp, or a block. All threads of the team run the statements
 * of an item alike, except that they share loops of independent iterations, and that only thread 0
 * stores; there is a barrier where one thread reads or overwrites what another one wrote. Some
 * phases run together, in one launch whose blocks wait for each other (struct ul_together).
 * Invariants: phases are launched in the order of their statements; what crosses from one to the
 * next is in buffers, or is a name that each phase can compute again; no result depends on the
 * number of blocks; two threads form a sum only in a fixed tree. The choice depends only on the
 * kernel. Ownership: everything lives in the arena given. Nothing fails. */
#ifndef UL_GRID_H
#define UL_GRID_H

#include "codegen/device/contract_device.h"
#include "ir/kernel.h"

enum { UL_GRID_LEVELS = 8, UL_GRID_HOSTS = 8, UL_WARP = 32 };

enum ul_phase_kind {
    UL_PHASE_EACH, /* a thread for each item */
    UL_PHASE_TEAM, /* a warp or a block for each item */
    UL_PHASE_TILES /* a contraction: a block for each tile of an item */
};

/* How a team runs a statement. */
enum ul_team_mode {
    UL_TEAM_ALIKE,   /* every thread the same: names, sets, branches, the rounds of a loop */
    UL_TEAM_FIRST,   /* only thread 0; variables that it sets are sent to all */
    UL_TEAM_STRIDED, /* the rounds of a nest of loops, or the sums of a contraction, shared */
    UL_TEAM_FOLD,   /* with the statements after it: partial results, each in a thread's register */
    UL_TEAM_NOTHING /* a part of the fold before it */
};

/* The place of a buffer that is no parameter, in a phase. */
enum ul_grid_place {
    UL_PLACE_ARENA,   /* scratch of the kernel, the same for all */
    UL_PLACE_OWN,     /* scratch of each team */
    UL_PLACE_SHARED,  /* shared memory of each team */
    UL_PLACE_THREAD,  /* an array of each thread */
    UL_PLACE_REGISTER /* the one element of a shared array that a thread touches */
};

/* For a nest whose items are sums over a window: a thread has this many neighbouring results of one
 * of its loops, and the innermost loop of the sum loads what they share once. */
struct ul_slide {
    uint32_t count;      /* 0: each item alone */
    uint32_t loop;       /* of the nest */
    int64_t stride;      /* rounds of the inner loop from one result to the next */
    int64_t rounds;      /* of the inner loop */
    ul_ks inner, last;   /* that loop, and the statement that adds; the moving part is before it */
    uint32_t sum;        /* its variable */
    ul_kx moving, fixed; /* the factors: fixed ones are the same for all results */
};

/* Loops of independent iterations, taken as one: thread f / vector modulo the team's threads runs
 * round f of the nest; with a shift, round f - shift. Without loops: what a contraction does with
 * sums whose neighbours have neighbouring values of a variable. */
struct ul_nest {
    const struct ul_contraction *epilogue; /* NULL: loops */
    uint32_t along;                        /* its variable */
    uint32_t count;
    ul_ks loops[UL_GRID_LEVELS];    /* outermost first */
    int64_t rounds[UL_GRID_LEVELS]; /* constant, where there is more than one loop */
    int64_t total;                  /* the most, where it is not constant */
    ul_kx shift;                    /* of a single loop, or UL_NONE */
    uint32_t vector;                /* rounds of the innermost loop that a thread takes at once */
    const bool *varies;             /* by variable: differs among these; NULL without vectors */
    struct ul_slide slide;          /* only for items */
};

/* Items of threads. */
static inline int64_t ul_nest_items(const struct ul_nest *nest)
{
    return nest->total / nest->vector / (nest->slide.count > 0 ? nest->slide.count : 1);
}

/* Partial results that become one, which each thread has then. */
struct ul_grid_fold {
    uint32_t buffer;
    ul_kx value;   /* of the first step: a binary operation on two loads */
    int64_t width; /* elements: the team's threads */
};

struct ul_kernel_printed; /* codegen/program/target.h */

struct ul_phase {
    enum ul_phase_kind kind;
    uint32_t host_count;
    ul_ks hosts[UL_GRID_HOSTS]; /* loops on the host around it, outermost first */
    ul_ks top_first, top_end;   /* statements [first, end) of the list from which it was cut */
    struct ul_nest items;       /* no loop: one item */
    ul_ks first, end;           /* an item: statements of a list */
    int64_t team;               /* threads; no multiple of a warp where it is loose */
    bool is_loose;              /* threads of a team never wait for each other */
    uint32_t block_threads;
    int64_t block_count;
    int64_t first_block;   /* in its launch, where phases share one */
    uint32_t joined_count; /* phases from this one on in one launch; 0: it is in another's */
    bool is_followed;      /* the last blocks of the launch continue with the next phase */
    /* Items of a followed phase are in rows, with a thread for one or a pack of each: block b has
     * `group_width` items of a row, from b % (row / width) * width on, in as many rows as it has
     * threads for. 0: there are no rows, and all blocks are one group. */
    int64_t group_row, group_width;
    bool has_own;          /* each team has scratch: there are as many teams as are launched */
    uint64_t own_bytes;    /* of each team */
    uint32_t shared_bytes; /* of each team */
    /* by buffer: in scratch, in a team's scratch, in a team's shared memory */
    uint64_t *offsets_bytes;
    uint8_t *places;             /* by buffer: enum ul_place */
    uint8_t *modes;              /* by statement: enum ul_team_mode */
    struct ul_nest **nests;      /* by statement: for a strided loop */
    struct ul_grid_fold **folds; /* by statement: where its mode is FOLD */
    bool *is_folded;             /* by buffer */
    bool *barriers;              /* by statement: there is one before it */
    /* In a launch that is together (below): the contraction whose first operand a team holds for
     * each of its items, or UL_NONE; its bytes for an item, and where a block's begin. */
    ul_ks held;
    int64_t held_items; /* of a team */
    uint64_t held_bytes, held_offset_bytes;
};

/* Phases that run as one launch, whose blocks wait for each other between them: all phases of some
 * loops of the host, and those directly around these loops. */
struct ul_together {
    uint32_t first, end; /* phases of the grid, which also has them as single phases */
    uint32_t host_count; /* loops that are still on the host */
    uint32_t block_threads;
    int64_t block_count;     /* at most the device's multiprocessors */
    uint64_t held_bytes;     /* of a block's shared memory, besides arrays */
    uint64_t shared_bytes;   /* of the array that phases use in turn */
    struct ul_phase *phases; /* in their form in this launch */
};

struct ul_grid {
    uint32_t phase_count, phase_capacity;
    struct ul_phase *phases;
    uint64_t scratch_bytes;
    uint64_t own_offset_bytes; /* where the first team's scratch begins */
    bool *is_name;             /* by variable: each phase can compute its value again */
    uint32_t together_count, together_capacity;
    struct ul_together *together; /* in order, without overlaps */
};

/* How the language that prints it launches attention. */
typedef void ul_attend_grid_fn(const struct ul_kernel *kernel, const struct ul_attend *attend,
                               const struct ul_profile_device *device,
                               struct ul_contract_grid *grid);
/* grid.c; `used`: variables that something reads. */
void ul_grid_init(struct ul_grid *grid, const struct ul_kernel *kernel, const bool *used,
                  const struct ul_profile_device *device, ul_attend_grid_fn *attend_grid,
                  struct ul_arena *arena);

/* grid_count.c: what a run launches of the kernel as it is printed. */
void ul_grid_count(const struct ul_kernel *kernel, const struct ul_grid *grid,
                   const struct ul_profile_device *device, struct ul_kernel_printed *printed);

/* Whether a launch begins with the phase: it is not empty, and not in another's launch. */
static inline bool ul_phase_is_launched(const struct ul_phase *phase)
{
    return phase->block_count > 0 && phase->joined_count > 0;
}

static inline uint32_t ul_grid_launches(const struct ul_grid *grid)
{
    uint32_t launches = 0;
    for (uint32_t i = 0; i < grid->phase_count; i++)
        launches += ul_phase_is_launched(&grid->phases[i]);
    return launches;
}

/* grid_index.c */

enum { UL_GRID_TERMS = 8 };

/* constant + the sum of factors[i] * vars[i], whose values are [0, highs[i]] */
struct ul_grid_index {
    bool is_known;
    int64_t constant;
    uint32_t count, vars[UL_GRID_TERMS];
    int64_t factors[UL_GRID_TERMS], highs[UL_GRID_TERMS];
};
/* The LET of each variable, or UL_NONE. */
const ul_ks *ul_grid_definitions(const struct ul_kernel *kernel, struct ul_arena *arena);
struct ul_grid_index ul_grid_index_of(const struct ul_kernel *kernel, const ul_ks *definitions,
                                      ul_kx index);

/* grid_access.c, for grid.c */

/* Whether the two buffers may overlap. */
bool ul_may_alias(const struct ul_kernel *kernel, uint32_t a, uint32_t b);
/* Whether equal indexes into the two are the same element, if they overlap. */
bool ul_same_elements(const struct ul_kernel *kernel, uint32_t a, uint32_t b);
/* Finds where the phase's team must wait for itself; sets barriers, and places of arrays whose
 * elements only one thread touches, one element for each thread. */
void ul_grid_find_barriers(struct ul_phase *phase, const struct ul_kernel *kernel,
                           struct ul_arena *arena);

/* grid_vector.c, for grid.c and what prints it */

/* The nest with the elements that a thread takes at once: 1, or as many as fill 16 bytes; 32 bytes
 * where that many `threads` of a team run the nest, and each then has fewer rounds. */
struct ul_nest ul_grid_vector(const struct ul_nest *nest, const struct ul_kernel *kernel,
                              int64_t threads, struct ul_arena *arena);
/* The same for items, of which that many must remain; with loops inside, 4 or 8 at once. */
struct ul_nest ul_grid_vector_items(const struct ul_nest *nest, const struct ul_kernel *kernel,
                                    int64_t min_items, struct ul_arena *arena);
/* What the contraction does with `width` neighbouring sums, where `along` is the variable with that
 * many `rounds`; false where that is done for one sum at a time. */
bool ul_grid_epilogue(struct ul_nest *nest, const struct ul_kernel *kernel,
                      const struct ul_contraction *contraction, uint32_t along, int64_t rounds,
                      int64_t width, struct ul_arena *arena);
/* The variable of its innermost loop, and the statements inside. */
uint32_t ul_nest_var(const struct ul_nest *nest, const struct ul_kernel *kernel);
ul_ks ul_nest_body(const struct ul_nest *nest, const struct ul_kernel *kernel);
/* Whether the elements at the index are contiguous, in a nest that has vectors. */
bool ul_grid_is_contiguous(const struct ul_kernel *kernel, const struct ul_nest *nest, ul_kx index);

/* grid_slide.c, for grid.c: finds the slide of items that have vectors, of which that many must
 * remain. */
void ul_grid_slide(struct ul_nest *nest, const struct ul_kernel *kernel, int64_t min_items,
                   struct ul_arena *arena);

/* grid_join.c: gives phases that share a launch blocks of `threads` threads, numbered from `first`.
 * Returns the number after the last block. */
int64_t ul_grid_set_blocks(struct ul_phase *phases, uint32_t count, uint32_t threads,
                           int64_t first);
/* The threads of the largest block, at least 1. */
uint32_t ul_grid_max_threads(const struct ul_phase *phases, uint32_t count);
/* For grid.c: decides which phases share a launch. */
void ul_grid_join(struct ul_grid *grid, const struct ul_kernel *kernel, struct ul_arena *arena);

/* grid_together.c, for grid.c: decides which loops of the host are inside a launch. */
void ul_grid_gather(struct ul_grid *grid, const struct ul_kernel *kernel,
                    const struct ul_profile_device *device, struct ul_arena *arena);
/* The launch that contains the phase, or NULL. */
const struct ul_together *ul_grid_find_together(const struct ul_grid *grid, uint32_t phase);

/* grid_follow.c, for grid.c: decides which phases are in the launch of the phase before them. */
void ul_grid_follow(struct ul_grid *grid, const struct ul_kernel *kernel, const bool *used,
                    const struct ul_profile_device *device, struct ul_arena *arena);
/* The groups of a launch's blocks, for a phase that is followed. */
int64_t ul_phase_groups(const struct ul_phase *phase);
/* Bits that count the blocks of a group: 4, 8, 16 or 32. */
uint32_t ul_phase_counter_bits(const struct ul_phase *phase);
/* The most words of any launch. */
uint32_t ul_grid_counter_words(const struct ul_grid *grid);
/* How many phases the launch has that begins with this one. */
uint32_t ul_phase_span(const struct ul_phase *phase);

/* narrow.c: by variable, whether it is declared with 32 bits. */
const bool *ul_narrow(const struct ul_kernel *kernel, struct ul_arena *arena);

/* grid_fold.c, for grid.c */

/* Finds folds as wide as the phase's team, and sets their modes; `uses` counts those of each buffer
 * in the whole kernel. */
void ul_grid_find_folds(struct ul_phase *phase, const struct ul_kernel *kernel,
                        const uint32_t *uses, struct ul_arena *arena);
/* The width of the widest fold among statements; 0: there is none. */
int64_t ul_grid_fold_width(const struct ul_kernel *kernel, ul_ks first, ul_ks end);

#endif
