/* SPDX-License-Identifier: Apache-2.0 */
/* Attention for target cuda, and the passes of its gradient: the CUDA text of a struct ul_attend,
 * by templates of runtime/cuda/ul_attention.cuh and ul_attention_gradient.cuh. A block of threads
 * has a block of rows of one head, queries or keys; no score goes to memory. Names and invariants
 * of the text are those of contract_cuda.h; the program includes the headers. */
#ifndef UL_ATTEND_CUDA_H
#define UL_ATTEND_CUDA_H

#include "codegen/cuda/contract_cuda.h"

/* Returns the kernel, or a copy in which attention that has such a form replaces the body of the
 * loop that is marked with it: as a contraction with an attend, which contract_cuda.h prints. */
const struct ul_kernel *ul_attend_cuda_rewrite(const struct ul_kernel *kernel,
                                               const struct ul_profile_device *device,
                                               struct ul_arena *arena);
/* Whether there is such a form. Heads must have up to 256 elements, computed in f32. */
bool ul_attend_cuda_can(const struct ul_kernel *kernel, const struct ul_attend *attend);
/* The number of processors among which work is divided: whole groups of 32, so that an H100's 132
 * share heads and parts of keys, mostly powers of two, as evenly as 128 do. */
int64_t ul_attend_cuda_processors(const struct ul_profile_device *device);
/* Like ul_contract_cuda_grid: tiles are blocks of queries of one head. */
void ul_attend_cuda_grid(const struct ul_kernel *kernel, const struct ul_attend *attend,
                         const struct ul_profile_device *device, struct ul_contract_grid *grid);
/* Declares shared memory, once at the start of the kernel's body. */
void ul_attend_cuda_put_shared(const struct ul_contract_cuda_printer *printer,
                               const struct ul_attend *attend, uint32_t indent);
/* Prints tile `t_tile`, like ul_contract_cuda_put_tile. */
void ul_attend_cuda_put_tile(const struct ul_contract_cuda_printer *printer,
                             const struct ul_attend *attend, uint32_t indent);

#endif
