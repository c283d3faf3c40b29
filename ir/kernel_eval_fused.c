/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that printed kernels call, as a processor with fused multiply-add computes them. */
#include <math.h>

#define UL_ADD_PRODUCT(a, b, c) fmaf(a, b, c)

#include "ir/kernel_eval.h"
#include "runtime/lib/ul_scalar.h"

const struct ul_machine_functions ul_functions_fused = {
    .exp = ul_exp_f32, .log = ul_log_f32, .tanh = ul_tanh_f32, .erf = ul_erf_f32};
