/* SPDX-License-Identifier: Apache-2.0 */
/* The vision family, beside cases/vision.txt. */
#include "case.h"
#include "ir/infer.h"

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

static void regions_outside(void **state)
{
    struct ul_arena arena;
    struct ul_graph graph;
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_axes_cubic),
        cmocka_unit_test(regions_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
