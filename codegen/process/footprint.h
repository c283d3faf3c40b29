/* SPDX-License-Identifier: Apache-2.0 */
/* What a program takes besides its buffer. */
#ifndef UL_CODEGEN_PROGRAM_FOOTPRINT_H
#define UL_CODEGEN_PROGRAM_FOOTPRINT_H

#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* The most bytes of a process on a machine like that of the program's profile, and its parts at
 * that time. Code and runtime are 0 where the process is a caller's (not is_whole), and stacks are
 * what the program's calls take of it. */
struct ul_footprint {
    uint64_t total_bytes;         /* the sum of these: */
    uint64_t buffer_bytes;        /* resident ones: without rows of tables that no run looks up */
    uint64_t library_bytes;       /* that the target's library keeps for its calls */
    uint64_t code_bytes;          /* resident pages of the program and of libraries */
    uint64_t stack_bytes;         /* of all threads */
    uint64_t library_stack_bytes; /* the part that nothing bounds: of the library and of OpenMP */
    uint64_t runtime_bytes;       /* heap, relocated tables, page tables */
    /* The library's settings for staying within total_bytes, as in struct ul_library; 0 where there
     * is none. */
    uint64_t start_bytes, making_bytes;
    bool starts_larger; /* the most is taken before the first step: in the library's set-up */
    bool is_whole;      /* the program is a process of its own */
    bool is_of_device;  /* bytes of a device's memory: of libraries' handles and, as runtime, of its
                           context; 0 where the profile has none */
    bool lacks_context,
        lacks_library; /* parts that the program has, but whose bytes are not known */
};

/* Sets the sizes of the problem's values that are outside the buffer, for the program's own process
 * (`is_whole`) or a caller's. Call it before planning for a budget: the sizes are not set
 * before. */
void ul_footprint_count_overhead(const struct ul_program *program, bool is_whole);
/* What a budget bounds besides the arena, for any plan of the program. */
struct ul_process_overhead ul_footprint_overhead(const struct ul_program *program, bool is_whole);
/* What a plan takes. The same program, library and profile give the same bytes. */
void ul_footprint_count(const struct ul_program *program, const struct ul_plan *plan, bool is_whole,
                        struct ul_footprint *footprint);
/* Code and constant tables of the program alone, without runtime and libraries: the most that
 * read-only memory holds besides weights. */
uint64_t ul_footprint_flash_bytes(struct ul_arena *scratch, const struct ul_program *program,
                                  const struct ul_plan *plan);

#endif
