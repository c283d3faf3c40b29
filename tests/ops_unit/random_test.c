/* SPDX-License-Identifier: Apache-2.0 */
/* The random family, beside cases/random.txt: what is drawn is distributed as it should be. Seeds
 * are fixed, so nothing here is left to chance; the bounds are five standard deviations. */
#include "case.h"

#include <math.h>

struct moments {
    double mean, variance, low, high;
};

static struct moments moments_of(const struct ul_tensor *tensor)
{
    uint64_t count = ul_type_elements(&tensor->type);
    double sum = 0;
    double squares = 0;
    struct moments result = {.low = (double)INFINITY, .high = -(double)INFINITY};
    for (uint64_t i = 0; i < count; i++) {
        double x = ul_tensor_get_float(tensor, i);
        sum += x;
        squares += x * x;
        result.low = fmin(result.low, x);
        result.high = fmax(result.high, x);
    }
    result.mean = sum / (double)count;
    result.variance = squares / (double)count - result.mean * result.mean;
    return result;
}

static struct moments draw(const char *op, const char *inputs, const char *attributes)
{
    struct ul_arena arena;
    struct ul_graph graph;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, op, inputs, attributes, 1);
    assert_false(case_run(&graph, &arena));
    struct moments result = moments_of(graph.values[graph.nodes[0].outputs[0]].tensor);
    ul_arena_done(&arena);
    return result;
}

static void near(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%g is not within %g of %g", got, tolerance, wanted);
}

static void distributions(void **state)
{
    static const char *const dtypes[] = {"dtype=1, ", "dtype=11, ", "dtype=10, "};
    char text[128];
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        snprintf(text, sizeof text, "%sshape=ints[100,400], low=-1.0, high=3.0", dtypes[i]);
        struct moments uniform = draw("RandomUniform", "", text);
        near(uniform.mean, 1, 5 * 4 / sqrt(12 * 40000.0));
        near(uniform.variance, 16.0 / 12, 0.03);
        assert_true(uniform.low >= -1 && uniform.high <= 3);
        snprintf(text, sizeof text, "%sshape=ints[100,400], mean=2.0, scale=0.5", dtypes[i]);
        struct moments normal = draw("RandomNormal", "", text);
        near(normal.mean, 2, 5 * 0.5 / 200);
        near(normal.variance, 0.25, 0.25 * 5 * sqrt(2 / 40000.0));
        assert_true(normal.high > 3.5 && normal.high < 5);
    }
    struct moments coin = draw("Bernoulli", "f32[40000] = splat [0.3]", "dtype=6");
    near(coin.mean, 0.3, 5 * sqrt(0.21 / 40000));
    assert_true(draw("Bernoulli", "f64[1000] = splat [0.0]", NULL).high <= 0);
    assert_true(draw("Bernoulli", "f64[1000] = splat [1.0]", NULL).low >= 1);
}

static void classes(void **state)
{
    /* log of 0.1, 0, 0.6, 0.3, times any factor; then a row with only one class; then a row with
     * none. */
    static const char logits[] = "f32[3,4] = [-2.302585,-inf,-0.510826,-1.203973,"
                                 "-inf,-inf,1000.0,-inf,-inf,-inf,-inf,-inf]";
    static const double wanted[4] = {0.1, 0, 0.6, 0.3};
    const uint64_t samples = 20000;
    uint32_t counts[4] = {0};
    struct ul_arena arena;
    struct ul_graph graph;
    (void)state;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "Multinomial", logits, "sample_size=20000, dtype=7", 1);
    assert_false(case_run(&graph, &arena));
    const struct ul_tensor *tensor = graph.values[graph.nodes[0].outputs[0]].tensor;
    for (uint64_t i = 0; i < samples; i++) {
        int64_t drawn = ul_tensor_get_int(tensor, i);
        assert_in_range(drawn, 0, 3);
        counts[drawn]++;
        assert_int_equal(ul_tensor_get_int(tensor, samples + i), 2);
        assert_int_equal(ul_tensor_get_int(tensor, 2 * samples + i), 0);
    }
    assert_int_equal(counts[1], 0);
    for (int k = 0; k < 4; k++)
        near(counts[k] / (double)samples, wanted[k],
             5 * sqrt(wanted[k] * (1 - wanted[k]) / (double)samples));
    ul_arena_done(&arena);
}

static void dropout(const char *inputs, double kept_part, double scale)
{
    struct ul_arena arena;
    struct ul_graph graph;
    double kept = 0;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, "Dropout", inputs, NULL, 2);
    assert_false(case_run(&graph, &arena));
    const struct ul_tensor *data = graph.values[graph.nodes[0].outputs[0]].tensor;
    const struct ul_tensor *mask = graph.values[graph.nodes[0].outputs[1]].tensor;
    uint64_t count = ul_type_elements(&data->type);
    for (uint64_t i = 0; i < count; i++) {
        bool keeps = ul_tensor_get_int(mask, i) != 0;
        near(ul_tensor_get_float(data, i), keeps ? 2 * scale : 0, 1e-5);
        kept += keeps;
    }
    near(kept / (double)count, kept_part, 5 * sqrt(kept_part * (1 - kept_part) / (double)count));
    ul_arena_done(&arena);
}

static void dropouts(void **state)
{
    (void)state;
    dropout("f32[100,200] = splat [2.0]; f32[] = [0.25]; bool[] = [1]", 0.75, 4.0 / 3);
    dropout("f32[100,200] = splat [2.0]; f32[] = [0.25]; bool[] = [0]", 1, 1);
    dropout("f32[100,200] = splat [2.0]; f32[] = [0.25]", 1, 1);
    dropout("f64[100,200] = splat [2.0]; -; bool[] = [1]", 0.5, 2);
    dropout("f32[100,200] = splat [2.0]; f32[] = [1.0]; bool[] = [1]", 0, 1);
}

static void repeatable(void **state)
{
    (void)state;
    struct moments first = draw("RandomNormal", "", "shape=ints[1000], seed=1.5");
    struct moments again = draw("RandomNormal", "", "shape=ints[10,100], seed=1.5");
    struct moments other = draw("RandomNormal", "", "shape=ints[1000], seed=2.5");
    near(first.mean, again.mean, 0);
    near(first.high, again.high, 0);
    assert_true(fabs(first.mean - other.mean) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),
        cmocka_unit_test(classes),
        cmocka_unit_test(dropouts),
        cmocka_unit_test(repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
