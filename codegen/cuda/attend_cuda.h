/* SPDX-License-Identifier: Apache-2.0 */
/* Attention for target cuda, and the passes of its gradient: the CUDA text of a struct ul_attend,
 * by templates of runtime/cuda/ul_attention.cuh and ul_attention_gradient.cuh. A block of threads
 * has a block of rows of one head, queries or keys; no score goes to memory. Names and invariants
 * in the text as in contract_cuda.h; the program includes the headers.
 */
#ifndef UL_ATTEND_CUDA_H
#define UL_ATTEND_CUDA_H

#include "codegen/cuda/contract_cuda.h"

/* The kernel, or a copy in which attention that has such a form stands in place of the body of the
 * loop that is marked with it: as a contraction with an attend, which contract_cuda.h prints. */
const struct ul_kernel *ul_attend_cuda_rewrite(const struct ul_kernel *kernel,
                                               const struct ul_profile_device *device,
                                               struct ul_arena *arena);
/* Is there such a form? Heads are to be of up to 256 elements, computed in f32. */
bool ul_attend_cuda_can(const struct ul_kernel *kernel, const struct ul_attend *attend);
/* The processors that work is shared out to: whole groups of 32, so that an H100's 132 share heads
 * and parts of keys, mostly powers of two, as evenly as 128 do. */
int64_t ul_attend_cuda_processors(const struct ul_profile_device *device);
/* As ul_contract_cuda_grid: tiles are blocks of queries of one head. */
void ul_attend_cuda_grid(const struct ul_kernel *kernel, const struct ul_attend *attend,
                         const struct ul_profile_device *device, struct ul_contract_grid *grid);
/* The declaration of shared memory, once at the start of the kernel's body. */
void ul_attend_cuda_put_shared(const struct ul_contract_cuda_printer *printer,
                               const struct ul_attend *attend, uint32_t indent);
/* Tile `t_tile`, as ul_contract_cuda_put_tile. */
void ul_attend_cuda_put_tile(const struct ul_contract_cuda_printer *printer,
                             const struct ul_attend *attend, uint32_t indent);

#endif
