/* What pooling and its gradients share. */
#ifndef UL_OPS_POOL_H
#define UL_OPS_POOL_H

#include "ir/geometry.h"
#include "ir/ops/hooks.h"

/* pool.c: the taps t of window `o` with o * stride - pad + t * dilation in [low, high). */
void ul_pool_taps(struct ul_kernel *kernel, const struct ul_pool *pool, uint32_t d, ul_kx o,
                  int64_t low, int64_t high, ul_kx *first, ul_kx *count);

#endif
