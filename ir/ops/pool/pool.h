/* SPDX-License-Identifier: Apache-2.0 */
/* What pooling and its gradients share. */
#ifndef UL_OPS_POOL_H
#define UL_OPS_POOL_H

#include "ir/geometry.h"
#include "ir/ops/hooks.h"

/* pool.c: the taps t of window `o` with o * stride - pad + t * dilation in [low, high). */
void ul_pool_taps(struct ul_kernel *kernel, const struct ul_pool *pool, uint32_t d, ul_kx o,
                  int64_t low, int64_t high, ul_kx *first, ul_kx *count);

/* How many channels go through the taps together: more of them spare loops, and four vectors of
 * them still stay in registers. A divisor of the channels where there is one. */
int64_t ul_pool_channels_at_once(int64_t channels);

#endif
