/* The vision family: shape rules on hostile input, and cases that ONNX's tests leave out. */
#include "case.h"
#include "ir/infer.h"

#include <math.h>

#define TF "coordinate_transformation_mode=\"tf_crop_and_resize\""

static const struct op_case resizes[] = {
    {"Resize", "f32[1,1,4,4];-;f32[4] = [1.0,1.0,2.0,0.6]", NULL, 1, UL_OK, "f32[1,1,8,2]"},
    {"Resize", "f32[1,1,4,4];-;-;i64[4] = [1,1,9,0]", NULL, 1, UL_OK, "f32[1,1,9,0]"},
    {"Resize", "f32[4,8];-;-;i64[2] = [6,6]", "keep_aspect_ratio_policy=\"not_larger\"", 1, UL_OK,
     "f32[3,6]"},
    {"Resize", "f32[4,8];-;-;i64[1] = [6]", "axes=ints[-2]", 1, UL_OK, "f32[6,8]"},
    {"Resize", "f32[4];-;-", NULL, 1, UL_INVALID, "one of"},
    {"Resize", "f32[4];-;f32[0] = [];i64[0] = []", NULL, 1, UL_INVALID, "one of"},
    {"Resize", "f32[4];-;f32[1] = [2.0];i64[1] = [8]", NULL, 1, UL_INVALID, "one of"},
    {"Resize", "f32[4];-;f32[2] = [2.0,2.0]", NULL, 1, UL_INVALID, "2 elements"},
    {"Resize", "f32[4];-;f32[1] = [0.0]", NULL, 1, UL_INVALID, "scale"},
    {"Resize", "f32[4];-;f32[1] = [-1.0]", NULL, 1, UL_INVALID, "scale"},
    {"Resize", "f32[4];-;f32[1] = [inf]", NULL, 1, UL_INVALID, "scale"},
    {"Resize", "f32[4];-;f32[1] = 0x0000c07f", NULL, 1, UL_INVALID, "scale"},
    {"Resize", "f32[4];-;f32[1] = [3e38]", NULL, 1, UL_INVALID, "a size"},
    {"Resize", "f32[4];-;f32[1]", NULL, 1, UL_UNSUPPORTED, "--const"},
    {"Resize", "f32[4];-;-;i64[1] = [-8]", NULL, 1, UL_INVALID, "-8"},
    {"Resize", "f32[0];-;-;i64[1] = [8]", NULL, 1, UL_INVALID, "empty"},
    {"Resize", "f32[4];-;-;i64[1] = [8]", "axes=ints[1]", 1, UL_INVALID, "axis"},
    {"Resize", "f32[4,4];-;-;i64[2] = [8,8]", "axes=ints[1,-1]", 1, UL_INVALID, "twice"},
    {"Resize", "f32[4];-;-;i64[1] = [8]", "mode=\"lanczos\"", 1, UL_INVALID, "lanczos"},
    {"Resize", "f32[4];-;-;i64[1] = [8]", "antialias=1", 1, UL_INVALID, "antialias"},
    {"Resize", "bool[4];-;-;i64[1] = [8]", NULL, 1, UL_OK, "bool[8]"},
    {"Resize", "bool[4];-;-;i64[1] = [8]", "mode=\"linear\"", 1, UL_UNSUPPORTED, "bool"},
    {"Resize", "f32[4];f32[2] = [0.0,1.0];-;i64[1] = [8]", TF, 1, UL_OK, "f32[8]"},
    {"Resize", "f32[4];f32[1] = [0.0];-;i64[1] = [8]", TF, 1, UL_INVALID, "1 elements"},
    {"Resize", "f32[4];f32[2] = [0.0,1e30];-;i64[1] = [8]", TF, 1, UL_INVALID, "roi"},
    {"Resize", "f32[4];f32[2];-;i64[1] = [8]", TF, 1, UL_UNSUPPORTED, "--const"},
};

static const struct op_case others[] = {
    {"GridSample", "f32[2,3,4,5];f32[2,6,7,2]", NULL, 1, UL_OK, "f32[2,3,6,7]"},
    {"GridSample", "f32[2,3,4];f32[2,6,1]", NULL, 1, UL_OK, "f32[2,3,6]"},
    {"GridSample", "f32[2,3,4,5];f32[2,6,7,3]", NULL, 1, UL_INVALID, "2 coordinates"},
    {"GridSample", "f32[2,3,4,5];f32[1,6,7,2]", NULL, 1, UL_INVALID, "each of 2"},
    {"GridSample", "f32[2,3,0,5];f32[2,6,7,2]", NULL, 1, UL_INVALID, "empty"},
    {"GridSample", "f32[2,3];f32[2,2]", NULL, 1, UL_UNSUPPORTED, "rank"},
    {"GridSample", "f32[2,3,4,5];f32[2,6,7,2]", "padding_mode=\"wrap\"", 1, UL_INVALID, "wrap"},
    {"AffineGrid", "f32[2,2,3];i64[4] = [2,3,4,5]", NULL, 1, UL_OK, "f32[2,4,5,2]"},
    {"AffineGrid", "f32[2,3,4];i64[5] = [2,3,4,5,6]", NULL, 1, UL_OK, "f32[2,4,5,6,3]"},
    {"AffineGrid", "f32[2,3,4];i64[4] = [2,3,4,5]", NULL, 1, UL_INVALID, "expected"},
    {"AffineGrid", "f32[2,2,3];i64[4] = [2,3,-4,5]", NULL, 1, UL_INVALID, "-4"},
    {"AffineGrid", "f32[2,2,3];i64[3] = [2,3,4]", NULL, 1, UL_INVALID, "3 entries"},
    {"RoiAlign", "f32[1,2,8,8];f32[3,4];i64[3]", "output_width=5", 1, UL_OK, "f32[3,2,1,5]"},
    {"RoiAlign", "f32[1,2,8,8];f32[3,5];i64[3]", NULL, 1, UL_INVALID, "expected"},
    {"RoiAlign", "f32[1,2,8,8];f32[3,4];i64[2]", NULL, 1, UL_INVALID, "expected"},
    {"RoiAlign", "f32[1,2,0,8];f32[3,4];i64[3]", NULL, 1, UL_INVALID, "empty"},
    {"RoiAlign", "f32[1,2,8,8];f32[3,4];i64[3]", "output_height=0", 1, UL_INVALID, "height"},
    {"RoiAlign", "f32[1,2,8,8];f32[3,4];i64[3]", "sampling_ratio=-1", 1, UL_INVALID, "ratio"},
    {"MaxRoiPool", "f32[1,2,8,8];f32[3,5]", "pooled_shape=ints[2,2]", 1, UL_OK, "f32[3,2,2,2]"},
    {"MaxRoiPool", "f32[1,2,8,8];f32[3,5]", NULL, 1, UL_INVALID, "pooled_shape"},
    {"MaxRoiPool", "f32[1,2,8,8];f32[3,5]", "pooled_shape=ints[2,0]", 1, UL_INVALID, "from 1"},
    {"MaxRoiPool", "f32[1,2,8,8];f32[3,4]", "pooled_shape=ints[2,2]", 1, UL_INVALID, "expected"},
    {"Col2Im", "f32[1,5,5];i64[2] = [5,5];i64[2] = [1,5]", NULL, 1, UL_OK, "f32[1,1,5,5]"},
    {"Col2Im", "f32[1,5,4];i64[2] = [5,5];i64[2] = [1,5]", NULL, 1, UL_INVALID, "blocks"},
    {"Col2Im", "f32[1,4,5];i64[2] = [5,5];i64[2] = [1,5]", NULL, 1, UL_INVALID, "multiple"},
    {"Col2Im", "f32[1,5,5];i64[2] = [5,5];i64[1] = [5]", NULL, 1, UL_INVALID, "as many"},
    {"Col2Im", "f32[1,5,5];i64[2] = [5,5];i64[2] = [0,5]", NULL, 1, UL_INVALID, "block_shape"},
    {"Col2Im", "f32[1,5,5];i64[2] = [5,5];i64[2] = [1,5]", "strides=ints[0,1]", 1, UL_INVALID,
     "strides"},
    {"Col2Im", "f32[1,5,5];i64[2] = [5,5];i64[2] = [1,5]", "pads=ints[1,1]", 1, UL_INVALID, "pads"},
};

static void shape_rules(void **state)
{
    (void)state;
    case_infer_all(resizes, sizeof resizes / sizeof *resizes);
    case_infer_all(others, sizeof others / sizeof *others);
}

#define FOLD(op, inputs, attributes, ...)                                                          \
    do {                                                                                           \
        static const double wanted[] = {__VA_ARGS__};                                              \
        case_fold(op, inputs, attributes, wanted, sizeof wanted / sizeof *wanted);                 \
    } while (0)

static void resize_values(void **state)
{
    static const char four[] = "f32[4] = [1.0,2.0,3.0,4.0]; -; f32[1] = [2.0]";
    (void)state;
    FOLD("Resize", four, NULL, 1, 1, 2, 2, 3, 3, 4, 4);
    FOLD("Resize", four, "coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\"", 1,
         1, 2, 2, 3, 3, 4, 4);
    FOLD("Resize", four, "coordinate_transformation_mode=\"asymmetric\"", 1, 1, 2, 2, 3, 3, 4, 4);
    FOLD("Resize", four, "coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"ceil\"", 1,
         2, 2, 3, 3, 4, 4, 4);
    FOLD("Resize", four, "mode=\"linear\"", 1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4);
    /* Integers are rounded to nearest even, and stay in range where cubic overshoots. */
    FOLD("Resize", "u8[2] = [1,2]; -; -; i64[1] = [4]", "mode=\"linear\"", 1, 1, 2, 2);
    FOLD("Resize", "u8[4] = [0,0,255,255]; -; -; i64[1] = [8]", "mode=\"cubic\"", 0, 0, 0, 58, 197,
         255, 255, 255);
    /* A stretched triangle: weights 1 3 3 1 of 8, with the edges repeated. */
    FOLD("Resize", "f32[8] = [0.0,8.0,0.0,0.0,8.0,0.0,0.0,0.0]; -; -; i64[1] = [4]",
         "mode=\"linear\", antialias=1", 3, 2, 3, 0);
    FOLD("Resize", "f32[3] = [1.0,2.0,3.0]; f32[2] = [0.0,2.0]; -; i64[1] = [5]",
         TF ", mode=\"linear\", extrapolation_value=9.0", 1, 2, 3, 9, 9);
}

static void all_axes_cubic(void **state)
{
    /* More taps than one expression holds: the sum is a loop. A constant stays what it is. */
    struct ul_arena arena;
    struct ul_graph graph;
    (void)state;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "Resize", "f32[2,2,2,2] = splat [3.0]; -; -; i64[4] = [3,3,3,3]",
               "mode=\"cubic\", exclude_outside=1", 1);
    assert_true(ul_node_fold(&graph, 0, &arena));
    for (uint64_t i = 0; i < 81; i++)
        assert_float_equal(ul_tensor_get_float(graph.values[graph.nodes[0].outputs[0]].tensor, i),
                           3, 1e-5);
    ul_arena_done(&arena);
}

static void grid_values(void **state)
{
    /* NaN, infinity and far away: nothing is read outside; zeros are zeros. */
    static const char far[] = "f32[1,1,3] = [1.0,2.0,3.0]; "
                              "f32[1,5,1] = 0x0000807f000080ff00000080cacd1b5acacd1bda";
    (void)state;
    FOLD("GridSample", far, NULL, 0, 0, 2, 0, 0);
    FOLD("GridSample", far, "padding_mode=\"border\"", 3, 1, 2, 3, 1);
    FOLD("GridSample", "f32[1,1,3] = [1.0,2.0,3.0]; f32[1,4,1] = [-2.0,-1.0,1.0,2.0]",
         "padding_mode=\"reflection\", align_corners=1", 2, 1, 3, 2);
    FOLD("GridSample", "f32[1,1,1] = [5.0]; f32[1,2,1] = [-9.0,9.0]",
         "padding_mode=\"reflection\", align_corners=1", 5, 5);
    FOLD("GridSample", "bool[1,1,2] = [0,1]; f32[1,2,1] = [-0.5,0.5]", "mode=\"nearest\"", 0, 1);
}

static void region_values(void **state)
{
    struct ul_arena arena;
    struct ul_graph graph;
    (void)state;
    FOLD("MaxRoiPool",
         "f32[1,1,3,3] = [1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0,9.0]; "
         "f32[2,5] = [0.0,0.0,0.0,2.0,2.0,0.0,5.0,5.0,6.0,6.0]",
         "pooled_shape=ints[1,1]", 9, 0);
    FOLD("RoiAlign",
         "f32[1,1,2,2] = [1.0,1.0,1.0,1.0]; f32[1,4] = [0.0,0.0,2.0,2.0]; "
         "i64[1] = [0]",
         "output_height=2, output_width=1", 1, 1);
    /* A batch that does not exist, and a region that no image contains, are reported. */
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "RoiAlign",
               "f32[1,1,2,2] = splat [1.0]; f32[1,4] = [0.0,0.0,2.0,2.0]; i64[1] = [1]", NULL, 1);
    assert_true(case_run(&graph, &arena));
    case_graph(&graph, &arena, "RoiAlign",
               "f32[1,1,2,2] = splat [1.0]; f32[1,4] = [0.0,0.0,1e30,2.0]; i64[1] = [0]", NULL, 1);
    assert_true(case_run(&graph, &arena));
    ul_arena_done(&arena);
}

static void blocks(void **state)
{
    (void)state;
    FOLD("Col2Im", "f32[1,2,3] = [1.0,2.0,3.0,4.0,5.0,6.0]; i64[1] = [4]; i64[1] = [2]", NULL, 1, 6,
         8, 6);
    FOLD("Col2Im", "i32[1,2,2] = [1,2,3,4]; i64[1] = [4]; i64[1] = [2]", "strides=ints[2]", 1, 3, 2,
         4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_rules),    cmocka_unit_test(resize_values),
        cmocka_unit_test(all_axes_cubic), cmocka_unit_test(grid_values),
        cmocka_unit_test(region_values),  cmocka_unit_test(blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
