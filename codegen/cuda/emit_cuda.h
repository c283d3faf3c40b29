/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that emit a program for a device. */
#ifndef UL_CODEGEN_CUDA_EMIT_CUDA_H
#define UL_CODEGEN_CUDA_EMIT_CUDA_H

#include "codegen/emit/emit_internal.h"

/* The devices for which a Makefile makes code by default: those that every toolkit knows, newer
 * ones where this nvcc knows them, and PTX for later ones. */
#define UL_EMIT_CUDA_ARCH                                                                          \
    "ifndef CUDA_ARCH\nNEWER := $(filter sm_100 sm_120,$(shell $(NVCC) --list-gpu-code 2>&1))\n"   \
    "CUDA_ARCH := sm_80 sm_89 sm_90 $(NEWER) compute_90\nendif\n"

/* Libraries with which a library links, and those before it where g++ or cc links an archive, which
 * nvcc adds itself; the caller gives -L of the toolkit. */
#define UL_EMIT_CUDA_LIBRARIES " -ldl -lm"
#define UL_EMIT_CUDA_RUNTIME " -lcudart_static -lrt -lpthread -lstdc++"

/* emit_cuda_calls.c */

void ul_emit_cuda_put_libraries(struct ul_emitter *emitter);
/* The library enqueues it; otherwise the step's own kernel runs. */
void ul_emit_cuda_put_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                           uint32_t position, uint32_t indent);
/* Begins the call of a kernel that runs only where the call before it did not form its sums. */
void ul_emit_cuda_put_spared(struct ul_emitter *emitter, const struct ul_program_step *step,
                             uint32_t position, uint32_t indent);
/* Prints our kernels that are timed against calls when a program is tuned, a function for each such
 * call; returns the name of their table. Buffers of the caller do not exist then. */
const char *ul_emit_cuda_put_own(struct ul_emitter *emitter);

#endif
