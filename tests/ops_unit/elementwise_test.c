/* Shape rules and corner cases of the elementwise family. */
#include "case.h"

#include <math.h>

static const struct op_case rules[] = {
    {"Relu", "f32[2,3]", NULL, 1, UL_OK, "f32[2,3]"},
    {"Relu", "u8[2]", NULL, 1, UL_UNSUPPORTED, "supported are"},
    {"Relu", "bool[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"Sqrt", "i32[2]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"Exp", "c64[2]", NULL, 1, UL_UNSUPPORTED, "c64"},
    {"Not", "f32[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"And", "bool[2];bool[3]", NULL, 1, UL_INVALID, "broadcast"},
    {"Add", "f32[2,3];f32[3,1,1]", NULL, 1, UL_OK, "f32[3,2,3]"},
    {"Add", "bool[2];bool[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"Add", "f8e5m2[2];f8e5m2[2]", NULL, 1, UL_UNSUPPORTED, "f8e5m2"},
    {"Less", "bool[2];bool[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"Equal", "bool[2];bool[1]", NULL, 1, UL_OK, "bool[2]"},
    {"Max", "f32[2];-;f32[2]", NULL, 1, UL_INVALID, "input 1 is required"},
    {"Max", "f32[2];f32[4,1];f32[1]", NULL, 1, UL_OK, "f32[4,2]"},
    {"Mean", "i32[2]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"PRelu", "f32[2,3];f32[2,1,3]", NULL, 1, UL_INVALID, "slope"},
    {"PRelu", "f32[2,3];f16[3]", NULL, 1, UL_INVALID, "type"},
    {"Pow", "i32[2];f32[2]", NULL, 1, UL_OK, "i32[2]"},
    {"Pow", "f32[2];bool[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"Pow", "f32[2];f32[3]", NULL, 1, UL_INVALID, "broadcast"},
    {"Clip", "f32[2];f32[2]", NULL, 1, UL_INVALID, "one number"},
    {"Clip", "f32[2];-;f32[1]", NULL, 1, UL_OK, "f32[2]"},
    {"Clip", "f32[2];f64[]", NULL, 1, UL_INVALID, "type"},
    {"BitShift", "u8[2];u8[2]", NULL, 1, UL_INVALID, "direction"},
    {"BitShift", "u8[2];u8[2]", "direction=\"UP\"", 1, UL_INVALID, "\"UP\""},
    {"BitShift", "i8[2];i8[2]", "direction=\"LEFT\"", 1, UL_UNSUPPORTED, "i8"},
    {"Gelu", "f32[2]", "approximate=\"fast\"", 1, UL_INVALID, "approximate"},
    {"Where", "f32[2];f32[2];f32[2]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"Where", "bool[2];f32[2];f64[2]", NULL, 1, UL_INVALID, "differ"},
    {"Where", "bool[3];f32[2];f32[2]", NULL, 1, UL_INVALID, "broadcast"},
    {"Where", "bool[4,1];i4[3];i4[]", NULL, 1, UL_OK, "i4[4,3]"},
    {"Cast", "f32[2]", NULL, 1, UL_UNSUPPORTED, "element type 0"},
    {"Cast", "f32[2]", "to=-7", 1, UL_UNSUPPORTED, "element type -7"},
    {"Cast", "f32[2]", "to=9223372036854775807", 1, UL_UNSUPPORTED, "element type"},
    {"Cast", "f32[2]", "to=8", 1, UL_UNSUPPORTED, "element type 8"},
    {"Cast", "f32[2]", "to=17", 1, UL_OK, "f8e4m3fn[2]"},
    {"Cast", "f32[2]", "to=\"i64\"", 1, UL_UNSUPPORTED, "element type"},
    {"CastLike", "f32[2];i4[]", NULL, 1, UL_OK, "i4[2]"},
    {"BitCast", "f32[2]", "to=7", 1, UL_INVALID, "size"},
    {"BitCast", "f32[2]", "to=6", 1, UL_OK, "i32[2]"},
    {"BitCast", "f8e5m2[2]", "to=3", 1, UL_UNSUPPORTED, "f8e5m2"},
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

static void nan_and_infinity(void **state)
{
    (void)state;
    FOLD("Relu", "f32[3] = 0x0000c07f000080ff0000807f", NULL, (double)NAN, 0, (double)INFINITY);
    FOLD("Sign", "f32[3] = 0x0000c07f000080ff00000000", NULL, (double)NAN, -1, 0);
    FOLD("Max", "f32[2] = 0x0000c07f0000803f; f32[2] = [5.0,5.0]", NULL, (double)NAN, 5);
    FOLD("Min", "f32[2] = [5.0,5.0]; f32[2] = 0x0000c07f0000803f", NULL, (double)NAN, 1);
    FOLD("Clip", "f32[3] = 0x0000c07f000080ff0000807f; f32[] = [-1.0]; f32[] = [1.0]", NULL,
         (double)NAN, -1, 1);
    FOLD("IsInf", "f32[3] = 0x0000c07f000080ff0000807f", "detect_negative=0", 0, 0, 1);
    FOLD("IsInf", "f32[3] = 0x0000c07f000080ff0000807f", "detect_positive=0", 0, 1, 0);
    FOLD("IsInf", "f32[2] = 0x000080ff0000807f", "detect_positive=0, detect_negative=0", 0, 0);
    FOLD("Sigmoid", "f32[2] = [-1000.0,1000.0]", NULL, 0, 1);
    FOLD("Softplus", "f32[2] = [-1000.0,1000.0]", NULL, 0, 1000);
    FOLD("Mish", "f32[2] = [100.0,0.0]", NULL, 100, 0);
}

static void integers(void **state)
{
    (void)state;
    FOLD("Add", "u8[2] = [250,1]; u8[2] = [10,2]", NULL, 4, 3);
    FOLD("Neg", "i8[2] = [-128,5]", NULL, -128, -5);
    FOLD("Div", "i32[4] = [7,-7,7,-2147483648]; i32[4] = [2,2,0,-1]", NULL, 3, -3, 0,
         -2147483648.0);
    FOLD("Mod", "i32[3] = [-7,7,5]; i32[3] = [3,-3,0]", NULL, 2, -2, 0);
    FOLD("Mod", "i32[3] = [-7,7,5]; i32[3] = [3,-3,0]", "fmod=1", -1, 1, 0);
    FOLD("Pow", "i32[4] = [2,3,-2,7]; i32[4] = [10,3,3,0]", NULL, 1024, 27, -8, 1);
    FOLD("Pow", "i32[2] = [4,9]; f32[] = [0.5]", NULL, 2, 3);
    FOLD("Pow", "f32[2] = [3.0,-2.0]; i64[] = [2]", NULL, 9, 4);
    FOLD("BitShift", "u8[3] = [255,1,129]; u8[3] = [1,9,7]", "direction=\"LEFT\"", 254, 0, 128);
    FOLD("BitShift", "u16[2] = [65535,1]; u16[2] = [8,1]", "direction=\"RIGHT\"", 255, 0);
    FOLD("BitwiseNot", "u8[2] = [0,170]", NULL, 255, 85);
    FOLD("Shrink", "i32[4] = [-3,-1,1,3]", "lambd=1.5, bias=1.5", -1, 0, 0, 1);
    FOLD("Max", "u64[2] = [18446744073709551615,1]; u64[2] = [5,5]", NULL, 18446744073709551615.0,
         5);
}

static void casts(void **state)
{
    (void)state;
    FOLD("Cast", "f32[3] = [300.0,-300.0,1.9]", "to=3", 127, -128, 1);
    FOLD("Cast", "i32[3] = [200,-200,5]", "to=3", -56, 56, 5);
    FOLD("Cast", "f32[2] = [0.5,0.0]", "to=9", 1, 0);
    FOLD("Cast", "f32[4] = [-9.0,-8.0,7.9,15.0]", "to=22", 7, -8, 7, -1);
    FOLD("Cast", "f32[3] = [1000.0,-1000.0,0.3]", "to=17", 448, -448, 0.3125);
    FOLD("Cast", "f32[1] = [1000.0]", "to=17, saturate=0", (double)NAN);
    FOLD("Cast", "f32[1] = [100000.0]", "to=19, saturate=0", (double)INFINITY);
    FOLD("Cast", "f32[2] = [100000.0,2049.0]", "to=10", (double)INFINITY, 2048);
    FOLD("BitCast", "f32[2] = [1.0,-0.0]", "to=12", 1065353216, 2147483648.0);
    FOLD("BitCast", "f16[5] = [1.0,-2.0,0.000000059604644775390625,65504.0,0.0]", "to=4", 0x3c00,
         0xc000, 1, 0x7bff, 0);
    FOLD("BitCast", "u16[5] = [15360,49152,1,31743,31744]", "to=10", 1, -2, 0x1p-24, 65504,
         (double)INFINITY);
    FOLD("BitCast", "bf16[2] = [1.0,-3.0]", "to=5", 0x3f80, -16320);
    FOLD("BitCast", "u8[2] = [255,1]", "to=3", -1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(nan_and_infinity),
        cmocka_unit_test(integers),
        cmocka_unit_test(casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
