/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: a loop with a carried value, a scanned output and scratch, a value that another takes over,
 * and a strided view, as the checks of --guard and --memory have to understand them. No weights.
 *
 *     sum = 0; for r in 0..2: { t = x + r; sum += t (in place); rows[r] = sum }
 *     z = -sum (in place of sum);  wide[:, 1] = z  (strided)
 *
 *     bytes     step 0    1    2    3    4    5
 *     0-16      x ..............................     input
 *     64-80     sum .....................[ z ...
 *     128-144        t .......                       in the loop: steps 1 to 3
 *     192-240   rows ...........................     output
 *     256-288                                wide    output [4,2]
 *     320-336             scratch of step 2
 */
#include "ul_program.h"

#include "ul_kernel.h"
#include "ul_run.h"

static void fill(float *y, float value)
{
    for (int i = 0; i < 4; i++)
        y[i] = value;
}

/* t = x + round */
static void add_round(const float *x, int64_t round, float *t)
{
    for (int i = 0; i < 4; i++)
        t[i] = x[i] + (float)round;
#ifdef LOOP_BUG_READ
    t[0] += t[20] * 0.0f; /* a row that no round has written yet, NaN in one of the runs */
#endif
}

static void add(const float *t, float *scratch, float *sum)
{
    memcpy(scratch, t, 16);
    for (int i = 0; i < 4; i++)
        sum[i] += scratch[i];
}

static void copy(const float *sum, float *row)
{
    memcpy(row, sum, 16);
#ifdef LOOP_BUG_WRITE
    row[4] = 0.0f; /* the next row, or after the last one */
    row[-32] = 1.0f;
#endif
}

static void negate(float *z)
{
    for (int i = 0; i < 4; i++)
        z[i] = -z[i];
}

static void spread(const float *z, float *wide)
{
    for (int i = 0; i < 4; i++)
        wide[i * 2 + 1] = z[i];
#ifdef LOOP_BUG_STRAY
    wide[12] = 1.0f; /* where nothing ever lives */
#endif
#ifdef LOOP_BUG_BEYOND
    wide[20] = 1.0f; /* after the end of the arena */
#endif
#ifdef LOOP_BUG_STRIDE
    wide[2] = 0.0f; /* the column that belongs to another step */
#endif
}

static void run_steps(unsigned char *a, struct ul_run *r)
{
    UL_STEP(r, 0);
    fill(UL_AT(float, a, 64), 0.0f);
    for (int64_t round = 0; round < 3; round++) {
        UL_STEP(r, 1);
        add_round(UL_AT(const float, a, 0), round, UL_AT(float, a, 128));
        UL_STEP(r, 2);
        add(UL_AT(const float, a, 128), UL_AT(float, a, 320), UL_AT(float, a, 64));
        UL_STEP(r, 3);
        copy(UL_AT(const float, a, 64), UL_AT(float, a, 192 + round * 16));
    }
    UL_STEP(r, 4);
    negate(UL_AT(float, a, 64));
    UL_STEP(r, 5);
    for (int i = 0; i < 4; i++)
        UL_AT(float, a, 256)[i * 2] = 2.0f;
    UL_STEP(r, 6);
    spread(UL_AT(const float, a, 64), UL_AT(float, a, 256));
}

static const int64_t vector[] = {4};
static const int64_t matrix[] = {3, 4};
static const int64_t pairs[] = {4, 2};
static const struct ul_rt_tensor inputs[] = {
    {"x", UL_TYPE_F32, 1, vector, 16, UL_SPACE_ARENA, 0, 0}};
static const struct ul_rt_tensor outputs[] = {
    {"rows", UL_TYPE_F32, 2, matrix, 48, UL_SPACE_ARENA, 192, 0},
    {"wide", UL_TYPE_F32, 2, pairs, 32, UL_SPACE_ARENA, 256, 0},
};

static const struct ul_step steps[] = {
    {"init", "fill", "loop", "Loop", 0, 1, 0, 0, 0.0, 0, 0, 0},
    {"add_round", "add_round", "loop/t", "Add", 1, 1, 0, 0, 0.0, 0, 0, 0},
    {"add", "add", "loop/sum", "Add", 2, 1, 0, 0, 0.0, 0, 0, 0},
    {"scan", "copy", "loop", "Loop", 3, 1, 0, 0, 0.0, 0, 0, 0},
    {"negate", "negate", "neg", "Neg", 4, 1, 0, 0, 0.0, 0, 0, 0},
    {"even", "even", "concat", "Concat", 5, 1, 0, 0, 0.0, 0, 0, 0},
    {"odd", "spread", "concat", "Concat", 6, 1, 0, 0, 0.0, 0, 0, 0},
};

static const int64_t shapes[] = {4, 1, 3, 4, 4, 1, 4, 1, 2, 1};
static const struct ul_rt_view views[] = {
    {UL_SPACE_ARENA, 0, 64, UL_TYPE_F32, 1, 0},  {UL_SPACE_ARENA, 0, 128, UL_TYPE_F32, 1, 0},
    {UL_SPACE_ARENA, 0, 64, UL_TYPE_F32, 1, 0},  {UL_SPACE_PART, 0, 192, UL_TYPE_F32, 2, 2},
    {UL_SPACE_ARENA, 0, 64, UL_TYPE_F32, 1, 0},  {UL_SPACE_ARENA, 0, 256, UL_TYPE_F32, 2, 6},
    {UL_SPACE_ARENA, 0, 260, UL_TYPE_F32, 2, 6},
};

static const struct ul_range ranges[] = {
    {"x", UL_ROW_INPUTS, 0, 16, 0, 4, UL_RANGE_NONE},
    {"sum", UL_ROW_ACTIVATIONS, 64, 16, 0, 5, UL_RANGE_NONE},
    {"t", UL_ROW_ACTIVATIONS, 128, 16, 1, 3, UL_RANGE_NONE},
    {"rows", UL_ROW_OUTPUTS, 192, 48, 0, 7, UL_RANGE_NONE},
    {"z", UL_ROW_KEPT, 64, 16, 4, 7, 1},
    {"wide", UL_ROW_OUTPUTS, 256, 32, 5, 7, UL_RANGE_NONE},
    {"scratch of add", UL_ROW_SCRATCH, 320, 16, 2, 3, UL_RANGE_NONE},
};

#ifndef LOOP_PEAK_STEP
#define LOOP_PEAK_STEP 2
#define LOOP_ROWS                                                                                  \
    {                                                                                              \
        0, 0, 0, 0, 32, 16, 16, 48, 224, 0                                                         \
    }
#endif

static const uint32_t all[] = {0, 1};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, 1, 2, 0, 7},
};

static const struct ul_model loop_model = {
    .name = "loop",
    .compiler = "by hand",
    .target = "c",
    .arena_bytes = 336,
    .arena_align = 64,
    .input_count = 1,
    .output_count = 2,
    .inputs = inputs,
    .outputs = outputs,
    .isa = (uint32_t)UL_ISA_COMPILED,
    .entry_count = 2,
    .entries = entries,
    .step_count = 7,
    .range_count = 7,
    .view_count = 7,
    .shape_count = 10,
    .steps = steps,
    .ranges = ranges,
    .views = views,
    .shapes = shapes,
    .row_bytes = LOOP_ROWS,
    .peak_step = LOOP_PEAK_STEP,
};

int main(int argc, char **argv)
{
    return ul_program_main(&loop_model, argc, argv);
}
