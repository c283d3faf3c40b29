/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of rows: what they build, and what they refuse. */
#include "ir/row.h"
#include "ir/text.h"
#include "test.h"

#include <string.h>

struct fixture {
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_build build;
    struct ul_row_builder row;
    ul_value_id results[3];
};

static struct ul_type type_of(void *context, ul_value_id value)
{
    const struct fixture *fixture = context;
    return fixture->graph.values[value].type;
}

static ul_value_id add_input(struct fixture *fixture, const char *name, enum ul_dtype dtype)
{
    const struct ul_type type = ul_type_make(dtype, 2, (int64_t[]){2, 3});
    ul_value_id value = ul_graph_add_value(&fixture->graph, name, UL_VALUE_INPUT, &type);
    ul_block_add_input(&fixture->graph, 0, value);
    ul_row_bind(&fixture->row, name, (uint32_t)strlen(name), ul_row_value(value));
    return value;
}

/* Inputs x f32[2,3] and i i64[2,3], b that is absent, n = 4, axes = [0, 1]. */
static void begin(struct fixture *fixture, const char *body)
{
    static const int64_t axes[2] = {0, 1};
    memset(fixture, 0, sizeof *fixture);
    ul_arena_init(&fixture->arena);
    ul_graph_init(&fixture->graph, &fixture->arena, "row");
    fixture->build = ul_build_last(&fixture->graph, 0, "n");
    fixture->build.scratch = &fixture->arena;
    fixture->build.infers = fixture->build.names_op = true;
    fixture->row = (struct ul_row_builder){.build = &fixture->build,
                                           .type_of = type_of,
                                           .context = fixture,
                                           .constant = "n/constant",
                                           .unknown = UL_NONE,
                                           .like = UL_NONE};
    add_input(fixture, "x", UL_F32);
    add_input(fixture, "i", UL_I64);
    ul_row_bind(&fixture->row, "b", 1, ul_row_value(UL_NONE));
    ul_row_bind(&fixture->row, "n", 1, ul_row_int(4));
    ul_row_bind(&fixture->row, "axes", 4, ul_row_ints(2, axes));
    struct ul_term_reader reader = {body, &fixture->arena};
    ul_row_run(&fixture->row, ul_term_read_body(&reader), 7, 3, fixture->results);
}

static void done(struct fixture *fixture)
{
    ul_arena_done(&fixture->arena);
}

static void builds(const char *body, const char *const *parts, uint32_t part_count)
{
    struct fixture fixture;
    struct ul_text text;
    begin(&fixture, body);
    assert_null(fixture.row.wrong);
    ul_text_init(&text, &fixture.arena);
    ul_graph_print(&text, &fixture.graph);
    for (uint32_t i = 0; i < part_count; i++)
        if (strstr(text.data, parts[i]) == NULL)
            fail_msg("%s lacks %s:\n%s", body, parts[i], text.data);
    assert_int_equal(fixture.graph.node_count, part_count);
    done(&fixture);
}
#define BUILDS(body, ...)                                                                          \
    builds(body, (const char *const[]){__VA_ARGS__},                                               \
           sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static void test_expressions(void **state)
{
    (void)state;
    BUILDS("x * Sigmoid(x * 1.5) + b", "\"n/Mul\" f32[2,3] = Mul",
           "\"n/Sigmoid\" f32[2,3] = Sigmoid", "\"n/Mul\" f32[2,3] = Mul n2 \"n/Mul\" (%0, %4)");
    BUILDS("Reshape(x, [x.1, 2 * x.0 / 2, 1])", "\"n/Reshape\" f32[3,2,1] = Reshape");
    BUILDS("Transpose(x) {perm=[1..x.rank, 0]}",
           "Transpose n0 \"n/Transpose\" (%0) {perm=ints[1,0]}");
    BUILDS("y = ReduceSum(x, axes) {keepdims=n > 3 ? 0 : none}; -y", "{keepdims=0}",
           "\"n/Neg\" f32[] = Neg");
    BUILDS("Where(Less(i, 0), 1:i64, i), , Cast(i) {to=x.type}", "\"n/Less\" bool[2,3] = Less",
           "\"n/Where\" i64[2,3] = Where", "\"n/Cast\" f32[2,3] = Cast");
    BUILDS("b ? b : x.rank == 3 && b.0 == 1 ? Abs(x) : Exp(x)", "\"n/Exp\" f32[2,3] = Exp");
    BUILDS("x * [0.5, 1, 2]", "\"n/constant\" f32[3] = [0.5,1.0,2.0]");
    BUILDS("values, places = TopK(x, [1]); values, places",
           "%3 \"n/TopK\" f32[2,1], %4 \"n/TopK:1\" i64[2,1]");
}

static void refuses(const char *body, bool is_invalid, const char *reason)
{
    struct fixture fixture;
    begin(&fixture, body);
    assert_non_null(fixture.row.wrong);
    assert_string_equal(fixture.row.wrong, reason);
    assert_int_equal(fixture.row.is_invalid, is_invalid);
    assert_int_equal(fixture.graph.node_count, 0);
    assert_int_equal(fixture.results[0], UL_NONE);
    done(&fixture);
}

static void test_refusals(void **state)
{
    (void)state;
    refuses("invalid 'has no bias' if !b; Abs(x)", true, "has no bias");
    refuses("problem `isn't supported` if n == 4; Abs(x)", false, "isn't supported");
    refuses("Reshape(x, [x.2, 1])", true,
            "has fewer dimensions, or a shorter list, than are needed");
    refuses("Reshape(x, [n / (n - 4)])", true, "a size is out of range");
    refuses("Reshape(x, [9223372036854775807 * n])", true, "a size is out of range");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expressions),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
