/* SPDX-License-Identifier: Apache-2.0 */
/* Programs for a range of sizes. */
#ifndef UL_COMPILE_SIZES_SIZES_H
#define UL_COMPILE_SIZES_SIZES_H

#include "codegen/program/sized.h"
#include "compile/options/size_list.h"
#include "compile/sizes/kernel_form.h"
#include "compile/sizes/walk.h"

struct ul_compile;
struct ul_fit; /* fit.h */

/* A step of the program, or an alternative of it; and its mark in the walk. */
struct ul_size_slot {
    uint32_t step, alternative;
    uint32_t mark;
};

/* The compile of the model with some sizes: what the program for the range takes from it. */
struct ul_size_instance {
    const int64_t *point;              /* its sizes */
    const int64_t *numbers;            /* of its walk, where that of the largest sizes has them */
    struct ul_kernel_numbers *kernels; /* by slot; what no kernel runs has form 0 */
    const uint64_t *bytes; /* by value of the problem; then by slot, the bytes of its scratch */
};

/* Instances of a range, and what they have in common. */
struct ul_size_instances {
    struct ul_arena *arena;
    struct ul_compile *compile; /* with the largest sizes */
    struct ul_compile *asked;   /* whose options have the ranges; often the same */
    uint32_t size_count;
    struct ul_program_size *sizes;
    struct ul_size_instance *items; /* all points; the last size's values run fastest */
    uint32_t count;
    struct ul_kernel_forms forms;
    struct ul_size_mark *marks; /* with the largest sizes, which are the last instance */
    uint32_t mark_count, number_count;
    struct ul_size_slot *slots;
    uint32_t slot_count;
    uint32_t *alternative_counts; /* by step: those that all instances have */
    bool differs;                 /* the last instance has other steps */
};

/* pieces.c: with ranges of sizes, finds the pieces of these by compiling the model with some of
 * them: the same model and options give the same pieces. UL_UNSUPPORTED: there would be too many.
 */
enum ul_status ul_compile_find_pieces(struct ul_compile *compile, const char *path) UL_MUST_CHECK;

/* instances.c: a compile like one whose options have ranges of sizes, at a point of these. */
void ul_size_instance_init(struct ul_compile *asked, const int64_t *point,
                           struct ul_compile *other);
/* Takes the largest sizes, with which the compile is built. */
enum ul_status ul_size_instances_begin(struct ul_size_instances *instances) UL_MUST_CHECK;
/* Compiles the model at the instance's point; where it has other steps, `differs` says so. */
enum ul_status ul_size_instance_compile(struct ul_size_instances *instances,
                                        struct ul_size_instance *instance) UL_MUST_CHECK;
/* Lists all points of the range. */
void ul_size_list_points(struct ul_size_instances *instances);
/* Compiles the model with all sizes. The problem of the compile becomes one whose
 * plans hold for every size: it has the most scratch, and takes bytes over only where all do.
 * UL_UNSUPPORTED: a size has other steps. */
enum ul_status ul_size_instances_find(struct ul_size_instances *instances) UL_MUST_CHECK;

/* inputs.c: the size that each dimension of each input is at all instances, or UL_NONE. */
const uint32_t *ul_size_find_inputs(struct ul_arena *arena, const struct ul_graph *graph,
                                    const struct ul_program_sized *sized,
                                    const struct ul_size_instances *instances);

/* unify.c: the program for the range, as far as the compile's plan runs it. */
enum ul_status ul_size_unify(struct ul_size_instances *instances,
                             struct ul_program **program) UL_MUST_CHECK;

/* layout.c: where options want offsets that follow from sizes, the layout of the compile's plan;
 * `fits` have the instances of each root's piece. */
enum ul_status ul_size_lay_out(struct ul_size_instances *instances, struct ul_fit *const *fits,
                               struct ul_program_layout **out) UL_MUST_CHECK;

/* sizes.c: where options have ranges of sizes, before the compile's program is planned: finds
 * instances, which are NULL where there are no ranges. */
enum ul_status ul_compile_find_sizes(struct ul_compile *compile,
                                     struct ul_size_instances **instances) UL_MUST_CHECK;
/* After that: replaces the program by one for all sizes. */
enum ul_status ul_compile_unify_sizes(struct ul_compile *compile,
                                      struct ul_size_instances *instances) UL_MUST_CHECK;

#endif
