/* SPDX-License-Identifier: Apache-2.0 */
/* What pooling and its gradients share. */
#ifndef UL_OPS_POOL_H
#define UL_OPS_POOL_H

#include "ir/geometry.h"
#include "ir/ops/pool/pool.def"

/* How many channels go through the taps together: more of them spare loops, and four vectors of
 * them still stay in registers. A divisor of the channels where there is one. */
int64_t ul_pool_channels_at_once(int64_t channels);

#endif
