/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that build a program.
 *
 *      blocks.c    blocks in order; If, Loop and Scan become regions of steps
 *      groups.c    a group of nodes becomes a step: a kernel of ours, or a call of a library
 *      functions.c kernels with equal text are one, equal calls are one
 *      sums.c      sums of a factor that the call of a product may form
 *      steps.c     a step joins the program and the planner's problem
 *      work.c      what a step computes and moves
 *      places.c    the places that steps read and write
 *      donation.c  outputs that overwrite an input in place
 *      entries.c   entry points: steps on some inputs and outputs
 *
 * Invariants: step i of the program is step i of its problem, region i is region i, place i is
 * value i. Ownership: everything lives in the builder's arena. */
#ifndef UL_PROGRAM_INTERNAL_H
#define UL_PROGRAM_INTERNAL_H

#include "codegen/program/calls_internal.h"
#include "codegen/program/program.h"

enum { UL_STEP_ALTERNATIVES = 4, UL_SPARES = 3 }; /* of a step, at most */

struct ul_program_builder {
    struct ul_arena *arena;
    struct ul_arena scratch; /* while one kernel is added */
    const struct ul_graph *graph;
    const struct ul_program_options *options;
    struct ul_program *program;
    struct ul_diag *diag;
    const bool *escapes;
    /* places that the next step reads too: inputs that nothing else reads */
    const uint32_t *unread;
    uint32_t unread_count;
    const bool *linked; /* by value: ul_graph_find_linked */
    bool *is_kept;      /* by base: the backward pass of a training graph reads it */
    struct ul_calls calls;
    struct ul_unsplit *unsplit; /* the program before splitting; NULL: no split */
    uint64_t weight_bytes;
    uint32_t *tests; /* region -> its TEST step, or UL_NONE; for as many regions as there may be */
    uint32_t *kernel_table; /* hash of text -> kernel */
    uint32_t kernel_table_size;
};

/* places.c */

/* Fills is_kept, before the first place. */
void ul_place_find_kept(struct ul_program_builder *builder);
/* The place of a base value, made at its first use. A weight's is that of its plain bytes. */
uint32_t ul_place_of(struct ul_program_builder *builder, ul_value_id base);
/* Gives a value the place of another one with the same number of bytes, which is not read any
 * more. */
void ul_place_join(struct ul_program_builder *builder, ul_value_id value, ul_value_id with);
/* The place of a weight's bytes in a layout; NULL: plain. */
uint32_t ul_place_of_form(struct ul_program_builder *builder, ul_value_id base,
                          const struct ul_pack *pack);
/* Makes the places of what a call's library takes beside the arena, for the call and for itself,
 * where anybody can say. */
void ul_place_add_library(struct ul_program_builder *builder, uint32_t call);
/* The place of a kernel's code, which a plan may do without. */
uint32_t ul_place_of_code(struct ul_program_builder *builder, uint32_t kernel);
/* Called once all steps are there: of several forms of a weight a plan needs those that it
 * reads. */
void ul_place_mark_forms(struct ul_program_builder *builder);
/* A place of its own for a copy of `like`. */
uint32_t ul_place_add_temporary(struct ul_program_builder *builder, ul_value_id like);
/* Places of state: for a library on the host, a pointer; for a device, errors of a run, and which
 * regions are taken. */
void ul_place_add_states(struct ul_program_builder *builder);
struct ul_program_address ul_place_address(uint32_t place, int64_t offset_bytes);
/* The address of a value that is dense in its base; for a weight, of its plain form. */
struct ul_program_address ul_place_value_address(struct ul_program_builder *builder,
                                                 ul_value_id value);

/* functions.c */

enum ul_status ul_function_add_kernel(struct ul_program_builder *builder,
                                      const struct ul_kernel *kernel, uint32_t *id) UL_MUST_CHECK;
uint32_t ul_function_add_call(struct ul_program_builder *builder, const struct ul_call *call,
                              const struct ul_target_library *library);

/* work.c */

/* Threads are assumed to share a call evenly. */
void ul_work_count_call(const struct ul_program_builder *builder, const struct ul_group_call *call,
                        struct ul_work *work);
/* A kernel moves the bytes that it accesses, each once; of a table, the rows that are looked up.
 * Adds them to the traffic, and returns them. */
uint64_t ul_work_count_buffer(const struct ul_graph *graph, const struct ul_buffer *buffer,
                              uint64_t accesses, struct ul_traffic *traffic);
/* The bytes that argument `i` of a step without a function moves. */
uint64_t ul_work_moved_bytes(const struct ul_graph *graph, const struct ul_program_step *step,
                             uint32_t i);
/* How often a step of `region` runs; both branches count. */
uint64_t ul_work_rounds(const struct ul_program *program, uint32_t region);

/* steps.c */

void ul_step_init_args(struct ul_program_builder *builder, struct ul_program_step *step,
                       uint32_t count);
/* A unique name for the step that is added next. */
const char *ul_step_name(const struct ul_program_builder *builder, const char *wanted);
/* Appends the step, and tells the problem what each of its alternatives reads and writes; sets the
 * region in the step's fields and in its alternatives'. */
void ul_step_add(struct ul_program_builder *builder, struct ul_program_step *step, uint32_t region);

/* groups.c */

enum ul_status ul_group_add(struct ul_program_builder *builder, const ul_node_id *nodes,
                            uint32_t count, uint32_t region) UL_MUST_CHECK;

/* entries.c */

/* Adds the entry points, once all steps are there. */
void ul_entry_add_all(struct ul_program_builder *builder);

/* donation.c */

/* UL_UNSUPPORTED with the name of a reader whose input an output would overwrite. */
enum ul_status ul_donation_check(struct ul_program_builder *builder) UL_MUST_CHECK;

/* blocks.c */

/* Adds the root region with the steps of the whole graph: with several roots, an entry for each. */
enum ul_status ul_block_add_roots(struct ul_program_builder *builder) UL_MUST_CHECK;

#endif
