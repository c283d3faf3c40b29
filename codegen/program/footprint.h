/* SPDX-License-Identifier: Apache-2.0 */
/* What a program takes beside its buffer. */
#ifndef UL_CODEGEN_PROGRAM_FOOTPRINT_H
#define UL_CODEGEN_PROGRAM_FOOTPRINT_H

#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* Bytes of a process, at most, on a machine like that of the program's profile; what they are while
 * it takes the most. Code and runtime are 0 where the process is a caller's (is_whole), and stacks
 * are what the program's calls take of it. */
struct ul_footprint {
    uint64_t total_bytes;   /* of these: */
    uint64_t buffer_bytes;  /* resident ones: not rows of tables that no run looks up */
    uint64_t library_bytes; /* that the target's library keeps for its calls */
    uint64_t code_bytes;    /* pages of the program and of libraries, as far as they are resident */
    uint64_t stack_bytes;   /* of all threads */
    uint64_t library_stack_bytes; /* of those, what nobody bounds: of the library and of OpenMP */
    uint64_t runtime_bytes;       /* heap, relocated tables, page tables */
    /* What the library is set up with, to keep within total_bytes, as struct ul_library has them;
     * 0 where there is none. */
    uint64_t start_bytes, making_bytes;
    bool starts_larger;                /* the most is before the first step: the library's set-up */
    bool is_whole;                     /* the program is a process of its own */
    bool is_of_device;                 /* bytes of a device's memory: of libraries' handles and, as
                                          runtime, of its context; 0 where the profile has none */
    bool lacks_context, lacks_library; /* of these, what the program has and nobody said */
};

/* Fills in the sizes of the problem's values that are beside, for a process of the program's own
 * (`is_whole`) or a caller's: before plans for a budget are made, since nothing is said before. */
void ul_footprint_count_beside(const struct ul_program *program, bool is_whole);
/* What a budget bounds beside the arena, of any plan of the program. */
struct ul_plan_beside ul_footprint_beside(const struct ul_program *program, bool is_whole);
/* What a plan takes. The same program, library and profile give the same bytes. */
void ul_footprint_count(const struct ul_program *program, const struct ul_plan *plan, bool is_whole,
                        struct ul_footprint *footprint);
/* Code and constant tables of the program alone, without runtime and libraries: what read-only
 * memory holds beside weights, at most. */
uint64_t ul_footprint_flash_bytes(struct ul_arena *scratch, const struct ul_program *program,
                                  const struct ul_plan *plan);

#endif
