/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny: what the compiler prints for a model, written by hand as a test and as a pattern.
 *
 *     bytes      step 0    1    2    3
 *     0-128      W (from the weights file) .........
 *     128-144    b (0.5 everywhere, filled) ........
 *     192-256    x ][          [ y .................
 *     256-280    pick .............][ label ........
 *     320-352    h ..........................
 */
#include "model.h"

#include "ul_kernel.h"
#include "ul_run.h"
#include "ul_weights.h"

/* Gemm: y[2,4] = x[2,8] * w[8,4] + b[4] */
static void k0(const float *UL_RESTRICT x, const float *UL_RESTRICT w, const float *UL_RESTRICT b,
               float *UL_RESTRICT y)
{
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 4; j++) {
            float sum = b[j];
            for (int64_t k = 0; k < 8; k++)
                sum += x[i * 8 + k] * w[k * 4 + j];
            y[i * 4 + j] = sum;
        }
}

/* Relu in place: y[8] */
static void k1(float *y)
{
    for (int64_t i = 0; i < 8; i++)
        y[i] = ul_max_f32(y[i], 0.0f);
}

/* Gather, axis 1: y[2,3] = x[2,4][:, pick[3]] */
static void k2(struct ul_run *r, const float *UL_RESTRICT x, const int64_t *UL_RESTRICT pick,
               float *UL_RESTRICT y)
{
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 3; j++)
            y[i * 3 + j] = x[i * 4 + ul_index(r, pick[j], 4)];
#ifdef TINY_BUG_READ
    y[0] += x[-8]; /* a place where nothing lives */
#endif
#ifdef TINY_BUG_LIVE
    y[0] += x[-80]; /* a live value of someone else: W */
#endif
#ifdef TINY_BUG_WRITE
    y[6] = 1.0f; /* four bytes after y: free at this step */
#endif
#ifdef TINY_BUG_CLOBBER
    ((int64_t *)(uintptr_t)pick)[0] = 0; /* a live value of someone else */
#endif
}

/* ArgMax, axis 1: y[2] from x[2,4] */
static void k3(const float *UL_RESTRICT x, int64_t *UL_RESTRICT y)
{
    for (int64_t i = 0; i < 2; i++) {
        int64_t best = 0;
        for (int64_t j = 1; j < 4; j++)
            if (x[i * 4 + j] > x[i * 4 + best])
                best = j;
        y[i] = best;
    }
}

static void run_steps(unsigned char *a, struct ul_run *r)
{
    UL_STEP(r, 0); /* fc */
    k0(UL_AT(const float, a, 192), UL_AT(const float, a, 0), UL_AT(const float, a, 128),
       UL_AT(float, a, 320));
    UL_STEP(r, 1); /* relu */
    k1(UL_AT(float, a, 320));
    UL_STEP(r, 2); /* select */
    k2(r, UL_AT(const float, a, 320), UL_AT(const int64_t, a, 256), UL_AT(float, a, 192));
    UL_STEP(r, 3); /* label */
    k3(UL_AT(const float, a, 320), UL_AT(int64_t, a, 256));
}

static const int64_t input_dims_0[] = {2, 8};
static const int64_t input_dims_1[] = {3};
static const struct ul_rt_tensor inputs[] = {
    {"x", UL_TYPE_F32, 2, input_dims_0, 64, UL_SPACE_ARENA, 192, 0},
    {"pick", UL_TYPE_I64, 1, input_dims_1, 24, UL_SPACE_ARENA, 256, 0},
};

static const int64_t output_dims_0[] = {2, 3};
static const int64_t output_dims_1[] = {2};
static const struct ul_rt_tensor outputs[] = {
    {"y", UL_TYPE_F32, 2, output_dims_0, 24, UL_SPACE_ARENA, 192, 0},
    {"label", UL_TYPE_I64, 1, output_dims_1, 16, UL_SPACE_ARENA, 256, 0},
};

static const struct ul_section sections[] = {
    {0, 128, 4, UL_SPACE_ARENA, NULL},
};

static const struct ul_splat splats[] = {
    {128, 4, 0x3f000000, 4, UL_SPACE_ARENA},
};

#ifndef UL_NO_TABLES
static const struct ul_step steps[] = {
    {"fc", "k0", "fc", "Gemm", 0, 1, 128, 240, 0.0, 0, 0, 4},
    {"relu", "k1", "relu", "Relu", 1, 1, 8, 64, 0.0, 0, 4, 1},
    {"select", "k2", "select", "Gather", 2, 1, 0, 72, 0.0, 0, 5, 3},
    {"label", "k3", "label", "ArgMax", 3, 1, 8, 48, 0.0, 0, 8, 2},
};

static const uint32_t operands[] = {2, 0, 1, 4, 4, 4, 3, 5, 4, 6};

static const int64_t shapes[] = {
    2, 4, 4, 1, /* 0 */
    2, 3, 3, 1, /* 4 */
    2, 1,       /* 8 */
};

static const struct ul_rt_view views[] = {
    {UL_SPACE_ARENA, 0, 320, UL_TYPE_F32, 2, 0},
    {UL_SPACE_ARENA, 0, 320, UL_TYPE_F32, 2, 0},
    {UL_SPACE_ARENA, 0, 192, UL_TYPE_F32, 2, 4},
    {UL_SPACE_ARENA, 0, 256, UL_TYPE_I64, 1, 8},
};

static const struct ul_range ranges[] = {
    {"W", UL_ROW_WEIGHTS, 0, 128, 0, 4, UL_RANGE_NONE},
    {"b", UL_ROW_WEIGHTS, 128, 16, 0, 4, UL_RANGE_NONE},
    {"x", UL_ROW_INPUTS, 192, 64, 0, 1, UL_RANGE_NONE},
    {"pick", UL_ROW_INPUTS, 256, 24, 0, 3, UL_RANGE_NONE},
    {"h", UL_ROW_ACTIVATIONS, 320, 32, 0, 4, UL_RANGE_NONE},
    {"y", UL_ROW_OUTPUTS, 192, 24, 2, 4, UL_RANGE_NONE},
    {"label", UL_ROW_OUTPUTS, 256, 16, 3, 4, UL_RANGE_NONE},
};
#endif

static const uint32_t all[] = {0, 1};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, TINY_INPUT_COUNT, TINY_OUTPUT_COUNT, 0, 4},
};

const struct ul_model tiny_model = {
    .name = "tiny",
    .compiler = "by hand",
    .target = "c",
    .model_sha256 = {0x12, 0x34},
    .plan_sha256 = {0x56, 0x78},
    .arena_bytes = TINY_ARENA_BYTES,
    .arena_align = TINY_ARENA_ALIGN,
    .payload_bytes = 128,
    .payload_hash = UINT64_C(0x36877e1aad96b9f3),
    .load = ul_weights_load,
    .sections = sections,
    .splats = splats,
    .section_count = 1,
    .splat_count = 1,
    .input_count = TINY_INPUT_COUNT,
    .output_count = TINY_OUTPUT_COUNT,
    .inputs = inputs,
    .outputs = outputs,
    .isa = (uint32_t)UL_ISA_COMPILED,
    .entry_count = 2,
    .entries = entries,
    .step_count = 4,
#ifndef UL_NO_TABLES
    .range_count = 7,
    .view_count = 4,
    .shape_count = 10,
    .operand_count = 10,
    .bare_begin = 10,
    .steps = steps,
    .ranges = ranges,
    .views = views,
    .shapes = shapes,
    .operands = operands,
    .row_bytes = {144, 0, 0, 0, 32, 0, 88, 0, 88, 0},
    .peak_step = 0,
#endif
};

int tiny_init(void *arena, size_t bytes, const struct ul_weights_source *weights,
              struct ul_failure *failure)
{
    return (int)ul_run_init(&tiny_model, arena, bytes, weights, failure);
}

int tiny_run(void *arena, const void *const *inputs_given, void *const *outputs_given)
{
    return tiny_run_with(arena, inputs_given, outputs_given, NULL);
}

int tiny_run_with(void *arena, const void *const *inputs_given, void *const *outputs_given,
                  struct ul_failure *failure)
{
    return (int)ul_run_entry(&tiny_model, UL_ENTRY_RUN, arena, 0, inputs_given, outputs_given, NULL,
                             NULL, failure);
}
