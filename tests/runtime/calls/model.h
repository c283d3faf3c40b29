/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: a model whose steps are calls of oneDNN, written by hand as the compiler prints it.
 *
 * Inputs:  x f32[1,16,8,8]        Outputs: y f32[1,32,1,1]
 *     y = GlobalAveragePool(AveragePool(relu(Conv(x, W) + b)))
 */
#ifndef CALLS_MODEL_H
#define CALLS_MODEL_H

#include "ul_model.h"

#define MODEL_ARENA_BYTES UINT64_C(103744)
#define MODEL_ARENA_ALIGN 64
#define MODEL_INPUT_COUNT 1
#define MODEL_OUTPUT_COUNT 1

extern const struct ul_model model_model;

int model_init(void *arena, size_t bytes, const struct ul_weights_source *weights,
               struct ul_failure *failure);
int model_run(void *arena, const void *const *inputs, void *const *outputs,
              struct ul_failure *failure);
void model_done(void *arena);

#endif
