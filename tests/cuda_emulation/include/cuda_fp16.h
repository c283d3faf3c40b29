/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit floats of device code, for tests/cuda_emulation (ul_emulate_float16.h). */
#ifndef CUDA_FP16_H
#define CUDA_FP16_H

#include "ul_emulate_float16.h"

UL_EMULATE_FLOAT16(__half, half, ul_f32_to_f16, ul_f16_to_f32)
typedef __half half;
typedef __half2 half2;

#endif
