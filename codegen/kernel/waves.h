/* SPDX-License-Identifier: Apache-2.0 */
/* How long blocks of threads take on the multiprocessors of a device (waves.c). */
#ifndef UL_CODEGEN_KERNEL_WAVES_H
#define UL_CODEGEN_KERNEL_WAVES_H

#include "codegen/kernel/profile.h"

/* How many times longer than on a full device: a step's operations, and its bytes. */
struct ul_waves {
    double work, memory;
};
struct ul_waves ul_waves_of_blocks(const struct ul_profile *profile, uint64_t block_count,
                                   double longest);
/* The fraction of the peak for operations of this kind that a tile of a product reaches, 0 to 1; no
 * tile: 1. */
double ul_waves_share(const struct ul_profile *profile, enum ul_work_kind kind,
                      const struct ul_work_tile *tile);
/* Nanoseconds of a product that a library cuts into the best tiles, and whose bytes take `moved_ns`
 * where the device is full. */
double ul_waves_product_ns(const struct ul_profile *profile, const struct ul_work_product *product,
                           double moved_ns);

#endif
