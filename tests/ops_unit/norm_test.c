/* Shape rules and corner cases of the norm family. */
#include "case.h"

#include <math.h>

static const struct op_case rules[] = {
    {"Softmax", "f32[2,3]", "axis=-2", 1, UL_OK, "f32[2,3]"},
    {"Softmax", "f32[2,3]", "axis=2", 1, UL_INVALID, "axis 2"},
    {"Softmax", "f32[2,3]", "axis=2, ul_flatten_axis=1", 1, UL_OK, "f32[2,3]"},
    {"Softmax", "f32[2,3]", "axis=3, ul_flatten_axis=1", 1, UL_INVALID, "axis 3"},
    {"Softmax", "f32[2,3]", "axis=-9223372036854775808", 1, UL_INVALID, "axis"},
    {"Softmax", "f32[]", NULL, 1, UL_INVALID, "axis -1"},
    {"Softmax", "i32[2]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"LogSoftmax", "f16[0,3]", NULL, 1, UL_OK, "f16[0,3]"},
    {"Hardmax", "bool[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"BatchNormalization", "f32[2,3,4];f32[3];f32[3];f32[3];f32[3]", NULL, 1, UL_OK, "f32[2,3,4]"},
    {"BatchNormalization", "f16[2,3];f32[3];f32[3];f64[3];f64[3]", "training_mode=1", 3, UL_OK,
     "f16[2,3] f64[3] f64[3]"},
    {"BatchNormalization", "f32[5];f32[1];f32[1];f32[1];f32[1]", NULL, 1, UL_OK, "f32[5]"},
    {"BatchNormalization", "f32[2,3];f32[3];f32[3];f32[3];f32[3]", NULL, 3, UL_INVALID,
     "training mode"},
    {"BatchNormalization", "f32[2,3];f32[4];f32[3];f32[3];f32[3]", NULL, 1, UL_INVALID, "input 1"},
    {"BatchNormalization", "f32[2,3];f32[3];f32[3];f32[3,1];f32[3]", NULL, 1, UL_INVALID,
     "input 3"},
    {"BatchNormalization", "f32[2,3];f32[3];f16[3];f32[3];f32[3]", NULL, 1, UL_INVALID, "differ"},
    {"BatchNormalization", "f32[];f32[1];f32[1];f32[1];f32[1]", NULL, 1, UL_INVALID, "rank"},
    {"BatchNormalization", "i32[2,3];f32[3];f32[3];f32[3];f32[3]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"InstanceNormalization", "f32[2,3,4];f32[3];f32[3]", NULL, 1, UL_OK, "f32[2,3,4]"},
    {"InstanceNormalization", "f32[2,3,4];f32[2];f32[3]", NULL, 1, UL_INVALID, "input 1"},
    {"InstanceNormalization", "f32[2];f32[2];f32[2]", NULL, 1, UL_INVALID, "rank"},
    {"LayerNormalization", "f16[2,3,4];f16[3,4];f16[4]", "axis=1", 3, UL_OK,
     "f16[2,3,4] f32[2,1,1] f32[2,1,1]"},
    {"LayerNormalization", "f32[2,3];f32[3]", "stash_type=16", 2, UL_OK, "f32[2,3] bf16[2,1]"},
    {"LayerNormalization", "f32[2,3];f32[3]", "stash_type=7", 1, UL_UNSUPPORTED, "stash_type 7"},
    {"LayerNormalization", "f32[2,3];f32[3]", "stash_type=-1", 1, UL_UNSUPPORTED, "stash_type -1"},
    {"LayerNormalization", "f32[2,3];f32[2,2,3]", NULL, 1, UL_INVALID, "input 1"},
    {"LayerNormalization", "f32[1,3];f32[2,3]", NULL, 1, UL_INVALID, "input 1"},
    {"LayerNormalization", "f32[2,3];f32[3]", "axis=2", 1, UL_INVALID, "axis 2"},
    {"RMSNormalization", "f16[2,3];f32[3]", NULL, 1, UL_OK, "f32[2,3]"},
    {"RMSNormalization", "f16[2,3];i32[3]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"GroupNormalization", "f32[2,6,4];f32[6];f32[6]", "num_groups=3", 1, UL_OK, "f32[2,6,4]"},
    {"GroupNormalization", "f32[2,6,4];f32[3];f32[3]", "num_groups=3", 1, UL_OK, "f32[2,6,4]"},
    {"GroupNormalization", "f32[2,6,4];f32[6];f32[6]", "num_groups=4", 1, UL_INVALID,
     "do not divide"},
    {"GroupNormalization", "f32[2,6,4];f32[6];f32[6]", NULL, 1, UL_INVALID, "num_groups"},
    {"GroupNormalization", "f32[2,6,4];f32[5];f32[6]", "num_groups=3", 1, UL_INVALID, "input 1"},
    {"GroupNormalization", "f32[1,2,1,1,1,1,1,1];f32[2];f32[2]", "num_groups=2", 1, UL_INVALID,
     "rank"},
    {"MeanVarianceNormalization", "f32[2,3,4,5]", NULL, 1, UL_OK, "f32[2,3,4,5]"},
    {"MeanVarianceNormalization", "f32[2,3]", NULL, 1, UL_INVALID, "axis"},
    {"MeanVarianceNormalization", "f32[2,3]", "axes=ints[-3]", 1, UL_INVALID, "axis"},
    {"LRN", "f32[2,3,4]", "size=3", 1, UL_OK, "f32[2,3,4]"},
    {"LRN", "f32[2,3,4]", NULL, 1, UL_INVALID, "size"},
    {"LRN", "f32[2,3,4]", "size=9223372036854775807", 1, UL_INVALID, "size"},
    {"LRN", "f32[3]", "size=3", 1, UL_INVALID, "rank"},
    {"LpNormalization", "f32[2,3]", "axis=0, p=1", 1, UL_OK, "f32[2,3]"},
    {"LpNormalization", "f32[2,3]", "p=3", 1, UL_INVALID, "p is 3"},
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

static void rows(void **state)
{
    (void)state;
    FOLD("Softmax", "f32[2,2] = [0.0,0.0,1000.0,1000.0]", NULL, 0.5, 0.5, 0.5, 0.5);
    FOLD("Softmax", "f32[2,2] = [0.0,0.0,0.0,0.0]", "axis=1, ul_flatten_axis=1", 0.5, 0.5, 0.5,
         0.5);
    FOLD("Softmax", "f32[1,2,2] = [0.0,0.0,0.0,0.0]", "axis=0, ul_flatten_axis=1", 0.25, 0.25, 0.25,
         0.25);
    FOLD("Softmax", "f32[2] = [7.0,8.0]", "axis=1, ul_flatten_axis=1", 1, 1);
    FOLD("Softmax", "f32[2] = 0x000080ff000080ff", NULL, (double)NAN, (double)NAN);
    FOLD("LogSoftmax", "f32[1,1] = [5.0]", NULL, 0);
    FOLD("Hardmax", "f32[2,3] = [1.0,3.0,3.0,0.0,0.0,0.0]", NULL, 0, 1, 0, 1, 0, 0);
    FOLD("Hardmax", "f32[3] = 0x0000803f0000c07f00000040", NULL, 0, 1, 0);
    FOLD("Hardmax", "f32[2,2] = [1.0,2.0,3.0,2.0]", "axis=0", 0, 1, 1, 0);
}

static void zero_norms(void **state)
{
    (void)state;
    FOLD("LpNormalization", "f32[2,2] = [0.0,0.0,3.0,4.0]", "p=1", 0, 0, 0x1.b6db6ep-2,
         0x1.24924ap-1);
    FOLD("LpNormalization", "f32[2,2] = [0.0,0.0,0.0,-4.0]", NULL, 0, 0, 0, -1);
}

/* The window of LRN: for an even size the longer half lies behind. */
static void neighbours(void **state)
{
    (void)state;
    FOLD("LRN", "f32[1,4,1] = [1.0,2.0,3.0,4.0]", "size=2, alpha=2.0, beta=1.0, bias=0.0",
         0x1.99999ap-3, 0x1.3b13b2p-3, 0x1.eb851ep-4, 0.25);
    FOLD("LRN", "f32[1,1] = [2.0]", "size=1000000, alpha=1000000.0, beta=0.5, bias=0.0", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(rows),
        cmocka_unit_test(zero_norms),
        cmocka_unit_test(neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
