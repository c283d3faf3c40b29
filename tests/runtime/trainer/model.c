/*
 * trainer: what the compiler prints for a model that trains, written by hand. Gradients of weights
 * are values of their own here; with TRAINER_MICRO several runs add to them, and an entry of its
 * own applies them. Images are NaN or infinite where the data are.
 */
#include "model.h"

#include "ul_kernel.h"
#include "ul_run.h"

#include <math.h>

typedef TRAINER_REAL real;

#ifndef TRAINER_SCHEDULES
#define TRAINER_SCHEDULES                                                                          \
    {                                                                                              \
        {                                                                                          \
            UL_SCHEDULE_WARMUP, 4, 0.0                                                             \
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

/* The mean over labels that are not -1, and in place of the logits their gradient. */
static void cross_entropy(const int64_t *labels, double weight, real *logits, real *loss,
                          int64_t *correct)
{
    int counted = 0;
    double sum = 0.0;
    *correct = 0;
    for (int i = 0; i < TRAINER_SAMPLES; i++)
        counted += labels[i] >= 0;
    for (int i = 0; i < TRAINER_SAMPLES; i++) {
        real *row = logits + i * TRAINER_CLASSES;
        double max = (double)row[0], total = 0.0, scale = labels[i] >= 0 ? weight / counted : 0.0;
        int best = 0;
        for (int c = 1; c < TRAINER_CLASSES; c++)
            best = row[c] > row[best] ? c : best;
        max = (double)row[best];
        for (int c = 0; c < TRAINER_CLASSES; c++)
            total += exp((double)row[c] - max);
        if (labels[i] >= 0)
            sum += log(total) + max - (double)row[labels[i]];
        *correct += best == labels[i];
        for (int c = 0; c < TRAINER_CLASSES; c++)
            row[c] = (real)(scale * (exp((double)row[c] - max) / total - (c == labels[i])));
    }
    *loss = (real)(sum / counted);
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

static void update(const real *g, const double *step, int count, real *v, real *p)
{
    for (int i = 0; i < count; i++) {
        v[i] = (real)0.9 * v[i] + g[i];
        p[i] -= (real)step[0] * v[i];
    }
}

static void update_steps(unsigned char *a, struct ul_run *r)
{
    const double *step = UL_AT(const double, a, TRAINER_STEP);
    UL_STEP(r, 3);
    update(UL_AT(const real, a, TRAINER_GW), step, TRAINER_PIXELS * TRAINER_CLASSES,
           UL_AT(real, a, TRAINER_VW), UL_AT(real, a, TRAINER_W));
    UL_STEP(r, 4);
    update(UL_AT(const real, a, TRAINER_GB), step, TRAINER_CLASSES, UL_AT(real, a, TRAINER_VB),
           UL_AT(real, a, TRAINER_B));
}

/* Forward and loss; what is made of the logits nobody reads. */
static void eval_steps(unsigned char *a, struct ul_run *r)
{
    UL_STEP(r, 5);
    forward(UL_AT(const real, a, TRAINER_IMAGES), UL_AT(const real, a, TRAINER_W),
            UL_AT(const real, a, TRAINER_B), UL_AT(real, a, TRAINER_LOGITS));
    UL_STEP(r, 6);
    cross_entropy(UL_AT(const int64_t, a, TRAINER_LABELS), 1.0, UL_AT(real, a, TRAINER_LOGITS),
                  UL_AT(real, a, TRAINER_LOSS), UL_AT(int64_t, a, TRAINER_CORRECT));
}

static void run_steps(unsigned char *a, struct ul_run *r)
{
    const double *step = UL_AT(const double, a, TRAINER_STEP);
    UL_STEP(r, 0);
    forward(UL_AT(const real, a, TRAINER_IMAGES), UL_AT(const real, a, TRAINER_W),
            UL_AT(const real, a, TRAINER_B), UL_AT(real, a, TRAINER_LOGITS));
    UL_STEP(r, 1);
    cross_entropy(UL_AT(const int64_t, a, TRAINER_LABELS), step[3], UL_AT(real, a, TRAINER_LOGITS),
                  UL_AT(real, a, TRAINER_LOSS), UL_AT(int64_t, a, TRAINER_CORRECT));
    UL_STEP(r, 2);
    backward(UL_AT(const real, a, TRAINER_IMAGES), UL_AT(const real, a, TRAINER_LOGITS),
             fmod(step[5], TRAINER_MICRO) == 0.0, UL_AT(real, a, TRAINER_GW),
             UL_AT(real, a, TRAINER_GB));
    if (TRAINER_MICRO == 1)
        update_steps(a, r);
}

static const int64_t dims_images[] = {TRAINER_SAMPLES, TRAINER_PIXELS};
static const int64_t dims_step[] = {UL_STEP_VALUES};
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

static const struct ul_parameter parameters[] = {
    {"W", TRAINER_TYPE, 2, dims_w, W_BYTES, TRAINER_W},
    {TRAINER_BIAS, TRAINER_TYPE, 1, dims_w + 1, B_BYTES, TRAINER_B},
    {"W/momentum", TRAINER_TYPE, 2, dims_w, W_BYTES, TRAINER_VW},
    {"b/momentum", TRAINER_TYPE, 1, dims_w + 1, B_BYTES, TRAINER_VB},
};

static const struct ul_schedule schedules[] = TRAINER_SCHEDULES;
static const struct ul_training training = {
    .loss = "softmax-cross-entropy",
    .optimizer = "momentum",
    .data = 0,
    .labels = 1,
    .step = 2,
    .loss_output = 0,
    .correct_output = 1,
    .sample_count = TRAINER_SAMPLES,
    .micro_batches = TRAINER_MICRO,
    .learning_rate = 0.05,
    .schedules = schedules,
    .schedule_count = sizeof schedules / sizeof *schedules,
    .class_count = TRAINER_CLASSES,
    .ignore_index = -1,
    .parameters = parameters,
    .parameter_count = 4,
    .eval_data = 0,
    .eval_labels = 1,
    .eval_loss_output = 0,
    .eval_correct_output = 1,
};

static const struct ul_splat splats[] = {
    {TRAINER_W, TRAINER_PIXELS *TRAINER_CLASSES, 0, TRAINER_REAL_BYTES},
    {TRAINER_B, TRAINER_CLASSES, 0, TRAINER_REAL_BYTES},
    {TRAINER_VW, TRAINER_PIXELS *TRAINER_CLASSES, 0, TRAINER_REAL_BYTES},
    {TRAINER_VB, TRAINER_CLASSES, 0, TRAINER_REAL_BYTES},
};

static const uint32_t all[] = {0, 1, 2, 3, 4, 5};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, 3, 6, 0, TRAINER_MICRO == 1 ? 5 : 3},
    {"update", update_steps, NULL, NULL, 0, 0, 3, 5},
    {"eval", eval_steps, all, all, 2, 2, 5, 7},
};

const struct ul_model trainer_model = {
    .name = "trainer",
    .compiler = "by hand",
    .target = "c",
    .arena_bytes = TRAINER_ARENA_BYTES,
    .arena_align = TRAINER_ARENA_ALIGN,
    .splats = splats,
    .splat_count = 4,
    .input_count = 3,
    .output_count = 6,
    .inputs = inputs,
    .outputs = outputs,
    .isa = (uint32_t)UL_ISA_COMPILED,
    .entry_count = TRAINER_ENTRIES,
    .entries = entries,
    .training = &training,
    .step_count = 7,
};
