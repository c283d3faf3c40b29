/* Shape rules and corner cases of the reduce family. */
#include "case.h"

#include <math.h>

static const struct op_case rules[] = {
    {"ReduceSum", "f32[2,3,4]", NULL, 1, UL_OK, "f32[1,1,1]"},
    {"ReduceSum", "f32[2,3,4];i64[2] = [0,-1]", "keepdims=0", 1, UL_OK, "f32[3]"},
    {"ReduceSum", "f32[2,3,4];i64[0]", NULL, 1, UL_OK, "f32[1,1,1]"},
    {"ReduceSum", "f32[2,3,4];i64[0]", "noop_with_empty_axes=1", 1, UL_OK, "f32[2,3,4]"},
    {"ReduceSum", "f32[];-", NULL, 1, UL_OK, "f32[]"},
    {"ReduceSum", "f32[2,0,4];i64[1] = [1]", NULL, 1, UL_OK, "f32[2,1,4]"},
    {"ReduceSum", "f32[2,3];i64[1]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"ReduceSum", "f32[2,3];i64[1] = [2]", NULL, 1, UL_INVALID, "axis 2"},
    {"ReduceSum", "f32[2,3];i64[1] = [-9223372036854775808]", NULL, 1, UL_INVALID,
     "axis -9223372036854775808"},
    {"ReduceSum", "f32[2,3];i64[2] = [1,-1]", NULL, 1, UL_INVALID, "listed twice"},
    {"ReduceSum", "f32[2,3];i64[1,2] = [0,1]", NULL, 1, UL_INVALID, "rank"},
    {"ReduceSum", "f32[2,3];f32[1] = [1.0]", NULL, 1, UL_INVALID, "integers"},
    {"ReduceSum", "f32[];i64[1] = [0]", NULL, 1, UL_INVALID, "axis 0"},
    {"ReduceSum", "u8[2]", NULL, 1, UL_UNSUPPORTED, "supported are"},
    {"ReduceMean", "bool[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"ReduceMax", "bool[2,2];i64[1] = [0]", NULL, 1, UL_OK, "bool[1,2]"},
    {"ReduceMin", "i8[2,2];i64[1] = [1]", "keepdims=0", 1, UL_OK, "i8[2]"},
    {"ReduceMax", "f8e5m2[2]", NULL, 1, UL_UNSUPPORTED, "f8e5m2"},
    {"ArgMax", "f32[2,3,4]", "axis=-2", 1, UL_OK, "i64[2,1,4]"},
    {"ArgMin", "u16[2,3,4]", "axis=2, keepdims=0", 1, UL_OK, "i64[2,3]"},
    {"ArgMax", "f32[2,0]", "axis=1", 1, UL_INVALID, "no elements"},
    {"ArgMax", "f32[0,2]", "axis=1", 1, UL_OK, "i64[0,1]"},
    {"ArgMax", "f32[]", NULL, 1, UL_INVALID, "axis 0"},
    {"ArgMax", "f32[2]", "axis=9223372036854775807", 1, UL_INVALID, "axis"},
    {"CumSum", "f32[2,3];i32[] = [-2]", NULL, 1, UL_OK, "f32[2,3]"},
    {"CumSum", "f32[2,3];i32[1] = [1]", NULL, 1, UL_OK, "f32[2,3]"},
    {"CumSum", "f32[2,3];i64[]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"CumSum", "f32[2,3];i64[2] = [0,1]", NULL, 1, UL_INVALID, "one number"},
    {"CumSum", "f32[2,3];i64[] = [2]", NULL, 1, UL_INVALID, "axis 2"},
    {"CumSum", "f32[2,3];f32[] = [1.0]", NULL, 1, UL_UNSUPPORTED, "f32"},
    {"CumProd", "i16[2];i64[] = [0]", NULL, 1, UL_UNSUPPORTED, "i16"},
};

static void shape_rules(void **state)
{
    (void)state;
    case_infer_all(rules, sizeof rules / sizeof *rules);
}

#define FOLD(op, inputs, attributes, ...)                                                          \
    do {                                                                                           \
        static const double wanted[] = {__VA_ARGS__};                                              \
        case_fold(op, inputs, attributes, wanted, sizeof wanted / sizeof *wanted);                 \
    } while (0)

/* The value of nothing. */
static void empty_sets(void **state)
{
    (void)state;
    FOLD("ReduceSum", "f32[0] = []", NULL, 0);
    FOLD("ReduceProd", "f32[0] = []", NULL, 1);
    FOLD("ReduceMax", "f32[0] = []", NULL, -(double)INFINITY);
    FOLD("ReduceMin", "f32[0] = []", NULL, (double)INFINITY);
    FOLD("ReduceMax", "i8[0] = []", NULL, -128);
    FOLD("ReduceMin", "u8[0] = []", NULL, 255);
    FOLD("ReduceMin", "u32[0] = []", NULL, 4294967295.0);
    FOLD("ReduceMax", "bool[0] = []", NULL, 0);
    FOLD("ReduceMin", "bool[0] = []", NULL, 1);
    FOLD("ReduceMean", "f32[0] = []", NULL, (double)NAN);
    FOLD("ReduceMean", "i32[0] = []", NULL, 0);
    FOLD("ReduceLogSum", "f32[0] = []", NULL, -(double)INFINITY);
    FOLD("ReduceLogSumExp", "f32[0] = []", NULL, -(double)INFINITY);
    FOLD("ReduceL2", "f32[0] = []", NULL, 0);
    FOLD("ReduceSum", "f32[2,0] = []; i64[1] = [1]", "keepdims=0", 0, 0);
}

static void integers(void **state)
{
    (void)state;
    FOLD("ReduceMean", "i32[2] = [-3,-4]", NULL, -3);
    FOLD("ReduceSum", "i32[2] = [2147483647,1]", NULL, -2147483648.0);
    FOLD("ReduceL2", "i32[2] = [3,4]", NULL, 5);
    FOLD("ReduceMax", "u64[2] = [1,18446744073709551615]", NULL, 18446744073709551616.0);
    FOLD("ReduceSumSquare", "i64[2] = [-3,4]", NULL, 25);
    FOLD("ReduceL1", "i32[2] = [-3,4]", NULL, 7);
}

/* The largest element may be infinite. */
static void infinities(void **state)
{
    (void)state;
    FOLD("ReduceLogSumExp", "f32[2] = 0x000080ff000080ff", NULL, -(double)INFINITY);
    FOLD("ReduceLogSumExp", "f32[2] = 0x0000807f00000000", NULL, (double)INFINITY);
    FOLD("ReduceLogSumExp", "f32[1] = [1000.0]", NULL, 1000);
    FOLD("ReduceMax", "f32[2] = 0x0000c07f0000803f", NULL, (double)NAN);
    FOLD("ReduceMin", "f32[2] = 0x0000803f0000c07f", NULL, (double)NAN);
}

/* Without axes the steps that are no reduction are still done. */
static void noop(void **state)
{
    (void)state;
    FOLD("ReduceSumSquare", "f32[2] = [2.0,-3.0]", "noop_with_empty_axes=1", 4, 9);
    FOLD("ReduceL1", "f32[2] = [2.0,-3.0]; i64[0] = []", "noop_with_empty_axes=1", 2, 3);
    FOLD("ReduceSum", "f32[2] = [2.0,-3.0]; -", "noop_with_empty_axes=1", 2, -3);
}

/* A NaN beats every number; the first or the last. */
static void arg_of_nan(void **state)
{
    (void)state;
    FOLD("ArgMax", "f32[4] = 0x0000803f0000c07f000000400000c07f", NULL, 1);
    FOLD("ArgMax", "f32[4] = 0x0000803f0000c07f000000400000c07f", "select_last_index=1", 3);
    FOLD("ArgMin", "f32[3] = 0x0000803f0000c07f00000040", NULL, 1);
    FOLD("ArgMax", "f32[4] = [1.0,2.0,2.0,0.0]", NULL, 1);
    FOLD("ArgMax", "f32[4] = [1.0,2.0,2.0,0.0]", "select_last_index=1", 2);
    FOLD("ArgMin", "u64[2] = [18446744073709551615,0]", NULL, 1);
}

static void scans(void **state)
{
    (void)state;
    FOLD("CumSum", "i32[3] = [1,2,3]; i64[] = [0]", "exclusive=1, reverse=1", 5, 3, 0);
    FOLD("CumProd", "i32[3] = [1,2,3]; i64[] = [0]", "exclusive=1, reverse=1", 6, 3, 1);
    FOLD("CumProd", "f32[3] = [1.0,2.0,3.0]; i64[] = [-1]", NULL, 1, 2, 6);
    FOLD("CumSum", "f32[2,2] = [1.0,2.0,3.0,4.0]; i64[] = [0]", NULL, 1, 2, 4, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules), cmocka_unit_test(empty_sets), cmocka_unit_test(integers),
        cmocka_unit_test(infinities),  cmocka_unit_test(noop),       cmocka_unit_test(arg_of_nan),
        cmocka_unit_test(scans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
