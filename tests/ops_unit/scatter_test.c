/* Shape rules and corner cases of the scatter family. */
#include "case.h"

static const struct op_case rules[] = {
    {"ScatterElements", "f32[3,3];i64[2,3];f32[2,3]", NULL, 1, UL_OK, "f32[3,3]"},
    {"ScatterElements", "f32[3,3];i64[5,3];f32[5,3]", NULL, 1, UL_OK, "f32[3,3]"},
    {"ScatterElements", "f32[3,3];i64[3,5];f32[3,5]", NULL, 1, UL_INVALID, "dimension 1"},
    {"ScatterElements", "f32[0,3];i64[1,3];f32[1,3]", NULL, 1, UL_INVALID, "dimension 0"},
    {"ScatterElements", "f32[0,3];i64[0,3];f32[0,3]", NULL, 1, UL_OK, "f32[0,3]"},
    {"ScatterElements", "f32[3];i64[2];f32[3]", NULL, 1, UL_INVALID, "input 2"},
    {"ScatterElements", "f32[3];i64[2,1];f32[2,1]", NULL, 1, UL_INVALID, "rank"},
    {"ScatterElements", "f32[3];i64[2];f64[2]", NULL, 1, UL_INVALID, "differ"},
    {"ScatterElements", "f32[3];f32[2];f32[2]", NULL, 1, UL_UNSUPPORTED, "f32"},
    {"ScatterElements", "f32[3];i64[2];f32[2]", "axis=1", 1, UL_INVALID, "axis 1"},
    {"ScatterElements", "f32[3];i64[2];f32[2]", "reduction=\"mean\"", 1, UL_INVALID, "mean"},
    {"ScatterND", "f32[4,5];i64[2,1];f32[2,5]", NULL, 1, UL_OK, "f32[4,5]"},
    {"ScatterND", "f32[4,5];i64[2,2];f32[2]", "reduction=\"max\"", 1, UL_OK, "f32[4,5]"},
    {"ScatterND", "f32[4,5];i64[2,3];f32[2]", NULL, 1, UL_INVALID, "last dimension"},
    {"ScatterND", "f32[4,5];i64[];f32[2]", NULL, 1, UL_INVALID, "rank"},
    {"ScatterND", "f32[4,5];i64[2,1];f32[2,4]", NULL, 1, UL_INVALID, "input 2"},
    {"ScatterND", "f32[0,5];i64[2,1];f32[2,5]", NULL, 1, UL_INVALID, "empty"},
    {"ScatterND", "f32[1,1,1,1,1];i64[1,1,1,1,1,0];f32[1]", NULL, 1, UL_INVALID, "rank 10"},
    {"TensorScatter", "f32[2,8,4];f32[2,3,4];i64[2]", NULL, 1, UL_OK, "f32[2,8,4]"},
    {"TensorScatter", "f32[2,8,4];f32[2,9,4]", NULL, 1, UL_INVALID, "length of the update"},
    {"TensorScatter", "f32[2,8,4];f32[2,3,5]", NULL, 1, UL_INVALID, "input 1"},
    {"TensorScatter", "f32[2,8,4];f32[2,3,4];i64[3]", NULL, 1, UL_INVALID, "input 2"},
    {"TensorScatter", "f32[2,8];f32[1,8]", "axis=0", 1, UL_INVALID, "batch"},
    {"TensorScatter", "f32[2,8,4];f32[2,3,4]", "mode=\"ring\"", 1, UL_INVALID, "ring"},
    {"MaxUnpool", "f32[1,1,2,2];i64[1,1,2,2]", "kernel_shape=ints[2,2], strides=ints[2,2]", 1,
     UL_OK, "f32[1,1,4,4]"},
    {"MaxUnpool", "f32[1,1,2,2];i64[1,1,2,2];i64[4] = [1,1,5,5]",
     "kernel_shape=ints[2,2], strides=ints[2,2]", 1, UL_OK, "f32[1,1,5,5]"},
    {"MaxUnpool", "f32[1,1,2,2];i64[1,1,2,2];i64[4] = [1,1,3,5]",
     "kernel_shape=ints[2,2], strides=ints[2,2]", 1, UL_INVALID, "output_shape[2]"},
    {"MaxUnpool", "f32[1,1,2,2];i64[1,1,2,2];i64[3] = [1,1,5]",
     "kernel_shape=ints[2,2], strides=ints[2,2]", 1, UL_INVALID, "entries"},
    {"MaxUnpool", "f32[1,1,2,2];i64[1,1,2,2];i64[4]", "kernel_shape=ints[2,2]", 1, UL_UNSUPPORTED,
     "--const"},
    {"MaxUnpool", "f32[1,1,2,2];i64[1,1,2]", "kernel_shape=ints[2,2]", 1, UL_INVALID, "input 1"},
    {"MaxUnpool", "f32[1,1,2];i64[1,1,2]", "kernel_shape=ints[2], pads=ints[2,2]", 1, UL_INVALID,
     "no output shape"},
    {"MaxUnpool", "f32[1,1,2];i64[1,1,2]", "kernel_shape=ints[1], pads=ints[1,1]", 1, UL_INVALID,
     "would be empty"},
    {"MaxUnpool", "f32[1,1,1099511627776];i64[1,1,1099511627776]",
     "kernel_shape=ints[2], strides=ints[2147483647]", 1, UL_INVALID, "no output shape"},
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

/* Of updates to one element the last in memory stands; others combine in that order. */
static void order(void **state)
{
    (void)state;
    FOLD("ScatterElements", "f32[3] = [1.0,2.0,3.0]; i64[3] = [1,1,-1]; f32[3] = [7.0,8.0,9.0]",
         NULL, 1, 8, 9);
    FOLD("ScatterElements", "i32[2] = [1,2]; i64[3] = [1,1,1]; i32[3] = [7,8,9]",
         "reduction=\"add\"", 1, 26);
    FOLD("ScatterElements", "u8[2] = [1,200]; i64[1] = [1]; u8[1] = [100]", "reduction=\"add\"", 1,
         44);
    FOLD("ScatterElements", "bool[2] = [0,1]; i64[2] = [0,1]; bool[2] = [1,0]", "reduction=\"mul\"",
         0, 0);
    FOLD("ScatterElements", "bool[2] = [0,1]; i64[2] = [0,1]; bool[2] = [1,0]", "reduction=\"add\"",
         1, 1);
    FOLD("ScatterND",
         "f32[2,2] = [1.0,2.0,3.0,4.0]; i64[2,1] = [1,1]; f32[2,2] = [5.0,6.0,7.0,8.0]", NULL, 1, 2,
         7, 8);
    FOLD("ScatterND", "f32[2,2] = [1.0,2.0,3.0,4.0]; i64[2,2] = [1,1,-1,-1]; f32[2] = [5.0,6.0]",
         "reduction=\"mul\"", 1, 2, 3, 120);
    FOLD("ScatterND", "f32[2] = [1.0,2.0]; i64[0] = []; f32[2] = [5.0,6.0]", NULL, 5, 6);
}

static void caches(void **state)
{
    (void)state;
    FOLD("TensorScatter", "i8[1,4,1] = [1,2,3,4]; i8[1,2,1] = [8,9]; i64[1] = [3]",
         "mode=\"circular\"", 9, 2, 3, 8);
    FOLD("TensorScatter", "i8[1,4,1] = [1,2,3,4]; i8[1,2,1] = [8,9]; i64[1] = [-1]",
         "mode=\"circular\"", 9, 2, 3, 8);
    FOLD("TensorScatter", "i8[1,4,1] = [1,2,3,4]; i8[1,2,1] = [8,9]; i64[1] = [2]", NULL, 1, 2, 8,
         9);
    FOLD("TensorScatter", "i8[1,4,1] = [1,2,3,4]; i8[1,2,1] = [8,9]", NULL, 8, 9, 3, 4);
    FOLD("TensorScatter", "i8[1,2,1] = [1,2]; i8[1,0,1] = []; i64[1] = [2]", NULL, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(order),
        cmocka_unit_test(caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
