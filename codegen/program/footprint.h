/* What a program takes beside its buffer. */
#ifndef UL_CODEGEN_PROGRAM_FOOTPRINT_H
#define UL_CODEGEN_PROGRAM_FOOTPRINT_H

#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* Bytes of a process, at most, on a machine like that of the program's profile; code and runtime
 * are 0 where the process is a caller's (is_whole), and stacks are what the program's calls take of
 * it.
 */
struct ul_footprint {
    uint64_t library_bytes; /* that the target's library keeps for its calls */
    uint64_t code_bytes;    /* pages of the program and of libraries, as far as they are resident */
    uint64_t stack_bytes;   /* of all threads */
    uint64_t library_stack_bytes; /* of those, what nobody bounds: of the library and of OpenMP */
    uint64_t runtime_bytes; /* heap, relocated tables, page tables but for those of the buffer */
    uint64_t start_bytes;   /* all of the process while its library is set up */
    uint64_t unread_bytes;  /* of tables in the buffer: rows that no run looks up */
    bool is_whole;          /* the program is a process of its own */
    bool is_known;          /* false: of a device */
};

/* The same program, library and profile give the same bytes. */
void ul_footprint_count(const struct ul_program *program, bool is_whole,
                        struct ul_footprint *footprint);
/* Code and constant tables of the program alone, without runtime and libraries: what read-only
 * memory holds beside weights, at most. */
uint64_t ul_footprint_flash_bytes(const struct ul_program *program);
/* As a budget sees it. */
struct ul_plan_beside ul_footprint_beside(const struct ul_footprint *footprint);

#endif
