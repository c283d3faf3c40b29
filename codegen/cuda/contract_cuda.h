/* SPDX-License-Identifier: Apache-2.0 */
/* Tiled contractions for target cuda: the CUDA text of one UL_KS_CONTRACT statement.
 *
 * A grid of blocks runs a contraction at the top of a kernel, or under loops of independent
 * iterations only (the batch): each block forms tiles of sums from tiles of the operands in shared
 * memory. Inside other statements, the team of threads that runs those runs it too: each thread
 * forms some sums. The choice depends on shapes only, never on addresses, so a sum has the same
 * order of additions in every program that contains the kernel; two threads form a sum only in a
 * fixed tree. Invariants and names of the text are those of contract.h: variables v<id>, buffers
 * b<id>, own names begin with "t_"; nothing outside an operand's bounds is read; the epilogue runs
 * exactly once for each (m, n). The program includes runtime/cuda/ul_contract.cuh. */
#ifndef UL_CONTRACT_CUDA_H
#define UL_CONTRACT_CUDA_H

#include "codegen/device/contract_device.h"

/* The parts that the caller prints, as in struct ul_contract_printer. */
struct ul_contract_cuda_printer {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    const struct ul_profile_device *device;
    void *context;
    void (*put_expression)(void *context, ul_kx expression);
    void (*put_statements)(void *context, ul_ks first, uint32_t indent);
    void (*put_load)(void *context, uint32_t buffer, const char *index);
    /* Whether the epilogue takes `width` sums at once that are neighbours along a variable of that
     * many rounds. And prints it for the sums from t_sums.at[0] on where buffers are aligned: it
     * returns then. */
    bool (*has_packs)(void *context, const struct ul_contraction *contraction, uint32_t along,
                      int64_t rounds, int64_t width);
    void (*put_packs)(void *context, const struct ul_contraction *contraction, uint32_t along,
                      int64_t rounds, int64_t width, uint32_t indent);
    int64_t team;       /* threads of put_team's team, which are whole warps that run alike; 0: any
                           number, each on its own */
    const char *shared; /* an array of bytes that contractions of a launch use in turn; NULL: each
                           declares its own */
    const char *held;   /* where put_team's warp keeps the first operand, which is read while
                           `t_first`; or NULL */
};

/* Like ul_contract_orders: flags of enum ul_contract_order, and others of this target's own.
 * Kernels with the same single flag other than UL_CONTRACT_LOOSE form the same sums with the same
 * bits. */
uint32_t ul_contract_cuda_orders(const struct ul_kernel *kernel,
                                 const struct ul_profile_device *device);

/* How one at the top, or attention, is launched. */
void ul_contract_cuda_grid(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                           const struct ul_profile_device *device, struct ul_contract_grid *grid);
/* Declares the names of shared memory, and the memory itself (UL_SHARED) where nothing else does;
 * once at the start of the body. */
void ul_contract_cuda_put_shared(const struct ul_contract_cuda_printer *printer,
                                 const struct ul_contraction *contraction, uint32_t indent);
/* Prints tile `t_tile` (an int64_t variable of the text) for all threads of the block; threadIdx.x
 * is the thread. Barriers inside are __syncthreads(), which all threads of the block reach. It
 * opens its own block, and may be repeated in a loop: shared memory may be written again at its
 * end. */
void ul_contract_cuda_put_tile(const struct ul_contract_cuda_printer *printer,
                               const struct ul_contraction *contraction, uint32_t indent);
/* Prints all of it for a team: thread `t_thread` of `t_threads`. There is no barrier of the team
 * inside: operands were synchronised before, and the caller synchronises what the epilogue
 * wrote. */
void ul_contract_cuda_put_team(const struct ul_contract_cuda_printer *printer,
                               const struct ul_contraction *contraction, uint32_t indent);

#endif
