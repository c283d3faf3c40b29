/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that emit a program for the host. */
#ifndef UL_CODEGEN_C_EMIT_C_H
#define UL_CODEGEN_C_EMIT_C_H

#include "codegen/emit/emit_internal.h"

/* emit_c_calls.c */

/* The library that the host sets up, in the runtime's form, where there is one. */
void ul_emit_c_put_libraries(struct ul_emitter *emitter);
void ul_emit_c_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                        uint32_t position, uint32_t indent);

#endif
