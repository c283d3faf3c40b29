/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer: what the compiler prints for a model that trains, written by hand. Gradients of weights
 * are values of their own here; with TRAINER_MICRO several runs add to them, and to the sum and
 * the weight of the loss, and the last one applies them. Images are NaN or infinite where the data
 * are.
 */
#include "model.h"

#include "ul_kernel.h"
#include "ul_run.h"
#include "ul_train.h"
#include "ul_weights.h"

#include <math.h>

typedef TRAINER_REAL real;

#ifndef TRAINER_SCHEDULES
#define TRAINER_SCHEDULES                                                                          \
    {                                                                                              \
        {                                                                                          \
            UL_RT_RATE_WARMUP, 4, 0.0                                                              \
        }                                                                                          \
    }
#endif

/* logits[16,C] = images[16,64] * w[64,C] + b[C] */
static void forward(const real *images, const real *w, const real *b, real *logits)
{
    for (int i = 0; i < TRAINER_SAMPLES; i++)
        for (int c = 0; c < TRAINER_CLASSES; c++) {
            real sum = b[c];
            for (int k = 0; k < TRAINER_PIXELS; k++)
                sum += images[i * TRAINER_PIXELS + k] * w[k * TRAINER_CLASSES + c];
            logits[i * TRAINER_CLASSES + c] = sum;
        }
}

/* The mean over labels of the step so far that are not -1; in place of the logits the gradient of
   their sum. */
static void cross_entropy(const int64_t *labels, const double *step, real *logits, double *sums,
                          real *loss, int64_t *correct)
{
    *correct = 0;
    if (step[7] == 0.0)
        sums[0] = sums[1] = 0.0;
    for (int i = 0; i < TRAINER_SAMPLES; i++) {
        real *row = logits + i * TRAINER_CLASSES;
        double max = (double)row[0], total = 0.0, scale = labels[i] >= 0 ? 1.0 : 0.0;
        int best = 0;
        for (int c = 1; c < TRAINER_CLASSES; c++)
            best = row[c] > row[best] ? c : best;
        max = (double)row[best];
        for (int c = 0; c < TRAINER_CLASSES; c++)
            total += exp((double)row[c] - max);
        if (labels[i] >= 0)
            sums[0] += log(total) + max - (double)row[labels[i]];
        sums[1] += scale;
        *correct += best == labels[i];
        for (int c = 0; c < TRAINER_CLASSES; c++)
            row[c] = (real)(scale * (exp((double)row[c] - max) / total - (c == labels[i])));
    }
    *loss = (real)(sums[0] / sums[1]);
}

static void backward(const real *images, const real *logits, int first, real *gw, real *gb)
{
    for (int k = 0; k <= TRAINER_PIXELS; k++)
        for (int c = 0; c < TRAINER_CLASSES; c++) {
            real *target = k < TRAINER_PIXELS ? &gw[k * TRAINER_CLASSES + c] : &gb[c];
            real sum = first ? (real)0 : *target;
            for (int i = 0; i < TRAINER_SAMPLES; i++)
                sum += (k < TRAINER_PIXELS ? images[i * TRAINER_PIXELS + k] : (real)1) *
                       logits[i * TRAINER_CLASSES + c];
            *target = sum;
        }
}

static void update(const real *g, const double *step, double weight, int count, real *v, real *p)
{
    for (int i = 0; i < count; i++) {
        v[i] = (real)0.9 * v[i] + g[i] / (real)weight;
        p[i] -= (real)step[0] * v[i];
    }
}

/* Forward and loss; an evaluation does not read what is computed from the logits. */
static void evaluate_steps(unsigned char *a, struct ul_run *r)
{
    UL_STEP(r, 0);
    forward(UL_AT(const real, a, TRAINER_IMAGES), UL_AT(const real, a, TRAINER_W),
            UL_AT(const real, a, TRAINER_B), UL_AT(real, a, TRAINER_LOGITS));
    UL_STEP(r, 1);
    cross_entropy(UL_AT(const int64_t, a, TRAINER_LABELS), UL_AT(const double, a, TRAINER_STEP),
                  UL_AT(real, a, TRAINER_LOGITS), UL_AT(double, a, TRAINER_SUMS),
                  UL_AT(real, a, TRAINER_LOSS), UL_AT(int64_t, a, TRAINER_CORRECT));
}

static void accumulate_steps(unsigned char *a, struct ul_run *r)
{
    const double *step = UL_AT(const double, a, TRAINER_STEP);
    evaluate_steps(a, r);
    UL_STEP(r, 2);
    backward(UL_AT(const real, a, TRAINER_IMAGES), UL_AT(const real, a, TRAINER_LOGITS),
             step[7] == 0.0, UL_AT(real, a, TRAINER_GW), UL_AT(real, a, TRAINER_GB));
}

static void run_steps(unsigned char *a, struct ul_run *r)
{
    const double *step = UL_AT(const double, a, TRAINER_STEP);
    accumulate_steps(a, r);
    double weight = UL_AT(const double, a, TRAINER_SUMS)[1];
    UL_STEP(r, 3);
    update(UL_AT(const real, a, TRAINER_GW), step, weight, TRAINER_PIXELS * TRAINER_CLASSES,
           UL_AT(real, a, TRAINER_VW), UL_AT(real, a, TRAINER_W));
    UL_STEP(r, 4);
    update(UL_AT(const real, a, TRAINER_GB), step, weight, TRAINER_CLASSES,
           UL_AT(real, a, TRAINER_VB), UL_AT(real, a, TRAINER_B));
}

static const int64_t dims_images[] = {TRAINER_SAMPLES, TRAINER_PIXELS};
static const int64_t dims_step[] = {UL_RT_STEP_NUMBERS};
static const int64_t dims_w[] = {TRAINER_PIXELS, TRAINER_CLASSES};
static const struct ul_rt_tensor inputs[] = {
    {"images", TRAINER_TYPE, 2, dims_images, TRAINER_SAMPLES *TRAINER_PIXELS *TRAINER_REAL_BYTES,
     UL_SPACE_ARENA, TRAINER_IMAGES, 0},
    {"labels", UL_TYPE_I64, 1, dims_images, TRAINER_SAMPLES * 8, UL_SPACE_ARENA, TRAINER_LABELS, 0},
    {"ullage.step", UL_TYPE_F64, 1, dims_step, 64, UL_SPACE_ARENA, TRAINER_STEP, 0},
};

#define W_BYTES TRAINER_W_BYTES
#define B_BYTES ((uint64_t)TRAINER_CLASSES * TRAINER_REAL_BYTES)
static const struct ul_rt_tensor outputs[] = {
    {"loss", TRAINER_TYPE, 0, NULL, TRAINER_REAL_BYTES, UL_SPACE_ARENA, TRAINER_LOSS, 0},
    {"correct", UL_TYPE_I64, 0, NULL, 8, UL_SPACE_ARENA, TRAINER_CORRECT, 0},
    {"W.new", TRAINER_TYPE, 2, dims_w, W_BYTES, UL_SPACE_ARENA, TRAINER_W, UL_DONATED_WEIGHT},
    {"b.new", TRAINER_TYPE, 1, dims_w + 1, B_BYTES, UL_SPACE_ARENA, TRAINER_B, UL_DONATED_WEIGHT},
    {"W.momentum", TRAINER_TYPE, 2, dims_w, W_BYTES, UL_SPACE_ARENA, TRAINER_VW, UL_DONATED_WEIGHT},
    {"b.momentum", TRAINER_TYPE, 1, dims_w + 1, B_BYTES, UL_SPACE_ARENA, TRAINER_VB,
     UL_DONATED_WEIGHT},
};

static const struct ul_rt_parameter parameters[] = {
    {"W", TRAINER_TYPE, 2, dims_w, W_BYTES, TRAINER_W, UL_SPACE_ARENA, TRAINER_TYPE, 0},
    {TRAINER_BIAS, TRAINER_TYPE, 1, dims_w + 1, B_BYTES, TRAINER_B, UL_SPACE_ARENA, TRAINER_TYPE,
     0},
    {"W/momentum", TRAINER_TYPE, 2, dims_w, W_BYTES, TRAINER_VW, UL_SPACE_ARENA, TRAINER_TYPE, 0},
    {"b/momentum", TRAINER_TYPE, 1, dims_w + 1, B_BYTES, TRAINER_VB, UL_SPACE_ARENA, TRAINER_TYPE,
     0},
};

static const struct ul_rt_rate rates[] = TRAINER_SCHEDULES;
static const struct ul_rt_training training = {
    .enter = ul_train_enter,
    .move = ul_train_reach,
    .loss = "softmax-cross-entropy",
    .optimizer = "momentum",
    .data = 0,
    .labels = 1,
    .step = 2,
    .loss_output = 0,
    .correct_output = 1,
    .sample_count = TRAINER_SAMPLES,
    .loss_scale = UL_TENSOR_NONE,
    .taken_steps = UL_TENSOR_NONE,
    .micro_batches = TRAINER_MICRO,
    .learning_rate = 0.05,
    .rates = rates,
    .rate_count = sizeof rates / sizeof *rates,
    .class_count = TRAINER_CLASSES,
    .ignore_index = -1,
    .parameters = parameters,
    .parameter_count = 4,
};

static const struct ul_splat splats[] = {
    {TRAINER_W, TRAINER_PIXELS *TRAINER_CLASSES, 0, TRAINER_REAL_BYTES, UL_SPACE_ARENA},
    {TRAINER_B, TRAINER_CLASSES, 0, TRAINER_REAL_BYTES, UL_SPACE_ARENA},
    {TRAINER_VW, TRAINER_PIXELS *TRAINER_CLASSES, 0, TRAINER_REAL_BYTES, UL_SPACE_ARENA},
    {TRAINER_VB, TRAINER_CLASSES, 0, TRAINER_REAL_BYTES, UL_SPACE_ARENA},
};

static const uint32_t all[] = {0, 1, 2, 3, 4, 5};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, 3, 6, 0, 5},
    {"evaluate", evaluate_steps, all, all, 3, 2, 0, 2},
    {"accumulate", accumulate_steps, all, all, 3, 2, 0, 3},
    {"begin", accumulate_steps, all, all, 3, 2, 0, 3},
};

const struct ul_model trainer_model = {
    .name = "trainer",
    .compiler = "by hand",
    .target = "c",
    .arena_bytes = TRAINER_ARENA_BYTES,
    .arena_align = TRAINER_ARENA_ALIGN,
    .load = ul_weights_load,
    .splats = splats,
    .splat_count = 4,
    .input_count = 3,
    .output_count = 6,
    .inputs = inputs,
    .outputs = outputs,
    .isa = (uint32_t)UL_ISA_COMPILED,
    .entry_count = TRAINER_MICRO == 1 ? 3 : 5,
    .entries = entries,
    .training = &training,
    .step_count = 5,
};
