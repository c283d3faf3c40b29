/* Shape rules and corner cases of the signal family. */
#include "case.h"

static const struct op_case rules[] = {
    {"HannWindow", "i32[] = [10]", NULL, 1, UL_OK, "f32[10]"},
    {"HannWindow", "i64[] = [0]", "output_datatype=11", 1, UL_OK, "f64[0]"},
    {"HannWindow", "i64[] = [-1]", NULL, 1, UL_INVALID, "size of the window"},
    {"HannWindow", "i64[] = [9223372036854775807]", NULL, 1, UL_INVALID, "size of the window"},
    {"HannWindow", "i64[]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"HannWindow", "i64[] = [10]", "output_datatype=9", 1, UL_UNSUPPORTED, "output_datatype 9"},
    {"HammingWindow", "i64[] = [10]", "output_datatype=-1", 1, UL_UNSUPPORTED,
     "output_datatype -1"},
    {"BlackmanWindow", "i64[2] = [1,2]", NULL, 1, UL_INVALID, "one number"},
    {"MelWeightMatrix", "i64[] = [8];i64[] = [16];i64[] = [8192];f32[] = [0.0];f32[] = [4096.0]",
     NULL, 1, UL_OK, "f32[9,8]"},
    {"MelWeightMatrix", "i64[] = [8];i64[] = [-16];i64[];f32[];f32[]", NULL, 1, UL_INVALID,
     "dft_length"},
    {"MelWeightMatrix", "i64[];i64[] = [16];i64[];f32[];f32[]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"DFT", "f32[2,5,1]", NULL, 1, UL_OK, "f32[2,5,2]"},
    {"DFT", "f32[2,5,1];i64[] = [8];i64[] = [1]", "onesided=1", 1, UL_OK, "f32[2,5,2]"},
    {"DFT", "f32[2,5,2];-;-", "onesided=1, inverse=1", 1, UL_OK, "f32[2,8,1]"},
    {"DFT", "f32[2,1,2];-;-", "onesided=1, inverse=1", 1, UL_INVALID, "length"},
    {"DFT", "f32[2,5,1];i64[] = [0]", NULL, 1, UL_INVALID, "length"},
    {"DFT", "f32[2,5,1];i64[] = [4294967296]", NULL, 1, UL_INVALID, "length"},
    {"DFT", "f32[2,5,1];-;i64[] = [2]", NULL, 1, UL_INVALID, "last dimension"},
    {"DFT", "f32[2,5,1];-;i64[] = [-1]", NULL, 1, UL_INVALID, "last dimension"},
    {"DFT", "f32[2,5,1];-;i64[] = [3]", NULL, 1, UL_INVALID, "axis 3"},
    {"DFT", "f32[2,5,3]", NULL, 1, UL_INVALID, "real or complex"},
    {"DFT", "f32[5]", NULL, 1, UL_INVALID, "rank"},
    {"DFT", "i32[2,5,1]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"DFT", "f32[2,5,1];i64[]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"STFT", "f32[1,16,1];i64[] = [4];f32[8]", NULL, 1, UL_OK, "f32[1,3,5,2]"},
    {"STFT", "f32[1,16,2];i64[] = [4];-;i64[] = [8]", "onesided=0", 1, UL_OK, "f32[1,3,8,2]"},
    {"STFT", "f32[1,16,1];i64[] = [0];f32[8]", NULL, 1, UL_INVALID, "frame step"},
    {"STFT", "f32[1,16,1];i64[] = [4];f32[17]", NULL, 1, UL_INVALID, "frame length"},
    {"STFT", "f32[1,16,1];i64[] = [4];f32[8];i64[] = [4]", NULL, 1, UL_INVALID, "window"},
    {"STFT", "f32[16,1];i64[] = [4];f32[8]", NULL, 1, UL_INVALID, "rank"},
    {"STFT", "f32[1,16,1];i64[] = [4];f64[8]", NULL, 1, UL_INVALID, "differ"},
    {"Det", "f32[2,3,3]", NULL, 1, UL_OK, "f32[2]"},
    {"Det", "f32[3,2]", NULL, 1, UL_INVALID, "square"},
    {"Det", "f32[3]", NULL, 1, UL_INVALID, "rank"},
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

static void windows(void **state)
{
    (void)state;
    FOLD("HannWindow", "i64[] = [4]", NULL, 0, 0.5, 1, 0.5);
    FOLD("HannWindow", "i64[] = [3]", "output_datatype=6, periodic=0", 0, 1, 0);
}

static void determinants(void **state)
{
    (void)state;
    FOLD("Det", "f32[2,2] = [2.0,2.0,1.0,3.0]", NULL, 4);
    FOLD("Det", "f32[2,2] = [0.0,2.0,3.0,4.0]", NULL, -6);
    FOLD("Det", "f32[3,3] = [0.0,0.0,1.0,0.0,1.0,0.0,1.0,0.0,0.0]", NULL, -1);
    FOLD("Det", "f32[2,2] = [1.0,2.0,2.0,4.0]", NULL, 0);
    FOLD("Det", "f32[0,0] = []", NULL, 1);
    FOLD("Det", "f32[2,1,1] = [3.0,-4.0]", NULL, 3, -4);
}

static void transforms(void **state)
{
    (void)state;
    FOLD("DFT", "f64[1,1,1] = [3.0]", NULL, 3, 0);
    FOLD("DFT", "f64[1,3,1] = [3.0,5.0,7.0]; i64[] = [1]", NULL, 3, 0);
    FOLD("DFT", "f64[1,2,2] = [4.0,0.0,-2.0,9.0]; i64[] = [1]", "inverse=1", 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(windows),
        cmocka_unit_test(determinants),
        cmocka_unit_test(transforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
