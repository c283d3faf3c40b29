/* Shape rules of the movement family on hostile input, and its views against its copies. */
#include "case.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/text.h"

#include <string.h>

static const struct op_case reshapes[] = {
    {"Reshape", "f32[2,3];i64[1] = [-1]", NULL, 1, UL_OK, "f32[6]"},
    {"Reshape", "f32[2,3];i64[2] = [0,-1]", NULL, 1, UL_OK, "f32[2,3]"},
    {"Reshape", "f32[0,3];i64[2] = [0,5]", "allowzero=1", 1, UL_OK, "f32[0,5]"},
    {"Reshape", "f32[0,3];i64[2] = [0,-1]", "allowzero=1", 1, UL_INVALID, "do not fill"},
    {"Reshape", "f32[2,3];i64[2] = [-1,-1]", NULL, 1, UL_INVALID, "entry 1 is -1"},
    {"Reshape", "f32[2,3];i64[1] = [-2]", NULL, 1, UL_INVALID, "entry 0 is -2"},
    {"Reshape", "f32[2,3];i64[1] = [7]", NULL, 1, UL_INVALID, "do not fill"},
    {"Reshape", "f32[2,3];i64[2] = [4,-1]", NULL, 1, UL_INVALID, "do not fill"},
    {"Reshape", "f32[2,3];i64[3] = [2,3,0]", NULL, 1, UL_INVALID, "copies a dimension"},
    {"Reshape", "f32[2,3];i64[2] = [9223372036854775807,9223372036854775807]", NULL, 1, UL_INVALID,
     "limit"},
    {"Reshape", "f32[2,3];i64[2] = [4294967296,4294967296]", NULL, 1, UL_INVALID, "limit"},
    {"Reshape", "f32[1];i64[9] = [1,1,1,1,1,1,1,1,1]", NULL, 1, UL_UNSUPPORTED, "more than 8"},
    {"Reshape", "f32[2,3];i64[2]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"Reshape", "f32[2,3];f32[1] = [6.0]", NULL, 1, UL_INVALID, "integers"},
    {"Reshape", "f32[2,3];i64[1,1] = [6]", NULL, 1, UL_INVALID, "rank"},
    {"Flatten", "f32[2,3,4]", "axis=-1", 1, UL_OK, "f32[6,4]"},
    {"Flatten", "f32[2,3,4]", "axis=3", 1, UL_OK, "f32[24,1]"},
    {"Flatten", "f32[2,3,4]", "axis=4", 1, UL_INVALID, "axis 4"},
    {"Flatten", "f32[]", "axis=-9223372036854775808", 1, UL_INVALID, "axis"},
    {"Squeeze", "f32[1,3,1]", NULL, 1, UL_OK, "f32[3]"},
    {"Squeeze", "f32[1,3,1];i64[1] = [-1]", NULL, 1, UL_OK, "f32[1,3]"},
    {"Squeeze", "f32[1,3,1];i64[1] = [1]", NULL, 1, UL_INVALID, "not 1"},
    {"Squeeze", "f32[1,3,1];i64[2] = [0,-3]", NULL, 1, UL_INVALID, "twice"},
    {"Squeeze", "f32[1,3,1];i64[1] = [3]", NULL, 1, UL_INVALID, "axis 3"},
    {"Unsqueeze", "f32[3];i64[2] = [0,-1]", NULL, 1, UL_OK, "f32[1,3,1]"},
    {"Unsqueeze", "f32[3];i64[2] = [0,0]", NULL, 1, UL_INVALID, "twice"},
    {"Unsqueeze", "f32[3];i64[1] = [2]", NULL, 1, UL_INVALID, "axis 2"},
    {"Unsqueeze", "f32[1,1,1,1,1,1,1,1];i64[1] = [0]", NULL, 1, UL_UNSUPPORTED, "more than 8"},
    {"Transpose", "f32[2,3]", NULL, 1, UL_OK, "f32[3,2]"},
    {"Transpose", "f32[2,3]", "perm=ints[0]", 1, UL_INVALID, "1 entries"},
    {"Transpose", "f32[2,3]", "perm=ints[0,0]", 1, UL_INVALID, "permutation"},
    {"Transpose", "f32[2,3]", "perm=ints[0,2]", 1, UL_INVALID, "permutation"},
    {"Transpose", "f32[2,3]", "perm=ints[-1,0]", 1, UL_INVALID, "permutation"},
    {"Expand", "f32[3,1];i64[3] = [2,1,6]", NULL, 1, UL_OK, "f32[2,3,6]"},
    {"Expand", "f32[3];i64[1] = [2]", NULL, 1, UL_INVALID, "broadcast"},
    {"Expand", "f32[3];i64[1] = [-1]", NULL, 1, UL_INVALID, "must be from"},
    {"Expand", "f32[1];i64[3] = [1099511627776,1099511627776,4]", NULL, 1, UL_INVALID, "limit"},
    {"Tile", "f32[2,3];i64[2] = [2,0]", NULL, 1, UL_OK, "f32[4,0]"},
    {"Tile", "f32[2,3];i64[1] = [2]", NULL, 1, UL_INVALID, "rank 2"},
    {"Tile", "f32[2];i64[1] = [-1]", NULL, 1, UL_INVALID, "repeats"},
    {"Tile", "f32[2];i64[1] = [9223372036854775807]", NULL, 1, UL_INVALID, "repeats"},
};

#define MAX "9223372036854775807"
#define MIN "-9223372036854775808"

static const struct op_case slices[] = {
    {"Slice", "f32[10];i64[1] = [-3];i64[1] = [" MAX "]", NULL, 1, UL_OK, "f32[3]"},
    {"Slice", "f32[10];i64[1] = [" MAX "];i64[1] = [" MIN "];-;i64[1] = [-3]", NULL, 1, UL_OK,
     "f32[4]"},
    {"Slice", "f32[10];i64[1] = [0];i64[1] = [10];-;i64[1] = [" MIN "]", NULL, 1, UL_OK, "f32[0]"},
    {"Slice", "f32[10];i64[1] = [9];i64[1] = [" MIN "];-;i64[1] = [" MIN "]", NULL, 1, UL_OK,
     "f32[1]"},
    {"Slice", "f32[10];i64[1] = [0];i64[1] = [10];-;i64[1] = [" MAX "]", NULL, 1, UL_OK, "f32[1]"},
    {"Slice", "f32[0];i64[1] = [0];i64[1] = [" MIN "];-;i64[1] = [-1]", NULL, 1, UL_OK, "f32[0]"},
    {"Slice", "f32[10];i64[1] = [0];i64[1] = [10];-;i64[1] = [0]", NULL, 1, UL_INVALID, "is 0"},
    {"Slice", "f32[10];i64[1] = [0];i64[2] = [1,1]", NULL, 1, UL_INVALID, "2 entries"},
    {"Slice", "f32[10];i64[2] = [0,0];i64[2] = [1,1]", NULL, 1, UL_INVALID, "axis 1"},
    {"Slice", "f32[9,9];i64[2] = [0,0];i64[2] = [1,1];i64[2] = [1,-1]", NULL, 1, UL_INVALID,
     "twice"},
    {"Slice", "f32[10];i64[1];i64[1] = [1]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"Slice", "f32[];i64[1] = [0];i64[1] = [1]", NULL, 1, UL_INVALID, "axis 0"},
    {"Split", "f32[7,2]", "num_outputs=3", 3, UL_OK, "f32[3,2] f32[3,2] f32[1,2]"},
    {"Split", "f32[7];i64[2] = [3,4]", NULL, 2, UL_OK, "f32[3] f32[4]"},
    {"Split", "f32[7];i64[2] = [3,5]", NULL, 2, UL_INVALID, "left"},
    {"Split", "f32[7];i64[2] = [3,3]", NULL, 2, UL_INVALID, "add up to 6"},
    {"Split", "f32[7];i64[2] = [-1,8]", NULL, 2, UL_INVALID, "left"},
    {"Split", "f32[7];i64[1] = [7]", NULL, 2, UL_INVALID, "1 sizes"},
    {"Split", "f32[7]", "axis=1", 2, UL_INVALID, "axis 1"},
    {"Split", "f32[7]", "num_outputs=3", 2, UL_INVALID, "num_outputs"},
    {"Concat", "f32[2,3];f32[4,3]", "axis=0", 1, UL_OK, "f32[6,3]"},
    {"Concat", "f32[2,3];f32[2,4]", "axis=0", 1, UL_INVALID, "axis 1"},
    {"Concat", "f32[2,3];f32[3]", "axis=0", 1, UL_INVALID, "rank"},
    {"Concat", "f32[2];i32[2]", "axis=0", 1, UL_INVALID, "type"},
    {"Concat", "f32[2];-", "axis=0", 1, UL_INVALID, "required"},
    {"Concat", "f32[];f32[]", "axis=0", 1, UL_INVALID, "axis"},
    {"Concat", "f32[2];f32[2]", NULL, 1, UL_INVALID, "missing"},
    {"Pad", "f32[3];i64[2] = [1,2]", NULL, 1, UL_OK, "f32[6]"},
    {"Pad", "f32[3];i64[2] = [-1,-1]", NULL, 1, UL_OK, "f32[1]"},
    {"Pad", "f32[3];i64[2] = [-2,-2]", NULL, 1, UL_INVALID, "leave nothing"},
    {"Pad", "f32[3];i64[2] = [-3,1]", "mode=\"edge\"", 1, UL_INVALID, "leave nothing"},
    {"Pad", "f32[0];i64[2] = [1,1]", "mode=\"wrap\"", 1, UL_INVALID, "leave nothing"},
    {"Pad", "f32[3];i64[3] = [1,1,1]", NULL, 1, UL_INVALID, "3 pads"},
    {"Pad", "f32[3];i64[2] = [" MAX "," MAX "]", NULL, 1, UL_INVALID, "a pad"},
    {"Pad", "f32[3];i64[2] = [1,1]", "mode=\"mirror\"", 1, UL_INVALID, "mirror"},
    {"Pad", "f32[3];i64[2] = [1,1];i32[]", NULL, 1, UL_INVALID, "type"},
    {"Pad", "f32[3];i64[2] = [1,1];-;i64[1] = [1]", NULL, 1, UL_INVALID, "axis 1"},
    {"Pad", "f32[3,3];i64[4] = [1,1,1,1];-;i64[2] = [1,-1]", NULL, 1, UL_INVALID, "twice"},
    {"CenterCropPad", "f32[5,4];i64[1] = [7]", "axes=ints[-1]", 1, UL_OK, "f32[5,7]"},
    {"CenterCropPad", "f32[5,4];i64[1] = [7]", NULL, 1, UL_INVALID, "2 axes"},
    {"CenterCropPad", "f32[5];i64[1] = [-7]", NULL, 1, UL_INVALID, "-7"},
};

static const struct op_case others[] = {
    {"Gather", "f32[5,4];i64[2,3]", "axis=1", 1, UL_OK, "f32[5,2,3]"},
    {"Gather", "f32[5,4];f32[2]", NULL, 1, UL_UNSUPPORTED, "f32"},
    {"Gather", "f32[];i64[2]", NULL, 1, UL_INVALID, "axis"},
    {"Gather", "f32[0,4];i64[2]", NULL, 1, UL_INVALID, "empty"},
    {"Gather", "f32[0,4];i64[0]", NULL, 1, UL_OK, "f32[0,4]"},
    {"Gather", "f32[1,1,1,1,1];i64[1,1,1,1,1]", NULL, 1, UL_UNSUPPORTED, "more than 8"},
    {"GatherElements", "f32[5,4];i64[5,9]", "axis=1", 1, UL_OK, "f32[5,9]"},
    {"GatherElements", "f32[5,4];i64[6,4]", "axis=1", 1, UL_INVALID, "6 indices"},
    {"GatherElements", "f32[5,4];i64[5]", NULL, 1, UL_INVALID, "rank"},
    {"GatherElements", "f32[5,0];i64[5,1]", "axis=1", 1, UL_INVALID, "empty"},
    {"GatherND", "f32[2,3,4];i64[2,2]", NULL, 1, UL_OK, "f32[2,4]"},
    {"GatherND", "f32[2,3,4];i64[2,1]", "batch_dims=1", 1, UL_OK, "f32[2,4]"},
    {"GatherND", "f32[2,3,4];i64[2,4]", NULL, 1, UL_INVALID, "last dimension"},
    {"GatherND", "f32[2,3,4];i64[2,0]", NULL, 1, UL_INVALID, "last dimension"},
    {"GatherND", "f32[2,3,4];i64[3,1]", "batch_dims=1", 1, UL_INVALID, "batch"},
    {"GatherND", "f32[2,3,4];i64[2,1]", "batch_dims=2", 1, UL_INVALID, "batch_dims"},
    {"GatherND", "f32[2,3,4];i64[2,1]", "batch_dims=-1", 1, UL_INVALID, "batch_dims"},
    {"GatherND", "f32[2];i64[]", NULL, 1, UL_INVALID, "rank"},
    {"ReverseSequence", "f32[4,3];i64[3]", NULL, 1, UL_OK, "f32[4,3]"},
    {"ReverseSequence", "f32[4,3];i64[4]", NULL, 1, UL_INVALID, "expected"},
    {"ReverseSequence", "f32[4,3];i64[3]", "time_axis=1", 1, UL_INVALID, "both"},
    {"ReverseSequence", "f32[4];i64[4]", NULL, 1, UL_INVALID, "rank"},
    {"DepthToSpace", "f32[1,8,2,3]", "blocksize=2", 1, UL_OK, "f32[1,2,4,6]"},
    {"DepthToSpace", "f32[1,9,2,3]", "blocksize=2", 1, UL_INVALID, "multiple"},
    {"DepthToSpace", "f32[1,8,2,3]", "blocksize=0", 1, UL_INVALID, "blocksize"},
    {"DepthToSpace", "f32[1,8,2,3]", "blocksize=4294967296", 1, UL_INVALID, "blocksize"},
    {"DepthToSpace", "f32[8,2,3]", "blocksize=2", 1, UL_INVALID, "rank"},
    {"SpaceToDepth", "f32[1,2,4,6]", "blocksize=2", 1, UL_OK, "f32[1,8,2,3]"},
    {"SpaceToDepth", "f32[1,2,4,5]", "blocksize=2", 1, UL_INVALID, "multiple"},
    {"Shape", "f32[2,3,4]", "start=-2", 1, UL_OK, "i64[2]"},
    {"Shape", "f32[2,3,4]", "start=2, end=1", 1, UL_OK, "i64[0]"},
    {"Shape", "f32[2,3,4]", "start=" MIN ", end=" MAX, 1, UL_OK, "i64[3]"},
    {"Size", "f32[2,3,4]", NULL, 1, UL_OK, "i64[]"},
    {"ConstantOfShape", "i64[2] = [2,0]", NULL, 1, UL_OK, "f32[2,0]"},
    {"ConstantOfShape", "i64[0] = []", "value=tensor i4[1] = [3]", 1, UL_OK, "i4[]"},
    {"ConstantOfShape", "i64[1] = [-1]", NULL, 1, UL_INVALID, "-1"},
    {"ConstantOfShape", "i64[1] = [1]", "value=tensor f32[2] = [1.0,2.0]", 1, UL_INVALID,
     "one element"},
    {"ConstantOfShape", "i64[1] = [1]", "value=3", 1, UL_INVALID, "not a tensor"},
    {"ConstantOfShape", "i64[2] = [1099511627776,1099511627776]", NULL, 1, UL_INVALID, "limit"},
    {"Range", "i64[] = [3];i64[] = [10];i64[] = [3]", NULL, 1, UL_OK, "i64[3]"},
    {"Range", "i64[] = [3];i64[] = [10];i64[] = [-3]", NULL, 1, UL_OK, "i64[0]"},
    {"Range", "f32[] = [1.0];f32[] = [2.0];f32[] = [0.3]", NULL, 1, UL_OK, "f32[4]"},
    {"Range", "i64[] = [3];i64[] = [10];i64[] = [0]", NULL, 1, UL_INVALID, "no range"},
    {"Range", "f32[] = [0.0];f32[] = [1.0];f32[] = [0.0]", NULL, 1, UL_INVALID, "no range"},
    {"Range", "f32[] = [0.0];f32[] = [inf];f32[] = [1.0]", NULL, 1, UL_INVALID, "no range"},
    {"Range", "i64[] = [" MIN "];i64[] = [" MAX "];i64[] = [1]", NULL, 1, UL_INVALID, "no range"},
    {"Range", "i64[] = [0];i64[];i64[] = [1]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"OneHot", "i64[2];i64[] = [3];f32[2]", "axis=0", 1, UL_OK, "f32[3,2]"},
    {"OneHot", "i64[2];i64[] = [-3];f32[2]", NULL, 1, UL_INVALID, "depth"},
    {"OneHot", "i64[2];i64[] = [3];f32[3]", NULL, 1, UL_INVALID, "expected"},
    {"OneHot", "i64[2];i64[] = [3];f32[2]", "axis=2", 1, UL_INVALID, "axis"},
    {"OneHot", "i64[2];i64[];f32[2]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"EyeLike", "i32[2,3]", "dtype=1, k=" MAX, 1, UL_OK, "f32[2,3]"},
    {"EyeLike", "i32[2]", NULL, 1, UL_INVALID, "rank"},
    {"EyeLike", "i32[2,2]", "dtype=8", 1, UL_UNSUPPORTED, "dtype"},
    {"Trilu", "f32[3,2,2];i64[]", NULL, 1, UL_OK, "f32[3,2,2]"},
    {"Trilu", "f32[3]", NULL, 1, UL_INVALID, "rank"},
    {"Trilu", "f32[3,3];i64[2]", NULL, 1, UL_INVALID, "one number"},
};

static void shape_rules(void **state)
{
    (void)state;
    case_infer_all(reshapes, sizeof reshapes / sizeof *reshapes);
    case_infer_all(slices, sizeof slices / sizeof *slices);
    case_infer_all(others, sizeof others / sizeof *others);
}

#define FOLD(op, inputs, attributes, ...)                                                          \
    do {                                                                                           \
        static const double wanted[] = {__VA_ARGS__};                                              \
        case_fold(op, inputs, attributes, wanted, sizeof wanted / sizeof *wanted);                 \
    } while (0)

static void pads(void **state)
{
    static const char three[] = "i32[3] = [1,2,3]; i64[2] = [5,4]";
    (void)state;
    FOLD("Pad", three, "mode=\"reflect\"", 2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3);
    FOLD("Pad", three, "mode=\"wrap\"", 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1);
    FOLD("Pad", three, "mode=\"edge\"", 1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3);
    FOLD("Pad", "i32[1] = [4]; i64[2] = [2,1]", "mode=\"reflect\"", 4, 4, 4, 4);
    FOLD("Pad", "i32[4] = [1,2,3,4]; i64[2] = [-1,2]", "mode=\"reflect\"", 2, 3, 4, 3, 2);
    FOLD("Pad", "i32[4] = [1,2,3,4]; i64[2] = [2,-2]; i32[] = [9]", NULL, 9, 9, 1, 2);
    FOLD("Pad", "bool[1] = [1]; i64[2] = [1,0]", NULL, 0, 1);
    FOLD("Pad", "i32[0] = []; i64[2] = [1,1]; i32[] = [7]", NULL, 7, 7);
    FOLD("CenterCropPad", "i32[3] = [1,2,3]; i64[1] = [6]", NULL, 0, 1, 2, 3, 0, 0);
    FOLD("CenterCropPad", "i32[5] = [1,2,3,4,5]; i64[1] = [2]", NULL, 2, 3);
}

static void indexes(void **state)
{
    (void)state;
    FOLD("Gather", "i32[3] = [10,20,30]; i64[3] = [-1,0,2]", NULL, 30, 10, 30);
    FOLD("GatherND", "i32[2,2] = [1,2,3,4]; i32[2,2] = [0,1,-1,-1]", NULL, 2, 4);
    FOLD("OneHot", "i64[4] = [0,-1,3,-4]; i64[] = [3]; i8[2] = [0,1]", "axis=-1", 1, 0, 0, 0, 0, 1,
         0, 0, 0, 0, 0, 0);
    FOLD("ReverseSequence", "i32[4,1] = [1,2,3,4]; i64[1] = [3]", NULL, 3, 2, 1, 4);
    FOLD("ReverseSequence", "i32[2,1] = [1,2]; i64[1] = [-5]", NULL, 1, 2);
    FOLD("EyeLike", "i32[2,3] = splat [0]", "k=1", 0, 1, 0, 0, 0, 1);
    FOLD("EyeLike", "i32[2,2] = splat [0]", "k=" MIN, 0, 0, 0, 0);
    FOLD("Trilu", "i32[2,2] = [1,2,3,4]; i64[] = [" MAX "]", NULL, 0, 0, 0, 0);
    FOLD("Trilu", "i32[2,2] = [1,2,3,4]; i64[] = [-1]", "upper=0", 0, 0, 3, 0);
    FOLD("Range", "i64[] = [5]; i64[] = [-2]; i64[] = [-3]", NULL, 5, 2, -1);
    FOLD("Slice", "i32[4] = [1,2,3,4]; i64[1] = [-100]; i64[1] = [" MIN "]; -; i64[1] = [-1]", NULL,
         1);
}

/* Nothing to make, but a dimension that would take hours to count up. */
static void empty(void **state)
{
    struct ul_arena arena;
    struct ul_graph graph;
    (void)state;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "ConstantOfShape", "i64[2] = [1099511627776,0]", NULL, 1);
    assert_false(case_run(&graph, &arena));
    case_graph(&graph, &arena, "Slice",
               "f32[1099511627776,0]; i64[1] = [0]; i64[1] = [-1]; -; i64[1] = [2]", NULL, 1);
    assert_false(case_run(&graph, &arena));
    ul_arena_done(&arena);
}

/* Chains of operators over a constant whose elements are their own positions: wherever a chain is
 * views all along, the copies' elements must be what the views point at. */
struct chain {
    const char *text;    /* nodes after the constant %0 "x" i32[2,3,4] = 0..23 and others */
    const char *is_view; /* 'y' or 'n' for each output of each node */
};

static const char chain_head[] = "graph \"\"\n"
                                 "weight %0 \"x\" i32[2,3,4] = pool=0\n"
                                 "weight %1 \"six\" i64[2] = [6,4]\n"
                                 "weight %2 \"all\" i64[1] = [-1]\n"
                                 "weight %3 \"zero\" i64[1] = [0]\n"
                                 "weight %4 \"three\" i64[1] = [3]\n"
                                 "weight %5 \"last\" i64[1] = [-1]\n"
                                 "weight %6 \"least\" i64[1] = [-9223372036854775808]\n"
                                 "weight %7 \"wide\" i64[4] = [5,2,3,4]\n"
                                 "weight %8 \"split\" i64[2] = [1,3]\n"
                                 "weight %9 \"nine\" i64[2] = [2,9]\n"
                                 "weight %10 \"cut\" i64[5] = [3,2,1,2,2]\n";

static const struct chain chains[] = {
    {"%20 \"a\" none[*] = Reshape n0 \"\" (%0, %1)\n"
     "%21 \"b\" none[*] = Transpose n1 \"\" (%20)\n"
     "%22 \"c\" none[*] = Reshape n2 \"\" (%21, %2)\n"
     "return %22\n",
     "yyn"},
    {"%20 \"a\" none[*] = Slice n0 \"\" (%0, %3, %4, %2)\n"
     "%21 \"b\" none[*] = Reshape n1 \"\" (%20, %9)\n"
     "return %21\n",
     "yn"},
    {"%20 \"a\" none[*] = Transpose n0 \"\" (%0) {perm=ints[1,0,2]}\n"
     "%21 \"b\" none[*] = Reshape n1 \"\" (%20, %10)\n"
     "return %21\n",
     "yy"},
    {"%20 \"a\" none[*] = Slice n0 \"\" (%0, %5, %6, %2, %5)\n"
     "%21 \"b\" none[*] = Unsqueeze n1 \"\" (%20, %3)\n"
     "%22 \"c\" none[*] = Flatten n2 \"\" (%21) {axis=3}\n"
     "%23 \"d\" none[*] = Squeeze n3 \"\" (%21)\n"
     "return %22, %23\n",
     "yyyy"},
    {"%20 \"a\" none[*], %21 \"b\" none[*] = Split n0 \"\" (%0, %8) {axis=2}\n"
     "%22 \"c\" none[*] = Flatten n1 \"\" (%21) {axis=2}\n"
     "%23 \"d\" none[*] = Flatten n2 \"\" (%20) {axis=0}\n"
     "return %22, %23\n",
     "yyyy"},
    {"%20 \"a\" none[*] = Expand n0 \"\" (%0, %7)\n"
     "%21 \"b\" none[*] = Identity n1 \"\" (%20)\n"
     "%22 \"c\" none[*] = Flatten n2 \"\" (%21) {axis=1}\n"
     "%23 \"d\" none[*] = Flatten n3 \"\" (%21) {axis=0}\n"
     "return %22, %23\n",
     "yyyn"},
};

static ul_value_id positions(struct ul_graph *pool, struct ul_arena *arena)
{
    static const int64_t dims[3] = {2, 3, 4};
    int64_t values[24];
    for (int64_t i = 0; i < 24; i++)
        values[i] = i;
    ul_graph_init(pool, arena, "");
    return ul_graph_add_weight(pool, "x", ul_tensor_new_ints(arena, UL_I32, 3, dims, values));
}

static void check_view(const struct ul_value *value, const struct ul_view *view)
{
    int64_t index[UL_LIMIT_RANK] = {0};
    for (uint64_t i = 0; i < ul_type_elements(&value->type); i++) {
        int64_t at = view->offset_bytes / 4;
        for (uint32_t d = 0; d < value->type.rank; d++)
            at += index[d] * view->strides[d];
        assert_int_equal(ul_tensor_get_int(value->tensor, i), at);
        for (uint32_t d = value->type.rank; d-- > 0 && ++index[d] == value->type.dims[d];)
            index[d] = 0;
    }
}

static void run_chain(const struct chain *chain)
{
    struct ul_arena arena;
    struct ul_graph pool;
    struct ul_graph graph;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_view views[32];
    const char *wanted = chain->is_view;
    ul_arena_init(&arena);
    positions(&pool, &arena);
    char *text = ul_arena_printf(&arena, "%s%s", chain_head, chain->text);
    if (ul_graph_parse(&graph, &arena, text, &pool, &diag) != UL_OK)
        fail_msg("%s in\n%s", diag.text, text);
    views[0] = (struct ul_view){.base = 0, .strides = {12, 4, 1}};
    for (ul_node_id node = 0; node < graph.node_count; node++) {
        const struct ul_node *info = &graph.nodes[node];
        if (ul_node_infer(&graph, node, &arena, &diag) != UL_OK)
            fail_msg("%s", diag.text);
        assert_true(ul_node_fold(&graph, node, &arena));
        for (uint32_t i = 0; i < info->output_count; i++, wanted++) {
            bool is_view = ul_op_get(info->op)->view(&graph, info, i, &views[info->inputs[0]],
                                                     &views[info->outputs[i]]);
            if (is_view != (*wanted == 'y'))
                fail_msg("node %u of\n%s", (unsigned)node, chain->text);
            if (is_view)
                check_view(&graph.values[info->outputs[i]], &views[info->outputs[i]]);
        }
    }
    ul_arena_done(&arena);
}

static void views(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        run_chain(&chains[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules), cmocka_unit_test(pads),  cmocka_unit_test(indexes),
        cmocka_unit_test(views),       cmocka_unit_test(empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
