/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compiler prints for target cuda, by hand, as the runtime has to understand it: weights,
 * splats of every size, an index out of range, a branch, a loop, a value that takes over another's
 * place. The steps are in kernels.cu.
 *
 *     h = x W + b;  y = h[pick];  if (flag) h = -h;  rows[r] = h + r for r in 0..2;
 *     check = sum of big + the last r
 *
 *     bytes      step 0    1    2    3    4    5    6
 *     0-96       W, b and other splats ..............     weights
 *     256-272    x ..][ y ...........................     input, output (y: 8 bytes)
 *     272-289    pick, flag ..........                    inputs
 *     320-336    h ..............................
 *     384-432                        rows ...........     output, in the loop: steps 4 and 5
 *     448-456                        counter ........
 *     456-464                                  check      output
 *     464-497    state of the run ...................     scratch
 *     512-       big ................................     weights
 * With DEVICE_CALLER, x, y and rows are the caller's.
 */
#include "model.h"

#include "ul_program.h"

#ifdef DEVICE_CALLER
#define INPUT UL_SPACE_INPUT
#define OUTPUT UL_SPACE_OUTPUT
#define Y_OFFSET 0
#define ROWS_VIEWS 0 /* nobody knows what is in the other parts of a caller's buffer */
#else
#define INPUT UL_SPACE_ARENA
#define OUTPUT UL_SPACE_ARENA
#define Y_OFFSET AT_X
#define ROWS_VIEWS 1
#endif

extern const struct ul_cuda_code model_code; /* kernels.cu */

static const struct ul_device device = {
    .functions = &ul_cuda_functions,
    .code = &model_code,
    .state_offset_bytes = AT_STATE,
    .region_count = 1,
};

static const int64_t four[] = {4};
static const int64_t two[] = {2};
static const int64_t matrix[] = {3, 4};
static const struct ul_rt_tensor inputs[] = {
    {"x", UL_TYPE_F32, 1, four, 16, INPUT, AT_X, 0},
    {"pick", UL_TYPE_I64, 1, two, 16, UL_SPACE_ARENA, AT_PICK, 0},
    {"flag", UL_TYPE_BOOL, 0, NULL, 1, UL_SPACE_ARENA, AT_FLAG, 0},
};
static const struct ul_rt_tensor outputs[] = {
    {"y", UL_TYPE_F32, 1, two, 8, OUTPUT, AT_X, 0},
    {"rows", UL_TYPE_F32, 2, matrix, 48, OUTPUT, AT_ROWS, 0},
    {"check", UL_TYPE_I64, 0, NULL, 8, UL_SPACE_ARENA, AT_CHECK, 0},
};

static const struct ul_section sections[] = {{AT_W, 16, 4, UL_SPACE_ARENA, NULL},
                                             {AT_BIG, BIG_BYTES, 4, UL_SPACE_ARENA, NULL}};
static const struct ul_splat splats[] = {
    {AT_B, 4, 0x3f000000, 4, UL_SPACE_ARENA},
    {AT_BYTES, 13, 0xab, 1, UL_SPACE_ARENA},
    {AT_WORDS, 7, 0x1234, 2, UL_SPACE_ARENA},
    {AT_DOUBLES, 3, UINT64_C(0x0102030405060708), 8, UL_SPACE_ARENA},
};

/* Indexes into `ranges`. The caller's tensors have no range; a weight's index takes their place. */
enum { R_W, R_B, R_BYTES, R_WORDS, R_DOUBLES, R_BIG, R_PICK, R_FLAG, R_H, R_COUNTER, R_CHECK };
#ifdef DEVICE_CALLER
enum { R_X = R_B, R_Y = R_B, R_ROWS = R_B };
#else
enum { R_Y = R_CHECK + 2, R_X, R_ROWS };
#endif
static const uint32_t operands[] = {
    R_X,       R_W,       R_B,     R_H, /* 0: fc */
    R_H,       R_PICK,    R_Y,          /* 4: select */
    R_FLAG,                             /* 7: if */
    R_H,                                /* 8: negate */
    R_COUNTER,                          /* 9: counter */
    R_H,       R_COUNTER, R_ROWS,       /* 10: row */
    R_BIG,     R_COUNTER, R_CHECK,      /* 13: check */
    R_FLAG,                             /* 16: read between steps */
};

static const struct ul_step steps[] = {
    {"fc", "k0", "fc", "Mul+Add", 0, 1, 8, 64, 0.0, 0, 0, 4},
    {"select", "k1", "select", "Gather", 1, 1, 0, 32, 0.0, 0, 4, 3},
    {"if", "enter", "if", "If", 2, 0, 0, 0, 0.0, 0, 7, 1},
    {"negate", "k2", "if/neg", "Neg", 2, 1, 4, 32, 0.0, 0, 8, 1},
    {"counter", "counter", "loop", "Loop", 3, 1, 0, 8, 0.0, 0, 9, 1},
    {"row", "k3", "loop/add", "Add", 4, ROWS_VIEWS, 4, 32, 0.0, 0, 10, 3},
    {"check", "k4", "sum", "ReduceSum", 5, 1, BIG_COUNT, BIG_BYTES, 0.0, 0, 13, 3},
};

static const int64_t shapes[] = {4, 1, 2, 1, 3, 4, 4, 1};
static const struct ul_rt_view views[] = {
    {UL_SPACE_ARENA, 0, AT_H, UL_TYPE_F32, 1, 0},
    {OUTPUT, 0, Y_OFFSET, UL_TYPE_F32, 1, 2},
    {UL_SPACE_ARENA, 0, AT_H, UL_TYPE_F32, 1, 0},
    {UL_SPACE_ARENA, 0, AT_COUNTER, UL_TYPE_I64, 0, 0},
    {UL_SPACE_PART, 0, AT_ROWS, UL_TYPE_F32, 2, 4},
    {UL_SPACE_ARENA, 0, AT_CHECK, UL_TYPE_I64, 0, 0},
};

static const struct ul_range ranges[] = {
    {"W", UL_ROW_WEIGHTS, AT_W, 16, 0, 7, UL_RANGE_NONE},
    {"b", UL_ROW_WEIGHTS, AT_B, 16, 0, 7, UL_RANGE_NONE},
    {"bytes", UL_ROW_WEIGHTS, AT_BYTES, 13, 0, 7, UL_RANGE_NONE},
    {"words", UL_ROW_WEIGHTS, AT_WORDS, 14, 0, 7, UL_RANGE_NONE},
    {"doubles", UL_ROW_WEIGHTS, AT_DOUBLES, 24, 0, 7, UL_RANGE_NONE},
    {"big", UL_ROW_WEIGHTS, AT_BIG, BIG_BYTES, 0, 7, UL_RANGE_NONE},
    {"pick", UL_ROW_INPUTS, AT_PICK, 16, 0, 2, UL_RANGE_NONE},
    {"flag", UL_ROW_INPUTS, AT_FLAG, 1, 0, 3, UL_RANGE_NONE},
    {"h", UL_ROW_ACTIVATIONS, AT_H, 16, 0, 6, UL_RANGE_NONE},
    {"counter", UL_ROW_ACTIVATIONS, AT_COUNTER, 8, 4, 7, UL_RANGE_NONE},
    {"check", UL_ROW_OUTPUTS, AT_CHECK, 8, 6, 7, UL_RANGE_NONE},
    {"state of the run", UL_ROW_SCRATCH, AT_STATE, 41, 0, 7, UL_RANGE_NONE},
#ifndef DEVICE_CALLER
    {"y", UL_ROW_OUTPUTS, AT_X, 8, 1, 7, UL_RANGE_NONE},
    {"x", UL_ROW_INPUTS, AT_X, 16, 0, 1, UL_RANGE_NONE},
    {"rows", UL_ROW_OUTPUTS, AT_ROWS, 48, 4, 7, UL_RANGE_NONE},
#endif
};
enum { RANGE_COUNT = sizeof ranges / sizeof *ranges };

/* Step 4, the first at which rows is there. */
#ifdef DEVICE_CALLER
#define OUT_BYTES 0
#else
#define OUT_BYTES 56
#endif
#define WEIGHT_BYTES (83 + BIG_BYTES)

static const uint32_t all[] = {0, 1, 2};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", NULL, all, all, 3, 3, 0, 7},
};

const struct ul_model model_model = {
    .name = "device",
    .compiler = "by hand",
    .target = "cuda",
    .arena_bytes = ARENA_BYTES,
    .arena_align = ARENA_ALIGN,
    .payload_bytes = 16 + 496 + BIG_BYTES, /* a gap before the large one */
    .payload_hash = UINT64_C(0x6528838ea3e3837f),
    .sections = sections,
    .splats = splats,
    .section_count = 2,
    .splat_count = 4,
    .input_count = 3,
    .output_count = 3,
    .inputs = inputs,
    .outputs = outputs,
    .device = &device,
    .entry_count = 2,
    .entries = entries,
    .step_count = 7,
    .range_count = RANGE_COUNT,
    .view_count = 6,
    .shape_count = 8,
    .operand_count = 17,
    .bare_begin = 16,
    .steps = steps,
    .ranges = ranges,
    .views = views,
    .shapes = shapes,
    .operands = operands,
    .row_bytes = {WEIGHT_BYTES, 0, 0, 0, 24, 41, 0, OUT_BYTES, 0,
                  ARENA_BYTES - WEIGHT_BYTES - 24 - 41 - OUT_BYTES},
    .peak_step = 4,
};

int model_open(struct ul_context **context, void *arena, size_t bytes, void *stream,
               const struct ul_weights_source *weights, struct ul_failure *failure)
{
    return (int)ul_device_open(&model_model, context, arena, bytes, stream, weights, failure);
}

int model_run(struct ul_context *context, const void *const *from, void *const *to,
              struct ul_failure *failure)
{
    return (int)ul_device_run(&model_model, context, UL_ENTRY_RUN, from, to, failure);
}

void model_close(struct ul_context *context)
{
    ul_device_close(&model_model, context);
}
