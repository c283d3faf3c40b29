/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny: what the compiler prints for a model, written by hand as a test and as a pattern.
 *
 * Inputs:  x f32[2,8], pick i64[3]        Outputs: y f32[2,3], label i64[2]
 *     h = relu(x * W + b);  y = h[:, pick];  label = argmax(h)
 */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include "ul_model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TINY_ARENA_BYTES 352
#define TINY_ARENA_ALIGN 64
#define TINY_INPUT_COUNT 2
#define TINY_OUTPUT_COUNT 2

/* For callers that fill inputs and take outputs in place: NULL buffers, these offsets. */
#define TINY_INPUT_X_OFFSET 192
#define TINY_INPUT_PICK_OFFSET 256
#define TINY_OUTPUT_Y_OFFSET 192
#define TINY_OUTPUT_LABEL_OFFSET 256

extern const struct ul_model tiny_model;

/* Checks the arena and loads the weights into it. Returns an enum ul_result; failure may be NULL.
 */
int tiny_init(void *arena, size_t bytes, const struct ul_weights_source *weights,
              struct ul_failure *failure);

/* One run. Buffers follow the order of the inputs and outputs above. Returns an enum ul_result. */
int tiny_run(void *arena, const void *const *inputs, void *const *outputs);

/* The same, with the details of a failure. */
int tiny_run_with(void *arena, const void *const *inputs, void *const *outputs,
                  struct ul_failure *failure);

#ifdef __cplusplus
}
#endif

#endif
