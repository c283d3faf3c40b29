/* What the files that emit a program for a device share. */
#ifndef UL_CODEGEN_CUDA_EMIT_CUDA_H
#define UL_CODEGEN_CUDA_EMIT_CUDA_H

#include "codegen/emit/emit_internal.h"

/* emit_cuda_calls.c */

/* Some call is a convolution of cuDNN's, or a product of cuBLASLt's. */
bool ul_emit_cuda_uses_library(const struct ul_program *program, bool convolutions);
void ul_emit_cuda_put_libraries(struct ul_emitter *emitter);
/* The library enqueues it, or else the step's own kernel runs. */
void ul_emit_cuda_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                           uint32_t position, uint32_t indent);

#endif
