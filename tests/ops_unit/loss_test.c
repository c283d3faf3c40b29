/* Shape rules and corner cases of the loss family. */
#include "case.h"

#include <math.h>

static const struct op_case rules[] = {
    {"NegativeLogLikelihoodLoss", "f32[2,3];i64[2]", NULL, 1, UL_OK, "f32[]"},
    {"NegativeLogLikelihoodLoss", "f32[2,3,4];i32[2,4];f32[3]", "reduction=\"none\"", 1, UL_OK,
     "f32[2,4]"},
    {"NegativeLogLikelihoodLoss", "f32[2,3,4];i32[2,5]", NULL, 1, UL_INVALID, "input 1"},
    {"NegativeLogLikelihoodLoss", "f32[2,3,4];i32[2,4];f32[4]", NULL, 1, UL_INVALID, "input 2"},
    {"NegativeLogLikelihoodLoss", "f32[2,3];f32[2]", NULL, 1, UL_UNSUPPORTED, "f32"},
    {"NegativeLogLikelihoodLoss", "f32[2];i64[]", NULL, 1, UL_INVALID, "rank"},
    {"NegativeLogLikelihoodLoss", "f32[2,0];i64[2]", NULL, 1, UL_INVALID, "no classes"},
    {"NegativeLogLikelihoodLoss", "f32[2,3];i64[2]", "reduction=\"max\"", 1, UL_INVALID, "max"},
    {"SoftmaxCrossEntropyLoss", "f32[2,3,4];i64[2,4]", "reduction=\"sum\"", 2, UL_OK,
     "f32[] f32[2,3,4]"},
    {"SoftmaxCrossEntropyLoss", "i32[2,3];i64[2]", NULL, 1, UL_UNSUPPORTED, "i32"},
    {"SoftmaxCrossEntropyLoss", "f32[2,3];i64[2];f64[3]", NULL, 1, UL_INVALID, "differ"},
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

/* An ignored target adds nothing, whatever its score; a class beyond the others may be ignored. */
static void ignored(void **state)
{
    (void)state;
    FOLD("NegativeLogLikelihoodLoss", "f32[2,2] = [-1.0,-3.0,-5.0,-7.0]; i64[2] = [1,-100]",
         "ignore_index=-100", 3);
    FOLD("NegativeLogLikelihoodLoss",
         "f32[2,2] = [-1.0,-3.0,-5.0,-7.0]; i64[2] = [1,0]; f32[2] = [1.0,3.0]", NULL, 3.5);
    FOLD("NegativeLogLikelihoodLoss", "f32[2,2] = [-1.0,-3.0,-5.0,-7.0]; i64[2] = [1,0]",
         "reduction=\"sum\"", 8);
    FOLD("NegativeLogLikelihoodLoss", "f32[1,2] = 0x000080ff00000000; i64[1] = [0]",
         "ignore_index=0, reduction=\"none\"", 0);
    FOLD("NegativeLogLikelihoodLoss", "f32[1,2] = [-1.0,-3.0]; i64[1] = [0]", "ignore_index=0",
         (double)NAN);
    FOLD("NegativeLogLikelihoodLoss", "f32[0,0] = []; i64[0] = []", "reduction=\"sum\"", 0);
    FOLD("SoftmaxCrossEntropyLoss", "f32[1,2] = [1000.0,0.0]; i64[1] = [1]", NULL, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
