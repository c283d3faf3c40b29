/* Shape rules and corner cases of the sort family. */
#include "case.h"
#include "ir/infer.h"

#include <math.h>

static const struct op_case rules[] = {
    {"TopK", "f32[2,5];i64[1] = [3]", NULL, 2, UL_OK, "f32[2,3] i64[2,3]"},
    {"TopK", "f32[2,5];i64[1] = [2]", "axis=0", 1, UL_OK, "f32[2,5]"},
    {"TopK", "f32[2,5];i64[1] = [0]", NULL, 1, UL_OK, "f32[2,0]"},
    {"TopK", "f32[2,5];i64[1] = [6]", NULL, 1, UL_INVALID, "k is 6"},
    {"TopK", "f32[2,5];i64[1] = [-1]", NULL, 1, UL_INVALID, "k is -1"},
    {"TopK", "f32[2,5];i64[1]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"TopK", "f32[2,5];i64[2] = [1,2]", NULL, 1, UL_INVALID, "one number"},
    {"TopK", "f32[];i64[1] = [1]", NULL, 1, UL_INVALID, "axis -1"},
    {"TopK", "bool[2];i64[1] = [1]", NULL, 1, UL_UNSUPPORTED, "bool"},
    {"NonMaxSuppression", "f32[1,2,4];f32[1,1,2]", NULL, 1, UL_UNSUPPORTED, "depends on the data"},
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

/* The lower index comes first; a NaN is larger than every number. */
static void ties(void **state)
{
    (void)state;
    FOLD("TopK", "f32[4] = 0x0000803f0000c07f000000400000807f; i64[1] = [3]", NULL, (double)NAN,
         (double)INFINITY, 2);
    FOLD("TopK", "f32[3] = 0x0000803f0000c07f00000040; i64[1] = [3]", "largest=0", 1, 2,
         (double)NAN);
    FOLD("TopK", "i64[3] = [-9223372036854775808,5,-1]; i64[1] = [2]", "largest=0",
         -9223372036854775808.0, -1);
    FOLD("TopK", "u64[2] = [1,18446744073709551615]; i64[1] = [1]", NULL, 18446744073709551616.0);
    FOLD("TopK", "u8[2,2] = [1,2,3,0]; i64[1] = [1]", "axis=0", 3, 2);
}

/* A constant may be one number for any size; what it would take to sort it is not set aside. */
static void too_big_to_fold(void **state)
{
    (void)state;
    struct ul_arena arena;
    struct ul_graph graph;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "TopK", "f32[1099511627776] = splat [1.0]; i64[1] = [100]", NULL, 2);
    assert_false(ul_node_fold(&graph, 0, &arena));
    ul_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(ties),
        cmocka_unit_test(too_big_to_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
