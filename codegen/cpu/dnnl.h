/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN as the library of target cpu. */
#ifndef UL_CODEGEN_CPU_DNNL_H
#define UL_CODEGEN_CPU_DNNL_H

#include "codegen/program/library.h"
#include "codegen/program/program.h"

/* dnnl.c */

struct ul_dnnl;

/* Opens the library for one machine: an instruction set by oneDNN's name (NULL: this machine's) and
 * a number of threads, both of which hold for the whole process. UL_UNSUPPORTED: this machine lacks
 * it. */
enum ul_status ul_dnnl_open(struct ul_arena *arena, const char *isa, uint32_t thread_count,
                            struct ul_dnnl **dnnl, struct ul_diag *diag) UL_MUST_CHECK;
void ul_dnnl_close(struct ul_dnnl *dnnl);
/* Ends threads that trials have left waiting: a forked process would wait for them for ever. */
void ul_dnnl_rest(void);
/* The name of an instruction set, in the order of what they can do; NULL after the last. */
const char *ul_dnnl_isa_name(uint32_t index);
/* UL_USAGE where there is no instruction set of that name. */
enum ul_status ul_dnnl_check_isa(struct ul_arena *arena, const char *name,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* dnnl_library.c */
extern const struct ul_target_library ul_dnnl_library;

#endif
