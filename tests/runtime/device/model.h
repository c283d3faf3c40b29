/* SPDX-License-Identifier: Apache-2.0 */
/* The model of model.c and kernels.cu as a library. */
#ifndef DEVICE_MODEL_H
#define DEVICE_MODEL_H

#include "ul_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BIG_COUNT 2400000 /* elements: more than both halves of what weights pass through */
#define BIG_BYTES (4 * BIG_COUNT)

enum {
    AT_W = 0,
    AT_B = 16,
    AT_BYTES = 33,   /* 13 of 0xab */
    AT_WORDS = 50,   /* 7 of 0x1234 */
    AT_DOUBLES = 64, /* 3 of 0x0102030405060708 */
    AT_X = 256,      /* at the end y */
    AT_PICK = 272,
    AT_FLAG = 288,
    AT_H = 320,
    AT_ROWS = 384,
    AT_COUNTER = 448,
    AT_CHECK = 456,
    AT_STATE = 464, /* 40 bytes, and one for region 0 */
    AT_BIG = 512,
    ARENA_BYTES = AT_BIG + BIG_BYTES,
    ARENA_ALIGN = 256
};

extern const struct ul_model model_model;

int model_open(struct ul_context **context, void *arena, size_t bytes, void *stream,
               const struct ul_weights_source *weights, struct ul_failure *failure);
int model_run(struct ul_context *context, const void *const *inputs, void *const *outputs,
              struct ul_failure *failure);
void model_close(struct ul_context *context);

#ifdef __cplusplus
}
#endif

#endif
