/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that emit a program for the host share. */
#ifndef UL_CODEGEN_C_EMIT_C_H
#define UL_CODEGEN_C_EMIT_C_H

#include "codegen/emit/emit_internal.h"

/* emit_c_calls.c */

/* What the host hands to oneDNN. */
void ul_emit_c_put_library(struct ul_emitter *emitter);
void ul_emit_c_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                        uint32_t position, uint32_t indent);

#endif
