/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer family, beside cases/optimizer.txt. */
#include "case.h"
#include "ir/infer.h"

#include <stdio.h>

/* Folds an update of one parameter and compares the new parameter and the first state. */
static void update_gives(const char *op, const char *inputs, const char *attributes,
                         uint32_t outputs, double parameter, double state)
{
    struct ul_arena arena;
    struct ul_graph graph;
    char name[64];
    ul_arena_init(&arena);
    snprintf(name, sizeof name, "ai.onnx.preview.training::%s", op);
    case_graph(&graph, &arena, name, inputs, attributes, outputs);
    assert_true(ul_node_fold(&graph, 0, &arena));
    const ul_value_id *ids = graph.nodes[0].outputs;
    double x = ul_tensor_get_float(graph.values[ids[0]].tensor, 0);
    double v = ul_tensor_get_float(graph.values[ids[1]].tensor, 0);
    if (x < parameter || x > parameter || v < state || v > state)
        fail_msg("%s {%s}: %g and %g, wanted %g and %g", op, attributes, x, v, parameter, state);
    ul_arena_done(&arena);
}

/* The first update of Momentum takes the whole gradient, that of Adam no correction. */
static void first_steps(void **state)
{
    (void)state;
    static const char first[] = "f32[] = [0.5]; i64[] = [0]; f32[1] = [1.0]; f32[1] = [2.0]; "
                                "f32[1] = [4.0]";
    static const char second[] = "f32[] = [0.5]; i64[] = [1]; f32[1] = [1.0]; f32[1] = [2.0]; "
                                 "f32[1] = [4.0]";
    update_gives("Momentum", first, "mode=\"standard\", alpha=0.5, beta=0.25", 2, -1, 4);
    update_gives("Momentum", second, "mode=\"standard\", alpha=0.5, beta=0.25", 2, -0.25, 2.5);
    update_gives("Momentum", second, "mode=\"nesterov\", alpha=0.5, beta=0.25", 2, -0.625, 2.5);
    update_gives("Adagrad",
                 "f32[] = [2.0]; i64[] = [1]; f32[1] = [1.0]; f32[1] = [3.0]; f32[1] = [16.0]",
                 "decay_factor=1.0, epsilon=1.0", 2, 0.5, 25);
    update_gives("Adam",
                 "f32[] = [0.5]; i64[] = [0]; f32[1] = [1.0]; f32[1] = [2.0]; f32[1] = [2.0]; "
                 "f32[1] = [4.0]",
                 "alpha=0.5, beta=0.5, epsilon=0.0", 3, 0.5, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
