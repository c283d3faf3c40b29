/* SPDX-License-Identifier: Apache-2.0 */
/*
 * types: copies an input of each element type to an output; --io caller, nothing in the arena. For
 * tests of files. Names are unkind: '=' in them, a path, and two that differ in case alone.
 */
#include "ul_program.h"

#include "ul_kernel.h"
#include "ul_run.h"

/* type, bytes of 2 x 3 elements, name of the input, name of the output */
#define EACH_TYPE(X)                                                                               \
    X(UL_TYPE_F32, 24, "f32", "f32")                                                               \
    X(UL_TYPE_U8, 6, "u8", "u8")                                                                   \
    X(UL_TYPE_I8, 6, "i8", "i8")                                                                   \
    X(UL_TYPE_U16, 12, "u16", "u16")                                                               \
    X(UL_TYPE_I16, 12, "i16", "i16")                                                               \
    X(UL_TYPE_I32, 24, "i32", "i32")                                                               \
    X(UL_TYPE_I64, 48, "i64", "i64")                                                               \
    X(UL_TYPE_BOOL, 6, "bool", "bool")                                                             \
    X(UL_TYPE_F16, 12, "f16", "f16")                                                               \
    X(UL_TYPE_F64, 48, "f64", "f64")                                                               \
    X(UL_TYPE_U32, 24, "u32", "u32")                                                               \
    X(UL_TYPE_U64, 48, "u64", "u64")                                                               \
    X(UL_TYPE_BF16, 12, "bf16", "bf16")                                                            \
    X(UL_TYPE_F8E4M3FN, 6, "f8e4m3fn", "f8e4m3fn")                                                 \
    X(UL_TYPE_F8E4M3FNUZ, 6, "f8e4m3fnuz", "f8e4m3fnuz")                                           \
    X(UL_TYPE_F8E5M2, 6, "f8e5m2", "f8e5m2")                                                       \
    X(UL_TYPE_F8E5M2FNUZ, 6, "f8e5m2fnuz", "f8e5m2fnuz")                                           \
    X(UL_TYPE_U4, 6, "u4", "u4")                                                                   \
    X(UL_TYPE_I4, 6, "i4", "i4")                                                                   \
    X(UL_TYPE_F4E2M1, 6, "f4e2m1", "f4e2m1")                                                       \
    X(UL_TYPE_F8E8M0, 6, "f8e8m0", "f8e8m0")                                                       \
    X(UL_TYPE_U2, 6, "u2", "u2")                                                                   \
    X(UL_TYPE_I2, 6, "i2", "i2")                                                                   \
    X(UL_TYPE_F6E2M3, 6, "f6e2m3", "f6e2m3")                                                       \
    X(UL_TYPE_F6E3M2, 6, "f6e3m2", "f6e3m2")                                                       \
    X(UL_TYPE_F32, 24, "x", "../up\\\"\n")                                                         \
    X(UL_TYPE_F32, 24, "x=y", "../UP\\\"\n")

static const int64_t dims[] = {2, 3};
static const int64_t empty[] = {0, 3};

#define INPUT(type, size, input, output) {input, type, 2, dims, size, UL_SPACE_INPUT, 0, 0},
#define OUTPUT(type, size, input, output) {output, type, 2, dims, size, UL_SPACE_OUTPUT, 0, 0},
#define VIEW(type, size, input, output) {UL_SPACE_OUTPUT, 0, 0, type, 2, 0},

static const struct ul_rt_tensor inputs[] = {
    EACH_TYPE(INPUT) /* and the two odd shapes */
    {"scalar", UL_TYPE_F32, 0, NULL, 4, UL_SPACE_INPUT, 0, 0},
    {"empty", UL_TYPE_I64, 2, empty, 0, UL_SPACE_INPUT, 0, 0},
};

static const struct ul_rt_tensor outputs[] = {
    EACH_TYPE(OUTPUT) /* */
    {"scalar", UL_TYPE_F32, 0, NULL, 4, UL_SPACE_OUTPUT, 0, 0},
    {"empty", UL_TYPE_I64, 2, empty, 0, UL_SPACE_OUTPUT, 0, 0},
};

enum { COUNT = sizeof inputs / sizeof inputs[0] };

static void run_steps(unsigned char *a, struct ul_run *r)
{
    (void)a;
    UL_STEP(r, 0);
    for (int i = 0; i < COUNT; i++)
        memcpy(UL_OUT(unsigned char, r, i, 0), UL_IN(unsigned char, r, i, 0),
               (size_t)inputs[i].size_bytes);
}

static const int64_t shapes[] = {2, 3, 3, 1};
static const struct ul_rt_view views[] = {EACH_TYPE(VIEW)};
static const struct ul_step steps[] = {
    {"copy", "memcpy", "copy", "Identity", 0, 1, 0, 0, 0.0, 0, 0, 0}};
static const struct ul_range ranges[1] = {
    {"nothing", UL_ROW_ACTIVATIONS, 0, 0, 0, 1, UL_RANGE_NONE}};

static const uint32_t all[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                               12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, COUNT, COUNT, 0, 1},
};

static const struct ul_model types_model = {
    .name = "types \"quoted\"\n",
    .compiler = "by hand",
    .target = "c",
    .arena_bytes = 0,
    .arena_align = 64,
    .input_count = COUNT,
    .output_count = COUNT,
    .inputs = inputs,
    .outputs = outputs,
#ifdef TYPES_ISA
    .isa = TYPES_ISA,
#else
    .isa = (uint32_t)UL_ISA_COMPILED,
#endif
    .entry_count = 2,
    .entries = entries,
    .step_count = 1,
    .range_count = 0,
    .view_count = 1,
    .shape_count = 4,
    .steps = steps,
    .ranges = ranges,
    .views = views,
    .shapes = shapes,
};

int main(int argc, char **argv)
{
    return ul_program_main(&types_model, argc, argv);
}
