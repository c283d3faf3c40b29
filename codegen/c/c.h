/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and programs as C. */
#ifndef UL_CODEGEN_C_C_H
#define UL_CODEGEN_C_C_H

#include "codegen/emit/emit.h"
#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* print_c.c */

/* The definition of a kernel as C, from its parameter list on; sets the scratch bytes. The
 * parameters are the kernel's input and output buffers in order (b<id>), then `scratch` where it
 * has any, then `run`. `threads` NULL: there is one thread. */
enum ul_status ul_kernel_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                                 const struct ul_threads *threads, uint64_t *scratch_bytes,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* schedule_c.c */

/* Prints the kernel's schedule, in an indented line each: the loops that threads share, the loops
 * that fill vectors, and the order of sums. */
void ul_schedule_print_c(struct ul_text *text, const struct ul_kernel *kernel,
                         uint32_t thread_count);

/* stack_c.c: the most bytes of stack that the kernel's function takes, with what it calls. */
uint64_t ul_kernel_stack_c(const struct ul_kernel *kernel);

/* emit_c.c */

/* Writes model.c, model.h, weights.bin, Makefile and the runtime's files into `directory`. */
enum ul_status ul_emit_c(struct ul_arena *arena, const struct ul_program *program,
                         const struct ul_plan *plan, const struct ul_emit_options *options,
                         const char *directory, struct ul_diag *diag) UL_MUST_CHECK;

#endif
