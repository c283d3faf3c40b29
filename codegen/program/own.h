/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that are parts of the runtime: a program with calls of them alone links nothing. */
#ifndef UL_CODEGEN_PROGRAM_OWN_H
#define UL_CODEGEN_PROGRAM_OWN_H

#include "codegen/program/calls_internal.h"

/* The context of each. */
struct ul_own {
    struct ul_arena *arena;
    uint32_t thread_count;
};

/* libraries.c: of struct ul_target_library. */
enum ul_status ul_own_open(struct ul_arena *arena, const struct ul_program_options *options,
                           struct ul_target_library *library, struct ul_diag *diag) UL_MUST_CHECK;
bool ul_own_reopen(void *own, const struct ul_program_options *options);

/* Products with weights of a few bits (library_nbits.c), and convolutions of 3x3 by Winograd's
 * method (winograd.c). */
extern const struct ul_target_library ul_nbits_library;
extern const struct ul_target_library ul_winograd_library;

#endif
