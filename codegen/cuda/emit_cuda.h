/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that emit a program for a device share. */
#ifndef UL_CODEGEN_CUDA_EMIT_CUDA_H
#define UL_CODEGEN_CUDA_EMIT_CUDA_H

#include "codegen/emit/emit_internal.h"

/* What a Makefile makes code for, unless it is told: devices that every toolkit knows, newer ones
 * where this nvcc does, and PTX for those after them. */
#define UL_EMIT_CUDA_ARCH                                                                          \
    "ifndef CUDA_ARCH\nNEWER := $(filter sm_100 sm_120,$(shell $(NVCC) --list-gpu-code 2>&1))\n"   \
    "CUDA_ARCH := sm_80 sm_89 sm_90 $(NEWER) compute_90\nendif\n"

/* What a library links with, and what stands before it where g++ or cc links an archive, which nvcc
 * adds itself; -L of the toolkit is the caller's. */
#define UL_EMIT_CUDA_LIBRARIES " -ldl -lm"
#define UL_EMIT_CUDA_RUNTIME " -lcudart_static -lrt -lpthread -lstdc++"

/* emit_cuda_calls.c */

void ul_emit_cuda_put_libraries(struct ul_emitter *emitter);
/* The library enqueues it, or else the step's own kernel runs. */
void ul_emit_cuda_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                           uint32_t position, uint32_t indent);
/* Begins the call of a kernel that runs only where the call before it did not form its sums. */
void ul_emit_cuda_put_spared(struct ul_emitter *emitter, const struct ul_program_step *step,
                             uint32_t position, uint32_t indent);
/* Puts kernels of ours that are timed beside calls when a program is tuned, a function for each
 * such call, and gives the name of the table of these. Buffers of the caller's are not there then.
 */
const char *ul_emit_cuda_put_own(struct ul_emitter *emitter);

#endif
