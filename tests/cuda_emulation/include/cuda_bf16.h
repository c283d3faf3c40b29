/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16 of device code, for tests/cuda_emulation (ul_emulate_float16.h). */
#ifndef CUDA_BF16_H
#define CUDA_BF16_H

#include "ul_emulate_float16.h"

UL_EMULATE_FLOAT16(__nv_bfloat16, bfloat16, ul_f32_to_bf16, ul_bf16_to_f32)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#endif
