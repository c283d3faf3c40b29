/* SPDX-License-Identifier: Apache-2.0 */
/* What the operators with weights of a few bits share: expressions that unpack them. */
#ifndef UL_OPS_NBITS_H
#define UL_OPS_NBITS_H

#include "ir/ops/quant/nbits.def"
#include "ir/ops/require.h"

/* nbits.c */

/* Scales are f32, f16 or bf16; constant ones are finite. */
enum ul_status ul_nbits_check_scales(const struct ul_infer *infer, uint32_t input) UL_MUST_CHECK;
/* Weight number `part` of those in a byte, `bits` each: a u32. */
ul_kx ul_nbits_part(struct ul_kernel *kernel, ul_kx byte, ul_kx part, int64_t bits);
/* A float of 4 bits from its code, a u32. */
ul_kx ul_nbits_e2m1(struct ul_kernel *kernel, ul_kx code);

#endif
