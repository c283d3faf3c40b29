/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer: what the compiler prints for a model that trains, written by hand as a test and as a
 * pattern: a softmax classifier of 8x8 images with momentum.
 *
 * Inputs:  images [16,64], labels i64[16], ullage.step f64[8]
 * Outputs: loss, correct i64, and what overwrites W [64,10], b [10] and their momentum
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "ul_model.h"

#ifndef TRAINER_REAL
#define TRAINER_REAL float
#define TRAINER_TYPE UL_TYPE_F32
#endif
#ifndef TRAINER_CLASSES
#define TRAINER_CLASSES 10
#endif
#ifndef TRAINER_BIAS
#define TRAINER_BIAS "b"
#endif
#ifndef TRAINER_MICRO
#define TRAINER_MICRO 1
#endif

enum {
    TRAINER_SAMPLES = 16,
    TRAINER_PIXELS = 64,
    TRAINER_REAL_BYTES = sizeof(TRAINER_REAL),
    TRAINER_W_BYTES = TRAINER_PIXELS * TRAINER_CLASSES * TRAINER_REAL_BYTES,
    TRAINER_B_BYTES = (TRAINER_CLASSES * TRAINER_REAL_BYTES + 63) / 64 * 64,
    TRAINER_W = 0,
    TRAINER_B = TRAINER_W + TRAINER_W_BYTES,
    TRAINER_VW = TRAINER_B + TRAINER_B_BYTES,
    TRAINER_VB = TRAINER_VW + TRAINER_W_BYTES,
    TRAINER_IMAGES = TRAINER_VB + TRAINER_B_BYTES,
    TRAINER_LABELS = TRAINER_IMAGES + TRAINER_SAMPLES * TRAINER_PIXELS * TRAINER_REAL_BYTES,
    TRAINER_STEP = TRAINER_LABELS + TRAINER_SAMPLES * 8,
    TRAINER_LOSS = TRAINER_STEP + 64,
    TRAINER_CORRECT = TRAINER_LOSS + 64,
    TRAINER_SUMS = TRAINER_CORRECT + 64,
    TRAINER_LOGITS = TRAINER_SUMS + 64,
    TRAINER_GW = TRAINER_LOGITS + TRAINER_SAMPLES * TRAINER_CLASSES * TRAINER_REAL_BYTES,
    TRAINER_GB = TRAINER_GW + TRAINER_W_BYTES,
    TRAINER_ARENA_BYTES = TRAINER_GB + TRAINER_B_BYTES,
    TRAINER_ARENA_ALIGN = 64
};

extern const struct ul_model trainer_model;

#endif
