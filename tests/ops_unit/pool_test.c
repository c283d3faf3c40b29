/* Shape rules and corner cases of the pool family. */
#include "case.h"

#include <math.h>

static const struct op_case rules[] = {
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[3,3], strides=ints[2,2]", 1, UL_OK,
     "f32[1,2,2,2]"},
    {"MaxPool", "f32[1,2,4,4]", "kernel_shape=ints[3,3], strides=ints[2,2], ceil_mode=1", 2, UL_OK,
     "f32[1,2,2,2] i64[1,2,2,2]"},
    {"MaxPool", "f32[1,1,2]", "kernel_shape=ints[1], strides=ints[2], ceil_mode=1, pads=ints[0,1]",
     1, UL_OK, "f32[1,1,1]"},
    {"MaxPool", "f32[1,1,5]", "kernel_shape=ints[2], strides=ints[2], auto_pad=\"SAME_UPPER\"", 1,
     UL_OK, "f32[1,1,3]"},
    {"MaxPool", "f32[1,1,5]", "kernel_shape=ints[2], strides=ints[2], auto_pad=\"VALID\"", 1, UL_OK,
     "f32[1,1,2]"},
    {"MaxPool", "f32[1,1,5]", "kernel_shape=ints[2], auto_pad=\"SAME\"", 1, UL_INVALID, "auto_pad"},
    {"MaxPool", "f32[1,2,5,5]", NULL, 1, UL_INVALID, "kernel_shape"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[3]", 1, UL_INVALID, "kernel_shape"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=3", 1, UL_INVALID, "kernel_shape"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[0,1]", 1, UL_INVALID, "kernel_shape"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[9223372036854775807,1]", 1, UL_INVALID,
     "kernel_shape"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[1,1], strides=ints[0,1]", 1, UL_INVALID,
     "strides"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[1,1], dilations=ints[1,-1]", 1, UL_INVALID,
     "dilations"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[2147483647,1], dilations=ints[2147483647,1]", 1,
     UL_INVALID, "larger than"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[1,1], pads=ints[0,0,-1,0]", 1, UL_INVALID,
     "pads"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[1,1], pads=ints[0,0]", 1, UL_INVALID, "pads"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[6,1]", 1, UL_INVALID, "larger than"},
    {"MaxPool", "f32[1,2,5,5]", "kernel_shape=ints[1,1], storage_order=2", 1, UL_INVALID,
     "storage_order"},
    {"MaxPool", "f32[1,2]", "kernel_shape=ints[1]", 1, UL_INVALID, "spatial"},
    {"MaxPool", "i32[1,2,3]", "kernel_shape=ints[1]", 1, UL_UNSUPPORTED, "i32"},
    {"MaxPool", "u8[1,2,3]", "kernel_shape=ints[2]", 1, UL_OK, "u8[1,2,2]"},
    {"AveragePool", "u8[1,2,3]", "kernel_shape=ints[2]", 1, UL_UNSUPPORTED, "u8"},
    {"AveragePool", "f32[1,1,1099511627776]", "kernel_shape=ints[1], strides=ints[2147483647]", 1,
     UL_OK, "f32[1,1,513]"},
    {"LpPool", "f32[1,1,3]", "kernel_shape=ints[2], p=0", 1, UL_INVALID, "p is 0"},
    {"GlobalMaxPool", "f32[1,2,3,4]", NULL, 1, UL_OK, "f32[1,2,1,1]"},
    {"GlobalAveragePool", "f32[3]", NULL, 1, UL_INVALID, "rank"},
    {"GlobalLpPool", "f32[1,2,3]", "p=-1", 1, UL_INVALID, "p is -1"},
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

static void max(void **state)
{
    (void)state;
    FOLD("MaxPool", "i8[1,1,3] = [-5,-7,-6]", "kernel_shape=ints[2], pads=ints[1,1]", -5, -5, -6,
         -6);
    FOLD("MaxPool", "u8[1,1,4] = [1,200,3,4]", "kernel_shape=ints[2], dilations=ints[2]", 3, 200);
    FOLD("MaxPool", "f32[1,1,3] = 0x0000803f0000c07f00000040", "kernel_shape=ints[2]", (double)NAN,
         (double)NAN);
    FOLD("MaxPool", "f32[1,1,2,1] = [1.0,2.0]",
         "kernel_shape=ints[1,1], strides=ints[1,3], ceil_mode=1", 1, 2);
    FOLD("GlobalMaxPool", "f32[1,1,2] = 0x0000c07f0000803f", NULL, (double)NAN);
}

/* A divisor counts what is inside, or what is inside the padding; never what ceil_mode adds. */
static void averages(void **state)
{
    (void)state;
    FOLD("AveragePool", "f32[1,1,3] = [3.0,6.0,9.0]", "kernel_shape=ints[2], pads=ints[1,1]", 3,
         4.5, 7.5, 9);
    FOLD("AveragePool", "f32[1,1,3] = [3.0,6.0,9.0]",
         "kernel_shape=ints[2], pads=ints[1,1], count_include_pad=1", 1.5, 4.5, 7.5, 4.5);
    FOLD("AveragePool", "f32[1,1,3] = [3.0,6.0,9.0]",
         "kernel_shape=ints[2], strides=ints[2], ceil_mode=1, count_include_pad=1", 4.5, 9);
    FOLD("AveragePool", "f32[1,1,1] = [3.0]", "kernel_shape=ints[1], pads=ints[1,1]", 0, 3, 0);
    FOLD("LpPool", "f32[1,1,3] = [3.0,-4.0,0.0]", "kernel_shape=ints[2]", 5, 4);
    FOLD("GlobalAveragePool", "f32[1,2,2] = [1.0,2.0,3.0,4.0]", NULL, 1.5, 3.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(max),
        cmocka_unit_test(averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
